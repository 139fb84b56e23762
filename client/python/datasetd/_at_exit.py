"""What is open is closed when the interpreter ends, but not under a thread that
is using it: that goes with the process."""

from __future__ import annotations

import atexit
import weakref
from typing import Protocol


class Closable(Protocol):
    def is_used(self) -> bool:
        """Whether a thread is in a call."""

    def close(self) -> None: ...


_open: "weakref.WeakSet[Closable]" = weakref.WeakSet()
_is_registered = False


def close_at_exit(thing: Closable) -> None:
    """REQUIRES: its finalizer does nothing at exit, and was made before: what
    is registered later ends earlier, and a local daemon is to end last."""
    global _is_registered
    _open.add(thing)
    if not _is_registered:
        _is_registered = True
        atexit.register(_close_all)


def _close_all() -> None:
    for thing in list(_open):
        if not thing.is_used():
            thing.close()
