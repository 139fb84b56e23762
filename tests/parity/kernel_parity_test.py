"""Every row of the parity table: the CUDA kernels against the host, bit for bit.

APPLY_OPS_KERNELS runs them, as PTX or on a GPU.
"""

import os

import numpy as np
import parity_table
import pytest
from product import Product
from row import BatchCase, Shape

from tests.testing import pytest_file

SIZES = ((9, 11), (31, 33))


@pytest.fixture(scope="module", name="host")
def fixture_host():
    with Product(os.environ["APPLY_OPS"]) as product:
        yield product


@pytest.fixture(scope="module", name="kernels")
def fixture_kernels():
    with Product(os.environ["APPLY_OPS_KERNELS"]) as product:
        yield product


def noise(shape, count):
    rng = np.random.default_rng(count)
    values = rng.random((count, shape.channels, shape.height, shape.width))
    if shape.dtype == "uint8":
        return np.round(values * 255).astype(np.uint8)
    return values.astype(np.float32)


def cases(row):
    """The row's cases with their shapes, each once."""
    seen = set()
    for dtype in row.dtypes:
        for channels in row.channels:
            for size in SIZES:
                shape = Shape(dtype, channels, *size)
                for case in row.cases(shape):
                    key = str(shape), str(case.transforms)
                    if key not in seen:
                        seen.add(key)
                        yield shape, case


def results(product, shape, case, sample):
    """The bytes of the images and labels, and what was drawn."""
    if isinstance(case, BatchCase):
        images = noise(shape, 5)
        labels = np.arange(len(images)) * 3 % case.num_classes
        images, labels, mixes = product.run_batch(
            case, images, labels, 7, 1, sample
        )
        return images.tobytes(), labels.tobytes(), str(mixes)
    image, drawn = product.run(case, noise(shape, 1)[0], 7, 1, sample)
    return image.tobytes(), b"", str(list(drawn))


@pytest.mark.parametrize("row", parity_table.ROWS, ids=parity_table.row_id)
def test_kernels_have_the_bits_of_the_host(row, host, kernels):
    num_cases = 0
    for shape, case in cases(row):
        for sample in range(row.num_draws if row.is_drawn else 1):
            expected = results(host, shape, case, sample)
            assert results(kernels, shape, case, sample) == expected, (
                f"{shape}, sample {sample}, {case.transforms}"
            )
            num_cases += 1
    assert num_cases > 0


if __name__ == "__main__":
    pytest_file.main(__file__)
