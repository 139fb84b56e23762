"""The importer: torchvision 0.14's objects, and v2's by their attributes."""

import collections
import functools
import warnings

import datasetd
import numpy as np
import pytest
import torch
import torchvision.transforms as V
from datasetd import transforms as T
from datasetd.transforms._checks import FillByKind
from datasetd.transforms._pipeline import pipelines_message

BILINEAR = V.InterpolationMode.BILINEAR

# (torchvision's op, ours)
SAME = [
    (V.CenterCrop((3, 4)), T.CenterCrop((3, 4))),
    (V.ColorJitter(), T.ColorJitter()),
    (
        V.ColorJitter(0.4, (0.5, 2), 0.3, 0.1),
        T.ColorJitter(0.4, (0.5, 2), 0.3, 0.1),
    ),
    (V.GaussianBlur((3, 5), (0.5, 1)), T.GaussianBlur((3, 5), (0.5, 1))),
    (V.GaussianBlur(3, 1.0), T.GaussianBlur(3, 1.0)),
    (V.Grayscale(3), T.Grayscale(3)),
    (V.Normalize((0.5, 0.4), (0.1, 0.2)), T.Normalize((0.5, 0.4), (0.1, 0.2))),
    (V.Pad((1, 2), 3, "constant"), T.Pad((1, 2), 3, "constant")),
    (V.Pad((1, 2, 3, 4), padding_mode="edge"), T.Pad((1, 2, 3, 4), 0, "edge")),
    (
        V.AutoAugment(V.AutoAugmentPolicy.SVHN, BILINEAR, 5),
        T.AutoAugment("svhn", "bilinear", 5),
    ),
    (V.AutoAugment(), T.AutoAugment()),
    (
        V.RandAugment(3, 8, 11, BILINEAR, (1, 2, 3)),
        T.RandAugment(3, 8, 11, "bilinear", (1, 2, 3)),
    ),
    (V.RandAugment(), T.RandAugment()),
    (
        V.TrivialAugmentWide(11, BILINEAR, 5),
        T.TrivialAugmentWide(11, "bilinear", 5),
    ),
    (V.TrivialAugmentWide(), T.TrivialAugmentWide()),
    (
        V.RandomPerspective(0.25, 0.125, V.InterpolationMode.NEAREST, 5),
        T.RandomPerspective(0.25, 0.125, "nearest", 5),
    ),
    (V.RandomPerspective(), T.RandomPerspective()),
    (V.RandomAdjustSharpness(2, 0.25), T.RandomAdjustSharpness(2, 0.25)),
    (
        V.RandomAffine(
            (1, 2), (0.1, 0.2), (0.5, 2), (1, 2, 3, 4), BILINEAR, 5, (6, 7)
        ),
        T.RandomAffine(
            (1, 2), (0.1, 0.2), (0.5, 2), (1, 2, 3, 4), "bilinear", 5, (6, 7)
        ),
    ),
    (V.RandomAffine(10, shear=3), T.RandomAffine(10, shear=3)),
    (V.RandomAutocontrast(0.25), T.RandomAutocontrast(0.25)),
    (
        V.RandomCrop((3, 4), (1, 2, 3, 4), True, 5, "constant"),
        T.RandomCrop((3, 4), (1, 2, 3, 4), True, 5, "constant"),
    ),
    (V.RandomCrop(3), T.RandomCrop(3)),
    (V.RandomEqualize(0.25), T.RandomEqualize(0.25)),
    (
        V.RandomErasing(0.25, (0.1, 0.2), (0.5, 2), (1, 2, 3)),
        T.RandomErasing(0.25, (0.1, 0.2), (0.5, 2), (1, 2, 3)),
    ),
    (V.RandomErasing(value="random"), T.RandomErasing(value="random")),
    (V.RandomGrayscale(), T.RandomGrayscale()),
    (V.RandomHorizontalFlip(0.25), T.RandomHorizontalFlip(0.25)),
    (V.RandomInvert(0.25), T.RandomInvert(0.25)),
    (V.RandomPosterize(3, 0.25), T.RandomPosterize(3, 0.25)),
    (
        V.RandomResizedCrop(8, (0.2, 0.9), (0.5, 2), antialias=True),
        T.RandomResizedCrop(8, (0.2, 0.9), (0.5, 2)),
    ),
    (
        V.RandomRotation((1, 2), BILINEAR, False, (3, 4), 5),
        T.RandomRotation((1, 2), "bilinear", False, (3, 4), 5),
    ),
    (V.RandomSolarize(100, 0.25), T.RandomSolarize(100, 0.25)),
    (V.RandomVerticalFlip(0.25), T.RandomVerticalFlip(0.25)),
    (V.Resize(8, max_size=9, antialias=True), T.Resize(8, max_size=9)),
    (V.Resize([8], antialias=True), T.Resize(8)),
    (
        V.Resize((8, 9), V.InterpolationMode.NEAREST),
        T.Resize((8, 9), "nearest", antialias=False),
    ),
    (V.ToTensor(), T.ToDtype("float32", scale=True)),
    (V.ConvertImageDtype(torch.float16), T.ToDtype("float16", scale=True)),
    (
        V.RandomApply([V.ColorJitter(0.4), V.Grayscale(3)], 0.8),
        T.RandomApply([T.ColorJitter(0.4), T.Grayscale(3)], 0.8),
    ),
    (
        V.RandomApply(torch.nn.ModuleList([V.RandomInvert()]), 0.8),
        T.RandomApply([T.RandomInvert()], 0.8),
    ),
]


