"""Ops that overwrite a part of the image."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Union

from . import _checks
from ._base import Transform
from ._checks import Fields, Fill

__all__ = [
    "Cutout",
    "Erase",
    "RandomErasing",
]


class Erase(Transform):
    """Sets the window of h x w pixels at row i and column j to `v`.

    `v` is one number or one per channel, in the units of the image at this op.
    `inplace` is accepted and ignored.

    Example: T.Erase(4, 4, h=8, w=8, v=0)
    """

    _names = dict(i="top", j="left", h="height", w="width", v="value")

    def __init__(
        self,
        i: int,
        j: int,
        h: int,
        w: int,
        v: Union[float, Sequence[float]],
        inplace: bool = False,
        *,
        fields: Fields = None,
    ) -> None:
        self.i, self.j, self.h, self.w = i, j, h, w
        self.v = _checks.floats(self, "v", v)
        _checks.boolean(self, "inplace", inplace)
        super().__init__(fields)


class RandomErasing(Transform):
    """Sets a rectangle to `value`, with probability `p`, by default 0.5.

    `scale` is its fraction of the area, by default (0.02, 0.33), `ratio` its
    height over its width, by default (0.3, 3.3). `value` is in the units of
    the image at this op: a number, one per channel, or "random" for normally
    distributed noise. `inplace` is accepted and ignored: the batch is written
    once.

    Example: T.RandomErasing(p=0.25, scale=(0.02, 0.2))
    """

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: Union[float, str, Sequence[float]] = 0.0,
        inplace: bool = False,
        *,
        fields: Fields = None,
    ) -> None:
        self.p = p
        self.scale = _checks.interval(self, "scale", scale)
        self.ratio = _checks.interval(self, "ratio", ratio)
        self.value: Union[str, List[float]]
        if isinstance(value, str):
            if value != "random":
                raise _checks.fail(
                    self,
                    "value",
                    value,
                    "a number, one per channel, or 'random'",
                )
            self.value = value
        else:
            self.value = _checks.floats(self, "value", value)
        _checks.boolean(self, "inplace", inplace)
        super().__init__(fields)

    def _parameters(self) -> Dict[str, Any]:
        parameters = super()._parameters()
        if self.value == "random":
            del parameters["value"]
            parameters["is_value_random"] = True
        return parameters


class Cutout(Transform):
    """Sets a square at a uniformly drawn position inside the image to `fill`.

    `size` is its side in pixels; `fill`, by default 0, is in the units of the
    image at this op. Not in torchvision; known from the CIFAR-10 speed runs.

    Example: T.Cutout(8)
    """

    def __init__(
        self, size: int, fill: Fill = 0, *, fields: Fields = None
    ) -> None:
        self.size = size
        self.fill = _checks.fill(self, fill)
        super().__init__(fields)
