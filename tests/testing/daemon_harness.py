"""A daemon, and client processes, for tests of the whole.

Each Daemon lives in a fresh directory under /tmp, so that its socket paths are
short and tests run side by side. Nothing here waits by sleeping for a guess:
poll_until waits for a condition and fails at a deadline.
"""

import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time

import numpy as np

from tests.testing import attach_wire, pytest_file
from tests.testing.processes import (  # noqa: F401
    DEADLINE_SECONDS,
    await_end,
    is_running,
    poll_until,
    stop,
)

CIFAR_RECORD_BYTES = 1 + 3 * 32 * 32
# CPU time that an idle daemon may use in a second.
IDLE_CPU_SECONDS = 0.2

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def runfile(path):
    """A file of the repository, or built in it, by its path there."""
    return os.path.join(
        os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"], path
    )


def daemon_program():
    """The daemon; another build of it where DATASETD_TEST_DAEMON names one."""
    return (os.environ.get("DATASETD_TEST_DAEMON")
            or runfile("server/datasetd"))


def use_python_package():
    """Makes `import datasetd` work, here and in processes started later."""
    package = runfile("client/python")
    os.environ["DATASETD_LIBRARY"] = runfile("client/c_api/libdatasetd.so")
    os.environ["DATASETD_DAEMON"] = daemon_program()
    path = os.environ.get("PYTHONPATH", "")
    if package not in path.split(":"):
        os.environ["PYTHONPATH"] = f"{package}:{path}" if path else package
        sys.path.insert(0, package)


def pause(seconds):
    """Lets others go on."""
    select.select([], [], [], seconds)


def daemons_of(directory):
    """Pids of the private daemons of directories below this one, which lead
    sessions of their own, as their starters do not."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                line = file.read()
        except (FileNotFoundError, ProcessLookupError):
            continue
        pid = int(name)
        if (f"--private={directory}/".encode() in line and is_running(pid)
                and os.getsid(pid) == pid):
            found.append(pid)
    return found


def is_listening(path):
    """True if a process listens at a Unix socket, which is there before."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        return connection.connect_ex(path) == 0


def write_cifar10_test(directory, num_samples, seed=1):
    """A test_batch.bin; returns (planes [N, 3, 32, 32], labels [N])."""
    random = np.random.default_rng(seed)
    records = random.integers(
        0, 256, size=(num_samples, CIFAR_RECORD_BYTES), dtype=np.uint8
    )
    records[:, 0] = np.arange(num_samples) % 10
    os.makedirs(directory, exist_ok=True)
    records.tofile(os.path.join(directory, "test_batch.bin"))
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(int)


def write_slow_images(directory, num_images=400):
    """An image folder that takes seconds to load: one large PNG, many times."""
    from PIL import Image

    os.makedirs(os.path.join(directory, "class"))
    pixels = np.random.default_rng(1).integers(
        0, 256, (600, 600, 3), dtype=np.uint8)
    first = os.path.join(directory, "class", "0.png")
    Image.fromarray(pixels).save(first)
    for i in range(1, num_images):
        os.link(first, os.path.join(directory, "class", f"{i}.png"))


def write_slow_shards(directory):
    """Makes webdataset shards that take seconds to scan and are no dataset:
    1,500 names of one archive whose members are no samples. Returns their
    pattern."""
    os.makedirs(directory)
    first = os.path.join(directory, "0000.tar")
    with tarfile.open(first, "w") as archive:
        for _ in range(3000):
            archive.addfile(tarfile.TarInfo("README"))
    for i in range(1, 1500):
        os.link(first, os.path.join(directory, f"{i:04}.tar"))
    return os.path.join(directory, "{0000..1499}.tar")


