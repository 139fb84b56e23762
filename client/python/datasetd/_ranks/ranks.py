"""Ranks: this process's share of an epoch."""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple, Optional, Union

from .._arguments import checked_int
from .._warnings import warn_once
from ..errors import InvalidArgument

# An int, or "auto"; None: "auto", which the user did not say.
Number = Union[None, int, str]

# Each launcher, and the variables in which it gives a process its rank and the
# number of ranks.
_LAUNCHERS = (
    ("torchrun", "RANK", "WORLD_SIZE"),
    ("Slurm", "SLURM_PROCID", "SLURM_NTASKS"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
)


class Ranks(NamedTuple):
    rank: int
    world_size: int


ALONE = Ranks(0, 1)


def of_torch() -> Optional[Ranks]:
    """Returns the ranks of torch.distributed; None unless torch is imported
    and it is initialised."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if (
        distributed is None
        or not distributed.is_available()
        or not distributed.is_initialized()
    ):
        return None
    return Ranks(distributed.get_rank(), distributed.get_world_size())


def resolve(rank: Number, world_size: Number) -> Ranks:
    """Replaces "auto" and None by torch.distributed's number, or by rank 0 of
    1."""
    rank = "auto" if rank is None else rank
    world_size = "auto" if world_size is None else world_size
    for name, value in (("rank", rank), ("world_size", world_size)):
        if isinstance(value, str) and value != "auto":
            raise InvalidArgument(
                f"{name}={value!r}; expected an int, or 'auto'"
            )
    found = of_torch()
    if isinstance(world_size, str):
        size = 1 if found is None else found.world_size
    else:
        size = checked_int("world_size", world_size, 1, 2**32 - 1)
    if isinstance(rank, str):
        if size == 1:
            return ALONE
        if found is None or found.world_size != size:
            raise InvalidArgument(
                f"world_size={size} needs rank=, too: "
                + (
                    "torch.distributed is not initialised"
                    if found is None
                    else f"torch.distributed has {found.world_size} processes"
                )
                + ", so that it does not tell which rank this process is"
            )
        return Ranks(found.rank, size)
    if isinstance(world_size, str) and found is None and rank != 0:
        raise InvalidArgument(
            f"rank={rank!r} needs world_size=, too: torch.distributed is not "
            "initialised, so that it does not tell how many ranks there are"
        )
    return Ranks(checked_int("rank", rank, 0, size - 1), size)


def of_jax() -> Optional[Ranks]:
    """Returns the ranks of jax.distributed; None unless it is initialised."""
    state = getattr(
        sys.modules.get("jax._src.distributed"), "global_state", None
    )
    if getattr(state, "client", None) is None:
        return None
    return Ranks(
        int(getattr(state, "process_id", 0) or 0),
        int(getattr(state, "num_processes", 1) or 1),
    )


def _of_environment(rank: str, world_size: str) -> Optional[Ranks]:
    try:
        return Ranks(int(os.environ[rank]), int(os.environ[world_size]))
    except (KeyError, ValueError):
        return None


def warn_if_launched() -> None:
    """Warns, once per process, if a launcher says that there are more ranks.

    For a loader that has world_size 1 because torch.distributed is not
    initialised.
    """
    found: Any = of_jax()
    launcher, names = "jax.distributed", ""
    for name, *variables in _LAUNCHERS:
        if found is None:
            found = _of_environment(*variables)
            launcher, names = name, f" (${', $'.join(variables)})"
    if found is None or found.world_size <= 1:
        return
    warn_once(
        "launched",
        f"{launcher} runs {found.world_size} processes{names}, and "
        "torch.distributed is not initialised: this loader has world_size=1, "
        f"so that every process gets all samples. Pass rank={found.rank}, "
        f"world_size={found.world_size} for this process's share, or "
        "world_size=1 if each is to have all",
    )


def warn_if_changed(ranks: Ranks) -> None:
    """Warns, once per process, if torch.distributed has come to say something
    else."""
    found = of_torch()
    if found is not None and found != ranks:
        warn_once(
            "changed",
            f"torch.distributed now says rank {found.rank} of "
            f"{found.world_size}, but a loader keeps the ranks of its first "
            f"batch, {ranks.rank} of {ranks.world_size}: make it after "
            "init_process_group(), or pass rank=, world_size=",
        )