@pytest.mark.parametrize("theirs, ours", SAME, ids=lambda op: type(op).__name__)
def test_an_op_becomes_its_own(theirs, ours):
    assert T.from_torchvision(theirs) == [ours]


def test_containers_are_opened_in_order():
    flip, blur = V.RandomHorizontalFlip(), V.GaussianBlur(3)
    expected = [T.RandomHorizontalFlip(), T.GaussianBlur(3)]
    for pipeline in (
        V.Compose([flip, blur]),
        [flip, blur],
        (flip, [V.Compose([blur])]),
        torch.nn.Sequential(flip, torch.nn.Identity(), blur),
        torch.nn.ModuleList([flip, blur]),
        V.Compose([flip, torch.nn.Sequential(blur)]),
        [T.RandomHorizontalFlip(), blur],
    ):
        assert T.from_torchvision(pipeline) == expected
    assert T.from_torchvision(V.Compose([])) == []


def test_the_transforms_of_weights():
    presets = __import__(
        "torchvision.transforms._presets", fromlist=["ImageClassification"]
    )
    preset = presets.ImageClassification(crop_size=224, resize_size=232)
    expected = [
        T.Resize(232),
        T.CenterCrop(224),
        T.ToDtype("float32", scale=True),
        T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ]
    assert T.from_torchvision(preset) == expected
    # As newer versions have it.
    preset.antialias = False
    assert T.from_torchvision(preset)[0] == T.Resize(232, antialias=False)
    for maker in (
        functools.partial(presets.ImageClassification, crop_size=224),
        presets.ImageClassification,
        V.RandomHorizontalFlip,
    ):
        with pytest.raises(
            datasetd.InvalidArgument, match="makes a transform.*call it"
        ):
            T.from_torchvision(maker)


def test_containers_of_pixels_are_left_out():
    assert T.from_torchvision(
        [V.ToPILImage(), V.RandomInvert(), V.PILToTensor()]
    ) == [T.RandomInvert()]


def test_the_usual_imagenet_pipeline():
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    assert T.from_torchvision(
        V.Compose(
            [
                V.RandomResizedCrop(224),
                V.RandomHorizontalFlip(),
                V.ToTensor(),
                V.Normalize(mean, std),
                V.RandomErasing(0.1),
            ]
        )
    ) == [
        T.RandomResizedCrop(224),
        T.RandomHorizontalFlip(),
        T.ToDtype("float32", scale=True),
        T.Normalize(mean, std),
        T.RandomErasing(0.1),
    ]


def antialias_of(*ops):
    return [
        op.antialias
        for op in T.from_torchvision(list(ops))
        if hasattr(op, "antialias")
    ]


