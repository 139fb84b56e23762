"""Bad parameters are refused, by name.

In Python: whatever torchvision 0.14 refuses, in a constructor or when it runs,
our classes or the daemon's compiler refuse. On the wire: every numeric
parameter of every op has bounds.
"""

import math
import re
from types import SimpleNamespace

import datasetd
import numpy as np
import pytest
import torch
import torchvision.transforms as V
from datasetd import transforms as T
from product import Product, Refused
from row import Case
from torchvision.transforms import functional as F
from torchvision.transforms.functional import InterpolationMode

from tests.testing import pytest_file

# (torchvision's class or function, good arguments), by our name.
OPS = {
    "Pad": (V.Pad, dict(padding=1, fill=0, padding_mode="constant")),
    "CenterCrop": (V.CenterCrop, dict(size=4)),
    "RandomCrop": (
        V.RandomCrop,
        dict(size=4, padding=1, pad_if_needed=False, fill=0,
             padding_mode="constant"),
    ),
    "RandomHorizontalFlip": (V.RandomHorizontalFlip, dict(p=0.5)),
    "RandomVerticalFlip": (V.RandomVerticalFlip, dict(p=0.5)),
    "Resize": (
        V.Resize,
        dict(size=4, interpolation=InterpolationMode.BILINEAR, max_size=None,
             antialias=True),
    ),
    "RandomResizedCrop": (
        V.RandomResizedCrop,
        dict(size=4, scale=(0.5, 1), ratio=(0.5, 2),
             interpolation=InterpolationMode.BILINEAR, antialias=True),
    ),
    "RandomRotation": (
        V.RandomRotation,
        dict(degrees=10, interpolation=InterpolationMode.NEAREST,
             expand=False, center=None, fill=0),
    ),
    "RandomAffine": (
        V.RandomAffine,
        dict(degrees=10, translate=None, scale=None, shear=None,
             interpolation=InterpolationMode.NEAREST, fill=0, center=None),
    ),
    "ColorJitter": (
        V.ColorJitter, dict(brightness=0, contrast=0, saturation=0, hue=0)
    ),
    "Grayscale": (V.Grayscale, dict(num_output_channels=1)),
    "RandomGrayscale": (V.RandomGrayscale, dict(p=0.1)),
    "RandomInvert": (V.RandomInvert, dict(p=0.5)),
    "RandomPosterize": (V.RandomPosterize, dict(bits=3, p=1)),
    "RandomSolarize": (V.RandomSolarize, dict(threshold=9, p=1)),
    "RandomAdjustSharpness": (
        V.RandomAdjustSharpness, dict(sharpness_factor=2, p=1)
    ),
    "RandomAutocontrast": (V.RandomAutocontrast, dict(p=0.5)),
    "RandomEqualize": (V.RandomEqualize, dict(p=0.5)),
    "GaussianBlur": (V.GaussianBlur, dict(kernel_size=3, sigma=(0.1, 2))),
    "RandAugment": (
        V.RandAugment,
        dict(num_ops=1, magnitude=1, num_magnitude_bins=2,
             interpolation=InterpolationMode.NEAREST, fill=0),
    ),
    "TrivialAugmentWide": (
        V.TrivialAugmentWide,
        dict(num_magnitude_bins=2, interpolation=InterpolationMode.NEAREST,
             fill=0),
    ),
    "AutoAugment": (
        V.AutoAugment,
        dict(policy=V.AutoAugmentPolicy.SVHN,
             interpolation=InterpolationMode.NEAREST, fill=0),
    ),
    "RandomPerspective": (
        V.RandomPerspective,
        dict(distortion_scale=0.5, p=1,
             interpolation=InterpolationMode.BILINEAR, fill=0),
    ),
    "RandomErasing": (
        V.RandomErasing,
        dict(p=1, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=0),
    ),
    # RandomInvert is also in ours.
    "RandomApply": (
        lambda image, transforms, p: V.RandomApply(
            [getattr(V, type(op).__name__)() for op in transforms], p
        )(image),
        dict(transforms=[T.RandomInvert()], p=0.5),
    ),
    "Normalize": (
        V.Normalize, dict(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    ),
    "Crop": (F.crop, dict(top=0, left=0, height=4, width=4)),
    "ResizedCrop": (
        F.resized_crop,
        dict(top=0, left=0, height=4, width=4, size=(4, 4),
             interpolation=InterpolationMode.BILINEAR, antialias=True),
    ),
    "Rotate": (
        F.rotate,
        dict(angle=10, interpolation=InterpolationMode.NEAREST, expand=False,
             center=None, fill=0),
    ),
    "Affine": (
        F.affine,
        dict(angle=10, translate=(1, 1), scale=1, shear=(1, 1),
             interpolation=InterpolationMode.NEAREST, fill=0, center=None),
    ),
    "AdjustBrightness": (F.adjust_brightness, dict(brightness_factor=1.0)),
    "AdjustContrast": (F.adjust_contrast, dict(contrast_factor=1.0)),
    "AdjustSaturation": (F.adjust_saturation, dict(saturation_factor=1.0)),
    "AdjustHue": (F.adjust_hue, dict(hue_factor=0.1)),
    "AdjustSharpness": (F.adjust_sharpness, dict(sharpness_factor=1.0)),
    "Posterize": (F.posterize, dict(bits=3)),
    "Solarize": (F.solarize, dict(threshold=9)),
    "Erase": (
        lambda image, i, j, h, w, v: F.erase(
            image, i, j, h, w,
            torch.as_tensor(v, dtype=torch.float32).reshape(-1, 1, 1),
        ),
        dict(i=0, j=0, h=2, w=2, v=0),
    ),
}
# Without parameters, or not in torchvision 0.14: transforms_ops_test.py has
# what they refuse.
# torchaudio is the judge of those on sequences: sequence_parity_test.py.
OTHERS = {
    "AddNoise", "AmplitudeToDB", "FrequencyMasking", "Gain", "MelSpectrogram",
    "PolarityInversion", "Shift", "TimeMasking", "Vol", "AlternatingFlip", "AutoAugmentPolicy", "Autocontrast", "CutMix", "Cutout", "Equalize",
    "GaussianNoise", "HorizontalFlip", "InterpolationMode", "Invert", "MixUp", "ToDtype",
    "Transform", "VerticalFlip", "from_torchvision",
}
VALUES = (
    None, "x", -1, 0, 1, 1.5, -0.5, 0.5, 2, 9, 300, math.nan, math.inf,
    -math.inf, True, [], (), (1,), (0.5,), (1, 2), (2, 1), (-1, 1), (0, 0),
    (0, 1), (0.1, 2), (1, 2, 3), (1, 2, 3, 4), (1, 2, 3, 4, 5), (1, "a"),
    (1, math.nan), (1, math.inf), {}, {"a": 1}, "constant", "random", object,
    "lanczos", InterpolationMode.LANCZOS, InterpolationMode.BOX,
)
IMAGE = torch.from_numpy(
    np.random.default_rng(1).integers(0, 256, (3, 16, 16), dtype=np.uint8)
)


def _taken_as_v2_takes_it(name, parameter, value):
    """True if torchvision 0.14 refuses it and transforms.v2 does not."""
    return (
        # A dict of fills: by type there, by field here.
        (parameter == "fill" and isinstance(value, dict))
        # No fill, one in a list, or one for each channel of a tensor.
        or (name in ("Pad", "RandomCrop") and parameter == "fill"
            and (value is None
                 or isinstance(value, tuple) and len(value) in (1, 3)))
        # Nearest is not antialiased, asked or not.
        or (parameter == "interpolation" and value == 0)
        or (name == "ColorJitter" and value is None)
        # One sigma in a list.
        or (parameter == "sigma" and isinstance(value, tuple)
            and len(value) == 1)
    )


@pytest.fixture(scope="module", name="product")
def fixture_product():
    torch.set_num_threads(1)
    with Product() as product:
        yield product


def image_of(name):
    return IMAGE / 255 if name == "Normalize" else IMAGE


@pytest.mark.filterwarnings("ignore")
def is_refused_by_torchvision(name, arguments):
    function, _ = OPS[name]
    torch.manual_seed(0)
    image = image_of(name)
    try:
        for _ in range(3):
            if isinstance(function, type):
                function(**arguments)(image)
            else:
                function(image, **arguments)
    except Exception:  # pylint: disable=broad-except
        return True
    return False


def refusal(name, arguments, product):
    """Returns the error of our class or the daemon; None if they take it."""
    try:
        op = getattr(T, name)(**arguments)
    except datasetd.InvalidArgument as error:
        return str(error)
    try:
        product.run(Case([op.to_message()], None), image_of(name).numpy(), 1, 1,
                    1)
    except Refused as error:
        return str(error)
    return None


def test_every_class_is_here():
    assert OPS.keys() | OTHERS == set(T.__all__)
    assert not OPS.keys() & OTHERS


@pytest.mark.parametrize("name", OPS)
@pytest.mark.filterwarnings("ignore")
def test_what_torchvision_refuses_is_refused(name, product):
    _, good = OPS[name]
    assert refusal(name, good, product) is None
    taken, unnamed = [], []
    refused = set()
    for parameter in good:
        for value in VALUES:
            arguments = {**good, parameter: value}
            ours = refusal(name, arguments, product)
            if ours is not None:
                refused.add(parameter)
                # The wire's name is a longer one.
                said = r"(v|value)" if name == "Erase" and (
                    parameter == "v"
                ) else parameter
                if not (
                    re.search(rf"\b{name}: .*\b{said}\b", ours, re.S)
                    and re.search("expected|must|give|it can be", ours)
                ):
                    unnamed.append((parameter, value, ours))
            elif is_refused_by_torchvision(
                name, arguments
            ) and not _taken_as_v2_takes_it(name, parameter, value):
                taken.append((parameter, value))
    assert not taken
    assert not unnamed
    # There is something to refuse of each.
    assert refused == good.keys()


# ---- The wire ----

# A good value for every parameter of every op.
_SIZE = {"height": 2, "width": 2}
_SIDES = {"left": 1, "top": 1, "right": 1, "bottom": 1}
_POINT = {"x": 0.5, "y": 0.5}
_NEAREST = "INTERPOLATION_MODE_NEAREST"
_ABOUT = {"interpolation": _NEAREST, "center": _POINT, "fill": [1.0]}


def _range(low, high):
    return {"min": low, "max": high}


MESSAGES = {
    "pad": {"padding": _SIDES, "fill": [1.0],
            "padding_mode": "PADDING_MODE_CONSTANT"},
    "crop": {"top": 0, "left": 0, **_SIZE},
    "center_crop": _SIZE,
    "random_crop": {**_SIZE, "padding": _SIDES, "pad_if_needed": True,
                    "fill": [1.0], "padding_mode": "PADDING_MODE_CONSTANT"},
    "horizontal_flip": {},
    "vertical_flip": {},
    "random_horizontal_flip": {"p": 0.5},
    "random_vertical_flip": {"p": 0.5},
    "alternating_flip": {},
    "resize": {"size": _SIZE, "interpolation": _NEAREST, "antialias": True},
    "resized_crop": {"top": 0, "left": 0, **_SIZE, "size": _SIZE,
                     "interpolation": _NEAREST, "antialias": True},
    "random_resized_crop": {
        "size": _SIZE, "scale": _range(0.5, 1), "ratio": _range(0.5, 1),
        "interpolation": _NEAREST, "antialias": True,
    },
    "rotate": {"angle": 3, "expand": False, **_ABOUT},
    "random_rotation": {"degrees": _range(-3, 3), "expand": False, **_ABOUT},
    "affine": {"angle": 3, "translate": _POINT, "scale": 1, "shear": _POINT,
               **_ABOUT},
    "random_affine": {
        "degrees": _range(-3, 3), "translate": _POINT, "scale": _range(1, 1),
        "shear_x": _range(-1, 1), "shear_y": _range(-1, 1), **_ABOUT,
    },
    "color_jitter": {
        "brightness": _range(1, 1), "contrast": _range(1, 1),
        "saturation": _range(1, 1), "hue": _range(0, 0.1),
    },
    "adjust_brightness": {"brightness_factor": 1},
    "adjust_contrast": {"contrast_factor": 1},
    "adjust_saturation": {"saturation_factor": 1},
    "adjust_hue": {"hue_factor": 0.1},
    "grayscale": {"num_output_channels": 1},
    "random_grayscale": {"p": 0.5},
    "invert": {},
    "random_invert": {"p": 0.5},
    "posterize": {"bits": 3},
    "random_posterize": {"bits": 3, "p": 0.5},
    "solarize": {"threshold": 3},
    "random_solarize": {"threshold": 3, "p": 0.5},
    "adjust_sharpness": {"sharpness_factor": 1},
    "random_adjust_sharpness": {"sharpness_factor": 1, "p": 0.5},
    "autocontrast": {},
    "random_autocontrast": {"p": 0.5},
    "equalize": {},
    "random_equalize": {"p": 0.5},
    "gaussian_blur": {"kernel_size": {"height": 3, "width": 3},
                      "sigma": _range(1, 1)},
    "erase": {"top": 0, "left": 0, "height": 1, "width": 1, "value": [0.0]},
    "random_erasing": {"p": 0.5, "scale": _range(0.1, 0.2),
                       "ratio": _range(1, 1), "value": [0.0]},
    "rand_augment": {"num_ops": 1, "magnitude": 1, "num_magnitude_bins": 3,
                     "interpolation": _NEAREST, "fill": [1.0]},
    "trivial_augment_wide": {"num_magnitude_bins": 3,
                             "interpolation": _NEAREST, "fill": [1.0]},
    "auto_augment": {"policy": "AUTO_AUGMENT_POLICY_SVHN",
                     "interpolation": _NEAREST, "fill": [1.0]},
    "random_perspective": {"distortion_scale": 0.5, "p": 0.5,
                           "interpolation": _NEAREST, "fill": [1.0]},
    "gaussian_noise": {"mean": 0, "sigma": 1, "clip": True},
    "cutout": {"size": 2, "fill": [1.0]},
    "random_apply": {"transforms": [{"invert": {}}], "p": 0.5},
    "mix_up": {"alpha": 1, "num_classes": 3, "per_sample": False},
    "cut_mix": {"alpha": 1, "num_classes": 3, "per_sample": False},
    "to_dtype": {"dtype": "DTYPE_FLOAT32", "scale": True},
    "normalize": {"mean": [0.5], "std": [0.5]},
    "vol": {"gain": 1, "gain_type": "GAIN_TYPE_POWER"},
    "gain": {"min_gain_in_db": -1, "max_gain_in_db": 1, "p": 0.5},
    "polarity_inversion": {"p": 0.5},
    "add_noise": {"noise": "x", "snr": _range(1, 2), "p": 0.5, "field": "x"},
    "shift": {"min_shift": 0, "max_shift": 0.5, "rollover": True, "p": 0.5,
              "shift_unit": "SHIFT_UNIT_FRACTION"},
    "mel_spectrogram": {
        "sample_rate": 16000, "n_fft": 64, "win_length": 64, "hop_length": 9,
        "f_min": 0, "f_max": 8000, "pad": 1, "n_mels": 9, "power": 2,
        "normalized": False, "center": True, "norm": "MEL_NORM_NONE",
        "pad_mode": "FRAME_PAD_MODE_REFLECT", "mel_scale": "MEL_SCALE_HTK",
    },
    "amplitude_to_db": {"stype": "AMPLITUDE_TYPE_POWER", "top_db": 80},
    "time_masking": {"time_mask_param": 3, "iid_masks": False, "p": 0.5,
                     "mask_value": 1},
    "frequency_masking": {"freq_mask_param": 3, "iid_masks": False,
                          "mask_value": 1},
}
# The sample of an op on sequences: a spectrogram for masks.
WAVEFORM = np.linspace(-1, 1, 400, dtype=np.float32)
SEQUENCES = {
    "time_masking": WAVEFORM.reshape(8, 50),
    "frequency_masking": WAVEFORM.reshape(8, 50),
    **dict.fromkeys(
        ("vol", "gain", "polarity_inversion", "shift", "add_noise",
         "mel_spectrogram", "amplitude_to_db"), WAVEFORM),
}
# Exclude another parameter, or are no number.
NOT_WITH_OTHERS = {
    ("resize", "shorter_edge"), ("resize", "max_size"),
    ("random_erasing", "is_value_random"), ("mix_up", "labels"),
    ("cut_mix", "labels"), ("add_noise", "noise"), ("add_noise", "field"),
}
WORST = {
    "double": ("NaN", "Infinity", "-Infinity", 1e300),
    "float": ("NaN", "Infinity", "-Infinity"),
    "uint32": (2**32 - 1,),
    "int32": (2**31 - 1, -(2**31)),
    "PaddingMode": (77,),
    "InterpolationMode": (77,),
    "Dtype": (0, 77),
    "AutoAugmentPolicy": (77,),
    "AmplitudeType": (77,),
    "FramePadMode": (77,),
    "GainType": (77,),
    "MelNorm": (77,),
    "MelScale": (77,),
    "ShiftUnit": (77,),
}


def replaced(message, path, value):
    name, _, rest = path.partition(".")
    old = message[name]
    if rest:
        new = replaced(old, rest, value)
    else:
        new = [value] if isinstance(old, list) else value
    return {**message, name: new}


def run_message(op, message, product):
    is_float = op in ("normalize", "gaussian_noise")
    image = IMAGE.numpy().astype(np.float32 if is_float else np.uint8)
    if op in SEQUENCES:
        product.run_sequence(
            SimpleNamespace(transforms=[{op: message}], noise=[WAVEFORM]),
            SEQUENCES[op], 1, 1, 1,
        )
    elif op in ("mix_up", "cut_mix"):
        case = Case([{op: message}], None)
        product.run_batch(case, image[None], [0], 1, 1, 1)
    else:
        product.run(Case([{op: message}], None), image, 1, 1, 1)


def test_every_number_on_the_wire_has_bounds(product):
    ops = product.describe()
    assert MESSAGES.keys() == ops.keys()
    num_refused = 0
    for op, description in ops.items():
        run_message(op, MESSAGES[op], product)
        for path, parameter in description["parameters"].items():
            kind = parameter["type"]
            if (op, path) in NOT_WITH_OTHERS or kind in ("bool", "Transform"):
                continue
            for value in WORST[kind]:
                if path == "alpha" and value == 1e300:
                    continue  # it may be any finite number above 0
                message = replaced(MESSAGES[op], path, value)
                try:
                    run_message(op, message, product)
                    text = "taken"
                except Refused as error:
                    text = str(error)
                name = path.split(".")[0]
                # Sizes and shears are named whole.
                names = {
                    "height": (name, "size"),
                    "width": (name, "size"),
                    "shear_x": ("shear",),
                    "shear_y": ("shear",),
                }.get(name, (name,))
                assert any(name in text for name in names), (op, path, text)
                num_refused += 1
    assert num_refused > 200


@pytest.mark.parametrize("message, text", [
    ({"shorter_edge": 2**32 - 1}, "size"),
    ({"max_size": 2**32 - 1}, "size"),
    ({"shorter_edge": 8, "max_size": 8}, "max_size is 8: it must be above"),
    ({"shorter_edge": 8, "size": _SIZE}, "size and shorter_edge"),
    ({}, "give size or max_size"),
])
def test_sizes_that_exclude_each_other(message, text, product):
    with pytest.raises(Refused, match=text):
        run_message("resize", message, product)


if __name__ == "__main__":
    pytest_file.main(__file__)
