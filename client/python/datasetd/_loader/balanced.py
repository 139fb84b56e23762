"""Labels that the order depends on: weights="balanced", group_by=."""

from __future__ import annotations

import array
from typing import Any, Callable, Optional

from .._datasets.dataset import Dataset
from .._order.weights import balanced
from ..errors import InvalidArgument


def balanced_weights(
    weights: str,
    open_loader: Callable[..., Any],
    dataset: Dataset,
    samples: "Optional[array.array[int]]",
    framework: str,
) -> Any:
    """Returns the weights of `samples`, or of all. `open_loader` is called as
    DataLoader, to read the labels."""
    if weights != "balanced":
        raise InvalidArgument(
            f"weights={weights!r}; expected numbers or 'balanced'"
        )
    if framework == "dlpack":
        raise InvalidArgument(
            "weights='balanced' reads the labels, which "
            "framework='dlpack' cannot: pass one weight per sample"
        )
    field = label_field(
        dataset, "weights='balanced'", "pass one weight per sample"
    )
    with open_loader(
        dataset,
        batch_size=4096,
        fields=[field],
        framework=framework,
        rank=0,
        world_size=1,
        # Not a subset, which has a limit.
        sampler=samples,
    ) as loader:
        return balanced([batch[0] for batch in loader._iterate()], field)


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