def test_antialias_is_what_torchvision_does():
    # On tensors as the op says, on Pillow's images always.
    assert antialias_of(V.Resize(8)) == [False]
    assert antialias_of(V.Resize(8, antialias=False)) == [False]
    assert antialias_of(V.Resize(8, antialias=True)) == [True]
    for to_tensor in (V.ToTensor(), V.PILToTensor()):
        assert antialias_of(V.Resize(8), to_tensor, V.Resize(4)) == [
            True,
            False,
        ]
        assert antialias_of(V.RandomResizedCrop(8), to_tensor) == [True]
        assert antialias_of(
            V.Resize(8), V.ToPILImage(), V.Resize(4), to_tensor, V.Resize(2)
        ) == [False, True, False]
    group = T.from_torchvision([V.RandomApply([V.Resize(8)]), V.ToTensor()])
    assert group[0].transforms[0].antialias is True


def test_nearest_of_pillow_is_at_the_centres_of_pixels():
    nearest = V.InterpolationMode.NEAREST

    def modes(*ops):
        made = T.from_torchvision(list(ops))
        return [op.interpolation for op in made if type(op) is T.Resize]

    resize = V.Resize(8, nearest)
    assert modes(resize) == ["nearest"]
    assert modes(resize, V.ToTensor(), resize) == ["nearest-exact", "nearest"]
    assert modes(
        resize, V.ToPILImage(), V.RandomInvert(), resize, V.ToTensor(), resize
    ) == ["nearest", "nearest-exact", "nearest"]
    image = torch.arange(30, dtype=torch.uint8).reshape(1, 5, 6)
    small = V.Compose(
        [V.ToPILImage(), V.Resize((3, 4), nearest), V.PILToTensor()]
    )(image)
    want = torch.nn.functional.interpolate(
        image[None].float(), (3, 4), mode="nearest-exact"
    )
    assert (small == want[0]).all()
    crop = V.RandomResizedCrop(8, interpolation=nearest)
    (made, _) = T.from_torchvision([crop, V.ToTensor()])
    assert made.interpolation == "nearest-exact"


# -- v2 ------------------------------------------------------------------------


def v2(name, **attributes):
    """An op of torchvision.transforms.v2, as far as the importer sees it."""
    kind = type(name, (), {"__module__": "torchvision.transforms.v2._any"})
    op = kind()
    for key, value in attributes.items():
        setattr(op, key, value)
    return op


class Image:
    """Stands for torchvision.tv_tensors.Image."""


class Mask:
    """Stands for torchvision.tv_tensors.Mask."""


class BoundingBoxes:
    """Stands for torchvision.tv_tensors.BoundingBoxes."""


