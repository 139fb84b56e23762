"""Batches of some of the fields, against those of all."""

import datasetd
import numpy as np
import pytest
from datasetd import transforms as T

from tests.conformance import loader_harness as harness

daemon = harness.daemon

N = 103
SEED = 5
PAIRED = [
    T.RandomCrop(9, padding=2, fields=["image", "mask"]),
    T.RandomHorizontalFlip(fields=["mask"]),
    T.RandomErasing(),
]


@pytest.fixture(scope="module")
def dataset(daemon, tmp_path_factory):
    return daemon.load(
        harness.write_npy(
            tmp_path_factory.mktemp("fields"),
            image=harness.images(N, (12, 10, 3), seed=1),
            label=harness.labels(N),
            mask=harness.images(N, (12, 10), seed=2),
        )
    )


def open_loader(daemon, dataset, **options):
    return daemon.loader(
        dataset, batch_size=10, shuffle=True, seed=SEED, **options
    )


@pytest.fixture(scope="module")
def all_fields(daemon, dataset):
    """{field: {sample: bytes}}"""
    with open_loader(daemon, dataset, transforms=PAIRED) as loader:
        batches = harness.take_epoch(loader)
    return {
        name: harness.by_sample(batches, field)
        for field, name in enumerate(["image", "label", "mask"])
    }


@pytest.mark.parametrize(
    "fields", [["mask", "image"], ["label", "mask", "image"]]
)
def test_they_come_in_the_order_of_their_names(
    daemon, dataset, all_fields, fields
):
    with open_loader(
        daemon, dataset, fields=fields, transforms=PAIRED
    ) as loader:
        batch = next(iter(loader))
        assert len(batch) == len(fields)
        np.testing.assert_array_equal(
            harness.array(batch.mask),
            harness.array(batch[fields.index("mask")]),
        )
        assert hasattr(batch, "label") == ("label" in fields)
        del batch
        loader.set_epoch(0)
        batches = harness.take_epoch(loader)
        again = harness.Taken(loader.fetch(batches[3].indices, epoch=0))
    for field, name in enumerate(fields):
        assert harness.by_sample(batches, field) == all_fields[name], name
        np.testing.assert_array_equal(
            again.bits(field), batches[3].bits(field)
        )


def test_one_field_may_be_named_alone(daemon, dataset):
    with open_loader(daemon, dataset, fields="label") as loader:
        for batch in harness.take_epoch(loader):
            (labels,) = batch.fields
            assert labels.dtype == np.int64
            np.testing.assert_array_equal(
                labels, harness.labels(N)[batch.indices]
            )
    batch = harness.Taken(
        daemon.client.fetch(
            dataset,
            [3, 1],
            fields=["label"],
            framework="numpy" if daemon.device == "cpu" else "dlpack",
        )
    )
    np.testing.assert_array_equal(batch.fields, [harness.labels(N)[[3, 1]]])


def test_a_pipeline_of_torchvisions_v2_draws_the_same_without_the_mask(
    daemon, dataset
):
    """It moves the masks with the image, and names no fields."""
    flip = type(
        "RandomHorizontalFlip",
        (),
        {"__module__": "torchvision.transforms.v2._any", "p": 0.5},
    )()
    with open_loader(
        daemon, dataset, fields=["label", "image"], transforms=flip
    ) as loader, open_loader(daemon, dataset, transforms=flip) as full:
        assert harness.by_sample(
            harness.take_epoch(loader), 1
        ) == harness.by_sample(harness.take_epoch(full), 0)


def test_labels_that_are_mixed(daemon, dataset):
    mix = [T.ToDtype("float32"), T.MixUp(num_classes=1009)]
    with open_loader(
        daemon, dataset, fields=["label", "image"], transforms=mix
    ) as loader, open_loader(daemon, dataset, transforms=mix) as full:
        for batch, other in zip(
            harness.take_epoch(loader), harness.take_epoch(full)
        ):
            assert batch.fields[0].shape == (batch.num_samples, 1009)
            np.testing.assert_array_equal(batch.bits(0), other.bits(1))
            np.testing.assert_array_equal(batch.bits(1), other.bits(0))
    with pytest.raises(datasetd.InvalidArgument, match="the loader's fields"):
        open_loader(daemon, dataset, fields=["image"], transforms=mix)


def test_a_state_is_of_its_fields(daemon, dataset):
    def take(**options):
        return open_loader(daemon, dataset, **options)

    with take(fields=["label", "mask"]) as loader:
        golden = harness.take_epoch(loader)
        loader.set_epoch(0)
        for _, batch in zip(range(4), loader):
            del batch
        state = loader.state_dict()
    with take(fields=["label", "mask"]) as loader:
        loader.load_state_dict(state)
        rest = harness.take_epoch(loader)
        assert [batch.index for batch in rest] == list(range(4, 11))
        for batch, expected in zip(rest, golden[4:]):
            np.testing.assert_array_equal(batch.bits(1), expected.bits(1))
    for others in (["mask", "label"], ["label"], None):
        with take(fields=others) as loader:
            with pytest.raises(
                datasetd.FailedPrecondition, match="transforms_hash"
            ):
                loader.load_state_dict(state)
    with take(fields=["image", "label", "mask"]) as named, take() as plain:
        assert named.transforms_hash == plain.transforms_hash


@pytest.mark.parametrize(
    "options, words",
    [
        ({"fields": ["image", "x"]}, "no field 'x'; it has .*'label'"),
        ({"fields": ["image", 3]}, "no field 3"),
        ({"fields": ["mask", "mask"]}, "names a field twice"),
        ({"fields": []}, "fields is empty"),
        (
            {"fields": ["label", "image"], "transforms": PAIRED},
            "transforms: field 'mask' is not among fields=",
        ),
        (
            {"fields": ["label"], "layout": {"image": "NHWC"}},
            "layout: field 'image' is not among fields=",
        ),
    ],
)
def test_wrong_ones_are_named(daemon, dataset, options, words):
    with pytest.raises(datasetd.InvalidArgument, match=words):
        open_loader(daemon, dataset, **options)


def test_of_many_fields_some_are_served(daemon, tmp_path):
    """More than a feed carries; a pretransform of the last ended the daemon."""
    arrays = {
        f"f{i:02}": harness.images(N, (6, 6, 3), seed=i) for i in range(12)
    }
    dataset = daemon.load(
        harness.write_npy(tmp_path, **arrays),
        pretransforms={"f11": [T.CenterCrop(4)]},
    )
    with pytest.raises(
        datasetd.InvalidArgument,
        match="has 12 fields; a feed carries at most 8: .*fields=",
    ):
        open_loader(daemon, dataset)
    with open_loader(
        daemon,
        dataset,
        fields=["f11", "f00"],
        transforms={"f11": [T.RandomVerticalFlip(1.0)]},
    ) as loader:
        for batch in harness.take_epoch(loader):
            at = batch.indices
            np.testing.assert_array_equal(
                batch.fields[0],
                arrays["f11"][at][:, 4:0:-1, 1:5].transpose(0, 3, 1, 2),
            )
            np.testing.assert_array_equal(
                batch.fields[1], arrays["f00"][at].transpose(0, 3, 1, 2)
            )


if __name__ == "__main__":
    harness.main(__file__)
