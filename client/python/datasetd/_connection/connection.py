"""One connection to a daemon, safe to close while others use it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import weakref
from typing import Any, Iterator

from .._arguments import nanoseconds
from ..errors import Closed
from . import library as _library
from .at_exit import close_at_exit


class Connection:
    """One datasetd_client. Thread-safe.

    Closed by close(), or when it is garbage.
    """

    def __init__(self, address: str, timeout: float) -> None:
        library = _library.load()
        options = _library.CClientOptions()
        options.struct_size = ctypes.sizeof(options)
        options.address = address.encode()
        options.connect_timeout_ns = max(1, nanoseconds(timeout))  # 0 is 10 s
        handle = ctypes.c_void_p()
        self._handle = handle
        # Before the handle exists, since Ctrl-C may come right after.
        self._free = weakref.finalize(self, _free, library, handle)
        self._free.atexit = False
        self._lock = threading.Lock()
        self._num_users = 0
        self._closed = ""  # why, once it is
        renew_lock_after_fork(self)
        _library.call(
            library.client_connect, ctypes.byref(options), ctypes.byref(handle)
        )
        self.address: str = library.client_address(handle).decode()
        close_at_exit(self._free, self.address)

    @contextlib.contextmanager
    def used(self) -> Iterator[ctypes.c_void_p]:
        """Yields the handle and keeps it alive. Raises Closed if it is
        closed."""
        with self._lock:
            if self._closed:
                raise Closed(self._closed)
            self._num_users += 1
        try:
            yield self._handle
        finally:
            with self._lock:
                self._num_users -= 1
                is_last = bool(self._closed) and self._num_users == 0
            if is_last:
                self._free()

    def is_used(self) -> bool:
        """True if a thread is in a call."""
        return self._num_users > 0

    def close(self, why: str = "") -> None:
        """Ends the session, at once or when the last running call returns."""
        with self._lock:
            if not self._closed:
                self._closed = "the client is closed" + (why and f": {why}")
            is_unused = self._num_users == 0
        if is_unused:
            self._free()


def _free(library: _library.Library, handle: ctypes.c_void_p) -> None:
    if handle:
        library.client_close(handle)


_owners: "weakref.WeakSet[Any]" = weakref.WeakSet()


def renew_lock_after_fork(owner: Any) -> None:
    """Gives `owner` another `_lock` in a forked child, where the thread that
    held it is missing."""
    _owners.add(owner)


def _after_fork() -> None:
    for owner in list(_owners):
        owner._lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
