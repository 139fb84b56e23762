"""Client.explain: what it tells is what a loader does."""

import datasetd
import numpy as np
import pytest
from conftest import NUM_SAMPLES
from datasetd import transforms as T
from datasetd._feed import feed, feeds
from datasetd.transforms import sequences

N = 70  # more than one call tells of
PAIR = ["image", "mask"]


@pytest.fixture(scope="module")
def pictures(data_root):
    """Images and masks, also as the dataset `paired`."""
    random = np.random.default_rng(7)
    images = random.integers(0, 256, (N, 9, 7, 3), dtype=np.uint8)
    masks = random.integers(0, 5, (N, 9, 7), dtype=np.uint8)
    directory = data_root / "paired"
    directory.mkdir()
    np.save(directory / "image.npy", images)
    np.save(directory / "mask.npy", masks)
    return images, masks


@pytest.fixture
def paired(client, data_root, pictures):
    return client.load_dataset(
        "paired", format="npy", path=data_root / "paired"
    )


def batches(dataset, transforms, seed, epoch):
    """{sample: (image, mask)}, [H, W, C], of one epoch."""
    result = {}
    with datasetd.DataLoader(
        dataset,
        batch_size=16,
        shuffle=True,
        seed=seed,
        transforms=transforms,
        framework="numpy",
    ) as loader:
        loader.set_epoch(epoch)
        for batch in loader:
            for row, index in enumerate(batch.indices):
                result[int(index)] = (
                    batch.image[row].transpose(1, 2, 0).copy(),
                    batch.mask[row].transpose(1, 2, 0).copy(),
                )
    return result


def apply(ops, image):
    """The explained moves, by NumPy."""
    for op in ops:
        if not op.is_applied:
            continue
        if op.name == "Pad":
            left, top, right, bottom = map(int, op.parameters["padding"])
            image = np.pad(
                image, ((top, bottom), (left, right), (0, 0)), mode="reflect"
            )
        elif op.name == "Crop":
            top, left, height, width = (
                int(op.parameters[key][0])
                for key in ("top", "left", "height", "width")
            )
            image = image[top : top + height, left : left + width]
        elif op.name == "HorizontalFlip":
            image = image[:, ::-1]
        elif op.name == "VerticalFlip":
            image = image[::-1]
        else:
            pytest.fail(f"unexpected {op}")
    return image


def test_what_is_told_is_what_is_done(client, paired, pictures):
    assert [f.is_mask for f in paired.fields] == [False, True]
    transforms = [
        T.RandomCrop((8, 6), 2, padding_mode="reflect", fields=PAIR),
        T.RandomVerticalFlip(),
        T.RandomHorizontalFlip(fields=PAIR),
    ]
    done = batches(paired, transforms, seed=3, epoch=5)
    told = client.explain(paired, transforms, 3, 5, range(N))
    assert len(told) == N
    for index, ops in enumerate(told):
        for field, picture, out in zip(PAIR, pictures, done[index]):
            mine = [op for op in ops if op.field == field]
            np.testing.assert_array_equal(
                apply(mine, picture[index].reshape(9, 7, -1)), out
            )


def test_paired_fields_draw_alike_and_others_do_not(client, paired):
    told = client.explain(
        paired,
        [
            T.RandomCrop(4, fields=PAIR),
            T.RandomCrop(3),
            T.RandomCrop(3, fields=["mask"]),
            T.RandomHorizontalFlip(fields=PAIR),
        ],
        indices=range(N),
    )
    num_alike = 0
    for ops in told:
        image = [op for op in ops if op.field == "image"]
        mask = [op for op in ops if op.field == "mask"]
        assert [op.position for op in image] == [0, 1, 2]
        assert image[0].parameters == mask[0].parameters
        assert image[2].is_applied == mask[2].is_applied
        num_alike += image[1].parameters == mask[1].parameters
    # The second crop has 2 x 2 places.
    assert 0 < num_alike < N // 2
    flips = [ops[2].is_applied for ops in told]
    assert 0 < sum(flips) < N


def test_it_is_a_function_of_seed_epoch_and_sample(client, dataset):
    def tell(seed, epoch, indices):
        return client.explain(
            dataset, [T.RandomCrop(3)], seed, epoch, indices
        )

    first = tell(1, 2, [5, 6, 5])
    assert first == tell(1, 2, [5, 6, 5])
    assert first[0] == first[2]
    all_of = [str(tell(s, e, range(40))) for s, e in ((1, 2), (2, 2), (1, 3))]
    assert len(set(all_of)) == 3
    assert client.explain(dataset, [], indices=[0]) == [[]]
    assert client.explain(dataset, [T.RandomCrop(3)], indices=[]) == []


