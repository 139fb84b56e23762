"""The daemon's messages to its service manager, and its exit codes."""

import glob
import os
import shutil
import signal
import subprocess
import tempfile

import numpy as np
import pytest

from tests.testing import daemon_harness as harness
from tests.testing import supervisor

harness.use_python_package()

import datasetd  # noqa: E402

_UID = 61007  # of nobody else's processes


def _dataset(manager, name, num_samples):
    path = os.path.join(manager.data_root, name)
    harness.write_cifar10_test(path, num_samples)
    return {"name": name, "format": "cifar10", "path": path, "split": "test"}


def test_ready_comes_after_the_datasets_and_progress_before():
    with supervisor.Supervisor() as manager:
        manager.config["datasets"] = [
            _dataset(manager, "first", 100), _dataset(manager, "big", 100000)]
        manager.start()
        manager.await_ready()
        with datasetd.connect(manager.socket_path) as client:
            states = {d["name"]: d["state"] for d in client.list_datasets()}
        assert states == {"first": "DATASET_STATE_READY",
                          "big": "DATASET_STATE_READY"}

        *before, (_, last) = manager.notices
        assert last == {"READY": "1", "STATUS": "serving"}
        loading = [n for _, n in before if "loading big" in n["STATUS"]]
        assert loading, manager.notices
        for notice in loading:
            assert " of 100000 samples" in notice["STATUS"]
            assert int(notice["EXTEND_TIMEOUT_USEC"]) == 60_000_000
        # A load that stands still says nothing, and gets no more time.
        assert len({n["STATUS"] for n in loading}) == len(loading)


def test_a_manager_that_does_not_read_keeps_nothing_from_starting():
    with supervisor.Supervisor() as manager:
        manager.fill()
        manager.start()
        harness.poll_until(lambda: "ready" in manager.log(), "it is ready")
        with datasetd.connect(manager.socket_path) as client:
            assert client.list_datasets() == []
        # It says so once it is heard.
        manager.await_ready()
        manager.fill()
        assert manager.stop() == 0


@pytest.mark.skipif(os.getuid() != 0, reason="a limit of threads does not bind "
                    "root, and only root starts another user's process")
@pytest.mark.parametrize("limit", [
    "--nproc=1", "--nproc=5", "--nproc=12", "--nproc=20", "--as=250000000",
    "--as=400000000"])
def test_a_start_that_is_refused_threads_or_memory_says_so(limit, request):
    directory = tempfile.mkdtemp(prefix="dd", dir="/tmp")
    request.addfinalizer(lambda: shutil.rmtree(directory))
    os.chown(directory, _UID, _UID)
    # That user may not enter the directory of the build.
    program = shutil.copy(harness.runfile("server/datasetd"), directory)
    done = subprocess.run(
        ["prlimit", limit, program,
         f"--socket_path={directory}/d.sock", "--device=cpu"],
        user=_UID, group=_UID, extra_groups=[], cwd="/", text=True,
        stderr=subprocess.PIPE, timeout=harness.DEADLINE_SECONDS)
    assert done.returncode == 1, done.stderr
    assert "datasetd: cannot start: " in done.stderr
    assert "TasksMax=" in done.stderr and "ulimit -v" in done.stderr


def test_stopping_is_told_and_the_end_is_clean():
    with supervisor.Supervisor(drain_timeout="3s") as manager:
        manager.start()
        manager.await_ready()
        manager.process.send_signal(signal.SIGTERM)
        notice = manager.await_notice(lambda n: "STOPPING" in n)
        assert notice["STOPPING"] == "1"
        assert notice["STATUS"] == "draining"
        # drain_timeout and what comes after it.
        assert int(notice["EXTEND_TIMEOUT_USEC"]) == 63_000_000
        assert manager.process.wait(harness.DEADLINE_SECONDS) == 0


def test_a_dataset_that_cannot_be_loaded_is_a_failure_and_never_ready():
    with supervisor.Supervisor() as manager:
        spec = _dataset(manager, "cut", 10)
        with open(os.path.join(spec["path"], "test_batch.bin"), "ab") as file:
            file.write(b"x")
        manager.config["datasets"] = [spec]
        manager.start()
        assert manager.process.wait(harness.DEADLINE_SECONDS) == 1
        manager.drain_notices()
        assert not any("READY" in notice for _, notice in manager.notices)
        assert "cut" in manager.log()


def test_a_bad_configuration_ends_with_2_which_the_unit_does_not_retry():
    with supervisor.Supervisor(no_such_key=1) as manager:
        manager.start()
        assert manager.process.wait(harness.DEADLINE_SECONDS) == 2
        assert "no_such_key" in manager.log()


