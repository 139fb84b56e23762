"""Windows in hostile hands: what is wrong is refused by name, nothing is kept,
and others are served."""

import numpy as np
import pytest

from tests.testing import daemon_harness as harness
from tests.testing import hostile_world

_NUM_STEPS = 1000
_MOST = str(2**64 - 1)
# Status codes.
_INVALID_ARGUMENT, _NOT_FOUND, _RESOURCE_EXHAUSTED = 3, 5, 8


@pytest.fixture(name="world", scope="module")
def _world():
    with harness.Daemon(log_level="error") as daemon, \
            hostile_world.World(daemon, 200) as world:
        world.kept = [world.client.push_dataset("s", {
            "tokens": np.arange(_NUM_STEPS, dtype=np.uint16),
            "signal": np.zeros((_NUM_STEPS, 3), np.float32)}),
            world.client.push_dataset("r", [
                {"audio": np.zeros((n, 2), np.int16), "label": n,
                 "image": np.zeros((4, 4, 3), np.uint8)}
                for n in (0, 3, 900)], ragged=True),
            world.client.push_dataset("w", {
                "sound": np.ones((5, 40, 2), np.int16),
                "label": np.arange(5)})]
        world.footprint = harness.Footprint(daemon, world.client)
        yield world


def _crop(field="audio", row_field=0, **crop):
    return {"fields": {field: {"crop": crop, "row_field": row_field}},
            "field_names": [field], "dataset": "r"}


def _noise(noise="r", **op):
    op = {"add_noise": {"noise": noise, **op}}
    return {"fields": {"sound": {"transforms": [
        {"to_dtype": {"dtype": 7, "scale": True}}, op]}},
            "field_names": ["sound"], "dataset": "w"}


def _order(length, **order):
    return {"window_order": {"length": str(length),
                             **(order or {"blocks": {}})}}


