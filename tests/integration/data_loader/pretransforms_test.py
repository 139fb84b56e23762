"""Transforms at load give what they would give at every batch; and the identity
of the dataset that was loaded."""


import datasetd
import numpy as np
import pytest
from datasetd import transforms as T

from tests.conformance import loader_harness as harness

daemon = harness.daemon

N = 150
MEAN, STD = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return harness.write_npy(
        tmp_path_factory.mktemp("data"),
        image=harness.images(N, (33, 31, 3)),
        label=harness.labels(N),
    )


def rows(daemon, dataset, transforms, **options):
    with daemon.loader(
        dataset,
        batch_size=64,
        shuffle=True,
        seed=2,
        transforms=transforms,
        **options,
    ) as loader:
        return harness.by_sample(harness.take_epoch(loader))


FLOATS = [T.ToDtype("float32", scale=True), T.Normalize(MEAN, STD)]


@pytest.mark.parametrize(
    "at_load, at_serve, resident",
    [
        (FLOATS, [], ("float32", (33, 31, 3))),
        (FLOATS[:1], FLOATS[1:], ("float32", (33, 31, 3))),
        ([T.CenterCrop((20, 25))], [], ("uint8", (20, 25, 3))),
        ([T.CenterCrop(40)], [], ("uint8", (40, 40, 3))),
        (
            [T.Pad((1, 2, 3, 4), fill=[1, 2, 3])],
            FLOATS,
            ("uint8", (39, 35, 3)),
        ),
        (
            [T.Pad(3, padding_mode="reflect"), T.CenterCrop(28)] + FLOATS,
            [],
            ("float32", (28, 28, 3)),
        ),
        (
            FLOATS,
            [T.CenterCrop(24), T.Pad(2, fill=[0.5, -1, 2]), T.ToDtype("float16")],
            ("float32", (33, 31, 3)),
        ),
        (
            [T.ToDtype("float16", scale=True)],
            [T.Pad(2), T.CenterCrop(24), T.HorizontalFlip()],
            ("float16", (33, 31, 3)),
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_at_load_equals_at_serve_time(
    daemon, directory, at_load, at_serve, resident, layout
):
    plain = daemon.load(directory)
    prepared = daemon.load(directory, pretransforms=at_load)
    field = prepared.fields[0]
    assert (field.dtype, field.shape) == resident
    assert plain.fields[0].dtype == "uint8"
    assert plain.content_hash != prepared.content_hash
    assert rows(daemon, prepared, at_serve, layout=layout) == rows(
        daemon, plain, at_load + at_serve, layout=layout
    )


def test_a_crop_after_a_crop_at_load_draws_the_same(daemon, directory):
    """A random op's number is its place among the ops at serve time."""
    prepared = daemon.load(directory, pretransforms=[T.CenterCrop(30)])
    cropped = harness.images(N, (33, 31, 3))[:, 2:32, 0:30]
    again = harness.write_npy(
        directory + "-cropped", image=cropped, label=harness.labels(N)
    )
    random = [T.RandomCrop(28, padding=2), T.RandomHorizontalFlip()]
    plain = daemon.load(again)
    assert plain.content_hash == prepared.content_hash
    assert rows(daemon, prepared, random) == rows(daemon, plain, random)


def test_content_hash_is_of_the_content(daemon, directory, tmp_path):
    first = daemon.load(directory)
    with harness.Daemon(daemon.device) as other:
        same = other.load(directory, name="another-name")
        assert same.content_hash == first.content_hash
    image = harness.images(N, (33, 31, 3))
    moved = harness.write_npy(
        tmp_path / "moved", image=image, label=harness.labels(N)
    )
    assert daemon.load(moved).content_hash == first.content_hash

    image[-1, -1, -1, -1] ^= 1
    changed = harness.write_npy(
        tmp_path / "pixel", image=image, label=harness.labels(N)
    )
    label = harness.labels(N)
    label[0] += 1
    relabelled = harness.write_npy(
        tmp_path / "label", image=harness.images(N, (33, 31, 3)), label=label
    )
    renamed = harness.write_npy(
        tmp_path / "name",
        image=harness.images(N, (33, 31, 3)),
        target=harness.labels(N),
    )
    hashes = {first.content_hash}
    for path in (changed, relabelled, renamed):
        hashes.add(daemon.load(path).content_hash)
    assert len(hashes) == 4


def test_resident_bytes_are_the_samples(daemon, directory):
    dataset = daemon.load(directory)
    exact = N * (33 * 31 * 3 + 8)
    assert exact <= dataset.resident_bytes <= exact + (4 << 20)


def test_random_ops_are_no_pretransforms(daemon, directory):
    with pytest.raises(
        datasetd.InvalidArgument, match=r"'image', pretransforms\[1\] RandomCrop"
    ):
        daemon.load(
            directory, pretransforms=[T.CenterCrop(24), T.RandomCrop(20)]
        )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_floats_may_be_resident(daemon, directory, dtype):
    prepared = daemon.load(
        directory, pretransforms=[T.ToDtype(dtype, scale=True)]
    )
    assert prepared.fields[0].dtype == dtype


def test_image_mask_and_vector(daemon, tmp_path):
    """Fields in the order of their names, each with its own ops."""
    image = harness.images(N, (16, 12, 3), seed=1)
    mask = harness.images(N, (16, 12), seed=2)
    vector = np.random.default_rng(3).normal(size=(N, 5, 2))
    weight = np.random.default_rng(4).normal(size=N).astype(np.float32)
    directory = harness.write_npy(
        tmp_path, image=image, mask=mask, vector=vector, weight=weight
    )
    dataset = daemon.load(directory)
    assert [tuple(field) for field in dataset.fields] == [
        ("image", "uint8", (16, 12, 3), True, False, None, None),
        ("mask", "uint8", (16, 12, 1), True, True, None, None),
        ("vector", "float64", (5, 2), False, False, None, None),
        ("weight", "float32", (), False, False, None, None),
    ]
    with daemon.loader(
        dataset,
        batch_size=40,
        shuffle=True,
        transforms={
            "image": [T.Pad(1, fill=9)],
            "mask": [T.RandomHorizontalFlip(1.0), T.ToDtype("float16")],
            "vector": [T.ToDtype("float32")],
        },
    ) as loader:
        batches = harness.take_epoch(loader)
    assert sum(batch.num_samples for batch in batches) == N
    for batch in batches:
        at = batch.indices
        np.testing.assert_array_equal(
            batch.fields[0],
            np.pad(
                image[at].transpose(0, 3, 1, 2),
                ((0, 0), (0, 0), (1, 1), (1, 1)),
                constant_values=9,
            ),
        )
        np.testing.assert_array_equal(
            batch.fields[1], mask[at][:, None, :, ::-1].astype(np.float16)
        )
        assert batch.fields[1].dtype == np.float16
        np.testing.assert_array_equal(
            batch.fields[2], vector[at].astype(np.float32)
        )
        np.testing.assert_array_equal(batch.fields[3], weight[at])


def test_mnist_gzip(daemon, tmp_path):
    image = harness.images(N, (28, 28), seed=5)
    label = (np.arange(N) % 10).astype(np.uint8)
    dataset = daemon.load(
        harness.write_mnist_gz(tmp_path, image, label),
        format="mnist",
        pretransforms=[
            T.ToDtype("float32", scale=True),
            T.Normalize([0.1307], [0.3081]),
        ],
    )
    with daemon.loader(dataset, batch_size=64, shuffle=True) as loader:
        batches = harness.take_epoch(loader)
    expected = (
        image.astype(np.float32) / np.float32(255) - np.float32(0.1307)
    ) / np.float32(0.3081)
    for batch in batches:
        np.testing.assert_array_equal(
            batch.fields[0], expected[batch.indices][:, None]
        )
        np.testing.assert_array_equal(batch.fields[1], label[batch.indices])
        assert batch.fields[1].dtype == np.int64
    assert sum(batch.num_samples for batch in batches) == N


if __name__ == "__main__":
    harness.main(__file__)
