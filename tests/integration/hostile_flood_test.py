"""Floods: RPCs, feeds, releases. Refused or harmless, counted, and others are
served right and in time."""

import os
import time

import pytest

from tests.testing import attach_wire as wire
from tests.testing import daemon_harness as harness
from tests.testing import hostile_world, ports

_IS_FULL = os.environ.get("DATASETD_TEST_FULL") == "1"
# Feeds that a client tries to open, and those that it may have.
_NUM_OPENS = 10_000 if _IS_FULL else 300
_MAX_FEEDS = 40
_FLOOD_SECONDS = 10.0 if _IS_FULL else 2.0
# How much longer another job's epoch may take while the flood has the cores.
_MAX_SLOWDOWN = 40.0
_RESOURCE_EXHAUSTED = 8

_FLOODER = """
say(alive=True)
client = datasetd.connect(ADDRESS)
stop = threading.Event()
counts = [0] * 8
def flood(number):
    calls = [client.status, client.list_feeds, client.list_datasets,
             lambda: client.get_dataset("nobody"),
             lambda: client.unload_dataset("nobody"),
             lambda: client.load_dataset("x", format="nothing", path="/x")]
    while not stop.is_set():
        try:
            calls[counts[number] % len(calls)]()
        except datasetd.Error:
            pass
        counts[number] += 1
threads = [threading.Thread(target=flood, args=(i,)) for i in range(8)]
for thread in threads:
    thread.start()
hear()
stop.set()
for thread in threads:
    thread.join()
say(count=sum(counts))
"""


@pytest.fixture(name="world")
def _world():
    with harness.Daemon(
            log_level="error", metrics_port=ports.free_port(),
            user_limits={"max_feeds": _MAX_FEEDS}
    ) as daemon, hostile_world.World(daemon) as world:
        yield world


def test_a_flood_of_rpcs(world):
    calm = min(world.run_good_job() for _ in range(3))
    threads = world.daemon.num_threads()
    flooders = [harness.Worker(_FLOODER, world.daemon.socket_path)
                for _ in range(3)]
    try:
        for flooder in flooders:
            flooder.hear()
        end = time.monotonic() + _FLOOD_SECONDS
        slowest = 0.0
        while time.monotonic() < end:
            slowest = max(slowest, world.run_good_job())
        most_threads = world.daemon.num_threads()
        for flooder in flooders:
            flooder.tell()
        count = sum(flooder.hear()["count"] for flooder in flooders)
    finally:
        for flooder in flooders:
            flooder.__exit__()
    print(f"{count} calls in {_FLOOD_SECONDS:.0f} s; an epoch took at most "
          f"{slowest:.3f} s, {calm:.3f} s before")
    assert count > 100
    assert slowest < _MAX_SLOWDOWN * calm + 1.0
    # The gate lets one user have 24 calls, and one connection 32 beside them.
    assert most_threads <= threads + 56
    refused = world.metric("datasetd_requests_total", code="NOT_FOUND")
    assert refused > count // 10
    harness.poll_until(
        lambda: (int(world.client.status()["num_sessions"])
                 == world.footprint.num_sessions),
        "the flooders' end")


def test_opening_feeds_until_refused(world):
    """A limit of the user's is not another user's; within it memory is counted
    and comes back."""
    calm = world.run_good_job()
    before = harness.Footprint(world.daemon, world.client)
    opened, refused, slowest = [], 0, 0.0
    for number in range(_NUM_OPENS):
        answer = world.try_open()
        if answer["code"] == 0:
            opened.append(int(answer["responses"][0]["feed_id"]))
        else:
            assert answer["code"] == _RESOURCE_EXHAUSTED, answer
            assert "max_feeds" in answer["message"]
            refused += 1
        if number % 100 == 0:
            slowest = max(slowest, world.run_good_job())
    # One is the good job's. Those that were never attached go after
    # attach_timeout, and others take their place.
    assert len(opened) >= _MAX_FEEDS - 1
    assert refused > 0 and len(opened) + refused == _NUM_OPENS
    assert world.metric("datasetd_requests_total",
                        method="FeedService/OpenFeed",
                        code="RESOURCE_EXHAUSTED") == refused
    assert slowest < _MAX_SLOWDOWN * calm + 1.0
    most = harness.Footprint(world.daemon, world.client)
    assert most.num_feeds <= _MAX_FEEDS
    # They end with their session.
    world.session.close()
    world.session = harness.Session(world.daemon.socket_path)
    world.session.call("FeedService.ListFeeds")
    harness.expect_footprint(world.daemon, world.client, before)


def test_feeds_that_are_attached_and_never_released(world):
    """They stall themselves, and cost what was reserved."""
    feeds = [world.attach(world.open()["feed_id"])
             for _ in range(_MAX_FEEDS - 1)]
    try:
        harness.poll_until(
            lambda: all(len(feed.published()) == 4 for feed in feeds),
            "all their slots")
        for _ in range(3):
            world.run_good_job()
        assert all(max(feed.published().values()) == 4 for feed in feeds)
    finally:
        for feed in feeds:
            feed.close()


def test_releases_twice_and_out_of_order(world):
    with world.open_and_attach(prefetch=6) as feed:
        # The newest first, each twice: only its slot is free again.
        slot, newest = feed.published_slot(8), 8
        for _ in range(50):
            for _ in range(2):
                feed.release(slot, newest)
                feed.wake()
            harness.poll_until(
                lambda: feed.published_slot(newest + 1) is not None,
                "the next batch")
            assert feed.published_slot(newest + 1) == slot
            # Once more, now that the slot has the next one.
            feed.release(slot, newest)
            feed.wake()
            newest += 1
        world.run_good_job()
        # A release said again is the same word, and no new one.
        feed.write_word(wire.RELEASE_DONE_OFFSET + 8 * slot, 1)
        feed.wake()
        harness.poll_until(
            lambda: world.metric("datasetd_ignored_releases_total") >= 1,
            "the count")
        assert feed.published_slot(59) is None


def test_a_closed_eventfd(world):
    """The client's own loss: its releases are seen when the daemon looks."""
    with world.open_and_attach(prefetch=6) as feed:
        os.close(feed.event_fd)
        feed.event_fd = os.open("/dev/null", os.O_RDONLY)
        for slot, sequence in feed.published().items():
            feed.release(slot, sequence)
        # The good job makes the daemon look.
        world.run_good_job()
        harness.poll_until(
            lambda: min(feed.published().values()) > 8, "new batches")


if __name__ == "__main__":
    harness.main(__file__)
