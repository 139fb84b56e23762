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
                expected = order.order_of(2**63 + 5, epoch, num_samples)
                assert rows == expected(positions).tolist()
                assert paddings == padding


@pytest.mark.parametrize("num_samples", [65_537, 1_000_003, 2**21])
def test_every_sample_once_over_all_ranks(num_samples):
    simulated = order.order_of(3, 4, num_samples)
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
    """The Partition of each rank."""
    gathering = Gathering()
    for _ in range(2):
        made = []
        for rank in range(len(sizes) * per_node):
            number = rank // per_node
            with contextlib.suppress(Gathering.Collected):
                made.append(_partition.agree(
                    gathering,
                    _ranks.Ranks(rank, len(sizes) * per_node),
                    nodes.Node(number, len(sizes)),
                    int(sizes[number]),
                    drop_last,
                    {"content_hash": f"of node {number}"},
                ))
        gathering.answer = _partition._answer(gathering.records)
    return made


@pytest.mark.parametrize("num_shards", [128, 1000, 1_300_003])
@pytest.mark.parametrize("drop_last", [False, True])
def test_128_nodes_of_8_ranks(num_shards, drop_last):
    """All 1,024 ranks have the same rows, as many as the simulation says."""
    num_samples = 1_300_003
    sizes = (np.ones(num_shards, np.int8) if num_shards == num_samples
             else scale.shard_sizes(num_samples, num_shards))
    parts = scale.Parts(sizes, 128, 8)
    made = partitions(parts.nodes, 8, drop_last)
    rows = parts.fewest if drop_last else parts.most
    assert {partition.num_rows for partition in made} == {rows}
    assert {partition.total for partition in made} == {num_samples}
    assert [p.ranks.rank for p in made] == list(range(8)) * 128


def test_the_measure_of_balance_can_fail():
    """Ranks that take contiguous parts are not balanced."""
    deviation, _ = scale.chi_squared(np.arange(1000), 10**6)
    assert deviation > 100
    simulated = order.order_of(1, 0, 10**6)
    positions, _ = order.share(0, 100, 10**6)
    deviation, _ = scale.chi_squared(simulated(positions), 10**6)
    assert abs(deviation) < 4


if __name__ == "__main__":
    harness.main(__file__)
