"""A private daemon that the jobs of a user share: found, or started."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import math
import os
import re
import select
import socket
import stat
import subprocess
import time
from typing import Any, Dict, Iterator, Mapping, Optional

from ._arguments import checked_seconds, device_name
from ._client import Client, Path, connect
from ._dataset import Dataset
from ._loading import Progress, dataset_spec
from ._local import find_daemon, tail
from ._recovery import LOST
from .errors import (
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    PermissionDenied,
    VersionMismatch,
)
from .transforms._pipeline import Pipelines

IDLE_VARIABLE = "DATASETD_IDLE_SECONDS"
_IDLE_SECONDS = 300.0
_SYSTEM_ADDRESS = "/run/datasetd/datasetd.sock"
_ANSWER_SECONDS = 10.0
_LEAST_ANSWER_SECONDS = 0.2
_START_SECONDS = 60.0
_POLL_SECONDS = 0.02
# The path of a Unix socket has at most 107 bytes.
_MAX_RUNTIME_BYTES = 50
# Starts the daemon so that it is no child of the job: $1 is its log.
_LAUNCH = 'umask 077; log=$1; shift; "$@" >>"$log" 2>&1 </dev/null & echo $!'


def connect_or_start(
    device: Any = None,
    idle_seconds: Optional[float] = None,
    timeout: Optional[float] = None,
) -> Client:
    """Connects to a daemon, and starts one if there is none.

    This is the daemon at $DATASETD_ADDRESS; if that is unset the system's, if
    it runs; else a private one of this user. All jobs of the user share it that
    use the same version of datasetd and the same $CUDA_VISIBLE_DEVICES; it is
    no child of the job, and ends when it has had no client for some time.

    Args:
      device: "cpu" or a CPU torch.device: the private daemon serves host memory
        only. Else it serves every GPU, or host memory if there is none.
      idle_seconds: that time, if this call starts the daemon; None:
        $DATASETD_IDLE_SECONDS, or if that is unset 300; 0: it does not end by
        itself.
      timeout: seconds within which a daemon must answer; None: 10, or 60 for
        one that is started.

    The private daemon's sockets, configuration and log lie in a directory of
    $XDG_RUNTIME_DIR or, where that is not set, of /tmp/datasetd-UID. Raises
    PermissionDenied if that belongs to somebody else, FailedPrecondition if the
    daemon does not start, with the end of its log.
    """
    limit = None if timeout is None else checked_seconds("timeout", timeout)
    idle = _idle_seconds(idle_seconds)
    answer_limit = _ANSWER_SECONDS if limit is None else limit
    if os.environ.get("DATASETD_ADDRESS"):
        return connect(None, answer_limit)
    if _listens(_SYSTEM_ADDRESS):
        try:
            return connect(_SYSTEM_ADDRESS, answer_limit)
        except PermissionDenied as error:
            raise PermissionDenied(
                f"{error}, or use a daemon of your own: datasetd.start_local()"
            ) from None
    return _SharedDaemon(device_name(device) == "cpu", idle).connect(
        _START_SECONDS if limit is None else limit
    )


def load(
    format: str,
    path: Optional[Path] = None,
    split: Optional[str] = None,
    pretransforms: Pipelines = (),
    device: Any = None,
    options: Optional[Mapping[str, Any]] = None,
    progress: Progress = False,
    bad_samples: str = "fail",
    max_bad_samples: Optional[int] = None,
    name: Optional[str] = None,
) -> Dataset:
    """Loads a dataset into the daemon that connect_or_start() finds.

    A job that asks for the same gets the dataset that is there. Arguments as in
    Client.load_dataset; `name` defaults to one made of the others. The dataset
    stays while a job has it, and after that until its memory is needed or the
    daemon ends.
    """
    arguments: Dict[str, Any] = {
        "path": path,
        "split": split,
        "pretransforms": pretransforms,
        "device": device,
        "options": options,
        "bad_samples": bad_samples,
        "max_bad_samples": max_bad_samples,
    }
    spec = dataset_spec("", format, **arguments)
    if name is None:
        digest = hashlib.sha256(
            json.dumps(spec, sort_keys=True, default=repr).encode()
        ).hexdigest()[:12]
        words = "-".join(filter(None, (format, split)))
        name = re.sub(r"[^A-Za-z0-9._-]", "_", f"{words}-{digest}")
    was_lost = False
    while True:
        client = connect_or_start(device)
        try:
            dataset: Dataset = client.load_dataset(
                name, format, progress=progress, **arguments
            )
            return dataset
        except LOST:
            # A shared daemon that was idle may end while a client comes.
            if client._session.start_daemon is None or was_lost:
                raise
            was_lost = True


def _idle_seconds(value: Optional[float]) -> float:
    if value is not None:
        return checked_seconds("idle_seconds", value)
    text = os.environ.get(IDLE_VARIABLE, "")
    if not text:
        return _IDLE_SECONDS
    try:
        return checked_seconds(IDLE_VARIABLE, float(text))
    except ValueError:
        raise InvalidArgument(
            f"${IDLE_VARIABLE} is {text!r}; expected seconds, a number from 0"
        ) from None


def _listens(address: str) -> bool:
    """True if a daemon listens there, whether or not this user may connect."""
    path = os.path.join(os.path.dirname(address), "attach.sock")
    with socket.socket(
        socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC
    ) as probe:
        probe.setblocking(False)
        error = probe.connect_ex(path)
    return error not in (errno.ENOENT, errno.ENOTDIR, errno.ECONNREFUSED)


def _base_directory() -> str:
    """Returns a directory that only this user can enter."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    is_short = len(os.fsencode(runtime)) <= _MAX_RUNTIME_BYTES
    if runtime and is_short and not _problem_of(runtime):
        path = os.path.join(runtime, "datasetd-shared")
    else:
        path = f"/tmp/datasetd-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    problem = _problem_of(path)
    if problem:
        raise PermissionDenied(
            f"{path} is for the sockets of a private daemon, but {problem}: "
            "remove it, or set XDG_RUNTIME_DIR to a directory of yours with "
            "mode 0700"
        )
    return path


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


