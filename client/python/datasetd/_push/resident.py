"""Reads a resident dataset back, to compare it with pushed data."""

from __future__ import annotations

import importlib.util
from typing import Any, Generator, List

from .._datasets.dataset import Dataset
from .._loader.loader import DataLoader
from .rows import needs_torch, of_batch

MAX_ROWS = 4096


def can_be_read(dataset: Dataset) -> bool:
    """True if its samples have one size and a library can hold them."""
    if any(-1 in field.shape for field in dataset.fields):
        return False
    if not needs_torch(dataset.device, dataset.fields):
        return True
    if not importlib.util.find_spec("torch"):
        return False
    import torch

    # Scalar integers come as int64.
    return all(
        not field.shape or hasattr(torch, field.dtype)
        for field in dataset.fields
    )


def resident_rows(
    dataset: Dataset, rows: int
) -> Generator[List[Any], None, None]:
    """Yields the fields' rows in order as NumPy arrays, at most `rows` at a
    time; bfloat16 as int16."""
    fields = dataset.fields
    is_torch = needs_torch(dataset.device, fields)
    with DataLoader(
        dataset,
        batch_size=rows,
        rank=0,
        world_size=1,
        framework="torch" if is_torch else "numpy",
        layout={field.name: "NHWC" for field in fields if field.is_image},
    ) as loader:
        for batch in loader._iterate():
            yield [of_batch(batch[field.name], field) for field in fields]


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
