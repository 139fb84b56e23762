"""Weighted orders: epochs of samples drawn by weight, with replacement."""

from __future__ import annotations

import hashlib
import importlib.util
from typing import Any, Iterable, Iterator, List, Optional, Union

from .._ranks.ranks import Ranks
from ..errors import InvalidArgument

# Numbers, one per sample, or "balanced".
Weights = Union[str, Iterable[float]]


class WeightedSampler:
    """The samples of a rank, as torch's WeightedRandomSampler draws them: each
    independently, with replacement, in proportion to the weights.

    A function of (seed, epoch). An epoch has as many draws as there are
    samples, rounded up to a multiple of the ranks, or down with `drop_last`;
    rank r of w takes draws r, r + w, ...
    """

    def __init__(
        self,
        weights: Any,
        samples: Optional[List[int]],
        num_samples: int,
        drop_last: bool,
    ) -> None:
        """`weights` are of `samples`; None: of samples 0 to num_samples."""
        if importlib.util.find_spec("numpy") is None:
            raise InvalidArgument("weights= needs NumPy, which is missing")
        import numpy

        if hasattr(weights, "cpu"):  # torch
            weights = weights.detach().cpu()
        if not hasattr(weights, "__array__"):
            weights = list(weights)
        try:
            array = numpy.asarray(weights, dtype=numpy.float64)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(
                f"weights: expected numbers, or 'balanced': {error}"
            ) from None
        if array.shape != (num_samples,):
            raise InvalidArgument(
                f"weights: their shape is {array.shape}; expected one for "
                f"each of {num_samples} samples"
            )
        if not (numpy.isfinite(array) & (array >= 0)).all():
            raise InvalidArgument("weights: expected finite numbers from 0")
        self._cumulative = numpy.cumsum(array)
        if not 0 < self._cumulative[-1] < numpy.inf:
            raise InvalidArgument(
                f"weights: their sum is {self._cumulative[-1]}; expected a "
                "finite number above 0"
            )
        self._last = int(numpy.flatnonzero(array)[-1])
        self._samples = None if samples is None else numpy.array(samples)
        self._num_samples = num_samples
        self._drop_last = drop_last
        self.hash = hashlib.blake2b(
            array.astype("<f8").tobytes(), digest_size=16
        ).hexdigest()
        # Set by the loader.
        self.seed = 0
        self.ranks = Ranks(0, 1)
        # Draws of each rank; None: as many as the samples make.
        self.num_rows: Optional[int] = None
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        if self.num_rows is not None:
            return self.num_rows
        size = self.ranks.world_size
        if self._drop_last:
            return self._num_samples // size
        return -(-self._num_samples // size)

    def __iter__(self) -> Iterator[int]:
        import numpy

        rank, size = self.ranks
        # NumPy keeps the bits of Philox the same in all versions.
        key = numpy.array([self.seed, self.epoch], dtype=numpy.uint64)
        bits = numpy.random.Philox(key=key).random_raw(len(self) * size)
        # Multiples of 2^-53 in [0, 1).
        numbers = (bits[rank::size] >> numpy.uint64(11)) * 2.0**-53
        drawn = numpy.searchsorted(
            self._cumulative, numbers * self._cumulative[-1], side="right"
        )
        drawn = numpy.minimum(drawn, self._last)
        if self._samples is not None:
            drawn = self._samples[drawn]
        return iter(drawn.tolist())


def balanced(labels: List[Any]) -> Any:
    """Returns weights by which all classes are equally frequent. `labels` are
    the batches of a field, as arrays of a framework on any device."""
    import numpy

    _, classes, counts = numpy.unique(
        numpy.concatenate(
            [
                numpy.asarray(batch.cpu() if hasattr(batch, "cpu") else batch)
                for batch in labels
            ]
        ),
        return_inverse=True,
        return_counts=True,
    )
    return 1.0 / counts[classes]
