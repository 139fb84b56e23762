"""Ranks compare what must be equal on all of them."""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from typing import (
    Any,
    Callable,
    Dict,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
)

from .._warnings import warn_once
from ..errors import DeadlineExceeded, Error, FailedPrecondition
from . import mpi as _mpi
from . import ranks as _ranks

# Advice in the error, by the value that differs.
_ADVICE = {
    "content_hash": "load the same samples on every node, or give "
    "partition='node' if each node holds a part",
    "transforms_hash": "give all ranks the same transforms",
    "seed": "give all ranks the same seed",
    "partition": "give all ranks the same partition=",
    "weights": "give all ranks the same weights (weights=, set_weights)",
}
# Ranks may differ in these: each cuts its own share into batches, and a
# sampler's order does not depend on the seed.
_OWN = ("batch_size",)
_OWN_WITH_SAMPLER = (*_OWN, "seed", "subset")
# What each epoch of a weighted loader compares.
_OF_EPOCH = ("sampler", "weights")
# jax.distributed's own time limit for processes to come.
_JAX_WAIT_MS = 300_000
# How long the ranks of MPI wait for each other: to be compared, which goes on
# at the next epoch, and to be given their shares.
_MPI_COMPARE_SECONDS = 20.0
_MPI_GATHER_SECONDS = 300.0
# Ranks that are named where many have not come.
_MAX_NAMED = 8
# What a loader with a partition compares, before its ranks know their shares.
_PARTITIONED = {"partition": "node", "sampler": ""}

# What a rank says of itself, and what rank 0 makes of all ranks' records.
_Record = Dict[str, Any]
_Answer = Callable[[List[_Record]], _Record]
# A rank, and what it compares.
_Identity = Tuple[int, Mapping[str, Any]]


class _Store(NamedTuple):
    """Texts that all ranks see. Only wait() waits for another rank."""

    # Sets a key that is not set, and returns its value.
    put: Callable[[str, str], str]
    # Returns the value; empty if it is not set.
    get: Callable[[str], str]
    # Sets a key that somebody may wait for.
    tell: Callable[[str, str], Any]
    # Waits until tell() has set a key, and returns its value. RuntimeError
    # after the time limit of the store.
    wait: Callable[[str], str]


