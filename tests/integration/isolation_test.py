"""Several processes on one dataset: one resident copy, and no effect on each
other; batches are the slots themselves, and stay what they were."""

import numpy as np
import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402

_NUM_SAMPLES = 20000
_JOB = """
client = datasetd.connect(ADDRESS)
ds = load(client)
say(resident=ds.resident_bytes, spec_id=ds.spec_id, hash=ds.content_hash)
hear()
loader = datasetd.DataLoader(ds, batch_size=ARGUMENTS["batch_size"],
                             shuffle=True, seed=ARGUMENTS["seed"],
                             framework="numpy")
order = []
for epoch in range(2):
    for batch in loader:
        images, labels = batch
        assert (labels == batch.indices % 10).all()
        order.append(batch.indices.copy())
say(order=np.concatenate(order).tolist(), mean=float(images.mean()))
hear()
"""


@pytest.fixture(name="daemon")
def _daemon():
    with harness.Daemon() as daemon:
        yield daemon


def _load(daemon):
    daemon.write_dataset(1000)
    client = daemon.connect()
    return client, daemon.load(client), daemon.planes


def test_four_processes_share_one_copy_in_their_own_order(daemon):
    daemon.write_dataset(_NUM_SAMPLES)
    resident_bytes = _NUM_SAMPLES * harness.CIFAR_RECORD_BYTES
    before = daemon.pss_bytes("Pss_Anon")
    with daemon.connect() as client:
        jobs = [
            harness.Worker(_JOB, daemon.socket_path, path=daemon.path,
                           seed=seed, batch_size=64 * (seed + 1))
            for seed in range(4)
        ]
        try:
            loaded = [job.hear() for job in jobs]
            assert {m["resident"] for m in loaded} == {resident_bytes}
            assert len({m["spec_id"] for m in loaded}) == 1
            assert len({m["hash"] for m in loaded}) == 1
            device = client.status()["devices"][0]
            assert int(device["dataset_bytes"]) == resident_bytes
            assert int(client.list_datasets()[0]["num_holders"]) == 4
            grown = daemon.pss_bytes("Pss_Anon") - before
            # One copy, staging buffers and threads; not two copies.
            assert resident_bytes <= grown < resident_bytes + (48 << 20), grown

            for job in jobs:
                job.tell()
            orders = [job.hear()["order"] for job in jobs]
            status = client.status()["devices"][0]
            assert int(status["dataset_bytes"]) == resident_bytes
            slabs = sum(int(f["slab_bytes"]) for f in client.list_feeds())
            assert len(client.list_feeds()) == 4
            assert int(status["slab_bytes"]) == slabs
        finally:
            for job in jobs:
                job.__exit__()
    everything = list(range(_NUM_SAMPLES))
    epochs = []
    for order in orders:
        for epoch in (order[:_NUM_SAMPLES], order[_NUM_SAMPLES:]):
            assert sorted(epoch) == everything
            epochs.append(tuple(epoch))
    assert len(set(epochs)) == 8


def test_tensors_alias_the_slots(daemon):
    _, dataset, planes = _load(daemon)
    with datasetd.DataLoader(dataset, batch_size=100, prefetch=4,
                             framework="torch") as loader:
        with open("/proc/self/maps") as maps:
            ranges = [
                tuple(int(x, 16) for x in line.split()[0].split("-"))
                for line in maps
                if "/memfd:" in line and "page" not in line
            ]
        assert len(ranges) == 1, ranges
        begin, end = ranges[0]
        addresses = set()
        for _ in range(3):
            for batch in loader:
                images, labels = batch
                first = images.data_ptr()
                size = images.nelement() * images.element_size()
                assert begin <= first and first + size <= end
                # Small fields are copies elsewhere.
                for tensor in (labels, batch.indices):
                    assert not begin <= tensor.data_ptr() < end
                addresses.add(images.data_ptr())
                # The same memory by another way, and no copy of it.
                again = batch.image
                assert again.data_ptr() == images.data_ptr()
                assert (images.numpy() == planes[batch.indices]).all()
                images.fill_(7)
                assert (batch.image == 7).all()
        # Slots come round again; what was written to them is not seen.
        assert len(addresses) <= 6
        strides = {a - b for a in addresses for b in addresses if a > b}
        assert all(s % min(strides) == 0 for s in strides)


def test_tensors_are_valid_until_freed(daemon):
    client, dataset, planes = _load(daemon)
    loader = datasetd.DataLoader(dataset, batch_size=100, prefetch=4,
                                 shuffle=True, framework="torch")
    batch = next(iter(loader))
    images, indices = batch[0], batch.indices
    del batch
    loader.close()
    client.close()
    expected = planes[indices.numpy()]
    assert (images.numpy() == expected).all()
    view = images[3:5]
    del images
    assert (view.numpy() == expected[3:5]).all()


def test_a_kept_batch_is_never_overwritten_and_never_blocks(daemon):
    _, dataset, planes = _load(daemon)
    with datasetd.DataLoader(dataset, batch_size=64, prefetch=2, shuffle=True,
                             seed=3, framework="numpy") as loader:
        kept = next(iter(loader))
        indices = kept.indices.copy()
        seen = 0
        for _ in range(40):
            rows = []
            for batch in loader:
                rows.append(batch.indices.copy())
                assert (batch[0] == planes[batch.indices]).all()
                seen += 1
            assert sorted(np.concatenate(rows)) == list(range(1000))
        assert seen == 40 * len(loader)
        assert (kept.indices == indices).all()
        assert (kept[0] == planes[indices]).all()


def test_one_kept_batch_does_not_keep_others_waiting(daemon):
    """A job that keeps everything stalls itself and nobody else."""
    _, dataset, planes = _load(daemon)
    with datasetd.DataLoader(dataset, batch_size=10, prefetch=2,
                             on_held="error", framework="numpy") as hoarder:
        with datasetd.DataLoader(dataset, batch_size=100, prefetch=2,
                                 timeout=30, framework="numpy") as loader:
            kept = [b for _, b in zip(range(4), hoarder)]
            for _ in range(20):
                for batch in loader:
                    assert (batch[0] == planes[batch.indices]).all()
            for i, batch in enumerate(kept):
                assert (batch[0] == planes[10 * i:10 * i + 10]).all()


if __name__ == "__main__":
    harness.main(__file__)
