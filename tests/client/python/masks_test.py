"""Masks: which images hold classes, in files and pushes, and what loaders say
of them."""

import io
import itertools
import os
import tarfile
import warnings

import datasetd
import numpy as np
import pytest
import torch
from datasetd import transforms as T
from datasetd.sources import _names
from PIL import Image

_IS_FULL = os.environ.get("DATASETD_TEST_FULL") == "1"
_NUMBERS = itertools.count()
_RANDOM = np.random.default_rng(8)
_CLASSES = _RANDOM.choice(np.array([0, 7, 255], np.uint8), (8, 16, 16))
_PHOTOS = _RANDOM.integers(0, 256, (8, 16, 16, 3), np.uint8)
_PALETTE = _RANDOM.integers(0, 256, 768).tolist()


def _name():
    return f"masks-{next(_NUMBERS)}"


def _palette(classes):
    image = Image.fromarray(classes, "L")
    image = Image.frombytes("P", image.size, image.tobytes())
    image.putpalette(_PALETTE)
    return image


def _png(image):
    file = io.BytesIO()
    image.save(file, "png")
    return file.getvalue()


def _kinds(dataset):
    return {
        field.name: "mask" if field.is_mask else
        "image" if field.is_image else "array"
        for field in dataset.fields
    }


_MASKS = [
    "mask", "masks", "seg", "segmentation", "segmentation_mask", "target_mask",
    "mask_0", "maskTarget", "gt_masks", "label_map", "annotation",
    "annotations", "trimap", "instance_seg", "label", "labels",
]
_BESIDE_COLOURS = ["target", "gt", "ground_truth", "targets", "y"]
_IMAGES = ["depth", "grey", "photo", "other", "masked", "targeted"]
_BY_NAME = [
    *[(name, "mask", "mask") for name in _MASKS],
    *[(name, "mask", "image") for name in _BESIDE_COLOURS],
    *[(name, "image", "image") for name in _IMAGES],
]


# The daemon names the fields of some files, and the client all others: every
# name in one of each, and one of each kind of names in the rest.
_WAYS = {"npy": _BY_NAME, "columns": _BY_NAME}
for _way in ("samples", "npz", "tensors"):
    _WAYS[_way] = _BY_NAME if _IS_FULL else [
        _BY_NAME[0], _BY_NAME[len(_MASKS)], _BY_NAME[-1]
    ]  # fmt: skip


@pytest.mark.parametrize(
    "way, name, beside_colours, beside_grey",
    [(way, *row) for way, rows in _WAYS.items() for row in rows],
)
def test_names_of_masks(
    client, data_root, tmp_path, way, name, beside_colours, beside_grey
):
    for photos, want in (
        (_PHOTOS, beside_colours), (_PHOTOS[..., 0], beside_grey)
    ):
        data = {"image": photos, name: _CLASSES}
        if way == "npy":
            folder = data_root / _name()
            folder.mkdir()
            for field, array in data.items():
                np.save(folder / f"{field}.npy", array)
            dataset = client.load_dataset(_name(), "npy", folder)
        elif way == "npz":
            np.savez(tmp_path / "a.npz", **data)
            dataset = client.load_dataset(_name(), "npz", tmp_path / "a.npz")
        else:
            if way == "tensors":
                planes = photos[..., None] if photos.ndim == 3 else photos
                data = {
                    "image": torch.from_numpy(planes).permute(0, 3, 1, 2),
                    name: torch.from_numpy(_CLASSES)[:, None],
                }
            if way != "columns":
                data = [dict(zip(data, row)) for row in zip(*data.values())]
            dataset = client.push_dataset(_name(), data)
        with dataset:
            assert _kinds(dataset) == {"image": "image", name: want}
            np.testing.assert_array_equal(
                dataset.column(name)[:, 0], _CLASSES
            )
        client.unload_dataset(dataset.name)


def test_the_daemon_and_the_client_know_the_same_names(client, data_root):
    """Every name of the client's lists, in files that the daemon reads."""
    folder = data_root / _name()
    folder.mkdir()
    np.save(folder / "image.npy", _PHOTOS)
    names = [
        *_names.MASK_WORDS, *_names.MASK_NAMES, *_names.TARGET_NAMES
    ]  # fmt: skip
    for name in names:
        np.save(folder / f"{name}.npy", _CLASSES)
    with client.load_dataset(_name(), "npy", folder) as dataset:
        kinds = _kinds(dataset)
        assert {name: kinds[name] for name in names} == dict.fromkeys(
            names, "mask"
        )
    options = {"masks": "-gt", "images": "target"}
    with client.load_dataset(
        _name(), "npy", folder, options=options
    ) as dataset:
        kinds = _kinds(dataset)
        assert kinds["gt"] == kinds["target"] == "image"
        assert kinds["seg"] == "mask"


