"""Runs torchvision's functions with the draws that explain reports."""

import numpy_judge
import torch
from torchvision.transforms import functional
from torchvision.transforms.functional import InterpolationMode

MODES = {
    "INTERPOLATION_MODE_NEAREST": InterpolationMode.NEAREST,
    "INTERPOLATION_MODE_BILINEAR": InterpolationMode.BILINEAR,
    "INTERPOLATION_MODE_BICUBIC": InterpolationMode.BICUBIC,
}
NEAREST_EXACT = "INTERPOLATION_MODE_NEAREST_EXACT"
# Bounds for one op in float32, on both sides; for ops that resample these
# include the error of positions.
FLOAT = {None: 0.0, "float": 1e-5, "drops": 1e-5, "rounds": 1e-4}
# The error of torchvision's handling of fractions in uint8 images, in levels.
LEVELS = {None: 0.0, "float": 0.0, "drops": 1.0, "rounds": 0.5}


def by_position(transforms):
    """The ops, an op inside another after it: each its name and parameters."""
    ops = []
    for transform in transforms:
        for name, parameters in transform.items():
            ops.append((name, parameters))
            ops.extend(by_position(parameters.get("transforms", [])))
    return ops


def _ints(values):
    return [int(value) for value in values]


def box(parameters):
    return [
        int(parameters[name][0]) for name in ("top", "left", "height", "width")
    ]


def _erase(image, parameters, _):
    top, left, height, width = box(parameters)
    value = torch.tensor(parameters["value"]).to(image.dtype).view(-1, 1, 1)
    return functional.erase(image, top, left, height, width, value)


def _pad(image, parameters, op):
    mode = op.get("padding_mode", "PADDING_MODE_CONSTANT")
    return functional.pad(
        image,
        _ints(parameters["padding"]),
        fill=op.get("fill", [0])[0],
        padding_mode=mode.replace("PADDING_MODE_", "").lower(),
    )


def nearest_exact(image, size):
    """torchvision 0.14 has this mode in torch alone."""
    return torch.nn.functional.interpolate(
        image[None].to(torch.float32), size=tuple(size), mode="nearest-exact"
    )[0].to(image.dtype)


def _resize(image, parameters, op):
    if op["interpolation"] == NEAREST_EXACT:
        cropped = functional.crop(image, *box(parameters))
        return nearest_exact(cropped, _ints(parameters["size"]))
    return functional.resized_crop(
        image,
        *box(parameters),
        _ints(parameters["size"]),
        interpolation=MODES[op["interpolation"]],
        antialias=op["antialias"],
    )


def _affine(image, parameters, op):
    center = op.get("center")
    center = center and [center["x"], center["y"]]
    return functional.affine(
        image,
        parameters["angle"][0],
        parameters["translate"],
        parameters["scale"][0],
        parameters["shear"],
        interpolation=MODES[op["interpolation"]],
        fill=op.get("fill"),
        # A policy's is drawn with its op.
        center=parameters.get("center", center),
    )


def _posterize(image, parameters, _):
    """torchvision 0.14 has it for uint8 only."""
    bits = int(parameters["bits"][0])
    if image.dtype == torch.uint8:
        return functional.posterize(image, bits)
    return torch.from_numpy(numpy_judge.posterize(image.numpy(), bits))


def _equalize(image, parameters, _):
    """torchvision 0.14 has it for uint8 only."""
    if image.dtype == torch.uint8:
        return functional.equalize(image)
    return torch.from_numpy(numpy_judge.equalize(image.numpy()))


def _blur(image, parameters, _):
    return functional.gaussian_blur(
        image, _ints(parameters["kernel_size"]), parameters["sigma"] * 2
    )


def _with_factor(function, name):
    return lambda image, parameters, _: function(image, parameters[name][0])


def _keeps(_):
    return 1.0


def _blends(name):
    return lambda parameters: parameters[name][0] + abs(
        1 - parameters[name][0]
    )