class Agreement:
    """One loader's comparison with the same loader of other ranks.

    These are the loaders of the same dataset name and the same `name`, in the
    order of their first batch. Each is compared with the first one that came,
    so that no rank waits for another, or needs another to come. Whoever
    differs raises, and leaves word for the others. Ranks of MPI alone have no
    such store, and wait for each other up to a time limit.
    """

    def __init__(self, dataset: str, name: str) -> None:
        """`dataset`: of a part, the name of the whole."""
        self._loader = dataset, name
        self._store: Optional[_Store] = None
        self._exchange: Optional[_mpi.Exchange] = None
        self._key = ""
        # The key of the identities; gather() chooses another one.
        self._identity_key = ""
        # The ranks for which gather() failed, and its error.
        self._failed: Optional[Tuple[_ranks.Ranks, Error]] = None
        self._is_compared = self._is_done = False

    def check(
        self,
        ranks: _ranks.Ranks,
        identity: Mapping[str, Any],
        epoch: str = "",
    ) -> None:
        """Called by each epoch: the first compares, the second looks whether
        a rank that came later differs, further ones do nothing. With `epoch`,
        which names the epoch, each of them looks, and compares the weights,
        which may have changed. Raises FailedPrecondition, which names the ranks
        and what differs."""
        if self._is_done and not epoch:
            return
        if _is_of_mpi(ranks):
            self._is_done = self._compare_by_mpi(ranks, identity, epoch)
            return
        try:
            if not self._is_compared:
                if self._found_store(ranks) is not None:
                    self._compare(ranks, identity, self._identity_key)
                self._is_compared = True
            else:
                if self._store is not None:
                    message = self._store.get(self._identity_key + "-differs")
                    if message:
                        raise FailedPrecondition(message)
                self._is_done = True
            if epoch and self._store is not None:
                weights = {key: identity[key] for key in _OF_EPOCH}
                self._compare(ranks, weights, self._epoch_key(epoch))
        except FailedPrecondition:
            raise
        except RuntimeError as error:  # of the store
            warn_once("store", f"the ranks are not compared: {error}")
            self._is_compared = self._is_done = True
            self._store = None

    def equal_rank(
        self, ranks: _ranks.Ranks, record: Mapping[str, str]
    ) -> Optional[int]:
        """Returns the rank that came first, if it has an equal value in its
        record; None: not, or it is not known. REQUIRES: check()."""
        if self._store is None:
            return None
        text = json.dumps({"rank": ranks.rank, "record": dict(record)})
        try:
            first = json.loads(
                self._store.put(self._identity_key + "-samples", text)
            )
        except RuntimeError:  # of the store
            return None
        is_equal = any(
            first["record"].get(key) == record[key] for key in record
        )
        if first["rank"] == ranks.rank or not is_equal:
            return None
        return int(first["rank"])

    def gather(
        self, ranks: _ranks.Ranks, record: _Record, answer: _Answer
    ) -> _Record:
        """Returns what rank 0's `answer` makes of the records of all ranks.

        Waits for all of them: three operations of the store for each rank,
        and one more for each on rank 0. Raises FailedPrecondition if there is
        no store, if a rank's loader has no partition, or if the answer has an
        "error"; DeadlineExceeded if a rank does not come within the store's
        time limit.
        """
        if self._failed is not None and self._failed[0] == ranks:
            raise self._failed[1]
        is_by_mpi = _is_of_mpi(ranks) and _mpi.can_exchange()
        if not is_by_mpi:
            self._store = None
            if self._found_store(ranks) is None:
                raise FailedPrecondition(
                    "partition: the nodes' sizes are compared through the "
                    "store of torch.distributed or jax.distributed, or by "
                    "MPI, and none of them has this loader's ranks "
                    f"({ranks.rank} of {ranks.world_size}): "
                    "call init_process_group() first, or leave partition= out "
                    "and give each loader its rank= and world_size= within "
                    "the node; ranks of different nodes are then not compared "
                    "and may have different numbers of batches"
                )
        gathered = self._gathered_by_mpi if is_by_mpi else self._gathered
        try:
            result = gathered(ranks, record, answer)
            if "error" in result:
                raise FailedPrecondition(result["error"])
            return result
        except Error as error:
            # Kept, since the other ranks do not come again.
            self._failed = ranks, error
        except RuntimeError as error:
            if is_by_mpi:
                raise
            self._failed = (
                ranks,
                FailedPrecondition(
                    f"partition: the ranks' store has failed: {error}"
                ),
            )
        raise self._failed[1]

    def _compare_by_mpi(
        self, ranks: _ranks.Ranks, identity: Mapping[str, Any], epoch: str
    ) -> bool:
        """Returns whether there is no more to do."""
        if self._exchange is None:
            if not _mpi.can_exchange():
                return True
            self._exchange = self._begun(
                identity=_shared(identity), epoch=epoch
            )
        texts = self._exchange.texts(_MPI_COMPARE_SECONDS)
        if texts is None:
            warn_once(
                "store",
                "not all ranks of MPI have come to the first batch of a "
                f"loader of '{self._loader[0]}' within "
                f"{_MPI_COMPARE_SECONDS:.0f} s: they are compared at the next "
                "epoch",
            )
            return False
        self._exchange = None
        found = [json.loads(text) for text in texts]
        message = _other_loaders(ranks, found)
        if message:
            warn_once("store", f"the ranks are not compared: {message}")
        else:
            self._expect_equal(found)
        return True

    def _gathered_by_mpi(
        self, ranks: _ranks.Ranks, record: _Record, answer: _Answer
    ) -> _Record:
        exchange = self._begun(identity=_PARTITIONED, record=record)
        texts = exchange.texts(_MPI_GATHER_SECONDS)
        if texts is None:
            raise DeadlineExceeded(
                f"partition: a rank has not come within "
                f"{_MPI_GATHER_SECONDS:.0f} s: every rank must make this "
                f"loader, of '{self._loader[0]}' or of parts of it, and use it"
            )
        found = [json.loads(text) for text in texts]
        message = _other_loaders(ranks, found)
        if message:
            raise FailedPrecondition(f"partition: {message}")
        self._expect_equal(found)
        return answer([rank["record"] for rank in found])

    def _begun(self, **text: Any) -> _mpi.Exchange:
        return _mpi.Exchange(json.dumps({"loader": self._loader, **text}))

    def _expect_equal(self, found: List[_Record]) -> None:
        """Raises FailedPrecondition, on all ranks, if one differs."""
        first, *others = (
            (rank, theirs["identity"]) for rank, theirs in enumerate(found)
        )
        for other in others:
            message = _disagreement(self._loader[0], len(found), first, other)
            if message:
                raise FailedPrecondition(message)

    def _gathered(
        self, ranks: _ranks.Ranks, record: _Record, answer: _Answer
    ) -> _Record:
        store = self._store
        assert store is not None
        self._compare(ranks, _PARTITIONED, self._identity_key)
        self._identity_key = self._key + "-order"
        store.tell(self._record_key(ranks.rank), json.dumps(record))
        if ranks.rank == 0:
            text = json.dumps(answer(self._records(store, ranks)))
            store.tell(self._answer_key(), text)
        else:
            text = self._answered(store)
        result: _Record = json.loads(text)
        return result

    def _records(self, store: _Store, ranks: _ranks.Ranks) -> List[_Record]:
        records: List[_Record] = []
        for rank in range(ranks.world_size):
            try:
                text = store.wait(self._record_key(rank))
            except RuntimeError as error:
                late = [
                    other
                    for other in range(rank, ranks.world_size)
                    if not store.get(self._record_key(other))
                ]
                if not late:
                    raise
                message = self._late(late, error)
                text = json.dumps({"error": message})
                store.tell(self._answer_key(), text)
                raise DeadlineExceeded(message) from None
            records.append(json.loads(text))
        return records

    def _answered(self, store: _Store) -> str:
        """Returns rank 0's answer."""
        key = self._answer_key()
        try:
            return store.wait(key)
        except RuntimeError as error:
            if not store.get(self._record_key(0)):
                raise DeadlineExceeded(self._late([0], error)) from None
        # Rank 0 is there, and says within the limit whom it waits for.
        return store.wait(key)

    # In a directory of their own, for stores that read whole directories.

    def _record_key(self, rank: int) -> str:
        return f"{self._answer_key()}-{rank}"

    def _epoch_key(self, epoch: str) -> str:
        return (
            self._key.replace("datasetd/", "datasetd-epochs/", 1)
            + f"/{epoch}/weights"
        )

    def _answer_key(self) -> str:
        return self._key.replace("datasetd/", "datasetd-parts/", 1) + "/answer"

    def _late(self, ranks: List[int], error: RuntimeError) -> str:
        names = ", ".join(map(str, ranks[:_MAX_NAMED]))
        return (
            f"partition: {len(ranks)} rank(s) have not come ({names}): every "
            "rank must make this loader, of a dataset of the same name "
            f"('{self._loader[0]}') or of parts of it, and use it. {error}"
        )

    def _found_store(self, ranks: _ranks.Ranks) -> Optional[_Store]:
        if self._store is None:
            self._store = _store_of(ranks)
            if self._store is not None:
                count = _numbers.setdefault(self._loader, itertools.count())
                name = json.dumps([*self._loader, next(count)]).encode()
                self._key = f"datasetd/{hashlib.sha256(name).hexdigest()}"
                self._identity_key = self._key
        return self._store

    def _compare(
        self, ranks: _ranks.Ranks, identity: Mapping[str, Any], key: str
    ) -> None:
        """Compares with the rank that came first to `key`."""
        store = self._store
        assert store is not None
        ours = ranks.rank, _shared(identity)
        rank, theirs = json.loads(store.put(key, json.dumps(ours)))
        low, high = ours, (rank, theirs)
        if rank < ranks.rank:
            low, high = high, low
        message = _disagreement(self._loader[0], ranks.world_size, low, high)
        if message:
            store.put(self._identity_key + "-differs", message)
            if _is_partitioned(ours[1]) != _is_partitioned(theirs):
                # For ranks that wait in gather().
                error = json.dumps({"error": message})
                store.tell(self._record_key(ranks.rank), error)
                store.tell(self._answer_key(), error)
            raise FailedPrecondition(message)


