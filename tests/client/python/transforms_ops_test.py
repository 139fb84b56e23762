"""Every op: its message, its defaults, what it refuses; against torchvision."""

import inspect
import json
import os
import subprocess

import datasetd
import numpy as np
import pytest
import torchvision.transforms as V
from datasetd import transforms as T

MODE = "INTERPOLATION_MODE_"

# (op, its message); every parameter that is not the default's. Ops of plain
# parameters alone are in tests/parity/op_table_test.py.
MESSAGES = [
    (
        T.Pad((1, 2, 3, 4), fill=(5, 6, 7), padding_mode="edge"),
        {
            "pad": {
                "padding": {"left": 1, "top": 2, "right": 3, "bottom": 4},
                "fill": [5.0, 6.0, 7.0],
                "padding_mode": "PADDING_MODE_EDGE",
            }
        },
    ),
    (T.CenterCrop((3, 4)), {"center_crop": {"height": 3, "width": 4}}),
    (
        T.RandomCrop((3, 4), 1, True, 2, "constant"),
        {
            "random_crop": {
                "height": 3,
                "width": 4,
                "padding": {"left": 1, "top": 1, "right": 1, "bottom": 1},
                "pad_if_needed": True,
                "fill": [2.0],
                "padding_mode": "PADDING_MODE_CONSTANT",
            }
        },
    ),
    (
        T.Resize((3, 4), "nearest-exact", None, False),
        {
            "resize": {
                "size": {"height": 3, "width": 4},
                "interpolation": MODE + "NEAREST_EXACT",
                "antialias": False,
            }
        },
    ),
    (
        T.ResizedCrop(1, 2, 3, 4, (5, 6), "bicubic", False),
        {
            "resized_crop": {
                "top": 1,
                "left": 2,
                "height": 3,
                "width": 4,
                "size": {"height": 5, "width": 6},
                "interpolation": MODE + "BICUBIC",
                "antialias": False,
            }
        },
    ),
    (
        T.RandomResizedCrop((5, 6), (0.25, 0.5), (0.5, 2), "bicubic", False),
        {
            "random_resized_crop": {
                "size": {"height": 5, "width": 6},
                "scale": {"min": 0.25, "max": 0.5},
                "ratio": {"min": 0.5, "max": 2.0},
                "interpolation": MODE + "BICUBIC",
                "antialias": False,
            }
        },
    ),
    (
        T.Rotate(30, "bilinear", True, (1, 2), 3),
        {
            "rotate": {
                "angle": 30.0,
                "interpolation": MODE + "BILINEAR",
                "expand": True,
                "center": {"x": 1.0, "y": 2.0},
                "fill": [3.0],
            }
        },
    ),
    (
        T.RandomRotation((-3, 4), "bilinear", False, (1, 2), 3),
        {
            "random_rotation": {
                "degrees": {"min": -3.0, "max": 4.0},
                "interpolation": MODE + "BILINEAR",
                "center": {"x": 1.0, "y": 2.0},
                "fill": [3.0],
            }
        },
    ),
    (
        T.Affine(30, (1, 2), 1.5, (3, 4), "bilinear", 5, (6, 7)),
        {
            "affine": {
                "angle": 30.0,
                "translate": {"x": 1.0, "y": 2.0},
                "scale": 1.5,
                "shear": {"x": 3.0, "y": 4.0},
                "interpolation": MODE + "BILINEAR",
                "fill": [5.0],
                "center": {"x": 6.0, "y": 7.0},
            }
        },
    ),
    (
        T.RandomAffine(
            10, (0.1, 0.2), (0.5, 2), (-1, 1, -2, 2), "bilinear", 5, (6, 7)
        ),
        {
            "random_affine": {
                "degrees": {"min": -10.0, "max": 10.0},
                "translate": {"x": 0.1, "y": 0.2},
                "scale": {"min": 0.5, "max": 2.0},
                "shear_x": {"min": -1.0, "max": 1.0},
                "shear_y": {"min": -2.0, "max": 2.0},
                "interpolation": MODE + "BILINEAR",
                "fill": [5.0],
                "center": {"x": 6.0, "y": 7.0},
            }
        },
    ),
    (
        T.ColorJitter(0.25, 1.5, (0.5, 2), 0.125),
        {
            "color_jitter": {
                "brightness": {"min": 0.75, "max": 1.25},
                "contrast": {"min": 0.0, "max": 2.5},
                "saturation": {"min": 0.5, "max": 2.0},
                "hue": {"min": -0.125, "max": 0.125},
            }
        },
    ),
    (
        T.GaussianBlur((3, 5), 2),
        {
            "gaussian_blur": {
                "kernel_size": {"height": 5, "width": 3},
                "sigma": {"min": 2.0, "max": 2.0},
            }
        },
    ),
    (
        T.Erase(1, 2, 3, 4, (5, 6, 7)),
        {
            "erase": {
                "top": 1,
                "left": 2,
                "height": 3,
                "width": 4,
                "value": [5.0, 6.0, 7.0],
            }
        },
    ),
    (
        T.RandomErasing(0.25, (0.1, 0.2), (0.5, 2), "random"),
        {
            "random_erasing": {
                "p": 0.25,
                "scale": {"min": 0.1, "max": 0.2},
                "ratio": {"min": 0.5, "max": 2.0},
                "is_value_random": True,
            }
        },
    ),
    (
        T.RandAugment(3, 8, 11, "bilinear", (1, 2, 3)),
        {
            "rand_augment": {
                "num_ops": 3,
                "magnitude": 8,
                "num_magnitude_bins": 11,
                "interpolation": MODE + "BILINEAR",
                "fill": [1.0, 2.0, 3.0],
            }
        },
    ),
    (
        T.TrivialAugmentWide(11, "bilinear", 5),
        {
            "trivial_augment_wide": {
                "num_magnitude_bins": 11,
                "interpolation": MODE + "BILINEAR",
                "fill": [5.0],
            }
        },
    ),
    (
        T.AutoAugment("svhn", "bilinear", 5),
        {
            "auto_augment": {
                "policy": "AUTO_AUGMENT_POLICY_SVHN",
                "interpolation": MODE + "BILINEAR",
                "fill": [5.0],
            }
        },
    ),
    (
        T.RandomPerspective(0.25, 0.125, "nearest", 5),
        {
            "random_perspective": {
                "distortion_scale": 0.25,
                "p": 0.125,
                "interpolation": MODE + "NEAREST",
                "fill": [5.0],
            }
        },
    ),
    (T.Cutout(8, 1), {"cutout": {"size": 8, "fill": [1.0]}}),
    (
        T.RandomApply([T.Invert(), T.VerticalFlip()], 0.25),
        {
            "random_apply": {
                "transforms": [{"invert": {}}, {"vertical_flip": {}}],
                "p": 0.25,
            }
        },
    ),
    (
        T.ToDtype("bfloat16", True),
        {"to_dtype": {"dtype": "DTYPE_BFLOAT16", "scale": True}},
    ),
    (
        T.Normalize((0.5, 0.25), (1, 2)),
        {"normalize": {"mean": [0.5, 0.25], "std": [1.0, 2.0]}},
    ),
    (
        T.AddNoise("street", 3, 0.5, "sound"),
        {
            "add_noise": {
                "noise": "street",
                "snr": {"min": 3.0, "max": 3.0},
                "p": 0.5,
                "field": "sound",
            }
        },
    ),
]


