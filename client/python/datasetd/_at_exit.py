"""Closes open objects when the interpreter ends, unless a thread is using
them; those end with the process."""

from __future__ import annotations

import atexit
import weakref
from typing import Protocol


class Closable(Protocol):
    def is_used(self) -> bool:
        """True if a thread is in a call."""

    def close(self) -> None: ...


_open: "weakref.WeakSet[Closable]" = weakref.WeakSet()
_is_registered = False


def close_at_exit(thing: Closable) -> None:
    """Closes the object at exit. REQUIRES: its finalizer does nothing at exit
    and was created before: later registrations run earlier, and a local daemon
    must end last."""
    global _is_registered
    _open.add(thing)
    if not _is_registered:
        _is_registered = True
        atexit.register(_close_all)


def _close_all() -> None:
    for thing in list(_open):
        if not thing.is_used():
            thing.close()
