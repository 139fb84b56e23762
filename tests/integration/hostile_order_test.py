"""A client's order in hostile hands: what is wrong is refused by name and
counted, what waits is bounded, and others are served."""


import numpy as np
import pytest

from tests.testing import daemon_harness as harness
from tests.testing import hostile_world, ports

_NUM_SAMPLES = 2000
_METHOD = "FeedService.SendIndices"
# Status codes.
_OK, _INVALID_ARGUMENT, _NOT_FOUND, _RESOURCE_EXHAUSTED = 0, 3, 5, 8
_FAILED_PRECONDITION, _OUT_OF_RANGE = 9, 11


class _World(hostile_world.World):
    """The other client has a feed for an order of its own."""

    def __init__(self, daemon):
        super().__init__(daemon)
        opened = self.open()
        self.feed_id = int(opened["feed_id"])
        self.capacity = int(opened["order_capacity"])

    def try_open(self, **options):
        return super().try_open(**{"client_order": {}, **options})

    def send(self, sizes, indices, feed_id=None, session=None, batch=0,
             **request):
        request.setdefault("start", {"batch": str(batch)})
        return (session or self.session).call(
            _METHOD, feed_id=str(self.feed_id if feed_id is None else feed_id),
            batch_sizes=sizes, indices=indices, **request)

    def attach(self):
        return super().attach(self.feed_id)

    def position(self):
        feed = self.info()
        return feed and feed["position"]

    def counted(self, code):
        return self.metric("datasetd_requests_total",
                           method="FeedService/SendIndices", code=code)


@pytest.fixture(name="world")
def _world():
    with harness.Daemon(
            log_level="error", metrics_port=ports.free_port()
    ) as daemon, _World(daemon) as world:
        yield world


def test_an_honest_block_is_made(world):
    with world.attach() as feed:
        assert world.send([2, 1], [5, 5, 1999])["code"] == _OK
        harness.poll_until(lambda: len(feed.published()) == 2, "two batches")
        assert world.position() == {"epoch": "0", "batch": "2"}
        slab = np.fromfile(f"/proc/self/fd/{feed.slab_fd}", np.uint8)
        record = 3 * 32 * 32
        for row in range(2):
            assert (slab[row * record:(row + 1) * record]
                    == world.planes[5].reshape(-1)).all()


# Some of what tests/server/order/client_order_test.cc refuses.
@pytest.mark.parametrize("sizes, indices, code, words", [
    ([1], [_NUM_SAMPLES], _OUT_OF_RANGE, ["2000", "indices[0]"]),
    ([2], [0, -1], _OUT_OF_RANGE, ["-1", "indices[1]"]),
    ([1], [2**63 - 1], _OUT_OF_RANGE, [str(2**63 - 1)]),
    ([], [], _INVALID_ARGUMENT, ["no batch"]),
    ([2**32 - 1], [1], _INVALID_ARGUMENT, ["1 to 10"]),
    ([1, 1], [1], _INVALID_ARGUMENT, ["sum up to 2"]),
    ([1] * 1000, [1] * 1000, _RESOURCE_EXHAUSTED, ["order_capacity"]),
])
def test_wrong_blocks(world, sizes, indices, code, words):
    with world.attach() as feed:
        answer = world.send(sizes, indices)
        assert answer["code"] == code, answer
        for word in words:
            assert word in answer["message"]
        names = {_OUT_OF_RANGE: "OUT_OF_RANGE",
                 _INVALID_ARGUMENT: "INVALID_ARGUMENT",
                 _RESOURCE_EXHAUSTED: "RESOURCE_EXHAUSTED"}
        assert world.counted(names[code]) == 1
        # Nothing of it was taken, and the feed goes on.
        assert world.send([1], [7])["code"] == _OK
        harness.poll_until(lambda: len(feed.published()) == 1, "a batch")
        assert world.position() == {"epoch": "0", "batch": "1"}


@pytest.mark.parametrize("request_, code", [
    ({"start": {"batch": "1"}}, _INVALID_ARGUMENT),
    ({"start": {"epoch": "1", "batch": "1"}}, _INVALID_ARGUMENT),
    ({"start": {"epoch": str(2**32)}, "generation": "1"}, _INVALID_ARGUMENT),
    ({"start": {"batch": str(2**64 - 1)}, "generation": "1"},
     _INVALID_ARGUMENT),
    ({"first_row": str(2**64 - 1)}, _INVALID_ARGUMENT),
    ({"start": {"epoch": str(2**32 - 1), "batch": str(2**32 - 1)},
      "generation": str(2**64 - 1), "first_row": str(2**32 - 1)}, _OK),
])
def test_absurd_places(world, request_, code):
    with world.attach():
        answer = world.send([1], [3], **request_)
        assert answer["code"] == code, answer


