"""Nodes: which node of a job this process runs on."""

from __future__ import annotations

import os
from typing import NamedTuple, Optional, Tuple, Union

from .._arguments import checked_int
from ..errors import InvalidArgument


class Node(NamedTuple):
    number: int  # from 0
    num_nodes: int


# "node", or the node's index and the number of nodes.
Given = Union[str, Tuple[int, int]]

# Each launcher, and the variables in which it gives a process the index of its
# node and the number of nodes. The first that is set counts.
_LAUNCHERS = (
    ("torchrun", "GROUP_RANK", ("GROUP_WORLD_SIZE",)),
    ("Slurm", "SLURM_NODEID", ("SLURM_STEP_NUM_NODES", "SLURM_NNODES")),
)
# These suffice if ranks are numbered node by node, as many on each.
_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")


def resolve(name: str, given: Given) -> Node:
    """Returns the node that the argument `name` means.

    "node" is the launcher's: torchrun's, Slurm's, or that of any which sets
    $RANK, $WORLD_SIZE and $LOCAL_WORLD_SIZE. Raises InvalidArgument if there
    is none.
    """
    if isinstance(given, str) and given == "node":
        found = _of_environment(name)
        if found is None:
            raise InvalidArgument(
                f"{name}='node': no launcher says which node this is (there "
                "is no $GROUP_RANK, $SLURM_NODEID or $LOCAL_WORLD_SIZE): pass "
                f"{name}=(index, count), which is (0, 1) for a single node"
            )
        return found
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise InvalidArgument(
            f"{name}={given!r}; expected 'node', or the node's index and the "
            "number of nodes, as (0, 4)"
        )
    count = checked_int(f"{name}[1]", given[1], 1, 2**32 - 1)
    return Node(checked_int(f"{name}[0]", given[0], 0, count - 1), count)


def _of_environment(name: str) -> Optional[Node]:
    for launcher, index, counts in _LAUNCHERS:
        count = next((v for v in counts if v in os.environ), None)
        if index in os.environ and count is not None:
            return _checked(
                name, launcher, Node(_number(name, index), _number(name, count))
            )
    if not all(variable in os.environ for variable in _RANKS):
        return None
    rank, size, local_size = (_number(name, v) for v in _RANKS)
    if local_size < 1 or size % local_size:
        raise InvalidArgument(
            f"{name}='node': ${_RANKS[1]} is {size} and ${_RANKS[2]} is "
            f"{local_size}, so that nodes have different numbers of ranks and "
            f"${_RANKS[0]} does not tell the node: pass {name}=(index, count)"
        )
    return _checked(
        name, "the launcher", Node(rank // local_size, size // local_size)
    )


def _number(name: str, variable: str) -> int:
    try:
        return int(os.environ[variable])
    except ValueError:
        raise InvalidArgument(
            f"{name}='node': ${variable} is {os.environ[variable]!r}; "
            f"expected an int, or pass {name}=(index, count)"
        ) from None


def _checked(name: str, launcher: str, node: Node) -> Node:
    if not 0 <= node.number < node.num_nodes:
        raise InvalidArgument(
            f"{name}='node': {launcher} says node {node.number} of "
            f"{node.num_nodes}: pass {name}=(index, count)"
        )
    return node