@pytest.mark.parametrize("op, expected", MESSAGES, ids=lambda x: "")
def test_every_parameter_is_said(op, expected):
    assert op.to_message() == expected


def test_every_op_with_a_sequence_is_tested():
    tested = {type(op).__name__ for op, _ in MESSAGES}
    for name in T.__all__:
        described = getattr(getattr(T, name), "_op", None)
        if described is not None and any(
            parameter.parts or parameter.kind == "list"
            for parameter in described.parameters.values()
        ):
            assert name in tested


def hashes(*pipelines):
    """Returns the daemon's hash, or its error, for each list of messages."""
    lines = [json.dumps({"transforms": list(p)}) for p in pipelines]
    result = subprocess.run(
        [os.path.abspath(os.environ["TRANSFORMS_TO_HASH"])],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=True,
    )
    texts = result.stdout.splitlines()
    assert len(texts) == len(pipelines)
    return texts


def test_the_daemon_understands_every_message():
    for (op, _), text in zip(
        MESSAGES, hashes(*([op.to_message()] for op, _ in MESSAGES))
    ):
        assert not text.startswith("error"), (op, text)


# Parameters whose default is v2's where v1 has another one.
V2_DEFAULTS = {
    ("Resize", "antialias"): True,
    ("RandomResizedCrop", "antialias"): True,
    ("ColorJitter", "brightness"): None,
    ("ColorJitter", "contrast"): None,
    ("ColorJitter", "saturation"): None,
    ("ColorJitter", "hue"): None,
}
SHARED = [
    name
    for name in T.__all__
    if hasattr(V, name)
    and name not in ("InterpolationMode", "AutoAugmentPolicy")
]


