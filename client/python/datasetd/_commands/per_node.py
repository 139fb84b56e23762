"""The command `python -m datasetd run --per-node`."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import math
import os
import select
import shutil
import signal
import socket
import struct
import sys
import time
from typing import Any, Dict, Iterator, List, NoReturn, Optional, Sequence

from .._arguments import absolute
from .._client.client import Client
from .._daemon.local import tail
from .._daemon.shared_daemon import (
    START_SECONDS,
    SharedDaemon,
    base_directory,
    has_ended,
    open_lock,
)
from .._version import __version__
from ..errors import DeadlineExceeded, Error

DESCRIPTION = (
    "Runs COMMAND with a daemon that all processes of the job on this node "
    "share, each started by a command like this one. The first one starts the "
    "daemon, the others find it, and the last one whose COMMAND ends well ends "
    "it; COMMAND finds its address in $DATASETD_ADDRESS. Ends with COMMAND's "
    "exit code (128 and the signal if one killed it, 127 if there is no such "
    "command, 126 if it cannot be run), or with 3 if the daemon cannot be "
    "started. If this program is killed, so is COMMAND."
)

_EXIT_CANNOT_RUN = 126
_EXIT_NO_COMMAND = 127

# The variables that identify a job, and one of its nodes. The first group whose
# first variable is set counts.
_JOB_VARIABLES = (
    ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURMD_NODENAME"),
    ("TORCHELASTIC_RUN_ID",),
    ("PMIX_NAMESPACE",),
)
_PREFIX = "run-"
_DRAIN_TIMEOUT = "500ms"
_STOP_SECONDS = 10.0
_WATCH_SECONDS = 1.0
# A daemon that ends more often is not started again.
_MAX_ENDS, _ENDS_SECONDS = 3, 60.0

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_FORWARDED = (*_ENDING, signal.SIGUSR1, signal.SIGUSR2)
# SIGALRM wakes _await_end() to look after the daemon.
_BLOCKED = (signal.SIGCHLD, signal.SIGALRM, *_FORWARDED)
_SI_KERNEL = 0x80
_PR_SET_PDEATHSIG = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--per-node",
        action="store_true",
        required=True,
        help="one daemon for the job's processes on this node; `datasetctl "
        "run` starts one for a single command",
    )
    parser.add_argument(
        "--job",
        help="processes that name the same job share a daemon; default: the "
        "job step of Slurm, the run of torchrun or the job of PMIx (mpirun), "
        "whichever there is first, else all of this user",
    )
    parser.add_argument(
        "--device",
        action="append",
        default=[],
        help="cpu, cuda:N; repeatable; default: every GPU, or cpu if there is "
        "none",
    )
    parser.add_argument(
        "--data_root",
        action="append",
        default=[],
        help="where the daemon may read; repeatable; default: where this user "
        "may",
    )
    parser.add_argument(
        "--memory_budget_mib",
        type=int,
        help="of each device; default: nine tenths of what is free",
    )
    parser.add_argument(
        "--host_threads",
        type=int,
        help="threads of the host backend; default: one per core",
    )
    parser.add_argument(
        "--daemon",
        help="the program; default: $DATASETD_DAEMON, the package's, or the "
        "one on PATH",
    )
    parser.add_argument(
        "--daemon_log",
        metavar="FILE",
        help="appends the daemon's log to it; default: one that goes with the "
        "daemon",
    )
    parser.add_argument(
        "--linger",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="how long the daemon outlives the last process if that failed or "
        "was killed, so that a restarted job finds its datasets; default: "
        "%(default)g",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=START_SECONDS,
        metavar="SECONDS",
        help="until the daemon must serve; default: %(default)g",
    )
    parser.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="-- COMMAND ..."
    )


def problem_of(arguments: argparse.Namespace) -> str:
    """Returns what is wrong with the command line; empty if nothing is."""
    if arguments.words[:1] != ["--"] or not arguments.words[1:]:
        return "expected -- COMMAND, with its arguments, behind the options"
    for name in ("linger", "timeout"):
        value = getattr(arguments, name)
        if not 0 < value < math.inf:
            return f"--{name} {value:g}: expected seconds, more than 0"
    for name in ("memory_budget_mib", "host_threads"):
        value = getattr(arguments, name)
        if value is not None and value <= 0:
            return f"--{name} {value}: expected a number from 1"
    return ""


def run(arguments: argparse.Namespace) -> int:
    """Returns the exit code. Raises Error if the daemon cannot be started.

    Blocks signals for good: it is called in a process of its own.
    """
    words = arguments.words[1:]
    # Before there are threads.
    command = _Command(words)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
    try:
        with _JobDaemon(arguments, command) as daemon:
            try:
                daemon.serve(_ENDING)
            except _Interrupted:
                info = signal.sigtimedwait(_ENDING, 0)
                # If there is none, one has reached the command alone.
                return command.exit_code() or 128 + (
                    signal.SIGTERM if info is None else info.si_signo
                )
            failure = command.begin(daemon.address)
            if failure:
                _say(f"cannot start {words[0]}: {os.strerror(failure)}")
                return (
                    _EXIT_NO_COMMAND
                    if failure == errno.ENOENT
                    else _EXIT_CANNOT_RUN
                )
            code = _await_end(command, daemon)
            daemon.lingers = code != 0
            return code
    finally:
        command.end()


def _await_end(command: "_Command", daemon: "_JobDaemon") -> int:
    """Passes signals on and keeps the daemon alive until the command ends."""
    signal.setitimer(signal.ITIMER_REAL, _WATCH_SECONDS, _WATCH_SECONDS)
    while True:
        # sigtimedwait() returns uninitialized memory in Python if the process
        # was stopped for longer than its timeout.
        info = signal.sigwaitinfo(_BLOCKED)
        code = command.exit_code()
        if code is not None:
            return code
        # Signals from the terminal have reached the command already.
        if info.si_signo in _FORWARDED and info.si_code != _SI_KERNEL:
            command.send(info.si_signo)
        with contextlib.suppress(_Interrupted):
            daemon.watch()


def _say(text: str) -> None:
    # Not through a buffer: what it could not write would fail again at exit,
    # and change the exit code.
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            line = f"datasetd: {text}\n".encode("utf-8", "backslashreplace")
            os.write(sys.stderr.fileno(), line)


class _Interrupted(Exception):
    """A signal waits to be handled."""


class _Command:
    """A child that becomes the command. It is killed when this process is."""

    def __init__(self, words: List[str]) -> None:
        go_read, self._go = os.pipe()
        self._failure, failure_write = os.pipe()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._go)
            _become(words, parent, go_read, failure_write)
        os.close(go_read)
        os.close(failure_write)
        self._is_reaped = False

    def begin(self, address: str) -> int:
        """Lets it run; returns the errno if it cannot."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._go, address.encode())
        os.close(self._go)
        self._go = -1
        with open(self._failure, "rb") as file:
            return int(file.read() or b"0")

    def send(self, number: int) -> None:
        os.kill(self._pid, number)

    def has_ended(self) -> bool:
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._pid, how) is not None

    def exit_code(self) -> Optional[int]:
        """Returns the code once it has ended, 128 + N if by signal N."""
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid == 0:
            return None
        self._is_reaped = True
        code = os.waitstatus_to_exitcode(status)
        return 128 - code if code < 0 else code

    def end(self) -> None:
        """Ends it if it has not begun."""
        if self._go >= 0:
            os.close(self._go)
        if not self._is_reaped:
            os.waitpid(self._pid, 0)
            self._is_reaped = True


