"""Rows of RandomPerspective as drawn."""

import numpy as np
import torch
from explained import MODES
from row import Case, Row

try:
    from torchvision.transforms import functional_tensor
except ImportError:  # its name since 0.17
    from torchvision.transforms import (
        _functional_tensor as functional_tensor,
    )

NEAREST, BILINEAR, _ = MODES
# The bound for positions in float32, on both sides.
WARPED = 1e-3


def _coefficients(draw):
    """As torchvision solves for them, in double; None where it cannot."""
    parameters = draw["parameters"]
    starts = np.reshape(parameters["startpoints"], (4, 2))
    ends = np.reshape(parameters["endpoints"], (4, 2))
    rows, values = [], []
    for (x, y), (u, v) in zip(ends, starts):
        rows.append([x, y, 1, 0, 0, 0, -u * x, -u * y])
        rows.append([0, 0, 0, x, y, 1, -v * x, -v * y])
        values += [u, v]
    for points in (starts, ends):
        for skipped in range(4):
            a, b, c = np.delete(points, skipped, axis=0)
            if np.cross(b - a, c - a) == 0:
                return None
    return np.linalg.solve(np.array(rows), np.array(values))


def _source(shape, coefficients):
    """x, y and the divisor at each output pixel, [H, W] each."""
    y, x = np.mgrid[: shape.height, : shape.width] + 0.5
    a, b, c, d, e, f, g, h = coefficients
    divisor = g * x + h * y + 1
    with np.errstate(divide="ignore", invalid="ignore"):
        return (
            (a * x + b * y + c) / divisor - 0.5,
            (d * x + e * y + f) / divisor - 0.5,
            divisor,
        )


def _expect(parameters):
    def run(image, drawn):
        if not drawn or not drawn[0]["is_applied"]:
            return image
        coefficients = _coefficients(drawn[0])
        if coefficients is None:
            return image
        fill = parameters.get("fill")
        return functional_tensor.perspective(
            torch.from_numpy(image),
            coefficients.tolist(),
            interpolation=MODES[parameters["interpolation"]].value,
            fill=fill and fill * image.shape[0],
        ).numpy()

    return run


def _edges(shape, drawn):
    """True where a source lies within 1e-3 of a pixel's edge, or is so large,
    near the line at infinity, that float32 has no such digits."""
    near = np.zeros((shape.height, shape.width), bool)
    if not drawn or not drawn[0]["is_applied"]:
        return near
    coefficients = _coefficients(drawn[0])
    if coefficients is None:
        return near
    x, y, divisor = _source(shape, coefficients)
    for axis in (x, y):
        near |= np.abs(axis - np.floor(axis) - 0.5) < 1e-3
    return near | (np.abs(divisor) < 0.1)


def _row(mode, listed, bound_text, remark):
    def cases(shape):
        fill = [11] if shape.dtype == "uint8" else [0.3]
        for scale in (0, 0.3, 0.5, 1):
            for p in (0, 0.5, 1):
                for other in ({}, {"fill": fill}) if p else ({},):
                    parameters = {"distortion_scale": scale, "p": p,
                                  "interpolation": mode, **other}
                    yield Case(
                        [{"random_perspective": parameters}],
                        _expect(parameters),
                        is_edge=_edges if mode == NEAREST else None,
                        has_lines_on_edges=True,
                    )

    return Row("RandomPerspective",
               f"{listed}; distortion_scale 0, 0.3, 0.5, 1, p 0, 0.5, 1; no "
               "fill, one; as drawn", cases, 0 if mode == NEAREST else 1,
               0 if mode == NEAREST else WARPED, bound_text=bound_text,
               is_drawn=True, remark=remark)


ROWS = [
    _row(NEAREST, "nearest", "edges",
         "only pixels whose source lies within 1e-3 of a pixel's edge, or near "
         "the line at infinity, may differ; corners on a line leave the image "
         "as it is"),
    _row(BILINEAR, "bilinear", "",
         "coefficients solved in double, as newer versions do; corners on a "
         "line leave the image as it is"),
]
