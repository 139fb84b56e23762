"""Ops on colours and neighbourhoods, for images of 1 or 3 channels."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, Tuple, Union

from . import _checks
from ._base import Transform, optional, range_message, size_message
from ._checks import Fields, Number, Size

Jitter = Union[None, Number, Sequence[float]]


class _ColourOp(Transform):
    _takes_masks = False


class _FactorOp(_ColourOp):
    """An op with one factor >= 0."""

    _factor = ""

    def _set(self, value: Any) -> None:
        op = type(self).__name__
        setattr(self, self._factor, _checks.number(op, self._factor, value, 0))

    def _parameters(self) -> Dict[str, Any]:
        return {self._factor: getattr(self, self._factor)}


class _GatedOp(_ColourOp):
    """An op with only a probability."""

    def __init__(self, p: float = 0.5, *, fields: Fields = None) -> None:
        self.p = _checks.probability(type(self).__name__, p)
        super().__init__(fields)

    def _parameters(self) -> Dict[str, Any]:
        return {"p": self.p}


class ColorJitter(_ColourOp):
    """Brightness, contrast, saturation and hue, in a random order."""

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

    def _parameters(self) -> Dict[str, Any]:
        return optional(
            brightness=range_message(self.brightness),
            contrast=range_message(self.contrast),
            saturation=range_message(self.saturation),
            hue=range_message(self.hue),
        )


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


class AdjustBrightness(_FactorOp):
    _name = "adjust_brightness"
    _factor = "brightness_factor"

    def __init__(
        self, brightness_factor: float, *, fields: Fields = None
    ) -> None:
        self._set(brightness_factor)
        super().__init__(fields)


class AdjustContrast(_FactorOp):
    _name = "adjust_contrast"
    _factor = "contrast_factor"

    def __init__(
        self, contrast_factor: float, *, fields: Fields = None
    ) -> None:
        self._set(contrast_factor)
        super().__init__(fields)


class AdjustSaturation(_FactorOp):
    _name = "adjust_saturation"
    _factor = "saturation_factor"

    def __init__(
        self, saturation_factor: float, *, fields: Fields = None
    ) -> None:
        self._set(saturation_factor)
        super().__init__(fields)


class AdjustHue(_ColourOp):
    _name = "adjust_hue"

    def __init__(self, hue_factor: float, *, fields: Fields = None) -> None:
        self.hue_factor = _checks.number(
            "AdjustHue", "hue_factor", hue_factor, -0.5, 0.5
        )
        super().__init__(fields)

    def _parameters(self) -> Dict[str, Any]:
        return {"hue_factor": self.hue_factor}


class AdjustSharpness(_FactorOp):
    _name = "adjust_sharpness"
    _factor = "sharpness_factor"

    def __init__(
        self, sharpness_factor: float, *, fields: Fields = None
    ) -> None:
        self._set(sharpness_factor)
        super().__init__(fields)


class RandomAdjustSharpness(_ColourOp):
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

    def _parameters(self) -> Dict[str, Any]:
        return {"sharpness_factor": self.sharpness_factor, "p": self.p}


class Grayscale(_ColourOp):
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

    def _parameters(self) -> Dict[str, Any]:
        return {"num_output_channels": self.num_output_channels}


class RandomGrayscale(_GatedOp):
    _name = "random_grayscale"

    def __init__(self, p: float = 0.1, *, fields: Fields = None) -> None:
        super().__init__(p, fields=fields)


class Invert(_ColourOp):
    _name = "invert"


class RandomInvert(_GatedOp):
    _name = "random_invert"


class Posterize(_ColourOp):
    _name = "posterize"

    def __init__(self, bits: int, *, fields: Fields = None) -> None:
        self.bits = _checks.integer("Posterize", "bits", bits, 0, 8)
        super().__init__(fields)

    def _parameters(self) -> Dict[str, Any]:
        return {"bits": self.bits}


class RandomPosterize(_ColourOp):
    _name = "random_posterize"

    def __init__(
        self, bits: int, p: float = 0.5, *, fields: Fields = None
    ) -> None:
        self.bits = _checks.integer("RandomPosterize", "bits", bits, 0, 8)
        self.p = _checks.probability("RandomPosterize", p)
        super().__init__(fields)

    def _parameters(self) -> Dict[str, Any]:
        return {"bits": self.bits, "p": self.p}


class Solarize(_ColourOp):
    """`threshold` is in the units of the image at this op."""

    _name = "solarize"

    def __init__(self, threshold: float, *, fields: Fields = None) -> None:
        self.threshold = _checks.number(
            "Solarize", "threshold", threshold, 0, 255
        )
        super().__init__(fields)

    def _parameters(self) -> Dict[str, Any]:
        return {"threshold": self.threshold}


class RandomSolarize(_ColourOp):
    """`threshold` is in the units of the image at this op."""

    _name = "random_solarize"

    def __init__(
        self, threshold: float, p: float = 0.5, *, fields: Fields = None
    ) -> None:
        self.threshold = _checks.number(
            "RandomSolarize", "threshold", threshold, 0, 255
        )
        self.p = _checks.probability("RandomSolarize", p)
        super().__init__(fields)

    def _parameters(self) -> Dict[str, Any]:
        return {"threshold": self.threshold, "p": self.p}


class Autocontrast(_ColourOp):
    _name = "autocontrast"


class RandomAutocontrast(_GatedOp):
    _name = "random_autocontrast"


class Equalize(_ColourOp):
    _name = "equalize"


class RandomEqualize(_GatedOp):
    _name = "random_equalize"


class GaussianBlur(_ColourOp):
    """`kernel_size` is an int, or (width, height) as in torchvision."""

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

    def _parameters(self) -> Dict[str, Any]:
        width, height = self.kernel_size
        return {
            "kernel_size": size_message((height, width)),
            "sigma": range_message(self.sigma),
        }
