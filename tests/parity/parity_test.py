"""Every row of the parity table, at every shape."""

import collections
import dataclasses
import functools
import itertools
import os

import completeness
import numpy as np
import parity_table
import pytest
import torch
from product import Product
from row import BatchCase, Shape

from tests.testing import pytest_file

SIZES = ((1, 1), (2, 3), (31, 33), (32, 32), (123, 66), (224, 224))
# tests/run_all.sh runs these unless it is given --full.
_FEW_SIZES = ((1, 1), (31, 33))
_RUNS_ALL = os.environ["PARITY_SIZES"] == "all"


@pytest.fixture(scope="module", name="product")
def fixture_product():
    torch.set_num_threads(1)
    with Product() as product:
        yield product


@functools.lru_cache(maxsize=None)
def images(shape):
    """Noise, and waves over the whole range."""
    return list(_images(shape))


def _images(shape):
    rng = np.random.default_rng(shape.height * 1000 + shape.width)
    size = (shape.channels, shape.height, shape.width)
    c, y, x = np.meshgrid(*(np.arange(n) for n in size), indexing="ij")
    waves = np.sin(0.11 * x + c) * np.cos(0.07 * y - 0.5 * c) / 2 + 0.5
    for values in (rng.random(size), waves):
        if shape.dtype == "uint8":
            yield np.round(values * 255).astype(np.uint8)
        else:
            yield values.astype(np.float32)


def check_batch(row, case, shape, images, batch, product):
    labels = np.arange(len(images)) * 3 % case.num_classes
    result, soft, mixes = product.run_batch(case, images, labels, 7, 1, batch)
    expected, expected_soft = case.expect(images, labels, mixes)
    where = f"{shape}, {case.transforms}, {mixes}"
    assert result.shape == expected.shape
    assert result.dtype == expected.dtype
    unit = 255 if result.dtype == np.uint8 else 1
    difference = np.abs(result.astype(np.float64) - expected) / unit
    assert difference.max() <= row.bound(shape) * (1 + 1e-3), where
    assert np.abs(soft - expected_soft).max() <= 1e-6, where
    draws = [dataclasses.astuple(mix) for mix in mixes]
    assert all(draw == draws[0] for draw in draws) or case.per_sample, where
    if case.per_sample and shape.height * shape.width > 1:
        assert any(draw != draws[0] for draw in draws), where


def check(row, case, shape, image, sample, product):
    result, drawn = product.run(case, image, 7, 1, sample)
    expected = case.expect(image, drawn)
    assert result.shape == expected.shape
    assert result.dtype == expected.dtype
    bound = case.allow(drawn) if case.allow else row.bound(shape)
    unit = 255 if result.dtype == np.uint8 else 1
    difference = np.abs(result.astype(np.float64) - expected) / unit
    where = f"{shape}, {case.transforms}, drawn {drawn}"
    if case.is_edge is None:
        worst = difference.max()
        # Levels are whole: a thousandth of one is the arithmetic here.
        assert worst <= bound + 1e-3 / 255 * (unit == 255), where
        return
    differs = (difference > bound).any(axis=0)
    assert not (differs & ~case.is_edge(shape, drawn)).any(), where
    if not case.has_lines_on_edges:
        assert differs.sum() * 1000 <= differs.size, where


def cases(row, size):
    """The row's cases for a size, with their shapes."""
    return [
        (shape, case)
        for dtype in row.dtypes
        for channels in row.channels
        for shape in [Shape(dtype, channels, *size)]
        for case in row.cases(shape)
    ]


def sizes(row):
    """Returns the sizes at which the row is run."""
    own = [size for size in SIZES if cases(row, size)]
    if _RUNS_ALL:
        return own
    return [size for size in own if size in _FEW_SIZES] or own[:1]


def is_left_out(row, shape):
    """Whether a short run leaves the shape out: of the four with one pixel it
    has two, with each dtype and each number of channels."""
    return (
        shape.height == 1
        and len(row.dtypes) == len(row.channels) == 2
        and row.dtypes.index(shape.dtype) != row.channels.index(shape.channels)
    )


def draws(row, size, number):
    """The samples of a row's case: a short run has half of the draws, and of one
    pixel a quarter, others of each case."""
    count = row.num_draws if row.is_drawn else 1
    if _RUNS_ALL:
        return range(count)
    share = -(-count // (4 if size == _FEW_SIZES[0] else 2))
    return [(number + i) % count for i in range(share)]


@pytest.mark.parametrize(
    "row, size",
    [
        pytest.param(
            row, size, id=f"{size[0]}x{size[1]}-{parity_table.row_id(row)}"
        )
        for row in parity_table.ROWS
        for size in sizes(row)
    ],
)
def test_parity(row, size, product):
    is_short = not _RUNS_ALL and len(sizes(row)) > 1
    for number, (shape, case) in enumerate(cases(row, size)):
        if is_short and is_left_out(row, shape):
            continue
        samples = draws(row, size, number)
        if isinstance(case, BatchCase):
            batch = np.stack([*images(shape)] * 3)[:5]
            for index in samples:
                check_batch(row, case, shape, batch, index, product)
            continue
        kinds = images(shape)
        for sample in samples:
            # A short run gives each case or draw one of them, in turn.
            turn = [kinds[(number + sample) % 2]]
            for image in kinds if _RUNS_ALL else turn:
                check(row, case, shape, image, sample, product)


@pytest.mark.parametrize("row", parity_table.ROWS, ids=parity_table.row_id)
def test_every_row_has_cases(row):
    assert any(cases(row, size) for size in SIZES)


@pytest.fixture(scope="module", name="ops")
def fixture_ops(product):
    """{op: {path of a parameter: what the options say of it}}, of the ops on
    images."""
    return {
        name: op["parameters"]
        for name, op in product.describe().items()
        if op["family"] != "sequence"
    }


@pytest.fixture(scope="module", name="tested")
def fixture_tested():
    """{op: {(dtype, channels, size): [case, ...]}}."""
    tested = collections.defaultdict(lambda: collections.defaultdict(list))
    for row in parity_table.ROWS:
        for size in SIZES:
            for shape, case in cases(row, size):
                op = completeness.tested_op(case.transforms)
                cell = shape.dtype, shape.channels, size
                tested[op][cell].append(case)
    return tested


def test_every_op_meets_every_dtype_channels_and_size(ops, tested):
    cells = itertools.product(("uint8", "float32"), (1, 3), SIZES)
    assert len(ops) >= 49
    missing = [
        (op, cell)
        for op, cell in itertools.product(ops, list(cells))
        if not tested[op][cell]
    ]
    assert not missing


def test_every_parameter_meets_its_ends_and_choices(ops, tested):
    missing = []
    for op, parameters in ops.items():
        needs = completeness.needs(op, parameters)
        values = completeness.parameter_values(
            op, itertools.chain(*tested[op].values()), parameters
        )
        missing += [
            f"{op}.{path}: {need.text}; there is {values[path]}"
            for path, need in needs.items()
            if not need.is_met(values[path])
        ]
    assert not missing, "\n".join(missing)


def test_page_is_current():
    with open(os.environ["PARITY_PAGE"], encoding="utf-8") as file:
        text = file.read()
    assert parity_table.markdown() in text, (
        "docs/parity.md differs from tests/parity/parity_table.py's output"
    )


if __name__ == "__main__":
    pytest_file.main(__file__)
