"""Ops that sample between pixels: resizing, rotation, affine maps."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, Tuple, Union

from . import _checks
from ._base import Transform
from ._checks import Fields, Fill, InterpolationMode, Number, Size

__all__ = [
    "Affine",
    "RandomAffine",
    "RandomPerspective",
    "RandomResizedCrop",
    "RandomRotation",
    "Resize",
    "ResizedCrop",
    "Rotate",
]

Interpolation = Union[str, InterpolationMode, Any]


class Resize(Transform):
    """Resizes to `size` pixels.

    `size` is (height, width), or an int for the shorter edge. An int keeps the
    ratio of the edges, and the longer edge is then at most `max_size`.
    `interpolation` is "nearest", "nearest-exact", "bilinear" (default) or
    "bicubic". `antialias` is True by default; None means False, as in
    torchvision for tensors.

    Example: T.Resize((24, 24), interpolation="bicubic")
    """

    def __init__(
        self,
        size: Optional[Size],
        interpolation: Interpolation = InterpolationMode.BILINEAR,
        max_size: Optional[int] = None,
        antialias: Optional[bool] = True,
        *,
        fields: Fields = None,
    ) -> None:
        # Length of the shorter edge, or height and width.
        self.size: Union[None, int, Tuple[int, int]] = None
        if size is not None:
            height, width = _checks.size(self, size)
            is_pair = _checks.is_sequence(size) and len(size) == 2
            self.size = (height, width) if is_pair else height
        self.interpolation = _checks.interpolation(self, interpolation)
        self.max_size = (
            None
            if max_size is None
            else _checks.integer(self, "max_size", max_size)
        )
        if self.max_size is None and size is None:
            raise _checks.fail(
                self, "max_size", max_size, "an int, as size is None"
            )
        if self.max_size is not None and isinstance(self.size, tuple):
            raise _checks.fail(
                self, "max_size", max_size, f"None, as size={size!r} is a pair"
            )
        if (
            self.max_size is not None
            and isinstance(self.size, int)
            and self.max_size <= self.size
        ):
            raise _checks.fail(
                self, "max_size", max_size, f"more than size={size!r}"
            )
        self.antialias = False if antialias is None else antialias
        super().__init__(fields)

    def _parameters(self) -> Dict[str, Any]:
        parameters = super()._parameters()
        if isinstance(self.size, int):
            parameters["shorter_edge"] = parameters.pop("size")
        return parameters


class ResizedCrop(Transform):
    """Resizes the window at (top, left), which must be inside the image.

    All arguments are in pixels; `size` is an int for a square, or (height,
    width). See Resize for `interpolation` and `antialias`.

    Example: T.ResizedCrop(2, 4, 16, 20, size=(24, 24))
    """

    def __init__(
        self,
        top: int,
        left: int,
        height: int,
        width: int,
        size: Size,
        interpolation: Interpolation = InterpolationMode.BILINEAR,
        antialias: Optional[bool] = True,
        *,
        fields: Fields = None,
    ) -> None:
        self.top, self.left, self.height, self.width = top, left, height, width
        self.size = _checks.size(self, size)
        self.interpolation = _checks.interpolation(self, interpolation)
        self.antialias = False if antialias is None else antialias
        super().__init__(fields)


class RandomResizedCrop(Transform):
    """Cuts out a random window and resizes it to `size`.

    `size` is in pixels: an int for a square, or (height, width). `scale` is the
    window's fraction of the image's area, by default (0.08, 1), `ratio` its
    width over its height, by default (3/4, 4/3). See Resize for `interpolation`
    and `antialias`.

    Example: T.RandomResizedCrop(24, scale=(0.2, 1.0))
    """

    def __init__(
        self,
        size: Size,
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: Interpolation = InterpolationMode.BILINEAR,
        antialias: Optional[bool] = True,
        *,
        fields: Fields = None,
    ) -> None:
        self.size = _checks.size(self, size)
        self.scale = _checks.interval(self, "scale", scale)
        self.ratio = _checks.interval(self, "ratio", ratio)
        self.interpolation = _checks.interpolation(self, interpolation)
        self.antialias = False if antialias is None else antialias
        super().__init__(fields)


class Rotate(Transform):
    """Rotates counter-clockwise by `angle` degrees.

    With `expand`, the result is large enough for the whole rotated image.
    `center` is (x, y) in pixels; None, the default, is the middle. Pixels from
    outside the image are `fill`, by default 0, in the units of the image at
    this op. `interpolation` is "nearest" (default) or "bilinear".

    Example: T.Rotate(30, interpolation="bilinear")
    """

    def __init__(
        self,
        angle: Number,
        interpolation: Interpolation = InterpolationMode.NEAREST,
        expand: bool = False,
        center: Optional[Sequence[float]] = None,
        fill: Fill = 0,
        *,
        fields: Fields = None,
    ) -> None:
        self.angle: float = angle
        self.interpolation = _checks.interpolation(self, interpolation)
        self.expand = expand
        self.center = _checks.center(self, center)
        self.fill = _checks.fill(self, fill)
        super().__init__(fields)


class RandomRotation(Transform):
    """Rotates by an angle drawn from (-degrees, degrees) or (min, max).

    The angle is in degrees, counter-clockwise. `expand` must be False, because
    all images of a batch have one size. See Rotate for the other arguments.

    Example: T.RandomRotation(15, fill=0)
    """

    def __init__(
        self,
        degrees: Union[Number, Sequence[float]],
        interpolation: Interpolation = InterpolationMode.NEAREST,
        expand: bool = False,
        center: Optional[Sequence[float]] = None,
        fill: Fill = 0,
        *,
        fields: Fields = None,
    ) -> None:
        self.degrees = _checks.spread(self, "degrees", degrees)
        self.interpolation = _checks.interpolation(self, interpolation)
        if _checks.boolean(self, "expand", expand):
            raise _checks.fail(
                self,
                "expand",
                expand,
                "False: the size of each sample would depend on its angle, "
                "but a batch has one size; a later op that sets one, such as "
                "Resize or CenterCrop, does not help here. Put a Pad before it "
                "if no corner may be lost; a Rotate, whose angle is fixed, can "
                "expand",
            )
        self.expand = expand
        self.center = _checks.center(self, center)
        self.fill = _checks.fill(self, fill)
        super().__init__(fields)

    def _parameters(self) -> Dict[str, Any]:
        parameters = super()._parameters()
        del parameters["expand"]
        return parameters


class Affine(Transform):
    """Rotates, moves, scales and shears about `center`.

    `angle` is in degrees, clockwise; `translate` is (x, y) in pixels; `scale`
    is a factor; `shear` is in degrees, along x or (x, y). See Rotate for the
    other arguments.

    Example: T.Affine(10, translate=(2, 1), scale=1.1, shear=5)
    """

    def __init__(
        self,
        angle: Number,
        translate: Sequence[float],
        scale: float,
        shear: Union[Number, Sequence[float]],
        interpolation: Interpolation = InterpolationMode.NEAREST,
        fill: Fill = 0,
        center: Optional[Sequence[float]] = None,
        *,
        fields: Fields = None,
    ) -> None:
        self.angle: float = angle
        self.translate = _checks.pair(self, "translate", translate)
        self.scale = scale
        if _checks.is_sequence(shear) and len(shear) == 1:
            self.shear = (_checks.number(self, "shear", shear[0]),) * 2
        elif _checks.is_sequence(shear):
            self.shear = _checks.pair(self, "shear", shear)
        else:
            self.shear = (_checks.number(self, "shear", shear), 0.0)
        self.interpolation = _checks.interpolation(self, interpolation)
        self.fill = _checks.fill(self, fill)
        self.center = _checks.center(self, center)
        super().__init__(fields)


class RandomAffine(Transform):
    """Applies Affine with random parameters.

    The angle is drawn from (-degrees, degrees) or (min, max). `translate` (x,
    y), 0 to 1, is the largest translation as a fraction of the image's size.
    `scale` is drawn from (min, max), and `shear`, in degrees, from (-shear,
    shear), (min, max) along x, or (min, max, min, max) along x and y. With
    None, the default, that change is omitted. See Rotate for the other
    arguments.

    Example: T.RandomAffine(10, translate=(0.1, 0.1), scale=(0.9, 1.1))
    """

    _names = {"shear": "shear_x"}

    def __init__(
        self,
        degrees: Union[Number, Sequence[float]],
        translate: Optional[Sequence[float]] = None,
        scale: Optional[Sequence[float]] = None,
        shear: Union[None, Number, Sequence[float]] = None,
        interpolation: Interpolation = InterpolationMode.NEAREST,
        fill: Fill = 0,
        center: Optional[Sequence[float]] = None,
        *,
        fields: Fields = None,
    ) -> None:
        self.degrees = _checks.spread(self, "degrees", degrees)
        self.translate = None
        if translate is not None:
            self.translate = _checks.pair(self, "translate", translate)
        self.scale = (
            None if scale is None else _checks.interval(self, "scale", scale)
        )
        # (min, max) along x, optionally followed by (min, max) along y.
        self.shear: Optional[Tuple[float, ...]] = None
        if shear is not None:
            if _checks.is_sequence(shear) and len(shear) == 4:
                self.shear = _checks.interval(
                    self, "shear", shear[:2]
                ) + _checks.interval(self, "shear", shear[2:])
            else:
                self.shear = _checks.spread(self, "shear", shear)
        self.interpolation = _checks.interpolation(self, interpolation)
        self.fill = _checks.fill(self, fill)
        self.center = _checks.center(self, center)
        super().__init__(fields)

    def _parameters(self) -> Dict[str, Any]:
        parameters = super()._parameters()
        if self.shear is not None and len(self.shear) == 4:
            along_y = dict(zip(("min", "max"), self.shear[2:]))
            parameters["shear_y"] = along_y
        return parameters


class RandomPerspective(Transform):
    """Changes the perspective with probability `p`, by default 0.5.

    Each corner moves towards the middle by up to `distortion_scale`, 0 to 1,
    of half the image's width and height. `interpolation` is "bilinear"
    (default) or "nearest". See Rotate for `fill`.

    Example: T.RandomPerspective(distortion_scale=0.3)
    """

    def __init__(
        self,
        distortion_scale: float = 0.5,
        p: float = 0.5,
        interpolation: Interpolation = InterpolationMode.BILINEAR,
        fill: Fill = 0,
        *,
        fields: Fields = None,
    ) -> None:
        self.distortion_scale, self.p = distortion_scale, p
        self.interpolation = _checks.interpolation(self, interpolation)
        self.fill = _checks.fill(self, fill)
        super().__init__(fields)
