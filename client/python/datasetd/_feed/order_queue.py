"""Sends a sampler's batches to the daemon ahead of their use."""

from __future__ import annotations

import collections
import copy
import traceback
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from .._order.sampling import Drawn, SamplerOrder
from ..errors import Error, FailedPrecondition, InvalidArgument, OutOfRange

# Least number of batches that are sent together.
_MIN_BLOCK = 8

Position = Tuple[int, int]


class SamplerTraceback(Exception):
    """The text of a traceback: the cause of an error that was kept."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def _without_frames(error: Exception) -> Exception:
    """Returns `error` to be kept and raised later, with its traceback as text:
    frames keep their callers alive, and so an iterator that was dropped."""
    text = traceback.format_exception(type(error), error, error.__traceback__)
    error.__cause__ = SamplerTraceback("".join(text))
    error.__context__ = None
    return error.with_traceback(None)


class OrderQueue:
    """Draws batches and sends them ahead of those returned to the trainer.

    Makes one call to the daemon per block of batches.
    """

    def __init__(self, order: SamplerOrder) -> None:
        self.order = order
        self._pending: Deque[Drawn] = collections.deque()
        # The block after those, if send() raised this error for it.
        self._unsent: List[Drawn] = []
        self._unsent_error: Optional[Error] = None
        self._is_drawn_out = True
        self._error: Optional[Exception] = None
        # That of the sampler when the epoch began; None: it was told none.
        self.sampler_epoch: Optional[int] = None
        # State at the loader's position: row, order_hash, sampler_state,
        # sampler_epoch.
        self.state: Dict[str, Any] = {}

    def set_limits(self, capacity: int, prefetch: int) -> None:
        """`capacity` is the number of batches that the daemon queues."""
        self._capacity = capacity
        self._block_size = max(
            1, min(max(_MIN_BLOCK, prefetch), capacity // 2)
        )

    def begin(self, index: int, loaded: Optional[Dict[str, Any]]) -> None:
        """Runs the sampler up to batch `index` of an epoch.

        Starts from the state `loaded`, if there is one. Forgets batches sent
        before.
        """
        state = loaded or {}
        digest = state.get("order_hash")
        self._pending.clear()
        self._unsent, self._unsent_error = [], None
        self._is_drawn_out = False
        self._error = None
        self.order.begin(
            index,
            state.get("row"),
            None if digest is None else bytes.fromhex(digest),
            state.get("sampler_state"),
        )
        self.state = (
            {"sampler_state": self.order.start_state}
            if loaded is None
            else dict(loaded)
        )

    def top_up(self, send: Callable[[List[Drawn]], None]) -> None:
        """Sends a block if there is room for it.

        `send` raises if it rejects a block, of which nothing is then used. The
        error is kept until its position in the order, where the block is sent
        again, unless the daemon found it wrong.
        """
        if self._unsent:
            if not self._pending:
                block = self._unsent
                self._unsent, self._unsent_error = [], None
                self._send(block, send)
            return
        if (
            self._is_drawn_out
            or len(self._pending) + self._block_size > self._capacity
        ):
            return
        block = []
        try:
            while len(block) < self._block_size and not self._is_drawn_out:
                drawn = self.order.draw()
                if drawn is None:
                    self._is_drawn_out = True
                else:
                    block.append(drawn)
        except Exception as error:
            self._end(_without_frames(error))
        except BaseException:
            self._end_interrupted()
            raise
        if block:
            self._send(block, send)

    def _send(
        self, block: List[Drawn], send: Callable[[List[Drawn]], None]
    ) -> None:
        self._pending.extend(block)
        try:
            send(block)
        except Error as error:
            self._forget(block)
            if isinstance(error, (InvalidArgument, OutOfRange)):
                self._end(copy.copy(error))
            else:
                self._unsent, self._unsent_error = block, copy.copy(error)
        except Exception as error:
            self._forget(block)
            self._end(_without_frames(error))
        except BaseException:
            self._forget(block)
            self._end_interrupted()
            raise

    def blocks(self) -> List[List[Drawn]]:
        """Returns all that was drawn and not passed, to be sent to another
        daemon."""
        self._pending.extend(self._unsent)
        self._unsent, self._unsent_error = [], None
        pending = list(self._pending)
        return [
            pending[i : i + self._block_size]
            for i in range(0, len(pending), self._block_size)
        ]

    def first_digest(self) -> str:
        """Returns a hash of the epoch up to the batch that is to be passed
        next; empty if there is none."""
        return self._pending[0].digest.hex() if self._pending else ""

    def has_more(self) -> bool:
        """False at the end of the epoch; raises what ended it before."""
        if self._pending:
            return True
        if self._unsent_error is not None:
            raise copy.copy(self._unsent_error)
        error, self._error = self._error, None
        if error is not None:
            raise error
        return False

    def pass_on(self, epoch: int, index: int) -> Position:
        """Passes a batch that was returned; returns the position after it."""
        # Batches before it were taken, and Ctrl-C came before they were passed.
        while self._pending[0].number < index:
            self._pending.popleft()
        drawn = self._pending[0]
        if (
            len(self._pending) > 1
            or self._unsent
            or not self._is_drawn_out
            or self._error
        ):
            position = epoch, index + 1
            self.state = {
                "row": drawn.first_row + len(drawn.indices),
                "order_hash": drawn.digest.hex(),
                "sampler_state": drawn.sampler_state,
                "sampler_epoch": self.sampler_epoch,
            }
        else:
            position = epoch + 1, 0
            self.state = {"sampler_state": self.order.present_state()}
        self._pending.popleft()
        return position

    def _forget(self, block: List[Drawn]) -> None:
        for _ in block:
            self._pending.pop()

    def _end_interrupted(self) -> None:
        self._end(
            FailedPrecondition(
                "the sampler was interrupted: start the epoch again, or load a "
                "state_dict()"
            )
        )

    def _end(self, error: Exception) -> None:
        self._is_drawn_out = True
        self._error = error
