"""Mixtures in hostile hands: what is wrong is refused by name, nothing is kept,
and others are served."""

import numpy as np
import pytest

from tests.testing import daemon_harness as harness
from tests.testing import hostile_world

_NUM_SAMPLES = 200
# Status codes.
_OK, _INVALID_ARGUMENT, _NOT_FOUND = 0, 3, 5
_MANY = [{"dataset": "d", "ratio": 1}] * 10_000
_TWO = [{"dataset": "d", "ratio": 1}, {"dataset": "e", "ratio": 2}]


@pytest.fixture(name="world", scope="module")
def _world():
    with harness.Daemon(log_level="error") as daemon, \
            hostile_world.World(daemon, _NUM_SAMPLES) as world:
        images = np.zeros((5, *world.planes.shape[2:], 3), np.uint8)
        classes = [str(i) for i in range(10)]
        labels = np.arange(5, dtype=np.uint8)
        data = {field.name: images if field.is_image else labels
                for field in world.dataset.fields}
        push = world.client.push_dataset
        world.kept = [
            push("e", data),
            push("named", data, class_names=["x", *classes]),
            push("renamed", data, class_names=["y", *classes]),
            push("other", {"image": images}),
            push("small", {**data, "image": images[:, :9]}),
        ]
        world.footprint = harness.Footprint(daemon, world.client)
        yield world


def _ratios(*ratios):
    return [{"dataset": name, "ratio": ratio}
            for name, ratio in zip("de", ratios)]


@pytest.mark.parametrize("mixture, code, words", [
    ({}, _INVALID_ARGUMENT, ["there are 0 datasets", "1 to 64"]),
    ({"parts": _MANY}, _INVALID_ARGUMENT, ["10000", "1 to 64"]),
    ({"parts": _ratios("NaN", 1)}, _INVALID_ARGUMENT, ["'d' is nan"]),
    ({"parts": _ratios(1, "Infinity")}, _INVALID_ARGUMENT, ["'e' is inf"]),
    ({"parts": _ratios(1, -1)}, _INVALID_ARGUMENT, ["'e' is -1"]),
    ({"parts": _ratios(1, 0)}, _INVALID_ARGUMENT, ["'e' is 0", "leave out"]),
    ({"parts": _ratios(1e308, 1e308)}, _INVALID_ARGUMENT, ["not finite"]),
    ({"parts": _ratios(1e-308, 1)}, _INVALID_ARGUMENT, ["'d' would have none"]),
    ({"parts": _ratios(1, 1), "num_rows": str(2**64 - 1)}, _INVALID_ARGUMENT,
     [str(2**64 - 1), str(2**32 - 1)]),
    ({"parts": _ratios(1, 1), "num_rows": str(2**32 - 1)}, _INVALID_ARGUMENT,
     ["num_rows is 4294967295", "4294967294"]),
    ({"parts": _ratios(0, 0), "num_rows": "9"}, _INVALID_ARGUMENT,
     ["num_rows", "all ratios are 0"]),
    ({"parts": _ratios(0, 0), "is_fixed_per_batch": True}, _INVALID_ARGUMENT,
     ["is_fixed_per_batch", "all ratios are 0"]),
    ({"parts": [{"dataset": "d"}, {}]}, _NOT_FOUND, ["''"]),
    ({"parts": [{"dataset": "d"}, {"dataset": "gone"}]}, _NOT_FOUND,
     ["'gone'"]),
    ({"parts": [{"dataset": "d"}, {"dataset": "other"}]}, _INVALID_ARGUMENT,
     ["'d'", "'other'", "'label'"]),
    ({"parts": [{"dataset": "e"}, {"dataset": "small"}]}, _INVALID_ARGUMENT,
     ["'e'", "'small'", "(9, 32, 3)"]),
    ({"parts": [{"dataset": "named"}, {"dataset": "renamed"}]},
     _INVALID_ARGUMENT, ["'named'", "'renamed'", "class names"]),
    ({"parts": [{"dataset": "d", "has_own_fields": True,
                 "fields": {"nosuch": {"transforms": []}}},
                {"dataset": "e"}]}, _INVALID_ARGUMENT, ["'nosuch'", "'d'"]),
])
def test_wrong_mixtures(world, mixture, code, words):
    answer = world.try_open(dataset="", mixture=mixture)
    assert answer["code"] == code, answer
    for word in words:
        assert word in answer["message"], answer
    harness.expect_footprint(world.daemon, world.client, world.footprint)


@pytest.mark.parametrize("options, words", [
    ({"dataset": "d"}, ["beside a mixture"]),
    ({"subset_size": "3"}, ["subset_size"]),
    ({"weighted_order": {"num_samples": 205}}, ["weighted_order"]),
    ({"client_order": {}}, ["client_order"]),
    ({"group_order": {"group_size": 2}}, ["group_order"]),
    ({"rows_per_epoch": "3"}, ["rows_per_epoch"]),
    ({"first_position": "205"}, ["first_position is 205", "205 rows"]),
    ({"start": {"batch": "22"}}, ["start", "21 batches"]),
    ({"batch_size": 0}, ["batch_size is 0"]),
    ({"rank": 3, "world_size": 2}, ["rank is 3"]),
])
def test_options_beside_a_mixture(world, options, words):
    answer = world.try_open(
        **{"dataset": "", "mixture": {"parts": _TWO}, **options})
    assert answer["code"] == _INVALID_ARGUMENT, answer
    for word in words:
        assert word in answer["message"], answer


def test_64_parts_with_pipelines_of_their_own(world):
    """The most that there can be is counted, and made."""
    crops = [{"dataset": "de"[i % 2], "has_own_fields": True, "fields": {
        "image": {"transforms": [
            {"pad": {"padding": {"left": i, "top": i}}},
            {"center_crop": {"height": 8, "width": 8}},
        ]}}} for i in range(64)]
    feed = world.open_and_attach(dataset="", mixture={"parts": crops})
    devices = world.client.status()["devices"]
    assert int(devices[0]["scratch_bytes"]) > 64 * 50_000
    world.run_good_job()
    feed.detach()
    harness.expect_footprint(world.daemon, world.client, world.footprint)


if __name__ == "__main__":
    harness.main(__file__)
