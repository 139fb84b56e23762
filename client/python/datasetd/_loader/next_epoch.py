"""Where the next iter() of a loader begins."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional

from .._feed.epochs import EpochIterator, Use
from .._feed.reconnecting_feed import Position

OrderState = Optional[Dict[str, Any]]


class _Before(NamedTuple):
    """The state that iter() found, and the use of its iterator."""

    use: Use
    loaded: Optional[Position]
    order_state: OrderState
    requested_epoch: Optional[int]
    last_epoch: int


class NextEpoch:
    """Where the next iter() begins: at a loaded position, at a requested epoch,
    or at the epoch after the last one begun.

    Attributes: loaded, the position of load(); order_state, that of the job's
    own order there; last_epoch, the last one begun, -1 before the first.
    """

    def __init__(self) -> None:
        self.loaded: Optional[Position] = None
        self.order_state: OrderState = None
        self.last_epoch = -1
        # Where the loaded epoch begins in the global order.
        self._loaded_first = 0
        self._requested_epoch: Optional[int] = None
        # One for each iterator since the last one that was used.
        self._befores: List[_Before] = []
        # The next iter() may begin where the last one did, if that iterator is
        # not used until then.
        self._may_repeat = False

    def position(self) -> Position:
        """Returns where the next iter() begins."""
        return self.asked_for() or (self.last_epoch + 1, 0)

    def asked_for(self) -> Optional[Position]:
        """Returns where the next iter() begins after load() or request()."""
        if self.loaded is None and self._requested_epoch is not None:
            return self._requested_epoch, 0
        return self.loaded

    @property
    def first_position(self) -> int:
        """Place of the global order at which the next epoch begins."""
        return 0 if self.loaded is None else self._loaded_first

    def load(
        self, position: Position, first_position: int, order_state: OrderState
    ) -> None:
        self.loaded, self.order_state = position, order_state
        self._loaded_first = first_position
        self._requested_epoch = None
        self._may_repeat = False
        self._befores.clear()

    def request(self, epoch: int) -> None:
        """A loaded position within the same epoch is kept."""
        if self.loaded is not None and self.loaded[0] == epoch:
            return
        self.loaded = self.order_state = None
        self._requested_epoch = epoch
        self._may_repeat = False

    def unused(self) -> Optional[EpochIterator]:
        """Returns the last iterator if it is held and unused."""
        self.forget_unused()
        return self._befores[-1].use.iterator() if self._befores else None

    def move_unused(self, epoch: int) -> None:
        """The last iterator, which is held and unused, begins `epoch`."""
        self._befores[-1] = self._befores[-1]._replace(
            loaded=None, order_state=None, requested_epoch=epoch
        )
        self.last_epoch = epoch

    def allow_repeat(self) -> None:
        """The next iter() begins where the last one did, even if its iterator
        is held, unless that is used before."""
        self._may_repeat = True

    def repeat_unused(self) -> None:
        """Called by iter(): see allow_repeat()."""
        may_repeat, self._may_repeat = self._may_repeat, False
        if may_repeat and self._befores:
            if not self._befores[-1].use.has_begun:
                self._undo()

    def cut_anew(self, rows_per_batch: int) -> None:
        """Begins a loaded epoch at the row that was reached, with batches of
        `rows_per_batch` rows of all ranks."""
        assert self.loaded is not None
        epoch, index = self.loaded
        self.loaded = epoch, 0
        self._loaded_first += index * rows_per_batch

    def begin(self, epoch: int, use: Use) -> None:
        """An iterator begins at position(), if it is used."""
        self._befores.append(
            _Before(
                use,
                self.loaded,
                self.order_state,
                self._requested_epoch,
                self.last_epoch,
            )
        )
        self.loaded = self.order_state = None
        self._requested_epoch = None
        self.last_epoch = epoch

    def skip(self, epoch: int) -> None:
        """Nothing is left of `epoch`."""
        self.load((epoch + 1, 0), 0, None)

    def forget_unused(self) -> None:
        """Undoes the last calls of begin() whose iterators were dropped
        unused. A request() that came after them is kept."""
        while self._befores:
            before = self._befores[-1]
            if before.use.has_begun:
                self._befores.clear()
                return
            if before.use.iterator() is not None:
                return
            self._undo()

    def _undo(self) -> None:
        before = self._befores.pop()
        before.use.undo()
        requested_since = self._requested_epoch
        self.loaded, self.order_state = before.loaded, before.order_state
        self._requested_epoch = before.requested_epoch
        self.last_epoch = before.last_epoch
        if requested_since is not None:
            self.request(requested_since)
