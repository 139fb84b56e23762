"""Where the next epoch of a loader begins."""

from __future__ import annotations

from typing import Any, Dict, Optional

from .._feed.reconnecting_feed import Position
from .._order.weights import Weighted

OrderState = Optional[Dict[str, Any]]


class NextEpoch:
    """Where the next epoch begins: at a loaded position, at a requested epoch,
    or at the epoch after the last one begun.

    Attributes: loaded, the position of load(); order_state, that of the job's
    own order there; weighted, the weights of a loaded epoch that was begun
    before, None: the loader's; last_epoch, the last one begun, -1 before the
    first.
    """

    def __init__(self) -> None:
        self.loaded: Optional[Position] = None
        self.order_state: OrderState = None
        self.weighted: Optional[Weighted] = None
        self.last_epoch = -1
        # Where the loaded epoch begins in the global order.
        self._loaded_first = 0
        self._requested_epoch: Optional[int] = None

    def position(self) -> Position:
        """Returns where the next epoch begins."""
        return self.asked_for() or (self.last_epoch + 1, 0)

    def asked_for(self) -> Optional[Position]:
        """Returns where the next epoch begins after load() or request()."""
        if self.loaded is None and self._requested_epoch is not None:
            return self._requested_epoch, 0
        return self.loaded

    @property
    def first_position(self) -> int:
        """Place of the global order at which the next epoch begins."""
        return 0 if self.loaded is None else self._loaded_first

    def load(
        self,
        position: Position,
        first_position: int,
        order_state: OrderState,
        weighted: Optional[Weighted] = None,
    ) -> None:
        self.loaded, self.order_state = position, order_state
        self.weighted = weighted
        self._loaded_first = first_position
        self._requested_epoch = None

    def request(self, epoch: int) -> None:
        """A loaded position within the same epoch is kept."""
        if self.loaded is not None and self.loaded[0] == epoch:
            return
        self.loaded = self.order_state = self.weighted = None
        self._requested_epoch = epoch

    def cut_anew(self, rows_per_batch: int) -> None:
        """Begins a loaded epoch at the row that was reached, with batches of
        `rows_per_batch` rows of all ranks."""
        assert self.loaded is not None
        epoch, index = self.loaded
        self.loaded = epoch, 0
        self._loaded_first += index * rows_per_batch

    def begin(self, epoch: int) -> None:
        """`epoch`, that of position(), has begun."""
        self.loaded = self.order_state = self.weighted = None
        self._requested_epoch = None
        self.last_epoch = epoch

    def skip(self, epoch: int) -> None:
        """Nothing is left of `epoch`."""
        self.load((epoch + 1, 0), 0, None)
