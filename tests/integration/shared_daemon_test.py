"""datasetd.load and connect_or_start: jobs that share a daemon which one of them
starts, and which ends when it is idle."""

import concurrent.futures
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import pytest

from tests.testing import attach_wire
from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402
from datasetd._daemon import shared as _shared
from datasetd._daemon import start  # noqa: E402

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
    return [os.path.join(directory, name, "datasetd.sock")
            for name in os.listdir(directory) if name.startswith("datasetd-")]


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
    with open(os.path.join(directory, "datasetd.log")) as log:
        harness.await_end(pid)
        assert "no client for 1s (exit_when_idle)" in log.read()
    assert not os.path.exists(directory)


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


def test_connect_finds_what_load_finds(place, monkeypatch):
    monkeypatch.setenv("DATASETD_IDLE_SECONDS", "60")
    dataset = datasetd.load("cifar10", place, "test")
    with datasetd.connect() as client, datasetd.connect("") as other:
        assert client.status()["pid"] == dataset.client.status()["pid"]
        assert client.address == other.address == dataset.client.address
        assert [d["name"] for d in client.list_datasets()] == [dataset.name]
    # The other way round: it starts what load() then uses.
    kill_daemon_at(dataset.client.address)
    with datasetd.connect(timeout=60) as client:
        again = datasetd.load("cifar10", place, "test")
        assert again.client.status()["pid"] == client.status()["pid"]
    # But an address starts nothing.
    with pytest.raises(datasetd.DaemonGone, match=r"datasetd.connect\(\) with"):
        datasetd.connect(os.path.join(place, "d.sock"), timeout=0)


def test_push_goes_where_load_goes(place, monkeypatch):
    monkeypatch.setenv("DATASETD_IDLE_SECONDS", "60")
    loaded = datasetd.load("cifar10", place, "test")
    pushed = datasetd.push("mine", {"x": [1, 2], "y": [3, 4]}, device="cpu",
                           class_names=["a", "b"])
    assert pushed.client.address == loaded.client.address
    assert pushed.column("y").tolist() == [3, 4]
    assert pushed.class_names == ["a", "b"]
    assert len(datasetd.push("drawn", iter([1, 2, 3]), ["x"])) == 3
    with pytest.raises(datasetd.AlreadyExists, match="other samples"):
        datasetd.push("mine", {"x": [1, 2], "y": [3, 5]},
                      class_names=["a", "b"])


def _device_of(name):
    torch = pytest.importorskip("torch")
    return torch.device("cpu") if name == "torch" else name


@pytest.mark.parametrize("first", [None, "cpu", "torch"])
def test_without_a_gpu_all_devices_mean_one_daemon(place, monkeypatch, first):
    monkeypatch.setenv("DATASETD_IDLE_SECONDS", "60")
    monkeypatch.setattr(_shared, "_GPU_NODES", ("/nonexistent",))
    with datasetd.connect_or_start(_device_of(first)) as client:
        for other in (None, "cpu", "torch"):
            device = _device_of(other)
            with datasetd.connect_or_start(device) as same:
                assert same.status()["pid"] == client.status()["pid"]
        dataset = datasetd.load("cifar10", place, "test", device="cpu")
        with datasetd.connect() as same:
            assert len(same.get_dataset(dataset.name)) == _NUM_SAMPLES


def test_a_gpu_that_is_there_or_hidden(place, monkeypatch):
    monkeypatch.setattr(_shared, "_GPU_NODES", (place,))
    assert _shared._may_have_gpu()
    with datasetd.connect_or_start("cpu") as client:
        assert client.address == _shared._daemon_of_user(True, 1.0).address
    for hidden in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert not _shared._may_have_gpu()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert _shared._may_have_gpu()


def test_a_daemon_that_serves_a_gpu_that_was_not_seen(place, monkeypatch):
    """A job for the CPU gets one for host memory, all the same."""
    monkeypatch.setattr(_shared, "_GPU_NODES", ("/nonexistent",))
    status = datasetd.Client.status

    def of_gpus(client):
        answer = status(client)
        if client.address == _shared._daemon_of_user(False, 1.0).address:
            answer["devices"][0]["name"] = "cuda:0"
        return answer

    monkeypatch.setattr(datasetd.Client, "status", of_gpus)
    with datasetd.connect_or_start("cpu") as client:
        assert client.address == _shared._daemon_of_user(True, 1.0).address


