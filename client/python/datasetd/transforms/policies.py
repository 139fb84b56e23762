"""Policies, which draw ops and their magnitudes; images of 1 or 3 channels."""

from __future__ import annotations

import enum
from typing import Any

from . import _checks
from ._base import Transform
from ._checks import Fields, Fill, InterpolationMode
from .resampling import Interpolation

__all__ = [
    "AutoAugment",
    "AutoAugmentPolicy",
    "RandAugment",
    "TrivialAugmentWide",
]


class _Policy(Transform):
    """An op with an interpolation and a fill for the ops that move pixels."""

    def __init__(
        self, interpolation: Interpolation, fill: Fill, fields: Fields
    ) -> None:
        self.interpolation = _checks.interpolation(self, interpolation)
        self.fill = _checks.fill(self, fill)
        super().__init__(fields)


class RandAugment(_Policy):
    """Applies `num_ops` ops, drawn for each sample, one after the other.

    Each is one of 14 ops, of which one changes nothing. It has number
    `magnitude` of `num_magnitude_bins` evenly spaced magnitudes, from no change
    to the largest, and a drawn sign. See Rotate for `interpolation` and `fill`;
    None, the default, means zeros outside the image.

    Example: T.RandAugment(num_ops=2, magnitude=9)
    """

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: Interpolation = InterpolationMode.NEAREST,
        fill: Fill = None,
        *,
        fields: Fields = None,
    ) -> None:
        self.num_ops = num_ops
        self.num_magnitude_bins = _checks.integer(
            self, "num_magnitude_bins", num_magnitude_bins
        )
        last = self.num_magnitude_bins - 1
        if not _checks.is_int(magnitude) or not 0 <= magnitude <= last:
            raise _checks.fail(
                self, "magnitude", magnitude, f"an int from 0 to {last}"
            )
        self.magnitude = magnitude
        super().__init__(interpolation, fill, fields)


class TrivialAugmentWide(_Policy):
    """Applies one op, drawn for each sample with its magnitude and sign.

    The ops are those of RandAugment, with a wider range of
    `num_magnitude_bins` magnitudes. See RandAugment for the other arguments.

    Example: T.TrivialAugmentWide()
    """

    def __init__(
        self,
        num_magnitude_bins: int = 31,
        interpolation: Interpolation = InterpolationMode.NEAREST,
        fill: Fill = None,
        *,
        fields: Fields = None,
    ) -> None:
        self.num_magnitude_bins = num_magnitude_bins
        super().__init__(interpolation, fill, fields)


class AutoAugmentPolicy(enum.Enum):
    """Like torchvision's, whose members are also accepted."""

    IMAGENET = "imagenet"
    CIFAR10 = "cifar10"
    SVHN = "svhn"


class AutoAugment(_Policy):
    """Applies a pair of ops, drawn for each sample from 25 learned ones.

    `policy` is the dataset on which the pairs were learned: "imagenet"
    (default), "cifar10" or "svhn"; torchvision's enum is accepted, too. Each op
    of a pair has its own probability and magnitude, and a drawn sign. See
    RandAugment for the other arguments.

    Example: T.AutoAugment("cifar10")
    """

    def __init__(
        self,
        policy: Any = AutoAugmentPolicy.IMAGENET,
        interpolation: Interpolation = InterpolationMode.NEAREST,
        fill: Fill = None,
        *,
        fields: Fields = None,
    ) -> None:
        self.policy: str = policy
        super().__init__(interpolation, fill, fields)
