"""Heavy work of one user is a cost to that user alone: feeds whose samples take
a tenth of a second and more, loads whose pretransforms do, orders that take
more than the batches. All options are allowed ones."""

import time

import pytest

from tests.testing import arena
from tests.testing import daemon_harness as harness

harness.use_python_package()

_SECONDS = 4.0
# The victim stood still for as long as the attack went on, 20 s and more.
_MAX_STALL_SECONDS = 1.0
_MAX_PROBER_SECONDS = 8.0
_STOP_SECONDS = 2.0

_HEAVY_OPS = """
_KINDS = {
    "blur": [T.Resize([1024, 1024])] + 12 * [T.GaussianBlur(23, 5.0)],
    "resize": [T.Resize([1024, 1024]), T.Resize([31, 1024]),
               T.Resize([1024, 1023])] * 5,
    "affine": [T.Resize([1024, 1024])] + 12 * [
        T.RandomRotation(45, interpolation=T.InterpolationMode.BILINEAR)],
    "statistics": [T.Resize([1024, 1024])] + 8 * [
        T.RandomEqualize(1.0), T.RandomAutocontrast(1.0)],
}
def heavy(kind):
    return _KINDS[kind] + [T.Resize([64, 64])]
"""

# Feeds that nobody reads: their slots are filled all the same.
_FEEDS = _HEAVY_OPS + """
client = datasetd.connect(ADDRESS)
images = np.random.default_rng(1).integers(0, 256, (64, 32, 32, 3), np.uint8)
dataset = client.push_dataset("heavy", ({"image": image} for image in images))
loaders = [
    datasetd.DataLoader(dataset, batch_size=64, transforms=heavy(kind),
                        framework="numpy", prefetch=4)
    for kind in ARGUMENTS["kinds"]]
iterators = [iter(loader) for loader in loaders]
for iterator in iterators:
    threading.Thread(target=next, args=(iterator,), daemon=True).start()
def count():
    return sum(1 for feed in client.list_feeds() if feed["dataset"] == "heavy")
while count() < len(loaders):
    time.sleep(0.01)
say(begun=True)
hear()
"""

_LOADS = _HEAVY_OPS + """
path = ARGUMENTS["path"]
os.makedirs(path)
images = np.random.default_rng(1).integers(0, 256, (256, 32, 32, 3), np.uint8)
np.save(path + "/image.npy", images)
def load(i):
    with datasetd.connect(ADDRESS, timeout=60) as client:
        client.load_dataset(f"slow{i}", format="npy", path=path,
                            pretransforms=heavy("resize"))
for i in range(ARGUMENTS["num_loads"]):
    threading.Thread(target=load, args=(i,), daemon=True).start()
client = datasetd.connect(ADDRESS, timeout=60)
while not any(d["name"].startswith("slow") and d["state"] == "DATASET_STATE_LOADING"
              for d in client.list_datasets()):
    time.sleep(0.01)
say(begun=True)
hear()
"""

# An epoch is one batch of one sample, for which the daemon makes a table of
# 65,536. It takes about a millisecond, and eight in a launch stopped everybody
# for two seconds.
_TABLES = """
client = datasetd.connect(ADDRESS, timeout=60)
dataset = client.push_dataset(
    "tiny", {"value": np.arange(65536, dtype=np.int32).reshape(-1, 1)})
loaders = [
    datasetd.DataLoader(dataset, batch_size=1, shuffle=True, seed=seed,
                        rank=0, world_size=65536, framework="numpy",
                        prefetch=62)
    for seed in range(ARGUMENTS["num_feeds"])]
for loader in loaders:
    next(iter(loader))
def take():
    while True:
        for loader in loaders:
            for batch in loader:
                del batch
threading.Thread(target=take, daemon=True).start()
say(begun=True)
hear()
"""