def test_a_configured_dataset_may_be_unloaded_before_all_are_loaded():
    with supervisor.Supervisor() as manager:
        slow = os.path.join(manager.data_root, "slow")
        harness.write_slow_images(slow)
        manager.config["datasets"] = [
            _dataset(manager, "first", 100),
            {"name": "slow", "format": "image_folder", "path": slow},
            _dataset(manager, "last", 100)]
        manager.start()
        harness.poll_until(lambda: harness.is_listening(manager.socket_path),
                           "its socket")
        with datasetd.connect(manager.socket_path) as client:
            for name in ("first", "last"):
                client.get_dataset(name)
            harness.poll_until(
                lambda: [d["state"] for d in client.list_datasets()].count(
                    "DATASET_STATE_READY") == 2, "the small ones")
            client.unload_dataset("first")
            client.unload_dataset("slow")
            manager.await_ready()
            assert [d["name"] for d in client.list_datasets()] == ["last"]
            assert manager.stop() == 0


def test_a_failure_is_told_before_slow_loads_end():
    with supervisor.Supervisor() as manager:
        slow = os.path.join(manager.data_root, "slow")
        harness.write_slow_images(slow)
        manager.config["datasets"] = [
            {"name": "slow", "format": "image_folder", "path": slow},
            {"name": "nowhere", "format": "cifar10", "split": "test",
             "path": os.path.join(manager.data_root, "nowhere")}]
        manager.start()
        assert manager.process.wait(harness.DEADLINE_SECONDS) == 1
        assert "cannot load: dataset 'nowhere': " in manager.log()


def test_a_failure_is_told_to_the_clients_that_are_there():
    with supervisor.Supervisor() as manager:
        shards = os.path.join(manager.data_root, "shards")
        manager.config["datasets"] = [
            {"name": "x", "format": "webdataset",
             "path": harness.write_slow_shards(shards)}]
        manager.start()
        harness.poll_until(lambda: harness.is_listening(manager.socket_path),
                           "its socket")
        with datasetd.connect(manager.socket_path) as client:
            dataset = client.push_dataset("d", {"x": np.zeros((9, 1), np.uint8)})
            with datasetd.DataLoader(dataset, batch_size=1,
                                     framework="numpy") as loader:
                next(iter(loader))
                os.rename(shards, shards + ".gone")
                with pytest.raises(datasetd.DaemonDraining,
                                   match="shutting down"):
                    while True:
                        for batch in loader:
                            del batch
        assert manager.process.wait(harness.DEADLINE_SECONDS) == 1
        assert "cannot load: dataset 'x': " in manager.log()


@pytest.mark.parametrize("device", ["cuda:99", "GPU-99"])
def test_it_waits_for_a_gpu_says_so_and_can_be_stopped(device):
    with supervisor.Supervisor(devices=[device],
                               device_wait="10m") as manager:
        manager.start()
        notice = manager.await_notice(
            lambda n: "waiting for devices" in n.get("STATUS", ""))
        assert "a try every 2s" in notice["STATUS"]
        assert int(notice["EXTEND_TIMEOUT_USEC"]) == 60_000_000
        # It tries again.
        manager.await_notice(
            lambda n: "waiting for devices" in n.get("STATUS", ""))
        assert not os.path.exists(manager.socket_path)
        assert manager.stop() == 0
        assert manager.log().count("waiting for devices") == 1


def test_a_gpu_that_never_comes_is_a_failure_when_the_wait_is_over():
    with supervisor.Supervisor(devices=["cuda:99"],
                               device_wait="100ms") as manager:
        manager.start()
        assert manager.process.wait(harness.DEADLINE_SECONDS) == 1
        assert "device_wait (100ms) is over" in manager.log()
        assert "cuda:99" in manager.log()


def _has_nvidia_gpu():
    for path in glob.glob("/sys/bus/pci/devices/*"):
        with open(os.path.join(path, "vendor")) as vendor, open(
                os.path.join(path, "class")) as kind:
            if vendor.read() == "0x10de\n" and kind.read().startswith("0x03"):
                return True
    return False


@pytest.mark.skipif(_has_nvidia_gpu(), reason="this machine has a GPU")
def test_a_machine_without_a_gpu_does_not_wait_for_one():
    with supervisor.Supervisor(devices=[], device_wait="10m") as manager:
        manager.start()
        manager.await_ready()
        assert "waiting for devices" not in manager.log()
        assert "serving from host memory" in manager.log()


def test_host_memory_needs_no_wait():
    with supervisor.Supervisor(devices=["cpu"], device_wait="10m") as manager:
        manager.start()
        manager.await_ready()
        assert "waiting for devices" not in manager.log()


if __name__ == "__main__":
    harness.main(__file__)
