"""The samples of several datasets, pushed as one."""

from __future__ import annotations

import math
from typing import Any, List, Mapping, Optional, Tuple

from .._datasets.mixture import Mixture, as_mixture, concat, kind_of
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


def as_concat(data: Any) -> Optional[Mixture]:
    """Returns datasets of a daemon as a Mixture; None for other data."""
    return concat([data]) if isinstance(data, Samples) else as_mixture(data)


def is_part(data: Any, name: Optional[str]) -> bool:
    """True if the dataset `name` is among those of `data`."""
    found = as_concat(data)
    return found is not None and any(part.name == name for part in found.parts)


def columns(data: Mixture, names: FieldNames) -> Columns:
    """Returns the fields as columns that are read from the daemon."""
    if data.ratios is not None:
        raise InvalidArgument(
            "data: a mixture with ratios has no end, and cannot be pushed: "
            "push datasetd.concat of its datasets, or give it to a DataLoader"
        )
    for field in data.fields:
        if -1 in field.shape:
            raise FailedPrecondition(
                f"concat: the samples of {field.name!r} differ in size, and "
                "cannot be pushed: load their files as one dataset"
                + (
                    ", or push their data at once"
                    if field.is_sequence
                    else ", or give them one size, as with "
                    "pretransforms=[T.Resize(224), T.CenterCrop(224)]"
                )
                + ". A DataLoader takes the datasets as they are"
            )
    chosen: Mapping[str, Field] = names.choose(
        {field.name: field for field in data.fields}, "the dataset"
    )
    for name, field in chosen.items():
        if names.kind(name) not in ("auto", kind_of(field)):
            raise InvalidArgument(
                f"fields[{name!r}] is {names.kind(name)!r}, but in the dataset "
                f"it is {kind_of(field)!r}"
            )
    return Columns(
        {name: _Rows(data.parts, field) for name, field in chosen.items()},
        [_spec(field) for field in chosen.values()],
    )


def _spec(field: Field) -> Spec:
    return Spec(
        field.name, kind_of(field), field.dtype, tuple(field.shape),
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
