"""The order of mixtures by docs/randomness.md, in Python's integers."""

import math
from fractions import Fraction

_M32, _M64 = 2**32 - 1, 2**64 - 1


def _philox(counter, key):
    c, k = list(counter), [key & _M32, key >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & _M32, a >> 32 ^ c[3] ^ k[1], a & _M32]
        k = [(k[0] + 0x9E3779B9) & _M32, (k[1] + 0xBB67AE85) & _M32]
    return c


def permutation(seed, number, n, op_index):
    """Returns the order of 0 .. n - 1, a function of the position."""
    rows = math.isqrt(n - 1) + 1
    columns = (n - 1) // rows + 1
    keys = []
    for draw in range(8):
        w = _philox(
            (2**31 + draw, op_index, number & _M32, number >> 32), seed
        )
        keys += [w[0] | w[1] << 32, w[2] | w[3] << 32]

    def shift(key, x, modulus):
        z = (key + x * 0x9E3779B97F4A7C15) & _M64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _M64
        z = (z ^ z >> 27) * 0x94D049BB133111EB & _M64
        return ((z ^ z >> 31) >> 32) * modulus >> 32

    def at(position):
        while True:
            row, column = divmod(position, columns)
            for i in range(0, 16, 2):
                row = (row + shift(keys[i], column, rows)) % rows
                column = (column + shift(keys[i + 1], row, columns)) % columns
            position = row * columns + column
            if position < n:
                return position

    return at


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
            place = order(place)
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
                row, part = order(position), 0
                while row >= self.rows[part]:
                    row -= self.rows[part]
                    part += 1
                result.append(self._sample(part, epoch, row))
            else:
                result.append(
                    self._in_range(epoch, position, position + 1, position)
                )
        return result
