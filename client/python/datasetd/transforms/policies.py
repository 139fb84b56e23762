"""Policies, which draw ops and their magnitudes; images of 1 or 3 channels."""

from __future__ import annotations

import enum
from typing import Any, Dict

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

    _takes_masks = False

    def __init__(
        self, interpolation: Interpolation, fill: Fill, fields: Fields
    ) -> None:
        op = type(self).__name__
        self.interpolation = _checks.interpolation(op, interpolation)
        self.fill = _checks.warp_fill(op, fill)
        super().__init__(fields)


class RandAugment(_Policy):
    """Applies `num_ops` ops, drawn for each sample, one after the other.

    Each is one of 14 ops, of which one changes nothing. It has number
    `magnitude` of `num_magnitude_bins` evenly spaced magnitudes, from no change
    to the largest, and a drawn sign. See Rotate for `interpolation` and `fill`;
    None, the default, means zeros outside the image.

    Example: T.RandAugment(num_ops=2, magnitude=9)
    """

    _name = "rand_augment"

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
        op = "RandAugment"
        self.num_ops = _checks.integer(op, "num_ops", num_ops, 0, 32)
        self.num_magnitude_bins = _num_bins(op, num_magnitude_bins)
        self.magnitude = _checks.integer(
            op, "magnitude", magnitude, 0, self.num_magnitude_bins - 1
        )
        super().__init__(interpolation, fill, fields)


class TrivialAugmentWide(_Policy):
    """Applies one op, drawn for each sample with its magnitude and sign.

    The ops are those of RandAugment, with a wider range of
    `num_magnitude_bins` magnitudes. See RandAugment for the other arguments.

    Example: T.TrivialAugmentWide()
    """

    _name = "trivial_augment_wide"

    def __init__(
        self,
        num_magnitude_bins: int = 31,
        interpolation: Interpolation = InterpolationMode.NEAREST,
        fill: Fill = None,
        *,
        fields: Fields = None,
    ) -> None:
        self.num_magnitude_bins = _num_bins(
            "TrivialAugmentWide", num_magnitude_bins
        )
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

    _name = "auto_augment"

    def __init__(
        self,
        policy: Any = AutoAugmentPolicy.IMAGENET,
        interpolation: Interpolation = InterpolationMode.NEAREST,
        fill: Fill = None,
        *,
        fields: Fields = None,
    ) -> None:
        policies = tuple(known.value for known in AutoAugmentPolicy)
        # torchvision's enum is one, too, by its value.
        value = getattr(policy, "value", policy)
        if value not in policies:
            raise _checks.fail(
                "AutoAugment", "policy", policy, f"one of {policies}"
            )
        self.policy = str(value)
        super().__init__(interpolation, fill, fields)

    def _parameters(self) -> Dict[str, Any]:
        parameters = super()._parameters()
        parameters["policy"] = f"AUTO_AUGMENT_POLICY_{self.policy.upper()}"
        return parameters


def _num_bins(op: str, value: Any) -> int:
    return _checks.integer(op, "num_magnitude_bins", value, 2, 65536)
