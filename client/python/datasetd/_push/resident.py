"""Reads a resident dataset back, to compare it with pushed data."""

from __future__ import annotations

from typing import Any, Iterator, List

from .._datasets.dataset import Dataset
from .._datasets.reading import read
from .rows import of_batch

MAX_ROWS = 4096


def can_be_read(dataset: Dataset) -> bool:
    """True if its samples have one size."""
    return not any(-1 in field.shape for field in dataset.fields)


def resident_rows(dataset: Dataset, rows: int) -> Iterator[List[Any]]:
    """Yields the fields' rows in order as NumPy arrays, at most `rows` at a
    time; bfloat16 as int16."""
    import numpy

    layouts = {
        field.name: {"layout": "LAYOUT_NHWC"}
        for field in dataset.fields
        if field.is_image
    }
    for begin in range(0, dataset.num_samples, rows):
        end = min(begin + rows, dataset.num_samples)
        batch = read(
            dataset,
            numpy.arange(begin, end),
            "bits",
            options=layouts,
        )
        yield [of_batch(batch[f.name], f) for f in dataset.fields]


def are_equal(ours: Any, theirs: Any) -> bool:
    """Compares bit for bit if types are equal; labels may be wider there."""
    import numpy

    if ours.shape != theirs.shape:
        return False
    if ours.dtype == theirs.dtype and ours.dtype.kind == "f":
        kind = f"u{ours.dtype.itemsize}"
        ours = numpy.ascontiguousarray(ours).view(kind)
        theirs = numpy.ascontiguousarray(theirs).view(kind)
    return bool(numpy.array_equal(ours, theirs))