def test_what_only_looks_like_a_mask_stays(client):
    data = {
        "image": _PHOTOS,
        "target": _PHOTOS,  # of colours
        "gt": _CLASSES.astype(np.float32)[..., None],
        "labels": _CLASSES[:, 0],
        "label": np.arange(8),
    }
    with client.push_dataset(_name(), data) as dataset:
        assert _kinds(dataset) == {
            "image": "image", "target": "image", "gt": "image",
            "labels": "array", "label": "array",
        }
    data = {"image": _PHOTOS, "target": _CLASSES}
    with client.push_dataset(
        _name(), data, fields={"image": "image", "target": "image"}
    ) as dataset:
        assert _kinds(dataset)["target"] == "image"


@pytest.mark.parametrize("name", ["mask", "seg", "target", "label"])
@pytest.mark.parametrize("way", ["pil", "png"])
def test_palettes_keep_their_indices_where_they_are_masks(client, name, way):
    make = _palette if way == "pil" else lambda one: _png(_palette(one))
    photo = Image.fromarray if way == "pil" else (
        lambda one: _png(Image.fromarray(one)))
    samples = [
        {"image": photo(image), name: make(classes)}
        for image, classes in zip(_PHOTOS, _CLASSES)
    ]
    with client.push_dataset(_name(), samples) as dataset:
        assert _kinds(dataset)[name] == "mask"
        np.testing.assert_array_equal(dataset.column(name)[:, 0], _CLASSES)


@pytest.fixture
def folders(data_root):
    """images/a/N.png, and masks/a/N.png of grey, or palettes/a/N.png."""
    root = data_root / _name()
    for kind in ("images", "masks", "palettes", "photos"):
        (root / kind / "a").mkdir(parents=True)
    for i, (photo, classes) in enumerate(zip(_PHOTOS, _CLASSES)):
        image = Image.fromarray(photo)
        image.save(root / "images" / "a" / f"{i}.png")
        image.save(root / "photos" / "a" / f"{i}.png")
        Image.fromarray(classes).save(root / "masks" / "a" / f"{i}.png")
        _palette(classes).save(root / "palettes" / "a" / f"{i}.png")
    return root


@pytest.mark.parametrize("name", ["mask", "masks", "seg", "target", "gt"])
@pytest.mark.parametrize("kind", ["masks", "palettes"])
@pytest.mark.parametrize("channels", [{}, {"1.channels": "1"}])
def test_a_join_of_images_and_masks(client, folders, name, kind, channels):
    options = {
        "parts": f"image_folder:images,image_folder:{kind}",
        "fields": f"image:0.image,{name}:1.image",
        **channels,
    }
    with client.load_dataset(
        _name(), "join", folders, options=options
    ) as dataset:
        assert _kinds(dataset) == {"image": "image", name: "mask"}
        np.testing.assert_array_equal(dataset.column(name)[:, 0], _CLASSES)
        np.testing.assert_array_equal(
            dataset.column("image"), np.moveaxis(_PHOTOS, 3, 1)
        )


def test_arrays_of_a_join_that_are_masks(client, folders):
    (folders / "arrays").mkdir()
    np.save(folders / "arrays" / "codes.npy", _CLASSES)
    for name, want in (("seg", "mask"), ("target", "mask"), ("x", "image")):
        options = {"parts": "image_folder:images,npy:arrays",
                   "fields": f"image:0.image,{name}:1.codes"}
        with client.load_dataset(
            _name(), "join", folders, options=options
        ) as dataset:
            assert _kinds(dataset) == {"image": "image", name: want}
            np.testing.assert_array_equal(dataset.column(name)[:, 0], _CLASSES)


def test_a_part_of_a_join_that_can_be_no_mask(client, folders):
    options = {"parts": "image_folder:images,image_folder:photos"}
    with pytest.raises(
        datasetd.InvalidArgument, match="a mask is a PNG with one channel"
    ):
        client.load_dataset(_name(), "join", folders, options={
            **options, "fields": "image:0.image,mask:1.image"})
    for name, want in (("target", "image"), ("other", "image")):
        with client.load_dataset(_name(), "join", folders, options={
            **options, "fields": f"image:0.image,{name}:1.image"
        }) as dataset:
            assert _kinds(dataset)[name] == want


@pytest.mark.parametrize("ending", ["mask", "seg", "gt"])
def test_palettes_in_a_webdataset(client, data_root, ending):
    path = data_root / f"{_name()}.tar"
    with tarfile.open(path, "w") as file:
        for i, (photo, classes) in enumerate(zip(_PHOTOS, _CLASSES)):
            for name, image in (
                (f"{i}.png", Image.fromarray(photo)),
                (f"{i}.{ending}.png", _palette(classes)),
            ):
                data = _png(image)
                info = tarfile.TarInfo(name)
                info.size = len(data)
                file.addfile(info, io.BytesIO(data))
    with client.load_dataset(_name(), "webdataset", path) as dataset:
        assert _kinds(dataset) == {"image": "image", ending: "mask"}
        np.testing.assert_array_equal(dataset.column(ending)[:, 0], _CLASSES)


