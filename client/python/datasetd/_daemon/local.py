"""start_local: a private daemon of this process."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
import weakref
from typing import Any, List, NoReturn, Optional, Sequence, Union

from .._arguments import absolute, device_name
from .._client.client import Client, Device
from .._connection.at_exit import close_with_daemon
from .._connection.session import local_daemons
from ..errors import (
    Closed,
    DaemonGone,
    DeadlineExceeded,
    FailedPrecondition,
    NotFound,
)

PathLike = Union[str, "os.PathLike[str]"]
_LOG_TAIL_BYTES = 2000
# A longer path cannot name a Unix socket. The final NUL does not count.
_MAX_SOCKET_PATH_BYTES = 107
# A directory that was changed within these seconds may be one whose process has
# not locked it yet.
_NEW_SECONDS = 60
_CONFIG = {
    # Batches that this process still holds keep their memory without the
    # daemon.
    "drain_timeout": "500ms",
    # In memory of this user's, as what he pushes is before.
    "push_spool_mib": 65536,
}


class LocalDaemon:
    """A daemon started by start_local.

    Ends at close(), which first closes this process's clients and loaders of
    it; with the last object that uses it, which are this one, its clients,
    their datasets and loaders; or with the process, even if that is killed.
    Batches in host memory that are held stay valid.
    """

    def __init__(
        self, process: "subprocess.Popen[bytes]", directory: "_Directory"
    ) -> None:
        self._process = process
        self.address = directory.path("datasetd.sock")
        self.log_path = directory.path("datasetd.log")
        self.close = weakref.finalize(
            self, _stop, process, directory, os.getpid(), self.address
        )
        local_daemons[self.address] = self

    @property
    def pid(self) -> int:
        return self._process.pid

    def connect(self, timeout: float = 10.0) -> Client:
        """Raises Closed after close(), DaemonGone if the daemon has ended."""
        if not self.close.alive:
            raise Closed(f"{self!r} is closed: start_local() starts another")
        code = self._process.poll()
        if code is not None:
            raise DaemonGone(
                f"the daemon at {self.address} has ended with code {code}: "
                f"{tail(self.log_path)}"
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


class _Directory:
    """A temporary directory in which a socket may lie: of /tmp if those of
    $TMPDIR have too long a path.

    The lock tells other processes of this machine that this one lives. What a
    killed one left is removed when the next directory is made.
    """

    def __init__(self) -> None:
        # Another machine, whose locks are not seen here, may share $TMPDIR.
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text()
        prefix = f"datasetd-job-{boot[:8]}-"
        parent = tempfile.gettempdir()
        longest = os.path.join(parent, f"{prefix}12345678", "datasetd.sock")
        if len(os.fsencode(longest)) > _MAX_SOCKET_PATH_BYTES:
            parent = "/tmp"
        with contextlib.suppress(PermissionError):
            for name in os.listdir(parent):
                if name.startswith(prefix):
                    _remove_if_left(os.path.join(parent, name))
        self._path = tempfile.mkdtemp(prefix=prefix, dir=parent)
        self._lock = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        # A file system without locks has nobody who removes it, either.
        with contextlib.suppress(OSError):
            fcntl.flock(self._lock, fcntl.LOCK_SH)

    def path(self, name: str) -> str:
        return os.path.join(self._path, name)

    def remove(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)
        os.close(self._lock)


def _remove_if_left(path: str) -> None:
    """Removes a directory of a process of this user that does not live."""
    try:
        directory = os.open(
            path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        )
    except OSError:
        return
    try:
        info = os.fstat(directory)
        if (
            info.st_uid == os.geteuid()
            and time.time() - info.st_mtime > _NEW_SECONDS
        ):
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
    except OSError:
        pass  # its process lives
    finally:
        os.close(directory)


def _stop(
    process: "subprocess.Popen[bytes]",
    directory: _Directory,
    owner: int,
    address: str,
) -> None:
    if os.getpid() != owner:
        return  # a forked child's copy
    close_with_daemon(address)
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    directory.remove()


def find_daemon(binary: Optional[PathLike] = None) -> str:
    """Returns the path of the daemon's program. Raises NotFound, which names
    the places searched."""
    if binary is not None:
        candidates = [os.path.expanduser(os.fspath(binary))]
    elif os.environ.get("DATASETD_DAEMON"):
        candidates = [os.environ["DATASETD_DAEMON"]]
    else:
        package = pathlib.Path(__file__).absolute().parent.parent
        # In a wheel, in a release.
        candidates = [
            str(package / "bin" / "datasetd"),
            str(package / "datasetd"),
            shutil.which("datasetd") or "",
        ]
    for candidate in candidates:
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return os.path.abspath(candidate)
    raise NotFound(
        f"no datasetd program at {', '.join(c for c in candidates if c)}: "
        "install the wheel, which has it inside, put the program on PATH, or "
        "name it by binary= or $DATASETD_DAEMON"
    )


def start_local(
    device: Union[Device, Sequence[Device]] = None,
    data_roots: Union[PathLike, Sequence[PathLike], None] = None,
    memory_budget_mib: int = 0,
    binary: Optional[PathLike] = None,
    arguments: Sequence[str] = (),
    timeout: float = 60.0,
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
    command: List[str] = [
        find_daemon(binary),
        f"--exit_with_parent={os.getpid()}",
    ]
    if device is not None:
        devices = device if isinstance(device, (list, tuple)) else [device]
        command += [f"--device={device_name(one)}" for one in devices]
    if data_roots is None:
        data_roots = ["/"]
    elif isinstance(data_roots, (str, os.PathLike)):
        data_roots = [data_roots]
    command += [f"--data_root={absolute(root)}" for root in data_roots]
    if memory_budget_mib:
        command.append(f"--memory_budget_mib={memory_budget_mib}")
    command += arguments

    directory = _Directory()
    command.append("--socket_path=" + directory.path("datasetd.sock"))
    process: Optional["subprocess.Popen[bytes]"] = None
    try:
        if not any(argument.startswith("--config") for argument in arguments):
            path = directory.path("datasetd.yaml")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(_CONFIG, file)  # YAML, too
            command.append(f"--config={path}")
        with socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
        ) as notices:
            notice_path = directory.path("notify.sock")
            notices.bind(notice_path)
            environment = dict(os.environ, NOTIFY_SOCKET=notice_path)
            log_path = directory.path("datasetd.log")
            with open(log_path, "wb") as log:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    # Keeps Ctrl-C from the daemon, which ends with us.
                    start_new_session=True,
                )
            _await_ready(process, notices, log_path, timeout)
        return LocalDaemon(process, directory)
    except BaseException:
        if process is not None:
            _stop(process, directory, os.getpid(), "")
        else:
            directory.remove()
        raise


def _await_ready(
    process: "subprocess.Popen[bytes]",
    notices: socket.socket,
    log_path: str,
    timeout: float,
) -> None:
    program = str(process.args[0])  # type: ignore[index]
    deadline = time.monotonic() + timeout
    notices.settimeout(0.1)
    while True:
        try:
            if b"READY=1" in notices.recv(4096).split(b"\n"):
                return
        except socket.timeout:
            pass
        if process.poll() is not None:
            raise FailedPrecondition(
                f"{program} ended with code "
                f"{process.returncode} before it served: {tail(log_path)}"
            )
        if time.monotonic() >= deadline:
            raise DeadlineExceeded(
                f"{program} did not serve within "
                f"{timeout} s: {tail(log_path)}"
            )


def tail(path: str) -> str:
    """Returns the end of a log, or where it is if it cannot be read again."""
    try:
        with open(path, "rb", opener=_open_at_once) as log:
            info = os.fstat(log.fileno())
            if not stat.S_ISREG(info.st_mode):
                return f"see {path}"
            log.seek(max(0, info.st_size - _LOG_TAIL_BYTES))
            text = log.read(_LOG_TAIL_BYTES)
    except FileNotFoundError:
        text = b""
    except OSError as error:
        return f"see {path}, which cannot be read here: {error.strerror}"
    return text.decode("utf-8", "replace").strip() or "it logged nothing"


def _open_at_once(path: str, flags: int) -> int:
    """Does not wait for the other end of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)
