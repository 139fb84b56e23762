"""The order of an epoch of more than 65,536 samples, for whole epochs at once."""

import numpy as np

from tests.conformance.random_reference import Permutation


def order_of(seed, epoch, num_samples):
    """Maps positions of the epoch to samples."""
    return Permutation(seed, epoch, num_samples, num_rounds=8)


def share(rank, world_size, num_samples):
    """(positions of a rank without drop_last, how many of them are padding)."""
    rows = -(-num_samples // world_size)
    positions = rank + np.arange(rows, dtype=np.int64) * world_size
    padding = int((positions >= num_samples).sum())
    return positions % num_samples, padding
