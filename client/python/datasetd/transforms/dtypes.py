"""Ops on the number format of pixels."""

from __future__ import annotations

from typing import Any, Dict, Sequence

from ..errors import InvalidArgument
from . import _checks
from ._base import Transform
from ._checks import Fields


class ToDtype(Transform):
    """`dtype` is a name or a torch dtype; dicts by input type are
    unsupported."""

    _name = "to_dtype"

    def __init__(
        self, dtype: Any, scale: bool = False, *, fields: Fields = None
    ) -> None:
        self.dtype = _checks.dtype("ToDtype", dtype)
        self.scale = _checks.boolean("ToDtype", "scale", scale)
        super().__init__(fields)

    def _parameters(self) -> Dict[str, Any]:
        return {"dtype": "DTYPE_" + self.dtype.upper(), "scale": self.scale}


class Normalize(Transform):
    """`inplace` is accepted and ignored: the batch is written once."""

    _name = "normalize"

    def __init__(
        self,
        mean: Sequence[float],
        std: Sequence[float],
        inplace: bool = False,
        *,
        fields: Fields = None,
    ) -> None:
        self.mean = _checks.floats("Normalize", "mean", mean)
        self.std = _checks.floats("Normalize", "std", std)
        _checks.boolean("Normalize", "inplace", inplace)
        if len(self.mean) != len(self.std):
            raise InvalidArgument(
                f"Normalize: mean has {len(self.mean)} values, std "
                f"{len(self.std)}; expected one each per channel"
            )
        if any(value <= 0 for value in self.std):
            raise _checks.fail("Normalize", "std", std, "values above 0")
        super().__init__(fields)

    def _parameters(self) -> Dict[str, Any]:
        return {"mean": self.mean, "std": self.std}