def test_errors_are_those_of_a_feed(client, dataset):
    with pytest.raises(
        datasetd.InvalidArgument, match=f"indices: {NUM_SAMPLES} is out of"
    ):
        client.explain(dataset, [T.Pad(1)], indices=[NUM_SAMPLES])
    with pytest.raises(datasetd.InvalidArgument, match=r"transforms\[0\]"):
        client.explain(dataset, [T.RandomCrop(100)])
    with pytest.raises(datasetd.InvalidArgument, match="no field 'depth'"):
        client.explain(dataset, [T.Pad(1, fields=["depth"])])
    with pytest.raises(
        datasetd.InvalidArgument, match="indices: .*expected ints"
    ):
        client.explain(dataset, [T.Pad(1)], indices=["first"])


def test_masks_of_loaders_and_loads(client, data_root, paired):
    with pytest.raises(datasetd.InvalidArgument, match="'mask': that is a m"):
        datasetd.DataLoader(paired, transforms=[T.Invert(fields=PAIR)])
    directory = data_root / "paired"
    with pytest.raises(datasetd.InvalidArgument, match="'mask': that is a m"):
        client.load_dataset(
            "dark",
            format="npy",
            path=directory,
            pretransforms=[T.Invert(fields=PAIR)],
        )
    # Not a mask, if the reader is told so.
    bright = client.load_dataset(
        "bright",
        format="npy",
        path=directory,
        options={"masks": "-mask"},
        pretransforms=[T.Invert(fields=PAIR), T.CenterCrop(4, fields=PAIR)],
    )
    assert [f.is_mask for f in bright.fields] == [False, False]
    assert [f.shape for f in bright.fields] == [(4, 4, 3), (4, 4, 1)]


# One of every class, for images of 9 x 7.
EVERY_OP = [
    T.AdjustBrightness(0.5),
    T.AdjustContrast(0.5),
    T.AdjustHue(0.25),
    T.AdjustSaturation(0.5),
    T.AdjustSharpness(2),
    T.Affine(10, (1, 2), 1.5, 5, "bilinear"),
    T.AlternatingFlip(),
    T.AutoAugment("svhn"),
    T.Autocontrast(),
    T.CenterCrop(4),
    T.ColorJitter(0.4, 0.4, 0.4, 0.1),
    T.Crop(1, 2, 3, 4),
    T.Cutout(3),
    T.Equalize(),
    T.Erase(1, 2, 3, 4, 5),
    T.GaussianBlur(3),
    T.GaussianNoise(),
    T.Grayscale(3),
    T.HorizontalFlip(),
    T.Invert(),
    T.Pad(1),
    T.Posterize(3),
    T.RandAugment(),
    T.RandomAdjustSharpness(2),
    T.RandomAffine(10, (0.1, 0.1), (0.9, 1.1), 5),
    T.RandomApply([T.ColorJitter(0.4), T.RandomRotation(10)]),
    T.RandomAutocontrast(),
    T.RandomCrop(5),
    T.RandomEqualize(),
    T.RandomErasing(),
    T.RandomGrayscale(),
    T.RandomHorizontalFlip(),
    T.RandomInvert(),
    T.RandomPerspective(),
    T.RandomPosterize(3),
    T.RandomResizedCrop(8),
    T.RandomRotation(10, "bilinear"),
    T.RandomSolarize(100),
    T.RandomVerticalFlip(),
    T.Resize((8, 6), "bicubic"),
    T.ResizedCrop(1, 2, 3, 4, 8),
    T.Rotate(10),
    T.Solarize(100),
    T.TrivialAugmentWide(),
    T.VerticalFlip(),
    T.ToDtype("float32", scale=True),
    T.Normalize((0.5,), (0.25,)),
]


def test_every_op_runs(client, paired):
    mix = {"MixUp", "CutMix"}
    others = {
        "AutoAugmentPolicy",
        "InterpolationMode",
        "Transform",
        "from_torchvision",
    }
    names = {type(op).__name__ for op in EVERY_OP}
    on_sequences = set(sequences.__all__)  # sequences_test.py
    assert names | mix | others | on_sequences == set(T.__all__)
    for op in EVERY_OP:
        transforms = [op]
        if isinstance(op, (T.Normalize, T.GaussianNoise)):
            transforms.insert(0, T.ToDtype("float32"))
        told = client.explain(paired, transforms, indices=range(4))
        # A policy may draw an op without effect, which is left out.
        if not isinstance(op, (T.RandAugment, T.TrivialAugmentWide)):
            assert [bool(ops) for ops in told] == [True] * 4, op
        with datasetd.DataLoader(
            paired, batch_size=4, transforms=transforms, framework="numpy"
        ) as loader:
            image = next(iter(loader)).image
            assert image.shape[:2] == (4, 3), op
            assert np.isfinite(image).all(), op


@pytest.mark.parametrize(
    "op", [op for op in EVERY_OP if not op._takes_masks], ids=repr
)
def test_the_daemon_refuses_colour_ops_on_masks(client, paired, op):
    # As a client that does not look would send it.
    fields = {"mask": {"transforms": [op.to_message()]}}
    message = {"dataset": paired.name, "batch_size": 1, "fields": fields}
    options = feeds.Options(paired, message, "numpy")
    with pytest.raises(
        datasetd.InvalidArgument, match="field 'mask', transforms.*is a mask"
    ):
        feed.Feed(feeds.Feeds(options), message)