# The order of a batch, which is an epoch, takes a draw for each of 262,144 rows,
# tens of milliseconds. Feeds draw from when they are opened.
_DRAWS = """
client = datasetd.connect(ADDRESS, timeout=60)
dataset = client.push_dataset(
    "tiny", {"value": np.zeros((1 << 18, 1), np.uint8)})
weights = np.random.default_rng(1).random(1 << 18)
loaders = [
    datasetd.DataLoader(dataset, batch_size=1 << 18, weights=weights, seed=seed,
                        framework="numpy", prefetch=2)
    for seed in range(ARGUMENTS["num_feeds"])]
def take(loader):
    while True:
        for batch in loader:
            del batch
for loader in loaders:
    threading.Thread(target=take, args=(loader,), daemon=True).start()
say(begun=True)
hear()
"""


def _expect_unhurt(a, measure):
    assert measure.prober_wait_seconds < _MAX_PROBER_SECONDS, measure
    assert not measure.prober_errors, measure
    a.expect_unhurt(measure, _MAX_STALL_SECONDS)


@pytest.mark.parametrize("kinds", [
    ["blur"],
    ["blur"] * 8,
    ["blur", "resize", "affine", "statistics"],
], ids=["one", "eight", "chains"])
def test_heavy_feeds(kinds):
    with arena.Arena(host_threads=2) as a:
        with a.attacker(_FEEDS, kinds=kinds) as worker:
            worker.hear()
            with a.attack() as measure:
                harness.pause(_SECONDS)
        _expect_unhurt(a, measure)


def test_slow_loads():
    with arena.Arena(host_threads=2) as a:
        with a.attacker(_LOADS, path=a.path("data/slow"),
                        num_loads=8) as worker:
            worker.hear()
            with a.attack() as measure:
                harness.pause(_SECONDS)
        _expect_unhurt(a, measure)


@pytest.mark.parametrize("source, num_feeds", [
    (_TABLES, 256),
    # Twice as many feeds, while some are opened again, fit into a user's share
    # of memory.
    (_DRAWS, 24),
], ids=["tables", "draws"])
def test_heavy_orders(source, num_feeds):
    with arena.Arena(host_threads=2, memory_budget_mib=2048) as a:
        with a.attacker(source, num_feeds=num_feeds) as worker:
            worker.hear()
            with a.attack() as measure:
                harness.pause(_SECONDS)
        _expect_unhurt(a, measure)


def test_work_of_a_dead_client_ends():
    with arena.Arena(host_threads=2) as a:
        with a.daemon.connect() as client:
            with a.attacker(_FEEDS, kinds=["blur"] * 4) as worker:
                worker.hear()
                worker.kill()
                # One batch alone takes longer.
                harness.poll_until(
                    lambda: all(feed["dataset"] != "heavy"
                                for feed in client.list_feeds()),
                    "the feeds end", 5.0)
        a.expect_well()


def test_a_slow_launch_is_no_hanging_device():
    """Nothing else runs, so that only pieces of the launch are progress."""
    interval_seconds = 1.5
    with harness.Daemon(host_threads=1, environment={
            "WATCHDOG_USEC": str(int(interval_seconds * 1e6))}) as daemon:
        with harness.Worker(_FEEDS, daemon.socket_path,
                            kinds=["blur"]) as worker:
            worker.hear()
            for _ in range(6):
                daemon.await_notice("WATCHDOG=1", timeout=interval_seconds)
        assert "watchdog not fed" not in daemon.log()


@pytest.mark.parametrize("source", [_FEEDS, _LOADS], ids=["feeds", "loads"])
def test_sigterm_ends_whatever_runs(source):
    drain_seconds = 1.0
    with harness.Daemon(host_threads=2,
                        drain_timeout=f"{drain_seconds}s") as daemon:
        with harness.Worker(source, daemon.socket_path, kinds=["blur"] * 4,
                            path=daemon.data_root + "/slow",
                            num_loads=4) as worker:
            worker.hear()
            # Does not answer the daemon's goodbye.
            worker.stop()
            begin = time.monotonic()
            daemon.terminate()
            assert daemon.wait() == 0
            seconds = time.monotonic() - begin
        assert seconds < drain_seconds + _STOP_SECONDS, daemon.log()[-2000:]


if __name__ == "__main__":
    harness.main(__file__)
