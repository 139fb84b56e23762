"""One of several GPUs fails: its feeds end with the reason, datasets that lie
only there are gone, and the others go on. With the last one the daemon ends."""

import contextlib
import os
import urllib.request

import pytest

from tests.testing import daemon_harness as harness
from tests.testing import ports

harness.use_python_package()

import datasetd  # noqa: E402
from datasetd import transforms as T  # noqa: E402

from tests.conformance import loader_harness as loaders  # noqa: E402

_NUM_SAMPLES = 120
_TRANSFORMS = [T.RandomCrop(32, padding=4), T.RandomHorizontalFlip()]
# Three kernels are launched on each device when the daemon starts.
_FAULT = "1/kernel@{}=700"

_JOB = """
client = datasetd.connect(ADDRESS)
dataset = client.get_dataset(ARGUMENTS["dataset"])
try:
    loader = datasetd.DataLoader(
        dataset, batch_size=8, seed=5, framework="dlpack", timeout=60,
        prefetch=2, device=ARGUMENTS["device"], reconnect=5)
    with loader:
        say(open=True)
        hear()
        while True:
            for batch in loader:
                pass
except datasetd.Error as error:
    say(kind=type(error).__name__, error=str(error))
"""


@contextlib.contextmanager
def _serve(faults="", count=2, **config):
    with harness.Daemon(
            devices=[f"cuda:{i}" for i in range(count)],
            environment={"DATASETD_EMULATED_GPU_FAULTS": faults},
            **config) as daemon:
        folder = os.path.join(daemon.data_root, "d")
        harness.write_cifar10_test(folder, _NUM_SAMPLES)
        with daemon.connect() as client:
            yield daemon, client, folder


def _load(client, folder, name, device):
    return client.load_dataset(name, format="cifar10", split="test",
                               path=folder, device=device)


def _epoch(dataset, device="cuda:0", epochs=1):
    rows = []
    with datasetd.DataLoader(dataset, batch_size=8, shuffle=True, seed=5,
                             framework="dlpack", timeout=60, device=device,
                             transforms=_TRANSFORMS) as loader:
        for _ in range(epochs):
            rows += [(batch.indices.tolist(), batch.bits().tobytes())
                     for batch in loaders.take_epoch(loader)]
    return rows


def _job(daemon, dataset, device):
    return harness.Worker(_JOB, daemon.socket_path, dataset=dataset,
                          device=device)


def _device(client, number):
    return client.status()["devices"][number]


def _dataset(client, name):
    return {d["name"]: d for d in client.list_datasets()}[name]


def _await_failure(client, number=1):
    return harness.poll_until(lambda: _device(client, number)["error"],
                              "the failure")


@pytest.mark.parametrize("export", ["cuda_vmm_fd", "cuda_ipc_handle"])
def test_one_gpu_fails_while_both_serve(export):
    with _serve() as (_, client, folder):
        expected = _epoch(_load(client, folder, "both", "each"), epochs=2)

    # In the middle of the feed of cuda:1.
    with _serve(_FAULT.format(7), slab_export=export) as (daemon, client, folder):
        both = _load(client, folder, "both", "each")
        _load(client, folder, "alone", "cuda:1")
        _load(client, folder, "other", "cuda:0")
        with datasetd.DataLoader(
                both, batch_size=8, shuffle=True, seed=5, framework="dlpack",
                timeout=60, device="cuda:0",
                transforms=_TRANSFORMS) as loader, \
                _job(daemon, "both", "cuda:1") as replica, \
                _job(daemon, "alone", "cuda:1") as alone:
            iterator = iter(loader)
            rows = [loaders.Taken(next(iterator))]
            assert replica.hear() == {"open": True}
            assert alone.hear() == {"open": True}
            replica.tell(go=True)
            alone.tell(go=True)
            for job in (replica, alone):
                end = job.hear()
                assert end["kind"] == "FeedFailed"
                assert "device cuda:1 (GPU-" in end["error"]
                assert "CUDA_ERROR_ILLEGAL_ADDRESS" in end["error"]
                assert "restart the daemon; till then use cuda:0" in (
                    end["error"])
            # The other GPU's feed goes on to the end, and once more.
            rows += [loaders.Taken(batch) for batch in iterator]
            rows += loaders.take_epoch(loader)
            assert [(row.indices.tolist(), row.bits().tobytes())
                    for row in rows] == expected
        assert daemon.is_running()

        failed = _device(client, 1)
        assert "CUDA_ERROR_ILLEGAL_ADDRESS" in failed["error"]
        assert not _device(client, 0)["error"]
        harness.poll_until(
            lambda: _dataset(client, "alone")["state"] ==
            "DATASET_STATE_FAILED", "the end of the dataset")
        assert "device cuda:1 (GPU-" in _dataset(client, "alone")["error"]
        assert _dataset(client, "both")["state"] == "DATASET_STATE_READY"
        assert [bool(placement["error"]) for placement in
                _dataset(client, "both")["placements"]] == [False, True]
        assert _dataset(client, "other")["state"] == "DATASET_STATE_READY"

        # Nothing new begins there.
        for refused in (
                lambda: _load(client, folder, "new", "cuda:1"),
                lambda: _load(client, folder, "new", "cuda:0,cuda:1"),
                lambda: _load(client, folder, "alone", "cuda:1"),
                lambda: datasetd.DataLoader(both, framework="dlpack",
                                            device="cuda:1")):
            with pytest.raises(datasetd.FailedPrecondition,
                               match="device cuda:1 .GPU-.* has failed: .*"
                                     "ILLEGAL_ADDRESS.*restart the daemon"):
                refused()
        # "each" is what serves, and a name of a lost dataset is free.
        assert _load(client, folder, "all", "each").device == "cuda:0"
        assert _load(client, folder, "alone", "cuda:0").device == "cuda:0"
        # Unless a job asks for another one, it gets a replica that serves.
        assert len(_epoch(both, device=None)) == len(expected) // 2
        client.unload_dataset("both", force=True)
        harness.poll_until(lambda: not client.list_feeds(), "the feeds' end")
        harness.poll_until(
            lambda: int(_device(client, 1)["dataset_bytes"]) == 0,
            "the memory of the failed device")
        log = daemon.log()
        assert "CUDA_ERROR_ILLEGAL_ADDRESS" in log
        assert "feeds with launches in flight: " in log
        assert log.count("its feeds end, and the datasets") == 1
        daemon.terminate()
        assert daemon.wait() == 0