V2 = [
    # v2's RandomCrop keeps left, right, top, bottom.
    (
        v2(
            "RandomCrop",
            size=(8, 9),
            padding=[1, 2, 3, 4],
            pad_if_needed=True,
            fill={Image: 5, Mask: 255},
            padding_mode="constant",
        ),
        T.RandomCrop(
            (8, 9), (1, 3, 2, 4), True, FillByKind(5, 255), "constant"
        ),
    ),
    (
        v2("Pad", padding=[1, 2, 3, 4], fill=0, padding_mode="reflect"),
        T.Pad((1, 2, 3, 4), 0, "reflect"),
    ),
    (
        v2(
            "Resize",
            size=[8],
            interpolation=BILINEAR,
            max_size=None,
            antialias=True,
        ),
        T.Resize(8),
    ),
    (
        v2(
            "Resize",
            size=[8],
            interpolation=BILINEAR,
            max_size=None,
            antialias="warn",
        ),
        T.Resize(8, antialias=False),
    ),
    (
        v2(
            "Resize",
            size=None,
            interpolation=BILINEAR,
            max_size=9,
            antialias=True,
        ),
        T.Resize(None, max_size=9),
    ),
    (
        v2(
            "RandomErasing",
            p=0.5,
            scale=(0.02, 0.33),
            ratio=(0.3, 3.3),
            value=None,
        ),
        T.RandomErasing(value="random"),
    ),
    (
        v2(
            "RandomRotation",
            degrees=[-3.0, 3.0],
            interpolation=BILINEAR,
            expand=False,
            center=None,
            fill={"others": 7},
        ),
        T.RandomRotation(3, "bilinear", fill=FillByKind(7, 7)),
    ),
    (
        v2(
            "ColorJitter",
            brightness=(0.6, 1.4),
            contrast=None,
            saturation=None,
            hue=(-0.1, 0.1),
        ),
        T.ColorJitter((0.6, 1.4), hue=(-0.1, 0.1)),
    ),
    (
        v2(
            "AutoAugment",
            policy=V.AutoAugmentPolicy.CIFAR10,
            interpolation=BILINEAR,
            fill={Image: 7, "others": None},
        ),
        T.AutoAugment("cifar10", "bilinear", FillByKind(7, None)),
    ),
    # As of torchvision 0.15.
    (
        v2(
            "TrivialAugmentWide",
            num_magnitude_bins=31,
            interpolation=BILINEAR,
            fill=collections.defaultdict(lambda: 128),
        ),
        T.TrivialAugmentWide(31, "bilinear", FillByKind(128, 128)),
    ),
    (
        v2(
            "TrivialAugmentWide",
            num_magnitude_bins=31,
            interpolation=BILINEAR,
            fill=collections.defaultdict(lambda: None),
        ),
        T.TrivialAugmentWide(31, "bilinear", FillByKind(None, None)),
    ),
    (v2("ToDtype", dtype=torch.float16), T.ToDtype("float16")),
    (
        v2("GaussianNoise", mean=0.25, sigma=0.5, clip=False),
        T.GaussianNoise(0.25, 0.5, False),
    ),
    (
        v2("ToDtype", dtype=torch.float16, scale=True),
        T.ToDtype("float16", scale=True),
    ),
    (
        v2("ToDtype", dtype={Image: torch.float32, "others": None}, scale=True),
        T.ToDtype("float32", scale=True),
    ),
    (
        v2("MixUp", alpha=0.5, num_classes=10),
        T.MixUp(alpha=0.5, num_classes=10),
    ),
    (
        v2("CutMix", alpha=1.0, num_classes=10),
        T.CutMix(alpha=1.0, num_classes=10),
    ),
]


@pytest.mark.parametrize("theirs, ours", V2, ids=lambda op: type(op).__name__)
def test_v2s_attributes(theirs, ours):
    assert T.from_torchvision(theirs) == [ours]


def test_v2s_compose_and_image_ops():
    compose = v2(
        "Compose",
        transforms=[
            v2("ToImage"),
            v2("RandomHorizontalFlip", p=0.25),
            v2("ToPureTensor"),
        ],
    )
    assert T.from_torchvision(compose) == [T.RandomHorizontalFlip(0.25)]


# -- Masks --------------------------------------------------------------------

SEGMENTATION = [
    v2("ToImage"),
    v2(
        "RandomCrop",
        size=(8, 9),
        padding=None,
        pad_if_needed=True,
        fill=3,
        padding_mode="constant",
    ),
    v2("RandomHorizontalFlip", p=0.5),
    v2(
        "RandomApply",
        transforms=[
            v2("RandomGrayscale", p=0.1),
            v2("RandomVerticalFlip", p=0.5),
        ],
        p=0.7,
    ),
    v2("RandomApply", transforms=[v2("RandomGrayscale", p=0.1)], p=0.7),
    v2(
        "ToDtype",
        dtype={Image: torch.float32, Mask: torch.float16, "others": None},
        scale=True,
    ),
    v2("Normalize", mean=[0.5], std=[0.25], inplace=False),
]


def test_geometry_of_v2_moves_masks():
    both, image = ("img", "classes"), ("img",)
    assert T.from_torchvision(SEGMENTATION, ["classes"], "img") == [
        T.RandomCrop((8, 9), None, True, FillByKind(3, 3), fields=both),
        T.RandomHorizontalFlip(fields=both),
        T.RandomApply(
            [
                T.RandomGrayscale(fields=image),
                T.RandomVerticalFlip(fields=both),
            ],
            0.7,
            fields=both,
        ),
        T.RandomApply([T.RandomGrayscale(fields=image)], 0.7, fields=both),
        T.ToDtype("float32", scale=True, fields=image),
        T.ToDtype("float16", fields=("classes",)),
        T.Normalize([0.5], [0.25], fields=image),
    ]


