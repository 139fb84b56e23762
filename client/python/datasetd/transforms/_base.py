"""Base class of the ops."""

from __future__ import annotations

import inspect
from typing import Any, Dict, List, Optional, Tuple

from . import _checks
from ._checks import Fields
from ._described import OPS, Op

_PACKAGE = __name__.rpartition(".")[0]


class Transform:
    """One op. Equal ops compare equal.

    `fields` names the fields to which it applies, such as an image and its
    mask, with the same random numbers for all. None: the field `image`.
    """

    _op = Op("Transform")
    # The arguments and their defaults, and the names in messages of those that
    # have another one there.
    _arguments: Dict[str, Any] = {}
    _names: Dict[str, str] = {}

    fields: Optional[Tuple[str, ...]]

    def __init_subclass__(cls) -> None:
        """Records the arguments of an op of this package. A class of a user's
        keeps those of the op that it extends."""
        if cls.__module__.startswith(_PACKAGE):
            cls._op = OPS.get(cls.__name__, cls._op)
            cls._arguments = {
                name: parameter.default
                for name, parameter in inspect.signature(cls).parameters.items()
            }

    def __init__(self, fields: Fields = None) -> None:
        """Checks the attributes that are arguments and no sequences, against
        the ranges in ops.json."""
        for name, default in self._arguments.items():
            if name not in vars(self):
                continue
            value = vars(self)[name]
            if value is not None or default is not None:
                setattr(self, name, _checks.plain(self, name, value))
        self.fields = _checks.fields(self, fields)

    @property
    def _takes_masks(self) -> bool:
        """Colour ops on masks are errors."""
        return self._op.family in ("geometry", "dtype", "group")

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
        message: Dict[str, Any] = {self._op.name: parameters}
        if draw_id:
            message["draw_id"] = draw_id
        return message

    def _parameters(self) -> Dict[str, Any]:
        """Returns the op's message, which has its parameters by their names;
        not what else a subclass of a user's has."""
        parameters = {}
        for argument in self._arguments:
            name = self._names.get(argument, argument)
            value = getattr(self, argument, None)
            if name in self._op.parameters and value is not None:
                described = self._op.parameters[name]
                parameters[name] = described.in_message(value)
        return parameters

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
        self.p = p
        super().__init__(fields)


def _fill_of(fill: _checks.Fills, field: str, is_mask: bool) -> List[float]:
    """Returns the fill of a field; masks default to 0."""
    if isinstance(fill, _checks.FillByKind):
        by_kind: List[float] = fill.mask if is_mask else fill.image
        return by_kind
    if isinstance(fill, dict):
        return fill.get(field, [0.0])
    return [0.0] if is_mask else fill
