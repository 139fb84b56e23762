"""A loader's `sampler` and `batch_sampler` where it was given none, as torch's
DataLoader has them."""

from __future__ import annotations

from typing import Any, Iterator, List, Protocol


class Loader(Protocol):
    """What they need of it."""

    batch_size: int
    drop_last: bool

    @property
    def sampler(self) -> Any: ...

    def __len__(self) -> int: ...

    def _num_rows(self) -> int: ...

    def _next_indices(self) -> Iterator[List[Any]]: ...

    def _follow_epoch(self, epoch: int) -> None: ...


class LoaderSampler:
    """The sample indices that this rank takes in the next epoch.

    Those of a whole epoch, or of its rest after load_state_dict. What Lightning
    tells of epochs goes to the loader.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[int]:
        for batch in self._loader._next_indices():
            for item in batch:
                if isinstance(item, list):
                    yield from item
                else:
                    yield item

    def __len__(self) -> int:
        """Rows of this rank in a whole epoch."""
        return self._loader._num_rows()

    @property
    def num_samples(self) -> int:
        return len(self)

    def set_epoch(self, epoch: int) -> None:
        self._loader._follow_epoch(epoch)


class LoaderBatchSampler:
    """The lists of sample indices of this rank's batches in the next epoch; of
    groups lists of lists."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self.sampler = loader.sampler
        self.batch_size = loader.batch_size
        self.drop_last = loader.drop_last

    def __iter__(self) -> Iterator[List[Any]]:
        return self._loader._next_indices()

    def __len__(self) -> int:
        return len(self._loader)
