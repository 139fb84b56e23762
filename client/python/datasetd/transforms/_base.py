"""Base class of the ops."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from . import _checks


class Transform:
    """One op. Equal ops compare equal.

    `fields` names the fields that it applies to, with the same random numbers
    for all, such as an image and its mask. None: the field `image`.
    """

    # The name in transform.proto.
    _name = ""
    # Colour ops on masks are errors.
    _takes_masks = True

    fields: Optional[Tuple[str, ...]]

    def __init__(self, fields: _checks.Fields = None) -> None:
        self.fields = _checks.fields(type(self).__name__, fields)

    def to_message(
        self, field: str = "image", is_mask: bool = False, draw_id: int = 0
    ) -> Dict[str, Any]:
        """Returns the op on one field as a Transform message in JSON form."""
        parameters = self._parameters()
        if "fill" in parameters:
            parameters["fill"] = _fill_of(parameters["fill"], field, is_mask)
        if is_mask and "interpolation" in parameters:
            if parameters["interpolation"] != mode_message("nearest-exact"):
                parameters["interpolation"] = mode_message("nearest")
            if "antialias" in parameters:
                parameters["antialias"] = False
        message: Dict[str, Any] = {self._name: parameters}
        if draw_id:
            message["draw_id"] = draw_id
        return message

    def _parameters(self) -> Dict[str, Any]:
        return {}

    def __repr__(self) -> str:
        values = ", ".join(
            f"{name}={value!r}"
            for name, value in vars(self).items()
            if name != "fields" or value is not None
        )
        return f"{type(self).__name__}({values})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(repr(self))


def _fill_of(fill: _checks.Fills, field: str, is_mask: bool) -> List[float]:
    """Returns the fill of a field; masks default to 0."""
    if isinstance(fill, _checks.FillByKind):
        by_kind: List[float] = fill.mask if is_mask else fill.image
        return by_kind
    if isinstance(fill, dict):
        return fill.get(field, [0.0])
    return [0.0] if is_mask else fill


def mode_message(text: str) -> str:
    return "INTERPOLATION_MODE_" + text.upper().replace("-", "_")


def range_message(
    value: Optional[Tuple[float, float]]
) -> Optional[Dict[str, float]]:
    return None if value is None else {"min": value[0], "max": value[1]}


def point_message(
    value: Optional[Tuple[float, float]]
) -> Optional[Dict[str, float]]:
    return None if value is None else {"x": value[0], "y": value[1]}


def size_message(value: Tuple[int, int]) -> Dict[str, int]:
    return {"height": value[0], "width": value[1]}


def padding_message(value: Tuple[int, int, int, int]) -> Dict[str, int]:
    return dict(zip(("left", "top", "right", "bottom"), value))


def optional(**parts: Any) -> Dict[str, Any]:
    """Returns the entries that are not None."""
    return {name: part for name, part in parts.items() if part is not None}
