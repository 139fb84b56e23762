"""The same pixels for the same (seed, epoch, sample), however they are asked
for."""

import os

import pytest
from datasetd import transforms as T

from tests.conformance import loader_harness as harness

daemon = harness.daemon

# Samples, their height and width, a batch size beside the usual one, and
# epochs that another way of asking is compared in.
N, SIZE, LARGE, NUM_EPOCHS = (
    (203, 24, 100, 3)
    if os.environ.get("DATASETD_TEST_FULL") == "1"
    else (71, 12, 50, 2)
)
SEED = 11
TRANSFORMS = [
    T.RandomCrop(SIZE, padding=4, padding_mode="reflect"),
    T.RandomHorizontalFlip(),
    T.RandomVerticalFlip(0.3),
    T.AlternatingFlip(),
    T.ToDtype("float16", scale=True),
    T.Normalize((0.49, 0.48, 0.45), (0.25, 0.24, 0.26)),
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return harness.write_npy(
        tmp_path_factory.mktemp("data"),
        image=harness.images(N, (SIZE, SIZE, 3)),
        label=harness.labels(N),
    )


@pytest.fixture(scope="module")
def dataset(daemon, directory):
    return daemon.load(directory)


def open_loader(daemon, dataset, **options):
    options = {
        "batch_size": 32,
        "shuffle": True,
        "seed": SEED,
        "transforms": TRANSFORMS,
        **options,
    }
    return daemon.loader(dataset, **options)


@pytest.fixture(scope="module")
def golden(daemon, dataset):
    """Rows by sample of epochs 0 to 2, and their batches."""
    with open_loader(daemon, dataset) as loader:
        epochs = [harness.take_epoch(loader) for _ in range(3)]
    return [harness.by_sample(epoch) for epoch in epochs], epochs


def test_epochs_and_seeds_differ(daemon, dataset, golden):
    rows, _ = golden
    with open_loader(daemon, dataset, seed=SEED + 1) as loader:
        other = harness.by_sample(harness.take_epoch(loader))
    for a, b in ((rows[0], rows[1]), (rows[1], rows[2]), (rows[0], other)):
        assert a.keys() == b.keys() and len(a) == N
        # 81 positions and 3 flips: hardly one sample looks the same.
        assert sum(a[k] == b[k] for k in a) < N // 10


@pytest.mark.parametrize("host_threads", [1, 2])
def test_another_daemon(daemon, directory, golden, host_threads):
    with harness.Daemon(daemon.device, host_threads) as other:
        with open_loader(other, other.load(directory)) as loader:
            for epoch in range(NUM_EPOCHS):
                batches = harness.take_epoch(loader)
                assert harness.by_sample(batches) == golden[0][epoch]
                for a, b in zip(batches, golden[1][epoch]):
                    assert a.indices.tolist() == b.indices.tolist()


@pytest.mark.parametrize(
    "options",
    [
        *({"batch_size": size} for size in (1, 7, LARGE, N + 1)),
        *({"prefetch": depth} for depth in (1, 8, 62)),
        {"shuffle": False},
        {"layout": "NHWC"},
    ],
    ids=str,
)
def test_another_way_of_asking(daemon, dataset, golden, options):
    with open_loader(daemon, dataset, **options) as loader:
        for epoch in range(NUM_EPOCHS):
            rows = harness.by_sample(harness.take_epoch(loader))
            assert rows == golden[0][epoch]


@pytest.mark.parametrize("world_size", [2, 5])
def test_another_world_size(daemon, dataset, golden, world_size):
    for epoch in range(2):
        rows = {}
        for rank in range(world_size):
            with open_loader(
                daemon, dataset, rank=rank, world_size=world_size
            ) as loader:
                loader.set_epoch(epoch)
                rows.update(harness.by_sample(harness.take_epoch(loader)))
        assert rows == golden[0][epoch]


def test_both_devices_give_the_same(directory):
    """Moves, casts and normalising are bit-equal between backends."""
    harness.require_device("cuda:0")
    rows = []
    for device in ("cpu", "cuda:0"):
        with harness.Daemon(device) as daemon:
            dataset = daemon.load(directory)
            with open_loader(daemon, dataset) as loader:
                rows.append(harness.by_sample(harness.take_epoch(loader)))
    assert rows[0] == rows[1]


if __name__ == "__main__":
    harness.main(__file__)
