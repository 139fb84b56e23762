"""A private daemon that processes of a user share, and its directory."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import socket
import stat
import subprocess
import time
from typing import Any, Iterator, Mapping, Optional

from .._client.client import Client
from .._feed.recovery import LOST
from ..errors import (
    DeadlineExceeded,
    FailedPrecondition,
    PermissionDenied,
    VersionMismatch,
)
from .local import PathLike, find_daemon, tail

START_SECONDS = 60.0
_LEAST_ANSWER_SECONDS = 0.2
_POLL_SECONDS = 0.02
# The path of a Unix socket has at most 107 bytes.
_MAX_RUNTIME_BYTES = 50
_UNWRITABLE = (
    errno.EACCES,
    errno.EDQUOT,
    errno.ENOSPC,
    errno.EPERM,
    errno.EROFS,
)
# Starts the daemon so that it is no child of the job: $1 is its log.
_LAUNCH = 'umask 077; log=$1; shift; "$@" >>"$log" 2>&1 </dev/null & echo $!'


def listens(address: str) -> bool:
    """True if a daemon listens there, whether or not this user may connect.

    Also if this user may not enter the directory: whether one listens cannot be
    seen then.
    """
    path = os.path.join(os.path.dirname(address), "attach.sock")
    with socket.socket(
        socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC
    ) as probe:
        probe.setblocking(False)
        error = probe.connect_ex(path)
    return error not in (errno.ENOENT, errno.ENOTDIR, errno.ECONNREFUSED)


def base_directory() -> str:
    """Returns a directory that only this user can enter."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    is_short = len(os.fsencode(runtime)) <= _MAX_RUNTIME_BYTES
    if runtime and is_short and not _problem_of(runtime):
        path = os.path.join(runtime, "datasetd-shared")
    else:
        path = f"/tmp/datasetd-{os.geteuid()}"
    with _named(path), contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    problem = _problem_of(path)
    if problem:
        raise PermissionDenied(
            f"{path} is for the sockets of a private daemon, but {problem}: "
            "remove it, or set XDG_RUNTIME_DIR to a directory of yours with "
            "mode 0700"
        )
    return path


@contextlib.contextmanager
def _named(directory: str) -> Iterator[None]:
    """Raises FailedPrecondition if nothing can be written in the directory."""
    try:
        yield
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        raise FailedPrecondition(
            f"{directory} is for the sockets of a private daemon, but: "
            f"{error.strerror}: set XDG_RUNTIME_DIR to a directory of yours "
            "with mode 0700"
        ) from None


def _problem_of(path: str) -> str:
    """Returns why the directory is not this user's alone; empty if it is."""
    try:
        info = os.lstat(path)
    except OSError as error:
        return str(error)
    if not stat.S_ISDIR(info.st_mode):
        return "it is no directory"
    if info.st_uid != os.geteuid():
        return f"it belongs to uid {info.st_uid}, not to {os.geteuid()}"
    if info.st_mode & 0o077:
        return f"others may enter it (mode {stat.S_IMODE(info.st_mode):04o})"
    return ""


