"""Checks of the states from which loaders resume."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Tuple

from .._arguments import checked_int
from ..errors import FailedPrecondition, InvalidArgument

VERSION = 1
# Hashes of arguments that not every loader has.
_OPTIONAL = (
    "subset",
    "weights",
    "next_weights",
    "partition",
    "classes",
    "group_size",
    "windows",
    "noise",
)
# These depend on which node holds which samples.
_OF_PARTS = ("content_hash", "subset", "weights", "partition")
# The arguments by which ranks divide the global order into batches.
_SHARE = ("batch_size", "world_size")
# A sampler's part of the state; None where it is not known.
ORDER_KEYS = ("row", "order_hash", "sampler_state")


def check_state(state: Any) -> None:
    if not isinstance(state, Mapping):
        raise InvalidArgument(
            f"state_dict: {type(state).__name__}; expected what state_dict() "
            "returned"
        )


def checked_position(
    state: Mapping[str, Any],
    identity: Mapping[str, Any],
    num_samples: Optional[int],
) -> Tuple[int, int, int]:
    """Returns the epoch and batch where a loader continues, and the position of
    the global order at which that epoch begins; FailedPrecondition unless
    `state` fits `identity`.

    batch_size and world_size may differ: all ranks together have taken the
    order up to one place, and the rest of the epoch begins there. With a
    sampler they may differ at the beginning of an epoch only. `num_samples` is
    of all ranks; None if a sampler decides.
    """
    needed = {"version", "epoch", "batch", *identity} - set(_OPTIONAL)
    missing = sorted(needed - set(state))
    if missing:
        raise InvalidArgument(f"state_dict: {missing} is missing")
    if state["version"] != VERSION:
        raise FailedPrecondition(
            f"state_dict: version is {state['version']!r}, this package "
            f"reads {VERSION}"
        )
    epoch = checked_int("state_dict: epoch", state["epoch"], 0, 2**63 - 1)
    index = checked_int("state_dict: batch", state["batch"], 0, 2**63 - 1)
    has_other_parts = _has_other_parts(state, identity, epoch, index)
    for key in dict.fromkeys(("partition", *identity, *_OPTIONAL)):
        if has_other_parts and key in _OF_PARTS:
            continue
        if key in _SHARE and (index == 0 or num_samples is not None):
            continue
        # A whole epoch may have other windows.
        is_whole = index == 0 and not state.get("first_position")
        if is_whole and key == "windows" and key in state and key in identity:
            continue
        theirs, ours = state.get(key), identity.get(key)
        if _differ(key, theirs, ours):
            if _is_of_another_hash(theirs, ours):
                raise FailedPrecondition(
                    f"state_dict: {key} is {theirs}, a hash of an earlier "
                    "version, which cannot be compared with this loader's "
                    f"({ours}). If you know that they are of the same, set "
                    f"state[{key!r}] to this loader's"
                )
            raise FailedPrecondition(
                f"state_dict: {key} is {theirs!r}, this loader has {ours!r}"
                + (f" (at batch {index} of epoch {epoch})" if index else "")
                + _advice(key, state, epoch, index)
            )
    if num_samples is None:
        return epoch, index, 0
    first = checked_int(
        "state_dict: first_position",
        state.get("first_position", 0),
        0,
        num_samples - 1,
    )
    batch_size, world_size = (
        checked_int(f"state_dict: {key}", state[key], 1, 2**32 - 1)
        for key in _SHARE
    )
    num_batches = batches_per_epoch(
        num_samples - first, batch_size, world_size, identity["drop_last"]
    )
    if 0 < index >= num_batches:
        raise InvalidArgument(
            f"state_dict: batch is {index}, an epoch has {num_batches}"
        )
    if all(state[key] == identity[key] for key in _SHARE):
        return epoch, index, first
    return epoch, 0, first + index * batch_size * world_size


def _differ(key: str, theirs: Any, ours: Any) -> bool:
    """Whether they identify other samples; names of noise do not."""
    if key == "noise" and isinstance(theirs, Mapping) and ours is not None:
        return list(theirs.values()) != list(ours.values())
    return bool(theirs != ours)


def _advice(
    key: str, state: Mapping[str, Any], epoch: int, index: int
) -> str:
    """Returns the difference in words, and what to do."""
    what = {
        "content_hash": "the dataset has other samples than",
        "transforms_hash": "the loader has other transforms than",
        "subset": "the loader has another subset than",
        "weights": "the loader has other weights than",
        "next_weights": "for the next epoch the loader has other weights than",
        "classes": "the loader has other classes of samples than",
        "group_size": "the loader has other groups than",
        "windows": "the loader has other windows than",
        "noise": "the loader adds noise of other datasets than",
        "seed": "the loader has another seed than",
    }.get(key)
    if what is None:
        return ""
    text = f": {what} when the state was saved. "
    if key == "seed":
        return text + "Omit seed=, and the loader takes the state's"
    if key.endswith("weights"):
        text += (
            "To continue exactly, pass the weights of the state's epoch as "
            "weights=, and if its next_weights are others, those to "
            "set_weights() before load_state_dict(). "
        )
    again = f"set_epoch({epoch})"
    if index:
        again += f" (that epoch again) or set_epoch({epoch + 1})"
    return (
        f"{text}To continue with the present ones, call {again} instead of "
        f"load_state_dict(); seed={state.get('seed')!r} keeps the order"
    )


def _has_other_parts(
    state: Mapping[str, Any],
    identity: Mapping[str, Any],
    epoch: int,
    index: int,
) -> bool:
    """True if the samples are divided over nodes anew, at the first batch of
    an epoch; FailedPrecondition at another batch."""
    theirs, ours = state.get("partition"), identity.get("partition")
    if not isinstance(theirs, Mapping) or not isinstance(ours, Mapping):
        return False
    if all(state.get(key) == identity.get(key) for key in _OF_PARTS):
        return False
    if theirs.get("num_samples") != ours["num_samples"]:
        raise FailedPrecondition(
            f"state_dict: the nodes held {theirs.get('num_samples')} samples "
            f"altogether, and hold {ours['num_samples']} now: load the parts "
            "of the same dataset"
        )
    if index == 0:
        return True
    raise FailedPrecondition(
        f"state_dict: taken at batch {index} of epoch {epoch} with "
        f"{_nodes_text(theirs)}, and there are {_nodes_text(ours)} now, or "
        "nodes hold other samples: it is not known which samples of the epoch "
        "are left on which node. Go on with the same nodes and parts, or with "
        f"the next epoch: load_state_dict(dict(state, epoch={epoch + 1}, "
        "batch=0))"
    )


def _nodes_text(partition: Mapping[str, Any]) -> str:
    ranks = partition.get("ranks_of_nodes") or []
    return f"{len(ranks)} node(s) of {', '.join(map(str, ranks[:8]))} rank(s)"


def batches_per_epoch(
    num_samples: int,
    batch_size: int,
    world_size: int,
    drop_last: bool,
    rank: int = 0,
) -> int:
    """Returns the batches of each rank for `num_samples` of the order, or where
    shares are not padded, those of `rank`; rank 0 has as many as any."""
    if drop_last:
        return num_samples // world_size // batch_size
    num_rows = -(-max(0, num_samples - rank) // world_size)
    return -(-num_rows // batch_size)


def _is_of_another_hash(old: Any, new: Any) -> bool:
    """True if a hash is a 128-bit XXH3 where BLAKE3 is expected."""
    return (
        isinstance(old, str)
        and isinstance(new, str)
        and (len(old), len(new)) == (32, 64)
    )


def checked_order_state(
    state: Mapping[str, Any], index: int
) -> Dict[str, Any]:
    """Returns the sampler's part of `state`, at batch `index`."""
    result = {"sampler_state": state.get("sampler_state")}
    if index == 0:
        return result
    for key in ("row", "order_hash"):
        if state.get(key) is None:
            raise InvalidArgument(f"state_dict: [{key!r}] is missing")
    result["row"] = checked_int(
        "state_dict: row", state["row"], index, 2**32 - 1
    )
    try:
        bytes.fromhex(state["order_hash"])
    except (TypeError, ValueError):
        raise InvalidArgument(
            f"state_dict: order_hash={state['order_hash']!r}; expected hex"
        ) from None
    result["order_hash"] = state["order_hash"]
    return result
