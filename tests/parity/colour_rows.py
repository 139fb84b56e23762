"""Rows of the ops on colours and neighbourhoods, and of those that erase."""

import numpy as np
import numpy_judge
import torch
from row import REFERENCE, Case, Row
from torchvision.transforms import functional

FACTORS = (0.0, 0.3, 0.95, 1.0, 1.7, 20.0)
HUES = (-0.5, -0.49, -0.2, -0.01, 0.0, 0.05, 0.4, 0.5)
# One rounding to nearest, where torchvision drops the fraction.
ONE_LEVEL = 1
FLOAT = 1e-5
ROUNDS_DOWN = "torchvision drops the fraction"


def _judge(function):
    """`function` of tensors as one of arrays, without what was drawn."""

    def expect(image, drawn):
        del drawn
        return function(torch.from_numpy(image)).numpy()

    return expect


def _one(name, parameters, function):
    return Case([{name: parameters}], _judge(function))


def _factor_row(op, name, function, values, remark=ROUNDS_DOWN):
    parameter = name.replace("adjust_", "") + "_factor"

    def cases(shape):
        del shape
        for value in values:
            # The product takes factors as float32.
            yield _one(
                name,
                {parameter: float(np.float32(value))},
                lambda image, value=value: function(
                    image, float(np.float32(value))
                ),
            )

    listed = ", ".join(f"{value:g}" for value in values)
    return Row(op, f"{parameter} {listed}", cases, ONE_LEVEL, FLOAT,
               remark=remark)


def _grayscale(shape):
    for channels in (1, 3):
        if channels == 3 and shape.channels == 1:
            # Only a newer torchvision repeats the one channel.
            yield Case(
                [{"grayscale": {"num_output_channels": 3}}],
                lambda image, _: numpy_judge.grayscale_to_three(image),
            )
            continue
        yield _one(
            "grayscale",
            {"num_output_channels": channels},
            lambda image, channels=channels: functional.rgb_to_grayscale(
                image, num_output_channels=channels
            ),
        )


def _posterize(shape):
    del shape
    for bits in range(9):
        yield _one(
            "posterize",
            {"bits": bits},
            lambda image, bits=bits: functional.posterize(image, bits=bits),
        )


def _posterize_float(shape):
    del shape
    for bits in range(9):
        yield Case(
            [{"posterize": {"bits": bits}}],
            lambda image, _, bits=bits: numpy_judge.posterize(image, bits),
        )


def _solarize(shape):
    for part in (0.0, 0.25, 0.5, 1.0):
        threshold = float(np.float32(part * shape.bound))
        yield _one(
            "solarize",
            {"threshold": threshold},
            lambda image, threshold=threshold: functional.solarize(
                image, threshold=threshold
            ),
        )


def _blur(shape):
    for width, height in ((1, 1), (3, 3), (5, 1), (3, 23), (43, 43)):
        if width // 2 >= shape.width or height // 2 >= shape.height:
            continue
        for sigma in (0.1, 0.8, 2.0, 10.0):
            sigma = float(np.float32(sigma))
            yield _one(
                "gaussian_blur",
                {
                    "kernel_size": {"width": width, "height": height},
                    "sigma": {"min": sigma, "max": sigma},
                },
                lambda image, size=(width, height), sigma=sigma: (
                    functional.gaussian_blur(
                        image, kernel_size=list(size), sigma=[sigma, sigma]
                    )
                ),
            )


def _erase(shape):
    for top, left, height, width in (
        (0, 0, 1, 1),
        (0, 0, shape.height, shape.width),
        (shape.height // 3, shape.width // 2, shape.height // 2,
         shape.width // 3),
    ):
        per_channel = (
            [255, 127, 63] if shape.dtype == "uint8" else [1, 0.5, 0.25]
        )
        for values in ([0], per_channel[: shape.channels]):
            yield _one(
                "erase",
                {
                    "top": top,
                    "left": left,
                    "height": height,
                    "width": width,
                    "value": values,
                },
                lambda image, box=(top, left, height, width), values=values: (
                    functional.erase(
                        image,
                        *box,
                        torch.tensor(values, dtype=image.dtype).view(-1, 1, 1),
                    )
                ),
            )


ROWS = [
    _factor_row("AdjustBrightness", "adjust_brightness",
                functional.adjust_brightness, FACTORS),
    _factor_row("AdjustContrast", "adjust_contrast",
                functional.adjust_contrast, FACTORS),
    _factor_row("AdjustSaturation", "adjust_saturation",
                functional.adjust_saturation, FACTORS),
    _factor_row("AdjustHue", "adjust_hue", functional.adjust_hue, HUES),
    _factor_row("AdjustSharpness", "adjust_sharpness",
                functional.adjust_sharpness, FACTORS),
    Row("Grayscale", "num_output_channels 1, 3", _grayscale, 0, FLOAT,
        remark="one channel to three by formula"),
    Row("Invert", "", lambda shape: [_one("invert", {}, functional.invert)],
        0, 0),
    Row("Posterize", "bits 0 to 8", _posterize, 0, 0, dtypes=("uint8",)),
    Row("Posterize", "bits 0 to 8", _posterize_float, 0, 0,
        judge=REFERENCE, dtypes=("float32",),
        remark="torchvision 0.14 has it for uint8 only"),
    Row("Solarize", "threshold 0, 1/4, 1/2, 1 of the bound", _solarize, 0, 0),
    Row("Autocontrast", "",
        lambda shape: [_one("autocontrast", {}, functional.autocontrast)],
        0, FLOAT),
    Row("Equalize", "",
        lambda shape: [_one("equalize", {}, functional.equalize)],
        0, 0, dtypes=("uint8",)),
    Row("Equalize", "",
        lambda shape: [Case([{"equalize": {}}],
                            lambda image, _: numpy_judge.equalize(image))],
        0, 1e-6, judge=REFERENCE, dtypes=("float32",),
        remark="torchvision 0.14 has it for uint8 only"),
    Row("GaussianBlur", "kernel 1x1 to 43x43, sigma 0.1, 0.8, 2, 10", _blur,
        ONE_LEVEL, FLOAT),
    Row("Erase", "a corner, all, a part; one value, one per channel", _erase,
        0, 0),
]
