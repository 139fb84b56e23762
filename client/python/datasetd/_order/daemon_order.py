"""The daemon's order of an epoch, position by position.

docs/randomness.md describes it; the daemon's own is server/feed/sampler.cc.
"""

from __future__ import annotations

import math
from typing import Any, List

_MAX_TABLE_SIZE = 65536
_ROUNDS = 8
_SHUFFLE_OP_INDEX = 0xFFFF0001
_FIRST_DRAW = 0x80000000
_MASK = 0xFFFFFFFF


class Order:
    """Maps positions of an epoch to 0 .. size - 1, as a feed with shuffle does.

    A table up to 65,536, else computed for each position.
    """

    def __init__(self, seed: int, epoch: int, size: int) -> None:
        self._size = size
        self._table: Any = None
        if size <= _MAX_TABLE_SIZE:
            self._table = _shuffled(seed, epoch, size)
            return
        self._rows = math.isqrt(size - 1) + 1  # rounded up
        self._columns = (size - 1) // self._rows + 1
        words = _draws(seed, epoch, _FIRST_DRAW, _ROUNDS // 2)
        self._keys = words.ravel()

    def __call__(self, positions: Any) -> Any:
        """Returns int64 [N]; `positions` is uint64 [N], below the size."""
        import numpy

        if self._table is not None:
            return self._table[positions]
        index = self._permuted(positions)
        # Results outside are fed in again.
        while True:
            outside = numpy.flatnonzero(index >= numpy.uint64(self._size))
            if not len(outside):
                return index.astype(numpy.int64)
            index[outside] = self._permuted(index[outside])

    def _permuted(self, positions: Any) -> Any:
        import numpy

        columns = numpy.uint64(self._columns)
        row, column = numpy.divmod(positions, columns)
        for i in range(0, _ROUNDS, 2):
            row = _added(self._keys[i], column, row, self._rows)
            column = _added(self._keys[i + 1], row, column, self._columns)
        return row * columns + column


def _added(key: Any, x: Any, value: Any, modulus: int) -> Any:
    """Returns (value + round function of x) % modulus."""
    import numpy

    z = key + x * numpy.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    z = (z ^ (z >> numpy.uint64(31))) >> numpy.uint64(32)
    value = value + (z * numpy.uint64(modulus) >> numpy.uint64(32))
    return value - numpy.uint64(modulus) * (value >= numpy.uint64(modulus))


def _shuffled(seed: int, epoch: int, size: int) -> Any:
    """Fisher and Yates's shuffle; see Sampler."""
    import numpy

    order: List[int] = list(range(size))
    words = _draws(seed, epoch, 0, size // 2 + 1).ravel().tolist()
    for step in range(size - 1):
        i = size - 1 - step
        j = words[step] * (i + 1) >> 64
        order[i], order[j] = order[j], order[i]
    return numpy.array(order, numpy.int64)


def _draws(seed: int, epoch: int, first: int, count: int) -> Any:
    """Returns uint64 [count, 2]: Philox4x32-10 of `count` draws."""
    import numpy

    shift, mask = numpy.uint64(32), numpy.uint64(_MASK)
    c0 = numpy.arange(first, first + count, dtype=numpy.uint64)
    c1 = numpy.full_like(c0, _SHUFFLE_OP_INDEX)
    c2 = numpy.full_like(c0, epoch & _MASK)
    c3 = numpy.full_like(c0, epoch >> 32)
    key0, key1 = seed & _MASK, seed >> 32
    for _ in range(10):
        product0 = c0 * numpy.uint64(0xD2511F53)
        product1 = c2 * numpy.uint64(0xCD9E8D57)
        c0 = (product1 >> shift) ^ c1 ^ numpy.uint64(key0)
        c1 = product1 & mask
        c2 = (product0 >> shift) ^ c3 ^ numpy.uint64(key1)
        c3 = product0 & mask
        key0 = (key0 + 0x9E3779B9) & _MASK
        key1 = (key1 + 0xBB67AE85) & _MASK
    return numpy.stack([c0 | c1 << shift, c2 | c3 << shift], axis=1)
