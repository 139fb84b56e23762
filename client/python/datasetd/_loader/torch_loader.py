"""A loader as a torch.utils.data.DataLoader."""

from __future__ import annotations

import functools
import itertools
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional

from ..errors import InvalidArgument


class _Iteration:
    """Begins at the first batch that is taken of `loader`, a BaseLoader."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._batches: Optional[Iterator[Any]] = None

    def take(self, number: int) -> Any:
        """Raises StopIteration after the last batch."""
        if self._batches is None:
            self._batches = self._loader._iter_after(number)
        return next(self._batches)


def _only(batches: List[Any]) -> Any:
    (batch,) = batches
    return batch


def make(loader: Any) -> Any:
    """See DataLoader.as_torch."""
    import torch.utils.data

    class Batches(torch.utils.data.Dataset):  # type: ignore[misc]
        """The batches, by the keys of Numbers."""

        def __getitem__(self, take: Callable[[], Any]) -> Any:
            return take()

        def __len__(self) -> int:
            return int(loader.num_samples)

    class Numbers(torch.utils.data.BatchSampler):  # type: ignore[misc]
        """The keys of the batches of an epoch.

        Accelerate's skip_first_batches, which Trainer of transformers uses to
        resume, makes a DataLoader of the rest of them: a seek.
        """

        def __init__(
            self,
            sampler: Any = None,
            batch_size: Optional[int] = None,
            drop_last: Optional[bool] = None,
        ) -> None:
            """The arguments are those with which Lightning makes another one:
            the order and the size of the batches stay the loader's."""
            if loader._order.is_random and isinstance(
                sampler, torch.utils.data.SequentialSampler
            ):
                raise InvalidArgument(
                    "as_torch(): the same batches are expected in every epoch, "
                    "as by Trainer(overfit_batches=), but those of this loader "
                    "change: make it without shuffle= and weights="
                )
            self.batch_size = loader.batch_size
            self.drop_last = loader.drop_last

        def __iter__(self) -> Iterator[List[Callable[[], Any]]]:
            iteration = _Iteration(loader)
            numbers: Iterable[int]
            try:
                numbers = range(len(loader))
            except TypeError:  # the length is not known
                numbers = itertools.count()
            for number in numbers:
                yield [functools.partial(iteration.take, number)]

        def __len__(self) -> int:
            return len(loader)

        def set_epoch(self, epoch: int) -> None:
            loader.set_epoch(epoch)

    class Divided(torch.utils.data.DistributedSampler):  # type: ignore[misc]
        """Says that the batches are this rank's share: Lightning, Fabric and
        Ray would else divide them again."""

        def __init__(self) -> None:
            self.rank, self.num_replicas = loader.rank, loader.world_size

        def __iter__(self) -> Iterator[int]:
            raise TypeError("the order of as_torch() is that of its batches")

        def __len__(self) -> int:
            return int(loader.num_samples)

        def set_epoch(self, epoch: int) -> None:
            """Fabric counts from the start of the process, the Trainer goes on
            after a checkpoint."""
            loader._follow_epoch(epoch)

    class TorchLoader(torch.utils.data.DataLoader):  # type: ignore[misc]
        """Its items are the loader's batches."""

        # Accelerate would divide the batches among the ranks again.
        _is_accelerate_prepared = True

        @property
        def sampler(self) -> Divided:
            return Divided()

        @sampler.setter
        def sampler(self, _: Any) -> None:
            """torch sets one that `batch_sampler` replaces."""

        def set_epoch(self, epoch: int) -> None:
            loader.set_epoch(epoch)

        def state_dict(self) -> Dict[str, Any]:
            state: Dict[str, Any] = loader.state_dict()
            return state

        def load_state_dict(self, state: Dict[str, Any]) -> None:
            loader.load_state_dict(state)

    return TorchLoader(Batches(), batch_sampler=Numbers(), collate_fn=_only)
