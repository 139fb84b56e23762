"""Weights in hostile hands: what is wrong is refused by name and ends its feed,
what is held is counted, and others are served."""

import os

import numpy as np
import pytest

from tests.testing import attach_wire as wire
from tests.testing import daemon_harness as harness
from tests.testing import hostile_world

_NUM_SAMPLES = 2000
# Status codes.
_OK, _INVALID_ARGUMENT, _NOT_FOUND, _RESOURCE_EXHAUSTED = 0, 3, 5, 8
_FAILED_PRECONDITION, _OUT_OF_RANGE, _UNAUTHENTICATED = 9, 11, 16
_MOST = 2**24


class _World(hostile_world.World):
    """The good job draws by weights, too."""

    def __init__(self, daemon):
        super().__init__(daemon, _NUM_SAMPLES, shuffle=False,
                         weights=np.ones(_NUM_SAMPLES))

    def check_epoch(self, rows):
        assert len(rows) == _NUM_SAMPLES

    def try_open(self, **options):
        options.setdefault("weighted_order", {"num_samples": _NUM_SAMPLES})
        return super().try_open(**options)

    def send(self, feed_id, weights, first=0, token=None, **request):
        return self.rpc.call(
            "FeedService.SendWeights",
            self.session.token if token is None else token,
            feed_id=str(feed_id), first=str(first), weights=weights, **request)

    def names(self):
        return [feed["name"] for feed in self.client.list_feeds()]

    def scratch_bytes(self):
        return int(self.client.status()["devices"][0]["scratch_bytes"])


@pytest.fixture(name="world")
def _world():
    with harness.Daemon(
            log_level="error", memory_budget_mib=100
    ) as daemon, _World(daemon) as world:
        yield world


def test_honest_weights_are_drawn_by(world):
    feed_id = world.open()["feed_id"]
    assert world.send(feed_id, [0] * 1999)["code"] == _OK
    assert world.send(feed_id, [5], first=1999)["code"] == _OK
    with world.attach(feed_id) as feed:
        harness.poll_until(lambda: len(feed.published()) == 4, "all slots")
        # Every row of the first slot is the one sample that has a weight.
        drawn = world.planes[1999].reshape(-1)
        slab = np.fromfile(f"/proc/self/fd/{feed.slab_fd}", np.uint8)
        rows = slab[:10 * drawn.size].reshape(10, drawn.size)
        assert (rows == drawn).all()
        # They stay as they are.
        answer = world.send(feed_id, [1], first=2000)
        assert answer["code"] == _NOT_FOUND, answer
        assert "waits to be attached" in answer["message"]


@pytest.mark.parametrize("weights, request_, code, words", [
    ([1, -1], {}, _INVALID_ARGUMENT, ["weights[1]", "it is -1"]),
    (["NaN"], {}, _INVALID_ARGUMENT, ["weights[0]", "sample 0", "nan"]),
    (["Infinity"], {}, _INVALID_ARGUMENT, ["weights[0]", "inf"]),
    ([1e308, 1e308], {}, _INVALID_ARGUMENT, ["weights[1]", "sum"]),
    ([0] * _NUM_SAMPLES, {}, _INVALID_ARGUMENT, ["their sum is 0"]),
    ([1] * (_NUM_SAMPLES + 1), {}, _INVALID_ARGUMENT, ["2001", "2000"]),
    ([], {}, _INVALID_ARGUMENT, ["the block has 0"]),
    ([1], {"first": 1}, _INVALID_ARGUMENT, ["begins at 1"]),
    ([1], {"first": 2**64 - 1}, _INVALID_ARGUMENT, [str(2**64 - 1)]),
    ([1], {"indices": ["1"]}, _INVALID_ARGUMENT, ["without lists_samples"]),
])
def test_wrong_weights(world, weights, request_, code, words):
    answer = world.send(world.open()["feed_id"], weights, **request_)
    assert answer["code"] == code, answer
    for word in words:
        assert word in answer["message"]
    # The feed is gone.
    harness.expect_footprint(world.daemon, world.client, world.footprint)
    assert world.names() == ["good"]


@pytest.mark.parametrize("index", [-1, _NUM_SAMPLES, 2**63 - 1, -2**63])
def test_listed_samples_that_there_are_not(world, index):
    feed_id = world.open(
        weighted_order={"num_samples": 2, "lists_samples": True})["feed_id"]
    answer = world.send(feed_id, [1, 1], indices=["7", str(index)])
    assert answer["code"] == _OUT_OF_RANGE, answer
    assert f"indices[1]: {index}" in answer["message"]
    assert world.names() == ["good"]


