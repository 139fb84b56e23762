"""Labels that the order depends on: weights="balanced", group_by=."""

from __future__ import annotations

import array
from typing import Any, Optional

from .._datasets.dataset import Dataset
from .._order.weights import balanced
from ..errors import InvalidArgument


def balanced_weights(
    weights: str, dataset: Dataset, samples: "Optional[array.array[int]]"
) -> Any:
    """Returns the weights of `samples`, or of all."""
    if weights != "balanced":
        raise InvalidArgument(
            f"weights={weights!r}; expected numbers or 'balanced'"
        )
    field = label_field(
        dataset, "weights='balanced'", "pass one weight per sample"
    )
    return balanced(_column(dataset, field, samples), field)


def classes_of(
    group_by: Any,
    dataset: Dataset,
    samples: "Optional[array.array[int]]",
) -> Any:
    """Returns the classes of `samples`, or of all: those that `group_by` is, or
    of the field that it names; None: of the labels."""
    if group_by is not None and not isinstance(group_by, str):
        return group_by
    field = group_by or label_field(
        dataset, "group_by=", "pass a field's name or one class per sample"
    )
    return _column(dataset, field, samples)


def _column(
    dataset: Dataset, field: str, samples: "Optional[array.array[int]]"
) -> Any:
    column = dataset.column(field)
    return column if samples is None else column[list(samples)]


def label_field(dataset: Dataset, argument: str, advice: str) -> str:
    """Returns the name of the field of classes: `label`, or the only field of
    single integers."""
    names = [
        field.name
        for field in dataset.fields
        if field.shape == () and "int" in field.dtype
    ]
    if "label" in names:
        return "label"
    if len(names) != 1:
        raise InvalidArgument(
            f"{argument}: dataset '{dataset.name}' has no field 'label' of "
            f"integers, and its other ones are {names}; {advice}"
        )
    return names[0]
