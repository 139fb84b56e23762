"""The draws of policies: torchvision's ops, magnitudes, signs and pairs.

The judge is the table of magnitudes and the policies of torchvision's own
classes; explain says what was drawn.
"""

import collections
import math
import os

import numpy as np
import pytest
import torch
import torchvision.transforms as V
from product import Product
from row import Case

from tests.testing import pytest_file

HEIGHT, WIDTH = 331, 97  # torchvision's translations are in 331ths
SHAPE = 1, HEIGHT, WIDTH
NUM_SAMPLES = 4000 if os.environ.get("DATASETD_TEST_FULL") == "1" else 2000
# torch.linspace rounds as the processor's vectors have it.
ROUNDING = 2e-5

Drawn = collections.namedtuple("Drawn", "name magnitude is_applied")


@pytest.fixture(scope="module", name="product")
def fixture_product():
    with Product() as product:
        yield product


def read(draw):
    """An op that explain names, as torchvision's policies do."""
    values = draw["parameters"]
    simple = {
        "AdjustBrightness": ("Brightness", "brightness_factor"),
        "AdjustSaturation": ("Color", "saturation_factor"),
        "AdjustContrast": ("Contrast", "contrast_factor"),
        "AdjustSharpness": ("Sharpness", "sharpness_factor"),
    }
    name, magnitude = draw["name"], 0.0
    if not draw["is_applied"]:
        return Drawn(simple.get(name, [name])[0], None, False)
    if name in simple:
        name, factor = simple[name]
        magnitude = values[factor][0] - 1
    elif name == "Posterize":
        magnitude = values["bits"][0]
    elif name == "Solarize":
        magnitude = values["threshold"][0]
    elif name == "Autocontrast":
        name = "AutoContrast"
    elif name == "Affine":
        name, magnitude = read_affine(values)
    else:
        assert name in ("Equalize", "Invert"), name
    return Drawn(name, magnitude, True)


def read_affine(values):
    assert values["scale"] == [1.0]
    if "center" in values:
        assert values["center"] == [0, 0]
        assert values["angle"] == [0] and values["translate"] == [0, 0]
        x, y = (math.tan(math.radians(shear)) for shear in values["shear"])
        assert x == 0 or y == 0
        # Without a magnitude both are the same.
        return ("ShearX", x) if y == 0 else ("ShearY", y)
    assert values["shear"] == [0, 0]
    if values["angle"] != [0]:
        # Explain's is clockwise.
        assert values["translate"] == [0, 0]
        return "Rotate", -values["angle"][0]
    x, y = values["translate"]
    assert x == 0 or y == 0
    return ("TranslateX", x) if y == 0 else ("TranslateY", y)


def draws(product, transform, num_samples=NUM_SAMPLES):
    """The ops of each sample."""
    drawn = product.draw(
        Case([transform], None), SHAPE, np.dtype("uint8"), 7, 1, num_samples
    )
    return [[read(draw) for draw in sample] for sample in drawn]


def magnitudes(space, name):
    """Returns an op's magnitudes in torchvision's table, by bin."""
    values, is_signed = space[name]
    values = values.reshape(-1).double().tolist()
    if name.startswith("Translate"):
        values = [math.trunc(value) for value in values]
    return values, is_signed


def bins(space, drawn):
    """The bins whose magnitude was drawn."""
    values, is_signed = magnitudes(space, drawn.name)
    value = abs(drawn.magnitude) if is_signed else drawn.magnitude
    # An integer is cut off, where a difference in rounding may show.
    error = 1 if drawn.name.startswith("Translate") else (
        ROUNDING * max(1, max(values))
    )
    nearest = min(abs(value - v) for v in values)
    assert nearest <= error, drawn
    return {i for i, v in enumerate(values) if abs(v - value) == nearest}


def check_uniform(counts, num_cells):
    """Chi-square, at five standard deviations."""
    total = sum(counts)
    expected = total / num_cells
    assert len(counts) == num_cells
    square = sum((count - expected) ** 2 for count in counts) / expected
    assert square < num_cells + 5 * math.sqrt(2 * num_cells), counts


def test_trivial_augment_wide(product):
    num_samples = 4000
    drawn = draws(product, {"trivial_augment_wide": {}}, num_samples)
    space = V.TrivialAugmentWide()._augmentation_space(31)
    assert len(space) == 14
    # An op without effect is left out.
    assert all(len(ops) <= 1 for ops in drawn)
    counts = collections.Counter(
        ops[0].name if ops else "Identity" for ops in drawn
    )
    assert counts.keys() == space.keys()
    seen = collections.defaultdict(set)
    negative = collections.Counter()
    for (op,) in filter(None, drawn):
        seen[op.name] |= bins(space, op)
        negative[op.name] += op.magnitude < 0
    for name, (values, is_signed) in space.items():
        if name == "Identity":
            continue
        # About nine draws of each bin: all of them but one or two.
        assert len(seen[name]) >= len(values.reshape(-1)) - 2, name
        share = negative[name] / counts[name]
        assert 0.35 < share < 0.6 if is_signed else share == 0, name
    # With magnitude 0 a shear, a translation and a rotation are the same.
    others = [
        counts[name] for name in space
        if not name.startswith(("Shear", "Translate", "Rotate"))
    ]
    check_uniform(others, 9)
    assert abs(sum(others) / num_samples - 9 / 14) < 0.04


