"""Rows of the ops on colours and neighbourhoods, and of those that erase."""

import numpy as np
import torch
from torchvision.transforms import functional

import numpy_judge
from row import REFERENCE, Case, Row

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


def _blur_drawn(shape):
    if min(shape.width, shape.height) < 3:
        return

    def expect(image, drawn):
        sigma = drawn[0]["sigma"][0]
        return functional.gaussian_blur(
            torch.from_numpy(image), kernel_size=[5, 5], sigma=[sigma, sigma]
        ).numpy()

    yield Case(
        [
            {
                "gaussian_blur": {
                    "kernel_size": {"width": 5, "height": 5},
                    "sigma": {"min": 0.1, "max": 2.0},
                }
            }
        ],
        expect,
    )


JITTER = ("brightness", "contrast", "saturation", "hue")
JITTER_RANGES = {
    "brightness": {"min": 0.6, "max": 1.4},
    "contrast": {"min": 0.6, "max": 1.4},
    "saturation": {"min": 0.6, "max": 1.4},
    "hue": {"min": -0.1, "max": 0.1},
}


def _jitter(parts):
    def cases(shape):
        adjust = {
            "brightness": functional.adjust_brightness,
            "contrast": functional.adjust_contrast,
            "saturation": functional.adjust_saturation,
            "hue": functional.adjust_hue,
        }

        def expect(image, drawn):
            tensor = torch.from_numpy(image)
            for number in drawn[0]["order"]:
                part = JITTER[int(number)]
                tensor = adjust[part](tensor, drawn[0][part][0])
            return tensor.numpy()

        def allow(drawn):
            # Each op takes a difference d to gain * d, and adds what
            # torchvision drops or float32 rounds.
            step = 1 / 255 if shape.dtype == "uint8" else FLOAT
            difference = 0.0
            for number in drawn[0]["order"]:
                part = JITTER[int(number)]
                factor = drawn[0][part][0]
                gain = {
                    "brightness": factor,
                    "contrast": factor + abs(1 - factor),
                    "saturation": factor + abs(1 - factor),
                    # Piecewise linear and continuous; in no piece are a
                    # channel's three coefficients more than 3 together.
                    "hue": 3.0,
                }[part]
                difference = gain * difference + step
            return difference

        yield Case(
            [{"color_jitter": {part: JITTER_RANGES[part] for part in parts}}],
            expect,
            allow,
        )

    return cases


def _jitter_row(parts):
    ranges = ", ".join(
        f"{part} {JITTER_RANGES[part]['min']:g} to "
        f"{JITTER_RANGES[part]['max']:g}"
        for part in parts
    )
    return Row(
        "ColorJitter",
        ranges + "; as drawn",
        _jitter(parts),
        ONE_LEVEL,
        FLOAT,
        is_drawn=True,
        remark="torchvision drops the fraction after every op: a difference d "
        "becomes gain * d + the bound at each; the gain is f of brightness, "
        "f + abs(1 - f) of contrast and saturation, 3 of hue",
    )


def _erase(shape):
    for top, left, height, width in (
        (0, 0, 1, 1),
        (0, 0, shape.height, shape.width),
        (shape.height // 3, shape.width // 2, shape.height // 2,
         shape.width // 3),
    ):
        for value in ([0], [1, 0.5, 0.25][: shape.channels]):
            values = [number * shape.bound // 1 if shape.bound == 255 else
                      number for number in value]
            # A float32 image is [0, 1]; a uint8 one has whole values.
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


def _random_erasing(shape):
    value = [0.25 * 255 // 1 if shape.bound == 255 else 0.25]

    def expect(image, drawn):
        top, left, height, width = (
            int(drawn[0][name][0]) if name in drawn[0] else 0
            for name in ("top", "left", "height", "width")
        )
        return functional.erase(
            torch.from_numpy(image),
            top,
            left,
            height,
            width,
            torch.tensor(value, dtype=torch.from_numpy(image).dtype),
        ).numpy()

    yield Case(
        [
            {
                "random_erasing": {
                    "p": 1.0,
                    "scale": {"min": 0.02, "max": 0.33},
                    "ratio": {"min": 0.3, "max": 3.3},
                    "value": value,
                }
            }
        ],
        expect,
    )


def _cutout(shape):
    for size in (1, 2, 8):
        if size > min(shape.height, shape.width):
            continue

        def expect(image, drawn, size=size):
            top, left = (int(drawn[0][name][0]) for name in ("top", "left"))
            return numpy_judge.erase(image, top, left, size, size, [0])

        yield Case([{"cutout": {"size": size}}], expect)


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
    _jitter_row(("brightness",)),
    _jitter_row(("contrast", "hue")),
    _jitter_row(JITTER),
    Row("Grayscale", "num_output_channels 1, 3", _grayscale, 0, FLOAT),
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
    Row("GaussianBlur", "kernel 5x5, sigma 0.1 to 2; as drawn", _blur_drawn,
        ONE_LEVEL, FLOAT, is_drawn=True),
    Row("Erase", "a corner, all, a part; one value, one per channel", _erase,
        0, 0),
    Row("RandomErasing", "scale 0.02 to 0.33, ratio 0.3 to 3.3; as drawn",
        _random_erasing, 0, 0, is_drawn=True),
    Row("Cutout", "size 1, 2, 8; as drawn", _cutout, 0, 0, judge=REFERENCE,
        remark="not in torchvision", is_drawn=True),
]
