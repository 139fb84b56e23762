"""The end of a lease, of a session, and of a feed that nobody attached."""

import os
import time

import pytest

from tests.testing import attach_wire as wire
from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402

from tests.conformance import loader_harness as loaders  # noqa: E402

_IS_FULL = os.environ.get("DATASETD_TEST_FULL") == "1"


@pytest.fixture(name="daemon", params=loaders.DEVICES)
def _daemon(request):
    loaders.require_device(request.param)
    with harness.Daemon(devices=[request.param],
                        attach_timeout="1s") as daemon:
        # Without a framework that has CUDA.
        daemon.framework = "numpy" if request.param == "cpu" else "dlpack"
        daemon.write_dataset(1000)
        yield daemon


def _slab_bytes(client):
    return int(client.status()["devices"][0]["slab_bytes"])


def _feed_options(**more):
    return {"options": {"dataset": "d", "batch_size": 10, "prefetch": 2,
                        **more}}


_NO_DESCRIPTORS = """
import resource
client = datasetd.connect(ADDRESS)
dataset = client.get_dataset("d")
datasetd.DataLoader(dataset, batch_size=10, framework=FRAMEWORK).close()
free = os.dup(0)
os.close(free)
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
# For the lease's socket, and not for what comes by it.
resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, limits[1]))
errors = set()
for _ in range(10):
    try:
        datasetd.DataLoader(dataset, batch_size=10, framework=FRAMEWORK)
    except datasetd.Error as error:
        errors.add((type(error).__name__, str(error)))
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
say(errors=sorted(errors))
hear()
"""


def test_a_lease_without_descriptors_keeps_nothing(daemon):
    with daemon.connect() as client:
        daemon.load(client)
        source = _NO_DESCRIPTORS.replace("FRAMEWORK", repr(daemon.framework))
        with harness.Worker(source, daemon.socket_path) as worker:
            (kind, text), = worker.hear()["errors"]
            assert kind == "ResourceExhausted"
            assert "no file descriptor left" in text and "ulimit -n" in text
            harness.poll_until(lambda: not client.list_feeds(), "their ends")
            harness.poll_until(lambda: _slab_bytes(client) == 0,
                               "the slabs' ends")


def test_tensors_keep_the_slab_charged_after_close(daemon):
    with daemon.connect() as client:
        dataset = daemon.load(client)
        before = harness.Footprint(daemon, client)
        loader = datasetd.DataLoader(dataset, batch_size=100, prefetch=2,
                                     framework=daemon.framework)
        first, second = [b[0] for _, b in zip(range(2), loader)]
        slab_bytes = _slab_bytes(client)
        assert slab_bytes >= 4 * 100 * 3072
        loader.close()
        harness.poll_until(lambda: not client.list_feeds(), "the feed's end")
        del first
        assert (loaders.array(second) == daemon.planes[100:200]).all()
        assert _slab_bytes(client) == slab_bytes
        del second
        harness.poll_until(lambda: _slab_bytes(client) == 0, "the slab's end")
        harness.expect_footprint(daemon, client, before)


def test_closed_loader_leaves_the_list_while_a_tensor_lives(daemon):
    """Production for a closed loader ends at once; only memory stays."""
    with daemon.connect() as client:
        dataset = daemon.load(client)
        loader = datasetd.DataLoader(dataset, batch_size=100, prefetch=2,
                                     framework=daemon.framework)
        kept = next(iter(loader))[0]
        slab_bytes = _slab_bytes(client)
        loader.close()
        harness.poll_until(lambda: not client.list_feeds(), "the feed's end",
                           5.0)
        assert _slab_bytes(client) == slab_bytes
        # The dataset is not in use any more, though the slab is: soon after
        # the feed has left the list.
        harness.poll_until(
            lambda: [d["num_feeds"] for d in client.list_datasets()] == [0],
            "the end of the dataset's use", 5.0)
        client.unload_dataset("d")
        assert (loaders.array(kept) == daemon.planes[:100]).all()
        del kept
        harness.poll_until(lambda: _slab_bytes(client) == 0, "the slab's end")


