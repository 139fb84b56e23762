"""push_dataset: what Python samples become, and how a push ends."""

import gc
import itertools

import datasetd
import numpy as np
import pytest
import torch
from conftest import poll_until
from datasetd import transforms as T
from PIL import Image


def _all(client, dataset, field=None):
    """Every sample in order, by field, as NumPy arrays."""
    with datasetd.DataLoader(
        dataset, batch_size=4, framework="numpy"
    ) as loader:
        batches = [
            {
                name.name: np.array(getattr(batch, name.name))
                for name in dataset.fields
            }
            for batch in loader
        ]
    return {
        name: np.concatenate([batch[name] for batch in batches])
        for name in batches[0]
    }


class Pairs(torch.utils.data.Dataset):
    """A map-style dataset without __iter__."""

    classes = ["even", "odd"]

    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], i % 2


def test_a_torch_dataset_of_tensors(client):
    images = torch.randint(0, 256, (11, 3, 5, 6), dtype=torch.uint8)
    with client.push_dataset("pairs", Pairs(images)) as dataset:
        assert [tuple(field)[:4] for field in dataset.fields] == [
            ("image", "uint8", (5, 6, 3), True),
            ("label", "int64", (), False),
        ]
        assert len(dataset) == 11
        assert dataset.class_names == ["even", "odd"]
        assert dataset.format == "push" and dataset.path == ""
        assert len(dataset.spec_id) == 64
        got = _all(client, dataset)
        np.testing.assert_array_equal(got["image"], images.numpy())
        np.testing.assert_array_equal(got["label"], np.arange(11) % 2)


def test_every_dtype_arrives_bit_for_bit(client):
    random = np.random.default_rng(3)
    sample = {
        "a": random.integers(0, 256, (7, 2, 1, 3), np.uint8),
        "b": random.integers(-9, 9, (7,), np.int16),
        "c": random.integers(-9, 9, (7, 2), np.int32),
        "d": random.integers(-9, 9, (7,), np.int64),
        "e": random.standard_normal((7, 5)).astype(np.float16),
        "f": random.standard_normal((7, 5)).astype(np.float32),
        "g": random.standard_normal((7, 5)),
    }
    with client.push_dataset(
        "dtypes",
        [{name: sample[name][i] for name in sample} for i in range(7)],
    ) as dataset:
        assert {f.name: f.dtype for f in dataset.fields} == {
            name: str(sample[name].dtype) for name in sample
        }
        got = _all(client, dataset)
        for name in sample:
            want = sample[name]
            if dataset.fields[list(sample).index(name)].is_image:
                want = want.transpose(0, 3, 1, 2)
            np.testing.assert_array_equal(got[name], want, err_msg=name)


def test_pil_images_and_numbers(client):
    images = [
        Image.fromarray(np.full((4, 6, 3), i, np.uint8)) for i in range(5)
    ]
    with client.push_dataset(
        "pil", [(image, i, i / 2) for i, image in enumerate(images)]
    ) as dataset:
        assert [field.name for field in dataset.fields] == [
            "image", "label", "field_2",
        ]
        got = _all(client, dataset)
        assert got["image"].shape == (5, 3, 4, 6)
        np.testing.assert_array_equal(got["image"][:, 0, 0, 0], range(5))
        np.testing.assert_array_equal(got["field_2"], np.arange(5) / 2)


_IMAGE = np.zeros((4, 6, 3), np.uint8)
_WAVE = np.zeros((1, 16), np.float32)


@pytest.mark.parametrize(
    "sample, names",
    [
        ((_IMAGE, 3), ["image", "label"]),
        ((_IMAGE, 3, 7), ["image", "label", "field_2"]),
        ((7, _IMAGE, 3), ["field_0", "image", "label"]),
        ((_WAVE, 3), ["field_0", "label"]),
        # torchaudio's order: neither is taken for the class.
        ((_WAVE, 16000, 3), ["field_0", "field_1", "field_2"]),
        ((_IMAGE, _IMAGE, 3), ["image", "field_1", "label"]),
        ((_WAVE,), ["data"]),
    ],
)
def test_names_of_the_values_of_a_tuple(client, sample, names):
    with client.push_dataset("-".join(names), [sample] * 3) as dataset:
        assert [field.name for field in dataset.fields] == names


def test_pretransforms_run_once_at_load(client):
    images = np.random.default_rng(1).integers(0, 256, (6, 4, 4, 3), np.uint8)
    with client.push_dataset(
        "pre",
        [(image, 0) for image in images],
        pretransforms=[T.CenterCrop(2), T.ToDtype("float32", scale=True)],
    ) as dataset:
        assert dataset.fields[0].shape == (2, 2, 3)
        assert dataset.fields[0].dtype == "float32"
        got = _all(client, dataset)["image"]
        want = images[:, 1:3, 1:3].transpose(0, 3, 1, 2) / np.float32(255)
        np.testing.assert_allclose(got, want, atol=1e-7)


def test_an_iterable_of_torch_with_len(client):
    """It inherits [i], which raises."""

    class Iterable(torch.utils.data.IterableDataset):
        def __len__(self):
            return 3

        def __iter__(self):
            return iter([{"label": i} for i in (5, 6, 7)])

    dataset = client.push_dataset("torchs-iterable", Iterable())
    assert _all(client, dataset)["label"].tolist() == [5, 6, 7]


