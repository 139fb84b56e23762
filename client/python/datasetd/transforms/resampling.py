"""Ops that sample between pixels: resizing, rotation, affine maps."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, Tuple, Union

from . import _checks
from ._base import Transform, in_message
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

    _name = "resize"

    def __init__(
        self,
        size: Optional[Size],
        interpolation: Interpolation = InterpolationMode.BILINEAR,
        max_size: Optional[int] = None,
        antialias: Optional[bool] = True,
        *,
        fields: Fields = None,
    ) -> None:
        op = "Resize"
        # Length of the shorter edge, or height and width.
        self.size: Union[None, int, Tuple[int, int]] = None
        if size is not None:
            height, width = _checks.size(op, size)
            is_pair = _checks.is_sequence(size) and len(size) == 2
            self.size = (height, width) if is_pair else height
        self.interpolation = _checks.interpolation(
            op, interpolation, _checks.RESIZE_MODES
        )
        self.max_size = (
            None
            if max_size is None
            else _checks.extent(op, "max_size", max_size)
        )
        if self.max_size is None and size is None:
            raise _checks.fail(
                op, "max_size", max_size, "an int, as size is None"
            )
        if self.max_size is not None and isinstance(self.size, tuple):
            raise _checks.fail(
                op, "max_size", max_size, f"None, as size={size!r} is a pair"
            )
        if (
            self.max_size is not None
            and isinstance(self.size, int)
            and self.max_size <= self.size
        ):
            raise _checks.fail(
                op, "max_size", max_size, f"more than size={size!r}"
            )
        self.antialias = _antialias(op, antialias)
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

    _name = "resized_crop"

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
        op = "ResizedCrop"
        self.top = _checks.coordinate(op, "top", top)
        self.left = _checks.coordinate(op, "left", left)
        self.height = _checks.extent(op, "height", height)
        self.width = _checks.extent(op, "width", width)
        self.size = _checks.size(op, size)
        self.interpolation = _checks.interpolation(
            op, interpolation, _checks.RESIZE_MODES
        )
        self.antialias = _antialias(op, antialias)
        super().__init__(fields)


class RandomResizedCrop(Transform):
    """Cuts out a random window and resizes it to `size`.

    `size` is in pixels: an int for a square, or (height, width). `scale` is the
    window's fraction of the image's area, by default (0.08, 1), `ratio` its
    width over its height, by default (3/4, 4/3). See Resize for `interpolation`
    and `antialias`.

    Example: T.RandomResizedCrop(24, scale=(0.2, 1.0))
    """

    _name = "random_resized_crop"

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
        op = "RandomResizedCrop"
        self.size = _checks.size(op, size)
        self.scale = _checks.interval(op, "scale", scale, low=0)
        self.ratio = _checks.positive_interval(op, "ratio", ratio)
        self.interpolation = _checks.interpolation(
            op, interpolation, _checks.RESIZE_MODES
        )
        self.antialias = _antialias(op, antialias)
        super().__init__(fields)


class Rotate(Transform):
    """Rotates counter-clockwise by `angle` degrees.

    With `expand`, the result is large enough for the whole rotated image.
    `center` is (x, y) in pixels; None, the default, is the middle. Pixels from
    outside the image are `fill`, by default 0, in the units of the image at
    this op. `interpolation` is "nearest" (default) or "bilinear".

    Example: T.Rotate(30, interpolation="bilinear")
    """

    _name = "rotate"

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
        op = "Rotate"
        self.angle = _checks.number(op, "angle", angle)
        self.interpolation = _checks.interpolation(op, interpolation)
        self.expand = _checks.boolean(op, "expand", expand)
        self.center = _checks.center(op, center)
        self.fill = _checks.warp_fill(op, fill)
        super().__init__(fields)


class RandomRotation(Transform):
    """Rotates by an angle drawn from (-degrees, degrees) or (min, max).

    The angle is in degrees, counter-clockwise. `expand` must be False, because
    all images of a batch have one size. See Rotate for the other arguments.

    Example: T.RandomRotation(15, fill=0)
    """

    _name = "random_rotation"

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
        op = "RandomRotation"
        self.degrees = _checks.angle_interval(op, "degrees", degrees)
        self.interpolation = _checks.interpolation(op, interpolation)
        if _checks.boolean(op, "expand", expand):
            raise _checks.fail(
                op,
                "expand",
                expand,
                "False: the size of each sample would depend on its angle, "
                "but a batch has one size; a later op that sets one, such as "
                "Resize or CenterCrop, does not help here. Put a Pad before it "
                "if no corner may be lost; a Rotate, whose angle is fixed, can "
                "expand",
            )
        self.expand = expand
        self.center = _checks.center(op, center)
        self.fill = _checks.warp_fill(op, fill)
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

    _name = "affine"

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
        op = "Affine"
        self.angle = _checks.number(op, "angle", angle)
        self.translate = _checks.pair(op, "translate", translate)
        self.scale = _checks.positive(op, "scale", scale)
        if _checks.is_sequence(shear) and len(shear) == 1:
            self.shear = (_checks.number(op, "shear", shear[0]),) * 2
        elif _checks.is_sequence(shear):
            self.shear = _checks.pair(op, "shear", shear)
        else:
            self.shear = (_checks.number(op, "shear", shear), 0.0)
        self.interpolation = _checks.interpolation(op, interpolation)
        self.fill = _checks.warp_fill(op, fill)
        self.center = _checks.center(op, center)
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

    _name = "random_affine"

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
        op = "RandomAffine"
        self.degrees = _checks.angle_interval(op, "degrees", degrees)
        self.translate = None
        if translate is not None:
            self.translate = _checks.pair(op, "translate", translate)
            if not all(0.0 <= part <= 1.0 for part in self.translate):
                raise _checks.fail(
                    op, "translate", translate, "parts from 0 to 1 of the image"
                )
        self.scale = (
            None
            if scale is None
            else _checks.positive_interval(op, "scale", scale)
        )
        # (min, max) along x, optionally followed by (min, max) along y.
        self.shear: Optional[Tuple[float, ...]] = None
        if shear is not None:
            if _checks.is_sequence(shear) and len(shear) == 4:
                self.shear = _checks.interval(
                    op, "shear", shear[:2]
                ) + _checks.interval(op, "shear", shear[2:])
            else:
                self.shear = _checks.angle_interval(op, "shear", shear)
        self.interpolation = _checks.interpolation(op, interpolation)
        self.fill = _checks.warp_fill(op, fill)
        self.center = _checks.center(op, center)
        super().__init__(fields)

    def _parameters(self) -> Dict[str, Any]:
        parameters = super()._parameters()
        parameters.pop("shear", None)
        shear = self.shear or ()
        for name, ends in (("shear_x", shear[:2]), ("shear_y", shear[2:])):
            if ends:
                parameters[name] = in_message(name, ends)
        return parameters


class RandomPerspective(Transform):
    """Changes the perspective with probability `p`, by default 0.5.

    Each corner moves towards the middle by up to `distortion_scale`, 0 to 1,
    of half the image's width and height. `interpolation` is "bilinear"
    (default) or "nearest". See Rotate for `fill`.

    Example: T.RandomPerspective(distortion_scale=0.3)
    """

    _name = "random_perspective"

    def __init__(
        self,
        distortion_scale: float = 0.5,
        p: float = 0.5,
        interpolation: Interpolation = InterpolationMode.BILINEAR,
        fill: Fill = 0,
        *,
        fields: Fields = None,
    ) -> None:
        op = "RandomPerspective"
        self.distortion_scale = _checks.number(
            op, "distortion_scale", distortion_scale, 0, 1
        )
        self.p = _checks.probability(op, p)
        self.interpolation = _checks.interpolation(op, interpolation)
        self.fill = _checks.warp_fill(op, fill)
        super().__init__(fields)


def _antialias(op: str, value: Any) -> bool:
    return False if value is None else _checks.boolean(op, "antialias", value)
