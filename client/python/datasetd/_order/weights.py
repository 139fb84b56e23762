"""weights=: the weights that a loader sends to the daemon."""

from __future__ import annotations

import array
import hashlib
import importlib.util
from typing import Any, Iterable, Optional, Union

from .._warnings import warn
from ..errors import InvalidArgument

# Numbers, one per sample, or "balanced".
Weights = Union[str, Iterable[float]]


class Weighted:
    """The weights of a loader's samples, by which the daemon draws.

    The daemon checks that they are finite numbers from 0 with a sum above 0.
    """

    def __init__(
        self,
        weights: Any,
        samples: "Optional[array.array[int]]",
        num_samples: int,
    ) -> None:
        """`weights` are of `samples`; None: of samples 0 to num_samples."""
        if importlib.util.find_spec("numpy") is None:
            raise InvalidArgument("weights= needs NumPy, which is missing")
        import numpy

        try:
            if hasattr(weights, "cpu"):  # torch
                weights = weights.detach().cpu().double().numpy()
            if not hasattr(weights, "__array__"):
                weights = list(weights)
            # A copy: the caller may change theirs.
            values = numpy.array(weights, dtype=numpy.float64, order="C")
        except (TypeError, ValueError) as error:
            raise InvalidArgument(
                f"weights: expected numbers, one for each of {num_samples} "
                f"samples, or 'balanced': {error}"
            ) from None
        if values.shape != (num_samples,):
            raise InvalidArgument(
                f"weights: their shape is {values.shape}; expected one for "
                f"each of {num_samples} samples"
            )
        self.weights = values
        self.samples: Any = None
        if samples is not None:
            self.samples = numpy.array(samples, numpy.int64)
        self.hash = hashlib.blake2b(
            values.astype("<f8", copy=False).data, digest_size=16
        ).hexdigest()


    def equals(self, other: "Optional[Weighted]") -> bool:
        """True if `other` are the same weights, of the same samples."""
        return other is not None and self.hash == other.hash


def balanced(values: Any, field: str) -> Any:
    """Returns weights by which all classes are equally frequent, with 0 for
    samples without a class, whose label is below 0; a warning says so. `values`
    is a NumPy array of the labels, in `field`."""
    import numpy

    is_labelled = values >= 0
    num_unlabelled = len(values) - int(is_labelled.sum())
    if num_unlabelled == len(values):
        raise InvalidArgument(
            f"weights='balanced': all {len(values)} values of '{field}' are "
            "below 0, which is no class: pass one weight per sample"
        )
    if num_unlabelled:
        warn(
            f"weights='balanced': {num_unlabelled} of {len(values)} samples "
            f"have a '{field}' below 0, which is no class, and are never drawn "
            "(weight 0); to draw them, pass one weight per sample"
        )
    weights = numpy.zeros(len(values))
    _, classes, counts = numpy.unique(
        values[is_labelled], return_inverse=True, return_counts=True
    )
    weights[is_labelled] = 1.0 / counts[classes]
    return weights
