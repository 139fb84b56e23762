"""Tells Accelerate of the epochs of a loader, as its own loaders do.

At the end of an epoch it steps on gradients that are not yet accumulated, and
gather_for_metrics() drops the samples that pad the ranks' shares.
"""

from __future__ import annotations

import sys
from typing import Any, Iterator, Optional

from .._warnings import warn_once


class _Epoch:
    """Answers what Accelerate's GradientState asks of an iterated loader."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        # Asked before its first batch.
        self._num_padding: int = loader._num_padding()
        self._num_rows = 0  # of this rank's last batch
        self.end_of_dataloader = False

    def end(self, batch: Any) -> None:
        self._num_rows = batch.num_samples
        self.end_of_dataloader = True

    @property
    def remainder(self) -> int:
        """How many rows of the last batch, gathered rank by rank, to keep; 0:
        all. -1: not known, so that all are kept."""
        loader, num_padding = self._loader, self._num_padding
        if num_padding == 0:
            return 0
        if num_padding > 1 or loader._order.node is not None:
            # One on each of the last ranks, or of some node's: not at the end
            # of all rows.
            warn_once(
                "gather_for_metrics",
                f"gather_for_metrics() counts {num_padding} samples twice, "
                f"because {loader.num_samples} samples are padded for "
                f"{loader.world_size} ranks: also gather indices, and keep "
                "the first row of each; or evaluate a subset whose size is a "
                "multiple of the number of ranks",
            )
            return -1
        num_ranks: int = loader.world_size
        return self._num_rows * num_ranks - 1


class _Told:
    """An iterator of a loader, for one thread at a time."""

    def __init__(self, loader: Any, batches: Any, state: Any) -> None:
        self._batches = batches
        self._state = state
        self._loader = loader
        self._epoch: Optional[_Epoch] = None
        self._is_known = False

    def __iter__(self) -> "_Told":
        return self

    def __next__(self) -> Any:
        epoch = self._epoch
        if epoch is None:
            epoch = self._epoch = _Epoch(self._loader)
        if not self._is_known and not epoch.end_of_dataloader:
            self._state._add_dataloader(epoch)
            self._is_known = True
        try:
            batch = next(self._batches)
        except StopIteration:
            self._end()
            raise
        if self._is_last():
            epoch.end(batch)
        return batch

    def _is_last(self) -> bool:
        try:
            return len(self._batches) == 0
        except TypeError:  # a sampler that does not know its length
            return False

    def __len__(self) -> int:
        return len(self._batches)

    def _end(self) -> None:
        if self._is_known:
            self._state._remove_dataloader(self._epoch)
            self._is_known = False

    def __del__(self) -> None:
        self._end()


def watch(loader: Any, batches: Iterator[Any]) -> Iterator[Any]:
    """Returns `batches`, wrapped if accelerate is imported."""
    state = sys.modules.get("accelerate.state")
    if state is None:
        return batches
    return _Told(loader, batches, state.GradientState())