def test_what_torchvision_shares():
    assert len(SHARED) >= 20


@pytest.mark.parametrize("name", SHARED)
def test_signatures_are_torchvisions(name):
    ours = inspect.signature(getattr(T, name)).parameters
    theirs = inspect.signature(getattr(V, name)).parameters
    assert [n for n in ours if n != "fields"] == list(theirs)
    for parameter in theirs.values():
        default = V2_DEFAULTS.get((name, parameter.name), parameter.default)
        mine = ours[parameter.name].default
        if isinstance(default, (V.AutoAugmentPolicy, V.InterpolationMode)):
            assert mine.value == default.value
        else:
            assert mine == default, parameter.name


# (class, arguments, what the error says); torchvision's class of that name
# refuses them, too.
REFUSED_BY_BOTH = [
    ("Pad", dict(padding=(1, 2, 3)), "padding="),
    ("Pad", dict(padding=1, fill="red"), "fill="),
    ("Pad", dict(padding=1, padding_mode="wrap"), "padding_mode='wrap'"),
    ("CenterCrop", dict(size=(1, 2, 3)), "size="),
    ("Resize", dict(size="big"), "size="),
    ("Resize", dict(size=(1, 2, 3)), "size="),
    ("RandomResizedCrop", dict(size=(1, 2, 3)), "size="),
    ("RandomResizedCrop", dict(size=8, scale=0.5), "scale=0.5"),
    ("RandomResizedCrop", dict(size=8, ratio=1.0), "ratio=1.0"),
    ("RandomRotation", dict(degrees=-1), "degrees=-1"),
    ("RandomRotation", dict(degrees=(1, 2, 3)), "degrees="),
    ("RandomRotation", dict(degrees=1, center=(1, 2, 3)), "center="),
    ("RandomRotation", dict(degrees=1, fill={3}), "fill="),
    ("RandomAffine", dict(degrees=-1), "degrees=-1"),
    ("RandomAffine", dict(degrees=1, translate=(2, 0)), "translate="),
    ("RandomAffine", dict(degrees=1, translate=0.5), "translate="),
    ("RandomAffine", dict(degrees=1, scale=(0, 1)), "scale="),
    ("RandomAffine", dict(degrees=1, scale=2), "scale="),
    ("RandomAffine", dict(degrees=1, shear=-1), "shear="),
    ("RandomAffine", dict(degrees=1, shear=(1, 2, 3)), "shear="),
    ("RandomAffine", dict(degrees=1, center=3), "center="),
    ("ColorJitter", dict(brightness=-1), "brightness=-1.* 0 or more"),
    ("ColorJitter", dict(contrast=(2, 1)), "contrast="),
    ("ColorJitter", dict(saturation=(-1, 1)), "saturation="),
    ("ColorJitter", dict(saturation=(1, 2, 3)), "saturation="),
    ("ColorJitter", dict(hue=(-0.6, 0.1)), "hue=.* -0.5 to 0.5"),
    ("ColorJitter", dict(hue="blue"), "hue='blue'"),
    ("GaussianBlur", dict(kernel_size=4), "kernel_size=4; expected odd"),
    ("GaussianBlur", dict(kernel_size=0), "kernel_size=0"),
    ("GaussianBlur", dict(kernel_size=(3, 5, 7)), "kernel_size="),
    ("GaussianBlur", dict(kernel_size=3, sigma=0), "sigma="),
    ("GaussianBlur", dict(kernel_size=3, sigma=(2, 1)), "sigma="),
    ("GaussianBlur", dict(kernel_size=3, sigma=(1, 2, 3)), "sigma="),
    ("AutoAugment", dict(policy="mnist"), "policy='mnist'; .*'cifar10'"),
    ("RandomErasing", dict(scale=(-0.1, 0.5)), "scale=.* from 0 to 1"),
    ("RandomErasing", dict(scale=(0.1, 1.5)), "scale=.* from 0 to 1"),
    ("RandomErasing", dict(scale=0.5), "scale=0.5"),
    ("RandomErasing", dict(ratio=0.5), "ratio=0.5"),
    ("RandomErasing", dict(value="noise"), "value='noise'.*'random'"),
    ("RandomErasing", dict(value={}), "value="),
    ("RandomApply", dict(transforms=T.Invert()), "transforms="),
    ("Normalize", dict(mean=(0.5,), std=()), "std="),
]


