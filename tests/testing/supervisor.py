"""A service manager for one daemon, as far as the tests need one.

It speaks the protocols of sd_notify(3), sd_watchdog_enabled(3) and
sd_listen_fds(3) with a real daemon on the host backend.
"""

import ctypes
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from tests.testing import daemon_harness as harness

# Puts the sockets where the protocol has them, and says for whom they are.
_LAUNCHER = """
import fcntl, os, sys
passed = [int(fd) for fd in sys.argv[1].split(",") if fd]
above = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for fd in passed]
for number, fd in enumerate(above):
    os.dup2(fd, 3 + number, inheritable=True)
for fd in above:
    os.close(fd)
environment = dict(os.environ)
if passed:
    environment["LISTEN_FDS"] = str(len(passed))
    environment["LISTEN_PID"] = environment.pop(
        "LISTEN_PID_OVERRIDE", str(os.getpid()))
if "WATCHDOG_USEC" in environment:
    environment.setdefault("WATCHDOG_PID", str(os.getpid()))
os.execve(sys.argv[2], sys.argv[2:], environment)
"""


class Supervisor:
    """Starts the daemon with a NOTIFY_SOCKET; a context manager.

    `config` are keys of its configuration, over those that every test needs.
    With `watchdog_seconds` it gets WATCHDOG_USEC, after `listen` its socket.
    """

    def __init__(self, **config):
        self.directory = tempfile.mkdtemp(prefix="sv", dir="/tmp")
        self.data_root = os.path.join(self.directory, "data")
        os.makedirs(self.data_root)
        self.socket_path = os.path.join(self.directory, "d.sock")
        self.config = {
            "socket_path": self.socket_path,
            "devices": ["cpu"],
            "data_roots": [self.data_root],
            "memory_budget_mib": 2048,
            "metrics_port": 0,
            **config,
        }
        self.log_path = os.path.join(self.directory, "log")
        notify_path = os.path.join(self.directory, "notify.sock")
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._notify.bind(notify_path)
        self._notify_path = notify_path
        self.listeners = []
        self.process = None
        # For every datagram: when it came, and its lines as a dict.
        self.notices = []

    def listen(self):
        """Makes the socket, as datasetd.socket would."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(self.socket_path)
        listener.listen(128)
        self.listeners.append(listener)

    def start(self, watchdog_seconds=None, environment=None, descriptors=None):
        config_path = os.path.join(self.directory, "config.yaml")
        with open(config_path, "w") as file:
            json.dump(self.config, file)
        if descriptors is None:
            descriptors = [listener.fileno() for listener in self.listeners]
        variables = dict(os.environ, NOTIFY_SOCKET=self._notify_path)
        if watchdog_seconds is not None:
            variables["WATCHDOG_USEC"] = str(int(watchdog_seconds * 1e6))
        variables.update(environment or {})
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _LAUNCHER,
                 ",".join(map(str, descriptors)),
                 harness.runfile("server/datasetd"),
                 f"--config={config_path}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=variables, pass_fds=descriptors)
        self.notices = []

    def receive(self, timeout):
        """The next notice within `timeout`, or None; only from the daemon
        itself, as NotifyAccess=main has it."""
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._notify], [], [], max(0, left))
            if not ready:
                return None
            data, ancillary, _, _ = self._notify.recvmsg(65536, 1024)
            pid = struct.unpack("3i", ancillary[0][2])[0]
            if pid != self.process.pid:
                continue
            notice = dict(
                line.split("=", 1) for line in data.decode().split("\n"))
            self.notices.append((time.monotonic(), notice))
            return notice

    def fill(self):
        """Fills the queue of notices, as if nobody read it."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
            other.setblocking(False)
            try:
                while True:
                    other.sendto(b"STATUS=x", self._notify_path)
            except BlockingIOError:
                pass

    def await_notice(self, is_wanted, timeout=harness.DEADLINE_SECONDS):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            notice = self.receive(0.1)
            if notice is not None and is_wanted(notice):
                return notice
            assert notice is not None or self.process.poll() is None, (
                f"ended with {self.process.returncode}: {self.log()}")
        raise AssertionError(
            f"not told within {timeout} s; told: {self.notices}; {self.log()}")

    def await_ready(self):
        return self.await_notice(lambda notice: notice.get("READY") == "1")

    def drain_notices(self):
        while self.receive(0) is not None:
            pass

    def log(self):
        with open(self.log_path) as log:
            return log.read()

    def stop(self):
        """SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(harness.DEADLINE_SECONDS)

    def threads(self, name):
        """Ids of the daemon's threads of this name."""
        found = []
        directory = f"/proc/{self.process.pid}/task"
        for thread in os.listdir(directory):
            with open(f"{directory}/{thread}/comm") as comm:
                if comm.read().strip() == name:
                    found.append(int(thread))
        return found

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process is not None:
            if self.process.poll() is None:
                self.process.kill()
            self.process.wait()
        self._notify.close()
        for listener in self.listeners:
            listener.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class FrozenThread:
    """Stops one thread of a child process, and no other, as long as it lives:
    what a thread that hangs in a system call is to the rest."""

    _SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
    _WALL = 0x40000000

    def __init__(self, thread):
        self._thread = thread
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.ptrace.argtypes = [
            ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        self._libc.ptrace.restype = ctypes.c_long

    def _ptrace(self, request):
        if self._libc.ptrace(request, self._thread, None, None) != 0:
            raise OSError(ctypes.get_errno(), "ptrace")

    def __enter__(self):
        self._ptrace(self._SEIZE)
        self._ptrace(self._INTERRUPT)
        os.waitpid(self._thread, self._WALL)
        return self

    def __exit__(self, *_):
        self._ptrace(self._DETACH)
