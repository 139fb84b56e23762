"""partition=: a rank's rows where each node holds a part of the samples."""

from __future__ import annotations

import hashlib
import itertools
import json
from typing import Any, Dict, List, NamedTuple

from .._ranks.agreement import Agreement
from .._ranks.nodes import Node
from .._ranks.ranks import Ranks
from .._warnings import warn_once
from ..errors import FailedPrecondition

# Must be equal on all ranks of a node.
_OF_NODE = {
    "content_hash": "load the same part on all ranks of a node",
    "subset": "give all ranks of a node the same subset",
    "weights": "give all ranks of a node the same weights",
}


def seed_of(seed: int, node: int) -> int:
    """Returns the seed of a node: its order, and what random ops draw. Node 0
    has the loader's."""
    if node == 0:
        return seed
    digest = hashlib.sha256(f"{seed}/{node}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


class Partition(NamedTuple):
    """How many rows this rank has in every epoch.

    The ranks of a node divide the order of the node's samples: rank r of w of
    the node takes positions r, r + w, ... Every rank of the job has as many
    rows. With `drop_last` these are as many as the rank with the fewest has,
    and the rest of the order is left out; else as many as the rank with the
    most has, and positions wrap around.
    """

    ranks: Ranks  # within the node
    num_rows: int
    total: int  # samples of all nodes
    num_ranks: List[int]  # by node
    hashes: Dict[str, str]

    def identity(self) -> Dict[str, Any]:
        """Returns what a state has of the partition, equal on all ranks."""
        return {
            **self.hashes,
            "partition": {
                "num_samples": self.total,
                "ranks_of_nodes": self.num_ranks,
            },
        }

    def num_padding(self) -> int:
        """Returns how many samples an epoch repeats, over all ranks. REQUIRES:
        no drop_last."""
        return self.num_rows * sum(self.num_ranks) - self.total


def agree(
    agreement: Agreement,
    ranks: Ranks,
    node: Node,
    num_samples: int,
    drop_last: bool,
    hashes: Dict[str, Any],
) -> Partition:
    """Returns the rows of this rank, once the nodes have told what they hold:
    waits for all ranks of the job.

    `num_samples` and `hashes` are of this node's samples. Raises
    FailedPrecondition, on all ranks, if they cannot share one epoch;
    DeadlineExceeded if a rank does not come.
    """
    record = {
        "node": list(node),
        "num_samples": num_samples,
        "drop_last": drop_last,
        **hashes,
    }
    if ranks.world_size == 1:
        if node.num_nodes > 1:
            raise FailedPrecondition(
                f"partition: this is {text_of(node)}, and the loader has "
                "world_size=1: call init_process_group() of "
                "torch.distributed first, or pass rank= and world_size= "
                "of the whole job, as jax.distributed has them"
            )
        answer = _answer([record])
    else:
        answer = agreement.gather(ranks, record, _answer)
    if ranks.rank == 0 and answer["are_equal"]:
        warn_once(
            "parts",
            f"partition: all {node.num_nodes} nodes hold the same "
            "samples, so that each sample comes once an epoch on every "
            "node: load or push them with part='node', or leave "
            "partition= out",
        )
    nodes = answer["nodes"]
    ours = nodes[node.number]["ranks"]
    num_ranks = [len(one["ranks"]) for one in nodes]
    sizes = [one["num_samples"] for one in nodes]
    return Partition(
        Ranks(ours.index(ranks.rank), len(ours)),
        min(n // w for n, w in zip(sizes, num_ranks))
        if drop_last
        else max(-(-n // w) for n, w in zip(sizes, num_ranks)),
        sum(sizes),
        num_ranks,
        answer["hashes"],
    )


def text_of(node: Node) -> str:
    return f"node {node.number} of {node.num_nodes}"


# -- What rank 0 makes of the ranks' records ---------------------------------


def _answer(records: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Returns the nodes, or the "error". `records` are by rank."""
    error = _error_of(records)
    if error:
        return {"error": error}
    nodes: List[Dict[str, Any]] = [
        {"ranks": []} for _ in range(records[0]["node"][1])
    ]
    for rank, record in enumerate(records):
        node = nodes[record["node"][0]]
        node["ranks"].append(rank)
        node["record"] = record
    hashes = {}
    for key in _OF_NODE:
        values = [node["record"].get(key) for node in nodes]
        if any(value is not None for value in values):
            text = json.dumps(values).encode()
            hashes[key] = hashlib.sha256(text).hexdigest()
    held = {
        (node["record"]["content_hash"], node["record"].get("subset"))
        for node in nodes
    }
    return {
        "are_equal": len(held) == 1 < len(nodes),
        "nodes": [
            {
                "ranks": node["ranks"],
                "num_samples": node["record"]["num_samples"],
            }
            for node in nodes
        ],
        "hashes": hashes,
    }


def _error_of(records: List[Dict[str, Any]]) -> str:
    """Returns why the ranks cannot share an epoch; empty if they can."""
    first: Dict[int, int] = {}
    size = len(records)
    for rank, record in enumerate(records):
        if "error" in record:
            return str(record["error"])
        index, count = record["node"]
        begin = records[0]
        if count != begin["node"][1]:
            return (
                f"partition: rank 0 of {size} says that there are "
                f"{begin['node'][1]} nodes, and rank {rank} that there are "
                f"{count}: start all ranks by one launcher, or pass all the "
                "same number"
            )
        if record["drop_last"] != begin["drop_last"]:
            return (
                f"partition: drop_last is {begin['drop_last']} on rank 0 and "
                f"{record['drop_last']} on rank {rank}: give all ranks the "
                "same drop_last"
            )
        other = first.setdefault(index, rank)
        for key, advice in _OF_NODE.items():
            if record.get(key) != records[other].get(key):
                return (
                    f"partition: ranks {other} and {rank} are of node {index} "
                    f"of {count}, and {key} is {records[other].get(key)!r} on "
                    f"rank {other} and {record.get(key)!r} on rank {rank}: "
                    f"{advice}"
                )
    num_nodes = records[0]["node"][1]
    if len(first) < num_nodes:
        missing = (node for node in range(num_nodes) if node not in first)
        names = ", ".join(map(str, itertools.islice(missing, 8)))
        return (
            f"partition: none of the {size} ranks is of node {names} of "
            f"{num_nodes}, so that the samples of its part would be left "
            "out: start ranks on all nodes, or load parts for fewer nodes"
        )
    return ""
