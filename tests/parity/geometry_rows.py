"""Rows of the ops that move pixels and resize."""

from functools import partial

import explained
import torch
from row import Case, Row
from torchvision.transforms import functional
from torchvision.transforms.functional import InterpolationMode

# The bound for weights in float32, on both sides.
RESIZED = 5e-5
ONE_LEVEL = 1

MODES = {
    "INTERPOLATION_MODE_NEAREST": InterpolationMode.NEAREST,
    "INTERPOLATION_MODE_BILINEAR": InterpolationMode.BILINEAR,
    "INTERPOLATION_MODE_BICUBIC": InterpolationMode.BICUBIC,
}
NEAREST, BILINEAR, BICUBIC = MODES
NEAREST_EXACT = "INTERPOLATION_MODE_NEAREST_EXACT"


def judge(function):
    def expect(image, drawn):
        del drawn
        return function(torch.from_numpy(image)).numpy()

    return expect


def one(name, parameters, function):
    return Case([{name: parameters}], judge(function))


def _moves(shape):
    yield one("horizontal_flip", {}, functional.hflip)
    yield one("vertical_flip", {}, functional.vflip)


def _pad(shape):
    value = 7 if shape.dtype == "uint8" else 0.25
    for mode in ("constant", "edge", "reflect", "symmetric"):
        for left, top, right, bottom in ((0, 0, 0, 0), (1, 0, 2, 0),
                                         (3, 1, 0, 2), (0, 2, 3, 1)):
            least = max(left, right) + (mode == "reflect")
            if mode in ("reflect", "symmetric") and (
                shape.width < least
                or shape.height < max(top, bottom) + (mode == "reflect")
            ):
                continue
            parameters = {
                "padding": {"left": left, "top": top, "right": right,
                            "bottom": bottom},
                "padding_mode": "PADDING_MODE_" + mode.upper(),
            }
            if mode == "constant":
                parameters["fill"] = [value]
            yield one(
                "pad",
                parameters,
                partial(
                    functional.pad,
                    padding=[left, top, right, bottom],
                    fill=value if mode == "constant" else 0,
                    padding_mode=mode,
                ),
            )


def _crop(shape):
    for top, left, height, width in (
        (0, 0, 1, 1),
        (shape.height // 3, shape.width // 4, shape.height // 2 + 1,
         shape.width // 2 + 1),
        (-1, -2, shape.height + 2, shape.width + 3),
    ):
        window = {"top": top, "left": left, "height": height, "width": width}
        yield one("crop", window, partial(functional.crop, **window))


def _center_crop(shape):
    del shape
    for height, width in ((1, 1), (20, 31), (40, 40), (130, 70)):
        yield one(
            "center_crop",
            {"height": height, "width": width},
            partial(functional.center_crop, output_size=[height, width]),
        )


def _sizes(shape):
    return ((1, 1), (7, 5), (32, 32), (160, 90),
            (shape.height, 2 * shape.width + 1),
            (shape.height // 3 + 1, shape.width))


def _resize(mode, antialias):
    def cases(shape):
        for height, width in _sizes(shape):
            yield one(
                "resize",
                {
                    "size": {"height": height, "width": width},
                    "interpolation": mode,
                    "antialias": antialias,
                },
                partial(
                    functional.resize, size=[height, width],
                    interpolation=MODES[mode], antialias=antialias,
                ),
            )

    return cases


def _resize_nearest_exact(shape):
    for height, width in _sizes(shape):
        yield one(
            "resize",
            {
                "size": {"height": height, "width": width},
                "interpolation": NEAREST_EXACT,
            },
            partial(explained.nearest_exact, size=(height, width)),
        )


def _resize_edge(shape):
    for edge, most in ((1, None), (20, None), (40, 50), (100, 130)):
        long, short = sorted((shape.height, shape.width), reverse=True)
        if edge * long // short > 4000:
            continue
        parameters = {"shorter_edge": edge, "interpolation": BILINEAR,
                      "antialias": True}
        if most is not None:
            parameters["max_size"] = most
        yield one(
            "resize",
            parameters,
            partial(
                functional.resize, size=[edge], interpolation=MODES[BILINEAR],
                max_size=most, antialias=True,
            ),
        )


def _resized_crop(mode, antialias):
    def resized_crop(image, size, **window):
        if mode == NEAREST_EXACT:
            cropped = functional.crop(image, **window)
            return explained.nearest_exact(cropped, size)
        return functional.resized_crop(
            image, **window, size=size, interpolation=MODES[mode],
            antialias=antialias,
        )

    def cases(shape):
        for top, left, height, width in (
            (0, 0, shape.height, shape.width),
            (shape.height // 3, shape.width // 4, shape.height // 2 + 1,
             shape.width // 2 + 1),
        ):
            window = {"top": top, "left": left, "height": height,
                      "width": width}
            for size in ((1, 1), (5, 9), (64, 48)):
                yield one(
                    "resized_crop",
                    {
                        **window,
                        "size": {"height": size[0], "width": size[1]},
                        "interpolation": mode,
                        "antialias": antialias,
                    },
                    partial(resized_crop, size=list(size), **window),
                )

    return cases


SIZES = "to 1x1, 7x5, 32x32, 160x90, one axis alone"
PARTS = "all, a part; to 1x1, 5x9, 64x48"

ROWS = [
    Row("HorizontalFlip, VerticalFlip", "", _moves, 0, 0),
    Row("Pad", "four modes, up to 3 pixels", _pad, 0, 0),
    Row("Crop", "a corner, a part, beyond the image", _crop, 0, 0),
    Row("CenterCrop", "1x1, 20x31, 40x40, 130x70", _center_crop, 0, 0),
    Row("Resize", f"nearest; {SIZES}", _resize(NEAREST, False), 0, 0),
    Row("Resize", f"nearest-exact; {SIZES}", _resize_nearest_exact, 0, 0,
        remark="against torch's interpolate"),
    Row("Resize", f"bilinear; {SIZES}", _resize(BILINEAR, False), ONE_LEVEL,
        RESIZED),
    Row("Resize", f"bilinear, antialias; {SIZES}", _resize(BILINEAR, True),
        ONE_LEVEL, RESIZED),
    Row("Resize", f"bicubic; {SIZES}", _resize(BICUBIC, False), ONE_LEVEL,
        RESIZED),
    Row("Resize", f"bicubic, antialias; {SIZES}", _resize(BICUBIC, True),
        ONE_LEVEL, RESIZED),
    Row("Resize", "shorter edge 1, 20, 40, 100; max_size none, 50, 130",
        _resize_edge, ONE_LEVEL, RESIZED),
    Row("ResizedCrop", f"nearest; {PARTS}", _resized_crop(NEAREST, False), 0,
        0),
    Row("ResizedCrop", f"nearest-exact; {PARTS}",
        _resized_crop(NEAREST_EXACT, False), 0, 0,
        remark="against torch's interpolate"),
    Row("ResizedCrop", f"bilinear; {PARTS}", _resized_crop(BILINEAR, False),
        ONE_LEVEL, RESIZED),
    Row("ResizedCrop", f"bilinear, antialias; {PARTS}",
        _resized_crop(BILINEAR, True), ONE_LEVEL, RESIZED),
    Row("ResizedCrop", f"bicubic; {PARTS}", _resized_crop(BICUBIC, False),
        ONE_LEVEL, RESIZED),
    Row("ResizedCrop", f"bicubic, antialias; {PARTS}",
        _resized_crop(BICUBIC, True), ONE_LEVEL, RESIZED),
]