@pytest.mark.parametrize("name, arguments, text", REFUSED_BY_BOTH)
def test_bad_parameters_are_named(name, arguments, text):
    with pytest.raises(datasetd.InvalidArgument, match=f"{name}: {text}"):
        getattr(T, name)(**arguments)
    if name in ("RandomApply", "Normalize"):
        return  # torchvision finds out when it runs
    with pytest.raises((ValueError, TypeError)):
        getattr(V, name)(**arguments)


# torchvision 0.14 finds these out when it runs, or v2 does, or only we need
# them. The ranges of plain parameters are in tests/parity/op_table_test.py.
REFUSED = [
    (lambda: T.Resize(None), "Resize: max_size=None"),
    (lambda: T.Resize(8, max_size=8), "Resize: max_size=8.* more than"),
    (lambda: T.Resize((8, 8), max_size=9), "Resize: max_size=9"),
    (lambda: T.Resize(np.array(3)), r"Resize: size=array\(3\); expected"),
    (lambda: T.Resize(8, "area"), "Resize: interpolation='area'.*bicubic"),
    (lambda: T.Resize(8, 1), "Resize: interpolation=1"),
    (
        lambda: T.RandomResizedCrop(8, scale=(1, 0.5)),
        "RandomResizedCrop: scale=",
    ),
    (lambda: T.RandomResizedCrop(8, ratio=(0, 1)), "RandomResizedCrop: ratio="),
    (
        lambda: T.RandomRotation(3, expand=True),
        "RandomRotation: expand=True.*one size.*CenterCrop.*Pad.*Rotate",
    ),
    (lambda: T.RandomRotation((2, 1)), "RandomRotation: degrees="),
    (lambda: T.Affine(0, 3, 1, 0), "Affine: translate=3"),
    (lambda: T.Affine(0, (0, 0), 1, (1, 2, 3)), "Affine: shear="),
    (lambda: T.ColorJitter(hue=0.6), "ColorJitter: hue=0.6.*0 to 0.5"),
    (lambda: T.Solarize(256), "Solarize: threshold=256"),
    (lambda: T.Solarize(-1), "Solarize: threshold=-1.*0 to 255"),
    (lambda: T.RandomSolarize("x"), "RandomSolarize: threshold='x'"),
    (lambda: T.Erase(0, 0, 1, 1, "x"), "Erase: v='x'"),
    (lambda: T.RandomErasing(ratio=(0, 1)), "RandomErasing: ratio="),
    (
        lambda: T.RandAugment(magnitude=31),
        "RandAugment: magnitude=31; .* from 0 to 30",
    ),
    (lambda: T.AutoAugment(fill="red"), "AutoAugment: fill="),
    (lambda: T.RandomApply([]), "RandomApply: transforms="),
    (lambda: T.RandomApply([lambda x: x]), "RandomApply: transforms:"),
    (lambda: T.RandomApply([T.MixUp(num_classes=2)]), "except MixUp and CutMix"),
    (lambda: T.VerticalFlip(fields=[]), "VerticalFlip: fields="),
    (lambda: T.VerticalFlip(fields=["a", "a"]), "VerticalFlip: fields="),
    (lambda: T.VerticalFlip(fields=3), "VerticalFlip: fields=3"),
]


