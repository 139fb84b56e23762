"""device="each": a dataset is read once and lies on every GPU that was asked
for. Batches are the same on each, jobs take their own GPU's, and all replicas
go together."""

import contextlib
import os

import numpy as np
import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402
from datasetd import transforms as T  # noqa: E402

from tests.conformance import loader_harness as loaders  # noqa: E402

_NUM_SAMPLES = 60
_BATCH_SIZE = 16
_TRANSFORMS = [T.RandomCrop(32, padding=4), T.RandomHorizontalFlip(),
               T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.ToDtype("float32",
                                                            scale=True)]


def _names(count):
    return [f"cuda:{i}" for i in range(count)]


@contextlib.contextmanager
def _serve(count, **config):
    """(daemon, client, folder of CIFAR-10)."""
    with harness.Daemon(devices=_names(count), **config) as daemon:
        folder = os.path.join(daemon.data_root, "d")
        harness.write_cifar10_test(folder, _NUM_SAMPLES)
        with daemon.connect() as client:
            yield daemon, client, folder


def _load(client, folder, name="d", device="each", **options):
    return client.load_dataset(name, format="cifar10", split="test",
                               path=folder, device=device, **options)


def _ragged():
    random = np.random.default_rng(3)
    return [{"image": random.integers(0, 256, (8 + i % 5, 6 + i % 7, 3),
                                      dtype=np.uint8),
             "label": np.int64(i)} for i in range(_NUM_SAMPLES)]


def _rows(dataset, transforms, device=None):
    rows = {}
    with datasetd.DataLoader(
            dataset, batch_size=_BATCH_SIZE, shuffle=True, seed=5,
            framework="dlpack", timeout=60, transforms=transforms,
            device=device) as loader:
        for epoch in range(2):
            for batch in loader:
                if device is not None:
                    assert batch[0].__dlpack_device__() == (2, int(device[5:]))
                taken = loaders.Taken(batch)
                for at, sample in enumerate(taken.indices):
                    rows[epoch, taken.index, at, int(sample)] = b"".join(
                        taken.bits(field)[at].tobytes() for field in (0, 1))
    assert len(rows) == 2 * _NUM_SAMPLES
    return rows


def _bytes(client, kind="dataset_bytes"):
    return [int(device[kind]) for device in client.status()["devices"]]


def _slabs(client):
    return [int(value > 0) for value in _bytes(client, "slab_bytes")]


def _uuids(client):
    return [placement["gpu_uuid"] for placement in
            client.list_datasets()[0]["placements"]]


@pytest.fixture(scope="module", name="expected")
def _expected():
    """The rows of one device: moves and a chain, resized at load, ragged."""
    with _serve(1) as (_, client, folder):
        return {
            "plain": _rows(_load(client, folder, "a"), _TRANSFORMS),
            "resized": _rows(
                _load(client, folder, "b",
                      pretransforms=[T.Resize(20), T.CenterCrop(16)]),
                [T.RandomHorizontalFlip()]),
            "ragged": _rows(
                client.push_dataset("c", _ragged(), ragged=True),
                [T.RandomResizedCrop(12)]),
        }


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_every_replica_gives_the_same_batches(expected, count):
    with _serve(count) as (_, client, folder):
        plain = _load(client, folder, "a")
        assert plain.device == ",".join(_names(count))
        resized = _load(client, folder, "b",
                        pretransforms=[T.Resize(20), T.CenterCrop(16)])
        ragged = client.push_dataset("c", _ragged(), ragged=True,
                                     device="each")
        assert len({plain.content_hash}) == 1
        used = _bytes(client)
        assert len(set(used)) == 1 and used[0] > plain.resident_bytes
        # On the first, on the last, and on all of the fewer ones.
        for device in {"cuda:0", f"cuda:{count - 1}", *_names(min(count, 2))}:
            assert _rows(plain, _TRANSFORMS, device) == expected["plain"]
            assert _rows(resized, [T.RandomHorizontalFlip()],
                         device) == expected["resized"]
            assert _rows(ragged, [T.RandomResizedCrop(12)],
                         device) == expected["ragged"]


