"""Feeds and datasets that a client has closed are released: its next request,
and anybody's after it, finds the dataset unused and the memory free."""

import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()

_NUM_ROUNDS = 150
# A dataset takes 3 MiB: one fits, two do not.
_NUM_SAMPLES = 1024
_BUDGET_MIB = 8


def _open(dataset):
    import datasetd

    loader = datasetd.DataLoader(dataset, batch_size=64, prefetch=4,
                                 framework="numpy")
    next(iter(loader))
    return loader


@pytest.fixture(name="daemon")
def _daemon():
    with harness.Daemon(log_level="error", memory_budget_mib=_BUDGET_MIB,
                        user_limits={"max_feeds": 1}) as daemon:
        daemon.write_dataset(_NUM_SAMPLES)
        yield daemon


def test_unload_after_close(daemon):
    with daemon.connect() as client:
        for _ in range(_NUM_ROUNDS):
            dataset = daemon.load(client)
            _open(dataset).close()
            client.unload_dataset("d")
        assert not client.list_datasets()


def test_a_closed_feed_counts_no_more(daemon):
    with daemon.connect() as client:
        dataset = daemon.load(client)
        for _ in range(_NUM_ROUNDS):
            _open(dataset).close()


def test_a_closed_dataset_makes_room(daemon):
    with daemon.connect() as client:
        for i in range(_NUM_ROUNDS):
            dataset = daemon.load(client, f"d{i}")
            _open(dataset).close()
            dataset.close()
        assert [d["name"] for d in client.list_datasets()] == [
            f"d{_NUM_ROUNDS - 1}"]


def test_a_closed_client_makes_room(daemon):
    for i in range(_NUM_ROUNDS):
        with daemon.connect() as client:
            daemon.load(client, f"d{i}")


def test_an_open_feed_still_counts(daemon):
    import datasetd

    with daemon.connect() as client, daemon.connect() as other:
        dataset = daemon.load(client)
        with _open(dataset):
            with pytest.raises(datasetd.FailedPrecondition,
                               match="1 open feeds"):
                other.unload_dataset("d")
            with pytest.raises(datasetd.ResourceExhausted,
                               match="user_limits.max_feeds"):
                _open(other.get_dataset("d"))
            with pytest.raises(datasetd.ResourceExhausted, match="budget"):
                daemon.load(other, "e")


if __name__ == "__main__":
    harness.main(__file__)