@pytest.mark.parametrize("options, code, words", [
    ({"weighted_order": {"num_samples": _NUM_SAMPLES - 1}},
     _INVALID_ARGUMENT, ["1999", "2000"]),
    ({"weighted_order": {}}, _INVALID_ARGUMENT, ["num_samples is 0"]),
    ({"weighted_order": {"num_samples": _MOST + 1, "lists_samples": True}},
     _INVALID_ARGUMENT, [str(_MOST)]),
    ({"weighted_order": {"num_samples": 2**64 - 1, "lists_samples": True}},
     _INVALID_ARGUMENT, [str(_MOST)]),
    ({"weighted_order": {"num_samples": _NUM_SAMPLES,
                         "num_draws": 2**64 - 1}},
     _INVALID_ARGUMENT, ["num_draws is " + str(2**64 - 1)]),
    ({"shuffle": True}, _INVALID_ARGUMENT, ["shuffle"]),
    ({"subset": {"indices": ["1"]}}, _INVALID_ARGUMENT, ["subset"]),
    ({"client_order": {}}, _INVALID_ARGUMENT, ["client_order"]),
    ({"first_position": _NUM_SAMPLES}, _INVALID_ARGUMENT, ["first_position"]),
    # 216 MiB of the budget's 100.
    ({"weighted_order": {"num_samples": _MOST, "lists_samples": True}},
     _RESOURCE_EXHAUSTED, ["memory"]),
])
def test_wrong_options(world, options, code, words):
    answer = world.try_open(**options)
    assert answer["code"] == code, answer
    for word in words:
        assert word in answer["message"]
    assert world.names() == ["good"]


def test_what_is_held_is_counted_from_the_first_on(world):
    before = world.scratch_bytes()
    order = {"num_samples": 10**6, "lists_samples": True}
    feed_id = world.open(weighted_order=order)["feed_id"]
    held = world.scratch_bytes() - before
    assert 12 * 10**6 < held < 15 * 10**6
    assert world.send(feed_id, [1] * 1000, indices=["3"] * 1000)["code"] == _OK
    assert world.scratch_bytes() - before == held
    # Half of the weights are no feed.
    with pytest.raises(AssertionError, match="all of its weights"):
        world.attach(feed_id)
    # The session's end frees it.
    world.session.close()
    harness.poll_until(lambda: world.scratch_bytes() == before, "the memory")
    world.session = wire.Session(world.daemon.attach_path)


def test_other_peoples_feeds_and_tokens(world):
    feed_id = int(world.open()["feed_id"])
    with wire.Session(world.daemon.attach_path) as other:
        for number in (feed_id, feed_id + 1, 0, 2**64 - 1):
            answer = world.send(number, [1], token=other.token)
            assert answer["code"] == _NOT_FOUND, answer
    for token in (b"", bytes(16), os.urandom(16)):
        assert world.send(feed_id, [1], token=token)["code"] == (
            _UNAUTHENTICATED)
    plain = world.open(weighted_order=None)
    answer = world.send(plain["feed_id"], [1])
    assert answer["code"] == _FAILED_PRECONDITION, answer
    assert "weighted_order" in answer["message"]
    # None of it ended a feed.
    assert sorted(world.names()) == ["bad", "bad", "good"]


def test_a_message_too_large(world):
    """gRPC's own limit is before any of ours, and takes nothing."""
    feed_id = world.open()["feed_id"]
    answer = world.send(feed_id, [1] * 600_000)
    assert answer["code"] == _RESOURCE_EXHAUSTED, answer
    assert world.send(feed_id, [1] * _NUM_SAMPLES)["code"] == _OK


def test_sessions_that_end_while_they_send(world):
    for _ in range(20):
        session = wire.Session(world.daemon.attach_path)
        world.session, mine = session, world.session
        feed_id = world.open()["feed_id"]
        world.rpc.begin(
            "FeedService.SendWeights", session.token, feed_id=str(feed_id),
            weights=[1] * _NUM_SAMPLES)
        session.close()
        assert world.rpc.end()["code"] in (_OK, _NOT_FOUND, _UNAUTHENTICATED)
        world.session = mine
    harness.expect_footprint(world.daemon, world.client, world.footprint)


if __name__ == "__main__":
    harness.main(__file__)
