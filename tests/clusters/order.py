"""The order of an epoch of more than 65,536 samples, in NumPy: an independent
implementation of cuda/kernels/math/permutation.h, for whole epochs at once."""

import numpy as np

_ROUNDS = 8
_SHUFFLE_OP = 0xFFFF0001
_FIRST_DRAW = 0x80000000
_MASK = (1 << 32) - 1


def philox(counter, key):
    """Philox4x32-10 of four words."""
    keys = [key & _MASK, key >> 32]
    for _ in range(10):
        first = 0xD2511F53 * counter[0]
        second = 0xCD9E8D57 * counter[2]
        counter = [
            (second >> 32) ^ counter[1] ^ keys[0], second & _MASK,
            (first >> 32) ^ counter[3] ^ keys[1], first & _MASK]
        keys = [(keys[0] + 0x9E3779B9) & _MASK, (keys[1] + 0xBB67AE85) & _MASK]
    return counter


class Order:
    """order(positions) gives the sample at each position of the epoch."""

    def __init__(self, seed, epoch, num_samples):
        self.num_samples = num_samples
        self.rows = int(np.ceil(np.sqrt(num_samples)))
        while (self.rows - 1) ** 2 >= num_samples:
            self.rows -= 1
        while self.rows**2 < num_samples:
            self.rows += 1
        self.columns = (num_samples - 1) // self.rows + 1
        self.keys = []
        for i in range(_ROUNDS // 2):
            words = philox([_FIRST_DRAW + i, _SHUFFLE_OP, epoch & _MASK,
                            epoch >> 32], seed)
            self.keys += [np.uint64(words[0] | words[1] << 32),
                          np.uint64(words[2] | words[3] << 32)]

    def __call__(self, positions):
        index = self._pass(np.asarray(positions, np.uint64))
        while True:
            outside = np.flatnonzero(index >= self.num_samples)
            if not len(outside):
                return index.astype(np.int64)
            index[outside] = self._pass(index[outside])

    def _pass(self, position):
        row, column = np.divmod(position, np.uint64(self.columns))
        for i in range(0, _ROUNDS, 2):
            row += _round(self.keys[i], column, self.rows)
            row -= (row >= self.rows) * np.uint64(self.rows)
            column += _round(self.keys[i + 1], row, self.columns)
            column -= (column >= self.columns) * np.uint64(self.columns)
        return row * np.uint64(self.columns) + column


def _round(key, x, bound):
    z = key + x * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return (z >> np.uint64(32)) * np.uint64(bound) >> np.uint64(32)


def share(rank, world_size, num_samples):
    """(positions of a rank without drop_last, how many of them are padding)."""
    rows = -(-num_samples // world_size)
    positions = rank + np.arange(rows, dtype=np.int64) * world_size
    padding = int((positions >= num_samples).sum())
    return positions % num_samples, padding