class ProcessView:
    """A process, as /proc shows it."""

    def __init__(self, pid):
        self.pid = pid

    def descriptor_targets(self):
        """Returns the targets of its open descriptors."""
        directory = f"/proc/{self.pid}/fd"
        targets = []
        for name in os.listdir(directory):
            try:
                targets.append(os.readlink(os.path.join(directory, name)))
            except FileNotFoundError:
                pass  # closed meanwhile
        return targets

    def descriptors(self):
        """The same, sorted and without the numbers of sockets and pipes."""
        return sorted(re.sub(r"\[\d+\]$", "", target)
                      for target in self.descriptor_targets())

    def num_threads(self):
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def memfds(self):
        """Mappings of memfds, by name."""
        with open(f"/proc/{self.pid}/maps") as maps:
            return sorted(
                line.split("/memfd:", 1)[1].strip()
                for line in maps
                if "/memfd:" in line
            )

    def pss_bytes(self, kind="Pss"):
        """Its share of memory. "Pss_Anon" leaves out files, whose share falls
        when another process maps the same library."""
        with open(f"/proc/{self.pid}/smaps_rollup") as rollup:
            for line in rollup:
                if line.startswith(kind + ":"):
                    return int(line.split()[1]) * 1024
        raise AssertionError(f"smaps_rollup has no {kind}")

    def cpu_seconds(self):
        with open(f"/proc/{self.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND

    def expect_idle(self, most_cpu_seconds=IDLE_CPU_SECONDS):
        """Expects next to no CPU time within a second, soon."""
        def is_idle():
            before = self.cpu_seconds()
            pause(1.0)
            return self.cpu_seconds() - before < most_cpu_seconds

        poll_until(is_idle, "an idle process", 15.0)


class Daemon(ProcessView):
    """A daemon on the host backend, serving when the constructor returns.

    `environment` adds to this process's; `config` overrides keys of its
    configuration file; `data_root` is made for it; `program`, `user` and
    `group` (numbers) replace those of this process. A context manager: the end
    kills it if it still runs. Another build, of DATASETD_TEST_DAEMON, is asked to
    end, and must end with 0.
    """

    def __init__(self, await_ready=True, directory=None, arguments=(),
                 prefix="dd", environment=None, program=None, user=None,
                 group=None, **config):
        self._environment = environment or {}
        self._program = program or daemon_program()
        self._user = user if user != os.getuid() else None
        self._group = group
        self._owns_directory = directory is None
        self.directory = directory or tempfile.mkdtemp(
            prefix=prefix, dir="/tmp")
        self.data_root = os.path.join(self.directory, "data")
        os.makedirs(self.data_root, exist_ok=True)
        self.socket_path = os.path.join(self.directory, "d.sock")
        self.config_path = os.path.join(self.directory, "config.yaml")
        self.log_path = os.path.join(self.directory, "log")
        self.config = {
            "socket_path": self.socket_path,
            "devices": ["cpu"],
            "data_roots": [self.data_root],
            "memory_budget_mib": 1024,
            "log_level": "debug",
            **config,
        }
        self.process = None
        try:
            self.write_config()
            self.start(await_ready, arguments)
        except BaseException:
            self._discard()
            raise

    def write_config(self):
        with open(self.config_path, "w") as file:
            json.dump(self.config, file)  # JSON is YAML

    def start(self, await_ready=True, arguments=()):
        self.notices = socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        notice_path = os.path.join(self.directory, "notify.sock")
        if os.path.exists(notice_path):
            os.unlink(notice_path)
        self.notices.bind(notice_path)
        if self._user is not None:
            os.chmod(notice_path, 0o777)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [self._program, f"--config={self.config_path}", *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                user=self._user, group=self._group,
                extra_groups=None if self._user is None else [],
                env=dict(os.environ, NOTIFY_SOCKET=notice_path,
                         **self._environment))
        super().__init__(self.process.pid)
        if await_ready:
            self.await_notice("READY=1")

    def await_notice(self, wanted, timeout=DEADLINE_SECONDS):
        """Reads datagrams to NOTIFY_SOCKET until one has the line."""
        deadline = time.monotonic() + timeout
        while True:
            self.notices.settimeout(0.2)
            try:
                lines = self.notices.recv(4096).decode().split("\n")
                if wanted in lines:
                    return
            except socket.timeout:
                pass
            assert self.process.poll() is None, (
                f"the daemon ended with {self.process.returncode}: "
                f"{self.log()}")
            assert time.monotonic() < deadline, f"no {wanted}: {self.log()}"

    def connect(self):
        import datasetd

        return datasetd.connect(self.socket_path)

    def write_dataset(self, num_samples, directory="d"):
        """Makes files for load() at `path`, with `planes` and `labels`."""
        self.path = os.path.join(self.data_root, directory)
        self.planes, self.labels = write_cifar10_test(self.path, num_samples)

    def load(self, client, name="d", **arguments):
        return client.load_dataset(name, format="cifar10", split="test",
                                   path=self.path, **arguments)

    def log(self):
        with open(self.log_path) as log:
            return log.read()

    def is_running(self):
        return self.process.poll() is None

    def terminate(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def stop(self):
        stop(self.process)

    def wait(self, timeout=DEADLINE_SECONDS):
        return self.process.wait(timeout)

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
        if self.process is not None:
            self.process.wait()
            self.notices.close()

    def __enter__(self):
        return self

    def __exit__(self, kind=None, *_):
        try:
            # A sanitizer looks for leaks when the process ends by itself.
            if (kind is None and self.is_running()
                    and os.environ.get("DATASETD_TEST_DAEMON")):
                self.terminate()
                self.terminate(signal.SIGCONT)
                code = self.wait()
                assert code == 0, (
                    f"the daemon ended with {code}: {self.log()[-8000:]}")
        finally:
            self._discard()

    def _discard(self):
        # Not needed after an orderly end.
        self.kill()
        if self._owns_directory:
            shutil.rmtree(self.directory, ignore_errors=True)


class Footprint:
    """The resources of a daemon; equal before and after if nothing leaked."""

    def __init__(self, daemon, client):
        status = client.status()
        device = status["devices"][0]
        self.memory = {
            key: int(device[key])
            for key in ("dataset_bytes", "slab_bytes", "scratch_bytes")
        }
        self.num_feeds = int(status["num_feeds"])
        self.num_sessions = int(status["num_sessions"])
        self.memfds = daemon.memfds()
        self.descriptors = daemon.descriptors()

    def __eq__(self, other):
        return vars(self) == vars(other)

    def __repr__(self):
        return repr(vars(self))


def expect_footprint(daemon, client, expected, timeout=10.0):
    """Waits until the daemon uses what it used."""
    last = []

    def is_back():
        last[:] = [Footprint(daemon, client)]
        return last[0] == expected

    try:
        poll_until(is_back, "the footprint", timeout)
    except AssertionError:
        raise AssertionError("footprint: " + "; ".join(
            f"{key} is {value}, was {vars(expected)[key]}"
            for key, value in vars(last[0]).items()
            if value != vars(expected)[key])) from None


PRELUDE = """
import json, os, signal, sys, threading, time
import numpy as np
import datasetd
from datasetd import transforms as T
_out = os.fdopen(os.dup(1), "w", buffering=1)
def say(**message):
    _out.write(json.dumps(message) + "\\n")
def hear():
    line = sys.stdin.readline()
    if not line:
        os._exit(3)
    return json.loads(line)
ADDRESS = sys.argv[1]
ARGUMENTS = json.loads(sys.argv[2])
def load(client, name="d", **arguments):
    return client.load_dataset(name, format="cifar10", split="test",
                               path=ARGUMENTS["path"], **arguments)
"""


class Worker(ProcessView):
    """A client process: `source` runs with say(**message), hear(), ADDRESS,
    ARGUMENTS, and load(client, name) of ARGUMENTS["path"]. `prefix` is a
    command that starts it."""

    def __init__(self, source, address, user=None, group=None, prefix=(),
                 **arguments):
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-c", PRELUDE + source, address,
             json.dumps(arguments)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=user,
            group=group, extra_groups=None if group is None else [])
        super().__init__(self.process.pid)
        self._buffer = b""

    def hear(self, timeout=DEADLINE_SECONDS):
        """The next message that it says."""
        deadline = time.monotonic() + timeout
        descriptor = self.process.stdout.fileno()
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([descriptor], [], [], max(0, left))
            assert ready, f"worker {self.pid} said nothing in {timeout} s"
            data = os.read(descriptor, 65536)
            assert data, (
                f"worker {self.pid} ended with {self.process.wait()}")
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        return json.loads(line)

    def tell(self, **message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)

    def stop(self):
        stop(self.process)

    def wait(self, timeout=DEADLINE_SECONDS):
        return self.process.wait(timeout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Session(attach_wire.Session):
    """A session that makes any RPC, through tests/integration/rpc_probe.

    `program` is a copy of it for another user, `user`, whose process calls.
    """

    program = None
    user = None
    _process = None

    def call(self, method, **request):
        """{"code", "message", "responses"}; method as "FeedService.OpenFeed"
        or "/package.Service/Method"."""
        self.begin(method, **request)
        return self.end()

    def begin(self, method, **request):
        """A call whose answer end() waits for."""
        if self._process is None:
            requests = self.requests.fileno()
            self._process = subprocess.Popen(
                [self.program or runfile("tests/integration/rpc_probe"),
                 str(requests)], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, pass_fds=[requests], user=self.user)
        if not method.startswith("/"):
            method = "/datasetd.v1." + method.replace(".", "/")
        self._process.stdin.write(f"{method} {json.dumps(request)}\n".encode())
        self._process.stdin.flush()

    def end(self):
        answer = self._process.stdout.readline()
        assert answer, "rpc_probe ended"
        return json.loads(answer)

    def close(self):
        super().close()
        if self._process is not None:
            self._process.stdin.close()
            self._process.stdout.close()
            self._process.wait()


def limit_descriptors(pid, count):
    """Sets a process's soft limit of open files."""
    hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (count, hard))


def main(file):
    """Runs the tests of a file; exits with pytest's code."""
    pytest_file.main(file)
