"""The sampler against torch's DistributedSampler, and against plain Python.

Shards and batches, in order and shuffled, are those of torch's own classes.
Orders are those of the algorithms as their headers describe them, written a
second time here from that description.
"""

import itertools
import math
import os
import subprocess
import sys
import unittest

import numpy as np
from torch.utils.data import BatchSampler, DistributedSampler

_DUMP = os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"],
                     "tests/server/feed/sampler_dump")
_MASK32 = 0xFFFFFFFF
_MASK64 = 0xFFFFFFFFFFFFFFFF
_SHUFFLE_OP_INDEX = 0xFFFF0001
_IS_FULL = os.environ.get("DATASETD_TEST_FULL") == "1"

# Orders of seed 1 and epoch 0: that of 10 samples, the beginning of 100000.
_PINNED_TABLE = [7, 8, 6, 5, 9, 1, 4, 2, 0, 3]
_PINNED_BIJECTION = [72469, 89535, 67371, 18109, 55973]


def dump(queries):
    """Answers, for each query, a list of (num_padding, indices) of batches."""
    text = "".join(" ".join(str(int(x)) for x in query) + "\n"
                   for query in queries)
    output = subprocess.run([_DUMP], input=text.encode(), check=True,
                            stdout=subprocess.PIPE).stdout
    words = np.frombuffer(output, dtype=np.int64)
    at = 0
    answers = []
    for _ in queries:
        num_batches = int(words[at])
        at += 1
        batches = []
        for _ in range(num_batches):
            num_samples, num_padding = int(words[at]), int(words[at + 1])
            batches.append(
                (num_padding, words[at + 2:at + 2 + num_samples].tolist()))
            at += 2 + num_samples
        answers.append(batches)
    assert at == len(words)
    return answers


def order_of(num_samples, seed, epoch):
    (batches,) = dump([(num_samples, num_samples, 1, 0, seed, 0, 1, epoch)])
    return batches[0][1]


def philox(counter, key):
    """Philox4x32-10 of integers, or of arrays of them."""
    c = [np.asarray(word, np.uint64) for word in counter]
    k0, k1 = key & _MASK32, key >> 32
    low, bits = np.uint64(_MASK32), np.uint64(32)
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> bits) ^ c[1] ^ np.uint64(k0), p1 & low,
             (p0 >> bits) ^ c[3] ^ np.uint64(k1), p0 & low]
        k0 = (k0 + 0x9E3779B9) & _MASK32
        k1 = (k1 + 0xBB67AE85) & _MASK32
    return c


def words64(seed, epoch, draws):
    """Two words for each draw."""
    w = philox([draws, _SHUFFLE_OP_INDEX, epoch & _MASK32, epoch >> 32], seed)
    bits = np.uint64(32)
    return np.stack([w[0] | w[1] << bits, w[2] | w[3] << bits], -1).tolist()


def fisher_yates(num_samples, seed, epoch):
    order = list(range(num_samples))
    words = list(itertools.chain.from_iterable(
        words64(seed, epoch, range(num_samples // 2))))
    for step in range(num_samples - 1):
        i = num_samples - 1 - step
        j = words[step] * (i + 1) >> 64
        order[i], order[j] = order[j], order[i]
    return order


def feistel(num_samples, seed, epoch, positions):
    rows = math.isqrt(num_samples - 1) + 1
    columns = -(-num_samples // rows)
    keys = sum(words64(seed, epoch, [0x80000000 + i for i in range(4)]), [])

    def element(key, x, bound):
        z = (key + x * 0x9E3779B97F4A7C15) & _MASK64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK64
        z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK64
        return ((z ^ z >> 31) >> 32) * bound >> 32

    result = []
    for position in positions:
        index = position
        while True:
            row, column = divmod(index, columns)
            for i in range(0, 8, 2):
                row = (row + element(keys[i], column, rows)) % rows
                column = (column + element(keys[i + 1], row, columns)) % columns
            index = row * columns + column
            if index < num_samples:
                break
        result.append(index)
    return result


class SamplerTorchTest(unittest.TestCase):

    def check_shards(self, num_samples, world_sizes, batch_sizes, shuffle):
        seed, epoch = 17, 5
        order = (order_of(num_samples, seed, epoch) if shuffle
                 else range(num_samples))
        rows = list(itertools.product(world_sizes, batch_sizes, [0, 1]))
        answers = iter(dump([
            (num_samples, batch_size, shuffle, drop_last, seed, rank,
             world_size, epoch)
            for world_size, batch_size, drop_last in rows
            for rank in range(world_size)]))
        for world_size, batch_size, drop_last in rows:
            for rank, batches in zip(range(world_size), answers):
                shard = DistributedSampler(
                    range(num_samples), num_replicas=world_size, rank=rank,
                    shuffle=False, drop_last=bool(drop_last))
                want = [[order[position] for position in batch]
                        for batch in BatchSampler(shard, batch_size,
                                                  bool(drop_last))]
                with self.subTest(num_samples=num_samples, rank=rank,
                                  world_size=world_size, batch_size=batch_size,
                                  drop_last=drop_last, shuffle=shuffle):
                    self.assertEqual([b[1] for b in batches], want)

    def test_shards_of_small_sets(self):
        for num_samples in [1, 2, 3, 7, 8, 9, 63, 64, 65, 1000]:
            for shuffle in [0, 1]:
                self.check_shards(num_samples, [1, 2, 3, 8, 11],
                                  [1, 2, 64, 500, num_samples + 1], shuffle)

    def test_shards_of_large_sets(self):
        for num_samples in [50000, 65537]:
            for shuffle in [0, 1]:
                self.check_shards(
                    num_samples, [1, 2, 3, 8] if _IS_FULL else [1, 3],
                    [64, 500, num_samples + 1] if _IS_FULL else [500], shuffle)

    def test_shards_of_a_million(self):
        self.check_shards(1000003, [3, 8] if _IS_FULL else [8], [500], 0)

    def test_all_ranks_hold_the_order_and_its_padding(self):
        for num_samples, world_size in [(1, 8), (3, 8), (10, 4), (1000, 7)]:
            answers = dump([(num_samples, 4, 0, 0, 0, rank, world_size, 0)
                            for rank in range(world_size)])
            num_rows = -(-num_samples // world_size)
            num_padding = sum(b[0] for batches in answers for b in batches)
            self.assertEqual(num_padding, num_rows * world_size - num_samples)

    def test_table_is_the_described_shuffle(self):
        for num_samples in [1, 2, 3, 10, 1001, 65536]:
            for seed, epoch in [(0, 0), (2**64 - 1, 3), (5, 2**40 + 1)]:
                self.assertEqual(order_of(num_samples, seed, epoch),
                                 fisher_yates(num_samples, seed, epoch))

    def test_bijection_is_the_described_network(self):
        for num_samples in [65537, 100000, 1000003]:
            for seed, epoch in [(0, 0), (2**64 - 1, 3), (5, 2**40 + 1)]:
                order = order_of(num_samples, seed, epoch)
                positions = list(range(0, num_samples, 97)) + [num_samples - 1]
                self.assertEqual([order[p] for p in positions],
                                 feistel(num_samples, seed, epoch, positions))

    def test_orders_are_pinned(self):
        # A change here breaks resuming from a checkpoint.
        self.assertEqual(order_of(10, 1, 0), _PINNED_TABLE)
        self.assertEqual(order_of(100000, 1, 0)[:5], _PINNED_BIJECTION)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
