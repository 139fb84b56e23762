"""The life of a daemon made by start_local."""

import gc
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

import datasetd
import pytest
from conftest import (
    NUM_SAMPLES,
    await_end,
    is_running,
    load,
    loader,
    poll_until,
)

# A daemon that does not end by then is killed.
KILL_SECONDS = 10


def get_loader(data_root):
    """As in a user's module: of the daemon, only the loader leaves it."""
    daemon = datasetd.start_local(device="cpu", data_roots=data_root)
    dataset = load(daemon.connect(), data_root)
    return loader(dataset, prefetch=1), daemon.pid


def test_a_temporary_directory_with_a_long_path(tmp_path, monkeypatch):
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with datasetd.start_local(device="cpu") as daemon:
        assert daemon.connect().status()["pid"] == daemon.pid
        directory = os.path.dirname(daemon.address)
        assert os.path.dirname(directory) == "/tmp"
        assert list(long.iterdir()) == []
    assert not os.path.exists(directory)


def test_a_loader_keeps_its_daemon(data_root):
    batches, pid = get_loader(data_root)
    gc.collect()
    for _ in range(3):
        assert sum(batch.num_samples for batch in batches) == NUM_SAMPLES
    assert is_running(pid)
    start = time.monotonic()
    del batches
    gc.collect()
    assert not is_running(pid)
    assert time.monotonic() - start < KILL_SECONDS


def test_a_dataset_and_a_client_keep_their_daemon(data_root):
    dataset = load(
        datasetd.start_local(device="cpu", data_roots=data_root).connect(),
        data_root,
    )
    gc.collect()
    with loader(dataset) as batches:
        assert sum(batch.num_samples for batch in batches) == NUM_SAMPLES
    client = datasetd.start_local(device="cpu").connect()
    gc.collect()
    assert client.list_datasets() == []
    # By its address, as where an environment variable names it.
    again = datasetd.connect(client.address)
    pid = again.status()["pid"]
    del client
    gc.collect()
    assert again.list_datasets() == []
    del again
    gc.collect()
    assert not is_running(pid)


def test_garbage_of_a_cycle_ends_it_quickly(data_root):
    """As a traceback makes one; finalizers then run in any order."""
    for _ in range(5):
        batches, pid = get_loader(data_root)
        ring = [batches, iter(batches)]
        ring.append(ring)
        del batches, ring
        start = time.monotonic()
        gc.collect()
        assert not is_running(pid)
        assert time.monotonic() - start < KILL_SECONDS


def test_batches_that_are_held_do_not_delay_its_end(data_root):
    daemon = datasetd.start_local(device="cpu", data_roots=data_root)
    batches = loader(load(daemon.connect(), data_root), prefetch=1)
    held = next(iter(batches))
    # Not by close(), which closes the loader first.
    start = time.monotonic()
    os.kill(daemon.pid, signal.SIGTERM)
    await_end(daemon.pid)
    assert time.monotonic() - start < 3  # of 5 that other daemons take
    assert held.num_samples
    daemon.close()


def test_close_closes_the_loaders_first(data_root):
    daemon = datasetd.start_local(device="cpu", data_roots=data_root)
    client = daemon.connect()
    dataset = load(client, data_root)
    batches = loader(dataset, prefetch=1)
    iterator = iter(batches)
    batch = next(iterator)
    row = batch.image[0].clone()
    start = time.monotonic()
    daemon.close()
    assert time.monotonic() - start < KILL_SECONDS
    assert not is_running(daemon.pid)
    assert (batch.image[0] == row).all()
    for use in (lambda: next(iterator), client.status, batches.__iter__,
                lambda: loader(dataset)):
        with pytest.raises(datasetd.Closed, match="LocalDaemon"):
            use()
    daemon.close()
    batches.close()
    dataset.close()
    client.close()
    with pytest.raises(datasetd.Closed, match="start_local"):
        daemon.connect()


def test_it_says_that_it_has_ended(tmp_path, monkeypatch):
    # A daemon that starts beside it would remove what it left.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with datasetd.start_local(device="cpu") as daemon:
        os.kill(daemon.pid, signal.SIGKILL)
        await_end(daemon.pid)
        start = time.monotonic()
        with pytest.raises(
            datasetd.DaemonGone, match="has ended: (.|\n)* ready"
        ):
            daemon.connect()
        assert time.monotonic() - start < 10  # no timeout of a call