def test_a_shard_is_lost_with_one_of_its_gpus():
    with _serve(_FAULT.format(10)) as (daemon, client, folder):
        _load(client, folder, "shard", "shard")
        _load(client, folder, "other", "cuda:0")
        with _job(daemon, "shard", "cuda:0") as reader, \
                _job(daemon, "shard", "cuda:1") as failing:
            for job in (reader, failing):
                assert job.hear() == {"open": True}
            for job in (reader, failing):
                job.tell(go=True)
            for job in (reader, failing):
                end = job.hear()
                assert end["kind"] == "FeedFailed"
                assert "device cuda:1 (GPU-" in end["error"]
        assert daemon.is_running()
        assert not _device(client, 0)["error"]
        harness.poll_until(
            lambda: _dataset(client, "shard")["state"] ==
            "DATASET_STATE_FAILED", "the end of the dataset")
        assert _dataset(client, "other")["state"] == "DATASET_STATE_READY"
        assert len(_epoch(client.get_dataset("other"))) == 15
        # The name is free.
        assert _load(client, folder, "shard", "each").device == "cuda:0"


def test_a_gpu_that_fails_while_a_dataset_is_loaded_fails_that_load():
    # An uncorrectable error of memory.
    with _serve("1/cuMemcpyHtoDAsync_v2@1=214") as (daemon, client, folder):
        with pytest.raises(datasetd.FailedPrecondition,
                           match="device cuda:1 .GPU-.* has failed: .*"
                                 "ECC_UNCORRECTABLE"):
            _load(client, folder, "d", "cuda:1")
        assert _dataset(client, "d")["state"] == "DATASET_STATE_FAILED"
        assert len(_epoch(_load(client, folder, "e", "cuda:0"))) == 15
        assert daemon.is_running()


def test_a_gpu_that_fails_while_a_replica_is_made_fails_that_load():
    with _serve("1/cuMemcpyDtoDAsync_v2@1=214") as (daemon, client, folder):
        with pytest.raises(datasetd.FailedPrecondition,
                           match="device cuda:1 .GPU-.* has failed: .*"
                                 "ECC_UNCORRECTABLE"):
            _load(client, folder, "d", "each")
        assert int(_device(client, 0)["dataset_bytes"]) == 0
        # The GPU that is left takes the dataset.
        dataset = _load(client, folder, "d", "each")
        assert dataset.device == "cuda:0"
        assert len(_epoch(dataset)) == 15


def test_metrics_and_status_say_which_gpu_failed():
    port = ports.free_port()
    with _serve("1/cuMemcpyHtoDAsync_v2@1=214",
                metrics_port=port) as (daemon, client, folder):
        with pytest.raises(datasetd.FailedPrecondition):
            _load(client, folder, "d", "cuda:1")
        _await_failure(client)
        with urllib.request.urlopen(
                f"http://127.0.0.1:{port}/metrics") as page:
            text = page.read().decode()
        assert 'datasetd_device_failed{device="cuda:0"} 0' in text
        assert 'datasetd_device_failed{device="cuda:1"} 1' in text


def test_the_daemon_ends_with_its_last_gpu():
    with _serve("1/cuMemcpyHtoDAsync_v2@1=214,0/kernel@5=700") as (
            daemon, client, folder):
        with pytest.raises(datasetd.FailedPrecondition):
            _load(client, folder, "d", "cuda:1")
        assert daemon.is_running()
        dataset = _load(client, folder, "e", "cuda:0")
        # Perhaps before the loader has been opened.
        with pytest.raises(datasetd.DaemonGone):
            _epoch(dataset)
        assert daemon.wait() == 1
        assert "the device failed, exiting" in daemon.log()


if __name__ == "__main__":
    harness.main(__file__)
