"""Rows of policies as drawn: torchvision's functions, with what was drawn.

Which ops and magnitudes are drawn is compared in policies_test.py.
"""

import math

import affine_rows
import explained
import numpy as np
from row import Case, Row

NEAREST, BILINEAR, _ = explained.MODES
# Ops whose result for a pixel depends on other pixels, or on its position.
_SPREAD = {"AdjustContrast", "Autocontrast", "Equalize", "Affine"}


def _edges(shape, drawn):
    """True at pixels whose source in a nearest affine op lies on a pixel's
    edge, and at those that later ops compute from them."""
    mask = np.zeros((shape.height, shape.width), bool)
    for draw in drawn:
        if not draw["is_applied"]:
            continue
        if mask.any() and draw["name"] in _SPREAD:
            mask[...] = True
        if mask.any() and draw["name"] == "AdjustSharpness":
            padded = np.pad(mask, 1)
            mask = np.any([
                padded[y:y + shape.height, x:x + shape.width]
                for y in range(3) for x in range(3)
            ], axis=0)
        if draw["name"] == "Affine":
            affine = draw["parameters"]
            mask |= affine_rows.edges(
                shape, affine["angle"][0], affine["translate"],
                affine["scale"][0], affine["shear"], affine.get("center"),
            )
    return mask


def _row(op, parameters, name, values, mode, num_draws):
    def cases(shape):
        fill = [11] if shape.dtype == "uint8" else [0.3]
        is_nearest = mode == NEAREST
        for index, value in enumerate(values):
            parameters = {**value, "interpolation": mode}
            if index % 2 == 1:
                parameters["fill"] = fill
            ops = [{name: parameters}]
            yield Case(
                ops,
                explained.expect(ops),
                explained.allow(shape, is_nearest, torn=math.inf),
                is_edge=_edges if is_nearest else None,
                # Shears have whole lines of them.
                has_lines_on_edges=is_nearest,
            )

    listed = "nearest" if mode == NEAREST else "bilinear"
    return Row(op, f"{listed}; {parameters}; as drawn", cases, None, None,
               is_drawn=True, num_draws=num_draws,
               remark=REMARK if mode == NEAREST else "")


REMARK = "pixels on edges may differ"
ONE = [
    {"num_ops": 1, "magnitude": 9, "num_magnitude_bins": 31},
    {"num_ops": 1, "magnitude": 30},
    {"num_ops": 1, "magnitude": 0},
    {"num_ops": 1, "magnitude": 1, "num_magnitude_bins": 2},
    {"num_ops": 0},
]
TWO = [{"num_ops": 2, "magnitude": 9}, {"num_ops": 2, "magnitude": 20}]
BINS = [{"num_magnitude_bins": 31}, {"num_magnitude_bins": 2}]
POLICIES = [
    {"policy": "AUTO_AUGMENT_POLICY_" + name}
    for name in ("IMAGENET", "CIFAR10", "SVHN")
]

ROWS = [
    row
    for mode in (NEAREST, BILINEAR)
    for row in (
        _row("RandAugment", "num_ops 0, 1; magnitude 0, 9, 30 of 31, 1 of 2",
             "rand_augment", ONE, mode, 16),
        _row("RandAugment", "num_ops 2; magnitude 9, 20", "rand_augment", TWO,
             mode, 16),
        _row("TrivialAugmentWide", "num_magnitude_bins 2, 31",
             "trivial_augment_wide", BINS, mode, 16),
        _row("AutoAugment", "imagenet, cifar10, svhn", "auto_augment",
             POLICIES, mode, 16),
    )
]
