"""Random access to the samples of a dataset."""

from __future__ import annotations

import array
from typing import Any, Callable, Iterable, Iterator, Optional, Protocol

from .._batches.batch import Batch
from .._order.sampling import MAX_BATCH_SIZE, index_array
from ..errors import AllSlotsHeld, Internal, InvalidArgument


class SingleBatchSampler:
    """A batch_sampler that yields the one requested batch."""

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self.indices: Any = ()

    def __iter__(self) -> Iterator[Any]:
        return iter([self.indices])

    def __len__(self) -> int:
        return 1


class Loader(Protocol):
    """The part of DataLoader that is used here."""

    batch_size: int
    timeout: Optional[float]

    def set_epoch(self, epoch: int) -> None: ...

    def _iterate(self) -> Iterator[Batch[Any]]: ...

    def close(self) -> None: ...


class Fetcher:
    """Batches on demand, through a feed with a client's order.

    `open_loader` is called as DataLoader with batch_sampler and timeout. Its
    feed has room for the rows of the first fetch(), at least `min_rows`, and
    grows in powers of two. For one thread at a time.
    """

    def __init__(
        self,
        open_loader: Callable[..., Loader],
        min_rows: int = 1,
        timeout: Optional[float] = None,
    ) -> None:
        self.timeout = timeout
        self._min_rows = min_rows
        self._open_loader = open_loader
        self._loader: Optional[Loader] = None
        self._sampler = SingleBatchSampler(0)

    def fetch(self, indices: Iterable[int], epoch: int) -> Batch[Any]:
        """Returns the samples `indices`, in this order."""
        wanted = index_array("indices", indices)
        if not 1 <= len(wanted) <= MAX_BATCH_SIZE:
            raise InvalidArgument(
                f"indices: there are {len(wanted)}; expected 1 to "
                f"{MAX_BATCH_SIZE}"
            )
        try:
            return self._fetch(wanted, epoch)
        except AllSlotsHeld:
            # Held batches stay valid without their feed.
            self.close()
            return self._fetch(wanted, epoch)

    def _fetch(self, wanted: "array.array[int]", epoch: int) -> Batch[Any]:
        loader = self._loader
        if loader is None or loader.batch_size < len(wanted):
            self.close()
            rows = max(len(wanted), self._min_rows)
            if loader is not None:
                rows = 1 << (rows - 1).bit_length()
            self._sampler = SingleBatchSampler(rows)
            loader = self._loader = self._open_loader(
                batch_sampler=self._sampler, timeout=self.timeout
            )
        loader.timeout = self.timeout
        self._sampler.indices = wanted
        loader.set_epoch(epoch)
        batch = next(loader._iterate(), None)
        count = 0 if batch is None else batch.num_samples
        if batch is None or count != len(wanted):
            self.close()
            raise Internal(
                f"the daemon returned {count} samples, {len(wanted)} were "
                "requested"
            )
        return batch

    def close(self) -> None:
        if self._loader is not None:
            self._loader.close()
            self._loader = None
