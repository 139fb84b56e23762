"""datasetd.load and connect_or_start: jobs that share a daemon which one of them
starts, and which ends when it is idle."""

import concurrent.futures
import errno
import os
import shutil
import signal
import stat
import tempfile
import threading
import time

import pytest

from tests.testing import attach_wire
from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402
from datasetd._daemon import shared as _shared
from datasetd._daemon import shared_daemon  # noqa: E402

_NUM_SAMPLES = 300
# A job without a system's daemon.
_PRELUDE = """
from datasetd._daemon import shared as _shared
_shared._SYSTEM_ADDRESS = "/nonexistent/datasetd.sock"
"""
_JOB = _PRELUDE + """
dataset = datasetd.load("cifar10", ADDRESS, "test", device="cpu")
loader = datasetd.DataLoader(dataset, batch_size=10, shuffle=True, seed=3,
                             framework="numpy", prefetch=2, reconnect=30)
status = dataset.client.status()
say(pid=status["pid"], name=dataset.name,
    num_datasets=len(dataset.client.list_datasets()),
    directory=os.path.dirname(dataset.client.address))
rows = []
iterator = iter(loader)
while hear()["draw"]:
    try:
        rows += next(iterator).indices.tolist()
    except StopIteration:
        say(rows=rows)
        break
    say(num=len(rows))
"""


@pytest.fixture
def place(monkeypatch):
    """Data, and a directory of this user's for the sockets."""
    directory = tempfile.mkdtemp(prefix="dd", dir="/tmp")
    monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
    monkeypatch.setenv("DATASETD_IDLE_SECONDS", "1")
    monkeypatch.delenv("DATASETD_ADDRESS", raising=False)
    monkeypatch.setattr(_shared, "_SYSTEM_ADDRESS", "/nonexistent/d.sock")
    data = os.path.join(directory, "data")
    harness.write_cifar10_test(data, _NUM_SAMPLES)
    yield data
    for path in _sockets(directory):
        kill_daemon_at(path)
    shutil.rmtree(directory)


def _sockets(directory):
    shared = os.path.join(directory, "datasetd-shared")
    if not os.path.isdir(shared):
        return []
    return [os.path.join(shared, name, "datasetd.sock")
            for name in os.listdir(shared)]


def kill_daemon_at(address):
    try:
        with datasetd.connect(address, timeout=0) as client:
            pid = client.status()["pid"]
        os.kill(pid, signal.SIGKILL)
        harness.await_end(pid)
    except (datasetd.Error, ProcessLookupError):
        pass


def test_jobs_started_at_once_share_a_daemon_that_ends_after_them(place):
    jobs = [harness.Worker(_JOB, place) for _ in range(3)]
    said = [job.hear() for job in jobs]
    assert len({s["pid"] for s in said}) == 1
    assert len({s["name"] for s in said}) == 1
    assert said[-1]["num_datasets"] == 1
    pid, directory = said[0]["pid"], said[0]["directory"]
    assert harness.daemons_of(os.path.dirname(directory)) == [pid]
    assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
    socket_mode = os.stat(os.path.join(directory, "datasetd.sock")).st_mode
    assert stat.S_IMODE(socket_mode) == 0o600
    # The one that started it is among them: it is no child of any.
    for job in jobs[:2]:
        job.kill()
        job.wait()
    jobs[2].tell(draw=True)
    assert jobs[2].hear()["num"] == 10
    jobs[2].kill()
    jobs[2].wait()
    harness.await_end(pid)
    with open(os.path.join(directory, "datasetd.log")) as log:
        assert "no client for 1s (exit_when_idle)" in log.read()
    assert not os.path.exists(os.path.join(directory, "datasetd.sock"))


def test_a_job_soon_after_another_finds_its_dataset(place, monkeypatch):
    monkeypatch.setenv("DATASETD_IDLE_SECONDS", "60")
    pids = []
    for _ in range(2):
        with harness.Worker(_JOB, place) as job:
            pids.append(job.hear()["pid"])
            job.kill()
            job.wait()
    assert pids[0] == pids[1]
    with datasetd.connect_or_start("cpu") as client:
        assert client.status()["pid"] == pids[0]
        (message,) = client.list_datasets()
        assert message["format"] == "cifar10"