def test_without_peer_access_replicas_go_through_the_host(expected):
    with _serve(2, environment={
            "DATASETD_EMULATED_GPU_PEERS": "0"}) as (_, client, folder):
        assert [device["peers"] for device in
                client.status()["devices"]] == [[], []]
        dataset = _load(client, folder)
        assert _rows(dataset, _TRANSFORMS, "cuda:1") == expected["plain"]


def test_a_gpu_with_too_many_peers_gets_its_replica_through_the_host(expected):
    with _serve(2, environment={
            "DATASETD_EMULATED_GPU_FAULTS": "cuCtxEnablePeerAccess@1+=711"
            }) as (_, client, folder):
        dataset = _load(client, folder)
        assert _rows(dataset, _TRANSFORMS, "cuda:1") == expected["plain"]
        with pytest.raises(
                datasetd.FailedPrecondition,
                match="device: 'shard:cuda:0,cuda:1': .*TOO_MANY_PEERS.*"
                      "Name devices that have it, or use residency 'split'"):
            _load(client, folder, "s", device="shard")


def test_a_list_and_each_name_one_dataset():
    with _serve(3) as (_, client, folder):
        dataset = _load(client, folder, device="cuda:2,cuda:0")
        assert dataset.device == "cuda:0,cuda:2"
        used = _bytes(client)
        assert used[1] == 0 and used[0] == used[2] > 0
        # The same devices by another text, and by UUID.
        uuid = client.status()["devices"][2]["gpu_uuid"]
        assert uuid
        assert _load(client, folder, device="cuda:0,cuda:2").spec_id == (
            dataset.spec_id)
        with pytest.raises(datasetd.AlreadyExists, match="on cuda:0,cuda:2"):
            _load(client, folder)
        with pytest.raises(datasetd.InvalidArgument,
                           match="device 'cuda:7' is not served"):
            _load(client, folder, "e", device="cuda:0,cuda:7")
        with pytest.raises(datasetd.InvalidArgument,
                           match="names cuda:1 twice"):
            _load(client, folder, "e", device="cuda:1,cuda:1")
        with pytest.raises(datasetd.InvalidArgument,
                           match="is not on cuda:1 .GPU-.*it is on cuda:0 "
                                 ".GPU-.*, cuda:2 .GPU-"):
            datasetd.DataLoader(dataset, framework="dlpack", device="cuda:1")


def test_every_devices_budget_is_asked_before_anything_is_read():
    with _serve(2, memory_budget_mib=1) as (_, client, folder):
        rows = np.zeros((800, 1024), np.uint8)
        blocker = client.push_dataset("blocker", {"x": rows}, device="cuda:1")
        used = _bytes(client)
        assert used == [0, blocker.resident_bytes]
        os.unlink(os.path.join(folder, "test_batch.bin"))
        harness.write_cifar10_test(folder, 100)
        with pytest.raises(
                datasetd.ResourceExhausted,
                match=r"dataset 'd' on cuda:1 needs .*\(307300 bytes\), and .*"
                      r"\(229376 bytes\) of the memory budget of .*"
                      r"\(1048576 bytes\)"):
            _load(client, folder)
        assert _bytes(client) == used
        assert not [dataset for dataset in client.list_datasets()
                    if dataset["name"] == "d"]
        estimate = _load(client, folder, dry_run=True)
        assert estimate.device == "cuda:0,cuda:1"
        assert estimate.free_bytes == (1 << 20) - used[1]
        # Alone it fits.
        _load(client, folder, device="cuda:0")


def test_all_replicas_are_evicted_together():
    with _serve(2, memory_budget_mib=1) as (daemon, client, folder):
        with _load(client, folder):
            assert min(_bytes(client)) > 0
        big = np.zeros((1000, 1024), np.uint8)
        pushed = client.push_dataset("big", {"x": big}, device="cuda:1")
        assert _bytes(client) == [0, pushed.resident_bytes]


