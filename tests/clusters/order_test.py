"""The simulated order is the daemon's, also at 1,024 ranks."""

import numpy as np
import pytest

from tests.clusters import order, scale
from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402

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
