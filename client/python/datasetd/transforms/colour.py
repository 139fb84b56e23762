"""Ops on colours and neighbourhoods, for images of 1 or 3 channels."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple, Union

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


class _ColourOp(Transform):
    _takes_masks = False


class _GatedOp(GatedOp):
    _takes_masks = False


class ColorJitter(_ColourOp):
    """Changes `brightness`, `contrast`, `saturation`, `hue` in a random order.

    Each factor is drawn uniformly from [max(0, 1 - x), 1 + x] for a number x,
    or from (min, max). The hue is shifted by a fraction of the colour circle,
    drawn from [-x, x] with x up to 0.5. With None, the default, that property
    does not change.

    Example: T.ColorJitter(0.4, 0.4, 0.4, hue=0.1)
    """

    _name = "color_jitter"

    def __init__(
        self,
        brightness: Jitter = None,
        contrast: Jitter = None,
        saturation: Jitter = None,
        hue: Jitter = None,
        *,
        fields: Fields = None,
    ) -> None:
        self.brightness = _factors("brightness", brightness)
        self.contrast = _factors("contrast", contrast)
        self.saturation = _factors("saturation", saturation)
        self.hue = _hue(hue)
        super().__init__(fields)


def _factors(name: str, value: Any) -> Optional[Tuple[float, float]]:
    """Returns None if nothing changes."""
    if value is None:
        return None
    if _checks.is_sequence(value):
        low, high = _checks.interval("ColorJitter", name, value, low=0)
    elif not _checks.is_number(value) or value < 0:
        raise _checks.fail(
            "ColorJitter", name, value, "a number of 0 or more, or (min, max)"
        )
    else:
        low, high = max(1.0 - value, 0.0), 1.0 + value
    return None if low == high == 1.0 else (low, high)


def _hue(value: Any) -> Optional[Tuple[float, float]]:
    if value is None:
        return None
    if _checks.is_sequence(value):
        low, high = _checks.interval("ColorJitter", "hue", value, -0.5, 0.5)
    elif not _checks.is_number(value) or not 0 <= value <= 0.5:
        raise _checks.fail(
            "ColorJitter",
            "hue",
            value,
            "a number from 0 to 0.5, or (min, max) from -0.5 to 0.5",
        )
    else:
        low, high = -float(value), float(value)
    return None if low == high == 0.0 else (low, high)


class AdjustBrightness(_ColourOp):
    """Multiplies the pixels by `brightness_factor`: 0 is black, 1 no change.

    Example: T.AdjustBrightness(1.5)
    """

    _name = "adjust_brightness"

    def __init__(
        self, brightness_factor: float, *, fields: Fields = None
    ) -> None:
        self.brightness_factor = _checks.number(
            "AdjustBrightness", "brightness_factor", brightness_factor, 0
        )
        super().__init__(fields)


class AdjustContrast(_ColourOp):
    """Scales the distance of the pixels from the image's mean grey.

    `contrast_factor` 0 produces that grey, 1 no change.

    Example: T.AdjustContrast(1.5)
    """

    _name = "adjust_contrast"

    def __init__(
        self, contrast_factor: float, *, fields: Fields = None
    ) -> None:
        self.contrast_factor = _checks.number(
            "AdjustContrast", "contrast_factor", contrast_factor, 0
        )
        super().__init__(fields)


class AdjustSaturation(_ColourOp):
    """Scales the distance of the pixels from their own grey.

    `saturation_factor` 0 produces a grey image, 1 no change.

    Example: T.AdjustSaturation(0.5)
    """

    _name = "adjust_saturation"

    def __init__(
        self, saturation_factor: float, *, fields: Fields = None
    ) -> None:
        self.saturation_factor = _checks.number(
            "AdjustSaturation", "saturation_factor", saturation_factor, 0
        )
        super().__init__(fields)


class AdjustHue(_ColourOp):
    """Shifts the hue by `hue_factor` of the colour circle, -0.5 to 0.5.

    0 is no change; -0.5 and 0.5 produce the complementary colours.

    Example: T.AdjustHue(0.1)
    """

    _name = "adjust_hue"

    def __init__(self, hue_factor: float, *, fields: Fields = None) -> None:
        self.hue_factor = _checks.number(
            "AdjustHue", "hue_factor", hue_factor, -0.5, 0.5
        )
        super().__init__(fields)


class AdjustSharpness(_ColourOp):
    """Blends the image with a smoothed copy of itself.

    `sharpness_factor` 0 produces the smoothed image, 1 no change, 2 twice the
    sharpness.

    Example: T.AdjustSharpness(2.0)
    """

    _name = "adjust_sharpness"

    def __init__(
        self, sharpness_factor: float, *, fields: Fields = None
    ) -> None:
        self.sharpness_factor = _checks.number(
            "AdjustSharpness", "sharpness_factor", sharpness_factor, 0
        )
        super().__init__(fields)


class RandomAdjustSharpness(_ColourOp):
    """Applies AdjustSharpness with probability `p`, by default 0.5.

    Example: T.RandomAdjustSharpness(2.0, p=0.5)
    """

    _name = "random_adjust_sharpness"

    def __init__(
        self, sharpness_factor: float, p: float = 0.5, *, fields: Fields = None
    ) -> None:
        op = "RandomAdjustSharpness"
        self.sharpness_factor = _checks.number(
            op, "sharpness_factor", sharpness_factor, 0
        )
        self.p = _checks.probability(op, p)
        super().__init__(fields)


class Grayscale(_ColourOp):
    """Converts colours to grey, in `num_output_channels` 1 (default) or 3.

    Example: T.Grayscale(num_output_channels=3)
    """

    _name = "grayscale"

    def __init__(
        self, num_output_channels: int = 1, *, fields: Fields = None
    ) -> None:
        if not _checks.is_int(num_output_channels) or (
            num_output_channels not in (1, 3)
        ):
            raise _checks.fail(
                "Grayscale",
                "num_output_channels",
                num_output_channels,
                "1 or 3",
            )
        self.num_output_channels = int(num_output_channels)
        super().__init__(fields)


class RandomGrayscale(_GatedOp):
    """Converts colours to grey with probability `p`, by default 0.1.

    The number of channels does not change.

    Example: T.RandomGrayscale(p=0.2)
    """

    _name = "random_grayscale"

    def __init__(self, p: float = 0.1, *, fields: Fields = None) -> None:
        super().__init__(p, fields=fields)


class Invert(_ColourOp):
    """Subtracts the pixels from white: 255 for uint8, 1 for float images.

    Example: T.Invert()
    """

    _name = "invert"


class RandomInvert(_GatedOp):
    """Applies Invert with probability `p`, by default 0.5.

    Example: T.RandomInvert(p=0.5)
    """

    _name = "random_invert"


class Posterize(_ColourOp):
    """Keeps the upper `bits` bits, 0 to 8, of every value.

    Example: T.Posterize(4)
    """

    _name = "posterize"

    def __init__(self, bits: int, *, fields: Fields = None) -> None:
        self.bits = _checks.integer("Posterize", "bits", bits, 0, 8)
        super().__init__(fields)


class RandomPosterize(_ColourOp):
    """Applies Posterize with probability `p`, by default 0.5.

    Example: T.RandomPosterize(4, p=0.5)
    """

    _name = "random_posterize"

    def __init__(
        self, bits: int, p: float = 0.5, *, fields: Fields = None
    ) -> None:
        self.bits = _checks.integer("RandomPosterize", "bits", bits, 0, 8)
        self.p = _checks.probability("RandomPosterize", p)
        super().__init__(fields)


class Solarize(_ColourOp):
    """Inverts all pixels with a value of at least `threshold`.

    `threshold` is in the units of the image at this op: 0 to 255 for uint8, 0
    to 1 for float images.

    Example: T.Solarize(128)
    """

    _name = "solarize"

    def __init__(self, threshold: float, *, fields: Fields = None) -> None:
        self.threshold = _checks.number(
            "Solarize", "threshold", threshold, 0, 255
        )
        super().__init__(fields)


class RandomSolarize(_ColourOp):
    """Applies Solarize with probability `p`, by default 0.5.

    Example: T.RandomSolarize(128, p=0.5)
    """

    _name = "random_solarize"

    def __init__(
        self, threshold: float, p: float = 0.5, *, fields: Fields = None
    ) -> None:
        self.threshold = _checks.number(
            "RandomSolarize", "threshold", threshold, 0, 255
        )
        self.p = _checks.probability("RandomSolarize", p)
        super().__init__(fields)


class Autocontrast(_ColourOp):
    """Stretches the values of every channel to the full range.

    Its darkest value becomes black and its brightest value white.

    Example: T.Autocontrast()
    """

    _name = "autocontrast"


class RandomAutocontrast(_GatedOp):
    """Applies Autocontrast with probability `p`, by default 0.5.

    Example: T.RandomAutocontrast(p=0.5)
    """

    _name = "random_autocontrast"


class Equalize(_ColourOp):
    """Equalizes the histogram of every channel.

    Example: T.Equalize()
    """

    _name = "equalize"


class RandomEqualize(_GatedOp):
    """Applies Equalize with probability `p`, by default 0.5.

    Example: T.RandomEqualize(p=0.5)
    """

    _name = "random_equalize"


class GaussianNoise(_ColourOp):
    """Adds normal noise with `mean` and standard deviation `sigma`.

    The noise is drawn for each pixel and channel. `mean` is 0 by default and
    `sigma` 0.1. With `clip`, the default, the result is limited to 0..1. The
    image must be floating point at this op: put a ToDtype with scale before it.

    Example: T.GaussianNoise(sigma=0.05)
    """

    _name = "gaussian_noise"

    def __init__(
        self,
        mean: float = 0.0,
        sigma: float = 0.1,
        clip: bool = True,
        *,
        fields: Fields = None,
    ) -> None:
        op = "GaussianNoise"
        self.mean = _checks.number(op, "mean", mean)
        self.sigma = _checks.number(op, "sigma", sigma, 0)
        self.clip = _checks.boolean(op, "clip", clip)
        super().__init__(fields)


class GaussianBlur(_ColourOp):
    """Blurs with a Gaussian with standard deviation `sigma`, in pixels.

    `kernel_size` is an odd int, or (width, height) as in torchvision. `sigma`
    is a number, or (min, max) to draw from, by default (0.1, 2.0).

    Example: T.GaussianBlur(5, sigma=(0.1, 2.0))
    """

    _name = "gaussian_blur"

    def __init__(
        self,
        kernel_size: Size,
        sigma: Union[Number, Sequence[float]] = (0.1, 2.0),
        *,
        fields: Fields = None,
    ) -> None:
        op = "GaussianBlur"
        self.kernel_size = _checks.size(op, kernel_size, "kernel_size")
        if any(length % 2 == 0 for length in self.kernel_size):
            raise _checks.fail(
                op, "kernel_size", kernel_size, "odd numbers above 0"
            )
        if _checks.is_sequence(sigma) and len(sigma) == 1:
            sigma = sigma[0]
        self.sigma = _checks.positive_interval(
            op, "sigma", sigma if _checks.is_sequence(sigma) else (sigma, sigma)
        )
        super().__init__(fields)