def _become(words: List[str], parent: int, go: int, failure: int) -> NoReturn:
    """In the child: waits for the address and becomes the command."""
    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(_EXIT_CANNOT_RUN)
        with open(go, "rb") as file:
            address = file.read().decode()
        if not address:
            os._exit(_EXIT_CANNOT_RUN)
        os.environ["DATASETD_ADDRESS"] = address
        # Python ignores them.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execvp(words[0], words)
    except OSError as error:
        os.write(failure, str(error.errno).encode())
    finally:
        os._exit(_EXIT_CANNOT_RUN)


class _JobDaemon(SharedDaemon):
    """The daemon of a job on this node, and this process's use of it.

    Each process that uses it has a shared lock on a file, so that the last one
    is known, and a session, so that the daemon, which ends by itself when it is
    idle, stays. Both end with the process. Whoever holds the lock of start()
    may add a use or remove the directory.
    """

    def __init__(
        self, arguments: argparse.Namespace, command: "_Command"
    ) -> None:
        config: Dict[str, Any] = {
            "data_roots": [absolute(p) for p in arguments.data_root or ["/"]],
            "exit_when_idle": f"{math.ceil(arguments.linger * 1000)}ms",
            "drain_timeout": _DRAIN_TIMEOUT,
        }
        if arguments.device:
            config["devices"] = arguments.device
        for name in ("memory_budget_mib", "host_threads"):
            if getattr(arguments, name) is not None:
                config[name] = getattr(arguments, name)
        log = arguments.daemon_log
        super().__init__(
            os.path.join(
                base_directory(), _PREFIX + _digest(arguments, config)
            ),
            config,
            arguments.daemon,
            "" if log is None else absolute(log),
        )
        self._command = command
        # Whether the daemon stays for a while after its last process.
        self.lingers = False
        self._timeout: float = arguments.timeout
        self._users: Optional[int] = None
        self._client: Optional[Client] = None
        self._pidfd: Optional[int] = None
        self._interrupts: Sequence[int] = ()
        self._ends: List[float] = []
        self._is_given_up = False

    def __enter__(self) -> "_JobDaemon":
        return self

    def __exit__(self, *_: Any) -> None:
        self._interrupts = ()
        try:
            self._leave()
        except DeadlineExceeded:
            pass  # Whoever holds the lock uses the daemon.
        except (Error, OSError) as error:
            # The command's exit code stands.
            _say(f"{error}; the daemon ends by itself when it is idle")

    def serve(self, interrupts: Sequence[int]) -> None:
        """Finds or starts the daemon. Raises _Interrupted if one of the
        signals comes, or the command ends, meanwhile."""
        self._interrupts = interrupts
        self._join(time.monotonic() + self._timeout)
        _sweep(os.path.dirname(self._directory))
        deadline = time.monotonic() + self._timeout
        while not self._use():
            self._check_time(deadline)

    def _use(self) -> bool:
        """Opens a session of the daemon, which is started if need be; False
        if it ended meanwhile."""
        self.start(time.monotonic() + self._timeout)
        with contextlib.suppress(
            ConnectionError, FileNotFoundError, ProcessLookupError
        ):
            self._pidfd = _daemon_at(self.address)
            self._client = self.connect(self._timeout)
            if self._pidfd is None or not has_ended(self._pidfd):
                return True
        self._drop()
        return False

    def _drop(self) -> None:
        """Ends the session."""
        pidfd, client = self._pidfd, self._client
        self._pidfd = self._client = None
        if pidfd is not None:
            os.close(pidfd)
        if client is not None:
            client.close()

    def watch(self) -> None:
        """Starts the daemon again if it has ended, unless that has failed.
        Raises _Interrupted."""
        self._interrupts = _FORWARDED
        try:
            if self._client is not None:
                if self._pidfd is None or not has_ended(self._pidfd):
                    return
                self._drop()
                self._note_end()
            if not self._is_given_up and not self._use():
                self._note_end()
        except (Error, OSError) as error:
            _say(f"{error}; no other is started")
            self._is_given_up = True

    def _note_end(self) -> None:
        now = time.monotonic()
        self._ends = [t for t in self._ends if now - t < _ENDS_SECONDS] + [now]
        self._is_given_up = len(self._ends) > _MAX_ENDS
        _say(
            f"the daemon has ended ({tail(self._log)}); "
            + (
                f"{len(self._ends)} have within {_ENDS_SECONDS:g} s, so that "
                "no other is started"
                if self._is_given_up
                else "another one is started"
            )
        )

    def _check_time(self, deadline: float) -> None:
        pending = signal.sigpending()
        if self._interrupts and (
            any(
                number in pending
                and signal.getsignal(number) is not signal.SIG_IGN
                for number in self._interrupts
            )
            or self._command.has_ended()
        ):
            raise _Interrupted
        super()._check_time(deadline)

    def _join(self, deadline: float) -> None:
        with self._locked(deadline):
            self._users = open_lock(self._path("users.lock"))
            fcntl.flock(self._users, fcntl.LOCK_SH)

    def _leave(self) -> None:
        """Ends this process's use, and the daemon if it was the last one."""
        if self._users is None:
            return
        with self._locked(time.monotonic() + self._timeout):
            try:
                fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            finally:
                if self._client is not None:
                    self._client.close()
            if self.lingers:
                return
            if self._pidfd is not None:
                _stop(self._pidfd)
            # One that was started when the session with that one was lost.
            with contextlib.suppress(
                ConnectionError, FileNotFoundError, ProcessLookupError
            ):
                other = _daemon_at(self.address)
                if other is not None:
                    _stop(other)
                    os.close(other)
            if not self._is_served():
                shutil.rmtree(self._directory, ignore_errors=True)


