"""weights="balanced": one weight per sample, from the labels."""

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
    field = _label_field(dataset)
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


def _label_field(dataset: Dataset) -> str:
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
            f"weights='balanced': dataset '{dataset.name}' has no field "
            f"'label' of integers, and its other ones are {names}; pass one "
            "weight per sample"
        )
    return names[0]
