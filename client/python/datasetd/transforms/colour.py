"""Ops on colours and neighbourhoods, for images of 1 or 3 channels."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, Tuple, Union

from . import _checks
from ._base import GatedOp, Transform
from ._checks import Fields, Number, Size

__all__ = [
    "AdjustBrightness",
    "AdjustContrast",
    "AdjustHue",
    "AdjustSaturation",
    "AdjustSharpness",
    "Autocontrast",
    "ColorJitter",
    "Equalize",
    "GaussianBlur",
    "GaussianNoise",
    "Grayscale",
    "Invert",
    "Posterize",
    "RandomAdjustSharpness",
    "RandomAutocontrast",
    "RandomEqualize",
    "RandomGrayscale",
    "RandomInvert",
    "RandomPosterize",
    "RandomSolarize",
    "Solarize",
]

Jitter = Union[None, Number, Sequence[float]]


class ColorJitter(Transform):
    """Changes `brightness`, `contrast`, `saturation`, `hue` in a random order.

    Each factor is drawn uniformly from [max(0, 1 - x), 1 + x] for a number x,
    or from (min, max). The hue is shifted by a fraction of the colour circle,
    drawn from [-x, x] with x up to 0.5. With None, the default, that property
    does not change.

    Example: T.ColorJitter(0.4, 0.4, 0.4, hue=0.1)
    """

    def __init__(
        self,
        brightness: Jitter = None,
        contrast: Jitter = None,
        saturation: Jitter = None,
        hue: Jitter = None,
        *,
        fields: Fields = None,
    ) -> None:
        self.brightness = _factors(self, "brightness", brightness)
        self.contrast = _factors(self, "contrast", contrast)
        self.saturation = _factors(self, "saturation", saturation)
        turns = None if hue is None else _checks.spread(self, "hue", hue)
        self.hue = None if turns == (0.0, 0.0) else turns
        super().__init__(fields)


def _factors(
    op: Transform, name: str, value: Any
) -> Optional[Tuple[float, float]]:
    """Returns None if nothing changes."""
    if value is None:
        return None
    if not _checks.is_sequence(value):
        change = _checks.number(op, name, value, ", or (min, max)")
        value = max(1.0 - change, 0.0), 1.0 + change
    factors = _checks.interval(op, name, value)
    return None if factors == (1.0, 1.0) else factors


class AdjustBrightness(Transform):
    """Multiplies the pixels by `brightness_factor`: 0 is black, 1 no change.

    Example: T.AdjustBrightness(1.5)
    """

    def __init__(
        self, brightness_factor: float, *, fields: Fields = None
    ) -> None:
        self.brightness_factor = brightness_factor
        super().__init__(fields)


class AdjustContrast(Transform):
    """Scales the distance of the pixels from the image's mean grey.

    `contrast_factor` 0 produces that grey, 1 no change.

    Example: T.AdjustContrast(1.5)
    """

    def __init__(
        self, contrast_factor: float, *, fields: Fields = None
    ) -> None:
        self.contrast_factor = contrast_factor
        super().__init__(fields)


class AdjustSaturation(Transform):
    """Scales the distance of the pixels from their own grey.

    `saturation_factor` 0 produces a grey image, 1 no change.

    Example: T.AdjustSaturation(0.5)
    """

    def __init__(
        self, saturation_factor: float, *, fields: Fields = None
    ) -> None:
        self.saturation_factor = saturation_factor
        super().__init__(fields)


class AdjustHue(Transform):
    """Shifts the hue by `hue_factor` of the colour circle, -0.5 to 0.5.

    0 is no change; -0.5 and 0.5 produce the complementary colours.

    Example: T.AdjustHue(0.1)
    """

    def __init__(self, hue_factor: float, *, fields: Fields = None) -> None:
        self.hue_factor = hue_factor
        super().__init__(fields)


class AdjustSharpness(Transform):
    """Blends the image with a smoothed copy of itself.

    `sharpness_factor` 0 produces the smoothed image, 1 no change, 2 twice the
    sharpness.

    Example: T.AdjustSharpness(2.0)
    """

    def __init__(
        self, sharpness_factor: float, *, fields: Fields = None
    ) -> None:
        self.sharpness_factor = sharpness_factor
        super().__init__(fields)


class RandomAdjustSharpness(Transform):
    """Applies AdjustSharpness with probability `p`, by default 0.5.

    Example: T.RandomAdjustSharpness(2.0, p=0.5)
    """

    def __init__(
        self, sharpness_factor: float, p: float = 0.5, *, fields: Fields = None
    ) -> None:
        self.sharpness_factor, self.p = sharpness_factor, p
        super().__init__(fields)


class Grayscale(Transform):
    """Converts colours to grey, in `num_output_channels` 1 (default) or 3.

    Example: T.Grayscale(num_output_channels=3)
    """

    def __init__(
        self, num_output_channels: int = 1, *, fields: Fields = None
    ) -> None:
        self.num_output_channels = num_output_channels
        super().__init__(fields)


class RandomGrayscale(GatedOp):
    """Converts colours to grey with probability `p`, by default 0.1.

    The number of channels does not change.

    Example: T.RandomGrayscale(p=0.2)
    """

    def __init__(self, p: float = 0.1, *, fields: Fields = None) -> None:
        super().__init__(p, fields=fields)


class Invert(Transform):
    """Subtracts the pixels from white: 255 for uint8, 1 for float images.

    Example: T.Invert()
    """


class RandomInvert(GatedOp):
    """Applies Invert with probability `p`, by default 0.5.

    Example: T.RandomInvert(p=0.5)
    """


class Posterize(Transform):
    """Keeps the upper `bits` bits, 0 to 8, of every value.

    Example: T.Posterize(4)
    """

    def __init__(self, bits: int, *, fields: Fields = None) -> None:
        self.bits = bits
        super().__init__(fields)


class RandomPosterize(Transform):
    """Applies Posterize with probability `p`, by default 0.5.

    Example: T.RandomPosterize(4, p=0.5)
    """

    def __init__(
        self, bits: int, p: float = 0.5, *, fields: Fields = None
    ) -> None:
        self.bits, self.p = bits, p
        super().__init__(fields)


class Solarize(Transform):
    """Inverts all pixels with a value of at least `threshold`.

    `threshold` is in the units of the image at this op: 0 to 255 for uint8, 0
    to 1 for float images.

    Example: T.Solarize(128)
    """

    def __init__(self, threshold: float, *, fields: Fields = None) -> None:
        self.threshold = _threshold(self, threshold)
        super().__init__(fields)


class RandomSolarize(Transform):
    """Applies Solarize with probability `p`, by default 0.5.

    Example: T.RandomSolarize(128, p=0.5)
    """

    def __init__(
        self, threshold: float, p: float = 0.5, *, fields: Fields = None
    ) -> None:
        self.threshold, self.p = _threshold(self, threshold), p
        super().__init__(fields)


def _threshold(op: Transform, value: float) -> float:
    """The daemon's range depends on the image's dtype there."""
    if not _checks.is_number(value) or not 0 <= value <= 255:
        raise _checks.fail(op, "threshold", value, "a number from 0 to 255")
    return value


class Autocontrast(Transform):
    """Stretches the values of every channel to the full range.

    Its darkest value becomes black and its brightest value white.

    Example: T.Autocontrast()
    """


class RandomAutocontrast(GatedOp):
    """Applies Autocontrast with probability `p`, by default 0.5.

    Example: T.RandomAutocontrast(p=0.5)
    """


class Equalize(Transform):
    """Equalizes the histogram of every channel.

    Example: T.Equalize()
    """


class RandomEqualize(GatedOp):
    """Applies Equalize with probability `p`, by default 0.5.

    Example: T.RandomEqualize(p=0.5)
    """


class GaussianNoise(Transform):
    """Adds normal noise with `mean` and standard deviation `sigma`.

    The noise is drawn for each pixel and channel. `mean` is 0 by default and
    `sigma` 0.1. With `clip`, the default, the result is limited to 0..1. The
    image must be floating point at this op: put a ToDtype with scale before it.

    Example: T.GaussianNoise(sigma=0.05)
    """

    def __init__(
        self,
        mean: float = 0.0,
        sigma: float = 0.1,
        clip: bool = True,
        *,
        fields: Fields = None,
    ) -> None:
        self.mean, self.sigma, self.clip = mean, sigma, clip
        super().__init__(fields)


class GaussianBlur(Transform):
    """Blurs with a Gaussian with standard deviation `sigma`, in pixels.

    `kernel_size` is an odd int, or (width, height) as in torchvision. `sigma`
    is a number, or (min, max) to draw from, by default (0.1, 2.0).

    Example: T.GaussianBlur(5, sigma=(0.1, 2.0))
    """

    def __init__(
        self,
        kernel_size: Size,
        sigma: Union[Number, Sequence[float]] = (0.1, 2.0),
        *,
        fields: Fields = None,
    ) -> None:
        self.kernel_size = _checks.size(self, kernel_size, "kernel_size")
        if any(length % 2 == 0 for length in self.kernel_size):
            raise _checks.fail(
                self, "kernel_size", kernel_size, "odd numbers above 0"
            )
        if _checks.is_sequence(sigma) and len(sigma) == 1:
            sigma = sigma[0]
        ends = sigma if _checks.is_sequence(sigma) else (sigma, sigma)
        self.sigma = _checks.interval(self, "sigma", ends)
        super().__init__(fields)

    def _parameters(self) -> Dict[str, Any]:
        width, height = self.kernel_size
        size = {"height": height, "width": width}
        return {**super()._parameters(), "kernel_size": size}
