"""start_local: a private daemon of this process."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import tempfile
import weakref
from typing import Any, List, NoReturn, Optional, Sequence, Union

from .._arguments import absolute, device_name
from .._client.client import Client, Device
from .._connection.at_exit import close_with_daemon
from .._connection.session import local_daemons
from ..errors import Closed, DaemonGone
from .start import (
    START_SECONDS,
    PathLike,
    listens,
    log_tail,
    start_daemon,
)

_STOP_SECONDS = 10.0
# Of 107 that the path of a socket may have.
_MAX_PARENT_BYTES = 65


class LocalDaemon:
    """A daemon started by start_local.

    Ends at close(), which first closes this process's clients and loaders of
    it; with the last object that uses it, which are this one, its clients,
    their datasets and loaders; or with the process, even if that is killed.
    Batches in host memory that are held stay valid.
    """

    def __init__(self, pid: int, directory: str) -> None:
        self.pid = pid
        self._process = os.pidfd_open(pid)
        self.address = os.path.join(directory, "datasetd.sock")
        self.log_path = os.path.join(directory, "datasetd.log")
        self.close = weakref.finalize(
            self, _stop, pid, self._process, self.address, os.getpid()
        )
        local_daemons[self.address] = self

    def connect(self, timeout: float = 10.0) -> Client:
        """Raises Closed after close(), DaemonGone if the daemon has ended."""
        if not self.close.alive:
            raise Closed(f"{self!r} is closed: start_local() starts another")
        # Its sockets close before its last thread ends.
        seconds = 0 if listens(self.address) else _STOP_SECONDS
        if _has_ended(self._process, seconds):
            raise DaemonGone(
                f"the daemon at {self.address} has ended: "
                f"{log_tail(os.path.dirname(self.address))}"
            )
        return Client(self.address, timeout)

    def __enter__(self) -> "LocalDaemon":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a datasetd.LocalDaemon belongs to the process that started it: "
            f"in the other one, connect to its address, {self.address!r}"
        )

    def __repr__(self) -> str:
        return f"datasetd.LocalDaemon({self.address!r}, pid={self.pid})"


def _stop(pid: int, process: int, address: str, owner: int) -> None:
    """Ends the daemon of a pid and pidfd, and removes what it left if it was
    killed."""
    if os.getpid() != owner:
        return  # a forked child's copy
    close_with_daemon(address)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, number)
        if _has_ended(process, _STOP_SECONDS):
            break
    os.close(process)
    # If this process is init, the daemon is its child.
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    shutil.rmtree(os.path.dirname(address), ignore_errors=True)


def _has_ended(process: int, timeout: float) -> bool:
    poll = select.poll()
    poll.register(process, select.POLLIN)
    return bool(poll.poll(timeout * 1000))


def start_local(
    device: Union[Device, Sequence[Device]] = None,
    data_roots: Union[PathLike, Sequence[PathLike], None] = None,
    memory_budget_mib: int = 0,
    binary: Optional[PathLike] = None,
    arguments: Sequence[str] = (),
    timeout: float = START_SECONDS,
) -> LocalDaemon:
    """Starts a private daemon for this process and waits until it serves.

    Args:
      device: "cpu", "cuda:0", a torch.device, or several; None: every GPU, or
        "cpu" if there is none.
      data_roots: directories it may read; None: any that this user can read.
      memory_budget_mib: per device; 0: nine tenths of the free memory.
      binary: the program; None: $DATASETD_DAEMON, the one of this package, or
        the one on PATH.
      arguments: additional flags.
      timeout: seconds within which it must serve.
    """
    flags: List[str] = [f"--exit_with_parent={os.getpid()}"]
    if device is not None:
        devices = device if isinstance(device, (list, tuple)) else [device]
        flags += [f"--device={device_name(one)}" for one in devices]
    if data_roots is None:
        data_roots = ["/"]
    elif isinstance(data_roots, (str, os.PathLike)):
        data_roots = [data_roots]
    flags += [f"--data_root={absolute(root)}" for root in data_roots]
    if memory_budget_mib:
        flags.append(f"--memory_budget_mib={memory_budget_mib}")
    if not any(argument.startswith("--config") for argument in arguments):
        # Batches that this process still holds keep their memory without the
        # daemon.
        flags.append("--set=drain_timeout=500ms")
    flags += arguments
    parent = tempfile.gettempdir()
    if len(os.fsencode(parent)) > _MAX_PARENT_BYTES:
        parent = "/tmp"
    directory = tempfile.mkdtemp(prefix="datasetd-job-", dir=parent)
    try:
        pid = start_daemon(directory, flags, timeout, binary)
        try:
            return LocalDaemon(pid, directory)
        except ProcessLookupError:
            raise DaemonGone(
                f"the daemon of {directory} has ended: {log_tail(directory)}"
            ) from None
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