def _digest(arguments: argparse.Namespace, config: Dict[str, Any]) -> str:
    """Returns what processes that share a daemon have in common."""
    job: List[Optional[str]] = [arguments.job]
    if arguments.job is None:
        for names in _JOB_VARIABLES:
            job = [os.environ.get(name) for name in names]
            if job[0]:
                break
    key = [
        __version__,
        job,
        os.environ.get("CUDA_VISIBLE_DEVICES"),
        arguments.daemon,
        config,
    ]
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()[:12]


def _daemon_at(address: str) -> Optional[int]:
    """Returns a pidfd of the daemon that listens there; None if this process
    cannot see it (another pid namespace). Raises ConnectionError,
    FileNotFoundError or ProcessLookupError if it has ended."""
    path = os.path.join(os.path.dirname(address), "attach.sock")
    with socket.socket(
        socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC
    ) as probe:
        probe.connect(path)
        size = struct.calcsize("3i")
        peer = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    pid = struct.unpack("3i", peer)[0]
    return os.pidfd_open(pid) if pid > 0 else None


def _stop(pidfd: int) -> None:
    """Ends the daemon; returns when it has ended."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, number)
        if select.select([pidfd], [], [], _STOP_SECONDS)[0]:
            return


def _sweep(base: str) -> None:
    """Removes directories of jobs whose processes and daemon have ended."""
    for name in os.listdir(base):
        directory = os.path.join(base, name)
        if name.startswith(_PREFIX):
            with contextlib.suppress(OSError), _if_unused(directory):
                shutil.rmtree(directory)


@contextlib.contextmanager
def _if_unused(directory: str) -> Iterator[None]:
    """Locks a job's directory; raises BlockingIOError if it is used."""
    with contextlib.ExitStack() as stack:
        for name in ("start.lock", "users.lock", "datasetd.sock.lock"):
            lock = open_lock(os.path.join(directory, name))
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