def test_a_pipeline_of_v2_is_for_the_masks_of_the_dataset():
    def names(ops, **arguments):
        messages = pipelines_message(
            "transforms", ops, ["mask"], moved=["mask"], **arguments
        )
        return {
            field: [name for m in ops for name in m if name != "draw_id"]
            for field, ops in messages.items()
        }

    image_only = ["to_dtype", "normalize"]
    assert names(v2("Compose", transforms=SEGMENTATION)) == {
        "image": ["random_crop", "random_horizontal_flip"]
        + ["random_apply"] * 2
        + image_only,
        "mask": ["random_crop", "random_horizontal_flip"]
        + ["random_apply", "to_dtype"],
    }
    # v1's, and a list for a field, are for images alone.
    assert names(V.RandomHorizontalFlip()) == {
        "image": ["random_horizontal_flip"]
    }
    assert names({"image": v2("RandomHorizontalFlip", p=0.5)}) == {
        "image": ["random_horizontal_flip"]
    }


@pytest.fixture
def segmented(client):
    rng = np.random.default_rng(0)
    shape = (16, 8, 8)
    with client.push_dataset(
        "segmented",
        {
            "image": rng.integers(0, 256, (*shape, 3), dtype=np.uint8),
            "mask": rng.integers(0, 3, shape, dtype=np.uint8),
        },
        fields={"image": "image", "mask": "mask"},
    ) as dataset:
        yield dataset


def first_batch(dataset, transforms, **arguments):
    with datasetd.DataLoader(
        dataset, batch_size=16, seed=1, transforms=transforms, **arguments
    ) as loader:
        return [array.clone() for array in next(iter(loader))]


def test_a_loader_takes_the_usual_pipeline_of_segmentation(segmented):
    flip = v2("RandomHorizontalFlip", p=0.5)
    dtype = {Image: torch.float32, Mask: torch.float16, "others": None}
    image, mask = first_batch(
        segmented,
        v2(
            "Compose", transforms=[flip, v2("ToDtype", dtype=dtype, scale=True)]
        ),
    )
    assert image.dtype == torch.float32
    assert mask.dtype == torch.float16
    plain_image, plain_mask = first_batch(segmented, None)
    flipped = (mask != plain_mask).flatten(1).any(1)
    assert 0 < flipped.sum() < 16
    for row, is_flipped in enumerate(flipped):
        dims = (2,) if is_flipped else ()
        assert torch.equal(mask[row], plain_mask[row].flip(dims).half())
        assert torch.equal(
            image[row], plain_image[row].flip(dims).float() / 255
        )


@pytest.fixture
def paired(client):
    pixels = np.random.default_rng(0).integers(0, 256, (16, 8, 8, 3), np.uint8)
    columns = {name: pixels for name in ("image", "target", "third")}
    with client.push_dataset(
        "paired", columns, fields=dict.fromkeys(columns, "image")
    ) as dataset:
        yield dataset


def test_a_pipeline_of_v2_is_not_for_one_image_of_several(paired):
    flip = v2("RandomHorizontalFlip", p=0.5)
    pair = ["image", "target"]
    with pytest.raises(
        datasetd.InvalidArgument,
        match=r"images of a sample alike, here \['image', 'target'\], .*"
        r"T.CenterCrop\(224, fields=\['image', 'target'\]\); "
        r"for 'image' alone pass {'image': pipeline}; .*{'target': 'mask'}",
    ):
        first_batch(paired, flip, fields=pair)
    with pytest.raises(
        datasetd.InvalidArgument,
        match=r"here \['target', 'third'\], .*"
        r"for 'target' alone pass {'target': pipeline}; ",
    ):
        first_batch(paired, flip, fields=["target", "third"])
    # Each way that the message names.
    image, target = first_batch(
        paired, [T.RandomHorizontalFlip(fields=pair)], fields=pair
    )
    plain, _ = first_batch(paired, None, fields=pair)
    assert torch.equal(image, target)
    assert not torch.equal(image, plain)
    image, target = first_batch(paired, {"image": flip}, fields=pair)
    assert torch.equal(target, plain)
    assert not torch.equal(image, plain)
    # One image of a batch, and a pipeline that changes no pixel.
    first_batch(paired, flip, fields=["image"])
    first_batch(paired, v2("ToImage"))
    # Torchvision's v1 has one image.
    image, target = first_batch(paired, V.RandomHorizontalFlip(), fields=pair)
    assert torch.equal(target, plain)


