"""The kernels cost what docs/kernel-cost.md says, within a twentieth."""

import os
import re

import pytest

from tests.benchmarks.kernel_cost import kernel_cost
from tests.testing import pytest_file

# A small count may differ by this, which is more than a twentieth of it.
_LEAST_STEP = 1.0

_ROW = re.compile(r"\| [a-z0-9-]+ \| \d+ \|")


def _documented(first="| workload | warp instr."):
    """{workload: {column: number}} of the table that begins so."""
    path = os.path.join(os.environ["TEST_SRCDIR"],
                        os.environ["TEST_WORKSPACE"], "docs/kernel-cost.md")
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    start = next(i for i, line in enumerate(lines)
                 if line.startswith(first))
    titles = [title.strip() for title in lines[start].split("|")[2:-1]]
    rows = {}
    for line in lines[start + 2:]:
        if not line.startswith("|"):
            break
        name, *values = [cell.strip() for cell in line.split("|")[1:-1]]
        rows[name] = dict(zip(titles, map(float, values)))
    return rows


def _numbers(cell):
    return [float(number) for number in re.findall(r"[\d.]+", cell)]


@pytest.fixture(name="costs", scope="module")
def _costs():
    return kernel_cost.count()


@pytest.fixture(name="launches", scope="module")
def _launches():
    return kernel_cost.count_launches()


def test_every_workload_has_its_row(costs):
    assert list(costs) == list(_documented())


@pytest.mark.parametrize("title,counter", kernel_cost.COLUMNS)
def test_counts_are_those_of_the_page(costs, title, counter):
    documented = _documented()
    found = {name: kernel_cost.per_32_pixels(cost, counter)
             for name, cost in costs.items()}
    wrong = {
        name: (value, documented[name][title])
        for name, value in found.items()
        if abs(value - documented[name][title])
        > max(_LEAST_STEP, documented[name][title] / 20)
    }
    assert not wrong, (
        f"{title}: counted and documented: {wrong}; if that is meant, print "
        "the page's table again: bazel run //tests/benchmarks/kernel_cost")


def test_stage_in_costs_what_the_page_says():
    documented = _documented("| stage-in |")
    costs = kernel_cost.count_stage()
    assert list(costs) == list(documented)
    for name, cost in costs.items():
        for title, value in kernel_cost.STAGE_COLUMNS:
            assert value(cost) == pytest.approx(
                documented[name][title], rel=0.05, abs=0.1), (name, title)


def test_small_launches_are_those_of_the_page(launches):
    path = os.path.join(os.environ["TEST_SRCDIR"],
                        os.environ["TEST_WORKSPACE"], "docs/kernel-cost.md")
    with open(path, encoding="utf-8") as file:
        page = file.read()
    for line in kernel_cost.launch_table(launches).splitlines():
        if _ROW.match(line) is None:
            assert line in page
            continue
        name, samples, *values = [c.strip() for c in line.split("|")[1:-1]]
        documented = re.search(
            rf"^\| {name} \| {samples} \|(.*)\|$", page, re.MULTILINE)
        assert documented, line
        for value, other in zip(values, documented[1].split("|")):
            for a, b in zip(_numbers(value), _numbers(other), strict=True):
                assert a == pytest.approx(b, rel=0.05), (line, documented[0])


def test_strips_cost_an_eighth_more_at_most(launches):
    for row in launches:
        before, now = row["warp_instructions_a_sample"]
        assert now <= 1.12 * before, row
        if row["blocks"][0] < row["blocks"][1]:
            before, now = row["longest_block"]
            assert now < 0.6 * before, row


if __name__ == "__main__":
    pytest_file.main(__file__)
