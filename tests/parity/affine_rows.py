"""Rows of rotations and affine maps."""

import math

import numpy as np
import torch
from geometry_rows import BILINEAR, MODES, NEAREST, ONE_LEVEL, judge, one
from row import Row
from torchvision.transforms import functional

# The bound for positions in float32, on both sides.
ROTATED = 1e-4
NEAREST_REMARK = (
    "at most 1 pixel in 1,000 differs, and only where the source point lies "
    "within 1e-4 of a pixel's edge"
)


def source_points(shape, angle, translate, scale, shear, center, size=None):
    """Returns the source of each output pixel: x and y in pixels, [H, W] each.

    Degrees, clockwise; the middle of pixel 0 is at 0. The output is of `size`,
    (height, width), about the image's middle; None is the image's size.
    """
    height, width = size or (shape.height, shape.width)
    turn, shear_x, shear_y = (math.radians(a) for a in (angle, *shear))
    # Rotation after scaling after the shear along y after that along x.
    rotate = np.array([[math.cos(turn), -math.sin(turn)],
                       [math.sin(turn), math.cos(turn)]])
    along_y = np.array([[1, 0], [-math.tan(shear_y), 1]])
    along_x = np.array([[1, -math.tan(shear_x)], [0, 1]])
    forward = scale * rotate @ along_y @ along_x
    middle = np.array([shape.width, shape.height]) / 2
    about = middle if center is None else np.array(center)
    y, x = np.mgrid[:height, :width] + 0.5
    points = np.stack([x, y], axis=-1) + middle - np.array([width, height]) / 2
    points = points - about - np.array(translate)
    source = points @ np.linalg.inv(forward).T + about
    return source[..., 0] - 0.5, source[..., 1] - 0.5


def edges(shape, *affine):
    """True where a source point lies within 1e-4 of a pixel's edge."""
    masks = [
        np.abs(axis - np.floor(axis) - 0.5) < 1e-4
        for axis in source_points(shape, *affine)
    ]
    return masks[0] | masks[1]


def _fills(shape):
    yield None
    yield [11.0] if shape.dtype == "uint8" else [0.3]
    if shape.channels == 3:
        yield [0.0, 100.0, 255.0] if shape.dtype == "uint8" else [0.1, 0.5, 1.0]


def _centers(shape):
    yield None
    yield [0.0, 0.0]
    yield [shape.width / 3, shape.height * 0.7]


def _rotate_onto_edges(shape):
    for angle in (-30.0, 45.0, 60.0, 135.0):
        for center in _centers(shape):
            for fill in _fills(shape):
                case = _rotate_case(NEAREST, angle, center, fill)
                case.has_lines_on_edges = True
                yield case


def _rotate(mode):
    def cases(shape):
        angles = [0.0, -170.3, -31.0, 10.0, 44.0, 180.0, 359.0]
        if (shape.width - shape.height) % 2 == 0:
            angles += [90.0, 270.0]
        for angle in angles:
            for center in _centers(shape):
                if center is not None and angle in (90.0, 270.0):
                    continue
                for fill in _fills(shape):
                    yield _rotate_case(mode, angle, center, fill)

    return cases


def _rotate_expand(mode):
    def cases(shape):
        angles = [0.0, -170.3, -31.0, 10.0, 44.0, 180.0, 270.0, 90.0]
        for angle in angles:
            # A corner is a pixel's edge, and here a pixel may show it.
            for center in (None, [shape.width / 3, shape.height * 0.7]):
                if center is not None and angle in (90.0, 270.0):
                    continue
                for fill in _fills(shape):
                    case = _rotate_case(mode, angle, center, fill, True)
                    if angle in (90.0, 270.0):
                        # As v2 does it; v1 may add a row and a column.
                        case.expect = judge(
                            lambda image, turns=int(angle / 90): torch.rot90(
                                image, turns, (1, 2)
                            )
                        )
                    yield case

    return cases