def _shared(identity: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns what must be equal on all ranks."""
    own = _OWN_WITH_SAMPLER if identity["sampler"] == "given" else _OWN
    return {key: identity[key] for key in identity if key not in own}


def _is_partitioned(identity: Mapping[str, Any]) -> bool:
    return identity.get("partition") is not None


def _disagreement(
    dataset: str, world_size: int, one: _Identity, other: _Identity
) -> str:
    """Returns what differs between two ranks, the lower one first; empty if
    nothing does."""
    (low, ours), (high, theirs) = one, other
    different = [
        key
        for key in dict.fromkeys((*ours, *theirs))
        if ours.get(key) != theirs.get(key)
    ]
    if not different:
        return ""
    if _is_partitioned(ours) != _is_partitioned(theirs):
        different = ["partition"]
    values = "; ".join(
        f"{key} is {ours.get(key)!r} on rank {low} and {theirs.get(key)!r} on "
        f"rank {high}"
        for key in different
    )
    advice = ", ".join(
        _ADVICE.get(key, f"give all ranks the same {key}") for key in different
    )
    return (
        f"ranks {low} and {high} of {world_size} do not agree on dataset "
        f"'{dataset}': {values}. Their shares are not of one order: {advice}"
    )


def _other_loaders(ranks: _ranks.Ranks, found: List[_Record]) -> str:
    """Returns what is wrong if ranks of MPI compare different loaders."""
    ours = found[ranks.rank]["loader"]
    for rank, theirs in enumerate(found):
        if theirs["loader"] != ours:
            return (
                f"rank {ranks.rank} begins with dataset '{ours[0]}' and rank "
                f"{rank} with '{theirs['loader'][0]}': MPI compares loaders in "
                "the order in which they begin, which is to be the same on all "
                "ranks"
            )
    return ""


def _is_of_mpi(ranks: _ranks.Ranks) -> bool:
    """True if the loader has the ranks of MPI, and no store has them."""
    return (
        ranks.world_size > 1
        and ranks == _mpi.of_mpi()
        and ranks not in (_ranks.of_torch(), _ranks.of_jax())
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

    return _Store(
        put,
        lambda key: put(key, ""),
        # compare_set of TCPStore wakes nobody in all versions.
        lambda key, value: store.set(key, value),
        lambda key: bytes(store.get(key)).decode(),
    )


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

    def wait(key: str) -> str:
        return str(client.blocking_key_value_get(key, _JAX_WAIT_MS))

    return _Store(put, get, put, wait)
