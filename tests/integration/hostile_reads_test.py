"""Reads of samples in hostile hands: a wrong one is refused by name, each is
charged to its user, and others are served."""

import base64
import concurrent.futures

import numpy as np
import pytest

from tests.testing import daemon_harness as harness
from tests.testing import hostile_world

_OK, _INVALID_ARGUMENT, _NOT_FOUND, _RESOURCE_EXHAUSTED = 0, 3, 5, 8
_FAILED_PRECONDITION, _OUT_OF_RANGE = 9, 11
_NUM_SAMPLES = 2000


class _World(hostile_world.World):
    def read(self, **request):
        return self.session.call("FeedService.ReadSamples",
                                 **{"dataset": "d", **request})


@pytest.fixture(name="world")
def _world():
    with harness.Daemon(
            log_level="error", memory_budget_mib=64
    ) as daemon, _World(daemon, _NUM_SAMPLES) as world:
        yield world


def test_pages_are_small_and_hold_all(world):
    order = list(reversed(range(_NUM_SAMPLES)))
    answer = world.read(indices=order, field_names=["image"],
                        fields={"image": {"layout": "LAYOUT_NHWC"}})
    assert answer["code"] == _OK, answer["message"]
    info, *pages = answer["responses"]
    data = [base64.b64decode(page["data"]) for page in pages]
    assert max(map(len, data)) <= 1 << 20 and len(data) == 6
    (field,) = info["info"]["fields"]
    shape = [int(n) for n in field["array"]["shape"]]
    pixels = np.frombuffer(b"".join(data), np.uint8)
    pixels = pixels.reshape(shape[0], shape[2], shape[3], shape[1])
    assert (pixels.transpose(0, 3, 1, 2) == world.planes[order]).all()


@pytest.mark.parametrize("request_, code, words", [
    ({}, _INVALID_ARGUMENT, ["there are 0", "1 to 262144"]),
    ({"indices": [0] * 262_145}, _INVALID_ARGUMENT, ["there are 262145"]),
    ({"indices": [0, -1]}, _OUT_OF_RANGE, ["indices[1]: -1", "'d'", "2000"]),
    ({"indices": [2000]}, _OUT_OF_RANGE, ["indices[0]: 2000"]),
    ({"indices": [str(2**63 - 1)]}, _OUT_OF_RANGE, [str(2**63 - 1)]),
    ({"indices": [str(-(2**63))]}, _OUT_OF_RANGE, [str(-(2**63))]),
    ({"indices": [0], "epoch": str(2**64 - 1)}, _INVALID_ARGUMENT,
     ["epoch", str(2**64 - 1)]),
    ({"indices": [0], "dataset": "x"}, _NOT_FOUND, ["'x'"]),
    ({"indices": [0], "content_hash": "00"}, _FAILED_PRECONDITION,
     ["'d' was replaced", "get_dataset('d')"]),
    ({"indices": [0], "field_names": ["image", "image"]}, _INVALID_ARGUMENT,
     ["named twice"]),
    ({"indices": [0], "field_names": ["x"]}, _INVALID_ARGUMENT, ["'x'"]),
    ({"indices": [0], "fields": {"image": {"transforms": [
        {"resize": {"size": {"height": 100_000, "width": 100_000}}}]}}},
     _INVALID_ARGUMENT, ["image", "100000"]),
    ({"indices": [0] * 4096, "fields": {"image": {"transforms": [
        {"resize": {"size": {"height": 256, "width": 256}}}]}}},
     _RESOURCE_EXHAUSTED, ["reading 4096 samples of dataset 'd'", "budget"]),
    ({"indices": [0], "window_order": {"length": 2}}, _INVALID_ARGUMENT,
     ["'image' is an image"]),
    ({"indices": [0], "field_names": ["label"],
      "window_order": {"length": 18446744073709551615}}, _INVALID_ARGUMENT,
     ["length"]),
    ({"indices": [_NUM_SAMPLES - 1], "field_names": ["label"],
      "window_order": {"length": 2}}, _OUT_OF_RANGE, [f"{_NUM_SAMPLES - 1}"]),
    ({"indices": [0], "field_names": ["label"],
      "window_order": {"length": 2, "documents": {}}}, _INVALID_ARGUMENT,
     ["rows of documents are not read"]),
    *(({"indices": rows, "field_names": ["label"],
        "window_order": {"length": 2, "random": {}}}, _INVALID_ARGUMENT,
       [f"indices[{place}]: {rows[place]}", "consecutive numbers of rows"])
      for rows, place in (([0, 2], 1), ([-1], 0), ([2**32], 0), ([5, 4], 1))),
])
def test_what_is_wrong_is_refused_by_name(world, request_, code, words):
    before = harness.Footprint(world.daemon, world.client)
    answer = world.read(**request_)
    assert answer["code"] == code, answer["message"]
    for word in words:
        assert word in answer["message"], answer["message"]
    harness.expect_footprint(world.daemon, world.client, before)


_READER = """
client = datasetd.connect(ADDRESS)
dataset = client.get_dataset("d")
say()
grow = [T.Resize((64, 64))]
while True:
    client.fetch(dataset, range(1000), grow, framework="numpy")
"""


def test_a_reader_that_reads_no_more_hurts_nobody(world):
    """It keeps the memory of one read, which is charged to it, until its end;
    the gate in front of gRPC ends its connection after a minute."""
    before = harness.Footprint(world.daemon, world.client)

    def slab_bytes():
        return harness.Footprint(world.daemon, world.client).memory["slab_bytes"]

    with harness.Worker(_READER, world.daemon.socket_path) as reader:
        reader.hear()
        harness.poll_until(
            lambda: slab_bytes() > before.memory["slab_bytes"], "a read")
        reader.stop()
        assert slab_bytes() - before.memory["slab_bytes"] < 16 << 20
        world.run_good_job()
        assert (np.asarray(world.dataset[7][0]) == world.planes[7]).all()
    harness.expect_footprint(world.daemon, world.client, before)


def test_many_readers_get_what_they_ask_for(world):
    """More of them than a user may have calls at a time."""

    def read(number):
        for i in range(number, _NUM_SAMPLES, 300):
            sample = world.dataset[i]
            assert (np.asarray(sample[0]) == world.planes[i]).all()

    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        list(pool.map(read, range(64)))


if __name__ == "__main__":
    harness.main(__file__)
