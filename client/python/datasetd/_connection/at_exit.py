"""Open connections and feeds: closes them when their daemon or the interpreter
ends."""

from __future__ import annotations

import atexit
import weakref
from typing import Dict

CLOSED_WITH_DAEMON = (
    "its private daemon has ended, by close() of the datasetd.LocalDaemon or "
    "the end of its `with`"
)

# The finalizers of open objects, and the addresses of their daemons.
_open: Dict[weakref.finalize, str] = {}
_is_registered = False


def close_at_exit(finalizer: weakref.finalize, address: str) -> None:
    """Closes the object of `finalizer` at exit, by close(), unless is_used()
    says that a thread is using it; it then ends with the process.

    REQUIRES: the finalizer does nothing at exit and was created before: later
    registrations run earlier, and a local daemon must end last.
    """
    global _is_registered
    for other in list(_open):
        if not other.alive:
            _open.pop(other, None)
    _open[finalizer] = address
    if not _is_registered:
        _is_registered = True
        atexit.register(_close_all)


def close_with_daemon(address: str) -> None:
    """Closes this process's objects of a daemon that is about to end, so that
    it need not wait for them."""
    for finalizer, its_address in list(_open.items()):
        if its_address != address:
            continue
        found = finalizer.peek()
        if found is None:
            finalizer()  # The object is garbage, as this daemon may be.
        else:
            found[0].close(CLOSED_WITH_DAEMON)


def _close_all() -> None:
    for finalizer in list(_open):
        found = finalizer.peek()
        if found is not None and not found[0].is_used():
            found[0].close()
