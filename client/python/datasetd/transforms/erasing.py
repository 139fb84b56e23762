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

    _name = "erase"
    _takes_masks = False

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
        self.i = _checks.integer("Erase", "i", i, 0, 2**31 - 1)
        self.j = _checks.integer("Erase", "j", j, 0, 2**31 - 1)
        self.h = _checks.extent("Erase", "h", h)
        self.w = _checks.extent("Erase", "w", w)
        self.v = _checks.floats("Erase", "v", v)
        _checks.boolean("Erase", "inplace", inplace)
        super().__init__(fields)

    def _parameters(self) -> Dict[str, Any]:
        return {
            "top": self.i,
            "left": self.j,
            "height": self.h,
            "width": self.w,
            "value": self.v,
        }


class RandomErasing(Transform):
    """Sets a rectangle to `value`, with probability `p`, by default 0.5.

    `scale` is its fraction of the area, by default (0.02, 0.33), `ratio` its
    height over its width, by default (0.3, 3.3). `value` is in the units of
    the image at this op: a number, one per channel, or "random" for normally
    distributed noise. `inplace` is accepted and ignored: the batch is written
    once.

    Example: T.RandomErasing(p=0.25, scale=(0.02, 0.2))
    """

    _name = "random_erasing"
    _takes_masks = False

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
        op = "RandomErasing"
        self.p = _checks.probability(op, p)
        self.scale = _checks.interval(op, "scale", scale, 0, 1)
        self.ratio = _checks.positive_interval(op, "ratio", ratio)
        self.value: Union[str, List[float]]
        if isinstance(value, str):
            if value != "random":
                raise _checks.fail(
                    op, "value", value, "a number, one per channel, or 'random'"
                )
            self.value = value
        else:
            self.value = _checks.floats(op, "value", value)
        _checks.boolean(op, "inplace", inplace)
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

    _name = "cutout"
    _takes_masks = False

    def __init__(
        self, size: int, fill: Fill = 0, *, fields: Fields = None
    ) -> None:
        self.size = _checks.extent("Cutout", "size", size)
        self.fill = _checks.fill("Cutout", fill)
        super().__init__(fields)