class _SharedDaemon:
    """The place of a shared daemon, whether it runs or not."""

    def __init__(self, is_host_only: bool, idle_seconds: float) -> None:
        from . import __version__

        self._is_host_only = is_host_only
        self._idle_seconds = idle_seconds
        key = [os.environ.get("CUDA_VISIBLE_DEVICES"), is_host_only]
        digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:8]
        self._directory = os.path.join(
            _base_directory(), f"{__version__}-{digest}"
        )
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._directory, 0o700)
        self.address = self._path("datasetd.sock")

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def connect(self, timeout: float) -> Client:
        deadline = time.monotonic() + timeout
        while True:
            self._start(deadline)
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
        self._start(time.monotonic() + _START_SECONDS)

    def _start(self, deadline: float) -> None:
        """Returns once a daemon listens. One of several jobs starts it."""
        if _listens(self.address):
            return
        with self._locked(deadline):
            started: Optional[int] = None
            try:
                while not _listens(self.address):
                    if started is not None and _has_ended(started):
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
                f"{tail(self._path('datasetd.log'))}"
            )

    def _check_served(self) -> None:
        """Raises FailedPrecondition after a daemon's end, unless it ended
        because another one is starting."""
        if not self._is_served() and not _listens(self.address):
            raise FailedPrecondition(
                "the daemon ended before it served: "
                f"{tail(self._path('datasetd.log'))}"
            )

    def _is_served(self) -> bool:
        """True while a daemon that starts, serves or ends holds its lock."""
        with _opened(self.address + ".lock") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            fcntl.flock(lock, fcntl.LOCK_UN)
            return False

    @contextlib.contextmanager
    def _locked(self, deadline: float) -> Iterator[None]:
        """Keeps other jobs from starting a daemon. The lock ends with the
        process."""
        with _opened(self._path("start.lock")) as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    self._check_time(deadline)
                    time.sleep(_POLL_SECONDS)
            try:
                yield
            finally:
                # Also if a fork() has copied the descriptor.
                fcntl.flock(lock, fcntl.LOCK_UN)

    def _launch(self) -> int:
        """Starts the daemon; returns a pidfd."""
        program = find_daemon()
        config: Dict[str, Any] = {
            "socket_path": self.address,
            "socket_mode": "0600",
            "data_roots": ["/"],
            "exit_when_idle": f"{math.ceil(self._idle_seconds * 1000)}ms",
        }
        if self._is_host_only:
            config["devices"] = ["cpu"]
        with open(self._path("datasetd.yaml"), "w", encoding="utf-8") as file:
            json.dump(config, file)  # YAML, too
        log = self._path("datasetd.log")
        with contextlib.suppress(FileNotFoundError):
            os.replace(log, log + ".1")
        environment = dict(os.environ)
        for name in ("NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID"):
            environment.pop(name, None)
        launched = subprocess.run(
            ["/bin/sh", "-c", _LAUNCH, "sh", log, program]
            + [f"--config={self._path('datasetd.yaml')}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=True,
            cwd="/",
            env=environment,
            start_new_session=True,
        )
        try:
            return os.pidfd_open(int(launched.stdout))
        except ProcessLookupError:
            raise FailedPrecondition(
                f"{program} ended at once: {tail(log)}"
            ) from None


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


__all__ = ["connect_or_start", "load"]
