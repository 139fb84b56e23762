"""Random access to the samples of a dataset."""

from __future__ import annotations

import array
from typing import Any, Dict, Iterable, Iterator, Optional

from ._client import Dataset
from ._loader import Batch, DataLoader
from ._sampling import MAX_BATCH_SIZE, index_array
from .errors import AllSlotsHeld, InvalidArgument

# Rows of a fetcher's feed, at least.
_MIN_ROWS = 16


class _Requested:
    """A batch_sampler of the one batch that was asked for."""

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self.indices: Any = ()

    def __iter__(self) -> Iterator[Any]:
        return iter([self.indices])

    def __len__(self) -> int:
        return 1


class _FetchLoader(DataLoader):
    """Augments a sample as the daemon's order does, where each comes once."""

    def _open(self) -> None:
        self._options["client_order"] = {"draws_by_sample": True}
        super()._open()


class Fetcher:
    """Batches on demand, through a feed that waits for what is asked.

    `options` are a DataLoader's.
    """

    def __init__(self, dataset: Dataset, options: Dict[str, Any]) -> None:
        self._dataset = dataset
        self._options = options
        self._loader: Optional[DataLoader] = None
        self._request = _Requested(0)

    def fetch(self, indices: Iterable[int], epoch: int) -> Batch:
        wanted = index_array("indices", indices)
        if not 1 <= len(wanted) <= MAX_BATCH_SIZE:
            raise InvalidArgument(
                f"indices: there are {len(wanted)}; expected 1 to "
                f"{MAX_BATCH_SIZE}"
            )
        try:
            return self._fetch(wanted, epoch)
        except AllSlotsHeld:
            # Those that are held stay valid without their feed.
            self.close()
            return self._fetch(wanted, epoch)

    def _fetch(self, wanted: "array.array[int]", epoch: int) -> Batch:
        loader = self._loader
        if loader is None or loader.batch_size < len(wanted):
            self.close()
            rows = max(_MIN_ROWS, 1 << (len(wanted) - 1).bit_length())
            self._request = _Requested(rows)
            loader = _FetchLoader(
                self._dataset,
                batch_sampler=self._request,
                prefetch=1,
                name="fetch",
                **self._options,
            )
            self._loader = loader
        self._request.indices = wanted
        loader.set_epoch(epoch)
        return next(iter(loader))

    def close(self) -> None:
        if self._loader is not None:
            self._loader.close()
            self._loader = None