def test_a_loader_is_a_client(place):
    """Also when its client is closed."""
    dataset = datasetd.load("cifar10", place, "test", device="cpu")
    pid = dataset.client.status()["pid"]
    with datasetd.DataLoader(
        dataset, batch_size=10, framework="numpy"
    ) as loader:
        dataset.client.close()
        # Three times as long as it may be idle.
        end = time.monotonic() + 3
        while time.monotonic() < end:
            assert sum(batch.num_samples for batch in loader) == _NUM_SAMPLES
        assert harness.is_running(pid)
    harness.await_end(pid)


def test_names(place):
    datasets = [
        datasetd.load("cifar10", place, "test", device="cpu"),
        datasetd.load("cifar10", place, split="test", device="cpu"),
        datasetd.load("cifar10", place, "test", device="cpu",
                      pretransforms=[datasetd.transforms.Resize((8, 8))]),
        datasetd.load("cifar10", place, "test", device="cpu", name="mine"),
    ]
    names = [dataset.name for dataset in datasets]
    assert names[0] == names[1] and names[0].startswith("cifar10-test-")
    assert len(set(names)) == 3 and names[3] == "mine"
    with pytest.raises(datasetd.InvalidArgument, match="no such/format"):
        datasetd.load("no such/format", place, device="cpu")


def test_files_that_have_changed(place, monkeypatch):
    monkeypatch.setenv("DATASETD_IDLE_SECONDS", "60")

    def load(**arguments):
        return datasetd.load("cifar10", place, "test", device="cpu",
                             **arguments)

    first = load()
    harness.write_cifar10_test(place, 200)
    with pytest.raises(datasetd.AlreadyExists, match="name of its own, name="):
        load()
    assert len(load(name="mine")) == 200
    loader = datasetd.DataLoader(first, batch_size=100, framework="numpy")
    first.close()
    with pytest.raises(datasetd.AlreadyExists, match=r"were added.*ds\.close\(\)"):
        load()
    assert sum(batch.num_samples for batch in loader) == _NUM_SAMPLES
    loader.close()
    # Nobody uses the old dataset: one of these jobs replaces it.
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        datasets = list(pool.map(lambda _: load(), range(4)))
    assert {len(dataset) for dataset in datasets} == {200}
    assert {dataset.name for dataset in datasets} == {first.name}
    with pytest.raises(datasetd.AlreadyExists, match="unload it$"):
        load(name="mine", pretransforms=[datasetd.transforms.Invert()])


def test_a_part_of_files_that_have_changed(place, monkeypatch):
    monkeypatch.setenv("DATASETD_IDLE_SECONDS", "60")

    def load():
        return datasetd.load("cifar10", place, "test", device="cpu",
                             part=(1, 2))

    with load() as first:
        assert len(first) == _NUM_SAMPLES // 2
    harness.write_cifar10_test(place, 200)
    with load() as dataset:
        assert (dataset.name, len(dataset)) == (first.name, 100)


def test_a_path_through_an_absolute_link(place):
    """As in many a home directory; the daemon reads what its user can."""
    link = os.path.join(os.environ["XDG_RUNTIME_DIR"], "link")
    os.symlink(place, link)
    dataset = datasetd.load("cifar10", link, "test", device="cpu")
    assert len(dataset) == _NUM_SAMPLES
    with datasetd.start_local(device="cpu") as daemon:
        local = daemon.connect().load_dataset("x", "cifar10", link, "test")
        assert len(local) == _NUM_SAMPLES