@pytest.mark.parametrize("options, code, words", [
    (_order(0), _INVALID_ARGUMENT, ["length is 0", "1.."]),
    (_order(1001), _INVALID_ARGUMENT, ["length is 1001", "'s' has 1000"]),
    (_order(_MOST), _INVALID_ARGUMENT, ["length is 18446744073709551615"]),
    (_order(2**32), _INVALID_ARGUMENT, ["length is 4294967296"]),
    (_order(4, blocks={"phase": _MOST}), _INVALID_ARGUMENT,
     ["phase is 18446744073709551615", "996"]),
    (_order(4, random={"num_windows": _MOST}), _INVALID_ARGUMENT,
     ["num_windows is 18446744073709551615", "4294967294"]),
    ({"window_order": {"length": "4"}}, _INVALID_ARGUMENT,
     ["set blocks, random or documents"]),
    ({**_order(4), "client_order": {}}, _INVALID_ARGUMENT,
     ["neither blocks, random nor documents"]),
    ({**_order(4, random={}), "shuffle": True}, _INVALID_ARGUMENT,
     ["random windows", "shuffle"]),
    ({**_order(4), "subset_size": "3"}, _INVALID_ARGUMENT, ["subset_size"]),
    ({**_order(4), "rows_per_epoch": "3"}, _INVALID_ARGUMENT,
     ["rows_per_epoch"]),
    ({**_order(4), "weighted_order": {"num_samples": "1000"}},
     _INVALID_ARGUMENT, ["window_order", "weighted_order"]),
    ({**_order(4), "group_order": {"group_size": 2}}, _INVALID_ARGUMENT,
     ["window_order", "group_order"]),
    ({**_order(4), "dataset": "", "mixture": {"parts": [{"dataset": "s"}]}},
     _INVALID_ARGUMENT, ["window_order", "mixture"]),
    ({**_order(4), "first_position": "250"}, _INVALID_ARGUMENT,
     ["first_position is 250", "250 windows", "0..249"]),
    ({**_order(4), "start": {"batch": "33"}}, _INVALID_ARGUMENT,
     ["25 batches"]),
    ({**_order(4), "fields": {"x": {"source": "tokens", "shift": 997}}},
     _INVALID_ARGUMENT, ["begins 997 later", "1..3"]),
    ({**_order(4), "fields": {"x": {"source": "tokens",
                                    "shift": 2**32 - 1}}},
     _INVALID_ARGUMENT, ["begins 4294967295 later"]),
    ({"fields": {"tokens": {"shift": 1}}}, _INVALID_ARGUMENT,
     ["shift of 'tokens' is 1", "no windows"]),
    ({**_order(4), "fields": {"tokens": {"transforms": [
        {"random_horizontal_flip": {}}]}}}, _INVALID_ARGUMENT,
     ["'tokens'", "RandomHorizontalFlip", "not an image"]),
    ({**_order(4), "dataset": "d"}, _INVALID_ARGUMENT,
     ["'image' is an image", "field_names"]),
    (_order(4, documents={}), _INVALID_ARGUMENT, ["documents need subset_size"]),
    ({**_order(4, documents={}), "subset_size": "1001"}, _INVALID_ARGUMENT,
     ["1001 documents", "has 1000 steps"]),
    ({**_order(4, documents={}), "subset_size": _MOST}, _INVALID_ARGUMENT,
     ["18446744073709551615 documents"]),
    ({**_order(2**30, documents={}), "subset_size": "2"}, _INVALID_ARGUMENT,
     ["length is 1073741824"]),
    ({**_order(2**28, documents={}), "subset_size": "2",
      "batch_size": 2**31 - 1}, _RESOURCE_EXHAUSTED, []),
    ({**_order(4, documents={}), "subset_size": "2",
      "fields": {"x": {"source": "tokens", "shift": 2}}}, _INVALID_ARGUMENT,
     ["'x' has shift 2", "a shift is 1"]),
    ({**_order(4, documents={}), "subset_size": "2",
      "fields": {"x": {"source": "signal", "shift": 1}}}, _INVALID_ARGUMENT,
     ["'x' has shift 1", "float32"]),
    ({**_order(4), "fields": {"x": {"source": "tokens", "row_field": 1}}},
     _INVALID_ARGUMENT, ["row_field of 'x' is 1", "no documents"]),
    ({**_order(4, documents={}), "subset_size": "2",
      "fields": {"x": {"source": "tokens", "row_field": 9}}},
     _INVALID_ARGUMENT, ["row_field 9"]),
    *(({**_order(4, documents={"max_document": str(most),
                               "num_rows": str(rows)}), "subset_size": "2"},
       _INVALID_ARGUMENT, words)
      for most, rows, words in (
          (5, 1, ["max_document is 5", "at most 4"]),
          (_MOST, 1, ["max_document is 18446744073709551615"]),
          (0, 1, ["num_rows is 1", "max_document 0"]),
          (4, 0, ["num_rows is 0", "1..2"]),
          (4, 3, ["num_rows is 3", "1..2"]),
          (4, _MOST, ["num_rows is 18446744073709551615"]))),
    ({**_order(2**24, documents={"max_document": str(2**24),
                                 "num_rows": "1"}), "subset_size": "2"},
     _INVALID_ARGUMENT, ["at most 8388608"]),
    ({"dataset": "r"}, _INVALID_ARGUMENT,
     ["'audio' has sequences of 0 to 900 steps", "crops"]),
    ({**_order(4), "dataset": "r"}, _INVALID_ARGUMENT,
     ["'audio' has sequences", "one stream"]),
    ({**_order(4), **_crop("label")}, _INVALID_ARGUMENT,
     ["'label' has a crop", "exclude each other"]),
    (_crop("label"), _INVALID_ARGUMENT, ["crop of 'label'", "one number"]),
    (_crop("image"), _INVALID_ARGUMENT, ["crop of 'image'", "RandomCrop"]),
    (_crop(length=str(2**29)), _INVALID_ARGUMENT,
     ["length is 536870912", "1..536870911"]),
    (_crop(length=str(_MOST)), _INVALID_ARGUMENT,
     ["length is 18446744073709551615"]),
    (_crop(place=9), _INVALID_ARGUMENT, ["place is 9"]),
    *((_crop(fill=fill), _INVALID_ARGUMENT, ["fill is", "int16"])
      for fill in (0.5, 32768, -32769, 1e300, "NaN", "Infinity")),
    (_crop(row_field=1), _INVALID_ARGUMENT, ["row_field 1", "lengths"]),
    (_crop(row_field=9), _INVALID_ARGUMENT, ["row_field 9"]),
    ({"dataset": "r", "fields": {"label": {"row_field": 3}},
      "field_names": ["label"]}, _INVALID_ARGUMENT, ["has no crop"]),
    ({**_crop(), "fields": {"audio": {"crop": {}, "shift": 1}}},
     _INVALID_ARGUMENT, ["shift of 'audio' is 1"]),
    ({**_crop(length=str(2**29 - 1)), "batch_size": 2**31 - 1},
     _RESOURCE_EXHAUSTED, []),
    ({**_order(900), "batch_size": 2**31 - 1, "prefetch": 62},
     _RESOURCE_EXHAUSTED, []),
    *((_noise(snr={"min": low, "max": high}), _INVALID_ARGUMENT,
       ["transforms[1] AddNoise", "snr"])
      for low, high in ((5, 4), (-201, 0), (0, 1e300), ("NaN", 0),
                        (0, "NaN"), ("-Infinity", 0), (0, "Infinity"))),
    *((_noise(p=p), _INVALID_ARGUMENT, ["AddNoise: p is"])
      for p in (-1, 2, "NaN")),
    *((_noise(name), _NOT_FOUND, ["AddNoise, noise '" + name[:40]])
      for name in ("", "gone", "x" * 10_000)),
    (_noise("d"), _INVALID_ARGUMENT,
     ["transforms[1] AddNoise", "noise 'd' has 0 fields of recordings"]),
    (_noise("s", field="tokens"), _INVALID_ARGUMENT, ["shape []"]),
    (_noise("r", field="image"), _INVALID_ARGUMENT, ["has images"]),
    (_noise("w", field="label"), _INVALID_ARGUMENT, ["shape []"]),
    (_noise("r", field="gone"), _INVALID_ARGUMENT,
     ["no field 'gone'", "audio, label, image"]),
    ({**_noise(), "fields": {"label": {"transforms": [
        {"add_noise": {"noise": "r"}}]}}, "field_names": ["label"]},
     _INVALID_ARGUMENT, ["AddNoise", "float16, bfloat16 or float32"]),
    ({**_noise(), "fields": {"sound": {"transforms": [
        {"random_apply": {"transforms": [
            {"add_noise": {"noise": f"gone{i}"}} for i in range(65)]}}]}}},
     _INVALID_ARGUMENT, ["65 datasets of noise", "can have 64"]),
], ids=str)
def test_wrong_windows(world, options, code, words):
    answer = world.try_open(**{"dataset": "s", **options})
    assert answer["code"] == code, answer
    for word in words:
        assert word in answer["message"], answer
    harness.expect_footprint(world.daemon, world.client, world.footprint)


