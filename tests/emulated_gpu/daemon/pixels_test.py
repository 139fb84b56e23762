"""A daemon on the emulated GPU gives the same samples as one on the host:
loads, kernels, both ways to share a slab, and the client's releases, in
processes of their own."""

import contextlib
import os

import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402
from datasetd import transforms as T  # noqa: E402

from tests.conformance import loader_harness as loaders  # noqa: E402

_IS_FULL = os.environ.get("DATASETD_TEST_FULL") == "1"
# The last batch has 16 or 8.
_NUM_SAMPLES, _BATCH_SIZE = (96, 20) if _IS_FULL else (20, 12)
# Else each loader has batches of the next epoch made, which nobody reads.
_PREFETCH = {} if _IS_FULL else {"prefetch": 2}
_EXPORTS = ("cuda_vmm_fd", "cuda_ipc_handle")

# By name: what one launch of each kernel does.
_TRANSFORMS = {
    "nothing": [],
    "moves": [
        T.RandomCrop(32, padding=4, padding_mode="reflect"),
        T.RandomHorizontalFlip(),
        T.ToDtype("float16", scale=True),
        T.Normalize((0.49, 0.48, 0.45), (0.25, 0.24, 0.26)),
    ],
    "chain": [
        T.RandomResizedCrop(24),
        T.ColorJitter(0.4, 0.4, 0.4, 0.1),
        T.RandomHorizontalFlip(),
        T.ToDtype("float32", scale=True),
    ],
    "policies": [
        T.RandAugment(),
        T.AutoAugment("cifar10"),
        T.RandomPerspective(),
        T.ToDtype("float32", scale=True),
        T.GaussianNoise(),
    ],
}

_COUNTER = """
client = datasetd.connect(ADDRESS)
dataset = load(client)
try:
    with datasetd.DataLoader(dataset, batch_size=20,
                             framework="dlpack") as loader:
        devices, num_samples = set(), 0
        for batch in loader:
            devices.add(batch[0].__dlpack_device__()[1])
            num_samples += batch.num_samples
    say(num_samples=num_samples, devices=list(devices))
except datasetd.Error as error:
    say(error=str(error))
"""


@contextlib.contextmanager
def _open(device, **config):
    """(daemon, client, dataset) with the images on the device."""
    with harness.Daemon(devices=[device], **config) as daemon:
        directory = os.path.join(daemon.data_root, "d")
        harness.write_cifar10_test(directory, _NUM_SAMPLES)
        with daemon.connect() as client:
            dataset = client.load_dataset(
                "d", format="cifar10", split="test", path=directory)
            yield daemon, client, dataset


