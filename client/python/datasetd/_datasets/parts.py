"""Parts of a dataset that is divided over nodes: who holds what."""

from __future__ import annotations

import hashlib
import re
from typing import List, NamedTuple, Optional, Tuple

from .._arguments import checked_int
from .._ranks import nodes
from ..errors import InvalidArgument
from ..sources import _shards

# The formats whose path may be a pattern of shards.
SHARDED = ("tfrecord", "webdataset")
# Pieces of each part, where another part each epoch is made of rows.
_PIECES = 64
_SUFFIX = re.compile(r"\.(\d+)of(\d+)(\.e\d+(s\d+)?)?$")


class Part(NamedTuple):
    """One node's part; without `epoch` the division is for all epochs."""

    number: int  # from 0
    num_parts: int
    epoch: Optional[int]
    seed: int

    def name(self, whole: str) -> str:
        """Returns the name of this part of the dataset `whole`."""
        name = f"{whole}.{self.number}of{self.num_parts}"
        if self.epoch is not None:
            name += f".e{self.epoch}" + (f"s{self.seed}" if self.seed else "")
        return name

    def deal(self, num_items: int) -> List[int]:
        """Returns the part's items, ascending: every count-th, in the order of
        the items or, with an epoch, in one drawn from (seed, epoch)."""
        items = range(num_items)
        if self.epoch is None:
            return list(items[self.number :: self.num_parts])

        def drawn(item: int) -> bytes:
            text = f"{self.seed}/{self.epoch}/{item}"
            return hashlib.sha256(text.encode()).digest()

        return sorted(sorted(items, key=drawn)[self.number :: self.num_parts])

    def ranges(self, num_rows: int) -> List[Tuple[int, int]]:
        """Returns the part's rows, as (begin, end): one range or, with an
        epoch, pieces of which all parts have equally many."""
        if num_rows < self.num_parts:
            raise InvalidArgument(
                f"part: {num_rows} samples cannot be divided over "
                f"{self.num_parts} nodes"
            )
        num_pieces = self.num_parts
        pieces = [self.number]
        if self.epoch is not None:
            num_pieces *= min(_PIECES, num_rows // self.num_parts)
            pieces = self.deal(num_pieces)
        return [
            (i * num_rows // num_pieces, (i + 1) * num_rows // num_pieces)
            for i in pieces
        ]

    def option(self) -> str:
        """Returns the option `part` of the daemon's readers."""
        if self.epoch is None:
            return f"{self.number}/{self.num_parts}"
        num_pieces = _PIECES * self.num_parts
        return f"{','.join(map(str, self.deal(num_pieces)))}/{num_pieces}"

    def shards(self, path: str) -> str:
        """Returns the pattern of the part's shards."""
        files = _shards.expand(path)
        if len(files) < self.num_parts:
            raise InvalidArgument(
                f"part: {path!r} names {len(files)} shards, which cannot be "
                f"divided over {self.num_parts} nodes: each needs one at least"
            )
        return _shards.pattern_of([files[i] for i in self.deal(len(files))])


def has_shards(format: str, path: object) -> bool:
    return format in SHARDED and "{" in str(path)


def resolve(
    part: Optional[nodes.Given] = None,
    part_epoch: Optional[int] = None,
    part_seed: int = 0,
) -> Optional[Part]:
    """Returns the part that these arguments mean; None: the whole."""
    if part is None:
        if part_epoch is not None or part_seed:
            raise InvalidArgument(
                "part_epoch and part_seed need part=, such as part='node'"
            )
        return None
    if part_epoch is not None:
        part_epoch = checked_int("part_epoch", part_epoch, 0, 2**63 - 1)
    elif part_seed:
        raise InvalidArgument(
            "part_seed needs part_epoch=: without it the division is the same "
            "for all epochs and seeds"
        )
    node = nodes.resolve("part", part)
    part_seed = checked_int("part_seed", part_seed, 0, 2**64 - 1)
    return Part(*node, part_epoch, part_seed)


def whole_name(name: str) -> str:
    """Returns the name of what `name` is a part of; else `name`."""
    return _SUFFIX.sub("", name)


def check_node(name: str, node: nodes.Node) -> None:
    """Raises InvalidArgument if `name` is that of another node's part."""
    match = _SUFFIX.search(name)
    if match is None:
        return
    part = nodes.Node(int(match[1]), int(match[2]))
    if part != node:
        raise InvalidArgument(
            f"partition: dataset {name!r} is the part of node {part.number} of "
            f"{part.num_nodes}, and this is node {node.number} of "
            f"{node.num_nodes}: load the part of this node"
        )