@pytest.mark.parametrize("make, text", REFUSED)
def test_more_bad_parameters_are_named(make, text):
    with pytest.raises(datasetd.InvalidArgument, match=text) as raised:
        make()
    assert isinstance(raised.value, ValueError)


def test_interpolation_is_taken_as_text_enum_or_pillows_number():
    modes = {"nearest": 0, "bilinear": 2, "bicubic": 3}
    for text, number in modes.items():
        expected = T.Resize(8, text)
        assert T.Resize(8, T.InterpolationMode(text)) == expected
        assert T.Resize(8, V.InterpolationMode(text)) == expected
        assert T.Resize(8, number) == expected
    assert T.Resize(8, "NEAREST_EXACT").interpolation == "nearest-exact"


@pytest.mark.parametrize(
    "size, max_size, expected",
    [
        (8, None, {"shorter_edge": 8}),
        ([8], None, {"shorter_edge": 8}),
        (8, 16, {"shorter_edge": 8, "max_size": 16}),
        (None, 16, {"max_size": 16}),
        (np.int64(8), None, {"shorter_edge": 8}),
    ],
)
def test_resize_to_an_edge(size, max_size, expected):
    message = T.Resize(size, max_size=max_size).to_message()["resize"]
    del message["interpolation"], message["antialias"]
    assert message == expected


@pytest.mark.parametrize(
    "shear, expected",
    [(3, (3.0, 0.0)), ([3], (3.0, 3.0)), ((3, 4), (3.0, 4.0))],
)
def test_affine_shear(shear, expected):
    assert T.Affine(0, (0, 0), 1, shear).shear == expected


@pytest.mark.parametrize(
    "shear, expected",
    [(3, (-3.0, 3.0)), ((1, 2), (1.0, 2.0)), ((1, 2, 3, 4), (1, 2, 3, 4))],
)
def test_random_affine_shear_is_as_torchvisions(shear, expected):
    assert T.RandomAffine(0, shear=shear).shear == expected
    assert tuple(V.RandomAffine(0, shear=shear).shear) == expected


@pytest.mark.parametrize("value", [0, 0.25, 1.5, (0.5, 0.75), (1, 1), (0, 0)])
def test_jitter_ranges_are_torchvisions(value):
    for name in ("brightness", "contrast", "saturation"):
        mine = getattr(T.ColorJitter(**{name: value}), name)
        theirs = getattr(V.ColorJitter(**{name: value}), name)
        assert mine == (None if theirs is None else tuple(theirs))
    hue = value if not isinstance(value, tuple) and value <= 0.5 else 0.125
    theirs = V.ColorJitter(hue=hue).hue
    assert T.ColorJitter(hue=hue).hue == (
        None if theirs is None else tuple(theirs)
    )


def test_attributes_of_users_are_no_parameters():
    class Named(T.ColorJitter):
        def __init__(self, strength):
            self.strength = strength
            super().__init__(brightness=strength)

    op = Named(0.5)
    op.note = "as in the paper"
    assert op.to_message() == T.ColorJitter(brightness=0.5).to_message()


def test_repr_names_fields_where_they_are_named():
    assert repr(T.VerticalFlip()) == "VerticalFlip()"
    assert repr(T.VerticalFlip(fields="mask")) == (
        "VerticalFlip(fields=('mask',))"
    )
    assert "bits=3, p=0.5" in repr(T.RandomPosterize(3))
