"""concat: the samples of several datasets, to be pushed as one."""

from __future__ import annotations

import math
from typing import Any, Iterable, List, Mapping, Optional, Tuple

from .._arguments import has_items_of
from .._datasets.reading import read
from .._datasets.subset import Samples
from .._descriptions import Field
from ..errors import FailedPrecondition, InvalidArgument
from .columns import Columns
from .field_names import FieldNames
from .rows import Pieces, of_batch
from .samples import Spec

_READ_BYTES = 4 << 20
_MAX_READ_ROWS = 1 << 17


class Concat:
    """The samples of several datasets, one dataset after another.

    Made by concat(). Refers to the datasets and copies no sample.

    Attributes: parts, fields (those of each part), classes.
    """

    def __init__(self, parts: Iterable[Samples]) -> None:
        self.parts = list(parts)
        if not self.parts:
            raise InvalidArgument("concat: expected at least one dataset")
        for part in self.parts:
            if not isinstance(part, Samples):
                raise InvalidArgument(
                    f"concat: {type(part).__name__} is not a dataset of a "
                    "daemon: push it first; torch's ConcatDataset takes any"
                )
        first = self.parts[0]
        self.fields: List[Field] = first.fields
        for i, part in enumerate(self.parts):
            _check_fields(first, part, i)
        classes = {tuple(part.classes) for part in self.parts if part.classes}
        if len(classes) > 1:
            raise InvalidArgument(
                "concat: the datasets have different class names, so a label "
                "does not mean the same: "
                + ", ".join(f"{p.name!r} {p.classes[:3]}" for p in self.parts)
            )
        self.classes = list(classes.pop()) if classes else []

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __repr__(self) -> str:
        return f"datasetd.concat({self.parts!r})"


def concat(parts: Iterable[Samples]) -> Concat:
    """Returns the samples of several datasets or subsets, to be pushed as one:

        client.push_dataset("both", datasetd.concat([train, extra]))

    The datasets must have the same fields. The new dataset contains copies, so
    the parts may be closed. Raises InvalidArgument if fields or class names
    differ, and FailedPrecondition if a dataset has samples of several sizes.
    """
    return Concat(parts)


def _kind(field: Field) -> str:
    if field.is_mask:
        return "mask"
    return "image" if field.is_image else "array"


def _check_fields(first: Samples, part: Samples, i: int) -> None:
    ours = {f.name: (f.dtype, f.shape, _kind(f)) for f in first.fields}
    theirs = {f.name: (f.dtype, f.shape, _kind(f)) for f in part.fields}
    for name in [*ours, *theirs]:
        if ours.get(name) != theirs.get(name):
            raise InvalidArgument(
                f"concat: field {name!r} is {_described(ours.get(name))} in "
                f"{first.name!r} and {_described(theirs.get(name))} in part "
                f"{i}, {part.name!r}"
            )
        if -1 in ours[name][1]:
            raise FailedPrecondition(
                f"concat: the samples of {name!r} differ in size: load their "
                "files as one dataset, or give them one size, for example "
                "with pretransforms=[T.Resize(224), T.CenterCrop(224)]"
            )


def _described(field: Any) -> str:
    if field is None:
        return "not there"
    dtype, shape, kind = field
    return f"{kind} of {dtype} {tuple(shape)}"


def as_concat(data: Any) -> Optional[Concat]:
    """Returns datasets of a daemon as a Concat; None for other data."""
    if isinstance(data, Concat):
        return data
    if isinstance(data, Samples):
        return Concat([data])
    if has_items_of(data, "torch", "ConcatDataset") and all(
        isinstance(part, Samples) for part in data.datasets
    ):
        return Concat(data.datasets)
    return None


def is_part(data: Any, name: Optional[str]) -> bool:
    """True if the dataset `name` is among those of `data`."""
    found = as_concat(data)
    return found is not None and any(part.name == name for part in found.parts)


def columns(data: Concat, names: FieldNames) -> Columns:
    """Returns the fields as columns that are read from the daemon."""
    chosen: Mapping[str, Field] = names.choose(
        {field.name: field for field in data.fields}, "the dataset"
    )
    for name, field in chosen.items():
        if names.kind(name) not in ("auto", _kind(field)):
            raise InvalidArgument(
                f"fields[{name!r}] is {names.kind(name)!r}, but in the dataset "
                f"it is {_kind(field)!r}"
            )
    return Columns(
        {name: _Rows(data.parts, field) for name, field in chosen.items()},
        [_spec(field) for field in chosen.values()],
    )


def _spec(field: Field) -> Spec:
    return Spec(
        field.name, _kind(field), field.dtype, tuple(field.shape),
        field.is_image, field.is_mask, is_chw=False,
    )


class _Rows(Pieces):
    """A field of all parts, read about 4 MiB at a time."""

    def __init__(self, parts: List[Samples], field: Field) -> None:
        super().__init__(f"field {field.name!r}")
        self._parts = parts
        self._field = field
        self.length = sum(map(len, parts))

    def _read_piece(self, row: int) -> Tuple[int, int, Any]:
        import numpy

        begin = row
        for part in self._parts:
            if begin < len(part):
                break
            begin -= len(part)
        field, whole = self._field, part._whole()
        row_bytes = 8 * math.prod(field.shape)
        rows = max(1, min(_READ_BYTES // row_bytes, _MAX_READ_ROWS))
        positions = numpy.arange(begin, min(len(part), begin + rows))
        (values,) = read(
            whole,
            part._to_indices(positions),
            "bits",
            [field.name],
            {field.name: {"layout": "LAYOUT_NHWC"}} if field.is_image else {},
        )
        return row, row + len(positions), of_batch(values, field)