def test_noise_is_served_and_let_go(world):
    """Of the feed's own dataset, twice, and of another."""
    ops = [_noise(name)["fields"]["sound"]["transforms"][-1]
           for name in ("w", "r", "w")]
    options = _noise()
    options["fields"]["sound"]["transforms"][1:] = ops
    feed = world.open_and_attach(**options)
    used = {d["name"]: d["num_feeds"] for d in world.client.list_datasets()}
    assert (used["w"], used["r"], used["s"]) == (1, 1, 0)
    world.run_good_job()
    feed.detach()
    harness.expect_footprint(world.daemon, world.client, world.footprint)


@pytest.mark.parametrize("order", [
    _order(1000), _order(1, blocks={"stride": _MOST}),
    _order(999, random={"num_windows": str(2**32 - 2)}),
], ids=str)
def test_extremes_are_served(world, order):
    feed = world.open_and_attach(dataset="s", **order)
    world.run_good_job()
    feed.detach()
    harness.expect_footprint(world.daemon, world.client, world.footprint)


def test_an_epoch_may_have_no_windows(world):
    order = _order(7, random={"num_windows": "0"})
    answer = world.open(dataset="s", **order)
    feed = world.attach(answer["feed_id"])
    world.run_good_job()
    assert not feed.published()
    feed.detach()
    harness.expect_footprint(world.daemon, world.client, world.footprint)


if __name__ == "__main__":
    harness.main(__file__)
