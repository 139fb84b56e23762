"""Random numbers and orders as docs/randomness.md has them, in NumPy.

Shares no code with the daemon. The one Philox of the tests in Python.
"""

import math

import numpy as np

_MASK = 0xFFFFFFFF
_HALF = np.uint64(32)
_LOW = np.uint64(_MASK)


def philox(counter, key):
    """Philox4x32-10 of four words, or of four arrays of them."""
    words = [np.asarray(word, np.uint64) for word in counter]
    low, high = key & _MASK, key >> 32
    for _ in range(10):
        first = words[0] * np.uint64(0xD2511F53)
        second = words[2] * np.uint64(0xCD9E8D57)
        words = [
            (second >> _HALF) ^ words[1] ^ np.uint64(low),
            second & _LOW,
            (first >> _HALF) ^ words[3] ^ np.uint64(high),
            first & _LOW,
        ]
        low = (low + 0x9E3779B9) & _MASK
        high = (high + 0xBB67AE85) & _MASK
    return [word if np.ndim(word) else int(word) for word in words]


def halves(seed, op_index, number, draw):
    """The 128 bits of a draw, or of an array of draws, as two words each."""
    counter = [draw, op_index, number & _MASK, number >> 32]
    words = [np.asarray(word, np.uint64) for word in philox(counter, seed)]
    return words[0] | words[1] << _HALF, words[2] | words[3] << _HALF


class Permutation:
    """The keyed bijection of 0 .. size - 1; maps arrays of positions."""

    def __init__(self, seed, number, size, op_index=0xFFFF0001, num_rounds=16):
        self.size = size
        self.rows = math.isqrt(size - 1) + 1
        self.columns = (size - 1) // self.rows + 1
        draws = 0x80000000 + np.arange(num_rounds // 2, dtype=np.uint64)
        self.keys = np.stack(
            halves(seed, op_index, number, draws), axis=1
        ).ravel()

    def __call__(self, positions):
        index = self._pass(np.asarray(positions, np.uint64))
        while True:
            outside = np.flatnonzero(index >= self.size)
            if not len(outside):
                return index.astype(np.int64)
            index[outside] = self._pass(index[outside])

    def _pass(self, position):
        columns = np.uint64(self.columns)
        row, column = np.divmod(position, columns)
        for row_key, column_key in self.keys.reshape(-1, 2):
            row = (row + _draw(row_key, column, self.rows)) % np.uint64(
                self.rows
            )
            column = (column + _draw(column_key, row, self.columns)) % columns
        return row * columns + column


def _draw(key, x, bound):
    z = key + x * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return (z >> _HALF) * np.uint64(bound) >> _HALF
