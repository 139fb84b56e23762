#!/usr/bin/python3
"""Simulates order and partition at 1,024 ranks and 10^9 samples, and prints the
figures of docs/clusters.md. Takes some minutes and 1 GB.

    scale.py [SAMPLES] [RANKS] [RANKS_PER_NODE]
"""

import os
import sys
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", ".."))

from tests.clusters.order import order_of, share  # noqa: E402

_CHUNK = 1 << 22
_BLOCKS = 1000


def counts_of_all(order):
    """Counts each sample in an epoch over all ranks, padding aside."""
    seen = np.zeros(order.size, np.uint8)
    for begin in range(0, order.size, _CHUNK):
        end = min(begin + _CHUNK, order.size)
        # A sample that comes twice in a chunk counts once, and another is
        # missing then.
        seen[order(np.arange(begin, end))] += 1
    return seen


def chi_squared(samples, num_samples):
    """Chi-squared of a rank's samples over contiguous blocks of the dataset,
    such as its files, in standard deviations from that of a random choice."""
    blocks = samples * _BLOCKS // num_samples
    counts = np.bincount(blocks, minlength=_BLOCKS)
    expected = len(samples) / _BLOCKS
    # A choice without replacement varies a little less.
    part = 1 - len(samples) / num_samples
    value = ((counts - expected) ** 2 / expected).sum() / part
    freedom = _BLOCKS - 1
    return (value - freedom) / np.sqrt(2 * freedom), counts


def shard_sizes(num_samples, num_shards, deviation=0.01):
    """Sizes that sum up to num_samples and vary by a normal `deviation`."""
    random = np.random.default_rng(1)
    parts = random.normal(1, deviation, num_shards)
    ends = np.round(np.cumsum(parts) / parts.sum() * num_samples)
    return np.diff(ends.astype(np.int64), prepend=0)


class Parts:
    """Shards dealt out to nodes, with equally many ranks on each."""

    def __init__(self, sizes, num_nodes, per_node):
        self.nodes = np.array(
            [sizes[node::num_nodes].sum() for node in range(num_nodes)])
        num_ranks = num_nodes * per_node
        total = int(sizes.sum())
        # Rows of each rank, with drop_last and without.
        self.fewest = int((self.nodes // per_node).min())
        self.most = int((-(-self.nodes // per_node)).max())
        self.left_out = total - self.fewest * num_ranks
        self.padding = self.most * num_ranks - total


def print_parts(num_samples, num_nodes, per_node):
    for num_shards in (8 * num_nodes, 80 * num_nodes - 240, 80 * num_nodes,
                       num_samples):
        sizes = (np.ones(num_samples, np.int8) if num_shards == num_samples
                 else shard_sizes(num_samples, num_shards))
        parts = Parts(sizes, num_nodes, per_node)
        print(f"{num_shards:,} shards on {num_nodes} nodes: a node has "
              f"{parts.nodes.min():,} to {parts.nodes.max():,} samples; rows "
              f"of a rank {parts.fewest:,} with drop_last "
              f"({parts.left_out / num_samples:.4%} are left out), "
              f"{parts.most:,} without ({parts.padding / num_samples:.4%} "
              "are repeated)")


def main(num_samples=10**9, world_size=1024, per_node=8):
    print_parts(num_samples, world_size // per_node, per_node)
    order = order_of(seed=1, epoch=0, num_samples=num_samples)
    begin = time.perf_counter()
    seen = counts_of_all(order)
    seconds = time.perf_counter() - begin
    print(f"samples that come exactly once: {int((seen == 1).sum()):,} of "
          f"{num_samples:,} ({seconds:.0f} s)")
    assert (seen == 1).all()
    del seen
    rows, paddings = zip(*(
        (-(-num_samples // world_size),
         int(rank + (-(-num_samples // world_size) - 1) * world_size
             >= num_samples))
        for rank in range(world_size)))
    print(f"rows of a rank: {min(rows):,} to {max(rows):,}; ranks with a row of "
          f"padding: {sum(paddings)}")
    worst = 0.0
    for rank in range(0, world_size, max(1, world_size // 16)):
        positions, _ = share(rank, world_size, num_samples)
        deviation, counts = chi_squared(order(positions), num_samples)
        worst = max(worst, abs(deviation))
    print(f"a rank's rows from each of {_BLOCKS} parts of the dataset, the last "
          f"rank seen: {counts.min()} to {counts.max()}; chi-squared within "
          f"{worst:.1f} standard deviations for 16 ranks")
    following = order_of(seed=1, epoch=1, num_samples=num_samples)
    positions, _ = share(0, world_size, num_samples)
    common = len(np.intersect1d(order(positions), following(positions)))
    expected = num_samples / world_size**2
    print(f"rows that rank 0 has again in the next epoch: {common}; by chance "
          f"{expected:.0f} +- {np.sqrt(expected):.0f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
