"""windows=crops(): rows that are crops of sequences of several lengths."""

from __future__ import annotations

import math
from typing import (
    Any,
    Dict,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Union,
)

from .._arguments import checked_int
from .._descriptions import Field
from ..errors import InvalidArgument

_PLACES = ("start", "center", "random")
LENGTHS = "lengths"
ROW_FIELD = "ROW_FIELD_LENGTHS"

Fill = Union[float, Mapping[str, float]]


class Crops(NamedTuple):
    """Crops of `length` steps, 0 for the longest sequence's, as crops() makes
    them. `fields` are those that are cropped; None: all sequences."""

    length: int
    place: str
    fill: Fill
    fields: Optional[List[str]]

    def cropped(self, fields: Sequence[Field]) -> Dict[str, Dict[str, Any]]:
        """Returns the crops of the dataset's fields, as FieldOptions."""
        names = self._names(fields)
        fills = self.fill
        if not isinstance(fills, Mapping):
            fills = dict.fromkeys(names, fills)
        for name in fills:
            if name not in names:
                raise InvalidArgument(
                    f"crops: fill has {name!r}; the fields that are cropped "
                    f"are {names}"
                )
        return {
            name: {
                "crop": {
                    "length": str(self.length),
                    "place": f"CROP_PLACE_{self.place.upper()}",
                    "fill": _number(fills.get(name, 0)),
                }
            }
            for name in names
        }

    def derived(self, fields: Sequence[Field]) -> Dict[str, Dict[str, Any]]:
        """Returns the FieldOptions of the fields of lengths, by name."""
        cropped = self.cropped(fields)
        there = [field.name for field in fields]
        derived = {}
        for name, options in cropped.items():
            lengths = LENGTHS if len(cropped) == 1 else f"{name}_{LENGTHS}"
            if lengths not in there:
                derived[lengths] = {
                    "source": name, "row_field": ROW_FIELD, **options
                }  # fmt: skip
        return derived

    def _names(self, fields: Sequence[Field]) -> List[str]:
        there = [field.name for field in fields]
        if self.fields is None:
            names = [field.name for field in fields if field.is_sequence]
            if not names:
                raise InvalidArgument(
                    f"crops: none of the fields {there} has sequences of "
                    "several lengths; fields= names the arrays [T] or [T, C] "
                    "that are cropped"
                )
            return names
        for name in self.fields:
            if name not in there:
                raise InvalidArgument(
                    f"crops: fields={self.fields}: there is no {name!r}; the "
                    f"dataset has {there}"
                )
        return self.fields


def _number(value: float) -> Any:
    """Returns the number as protobuf's JSON has it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def crops(
    length: Optional[int] = None,
    place: str = "start",
    *,
    fill: Fill = 0,
    fields: Union[None, str, Sequence[str]] = None,
) -> Crops:
    """One crop of each sequence, for DataLoader(windows=).

    Each row is `length` consecutive steps of its sample, and a field of a batch
    is [B, length, ...]; integers of one number per step are int64. A sequence
    with fewer steps comes first, and `fill` behind it. Each batch also has
    `lengths`, int64 [B]: the steps of each row that are the sequence's. If
    several fields are cropped, these are called NAME_lengths. Order, ranks,
    subsets, weights and mixtures are as of other samples.

    Args:
      length: steps of a crop; None: those of the longest sequence.
      place: where the crop of a longer sequence begins: "start"; "center"; or
        "random", drawn for each sample and epoch as a random transform draws.
        Fields whose sequences have as many steps are cut at the same place.
      fill: the number behind the end of a sequence; a dict by field.
      fields: the fields that are cropped; None: all sequences of several
        lengths. Others may be named that are arrays [T] or [T, C].
    """
    number = 0
    if length is not None:
        number = checked_int("length", length, 1, 2**30 - 1)
    if place not in _PLACES:
        raise InvalidArgument(
            f"crops: place={place!r}; expected one of {', '.join(_PLACES)}"
        )
    fills = fill.values() if isinstance(fill, Mapping) else [fill]
    for value in fills:
        is_number = isinstance(value, float) or (
            isinstance(value, int) and -(2**63) <= value < 2**63
        )
        if isinstance(value, bool) or not is_number:
            raise InvalidArgument(
                f"crops: fill={fill!r}; expected a number, or a dict of "
                "numbers by field"
            )
    names = None
    if fields is not None:
        names = [fields] if isinstance(fields, str) else list(fields)
        if not names or len(set(names)) < len(names):
            raise InvalidArgument(
                f"crops: fields={fields!r}; expected fields, each once"
            )
    return Crops(number, place, fill, names)


__all__ = ["LENGTHS", "ROW_FIELD", "Crops", "Fill", "crops"]