# By the functional names that explain uses: the function; what it multiplies a
# difference before it by, at most, given the parameters; and what torchvision
# does with the fraction of a uint8 image, a key of LEVELS.
_FUNCTIONS = {
    "Crop": (
        lambda image, p, _: functional.crop(image, *box(p)), _keeps, None),
    "Pad": (_pad, _keeps, None),
    "HorizontalFlip": (
        lambda image, p, _: functional.hflip(image), _keeps, None),
    "VerticalFlip": (
        lambda image, p, _: functional.vflip(image), _keeps, None),
    "Resize": (_resize, _keeps, "rounds"),  # bilinear: weights from 0 to 1
    "Affine": (_affine, _keeps, "rounds"),
    "AdjustBrightness": (
        _with_factor(functional.adjust_brightness, "brightness_factor"),
        lambda p: p["brightness_factor"][0], "drops"),
    "AdjustContrast": (
        _with_factor(functional.adjust_contrast, "contrast_factor"),
        _blends("contrast_factor"), "drops"),
    "AdjustSaturation": (
        _with_factor(functional.adjust_saturation, "saturation_factor"),
        _blends("saturation_factor"), "drops"),
    # Piecewise linear and continuous; in no piece are a channel's three
    # coefficients more than 3 together.
    "AdjustHue": (
        _with_factor(functional.adjust_hue, "hue_factor"),
        lambda p: 3.0, "drops"),
    "AdjustSharpness": (
        _with_factor(functional.adjust_sharpness, "sharpness_factor"),
        _blends("sharpness_factor"), "drops"),
    "Grayscale": (
        lambda image, p, _: functional.rgb_to_grayscale(
            image, num_output_channels=int(p["num_output_channels"][0])),
        _keeps, "drops"),
    "GaussianBlur": (_blur, _keeps, "rounds"),
    "Invert": (
        lambda image, p, _: functional.invert(image), _keeps, None),
    "Posterize": (_posterize, None, None),
    "Solarize": (
        _with_factor(functional.solarize, "threshold"), None, None),
    "Autocontrast": (
        lambda image, p, _: functional.autocontrast(image), None, "float"),
    "Equalize": (_equalize, None, "float"),
    "Erase": (_erase, _keeps, None),
    "RandomErasing": (_erase, _keeps, None),
    "Cutout": (_erase, _keeps, None),
    "ToDtype": (
        lambda image, p, _: functional.convert_image_dtype(
            image, torch.float32), _keeps, "float"),
    "Normalize": (
        lambda image, p, _: functional.normalize(image, p["mean"], p["std"]),
        lambda p: 1 / min(p["std"]), "float"),
}


def expect(transforms):
    """The judge of a case with these ops."""
    ops = by_position(transforms)

    def run(image, drawn):
        image = torch.from_numpy(image)
        for draw in drawn:
            if not draw["is_applied"]:
                continue
            function = _FUNCTIONS[draw["name"]][0]
            image = function(
                image, draw["parameters"], ops[draw["position"]][1]
            )
        return image.numpy()

    return run


def allow(shape, takes_pixels=False, torn=None):
    """The difference that torchvision's roundings between ops explain.

    Each op takes a difference d to gain * d, and then torchvision rounds a
    uint8 image or drops its fraction, and float32 has its error. Ops
    that can tear a difference apart (Posterize, ...) come first or not at all,
    or else the difference is `torn`. With `takes_pixels` affine ops are nearest.
    """

    def difference(drawn):
        total = 0.0
        is_uint8 = shape.dtype == "uint8"
        for draw in drawn:
            if not draw["is_applied"]:
                continue
            _, gain, rounding = _FUNCTIONS[draw["name"]]
            if draw["name"] == "ToDtype":
                is_uint8 = False
            if draw["name"] == "Affine" and takes_pixels:
                continue
            if gain is None and total > 0.0:
                assert torn is not None, "such an op cannot come later"
                return torn
            if gain is None and is_uint8:
                continue
            gain = gain or _keeps
            step = FLOAT[rounding]
            if is_uint8:
                step += LEVELS[rounding] / 255
            total = gain(draw["parameters"]) * total + step
        # The product's own, at the end.
        return total + (0.5 / 255 if is_uint8 and total > 0 else 0.0)

    return difference
