"""Each epoch, over all ranks, is every index once plus the stated padding.

End to end: through the daemon, its kernels, the ring and the Python client.
The whole product of sizes is the sampler's own test; here every edge of it
stands once.
"""

import os
from typing import NamedTuple

import datasetd
import numpy as np
import pytest

from tests.conformance import loader_harness as harness
from tests.conformance import loader_reference as reference

daemon = harness.daemon


class Row(NamedTuple):
    num_samples: int
    world_size: int
    batch_size: int
    drop_last: bool
    prefetch: int
    shuffle: bool = True


ROWS = [
    Row(1, 1, 1, False, 1),
    Row(1, 3, 1, False, 2),  # more ranks than samples
    Row(1, 2, 64, True, 8),  # empty: no sample for a rank
    Row(2, 1, 3, False, 1),  # batch larger than the dataset
    Row(2, 8, 1, False, 8),
    Row(7, 2, 1, False, 2),
    Row(7, 3, 8, False, 1),
    Row(7, 1, 8, True, 2),  # empty: batch larger than the dataset
    Row(7, 3, 2, True, 8, shuffle=False),
    Row(1000, 1, 64, False, 1),  # short last batch
    Row(1000, 1, 1001, False, 8),
    Row(1000, 3, 64, True, 8),
    Row(1000, 8, 1, True, 8),
    Row(1000, 2, 500, True, 1),  # exactly one batch
    Row(1000, 3, 500, False, 2, shuffle=False),
    Row(50000, 1, 500, False, 8),
    Row(50000, 8, 64, False, 2),
    Row(50000, 3, 500, True, 1),
    Row(50000, 1, 50001, False, 1),
]


@pytest.fixture(scope="module")
def dataset_of(daemon, tmp_path_factory):
    """A dataset of a size whose images and labels tell the sample."""
    datasets = {}

    def load(num_samples):
        if num_samples not in datasets:
            directory = harness.write_npy(
                tmp_path_factory.mktemp("numbered"),
                image=harness.numbered_images(num_samples),
                label=harness.labels(num_samples),
            )
            datasets[num_samples] = daemon.load(directory)
        return datasets[num_samples]

    return load


def global_order(daemon, dataset, row, epoch):
    """The order of an epoch, as one rank with one batch sees it."""
    if not row.shuffle:
        return list(range(row.num_samples))
    with daemon.loader(
        dataset, batch_size=row.num_samples, shuffle=True, seed=9, prefetch=1
    ) as loader:
        loader.set_epoch(epoch)
        (batch,) = harness.take_epoch(loader)
    order = batch.indices.tolist()
    assert sorted(order) == list(range(row.num_samples))
    return order


def check_contents(batch):
    """Image and label are those of the sample that the indices name."""
    image, label = batch.fields
    assert image.shape == (batch.num_samples, 3, 2, 2)
    np.testing.assert_array_equal(harness.numbers_of(image), batch.indices)
    np.testing.assert_array_equal(
        label, (batch.indices * 7 + 3) % 1009
    )
    assert label.dtype == np.int64 and batch.indices.dtype == np.int64


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_every_index_once(daemon, dataset_of, row):
    dataset = dataset_of(row.num_samples)
    orders = [global_order(daemon, dataset, row, epoch) for epoch in (0, 1)]
    if row.shuffle and row.num_samples >= 1000:
        assert orders[0] != orders[1]

    seen = [[], []]
    for rank in range(row.world_size):
        with daemon.loader(
            dataset,
            batch_size=row.batch_size,
            shuffle=row.shuffle,
            seed=9,
            drop_last=row.drop_last,
            rank=rank,
            world_size=row.world_size,
            prefetch=row.prefetch,
        ) as loader:
            assert loader.prefetch == row.prefetch
            for epoch in (0, 1):
                expected = reference.batches_of_rank(
                    orders[epoch],
                    rank,
                    row.world_size,
                    row.batch_size,
                    row.drop_last,
                )
                assert len(loader) == len(expected)
                batches = harness.take_epoch(loader)
                assert len(batches) == len(expected)
                for i, (batch, (indices, num_padding)) in enumerate(
                    zip(batches, expected)
                ):
                    assert (batch.epoch, batch.index) == (epoch, i)
                    assert batch.num_samples == len(indices)
                    assert batch.num_padding == num_padding
                    assert batch.indices.tolist() == indices
                    check_contents(batch)
                    kept = batch.num_samples - batch.num_padding
                    seen[epoch] += batch.indices[:kept].tolist()

    for epoch in (0, 1):
        if row.drop_last:
            per_rank = row.num_samples // row.world_size
            per_rank -= per_rank % row.batch_size
            assert len(seen[epoch]) == per_rank * row.world_size
            assert len(set(seen[epoch])) == len(seen[epoch])
        else:
            assert sorted(seen[epoch]) == list(range(row.num_samples))


def test_an_empty_epoch_has_no_batches_and_the_feed_lives(daemon, dataset_of):
    with daemon.loader(
        dataset_of(7), batch_size=8, drop_last=True, shuffle=True,
        name="empty",
    ) as loader:
        assert len(loader) == 0
        for _ in range(3):
            assert list(loader) == []
        # The feed is still the daemon's.
        assert "empty" in [f["name"] for f in daemon.client.list_feeds()]
        assert loader.state_dict()["batch"] == 0


def test_cifar10_of_full_size(daemon, tmp_path):
    """50,000 images of 32x32x3 from CIFAR-10's own format, two ranks; by default
    a fifth of them in as many files."""
    n = 50000 if os.environ.get("DATASETD_TEST_FULL") == "1" else 10000
    path = harness.write_cifar10(
        tmp_path, harness.numbered_images(n, (32, 32, 3)), np.arange(n) % 10
    )
    dataset = daemon.load(path, format="cifar10")
    assert len(dataset) == n
    seen = []
    for rank in range(2):
        with daemon.loader(
            dataset,
            batch_size=512,
            shuffle=True,
            seed=1,
            rank=rank,
            world_size=2,
        ) as loader:
            assert len(loader) == -(-n // 2 // 512)
            for batch in loader:
                taken = harness.Taken(batch)
                del batch
                image, label = taken.fields
                np.testing.assert_array_equal(
                    harness.numbers_of(image), taken.indices
                )
                np.testing.assert_array_equal(label, taken.indices % 10)
                seen += taken.indices.tolist()
    assert sorted(seen) == list(range(n))


def test_ranks_run_side_by_side(daemon, dataset_of):
    """Open at once and taken in turns, as training processes do."""
    loaders = [
        daemon.loader(
            dataset_of(1000),
            batch_size=64,
            shuffle=True,
            seed=3,
            rank=rank,
            world_size=3,
            prefetch=2,
        )
        for rank in range(3)
    ]
    seen = []
    for batches in zip(*loaders):
        for batch in batches:
            taken = harness.Taken(batch)
            check_contents(taken)
            kept = taken.num_samples - taken.num_padding
            seen += taken.indices[:kept].tolist()
        del batches, batch
    assert sorted(seen) == list(range(1000))
    for loader in loaders:
        loader.close()


def test_errors_name_what_is_wrong(daemon, dataset_of):
    dataset = dataset_of(7)
    with pytest.raises(datasetd.InvalidArgument, match="batch_size=0"):
        daemon.loader(dataset, batch_size=0)
    with pytest.raises(datasetd.InvalidArgument, match="rank=2"):
        daemon.loader(dataset, rank=2, world_size=2)
    with pytest.raises(datasetd.InvalidArgument, match="prefetch=63"):
        daemon.loader(dataset, prefetch=63)


if __name__ == "__main__":
    harness.main(__file__)