def _command(*words, **variables):
    """Runs datasetctl, or with "python" python -m datasetd."""
    command = [harness.runfile("client/ctl/datasetctl"), *words]
    if words[0] == "python":
        command = [sys.executable, "-m", "datasetd", *words[1:]]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, timeout=60,
        env={**os.environ, **variables})


def test_commands_start_no_daemon(place):
    for words in (["status"], ["python", "load", "x", "cifar10", place]):
        done = _command(*words)
        assert done.returncode == 3, done.stderr
        assert "no daemon listens at /run/datasetd" in done.stderr
        assert "datasetd.connect()" in done.stderr
    assert _sockets(os.path.dirname(place)) == []


def test_commands_find_the_daemon_of_the_jobs(place, monkeypatch):
    monkeypatch.setenv("DATASETD_IDLE_SECONDS", "60")
    dataset = datasetd.load("cifar10", place, "test")
    address = dataset.client.address
    for words in (
        ["status"], ["datasets"], ["feeds"], ["datasets", dataset.name],
        ["explain", dataset.name, "--transforms", "crop-flip"],
        ["load", "again", "--format=cifar10", f"--path={place}",
         "--split=test"],
        ["unload", "again"],
        ["python", "load", "third", "cifar10", place, "--split=test"],
    ):
        done = _command(*words)
        assert done.returncode == 0, done.stderr
        assert f": using your daemon at {address}\n" in done.stderr, words
    assert len(dataset.client.list_datasets()) == 2
    # Nothing beside JSON, and nothing about an address that was given.
    assert _command("--json", "status").stderr == ""
    for words in (["status", f"--address={address}"], ["status"]):
        assert _command(*words, DATASETD_ADDRESS=address).stderr == ""
    assert _command("python", "load", "third", "cifar10", place, "--json",
                    "--split=test").stderr == ""