def test_wrong_arguments_leave_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for arguments in ({"device": 7}, {"data_roots": [7]}):
        with pytest.raises((datasetd.InvalidArgument, TypeError)):
            datasetd.start_local(**arguments)
    with pytest.raises(datasetd.FailedPrecondition, match="tape"):
        datasetd.start_local(device="tape")
    assert list(tmp_path.iterdir()) == []


def test_close_ends_another_threads_wait(data_root):
    daemon = datasetd.start_local(device="cpu", data_roots=data_root)
    batches = loader(load(daemon.connect(), data_root), prefetch=1)
    os.kill(daemon.pid, signal.SIGSTOP)
    raised = []

    def draw():
        try:
            while True:
                for _ in batches:
                    pass
        except datasetd.Error as error:
            raised.append(error)

    thread = threading.Thread(target=draw)
    thread.start()
    poll_until(batches._newest._feed.is_used, "the wait")
    os.kill(daemon.pid, signal.SIGCONT)
    daemon.close()
    thread.join(30)
    assert not thread.is_alive()
    assert isinstance(raised[0], (datasetd.Closed, datasetd.DaemonDraining))


_SCRIPT = """
import sys
import datasetd
client = datasetd.start_local(device="cpu", data_roots=sys.argv[1]).connect()
dataset = client.load_dataset("d", format="npy", path=sys.argv[1] + "/hundred")
loader = datasetd.DataLoader(dataset, batch_size=10, framework="numpy")
for batch in loader:
    images, labels = batch
print(client.status()["pid"], flush=True)
sys.stdin.readline()
"""


def start_script(data_root):
    process = subprocess.Popen(
        [sys.executable, "-c", _SCRIPT, str(data_root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return process, int(process.stdout.readline())


def test_the_end_of_a_script_is_quick(data_root):
    """It closes nothing, and its last batch is still there."""
    process, pid = start_script(data_root)
    start = time.monotonic()
    output = process.communicate("\n", timeout=60)
    assert time.monotonic() - start < KILL_SECONDS
    assert output == ("", "") and process.returncode == 0
    assert not is_running(pid)


def test_it_ends_with_its_process(data_root):
    process, pid = start_script(data_root)
    process.kill()
    process.communicate()
    await_end(pid)


@pytest.fixture(name="short_tmp")
def _short_tmp(monkeypatch):
    """$TMPDIR, with room for the paths of sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        monkeypatch.setenv("TMPDIR", directory)
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield pathlib.Path(directory)


@pytest.mark.parametrize("is_daemon_killed", [False, True])
def test_a_killed_process_leaves_nothing(
    data_root, short_tmp, is_daemon_killed
):
    """Or what the next one removes, if its daemon was killed, too."""
    process, pid = start_script(data_root)
    if is_daemon_killed:
        os.kill(pid, signal.SIGKILL)
    process.kill()
    process.communicate()
    await_end(pid)
    if is_daemon_killed:
        assert list(short_tmp.iterdir())
        with datasetd.start_local(device="cpu") as daemon:
            assert daemon.connect().status()["pid"] == daemon.pid
    assert list(short_tmp.iterdir()) == []


def test_a_configuration_of_the_users_own(data_root, tmp_path):
    config = tmp_path / "own.yaml"
    config.write_text("max_datasets: 1\n")
    with datasetd.start_local(
        device="cpu", data_roots=data_root, arguments=[f"--config={config}"]
    ) as daemon:
        client = daemon.connect()
        load(client, data_root)
        with pytest.raises(datasetd.ResourceExhausted, match="max_datasets"):
            client.load_dataset(
                "other", format="npy", path=data_root / "three"
            )


def test_no_program(monkeypatch, tmp_path):
    monkeypatch.delenv("DATASETD_DAEMON", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(datasetd.NotFound, match="install the wheel"):
        datasetd.start_local(device="cpu")
    with pytest.raises(datasetd.NotFound, match="nothing/here"):
        datasetd.start_local(device="cpu", binary=tmp_path / "nothing/here")
