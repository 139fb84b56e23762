"""The sampler's orders against plain Python.

They are those of the algorithms as their headers describe them, written a second
time here from that description.
"""

import itertools
import os
import subprocess
import sys
import unittest

import numpy as np

from tests.conformance.random_reference import Permutation, halves

_DUMP = os.path.join(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"],
                     "tests/server/order/sampler_dump")
_SHUFFLE_OP_INDEX = 0xFFFF0001

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


def words64(seed, epoch, draws):
    """Two words for each draw."""
    return np.stack(halves(seed, _SHUFFLE_OP_INDEX, epoch, draws), -1).tolist()


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
    order = Permutation(seed, epoch, num_samples, num_rounds=8)
    return order(positions).tolist()


class SamplerOrderTest(unittest.TestCase):

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