def _num_batches(num_rows):
    return -(-num_rows // _BATCH_SIZE)


def _loader(dataset, **options):
    if "framework" not in options:
        is_host = dataset.device == "cpu"
        options["framework"] = "numpy" if is_host else "dlpack"
    return datasetd.DataLoader(
        dataset, **{"batch_size": _BATCH_SIZE, "shuffle": True, "seed": 5,
                    "timeout": 60, **options})


def _rows(dataset, num_epochs=1, **options):
    """{(epoch, sample): bytes}, with the labels."""
    rows = {}
    with _loader(dataset, **options) as loader:
        for epoch in range(num_epochs):
            batches = loaders.take_epoch(loader)
            images = loaders.by_sample(batches)
            labels = loaders.by_sample(batches, field=1)
            for sample, image in images.items():
                rows[epoch, sample] = image + labels[sample]
    assert len(rows) == num_epochs * _NUM_SAMPLES
    return rows


@pytest.fixture(scope="module", name="expected")
def _expected():
    with _open("cpu") as (_, _, dataset):
        return {name: _rows(dataset, num_epochs=2, transforms=transforms)
                for name, transforms in _TRANSFORMS.items()}


@pytest.mark.parametrize("export", _EXPORTS)
def test_pixels_are_the_hosts(expected, export):
    # How a slab is shared has no part in what the longer kernels do.
    with _open("cuda:0", slab_export=export) as (daemon, client, dataset):
        for name, transforms in _TRANSFORMS.items():
            num_epochs = 2
            if name in ("chain", "policies") and not _IS_FULL:
                if export != _EXPORTS[0]:
                    continue
                num_epochs = 1
            assert _rows(dataset, num_epochs, transforms=transforms) == {
                key: row for key, row in expected[name].items()
                if key[0] < num_epochs}, name
        device = client.status()["devices"][0]
        assert device["name"] == "cuda:0"
        harness.poll_until(
            lambda: int(client.status()["devices"][0]["slab_bytes"]) == 0,
            "the slabs' end")
        assert daemon.is_running()


def test_weights_that_change_are_the_hosts():
    seen = []
    for device in ("cpu", "cuda:0"):
        with _open(device) as (_, _, dataset), _loader(
                dataset, shuffle=False, weights=range(_NUM_SAMPLES),
                framework="dlpack", transforms=_TRANSFORMS["moves"]) as loader:
            batches = []
            for epoch in range(3):
                for number, batch in enumerate(loader):
                    if number == epoch:
                        loader.set_weights([(epoch + i) % 5
                                            for i in range(_NUM_SAMPLES)])
                    taken = loaders.Taken(batch)
                    batches.append((taken.indices.tolist(),
                                    taken.bits(0).tobytes()))
            seen.append(batches)
    assert seen[0] == seen[1]
    assert len(seen[0]) == 3 * _num_batches(_NUM_SAMPLES)


def test_mixtures_are_the_hosts():
    """Samples are read where their datasets are; each has its transforms."""
    num_rows = 70 if _IS_FULL else 30
    ops = {"d": _TRANSFORMS["moves"], "e": [T.CenterCrop(32), T.ToDtype(
        "float16", scale=True), T.Normalize(0.5, 0.25)]}
    chains = {"d": _TRANSFORMS["chain"], "e": [
        T.Resize((24, 24)), T.ToDtype("float32", scale=True)]}
    seen = []
    for device in ("cpu", "cuda:0"):
        with _open(device) as (daemon, client, first):
            second = client.load_dataset(
                "e", format="cifar10", split="test", path=first.path,
                pretransforms=[T.Grayscale(3)])
            mixtures = [datasetd.concat([first, second]), datasetd.mixture(
                {first: 0.3, second: 0.7}, num_rows=num_rows)]
            batches = []
            for i, mixture in enumerate(mixtures):
                for j, transforms in enumerate(
                        (ops, chains, _TRANSFORMS["chain"])):
                    for k, layout in enumerate(("NCHW", "NHWC")):
                        if (i + j + k) % 2 and not _IS_FULL:
                            continue
                        with _loader(mixture, transforms=transforms,
                                     layout=layout, framework="dlpack",
                                     ) as loader:
                            batches += [
                                (batch.bits(0).tobytes(),
                                 batch.bits(1).tobytes(),
                                 batch.indices.tolist())
                                for batch in loaders.take_epoch(loader)]
            seen.append(batches)
            assert daemon.is_running()
    assert seen[0] == seen[1]
    assert len(seen[0]) == (6 if _IS_FULL else 3) * (
        _num_batches(2 * _NUM_SAMPLES) + _num_batches(num_rows))


def test_feeds_share_the_scratch_memory_of_their_chains(expected):
    """Their launches are in flight together, and none disturbs another's."""
    transforms = _TRANSFORMS["chain"]
    with _open("cuda:0") as (_, client, dataset):
        def scratch():
            return int(client.status()["devices"][0]["scratch_bytes"])

        with contextlib.ExitStack() as stack:
            iterators, taken = [], []
            for _ in range(3):
                before = scratch()
                loader = stack.enter_context(_loader(
                    dataset, transforms=transforms, prefetch=3))
                iterators.append(iter(loader))
                next(iterators[-1])
                taken.append(scratch() - before)
            # The others take indices and a program: the block is counted once.
            assert max(taken[1:]) < 2 << 20 < taken[0]
            for _ in range(_NUM_SAMPLES // _BATCH_SIZE):
                for iterator in iterators:
                    rows = loaders.by_sample(
                        [loaders.Taken(next(iterator))])
                    for sample, image in rows.items():
                        assert expected["chain"][0, sample].startswith(image)
        harness.poll_until(lambda: scratch() == 0, "the block's end")


def test_a_loader_that_starts_in_the_middle(expected):
    """A seek drops what runs, and nothing of it is published."""
    with _open("cuda:0") as (_, _, dataset):
        with _loader(dataset, transforms=_TRANSFORMS["moves"],
                     prefetch=4) as loader:
            first = next(iter(loader))
            state = loader.state_dict()
            del first
        with _loader(dataset, transforms=_TRANSFORMS["moves"]) as loader:
            loader.load_state_dict(state)
            for batch in loaders.take_epoch(loader):
                for sample, image in loaders.by_sample([batch]).items():
                    assert expected["moves"][0, sample].startswith(image)


def _count(device, monkeypatch, **environment):
    """Returns what a process of that environment, which has not called the
    driver yet, gets from a daemon on the device."""
    with harness.Daemon(devices=[device]) as daemon:
        directory = os.path.join(daemon.data_root, "d")
        harness.write_cifar10_test(directory, _NUM_SAMPLES)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        with harness.Worker(_COUNTER, daemon.socket_path,
                            path=directory) as worker:
            return worker.hear()


def test_an_instance_of_a_divided_gpu(monkeypatch):
    """Daemon and client name it by the same UUID: not by the GPU's."""
    monkeypatch.setenv(
        "DATASETD_EMULATED_GPU_UUIDS",
        "MIG-11111111-2222-3333-4444-555555555555"
        "@GPU-66666666-7777-8888-9999-aaaaaaaaaaaa")
    monkeypatch.delenv("DATASETD_EMULATED_GPU_DEVICES")
    assert _count("cuda:0", monkeypatch) == {
        "num_samples": _NUM_SAMPLES, "devices": [0]}
    error = _count("cuda:0", monkeypatch, DATASETD_EMULATED_GPU_UUIDS=(
        "MIG-99999999-2222-3333-4444-555555555555"
        "@GPU-66666666-7777-8888-9999-aaaaaaaaaaaa"))["error"]
    assert "on the daemon's cuda:0 MIG-11111111-" in error
    assert "it sees cuda:0 MIG-99999999-" in error


def test_a_client_that_counts_its_gpus_otherwise(monkeypatch):
    monkeypatch.setenv("DATASETD_EMULATED_GPU_DEVICES", "2")
    assert _count("cuda:1", monkeypatch, CUDA_VISIBLE_DEVICES="1,0") == {
        "num_samples": _NUM_SAMPLES, "devices": [0]}


def test_a_client_that_does_not_see_the_gpu(monkeypatch):
    monkeypatch.setenv("DATASETD_EMULATED_GPU_DEVICES", "2")
    error = _count("cuda:1", monkeypatch, CUDA_VISIBLE_DEVICES="0")["error"]
    assert "the feed is on the daemon's cuda:1 " in error
    assert "check CUDA_VISIBLE_DEVICES" in error


def test_an_export_that_is_refused_gives_way_to_the_other(expected):
    """Containers and virtual GPUs refuse descriptors with various errors."""
    for fault in ("cuMemCreate@1+=800", "cuMemExportToShareableHandle@1+=101",
                  "cuMemExportToShareableHandle@1=999"):
        with _open("cuda:0", environment={
                "DATASETD_EMULATED_GPU_FAULTS": fault}) as (_, _, dataset):
            assert _rows(dataset, transforms=[]) == {
                key: row for key, row in expected["nothing"].items()
                if key[0] == 0}


def test_two_devices_have_datasets_of_their_own(expected):
    with harness.Daemon(
            devices=["cuda:0", "cuda:1"],
            environment={"DATASETD_EMULATED_GPU_DEVICES": "2"}) as daemon:
        directory = os.path.join(daemon.data_root, "d")
        harness.write_cifar10_test(directory, _NUM_SAMPLES)
        with daemon.connect() as client:
            for device in ("cuda:0", "cuda:1"):
                dataset = client.load_dataset(
                    device.replace(":", "-"), format="cifar10", split="test",
                    path=directory, device=device)
                assert dataset.device == device
                if device == "cuda:0":
                    assert _rows(dataset, transforms=[]) == {
                        key: row for key, row in expected["nothing"].items()
                        if key[0] == 0}
            names = [device["name"] for device in client.status()["devices"]]
            assert names == ["cuda:0", "cuda:1"]


if __name__ == "__main__":
    harness.main(__file__)