def test_other_peoples_feeds(world):
    with harness.Session(world.daemon.socket_path) as other:
        for feed_id in (world.feed_id, world.feed_id + 1, 0, 2**64 - 1):
            answer = world.send([1], [1], feed_id=feed_id, session=other)
            assert answer["code"] == _NOT_FOUND, answer
    answer = world.send([1], [1], feed_id=world.info("good")["feed_id"])
    assert answer["code"] == _NOT_FOUND
    plain = world.open(client_order=None)
    answer = world.send([1], [1], feed_id=plain["feed_id"])
    assert answer["code"] == _FAILED_PRECONDITION
    assert "client_order" in answer["message"]


def test_a_flood_is_refused_and_bounded(world):
    """The daemon takes as much as it reserved when the feed was opened."""
    before = world.client.status()["devices"][0]
    with world.attach() as feed:
        taken = 0
        refused = 0
        while refused < 200:
            answer = world.send([10], [1] * 10, batch=taken)
            if answer["code"] == _OK:
                taken += 1
            else:
                assert answer["code"] == _RESOURCE_EXHAUSTED, answer
                refused += 1
        assert taken == world.capacity + feed.num_slots()
        assert world.counted("RESOURCE_EXHAUSTED") == refused
        after = world.client.status()["devices"][0]
        for key in ("slab_bytes", "scratch_bytes", "dataset_bytes"):
            assert after[key] == before[key]
        # A seek drops it all.
        answer = world.send([1], [4], generation="1", start={"epoch": "9"})
        assert answer["code"] == _OK
        for slot, sequence in feed.published().items():
            feed.release(slot, sequence)
        feed.wake()
        harness.poll_until(
            lambda: world.position() == {"epoch": "9", "batch": "1"},
            "the seek")


def test_a_message_too_large(world):
    """gRPC's own limit is before any of ours."""
    many = [2**34] * 900_000  # of five bytes each
    with world.attach():
        answer = world.send([1], many)
        assert answer["code"] == _RESOURCE_EXHAUSTED, answer
        assert world.send([1], [1])["code"] == _OK


def test_blocks_that_never_come_stall_that_feed_alone(world):
    with world.attach() as feed:
        calm = world.run_good_job()
        for number in range(3):
            assert world.send([1], [number], batch=number)["code"] == _OK
            harness.poll_until(lambda: len(feed.published()) == number + 1,
                               "the batch")
            for _ in range(3):
                assert world.run_good_job() < 20 * calm + 1.0
            assert len(feed.published()) == number + 1
        # It waits without work.
        world.daemon.expect_idle()


def test_blocks_of_a_generation_that_a_seek_ended(world):
    with world.attach() as feed:
        assert world.send([1] * 50, [1] * 50)["code"] == _OK
        assert world.send([2], [8, 9], generation="5",
                          start={"epoch": "3", "batch": "2"})["code"] == _OK
        answer = world.send([1], [1], batch=50)
        assert answer["code"] == _FAILED_PRECONDITION, answer
        assert "generation" in answer["message"]
        for generation in ("1", "4"):
            answer = world.send([1], [1], generation=generation)
            assert answer["code"] == _FAILED_PRECONDITION
        # The ring's own seek is not for such a feed.
        feed.seek(9, 0, 0)
        feed.wake()

        def num_ignored():
            return sum(int(f["num_ignored_seeks"])
                       for f in world.client.list_feeds())

        harness.poll_until(lambda: num_ignored() == 1, "the count")

        def is_at_the_end():
            # A batch that was being made at the seek is published later.
            for slot, sequence in feed.published().items():
                feed.release(slot, sequence)
            feed.wake()
            return world.position() == {"epoch": "3", "batch": "3"}

        harness.poll_until(is_at_the_end, "the last batch that was sent")


def test_a_feed_that_goes_while_it_is_sent_to(world):
    """Nothing of its order stays."""
    feed = world.attach()
    world.send([1], [1])
    feed.detach()
    harness.expect_footprint(world.daemon, world.client, world.footprint)
    for _ in range(20):
        world.feed_id = world.open()["feed_id"]
        feed = world.attach()
        world.session.begin(
            _METHOD, feed_id=str(world.feed_id),
            batch_sizes=[1] * 60, indices=[1] * 60)
        feed.detach()
        assert world.session.end()["code"] in (_OK, _NOT_FOUND)
    harness.expect_footprint(world.daemon, world.client, world.footprint)
    assert world.send([1], [1])["code"] == _NOT_FOUND


if __name__ == "__main__":
    harness.main(__file__)