def test_an_iterable_without_len(client):
    with client.push_dataset(
        "lazy", (np.full(3, i, np.int32) for i in range(1000))
    ) as dataset:
        assert len(dataset) == 1000
        got = _all(client, dataset)["data"]
        np.testing.assert_array_equal(got[:, 0], np.arange(1000))


def test_samples_larger_than_a_block(client):
    big = np.arange(3 * 1000 * 1001, dtype=np.int32).reshape(3, -1)
    with client.push_dataset("big", list(big)) as dataset:
        np.testing.assert_array_equal(_all(client, dataset)["data"], big)


def test_fields_choose_names_and_kinds(client):
    sample = {
        "x": np.zeros((3, 4, 4), np.uint8),
        "y": np.zeros((4, 4), np.uint8),
        "text": "left out",
    }
    with client.push_dataset(
        "chosen", [sample] * 2, fields={"x": "image_chw", "y": "array"}
    ) as dataset:
        assert [tuple(field)[:4] for field in dataset.fields] == [
            ("x", "uint8", (4, 4, 3), True),
            ("y", "uint8", (4, 4), False),
        ]


@pytest.mark.parametrize(
    "samples, fields, words",
    [
        ([np.zeros(3), np.zeros(4)], None, ["sample 1", "'data'", "(4,)"]),
        ([np.zeros(3), np.zeros(3, np.int8)], None, ["sample 1", "int8"]),
        ([(1, 2), (1,)], None, ["sample 1", "1 values", "expected 2"]),
        ([{"a": 1}, {"b": 1}], None, ["sample 1", "no 'a'"]),
        (["text"], None, ["str"]),
        ([], None, ["no sample"]),
        (iter([]), None, ["no sample"]),
        ([1], {"x": "picture"}, ["'picture'"]),
        (
            [np.zeros((9, 9, 9), np.uint8)],
            {"x": "image"},
            ["(9, 9, 9)", "'image_chw' is for (C, H, W)", "'array' for any"],
        ),
        ([np.zeros((0, 3))], None, ["data", "at least 1"]),
        ([1], ["a b"], ["cannot name a field"]),
        ([(1, 2)], ["a", "a"], ["twice"]),
        ([2**70], None, ["64-bit"]),
    ],
)
def test_what_does_not_fit_is_named(client, samples, fields, words):
    with pytest.raises(datasetd.InvalidArgument) as caught:
        client.push_dataset("wrong", samples, fields=fields)
    for word in words:
        assert word in str(caught.value)
    _expect_gone(client, "wrong")


def test_a_wrong_len_is_named(client):
    class Liar(list):
        def __len__(self):
            return 9

        def __getitem__(self, i):
            return 1

    class Short:
        def __len__(self):
            return 9

        def __iter__(self):
            return iter([1, 2])

    class Long(Short):
        def __len__(self):
            return 1

    with client.push_dataset("liar", Liar()) as dataset:
        assert len(dataset) == 9
    for samples in (Short(), Long()):
        with pytest.raises(datasetd.InvalidArgument) as caught:
            client.push_dataset("short", samples)
        assert "len() is" in str(caught.value)
        _expect_gone(client, "short")


def _expect_gone(client, name):
    """Waits until the daemon has noticed that the push was broken off."""
    poll_until(
        lambda: name not in {d["name"] for d in client.list_datasets()},
        f"the end of {name}",
        60,
    )


def test_equal_content_has_an_equal_id(client):
    with client.push_dataset("same", [1, 2]) as dataset:
        first = dataset.spec_id, dataset.content_hash
    client.unload_dataset("same")
    with client.push_dataset("same", [1, 2]) as dataset:
        assert (dataset.spec_id, dataset.content_hash) == first
    client.unload_dataset("same")
    with client.push_dataset("same", [1, 3]) as dataset:
        assert dataset.spec_id != first[0]


def test_an_exception_of_the_samples_leaves_nothing_behind(client):
    def samples():
        for i in itertools.count():
            if i == 3000:
                raise RuntimeError("the disk burns")
            yield np.full(1000, i)

    class Failing:
        def __len__(self):
            return 10000

        def __iter__(self):
            return samples()

    before = client.status()["devices"][0]["dataset_bytes"]
    with pytest.raises(RuntimeError, match="the disk burns"):
        client.push_dataset("broken", Failing())
    gc.collect()
    _expect_gone(client, "broken")
    assert client.status()["devices"][0]["dataset_bytes"] == before
    with client.push_dataset("broken", [1]) as dataset:
        assert len(dataset) == 1


def test_more_than_the_budget_is_refused_before_the_samples_are_read(client):
    drawn = []

    class Huge:
        def __len__(self):
            return 1 << 40

        def __getitem__(self, i):
            drawn.append(i)
            return np.zeros(1 << 16, np.uint8)

    with pytest.raises(datasetd.ResourceExhausted) as caught:
        client.push_dataset("huge", Huge())
    assert "'huge'" in str(caught.value)
    assert set(drawn) == {0}


def test_progress_counts_the_samples(client):
    seen = []
    with client.push_dataset(
        "progress", [1, 2, 3], progress=seen.append
    ):
        assert [m["progress"]["num_samples_loaded"] for m in seen] == [1, 2, 3]