class SharedDaemon:
    """The place of a shared daemon, whether it runs or not.

    One of the processes that call start() or connect() starts it; it is no
    child of any of them.
    """

    def __init__(
        self,
        directory: str,
        config: Mapping[str, Any],
        program: Optional[PathLike] = None,
        log_path: str = "",
    ) -> None:
        """`directory` is this user's alone. `config` is the daemon's, without
        its sockets; `program` is as in find_daemon(). The log is in the
        directory unless `log_path` names another file."""
        self._directory = directory
        self._config = config
        self._program = program
        self._log = log_path or self._path("datasetd.log")
        self._keeps_log = bool(log_path)
        self.address = self._path("datasetd.sock")

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def connect(self, timeout: float) -> Client:
        deadline = time.monotonic() + timeout
        while True:
            self.start(deadline)
            left = deadline - time.monotonic()
            try:
                client = Client(
                    self.address,
                    max(left, _LEAST_ANSWER_SECONDS),
                    start_daemon=self._restart,
                )
                client.status()
                return client
            except VersionMismatch as error:
                raise VersionMismatch(
                    f"{error}. It is a daemon that jobs of this user share; it "
                    "ends by itself when it has been idle"
                ) from None
            except LOST:
                # It was about to end, being idle.
                if time.monotonic() >= deadline:
                    raise
            time.sleep(_POLL_SECONDS)

    def _restart(self) -> None:
        self.start(time.monotonic() + START_SECONDS)

    def start(self, deadline: float) -> None:
        """Returns once a daemon listens. One of several jobs starts it."""
        if listens(self.address):
            return
        with _named(self._directory), self._locked(deadline):
            started: Optional[int] = None
            try:
                while not listens(self.address):
                    if started is not None and has_ended(started):
                        os.close(started)
                        started = None
                        self._check_served()
                    elif started is None and not self._is_served():
                        started = self._launch()
                    self._check_time(deadline)
                    time.sleep(_POLL_SECONDS)
            finally:
                if started is not None:
                    os.close(started)

    def _check_time(self, deadline: float) -> None:
        if time.monotonic() >= deadline:
            raise DeadlineExceeded(
                f"no daemon listens at {self.address} in time; the log: "
                f"{tail(self._log)}"
            )

    def _check_served(self) -> None:
        """Raises FailedPrecondition after a daemon's end, unless it ended
        because another one is starting."""
        if not self._is_served() and not listens(self.address):
            raise FailedPrecondition(
                f"the daemon ended before it served: {tail(self._log)}"
            )

    def _is_served(self) -> bool:
        """True while a daemon that starts, serves or ends holds its lock."""
        lock = open_lock(self.address + ".lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(lock, fcntl.LOCK_UN)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(lock)

    @contextlib.contextmanager
    def _locked(self, deadline: float) -> Iterator[None]:
        """Keeps other jobs from starting a daemon. The lock ends with the
        process. Makes the directory if it is not there."""
        lock = self._lock(deadline)
        while lock is None:
            lock = self._lock(deadline)
        try:
            yield
        finally:
            # Also if a fork() has copied the descriptor.
            fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)

    def _lock(self, deadline: float) -> Optional[int]:
        """Returns the locked file; None if who had the lock before has removed
        the directory."""
        path = self._path("start.lock")
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._directory, 0o700)
        try:
            lock = open_lock(path)
        except FileNotFoundError:
            return None
        try:
            self._await_lock(lock, deadline)
            if os.path.samestat(os.fstat(lock), os.stat(path)):
                return lock
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)
        return None

    def _await_lock(self, lock: int, deadline: float) -> None:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                self._check_time(deadline)
                time.sleep(_POLL_SECONDS)

    def _launch(self) -> int:
        """Starts the daemon; returns a pidfd."""
        program = find_daemon(self._program)
        config = {
            "socket_path": self.address,
            "socket_mode": "0600",
            **self._config,
        }
        with open(self._path("datasetd.yaml"), "w", encoding="utf-8") as file:
            json.dump(config, file)  # YAML, too
        if not self._keeps_log:
            with contextlib.suppress(FileNotFoundError):
                os.replace(self._log, self._log + ".1")
        environment = dict(os.environ)
        for name in ("NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID"):
            environment.pop(name, None)
        launched = subprocess.run(
            ["/bin/sh", "-c", _LAUNCH, "sh", self._log, program]
            + [f"--config={self._path('datasetd.yaml')}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            cwd="/",
            env=environment,
            start_new_session=True,
        )
        if launched.returncode != 0:
            raise FailedPrecondition(
                "/bin/sh could not start the daemon: it ended with code "
                f"{launched.returncode}"
            )
        try:
            return os.pidfd_open(int(launched.stdout))
        except ProcessLookupError:
            raise FailedPrecondition(
                f"the daemon ended before it served: {tail(self._log)}"
            ) from None


def open_lock(path: str) -> int:
    """Returns a descriptor of a file to lock, which is made if need be."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, 0o600)


def has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))
