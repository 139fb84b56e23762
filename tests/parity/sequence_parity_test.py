"""The ops on sequences against their judges (sequence_rows.py), and the kernels
against the host, bit for bit.

SEQUENCE_JUDGE=torchaudio takes torchaudio as the judge, in the place of NumPy.
"""

import os
import warnings

import completeness
import numpy as np
import pytest
from product import Product
from sequence_rows import (
    CASES,
    EPOCH,
    SEED,
    Case,
    NumpyJudge,
    TorchaudioJudge,
    judged,
)

from tests.testing import pytest_file


@pytest.fixture(scope="module", name="judge")
def fixture_judge():
    if os.environ.get("SEQUENCE_JUDGE") == "torchaudio":
        return TorchaudioJudge()
    return NumpyJudge()


@pytest.fixture(scope="module", name="product")
def fixture_product():
    with Product() as product:
        yield product


def by_op():
    """{the last op that is no ToDtype, or a chain: its cases}"""
    cases = {}
    for case in CASES:
        names = [name for op in case.transforms for name in op]
        while len(names) > 1 and names[-1] == "to_dtype":
            names.pop()
        cases.setdefault(names[-1], []).append(case)
    return cases


@pytest.mark.parametrize("op", by_op())
def test_parity(op, judge, product):
    for case in by_op()[op]:
        for sample in range(case.num_samples):
            x = case.input(sample)
            result = product.run_sequence(case, x, SEED, EPOCH, sample)
            with warnings.catch_warnings():
                # Of filters without a bin.
                warnings.simplefilter("ignore")
                expected = judged(judge, case, x, sample)
            assert result.shape == expected.shape, case
            difference = np.abs(result.astype(np.float64) - expected)
            largest = max(1e-6, np.abs(expected).max())
            bound = case.decibels or case.bound * largest
            if result.dtype == np.float16:
                bound = max(bound, 1e-3 * largest)
            assert difference.max() <= bound, (
                f"{case}, sample {sample}: {difference.max()} at "
                f"{np.unravel_index(difference.argmax(), result.shape)}, "
                f"largest {largest}"
            )


def test_every_op_has_cases_of_all_its_values(product):
    ops = {
        name: op["parameters"]
        for name, op in product.describe().items()
        if op["family"] == "sequence"
    }
    assert len(ops) == 9
    missing = []
    for op, parameters in ops.items():
        cases = [
            Case([{op: transform[op]}])
            for case in CASES
            for transform in case.transforms
            if op in transform
        ]
        values = completeness.parameter_values(op, cases, parameters)
        missing += [
            f"{op}.{path}: {need.text}; there is {values[path]}"
            for path, need in completeness.needs(op, parameters).items()
            if not need.is_met(values[path])
        ]
    assert not missing, "\n".join(missing)


@pytest.mark.skipif(
    not os.environ.get("APPLY_OPS_KERNELS"), reason="compares kernels"
)
@pytest.mark.parametrize("op", by_op())
def test_kernels_have_the_bits_of_the_host(op, product):
    with Product(os.environ["APPLY_OPS_KERNELS"]) as kernels:
        for i, case in enumerate(by_op()[op]):
            samples = range(min(case.num_samples, 2))
            # One of them; both in the long form.
            if os.environ.get("DATASETD_TEST_FULL") != "1":
                samples = [i % len(samples)]
            for sample in samples:
                x = case.input(sample)
                expected = product.run_sequence(case, x, SEED, EPOCH, sample)
                result = kernels.run_sequence(case, x, SEED, EPOCH, sample)
                assert result.tobytes() == expected.tobytes(), case


if __name__ == "__main__":
    pytest_file.main(__file__)
