"""The simulated order is the daemon's, also at 1,024 ranks."""

import contextlib

import numpy as np
import pytest

from tests.clusters import order, scale
from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402
from datasetd._order import partition as _partition  # noqa: E402
from datasetd._ranks import nodes  # noqa: E402
from datasetd._ranks import ranks as _ranks

_WORLD = 1024


@pytest.fixture(scope="module")
def client():
    with harness.Daemon() as daemon, daemon.connect() as connected:
        yield connected


@pytest.mark.parametrize("num_samples", [65_537, 70_001, 1_000_000])
def test_the_daemons_order(client, num_samples):
    dataset = client.push_dataset(
        f"d{num_samples}", {"x": np.zeros(num_samples, np.uint8)})
    for rank in (0, 7, _WORLD - 1):
        with datasetd.DataLoader(
            dataset, batch_size=100, shuffle=True, seed=2**63 + 5, rank=rank,
            world_size=_WORLD, framework="numpy", prefetch=1,
        ) as loader:
            positions, padding = order.share(rank, _WORLD, num_samples)
            for epoch in range(2):
                rows, paddings = [], 0
                for batch in loader:
                    rows += batch.indices.tolist()
                    paddings += batch.num_padding
                expected = order.Order(2**63 + 5, epoch, num_samples)
                assert rows == expected(positions).tolist()
                assert paddings == padding


@pytest.mark.parametrize("num_samples", [65_537, 1_000_003, 2**21])
def test_every_sample_once_over_all_ranks(num_samples):
    simulated = order.Order(3, 4, num_samples)
    assert (scale.counts_of_all(simulated) == 1).all()
    seen = np.zeros(num_samples, np.int64)
    for rank in range(_WORLD):
        positions, padding = order.share(rank, _WORLD, num_samples)
        assert padding <= 1
        rows = simulated(positions)
        np.add.at(seen, rows[: len(rows) - padding], 1)
    assert (seen == 1).all()


class Gathering:
    """Collects the records of all ranks first, and has the answer then."""

    class Collected(Exception):
        pass

    def __init__(self):
        self.records = []
        self.answer = None

    def gather(self, ranks, record, answer):
        if self.answer is not None:
            return self.answer
        self.records.append(record)
        raise Gathering.Collected


def partitions(sizes, per_node, drop_last):
    """The Partition of each rank in the epoch 4 of seed 3."""
    gathering = Gathering()
    made = []
    for rank in range(len(sizes) * per_node):
        node = rank // per_node
        made.append(_partition.Partition(
            nodes.Node(node, len(sizes)), int(sizes[node]), None, 64, True,
            drop_last))
    for _ in range(2):
        for rank, partition in enumerate(made):
            hashes = {"content_hash": f"of node {partition.node.number}"}
            with contextlib.suppress(Gathering.Collected):
                partition.agree(
                    gathering, _ranks.Ranks(rank, len(made)), hashes)
        gathering.answer = _partition._answer(gathering.records)
    for partition in made:
        partition.seed = _partition.seed_of(3, partition.node.number)
        partition.set_epoch(4)
    return made


@pytest.mark.parametrize("num_shards", [128, 1000, 1_300_003])
@pytest.mark.parametrize("drop_last", [False, True])
def test_128_nodes_of_8_ranks(num_shards, drop_last):
    """All 1,024 ranks have the same rows, as many as the simulation says, and
    every sample comes once, but for what is left out."""
    num_samples = 1_300_003
    sizes = (np.ones(num_shards, np.int8) if num_shards == num_samples
             else scale.shard_sizes(num_samples, num_shards))
    parts = scale.Parts(sizes, 128, 8)
    made = partitions(parts.nodes, 8, drop_last)
    rows = parts.fewest // 64 * 64 if drop_last else parts.most
    repeated = 0
    for node, size in enumerate(parts.nodes):
        seen = np.zeros(size, np.int64)
        for partition in made[8 * node:8 * node + 8]:
            batches = list(partition)
            assert len(batches) == len(partition) == -(-rows // 64)
            for index, batch in enumerate(batches):
                assert len(batch) == min(64, rows - 64 * index)
                padding = partition.num_padding(index)
                seen[np.array(batch)[: len(batch) - padding]] += 1
                repeated += padding
        assert seen.max() == 1
        assert (seen == 0).sum() == (size - 8 * rows if drop_last else 0)
    assert repeated == (0 if drop_last else parts.padding)
    assert made[0].num_padding_of_all() == repeated


def test_a_nodes_order_of_a_keyed_bijection():
    """Above 65,536 samples on a node."""
    sizes = np.array([70_001, 300_017])
    for partition in partitions(sizes, 2, False):
        size = int(sizes[partition.node.number])
        simulated = order.Order(partition.seed, 4, size)
        positions = partition.ranks.rank + 2 * np.arange(partition.num_rows)
        np.testing.assert_array_equal(
            np.concatenate(list(partition)), simulated(positions % size))


def test_the_measure_of_balance_can_fail():
    """Ranks that take contiguous parts are not balanced."""
    deviation, _ = scale.chi_squared(np.arange(1000), 10**6)
    assert deviation > 100
    simulated = order.Order(1, 0, 10**6)
    positions, _ = order.share(0, 100, 10**6)
    deviation, _ = scale.chi_squared(simulated(positions), 10**6)
    assert abs(deviation) < 4


if __name__ == "__main__":
    harness.main(__file__)
