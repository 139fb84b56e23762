"""Ops that move pixels: crops, pads and flips."""

from __future__ import annotations

from typing import Any, Dict, Optional

from . import _checks
from ._base import GatedOp, Transform
from ._checks import Fields, Fill, Padding, Size

__all__ = [
    "AlternatingFlip",
    "CenterCrop",
    "Crop",
    "HorizontalFlip",
    "Pad",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomVerticalFlip",
    "VerticalFlip",
]


class Pad(Transform):
    """Adds a border.

    `padding` is in pixels: an int, (left and right, top and bottom) or (left,
    top, right, bottom). `padding_mode` is "constant", which writes `fill` in
    the units of the image at this op, "edge", "reflect" or "symmetric".

    Example: T.Pad(4, padding_mode="reflect")
    """

    def __init__(
        self,
        padding: Padding,
        fill: Fill = 0,
        padding_mode: str = "constant",
        *,
        fields: Fields = None,
    ) -> None:
        self.padding = _checks.padding(self, padding)
        self.fill = _checks.fill(self, fill)
        self.padding_mode = padding_mode
        super().__init__(fields)


class Crop(Transform):
    """Cuts out the window of (height, width) pixels at (top, left).

    Pixels outside the image are 0.

    Example: T.Crop(top=2, left=4, height=24, width=24)
    """

    def __init__(
        self,
        top: int,
        left: int,
        height: int,
        width: int,
        *,
        fields: Fields = None,
    ) -> None:
        self.top, self.left, self.height, self.width = top, left, height, width
        super().__init__(fields)


class CenterCrop(Transform):
    """Cuts out the window in the middle.

    `size` is in pixels: an int for a square, or (height, width). A smaller
    image is padded with 0.

    Example: T.CenterCrop(24)
    """

    def __init__(self, size: Size, *, fields: Fields = None) -> None:
        self.size = _checks.size(self, size)
        super().__init__(fields)

    def _parameters(self) -> Dict[str, Any]:
        return dict(zip(("height", "width"), self.size))


class RandomCrop(Transform):
    """Cuts out a window at a uniformly drawn position.

    `size` is in pixels: an int for a square, or (height, width). The image is
    first padded by `padding` and, with `pad_if_needed`, up to `size`; see Pad
    for `padding`, `fill` and `padding_mode`. A smaller image is an error.

    Example: T.RandomCrop(32, padding=4, padding_mode="reflect")
    """

    def __init__(
        self,
        size: Size,
        padding: Optional[Padding] = None,
        pad_if_needed: bool = False,
        fill: Fill = 0,
        padding_mode: str = "constant",
        *,
        fields: Fields = None,
    ) -> None:
        self.size = _checks.size(self, size)
        self.padding = (
            None if padding is None else _checks.padding(self, padding)
        )
        self.pad_if_needed = pad_if_needed
        self.fill = _checks.fill(self, fill)
        self.padding_mode = padding_mode
        super().__init__(fields)

    def _parameters(self) -> Dict[str, Any]:
        size = dict(zip(("height", "width"), self.size))
        return {**super()._parameters(), **size}


class HorizontalFlip(Transform):
    """Mirrors every image left-right.

    Example: T.HorizontalFlip()
    """


class VerticalFlip(Transform):
    """Mirrors every image upside down.

    Example: T.VerticalFlip()
    """


class RandomHorizontalFlip(GatedOp):
    """Mirrors left-right with probability `p`, by default 0.5.

    Example: T.RandomHorizontalFlip(p=0.5)
    """


class RandomVerticalFlip(GatedOp):
    """Mirrors upside down with probability `p`, by default 0.5.

    Example: T.RandomVerticalFlip(p=0.5)
    """


class AlternatingFlip(Transform):
    """Mirrors every image left-right in every second epoch.

    A random bit of the sample selects even or odd epochs. Not in torchvision;
    known from the CIFAR-10 speed runs.

    Example: T.AlternatingFlip()
    """