def test_a_closed_session_gives_up_its_holds(daemon):
    with daemon.connect() as watcher:
        client = daemon.connect()
        dataset = daemon.load(client)
        loader = datasetd.DataLoader(dataset, batch_size=100, prefetch=2,
                                     framework=daemon.framework)
        iterator = iter(loader)
        next(iterator)
        assert watcher.list_datasets()[0]["num_holders"] == 1
        client.close()
        harness.poll_until(
            lambda: watcher.list_datasets()[0]["num_holders"] == 0, "the hold")
        assert int(watcher.status()["num_sessions"]) == 1
        # The loader has a lease of its own and goes on.
        assert sum(b.num_samples for b in iterator) == 900
        loader.close()
        with pytest.raises(datasetd.Closed):
            client.status()
        with pytest.raises(datasetd.Closed):
            next(iter(loader))


def test_a_feed_that_nobody_attaches_expires(daemon):
    with daemon.connect() as client, harness.Session(
            daemon.socket_path) as session:
        daemon.load(client)
        session.call("FeedService.ListFeeds")
        before = harness.Footprint(daemon, client)
        opened = session.call("FeedService.OpenFeed", **_feed_options())
        assert opened["code"] == 0, opened
        feed_id = int(opened["responses"][0]["feed_id"])
        assert [f["is_attached"] for f in client.list_feeds()] == [False]
        assert _slab_bytes(client) > 0
        harness.expect_footprint(daemon, client, before, 10.0)
        connection, packet, descriptors = wire.attach_feed(
            daemon.socket_path, session.token, feed_id)
        connection.close()
        code, text = wire.parse_refused(packet)
        assert code == 5 and str(feed_id) in text and "attach_timeout" in text
        assert not descriptors


@pytest.mark.parametrize("device", loaders.DEVICES)
def test_a_feed_that_nobody_attached_goes_with_its_session(device):
    loaders.require_device(device)
    # The time-out is too long to be what frees it.
    with harness.Daemon(devices=[device], attach_timeout="600s") as daemon:
        daemon.write_dataset(100)
        with daemon.connect() as client:
            daemon.load(client)
            with harness.Session(daemon.socket_path) as first:
                first.call("FeedService.ListFeeds")
            before = harness.Footprint(daemon, client)
            session = harness.Session(daemon.socket_path)
            for _ in range(3):
                opened = session.call("FeedService.OpenFeed",
                                      **_feed_options())
                assert opened["code"] == 0, opened
            assert len(client.list_feeds()) == 3
            session.close()
            harness.expect_footprint(daemon, client, before)


def test_holds_of_sessions_that_end_during_a_call_are_given_up(daemon):
    """A session may end after its call was admitted and before the hold is
    made; nobody would ever give up that one."""
    spec = {"name": "d", "format": "cifar10", "split": "test",
            "path": daemon.path}
    with daemon.connect() as client:
        daemon.load(client).close()
        before = harness.Footprint(daemon, client)
        codes = set()
        for i in range(0, 300, 1 if _IS_FULL else 3):
            session = harness.Session(daemon.socket_path)
            session.call("FeedService.ListFeeds")
            session.begin("DatasetService.LoadDataset", spec=spec)
            # The end moves across the call, from before it to after it.
            end = time.perf_counter() + i * 5e-6
            while time.perf_counter() < end:
                pass
            session.connection.close()
            codes.add(session.end()["code"])
            session.close()
        # The answer may be lost with the connection.
        assert codes <= {0, 14, 16}, codes
        harness.poll_until(
            lambda: client.list_datasets()[0]["num_holders"] == 0,
            "no holders", 10.0)
        harness.expect_footprint(daemon, client, before)


if __name__ == "__main__":
    harness.main(__file__)
