"""Ops on the number format of pixels."""

from __future__ import annotations

from typing import Any, Sequence

from ..errors import InvalidArgument
from . import _checks
from ._base import Transform
from ._checks import Fields

__all__ = [
    "Normalize",
    "ToDtype",
]


class ToDtype(Transform):
    """Converts to `dtype`, a name or a torch dtype.

    With `scale`, values are scaled from the range of the input dtype to that of
    the output dtype, for example from 0 to 255 of uint8 to 0 to 1 of floats;
    the default is False. int64 is for integers that are not images, as the only
    op. Dicts by input type are not supported.

    Example: T.ToDtype("float32", scale=True)
    """

    def __init__(
        self, dtype: Any, scale: bool = False, *, fields: Fields = None
    ) -> None:
        self.scale = scale
        self.dtype = _checks.dtype(
            self, dtype, () if scale is True else ("int64",)
        )
        super().__init__(fields)


class Normalize(Transform):
    """Computes (value - mean) / std, with one number per channel.

    `mean` and `std` are in the units of the image or sequence at this op, which
    must be floating point: put a ToDtype before it. `inplace` is accepted and
    ignored: the batch is written once.

    Example: T.Normalize((0.49, 0.48, 0.45), (0.25, 0.24, 0.26))
    """

    def __init__(
        self,
        mean: Sequence[float],
        std: Sequence[float],
        inplace: bool = False,
        *,
        fields: Fields = None,
    ) -> None:
        self.mean = _checks.floats(self, "mean", mean)
        self.std = _checks.floats(self, "std", std)
        _checks.boolean(self, "inplace", inplace)
        if len(self.mean) != len(self.std):
            raise InvalidArgument(
                f"Normalize: mean has {len(self.mean)} values, std "
                f"{len(self.std)}; expected one each per channel"
            )
        if any(value <= 0 for value in self.std):
            raise _checks.fail(self, "std", std, "values above 0")
        super().__init__(fields)