def test_a_pipeline_of_v2_for_one_image_and_its_masks(client):
    pixels = np.random.default_rng(0).integers(0, 256, (16, 8, 8), np.uint8)
    kinds = {"photo": "image", "mask": "mask", "depth": "image"}
    with client.push_dataset(
        "three", {name: pixels for name in kinds}, fields=kinds
    ) as dataset:
        flip = v2("RandomHorizontalFlip", p=0.5)
        with pytest.raises(
            datasetd.InvalidArgument,
            match=r"pass T.from_torchvision\(pipeline, masks=\['mask'\], "
            r"image='photo'\); if 'depth' is a mask",
        ):
            first_batch(dataset, flip)
        photo, mask, depth = first_batch(
            dataset, T.from_torchvision(flip, masks=["mask"], image="photo")
        )
        assert torch.equal(photo, mask)
        assert not torch.equal(photo, depth)


CROP = v2("CenterCrop", size=[4])


def test_pretransforms_of_v2_move_the_masks_of_a_push(client):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 8, 8), np.uint8)
    samples = [{"image": plane, "mask": plane} for plane in pixels]
    for data, fields in (
        (
            {"photo": pixels, "classes": pixels},
            {"photo": "image", "classes": "mask"},
        ),
        (samples, None),
    ):
        with client.push_dataset(
            "cropped",
            data,
            fields=fields,
            pretransforms=CROP,
            if_exists="replace",
        ) as dataset:
            image, mask = dataset[:]
            assert np.array_equal(image[:, 0], pixels[:, 2:6, 2:6])
            assert np.array_equal(mask, image)
        # Without a mask.
    with client.push_dataset(
        "cropped", {"image": pixels}, pretransforms=CROP, if_exists="replace"
    ) as dataset:
        assert dataset.fields[0].shape == (4, 4, 1)
    with pytest.raises(
        datasetd.InvalidArgument,
        match=r"^pretransforms: .* alike, here \['image', 'target'\]",
    ):
        client.push_dataset(
            "cropped",
            {"image": pixels, "target": pixels},
            pretransforms=CROP,
            if_exists="replace",
        )


def test_a_list_of_pretransforms_is_for_the_only_image_of_a_push(client):
    pixels = np.zeros((3, 8, 8, 3), np.uint8)
    with client.push_dataset(
        "photos", {"photo": pixels}, pretransforms=[T.CenterCrop(4)]
    ) as dataset:
        assert dataset.fields[0].shape == (4, 4, 3)


