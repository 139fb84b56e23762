"""Base class of the ops."""

from __future__ import annotations

import inspect
from typing import Any, Dict, List, Optional, Tuple

from . import _checks
from ._checks import Fields

_PACKAGE = __name__.rpartition(".")[0]
_ENUM_PREFIXES = {
    "dtype": "DTYPE_",
    "interpolation": "INTERPOLATION_MODE_",
    "padding_mode": "PADDING_MODE_",
}
# The parts of parameters that are tuples; other tuples are (min, max).
_PARTS = {
    "center": ("x", "y"),
    "kernel_size": ("width", "height"),
    "padding": ("left", "top", "right", "bottom"),
    "shear": ("x", "y"),
    "size": ("height", "width"),
    "translate": ("x", "y"),
}


class Transform:
    """One op. Equal ops compare equal.

    `fields` names the fields to which it applies, such as an image and its
    mask, with the same random numbers for all. None: the field `image`.
    """

    # The name in transform.proto.
    _name = ""
    # Colour ops on masks are errors.
    _takes_masks = True

    fields: Optional[Tuple[str, ...]]

    def __init__(self, fields: Fields = None) -> None:
        self.fields = _checks.fields(type(self).__name__, fields)

    def to_message(
        self, field: str = "image", is_mask: bool = False, draw_id: int = 0
    ) -> Dict[str, Any]:
        """Returns the op on one field as a Transform message in JSON form."""
        parameters = self._parameters()
        if "fill" in parameters:
            parameters["fill"] = _fill_of(parameters["fill"], field, is_mask)
        if is_mask and "interpolation" in parameters:
            if not parameters["interpolation"].endswith("_NEAREST_EXACT"):
                parameters["interpolation"] = "INTERPOLATION_MODE_NEAREST"
            if "antialias" in parameters:
                parameters["antialias"] = False
        message: Dict[str, Any] = {self._name: parameters}
        if draw_id:
            message["draw_id"] = draw_id
        return message

    def _parameters(self) -> Dict[str, Any]:
        """Returns the op's message, which has its parameters by their names;
        not what else a subclass of a user's has."""
        op = next(
            kind
            for kind in type(self).__mro__
            if kind.__module__.startswith(_PACKAGE)
        )
        names = inspect.signature(op).parameters
        return {
            name: in_message(name, value)
            for name, value in vars(self).items()
            if name in names and name != "fields" and value is not None
        }

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


class GatedOp(Transform):
    """An op with only a probability."""

    def __init__(self, p: float = 0.5, *, fields: Fields = None) -> None:
        self.p = _checks.probability(type(self).__name__, p)
        super().__init__(fields)


def _fill_of(fill: _checks.Fills, field: str, is_mask: bool) -> List[float]:
    """Returns the fill of a field; masks default to 0."""
    if isinstance(fill, _checks.FillByKind):
        by_kind: List[float] = fill.mask if is_mask else fill.image
        return by_kind
    if isinstance(fill, dict):
        return fill.get(field, [0.0])
    return [0.0] if is_mask else fill


def in_message(name: str, value: Any) -> Any:
    """Returns a parameter in JSON form."""
    if name in _ENUM_PREFIXES:
        return _ENUM_PREFIXES[name] + value.upper().replace("-", "_")
    if type(value) is tuple:  # but not FillByKind
        return dict(zip(_PARTS.get(name, ("min", "max")), value))
    return value