def _rotate_case(mode, angle, center, fill, expand=False):
    parameters = {"angle": angle, "interpolation": mode, "expand": expand}
    if center is not None:
        parameters["center"] = {"x": center[0], "y": center[1]}
    if fill is not None:
        parameters["fill"] = fill
    case = one(
        "rotate",
        parameters,
        lambda image: functional.rotate(
            image, angle, interpolation=MODES[mode], expand=expand,
            center=center, fill=fill,
        ),
    )
    if mode == NEAREST:
        # As explain says it, where the size is another one.
        case.is_edge = lambda shape, drawn: edges(
            shape, -angle, (0, 0), 1.0, (0, 0), center,
            drawn[0]["parameters"].get("size"),
        )
    return case


AFFINES = (
    # angle, translate, scale, shear
    (0.0, (0, 0), 1.0, (0.0, 0.0)),
    (0.0, (3, -2), 1.0, (0.0, 0.0)),
    (12.5, (1, 4), 0.77, (0.0, 0.0)),
    (-100.0, (0, 0), 1.37, (10.0, 0.0)),
    (33.0, (-5, 2), 1.1, (-20.0, 15.0)),
)


def _affine(mode):
    def cases(shape):
        for affine in AFFINES:
            for center in _centers(shape):
                for fill in _fills(shape):
                    yield _affine_case(mode, affine, center, fill)

    return cases


def _affine_case(mode, affine, center, fill):
    angle, translate, scale, shear = affine
    parameters = {
        "angle": angle,
        "translate": {"x": translate[0], "y": translate[1]},
        "scale": scale,
        "shear": {"x": shear[0], "y": shear[1]},
        "interpolation": mode,
    }
    if center is not None:
        parameters["center"] = {"x": center[0], "y": center[1]}
    if fill is not None:
        parameters["fill"] = fill
    case = one(
        "affine",
        parameters,
        lambda image: functional.affine(
            image, angle, list(translate), scale, list(shear),
            interpolation=MODES[mode], fill=fill, center=center,
        ),
    )
    if mode == NEAREST:
        case.is_edge = lambda shape, drawn: edges(
            shape, angle, translate, scale, shear, center
        )
    return case


ANGLES = (
    "angle 0, -170.3, -31, 10, 44, 180, 359; about the middle, a corner, a "
    "point; no fill, one, per channel"
)
EXPAND_ANGLES = (
    "expand; angle 0, -170.3, -31, 10, 44, 90, 180, 270; about the middle, a "
    "point; fills as above"
)
AFFINE_PARAMETERS = "five of angle, translate, scale and shear; center and fill"

ROWS = [
    Row("Rotate", f"nearest; {ANGLES}", _rotate(NEAREST), 0, 0,
        bound_text="1 in 1,000", remark=NEAREST_REMARK),
    Row("Rotate", "nearest; angle -30, 45, 60, 135; the same",
        _rotate_onto_edges, 0, 0, bound_text="edges",
        remark="whole lines of source points lie on pixels' edges, and only "
        "those may differ"),
    Row("Rotate", f"bilinear; {ANGLES}", _rotate(BILINEAR), ONE_LEVEL,
        ROTATED),
    Row("Rotate", f"nearest; {EXPAND_ANGLES}", _rotate_expand(NEAREST), 0, 0,
        bound_text="1 in 1,000", remark=NEAREST_REMARK + "; 90 and 270 "
        "against torch.rot90"),
    Row("Rotate", f"bilinear; {EXPAND_ANGLES}", _rotate_expand(BILINEAR),
        ONE_LEVEL, ROTATED, remark="90 and 270 against torch.rot90"),
    Row("Affine", f"nearest; {AFFINE_PARAMETERS}", _affine(NEAREST), 0, 0,
        bound_text="1 in 1,000", remark=NEAREST_REMARK),
    Row("Affine", f"bilinear; {AFFINE_PARAMETERS}", _affine(BILINEAR),
        ONE_LEVEL, ROTATED),
]