def test_a_load_warns_of_masks_that_stay(client, data_root):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 8, 8), np.uint8)
    (data_root / "stay").mkdir()
    for name in ("image", "mask"):
        np.save(data_root / "stay" / f"{name}.npy", pixels)

    def mask_of(name, pretransforms):
        with client.load_dataset(
            name, "npy", data_root / "stay", pretransforms=pretransforms
        ) as dataset:
            return dataset.fields[1].shape

    with pytest.warns(
        UserWarning,
        match=r"dataset 'stay' has the masks \['mask'\], .*"
        r"T.from_torchvision\(pipeline, masks=\['mask'\]\)",
    ):
        assert mask_of("stay", CROP) == (8, 8, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        both = T.from_torchvision(CROP, masks=["mask"])
        assert mask_of("both", both) == (4, 4, 1)
        assert mask_of("alone", {"image": CROP}) == (8, 8, 1)
        dtype = v2("ToDtype", dtype=torch.float32, scale=True)
        assert mask_of("floats", dtype) == (8, 8, 1)


@pytest.mark.parametrize("key", [Mask, "others"])
def test_masks_do_not_become_integers(segmented, key):
    def batch_of(dtype):
        return first_batch(segmented, v2("ToDtype", dtype=dtype, scale=True))

    with pytest.raises(
        datasetd.InvalidArgument,
        match=r"transforms\[0\] ToDtype: dtype has int64 for masks; .*"
        r"leave out Mask, .* batch\['mask'\].squeeze\(1\).long\(\)",
    ):
        batch_of({Image: torch.float32, key: torch.int64})
    for same in ({"others": None}, {Mask: torch.uint8}):
        _, mask = batch_of({Image: torch.float32, **same})
        assert mask.dtype == torch.uint8
        assert mask.squeeze(1).long().shape == (16, 8, 8)


@pytest.mark.parametrize(
    "op",
    [
        v2("MixUp", alpha=0.5, num_classes=10),
        v2("RandAugment", num_ops=2),
    ],
    ids=lambda op: type(op).__name__,
)
def test_what_torchvision_has_not_for_masks(op):
    with pytest.raises(
        datasetd.InvalidArgument, match="samples with masks.*'image': "
    ):
        T.from_torchvision([op], masks="mask")


# -- What cannot be mapped ---------------------------------------------------

UNMAPPED = [
    (V.Lambda(lambda x: x), "Lambda: .*training loop"),
    (V.FiveCrop(3), "FiveCrop: .*five images.*CenterCrop"),
    (V.TenCrop(3), "TenCrop: .*ten images"),
    (V.ElasticTransform(), "ElasticTransform: .*RandomAffine"),
    (V.AugMix(), "AugMix: .*RandAugment"),
    (V.RandomChoice([V.Grayscale()]), "RandomChoice: .*RandomApply"),
    (V.RandomOrder([V.Grayscale()]), "RandomOrder: .*one order"),
    (
        V.LinearTransformation(torch.eye(3), torch.zeros(3)),
        "LinearTransformation: .*training loop",
    ),
    (v2("JPEG"), "JPEG: .*leave it out"),
    (
        V.RandomRotation(3, expand=True),
        "RandomRotation: .*expand=True.*on its angle.*CenterCrop.*Pad.*Rotate",
    ),
    (V.ConvertImageDtype(torch.int64), "ConvertImageDtype: .*dtype="),
    (V.Resize(3, V.InterpolationMode.LANCZOS), "Resize: .*interpolation="),
    (torch.nn.Dropout(), "Dropout: .*not a transform of torchvision"),
    (lambda x: x, "<lambda> of .*from_torchvision_test: .*not a transform of"),
    (
        v2("ToDtype", dtype={Mask: torch.int64}, scale=False),
        r"ToDtype: .*key Mask.*masks=\['mask'\]\); .*fields={'mask': 'mask'}",
    ),
    (
        v2("ToDtype", dtype={BoundingBoxes: torch.int64}, scale=False),
        "ToDtype: .*key BoundingBoxes",
    ),
    (
        v2("Pad", padding=1, fill={BoundingBoxes: 1}, padding_mode="constant"),
        "Pad: fill has the key BoundingBoxes",
    ),
    (v2("MixUp", alpha=1.0, num_classes=None), "MixUp: num_classes is None"),
    *(
        (
            v2(
                name,
                transforms=[
                    v2("MixUp", alpha=1.0, num_classes=9),
                    v2("CutMix", alpha=1.0, num_classes=9),
                ],
            ),
            f"{name}: a pipeline can only end with one MixUp or CutMix, .*use "
            "one of them instead, or leave it out here and apply it to the "
            "batches",
        )
        for name in ("RandomChoice", "RandomApply", "RandomOrder")
    ),
]


def test_a_fill_by_type_is_of_fields_of_any_name():
    pad = v2(
        "Pad",
        padding=1,
        fill={Image: 5, Mask: 255},
        padding_mode="constant",
    )
    ops = T.from_torchvision([pad])
    for value in (pad, ops, {"img": ops, "target": ops}):
        messages = pipelines_message(
            "transforms", value, masks=["target"], image="img"
        )
        fills = {
            field: message["pad"]["fill"]
            for field, (message,) in messages.items()
        }
        assert fills["img"] == [5.0]
        assert fills.get("target", [255.0]) == [255.0]
    assert fills.keys() == {"img", "target"}


def rotation(fill):
    return v2(
        "RandomRotation",
        degrees=[-3.0, 3.0],
        interpolation=BILINEAR,
        expand=False,
        center=None,
        fill=fill,
    )


def test_a_fill_of_one_number_is_for_masks_too():
    for fill in (255, [255.0], (255,)):
        (made,) = T.from_torchvision(rotation(fill), masks=["mask"])
        message = made.to_message("mask", is_mask=True)
        assert message["random_rotation"]["fill"] == [255.0]
    with pytest.raises(
        datasetd.InvalidArgument,
        match="RandomRotation: fill has 3 numbers, but masks take one: .*Mask",
    ):
        T.from_torchvision(rotation([1.0, 2.0, 3.0]), masks=["mask"])
    assert T.from_torchvision(rotation([1.0, 2.0, 3.0])) == [
        T.RandomRotation(3, "bilinear", fill=(1, 2, 3))
    ]


def test_a_type_that_a_fill_leaves_out_has_none():
    made = T.from_torchvision([rotation({Mask: 255})])
    assert made == [T.RandomRotation(3, "bilinear", fill=FillByKind(None, 255))]
    # A fill of 0 is blended in at the edges.
    assert made != [T.RandomRotation(3, "bilinear", fill=FillByKind(0, 255))]


@pytest.mark.parametrize("op, text", UNMAPPED, ids=lambda x: "")
def test_what_cannot_be_mapped_is_named_with_its_place(op, text):
    with pytest.raises(
        datasetd.InvalidArgument, match=r"from_torchvision: transforms\[1\] "
    ) as raised:
        T.from_torchvision(V.Compose([V.RandomInvert(), op]))
    raised.match(text)


def test_places_in_groups_are_said():
    with pytest.raises(
        datasetd.InvalidArgument,
        match=r"transforms\[0\] RandomApply: transforms\[1\] Lambda: ",
    ):
        T.from_torchvision(
            V.RandomApply([V.RandomInvert(), V.Lambda(lambda x: x)])
        )


def test_floats_do_not_go_back_to_pillow():
    with pytest.raises(datasetd.InvalidArgument, match="ToPILImage: .*uint8"):
        T.from_torchvision([V.ToTensor(), V.ToPILImage()])


def test_a_class_of_the_same_name_is_not_torchvisions():
    resize = type("Resize", (), {"size": 3})()
    with pytest.raises(datasetd.InvalidArgument, match="not a transform of torchvision"):
        T.from_torchvision(resize)


def test_labels_that_a_function_finds_are_refused():
    def target(batch):
        return batch["target"]

    with pytest.raises(datasetd.InvalidArgument, match="labels_getter"):
        T.from_torchvision(
            v2("CutMix", alpha=1.0, num_classes=9, _labels_getter=target)
        )


# -- What is nobody's ----------------------------------------------------------


class GaussianBlur:  # as MoCo's
    def __init__(self, sigma):
        self.sigma = sigma

    def __call__(self, image):
        return image


class solarize(GaussianBlur):
    pass


class TwoCropsTransform:  # as MoCo's
    def __init__(self, base_transform):
        self.base_transform = base_transform

    def __call__(self, image):
        return [self.base_transform(image), self.base_transform(image)]


class ManyCrops(TwoCropsTransform):  # as DINO's
    def __init__(self, one):
        self.crops = [one, one, one]


@pytest.mark.parametrize("wrap", ["alone", "list", "compose", "own ops"])
@pytest.mark.parametrize(
    "make, words",
    [
        (lambda one: GaussianBlur([0.1, 2.0]), "datasetd.transforms.Gaussian"),
        (lambda one: solarize(0), "use datasetd.transforms.RandomSolarize"),
        (TwoCropsTransform, r"views= of the DataLoader: views=\{'q'"),
        (ManyCrops, r"views= of the DataLoader: views=\{'q'"),
    ],
)
def test_callables_of_scripts_are_answered_with_what_works(
    client, make, words, wrap
):
    flip = V.RandomHorizontalFlip()
    pipeline = make(V.Compose([flip]))
    if wrap == "list":
        pipeline = [flip, pipeline]
    elif wrap == "own ops":
        pipeline = [T.Invert(), pipeline]
    elif wrap == "compose":
        pipeline = V.Compose([flip, pipeline, flip])
    data = {"image": np.zeros((4, 8, 8, 3), np.uint8)}
    with client.push_dataset(None, data) as dataset:
        with pytest.raises(datasetd.InvalidArgument, match=words):
            datasetd.DataLoader(dataset, transforms=pipeline)