# -- A job's own GPU ----------------------------------------------------------

_JOB = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
if ARGUMENTS.get("current") is not None:
    assert driver.cuInit(0) == 0
    context = ctypes.c_void_p()
    ordinal = ARGUMENTS["current"]
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), ordinal) == 0
    assert driver.cuCtxSetCurrent(context) == 0
if ARGUMENTS.get("torch") is not None:
    import torch
    torch.cuda.is_initialized = lambda: True
    torch.cuda.current_device = lambda: ARGUMENTS["torch"]
client = datasetd.connect(ADDRESS)
dataset = client.get_dataset("d")
try:
    loader = datasetd.DataLoader(
        dataset, batch_size=16, seed=5, framework="dlpack", timeout=60,
        device=ARGUMENTS.get("device"), rank=0, world_size=1)
except datasetd.Error as error:
    say(error=str(error))
else:
    with loader:
        iterator = iter(loader)
        first = next(iterator)
        say(device=first[0].__dlpack_device__()[1])
        hear()
        try:
            count = first.num_samples + sum(b.num_samples for b in iterator)
            while ARGUMENTS.get("endless"):
                count = sum(batch.num_samples for batch in loader)
            say(count=count)
        except datasetd.Error as error:
            say(error=type(error).__name__)
"""


def _job(daemon, **arguments):
    return harness.Worker(_JOB, daemon.socket_path, **arguments)


@pytest.mark.parametrize("arguments, visible, device, at", [
    ({}, None, 0, [1, 0]),
    ({"device": "cuda:1"}, None, 1, [0, 1]),
    # The daemon's cuda:1 is this process's cuda:0.
    ({"device": "cuda:0"}, "1,0", 0, [0, 1]),
    ({"current": 1}, None, 1, [0, 1]),
    ({"current": 0}, "1", 0, [0, 1]),
    ({"torch": 1}, None, 1, [0, 1]),
    ({"torch": 1, "device": "cuda:0"}, None, 0, [1, 0]),
    ({"torch": 1, "device": "cuda"}, None, 1, [0, 1]),
])
def test_a_job_takes_its_own_gpus_replica(monkeypatch, arguments, visible,
                                          device, at):
    with _serve(2) as (daemon, client, folder):
        _load(client, folder)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        with _job(daemon, **arguments) as job:
            assert job.hear() == {"device": device}
            assert _slabs(client) == at
            job.tell(go=True)
            assert job.hear() == {"count": _NUM_SAMPLES}


def test_a_job_names_its_gpu_by_uuid():
    with _serve(2) as (daemon, client, folder):
        dataset = _load(client, folder)
        with pytest.raises(datasetd.InvalidArgument,
                           match="is not on GPU-ffff.*it is on cuda:0 "
                                 r"\(GPU-"):
            datasetd.DataLoader(dataset, framework="dlpack",
                                device="GPU-ffffffff")


def test_a_gpu_without_a_replica_is_an_error_that_names_both(monkeypatch):
    with _serve(3) as (daemon, client, folder):
        _load(client, folder, device="cuda:0,cuda:1")
        with _job(daemon, current=2) as job:
            error = job.hear()["error"]
        assert "is not on cuda:2 (GPU-" in error
        assert "it is on cuda:0 (GPU-" in error
        assert "cuda:1 (GPU-" in error
        with _job(daemon, device="cuda:9") as job:
            assert "device: cuda:9, which this process does not see" in (
                job.hear()["error"])
        # On one device there is nothing to choose.
        _load(client, folder, "one", device="cuda:0")
        with datasetd.DataLoader(client.get_dataset("one"),
                                 framework="dlpack") as loader:
            assert next(iter(loader))[0].__dlpack_device__() == (2, 0)


@pytest.mark.parametrize("count", [2, 4, 8])
def test_jobs_on_every_gpu_at_once(count):
    with _serve(count) as (daemon, client, folder):
        _load(client, folder)
        with contextlib.ExitStack() as stack:
            jobs = [stack.enter_context(_job(daemon, device=device))
                    for device in _names(count)]
            assert [job.hear()["device"] for job in jobs] == list(range(count))
            assert _slabs(client) == [1] * count
            for job in jobs:
                job.tell(go=True)
            assert [job.hear() for job in jobs] == [
                {"count": _NUM_SAMPLES}] * count


_RANK = """
sys.path.insert(0, ARGUMENTS["examples"])
import train
rank = ARGUMENTS["rank"]
hear()
dataset = train.load(datasetd.connect(ADDRESS), ARGUMENTS["data"])
with datasetd.DataLoader(
        dataset, batch_size=16, seed=1, framework="dlpack", timeout=60,
        rank=rank, world_size=2, device=f"cuda:{rank}") as loader:
    say(batches=[(batch[0].__dlpack_device__()[1], batch.num_samples)
                 for batch in loader])
    hear()