@pytest.mark.parametrize("magnitude, num_bins", [(9, 31), (30, 31), (3, 10)])
def test_rand_augment(magnitude, num_bins, product):
    policy = V.RandAugment(num_magnitude_bins=num_bins)
    space = policy._augmentation_space(num_bins, (HEIGHT, WIDTH))
    drawn = draws(product, {
        "rand_augment": {
            "num_ops": 1,
            "magnitude": magnitude,
            "num_magnitude_bins": num_bins,
        }
    })
    counts = collections.Counter()
    signs = collections.Counter()
    for ops in drawn:
        if not ops:
            counts["Identity"] += 1
            continue
        (op,) = ops
        counts[op.name] += 1
        signs[op.name] += op.magnitude < 0
        if space[op.name][0].dim() > 0:
            assert magnitude in bins(space, op), op
    assert counts.keys() == space.keys()
    check_uniform(list(counts.values()), 14)
    for name, (_, is_signed) in space.items():
        share = signs[name] / counts[name]
        assert abs(share - 0.5) < 0.15 if is_signed else share == 0, name


def test_rand_augment_draws_each_op_anew(product):
    drawn = draws(product, {"rand_augment": {"num_ops": 2, "magnitude": 9}})
    pairs = collections.Counter(
        tuple(op.name for op in ops) for ops in drawn if len(ops) == 2
    )
    check_uniform(list(pairs.values()), 13 * 13)
    lone = sum(len(ops) == 1 for ops in drawn) / NUM_SAMPLES
    assert abs(lone - 2 * 13 / 14 / 14) < 0.03


@pytest.mark.parametrize("policy", list(V.AutoAugmentPolicy))
def test_auto_augment(policy, product):
    theirs = V.AutoAugment(policy)
    space = theirs._augmentation_space(10, (HEIGHT, WIDTH))
    drawn = draws(product, {
        "auto_augment": {"policy": "AUTO_AUGMENT_POLICY_" + policy.name}
    })
    assert all(len(ops) == 2 for ops in drawn)

    def is_of(op, choice):
        name, p, bin_index = choice
        if not op.is_applied:
            # Explain says that it would have been an affine op.
            kind = name.startswith(("Shear", "Translate", "Rotate"))
            mine = {"Autocontrast": "AutoContrast"}.get(op.name, op.name)
            return p < 1 and (mine == "Affine" if kind else mine == name)
        return p > 0 and op.name == name and (
            bin_index is None or bin_index in bins(space, op)
        )

    # Rows with the same ops cannot be told apart: each gets its share.
    applied = collections.Counter()
    expected = collections.Counter()
    rows = collections.Counter(theirs.policies)
    for row, count in rows.items():
        for first in (True, False):
            for second in (True, False):
                p = count / 25
                for choice, is_applied in zip(row, (first, second)):
                    p *= choice[1] if is_applied else 1 - choice[1]
                if first and second:
                    expected[row] += p * NUM_SAMPLES
    for ops in drawn:
        fitting = [
            row for row in rows if all(map(is_of, ops, row))
        ]
        assert fitting, ops
        if all(op.is_applied for op in ops):
            for row in fitting:
                applied[row] += expected[row] / sum(
                    expected[other] for other in fitting
                )
    for row, number in expected.items():
        assert abs(applied[row] - number) <= 5 * math.sqrt(number), row
    assert sum(expected.values()) > NUM_SAMPLES / 5


def test_magnitudes_are_v2s(product):
    """v2 gives Solarize parts of the bound, and TranslateX whole pixels."""
    for bin_index in (0, 7, 10, 15, 29, 30):
        part = float(torch.linspace(1.0, 0.0, 31)[bin_index])
        thresholds = set()
        for dtype, bound in ((np.uint8, 255), (np.float32, 1)):
            case = Case([{"rand_augment": {"num_ops": 1,
                                           "magnitude": bin_index}}], None)
            for drawn in product.draw(case, SHAPE, np.dtype(dtype), 7, 1, 60):
                for draw in drawn:
                    if draw["name"] == "Solarize":
                        value = draw["parameters"]["threshold"][0]
                        assert value == pytest.approx(bound * part, rel=1e-5,
                                                      abs=1e-6)
                        thresholds.add(value)
        assert len(thresholds) == (1 if part == 0 else 2)


if __name__ == "__main__":
    pytest_file.main(__file__)
