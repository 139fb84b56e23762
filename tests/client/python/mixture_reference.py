"""The order of mixtures by docs/randomness.md, in NumPy."""

import functools
import math
from fractions import Fraction

import numpy as np

from tests.conformance.random_reference import Permutation


@functools.lru_cache(maxsize=None)
def permutation(seed, number, n, op_index):
    """Returns the order of 0 .. n - 1, as a list."""
    return Permutation(seed, number, n, op_index)(np.arange(n)).tolist()


def rows_of_parts(ratios, num_rows):
    """The largest remainders of the shares of an epoch."""
    shares = [Fraction(r) / sum(map(Fraction, ratios)) for r in ratios]
    shares = [share * num_rows for share in shares]
    rows = [math.floor(share) for share in shares]
    by_rest = sorted(range(len(rows)), key=lambda d: rows[d] - shares[d])
    for d in by_rest[: num_rows - sum(rows)]:
        rows[d] += 1
    return rows


class MixtureOrder:
    """Maps positions of epochs to (part, sample)."""

    def __init__(self, sizes, rows, shuffle, fixed, seed):
        self.sizes, self.rows = sizes, rows
        self.shuffle, self.fixed, self.seed = shuffle, fixed, seed
        self.num_rows = sum(rows)

    def _sample(self, part, epoch, k):
        number, place = divmod(epoch * self.rows[part] + k, self.sizes[part])
        if self.shuffle:
            order = permutation(
                self.seed, number, self.sizes[part], 0xFFFF0100 + part
            )
            place = order[place]
        return part, place

    def _counts(self, f):
        counts, left = [], self.num_rows
        for rows in self.rows:
            counts.append(f * rows // left)
            f, left = f - counts[-1], left - rows
        return counts

    def _in_range(self, epoch, begin, end, position):
        offset = position - begin
        for part, (a, b) in enumerate(
            zip(self._counts(begin), self._counts(end))
        ):
            if offset < b - a:
                return self._sample(part, epoch, a + offset)
            offset -= b - a
        raise AssertionError(position)

    def positions(self, epoch, batch_rows, first=0):
        """Returns the samples of positions `first` and on, where the batches of
        all ranks have `batch_rows`."""
        result = []
        if self.shuffle and not self.fixed:
            order = permutation(self.seed, epoch, self.num_rows, 0xFFFF0002)
        for position in range(first, self.num_rows):
            if self.fixed:
                begin = position - (position - first) % batch_rows
                end = min(begin + batch_rows, self.num_rows)
                result.append(self._in_range(epoch, begin, end, position))
            elif self.shuffle:
                row, part = order[position], 0
                while row >= self.rows[part]:
                    row -= self.rows[part]
                    part += 1
                result.append(self._sample(part, epoch, row))
            else:
                result.append(
                    self._in_range(epoch, position, position + 1, position)
                )
        return result