def test_the_page_finds_the_daemon_of_the_jobs(place, monkeypatch):
    monkeypatch.setenv("DATASETD_IDLE_SECONDS", "60")
    monkeypatch.setenv("DATASETD_PYTHON", sys.executable)
    with datasetd.connect() as client:
        server = subprocess.Popen(
            [harness.runfile("client/ctl/datasetctl"), "web"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            url = re.search(r"http://\S+#token=(\S+)",
                            server.stdout.readline())
            asked = urllib.request.Request(
                url[0].split("#")[0] + "api/state",
                headers={"Authorization": f"Bearer {url[1]}"})
            with urllib.request.urlopen(asked, timeout=30) as answer:
                daemon = json.load(answer)["daemon"]
            assert daemon["pid"] == client.status()["pid"]
        finally:
            server.terminate()
            _, said = server.communicate(timeout=30)
        assert f"datasetd: using your daemon at {client.address}" in said


def test_commands_name_the_other_daemons(place, monkeypatch):
    monkeypatch.setenv("DATASETD_IDLE_SECONDS", "60")
    with datasetd.connect() as first:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
        with datasetd.connect() as second:
            assert first.address != second.address
            done = _command("status")
            assert done.stderr == (
                f"datasetctl: using your daemon at {second.address}; choose "
                f"another by --address: {first.address}\n")
            assert f"pid {second.status()['pid']}" in done.stdout


def test_what_no_job_uses_is_bounded(place, monkeypatch):
    monkeypatch.setenv("DATASETD_IDLE_SECONDS", "60")
    with datasetd.connect() as client:
        status = client.status()
        assert status["evict_unused_after"] == "1800s"
        (device,) = status["devices"]
        budget = int(device["memory_budget_bytes"])
        share = int(device["max_unused_bytes"]) / budget
        assert 0.249 < share <= 0.25
        # A thread of the daemon looks after it.
        text = _command("status").stdout
        assert "of datasets that nothing uses, of at most" in text
        assert "each is evicted after 30 min" in text
    monkeypatch.setattr(_shared, "_EVICT_UNUSED_AFTER", "1ms")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "8")  # another one
    with datasetd.connect() as client:
        held = client.load_dataset("held", "cifar10", place, "test")
        client.load_dataset("unused", "cifar10", place, "test").close()
        harness.poll_until(
            lambda: [d["name"] for d in client.list_datasets()] == ["held"],
            "the eviction")
        assert len(held) == _NUM_SAMPLES


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
    listens, asked = start.listens, []

    def listened(address):
        asked.append(address)
        return len(asked) <= 2 or listens(address)

    monkeypatch.setattr(_shared, "listens", listened)
    shared = _shared._daemon_of_user(True, 1.0)
    os.mkdir(os.path.dirname(shared.address), 0o700)
    begin = time.monotonic()
    with shared.connect(60) as client:
        assert client.status()["pid"] > 0
    assert len(asked) > 2 and time.monotonic() - begin < 20


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
    begin = time.monotonic()
    with pytest.raises(datasetd.DeadlineExceeded, match="left no log"):
        datasetd.connect_or_start("cpu", timeout=0.3)
    assert time.monotonic() - begin < 5
    # The log tells why, and the daemon does not come later.
    program.write_text(
        f"#!/bin/sh\nexec {harness.daemon_program()} --device=cuda:7 "
        '--set=device_wait=600s "$@"\n')
    with pytest.raises(
        datasetd.DeadlineExceeded, match="waiting for devices"
    ):
        datasetd.connect_or_start(timeout=1)
    harness.poll_until(
        lambda: not _sockets(os.environ["XDG_RUNTIME_DIR"]), "its end")


def test_directories_of_somebody_else_are_refused(place, monkeypatch):
    runtime = os.environ["XDG_RUNTIME_DIR"]
    path = start.shared_directory("x")
    assert path == f"{runtime}/datasetd-{os.geteuid()}-x"
    directory = os.path.dirname(_shared._daemon_of_user(True, 1.0).address)
    monkeypatch.setattr(_shared, "_GPU_NODES", (place,))
    os.mkdir(directory, 0o750)
    with pytest.raises(
        datasetd.PermissionDenied, match="mode 0750.*XDG_RUNTIME_DIR"
    ):
        datasetd.connect_or_start("cpu")
    # A socket in it may be anybody's.
    listener = attach_wire.socket.socket(
        attach_wire.socket.AF_UNIX, attach_wire.socket.SOCK_SEQPACKET)
    listener.bind(os.path.join(directory, "datasetd.sock"))
    listener.listen()
    with pytest.raises(datasetd.PermissionDenied, match="mode 0750"):
        datasetd.connect_or_start("cpu")
    listener.close()
    shutil.rmtree(directory)
    # A session's directory that is not this user's alone is not used at all.
    os.chmod(runtime, 0o755)
    fallback = f"/tmp/datasetd-{os.geteuid()}-x"
    assert start.shared_directory("x") == fallback
    long = os.path.join(place, "x" * 50)
    os.mkdir(long, 0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", long)
    assert start.shared_directory("x") == fallback
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert start.shared_directory("x") == fallback


def test_a_directory_that_cannot_be_made(place, monkeypatch):
    monkeypatch.setattr(_shared, "shared_directory", lambda key: "/sys/d")
    with pytest.raises(
        datasetd.FailedPrecondition,
        match="/sys/d is for a private daemon.* set XDG_RUNTIME_DIR",
    ):
        datasetd.connect_or_start("cpu")


def test_samples_are_no_format():
    with pytest.raises(
        datasetd.InvalidArgument, match=r"format=list; .*datasetd.push\("
    ):
        datasetd.load([1, 2])


def test_a_daemon_of_another_version(place):
    shared = _shared._daemon_of_user(_shared._may_have_gpu(), 1.0)
    directory = os.path.dirname(shared.address)
    os.mkdir(directory, 0o700)
    path = os.path.join(directory, "datasetd.sock")
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