"""


def test_two_ranks_of_a_node_load_as_the_example_does():
    """client/examples/clusters/train.py, both at once."""
    with _serve(2) as (daemon, client, folder), contextlib.ExitStack() as stack:
        ranks = [stack.enter_context(harness.Worker(
            _RANK, daemon.socket_path, rank=rank, data=folder,
            examples=harness.runfile("client/examples/clusters")))
                 for rank in range(2)]
        for rank in ranks:
            rank.tell(go=True)
        assert [rank.hear() for rank in ranks] == [
            {"batches": [[gpu, 16], [gpu, 14]]} for gpu in range(2)]
        (dataset,) = client.list_datasets()
        assert dataset["device"] == "cuda:0,cuda:1"


def test_unloading_by_force_ends_the_jobs_on_every_gpu():
    with _serve(2) as (daemon, client, folder):
        dataset = _load(client, folder)
        with contextlib.ExitStack() as stack:
            jobs = [stack.enter_context(_job(daemon, device=device,
                                             endless=True))
                    for device in _names(2)]
            assert [job.hear()["device"] for job in jobs] == [0, 1]
            with pytest.raises(datasetd.FailedPrecondition,
                               match="2 open feeds"):
                client.unload_dataset("d")
            for job in jobs:
                job.tell(go=True)
            client.unload_dataset("d", force=True)
            assert [job.hear() for job in jobs] == [
                {"error": "DatasetUnloaded"}] * 2
        harness.poll_until(lambda: _bytes(client) == [0, 0], "free memory")
        assert not client.list_datasets()
        del dataset


def test_nothing_is_left_of_a_hundred_loads():
    with _serve(2) as (daemon, client, folder):
        def once():
            _load(client, folder)
            client.unload_dataset("d")

        once()
        before = harness.Footprint(daemon, client)
        for _ in range(100):
            once()
        harness.expect_footprint(daemon, client, before)
        assert _bytes(client) == [0, 0]


def test_the_cache_has_it_once_and_a_restart_brings_all_replicas(tmp_path):
    for name in ("cache", "state"):
        os.mkdir(tmp_path / name, 0o700)
    config = {"cache": {"directory": str(tmp_path / "cache")},
              "state_directory": str(tmp_path / "state")}
    with _serve(2, **config) as (daemon, client, folder):
        dataset = _load(client, folder)
        harness.poll_until(
            lambda: [name for name in os.listdir(tmp_path / "cache")
                     if not name.startswith(".")], "the cache's entry")
        before = _rows(dataset, _TRANSFORMS, "cuda:1")
        used = _bytes(client)
        client.close()
        daemon.terminate()
        assert daemon.wait() == 0
        daemon.start()
        with daemon.connect() as again:
            dataset = harness.poll_until(
                lambda: [d for d in again.list_datasets()
                         if d["state"] == "DATASET_STATE_READY"],
                "the dataset")[0]
            assert dataset["device"] == "cuda:0,cuda:1"
            assert _bytes(again) == used
            assert _rows(again.get_dataset("d"), _TRANSFORMS,
                         "cuda:1") == before


if __name__ == "__main__":
    harness.main(__file__)