def test_the_daemon_is_killed_under_a_job(place):
    with harness.Worker(_JOB, place) as job:
        said = job.hear()
        for _ in range(_NUM_SAMPLES // 10):
            job.tell(draw=True)
            job.hear()
        job.tell(draw=True)
        expected = job.hear()["rows"]
        job.wait()
    with harness.Worker(_JOB, place) as job:
        said = job.hear()
        for i in range(_NUM_SAMPLES // 10):
            if i == 3:
                os.kill(said["pid"], signal.SIGKILL)
                harness.await_end(said["pid"])
                # Its sockets stay, and nobody listens.
                assert os.path.exists(
                    os.path.join(said["directory"], "datasetd.sock"))
            job.tell(draw=True)
            job.hear()
        job.tell(draw=True)
        assert job.hear()["rows"] == expected
    (pid,) = harness.daemons_of(os.path.dirname(said["directory"]))
    assert pid != said["pid"]


def test_stale_sockets(place):
    with datasetd.connect_or_start("cpu") as client:
        first = client.status()["pid"]
        address = client.address
    os.kill(first, signal.SIGKILL)
    harness.await_end(first)
    assert os.path.exists(address)
    with datasetd.connect_or_start("cpu") as client:
        assert client.status()["pid"] != first
        assert client.address == address


def test_it_ends_while_a_job_comes(place, monkeypatch):
    """It listened a moment ago, and is gone now: another one is started."""
    listens, asked = shared_daemon.listens, []

    def listened(address):
        asked.append(address)
        return len(asked) <= 2 or listens(address)

    monkeypatch.setattr(shared_daemon, "listens", listened)
    shared = _shared._daemon_of_user(True, 1.0)
    start = time.monotonic()
    with shared.connect(60) as client:
        assert client.status()["pid"] > 0
    assert len(asked) > 2 and time.monotonic() - start < 20


def test_the_job_that_starts_it_dies(place, monkeypatch, tmp_path):
    """Its daemon may come late, when the next job has started one, too."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    program = tmp_path / "datasetd"
    program.write_text(
        f"#!/bin/sh\necho started >>{tmp_path}/started\nread line <{gate}\n"
        f"exec {harness.daemon_program()} \"$@\"\n")
    program.chmod(0o755)
    monkeypatch.setenv("DATASETD_DAEMON", str(program))

    def num_started():
        try:
            return len((tmp_path / "started").read_text().splitlines())
        except FileNotFoundError:
            return 0

    with harness.Worker(_JOB, place) as dies:
        harness.poll_until(lambda: num_started() == 1, "the first start")
        dies.kill()
        dies.wait()
    with harness.Worker(_JOB, place) as job:
        harness.poll_until(lambda: num_started() == 2, "the second start")
        # A writer lets all readers go on, at once.
        with open(gate, "w") as file:
            file.write("go\ngo\n")
        said = job.hear()
        harness.poll_until(
            lambda: harness.daemons_of(os.path.dirname(said["directory"]))
            == [said["pid"]], "one daemon")
        job.tell(draw=True)
        assert job.hear()["num"] == 10


def test_a_daemon_that_does_not_start(place, monkeypatch, tmp_path):
    program = tmp_path / "datasetd"
    program.write_text("#!/bin/sh\necho no luck today\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("DATASETD_DAEMON", str(program))
    with pytest.raises(datasetd.FailedPrecondition, match="no luck today"):
        datasetd.connect_or_start("cpu", timeout=30)
    program.write_text("#!/bin/sh\nkill -STOP $$\n")
    start = time.monotonic()
    with pytest.raises(datasetd.DeadlineExceeded, match="logged nothing"):
        datasetd.connect_or_start("cpu", timeout=0.3)
    assert time.monotonic() - start < 5
    for pid in harness.daemons_of(os.environ["XDG_RUNTIME_DIR"]):
        os.kill(pid, signal.SIGKILL)


def test_directories_of_somebody_else_are_refused(place, monkeypatch):
    shared = os.path.join(os.environ["XDG_RUNTIME_DIR"], "datasetd-shared")
    os.mkdir(shared, 0o700)
    if os.geteuid() == 0:
        os.chown(shared, 65534, 65534)
        with pytest.raises(
            datasetd.PermissionDenied, match="it belongs to uid 65534"
        ) as raised:
            datasetd.connect_or_start("cpu")
        assert "XDG_RUNTIME_DIR" in str(raised.value)
        os.chown(shared, 0, 0)
    os.chmod(shared, 0o750)
    with pytest.raises(datasetd.PermissionDenied, match="mode 0750"):
        datasetd.connect_or_start("cpu")
    os.rmdir(shared)
    os.symlink(place, shared)
    with pytest.raises(datasetd.PermissionDenied, match="no directory"):
        datasetd.connect_or_start("cpu")
    os.unlink(shared)
    assert shared_daemon.base_directory() == shared
    # A session's directory that is not this user's is not used at all.
    os.chmod(os.environ["XDG_RUNTIME_DIR"], 0o755)
    fallback = f"/tmp/datasetd-{os.geteuid()}"
    existed = os.path.exists(fallback)
    assert shared_daemon.base_directory() == fallback
    long = os.path.join(place, "x" * 50)
    os.mkdir(long, 0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", long)
    assert shared_daemon.base_directory() == fallback
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert shared_daemon.base_directory() == fallback
    assert stat.S_IMODE(os.stat(fallback).st_mode) == 0o700
    if not existed:
        os.rmdir(fallback)
    monkeypatch.setenv("XDG_RUNTIME_DIR", os.path.dirname(shared))


@pytest.mark.parametrize("depth", ["its own", "a daemon's"])
def test_a_directory_that_takes_no_files(place, monkeypatch, depth):
    make = os.mkdir

    def mkdir(path, *arguments):
        if depth == "its own" or not path.endswith("datasetd-shared"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        make(path, *arguments)

    monkeypatch.setattr(os, "mkdir", mkdir)
    with pytest.raises(
        datasetd.FailedPrecondition,
        match="datasetd-shared.*Read-only file system: set XDG_RUNTIME_DIR",
    ):
        datasetd.connect_or_start("cpu")


def test_samples_are_no_format():
    with pytest.raises(
        datasetd.InvalidArgument, match=r"format=list; .*push_dataset\("
    ):
        datasetd.load([1, 2])


def test_a_daemon_of_another_version(place):
    shared = _shared._daemon_of_user(True, 1.0)
    directory = os.path.dirname(shared.address)
    os.mkdir(directory, 0o700)
    path = os.path.join(directory, "attach.sock")
    listener = attach_wire.socket.socket(
        attach_wire.socket.AF_UNIX, attach_wire.socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen()

    def answer():
        while True:
            connection, _ = listener.accept()
            with connection:
                if not connection.recv(512):
                    continue  # only looked whether somebody listens
                connection.send(attach_wire.header(
                    attach_wire.WELCOME, version=attach_wire.VERSION + 1)
                    + bytes(16))
                return

    thread = threading.Thread(target=answer)
    thread.start()
    with pytest.raises(
        datasetd.VersionMismatch, match="jobs of this user share"
    ):
        datasetd.connect_or_start("cpu")
    thread.join()
    listener.close()


def test_other_devices_are_served_by_another_daemon(place, monkeypatch):
    addresses = {_shared._daemon_of_user(False, 1.0).address,
                 _shared._daemon_of_user(True, 1.0).address}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    addresses.add(_shared._daemon_of_user(False, 1.0).address)
    assert len(addresses) == 3


def test_the_systems_daemon_comes_first(place, monkeypatch):
    with harness.Daemon() as system, harness.Daemon() as named:
        monkeypatch.setattr(_shared, "_SYSTEM_ADDRESS", system.socket_path)
        with datasetd.connect_or_start("cpu") as client:
            assert client.status()["pid"] == system.pid
        monkeypatch.setenv("DATASETD_ADDRESS", named.socket_path)
        with datasetd.connect_or_start("cpu") as client:
            assert client.status()["pid"] == named.pid
        monkeypatch.delenv("DATASETD_ADDRESS")
        # Killed, it leaves its sockets.
        system.kill()
        with datasetd.connect_or_start("cpu") as client:
            assert client.status()["pid"] not in (system.pid, named.pid)


def test_idle_seconds(place, monkeypatch):
    monkeypatch.setenv("DATASETD_IDLE_SECONDS", "soon")
    with pytest.raises(datasetd.InvalidArgument, match="'soon'; expected"):
        datasetd.connect_or_start("cpu")
    with pytest.raises(datasetd.InvalidArgument, match="idle_seconds=-1"):
        datasetd.connect_or_start("cpu", idle_seconds=-1)
    with datasetd.connect_or_start("cpu", idle_seconds=0.2) as client:
        pid = client.status()["pid"]
    harness.await_end(pid)


if __name__ == "__main__":
    harness.main(__file__)
