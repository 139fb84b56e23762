"""Ranks compare what must be equal on all of them."""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Tuple

from . import _ranks
from ._warnings import warn_once
from .errors import FailedPrecondition

# Advice in the error, by the value that differs.
_ADVICE = {
    "content_hash": "load the same samples on every node",
    "transforms_hash": "give all ranks the same transforms",
    "seed": "give all ranks the same seed",
}
# Ranks may differ in these: each cuts its own share into batches, and a
# sampler's order does not depend on the seed.
_OWN = ("batch_size",)
_OWN_WITH_SAMPLER = (*_OWN, "seed", "subset")


class _Store(NamedTuple):
    """Texts that all ranks see. Nothing waits for another rank."""

    # Sets a key that is not set, and returns its value.
    put: Callable[[str, str], str]
    # Returns the value; empty if it is not set.
    get: Callable[[str], str]


class Agreement:
    """One loader's comparison with the same loader of other ranks.

    These are the loaders of the same dataset name and the same `name`, in the
    order of their first iter(). Each is compared with the first one that came,
    so that no rank waits for another, or needs another to come. Whoever
    differs raises, and leaves word for the others.
    """

    def __init__(self, dataset: str, name: str) -> None:
        self._loader = dataset, name
        self._store: Optional[_Store] = None
        self._key = ""
        self._is_compared = self._is_done = False

    def check(self, ranks: _ranks.Ranks, identity: Mapping[str, Any]) -> None:
        """Called by each iter(): the first compares, the second looks whether
        a rank that came later differs, further ones do nothing. Raises
        FailedPrecondition, which names the ranks and what differs."""
        if self._is_done:
            return
        try:
            if not self._is_compared:
                self._compare(ranks, identity)
                self._is_compared = True
                return
            if self._store is not None:
                message = self._store.get(self._key + "-differs")
                if message:
                    raise FailedPrecondition(message)
        except FailedPrecondition:
            raise
        except RuntimeError as error:  # of the store
            warn_once("store", f"the ranks are not compared: {error}")
        self._is_done = True

    def _compare(
        self, ranks: _ranks.Ranks, identity: Mapping[str, Any]
    ) -> None:
        if self._store is None:
            self._store = _store_of(ranks)
            if self._store is None:
                return
            number = next(_numbers.setdefault(self._loader, itertools.count()))
            name = json.dumps([*self._loader, number]).encode()
            self._key = f"datasetd/{hashlib.sha256(name).hexdigest()}"
        own = _OWN_WITH_SAMPLER if identity["sampler"] == "given" else _OWN
        ours = {key: identity[key] for key in identity if key not in own}
        text = json.dumps({"rank": ranks.rank, "identity": ours})
        first = json.loads(self._store.put(self._key, text))
        theirs = first["identity"]
        different = [
            key
            for key in dict.fromkeys((*ours, *theirs))
            if ours.get(key) != theirs.get(key)
        ]
        if different:
            message = _message(
                self._loader[0], ranks, ours, first["rank"], theirs, different
            )
            self._store.put(self._key + "-differs", message)
            raise FailedPrecondition(message)


def _message(
    dataset: str,
    ranks: _ranks.Ranks,
    ours: Mapping[str, Any],
    rank: int,
    theirs: Mapping[str, Any],
    different: Any,
) -> str:
    (low, one), (high, other) = sorted(
        ((rank, theirs), (ranks.rank, ours)), key=lambda pair: pair[0]
    )
    values = "; ".join(
        f"{key} is {one.get(key)!r} on rank {low} and {other.get(key)!r} on "
        f"rank {high}"
        for key in different
    )
    advice = ", ".join(
        _ADVICE.get(key, f"give all ranks the same {key}") for key in different
    )
    return (
        f"ranks {low} and {high} of {ranks.world_size} do not agree on dataset "
        f"'{dataset}': {values}. Their shares are not of one order: {advice}"
    )


# How many loaders have been compared, by dataset and name.
_numbers: Dict[Tuple[str, str], "itertools.count[int]"] = {}


def _store_of(ranks: _ranks.Ranks) -> Optional[_Store]:
    """Returns the store of the job whose ranks the loader has; None if it has
    others, or is alone."""
    if ranks.world_size == 1:
        return None
    if ranks == _ranks.of_torch():
        return _store_of_torch()
    if ranks == _ranks.of_jax():
        return _store_of_jax()
    return None


def _store_of_torch() -> Optional[_Store]:
    c10d = sys.modules["torch"].distributed.distributed_c10d
    try:
        store = c10d._get_default_store()
    except AttributeError:
        store = None
    if store is None:
        warn_once(
            "store",
            "the ranks are not compared: torch.distributed has no store with "
            f"backend {c10d.get_backend()!r}",
        )
        return None

    def put(key: str, value: str) -> str:
        return bytes(store.compare_set(key, "", value)).decode()

    return _Store(put, lambda key: put(key, ""))


def _store_of_jax() -> _Store:
    client = sys.modules["jax._src.distributed"].global_state.client

    def get(key: str) -> str:
        # The only look-up of all versions that does not wait.
        found = dict(client.key_value_dir_get(key.rpartition("/")[0] + "/"))
        return str(found.get(key, ""))

    def put(key: str, value: str) -> str:
        try:
            client.key_value_set(key, value)
        except RuntimeError:
            standing = get(key)
            if not standing:
                raise
            return standing
        return value

    return _Store(put, get)
