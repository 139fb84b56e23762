"""Every row of the parity table, at every shape."""

import os
import sys

import numpy as np
import pytest
import torch

import parity_table
from product import Product
from row import Shape

SIZES = ((1, 1), (2, 3), (31, 33), (32, 32), (123, 66), (224, 224))
NUM_DRAWS = 3  # samples of each case that draws


@pytest.fixture(scope="module", name="product")
def fixture_product():
    torch.set_num_threads(1)
    with Product() as product:
        yield product


def images(shape):
    """Noise, and waves over the whole range."""
    rng = np.random.default_rng(shape.height * 1000 + shape.width)
    size = (shape.channels, shape.height, shape.width)
    c, y, x = np.meshgrid(*(np.arange(n) for n in size), indexing="ij")
    waves = np.sin(0.11 * x + c) * np.cos(0.07 * y - 0.5 * c) / 2 + 0.5
    for values in (rng.random(size), waves):
        if shape.dtype == "uint8":
            yield np.round(values * 255).astype(np.uint8)
        else:
            yield values.astype(np.float32)


def check(row, case, shape, image, sample, product):
    result, drawn = product.run(case.transforms, image, 7, 1, sample)
    expected = case.expect(image, drawn)
    assert result.shape == expected.shape
    assert result.dtype == expected.dtype
    bound = case.allow(drawn) if case.allow else row.bound(shape)
    difference = np.abs(result.astype(np.float64) - expected) / shape.bound
    where = f"{shape}, {case.transforms}, drawn {drawn}"
    if case.is_edge is None:
        worst = difference.max()
        # Levels are whole: a thousandth of one is the arithmetic here.
        assert worst <= bound + 1e-3 / 255 * (shape.dtype == "uint8"), where
        return
    differs = (difference > bound).any(axis=0)
    assert differs.sum() * 1000 <= differs.size, where
    assert not (differs & ~case.is_edge(shape, drawn)).any(), where


def cases(row, size):
    """The row's cases for a size, with their shapes."""
    return [
        (shape, case)
        for dtype in row.dtypes
        for channels in row.channels
        for shape in [Shape(dtype, channels, *size)]
        for case in row.cases(shape)
    ]


@pytest.mark.parametrize(
    "row, size",
    [
        pytest.param(
            row, size, id=f"{size[0]}x{size[1]}-{parity_table.row_id(row)}"
        )
        for row in parity_table.ROWS
        for size in SIZES
        if cases(row, size)
    ],
)
def test_parity(row, size, product):
    num_samples = NUM_DRAWS if row.is_drawn else 1
    for shape, case in cases(row, size):
        for image in images(shape):
            for sample in range(num_samples):
                check(row, case, shape, image, sample, product)


@pytest.mark.parametrize("row", parity_table.ROWS, ids=parity_table.row_id)
def test_every_row_has_cases(row):
    assert any(cases(row, size) for size in SIZES)


def test_page_is_current():
    with open(os.environ["PARITY_PAGE"], encoding="utf-8") as file:
        text = file.read()
    assert parity_table.markdown() in text, (
        "docs/parity.md differs from tests/parity/parity_table.py's output"
    )


if __name__ == "__main__":
    arguments = ["-q", "-p", "no:cacheprovider", os.path.abspath(__file__)]
    if "XML_OUTPUT_FILE" in os.environ:
        arguments.append("--junitxml=" + os.environ["XML_OUTPUT_FILE"])
    sys.exit(pytest.main(arguments))