def _peek(dataset, transforms):
    with datasetd.DataLoader(
        dataset, 8, transforms=transforms, framework="numpy"
    ) as loader:
        return loader.peek()


@pytest.mark.parametrize("name", ["target", "masks", "segmentation"])
@pytest.mark.parametrize(
    "op",
    [lambda fields: T.RandomRotation(
        30, interpolation="bilinear", fields=fields),
     lambda fields: T.RandomResizedCrop(12, fields=fields),
     lambda fields: T.Resize((9, 9), fields=fields)],
    ids=["rotation", "crop", "resize"],
)
def test_masks_by_name_are_not_interpolated(client, name, op):
    with client.push_dataset(
        _name(), {"image": _PHOTOS, name: _CLASSES}
    ) as dataset:
        batch = _peek(dataset, [op(["image", name])])
        assert set(np.unique(batch[name])) <= {0, 7, 255}


def test_a_grey_image_that_shares_a_bilinear_op_is_warned_of(client):
    both = ["image", "codes"]
    rotation = T.RandomRotation(30, interpolation="bilinear", fields=both)
    data = {"image": _PHOTOS, "codes": _CLASSES}
    with client.push_dataset(_name(), data) as dataset:
        with pytest.warns(
            UserWarning,
            match="values of 'codes' .*interpolated.*"
            r"fields=\{'codes': 'mask'\}",
        ) as seen:
            _peek(dataset, [rotation])
            _peek(dataset, [rotation])
        assert len(seen) == 1
    for transforms in (
        [T.RandomApply([rotation], fields=both)],
        {"image": [T.Resize(8)], "codes": [T.Resize(8)]},
    ):
        with client.push_dataset(_name(), data) as dataset:
            with pytest.warns(UserWarning, match="values of 'codes'"):
                _peek(dataset, transforms)
    for data, transforms in (
        (data, [T.RandomHorizontalFlip(fields=both)]),
        (data, [T.RandomRotation(30, fields=both)]),  # nearest
        ({**data, "codes": _PHOTOS}, [rotation]),
        ({"image": _PHOTOS[..., 0], "codes": _CLASSES}, [rotation]),
    ):
        with client.push_dataset(_name(), data) as dataset:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                _peek(dataset, transforms)


@pytest.mark.parametrize(
    "op",
    [T.RandomHorizontalFlip(), T.RandomRotation(30), T.RandomResizedCrop(16),
     T.RandomApply([T.RandomVerticalFlip()]), T.RandAugment()],
    ids=lambda op: type(op).__name__,
)
def test_a_mask_left_behind_its_image_is_warned_of(client, op):
    data = {"image": _PHOTOS, "mask": _CLASSES}
    with client.push_dataset(_name(), data) as dataset:
        with pytest.warns(
            UserWarning,
            match=r"moves the pixels of 'image', which.*mask 'mask'.*"
            r"fields=\['image', 'mask'\] changes them alike",
        ) as seen:
            _peek(dataset, [op])
            _peek(dataset, [op])
        assert len(seen) == 1


def test_what_leaves_no_mask_behind(client):
    data = {"image": _PHOTOS, "mask": _CLASSES}
    with client.push_dataset(_name(), data) as dataset:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for transforms in (
                [T.RandomHorizontalFlip(fields=["image", "mask"])],
                [T.RandomHorizontalFlip(fields="image")],
                [T.Resize(8), T.Resize(8, fields="mask")],
                {"image": [T.RandomHorizontalFlip()]},
                [T.ColorJitter(0.5), T.ToDtype("float32", scale=True)],
            ):
                _peek(dataset, transforms)
            with datasetd.DataLoader(
                dataset, 8, fields=["image"],
                transforms=[T.RandomHorizontalFlip()],
            ):
                pass


def test_a_pretransform_that_leaves_a_mask_behind(client, folders):
    words = "pretransforms: CenterCrop.*moves the pixels of 'image', which"
    with pytest.warns(UserWarning, match=words):
        client.push_dataset(
            _name(), {"image": _PHOTOS, "mask": _CLASSES},
            pretransforms=[T.CenterCrop(8)],
        ).close()
    options = {
        "parts": "image_folder:images,image_folder:masks",
        "fields": "image:0.image,mask:1.image",
    }
    with pytest.warns(UserWarning, match=words):
        client.load_dataset(
            _name(), "join", folders, options=options,
            pretransforms=[T.CenterCrop(8)],
        ).close()
