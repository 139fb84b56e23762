"""MPI's ranks, by mpi4py, and how they tell each other something.

MPI has no store that a rank can look into: what all ranks see goes by a
collective call. Here these are non-blocking, on a communicator of their own,
and are waited for up to a time limit, so that a rank that never comes holds
nobody up for longer.
"""

from __future__ import annotations

import sys
import time
from typing import Any, List, Optional, Tuple

from .._warnings import warn_once
from .ranks import Ranks

# The longest text of one rank.
_TEXT_BYTES = 8192

# The communicator, and the request by which it is made.
_communicator: Optional[Tuple[Any, Any]] = None
_not_begun: List["Exchange"] = []
# Begun, and perhaps given up: MPI writes to their memory until they are done.
_under_way: List["Exchange"] = []


def of_mpi() -> Optional[Ranks]:
    """Returns the ranks of COMM_WORLD; None unless mpi4py.MPI is imported and
    initialised."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized():
        return None
    return Ranks(mpi.COMM_WORLD.Get_rank(), mpi.COMM_WORLD.Get_size())


def can_exchange() -> bool:
    """False, with a warning, where this thread may not call MPI."""
    mpi = sys.modules["mpi4py.MPI"]
    if mpi.Query_thread() == mpi.THREAD_MULTIPLE or mpi.Is_thread_main():
        return True
    warn_once(
        "store",
        "the ranks are not compared: MPI was initialised without "
        "THREAD_MULTIPLE, and this is not its main thread",
    )
    return False


class Exchange:
    """One text from each rank.

    Every rank makes as many of these, in the same order. That waits for
    nobody.
    """

    def __init__(self, text: str) -> None:
        data = text.encode()
        assert len(data) <= _TEXT_BYTES, "a rank's text is short"
        self._ours = data.ljust(_TEXT_BYTES, b"\0")
        self._theirs = bytearray()
        self._request: Any = None
        _not_begun.append(self)
        _begin()

    def texts(self, seconds: float) -> Optional[List[str]]:
        """Returns the texts by rank; None if a rank has not come for so
        long."""
        deadline = time.monotonic() + seconds
        pause = 1e-5
        while not self._is_done():
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(pause, left))
            pause = min(2 * pause, 0.01)
        return [
            bytes(self._theirs[at : at + _TEXT_BYTES]).rstrip(b"\0").decode()
            for at in range(0, len(self._theirs), _TEXT_BYTES)
        ]

    def _is_done(self) -> bool:
        _begin()
        return self._request is not None and bool(self._request.Test())

    def begin(self, communicator: Any) -> None:
        self._theirs = bytearray(communicator.Get_size() * _TEXT_BYTES)
        self._request = communicator.Iallgather(self._ours, self._theirs)
        _under_way.append(self)

    def is_pending(self) -> bool:
        return not self._request.Test()


def _begin() -> None:
    """Begins, in order, what can be begun."""
    global _communicator
    if _communicator is None:
        _communicator = sys.modules["mpi4py.MPI"].COMM_WORLD.Idup()
    communicator, made = _communicator
    _under_way[:] = [begun for begun in _under_way if begun.is_pending()]
    while _not_begun and made.Test():
        _not_begun.pop(0).begin(communicator)
