"""Session: state shared by a Client, its Datasets and their loaders."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
import weakref
from typing import Any, Callable, Dict, Optional

from .._arguments import encode
from ..errors import (
    Closed,
    DaemonDraining,
    DaemonGone,
    DeadlineExceeded,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from . import library as _library
from .connection import Connection, renew_lock_after_fork

_RETRY_SECONDS = 0.05
# A daemon that listens gets at least this time to answer.
_LEAST_ANSWER_SECONDS = 0.2

# The local daemons of this process, by address.
local_daemons: "weakref.WeakValueDictionary[str, Any]" = (
    weakref.WeakValueDictionary()
)


class Session:
    """A connection that can be replaced when its daemon is lost, and the
    holders of its datasets. Keeps a local daemon of this process alive.
    Thread-safe."""

    def __init__(
        self,
        address: str,
        timeout: float,
        start_daemon: Optional[Callable[[], None]] = None,
    ) -> None:
        """Waits for a daemon that is starting, unless there is `start_daemon`,
        which is called before a lost daemon is looked for."""
        self._library = _library.load()
        self._timeout = timeout
        self.start_daemon = start_daemon
        self._lock = threading.Lock()
        # Holders by dataset; the daemon counts sessions, not holders.
        self._holds: Dict[str, int] = {}
        connect = _connect if start_daemon is None else Connection
        self._connection: Optional[Connection] = connect(address, timeout)
        self.address = self._connection.address
        self._local_daemon = local_daemons.get(self.address)
        renew_lock_after_fork(self)

    def connection(self) -> Connection:
        """Returns the current connection; raises Closed after close()."""
        connection = self._connection
        if connection is None:
            raise Closed("the client is closed")
        return connection

    def call(self, method: str, /, **request: Any) -> Dict[str, Any]:
        """Calls a method of the daemon's services with the fields of its
        request, and returns its response: messages of proto/datasetd/v1 as
        dicts. Raises the daemon's error."""
        return _library.parse_answer(
            self.call_text("call", method.encode(), encode(request))
        )

    def call_text(self, name: str, *arguments: Any) -> str:
        """Calls datasetd_`name` with the client, the arguments and a text,
        which it returns. Raises its error."""
        return self._call_text(self.connection(), name, *arguments)

    def _call_text(
        self, connection: Connection, name: str, *arguments: Any
    ) -> str:
        text = ctypes.c_void_p()
        try:
            with connection.used() as handle:
                _library.call(
                    getattr(self._library, name),
                    handle,
                    *arguments,
                    ctypes.byref(text),
                )
        except BaseException:
            self._library.quick.free(text)
            raise
        return self._library.take_text(text)

    def hold(self, name: str) -> None:
        """Adds a holder of a dataset that the session holds."""
        with self._lock:
            self._holds[name] = self._holds.get(name, 0) + 1

    def release(self, name: str) -> None:
        """Removes a holder; after the last one the daemon may drop the
        dataset."""
        with self._lock:
            self._holds[name] -= 1
            is_last = self._holds[name] == 0
        if not is_last:
            return
        # With the connection, the dataset or the daemon the hold has ended, and
        # that of a daemon that does not answer ends with the session.
        ended = contextlib.suppress(
            Closed,
            NotFound,
            DaemonDraining,
            DeadlineExceeded,
            Unauthenticated,
            Unavailable,
        )
        with ended:
            self.call("ReleaseDataset", name=name)
        with self._lock:
            is_held = self._holds[name] > 0
        if is_held:  # again, by another thread that was told before
            with ended:
                self.call("GetDataset", name=name)

    def reconnect(self, lost: Optional[Connection]) -> None:
        """Replaces the connection `lost`, unless another loader has done so.
        The daemon's datasets that had holders are held again. Raises DaemonGone
        if there is no daemon, DaemonDraining if it is shutting down."""
        with self._lock:
            if self._connection is None:
                raise Closed("the client is closed")
            if self._connection is not lost:
                return
        if self.start_daemon is not None:
            self.start_daemon()
        connection = Connection(self.address, self._timeout)
        is_used = False
        try:
            self._hold_again(connection)
            with self._lock:
                if self._connection is lost:
                    self._connection = connection
                    is_used = True
                is_closed = self._connection is None
        finally:
            if not is_used:
                connection.close()
        if is_closed:
            raise Closed("the client is closed")

    def _hold_again(self, connection: Connection) -> None:
        """Holds through `connection` all that has holders and is there."""
        with self._lock:
            names = [name for name, holders in self._holds.items() if holders]
        for name in names:
            with contextlib.suppress(NotFound):
                self._call_text(
                    connection, "call", b"GetDataset", encode({"name": name})
                )

    def close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _connect(address: str, timeout: float) -> Connection:
    """Waits for a daemon, also for the one after a daemon that is shutting
    down. Raises DaemonGone, or DaemonDraining, if none is there in time."""
    deadline = time.monotonic() + timeout
    if address.startswith("~"):
        address = os.path.expanduser(address)
    has_waited = False
    while True:
        left = deadline - time.monotonic()
        connection: Optional[Connection] = None
        try:
            connection = Connection(address, max(left, _LEAST_ANSWER_SECONDS))
            if has_waited:
                # One that has just started opens one socket after the other.
                _await_answer(connection)
            return connection
        except (DaemonGone, DaemonDraining) as error:
            if connection is not None:
                connection.close()
            if left <= 0:
                if isinstance(error, DaemonDraining):
                    raise
                raise DaemonGone(
                    f"{error}. datasetd.connect() without an address finds "
                    "your daemon or starts one; datasetd.start_local() starts "
                    "one for this process, `datasetctl run -- python ...` one "
                    "for a command"
                ) from None
        has_waited = True
        time.sleep(min(_RETRY_SECONDS, max(left, 0.0)))


def _await_answer(connection: Connection) -> None:
    library = _library.load()
    with connection.used() as handle:
        _library.call(library.call, handle, b"GetStatus", b"{}", None)
