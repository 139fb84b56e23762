"""Orders chosen by the job: samplers, lists of indices, subsets."""

from __future__ import annotations

import array
import copy
import hashlib
import itertools
from typing import (
    Any,
    Iterable,
    Iterator,
    NamedTuple,
    Optional,
    Protocol,
    Tuple,
)

from ..errors import FailedPrecondition, InvalidArgument, OutOfRange

MAX_BATCH_SIZE = 1 << 18


def _is_boolean(value: Any) -> bool:
    """True for a bool, and for an array, a tensor or an element of these."""
    dtype = str(getattr(value, "dtype", ""))
    return isinstance(value, bool) or dtype in ("bool", "torch.bool")


def index_array(what: str, indices: Iterable[Any]) -> "array.array[int]":
    """Returns an int64 array of any iterable of integers, NumPy's and torch's
    included."""
    to_list = getattr(indices, "tolist", None)
    some = indices[:1] if isinstance(indices, (list, tuple)) else [indices]
    if any(map(_is_boolean, some)):
        raise InvalidArgument(
            f"{what}: a boolean mask, expected sample indices, such as those "
            "of mask.nonzero()"
        )
    try:
        return array.array("q", to_list() if to_list else indices)
    except (TypeError, OverflowError) as error:
        raise InvalidArgument(
            f"{what}: expected sample indices, ints: {error}"
        ) from None


def _indices_of(
    subset: Any, positions: "array.array[int]"
) -> "array.array[int]":
    for position in positions:
        if not 0 <= position < len(subset):
            raise OutOfRange(
                f"sampler: {position} is out of range of a Subset of "
                f"{len(subset)} samples"
            )
    return index_array("sampler", subset.take(positions))


def _extents(given: Any) -> int:
    """Returns the number of extents of an array, a tensor, or a list of such;
    0 for anything else."""
    extents = len(getattr(given, "shape", ()))
    if isinstance(given, (list, tuple)) and len(given):
        extents = 1 + _extents(given[0])
    return extents


def flat(
    number: int, given: Any, group_size: Optional[int]
) -> "Tuple[array.array[int], int]":
    """Returns the indices of batch `number` of a sampler, group by group, and
    the size of its groups, 0 if it has none: `group_size`, unless that is
    None."""
    is_list = isinstance(given, (list, tuple))
    if not is_list and not hasattr(given, "tolist"):
        given = list(given)
    size = 0
    if _extents(given) > 1:
        if hasattr(given, "tolist"):
            given = given.tolist()
        groups = [
            group.tolist() if hasattr(group, "tolist") else group
            for group in given
        ]
        size = len(groups[0])
        for i, group in enumerate(groups):
            if len(group) != size:
                raise InvalidArgument(
                    f"batch_sampler: batch {number}: group {i} has "
                    f"{len(group)} samples, and group 0 has {size}: all groups "
                    "have equally many"
                )
        given = list(itertools.chain.from_iterable(groups))
    if group_size is not None and group_size != size:
        raise InvalidArgument(
            f"batch_sampler: batch {number} has {_groups_text(size)}, and the "
            f"loader has {_groups_text(group_size)} (group_size=, or the "
            "batches before): all batches of a loader are alike"
        )
    return index_array("batch_sampler", given), size


def _groups_text(size: int) -> str:
    return f"groups of {size}" if size else "no groups"


def has_state(sampler: Any) -> bool:
    return hasattr(sampler, "state_dict") and hasattr(
        sampler, "load_state_dict"
    )


def digest(indices: "array.array[int]", before: bytes = b"") -> bytes:
    return hashlib.blake2b(
        before + indices.tobytes(), digest_size=16
    ).digest()


def _begun(sampler: Any, iterator: Iterator[Any]) -> Iterator[Any]:
    """Returns the iterator of a new epoch of a sampler whose state was loaded.

    A state of torchdata's StatefulDistributedSampler between epochs is that
    of the end of the one before, of which nothing is left.
    """
    for first in iterator:
        return itertools.chain([first], iterator)
    return iter(sampler)


class Drawn(NamedTuple):
    """One batch of a sampler, and the sampler's state after it."""

    number: int  # of the batch within the epoch
    indices: "array.array[int]"
    first_row: int
    digest: bytes  # of the epoch so far
    sampler_state: Any


class Given(NamedTuple):
    """The user's sampler or batch_sampler, and the samples that its indices
    count; None: the dataset's."""

    sampler: Any
    batch_sampler: Any
    subset: Any

    @property
    def source(self) -> Any:
        """What is iterated."""
        return (
            self.sampler if self.batch_sampler is None else self.batch_sampler
        )

    def has_state(self) -> bool:
        """True if it keeps the state of its iteration."""
        return has_state(self.source)

    def with_epoch(self) -> Any:
        """Returns the sampler that has set_epoch; None: there is none."""
        inner = getattr(self.batch_sampler, "sampler", None)
        for sampler in (self.sampler, self.batch_sampler, inner):
            if callable(getattr(sampler, "set_epoch", None)):
                return sampler
        return None

    def is_for_ranks(self) -> bool:
        """True if it knows of ranks, as torch's DistributedSampler and those
        made after it."""
        inner = getattr(self.batch_sampler, "sampler", None)
        return any(
            hasattr(sampler, name)
            for sampler in (self.sampler, self.batch_sampler, inner)
            for name in ("num_replicas", "num_processes", "rank")
        )

    def takes_all(self, num_samples: int, batch_size: int) -> bool:
        """True if it has as many indices as there are samples, `num_samples` of
        the dataset, or more."""
        sampler, batches = self.sampler, self.batch_sampler
        if self.subset is not None:
            num_samples = len(self.subset)
        if sampler is None:
            sampler = getattr(batches, "sampler", None)
        try:
            if sampler is not None:
                return len(sampler) >= num_samples
            if isinstance(batches, (list, tuple)):
                return sum(map(len, batches)) >= num_samples
            # The last batch may be short, or left out.
            return (len(batches) + 1) * batch_size > num_samples
        except TypeError:
            return False

    def largest_batch(self, batch_size: int) -> int:
        """Returns the samples or groups of its largest batch; `batch_size` is
        the loader's, 1 if it was not given."""
        batches = self.batch_sampler
        if batches is None or batch_size != 1:
            return batch_size
        own = getattr(batches, "batch_size", None)
        if isinstance(own, int) and own > 0:
            return own
        if isinstance(batches, (list, tuple)):
            return max(map(len, batches), default=1) or 1
        raise InvalidArgument(
            "batch_sampler has no batch_size: set the maximum number of "
            "samples of a batch, batch_size="
        )


class Sampled(Protocol):
    """The order of a loader with a sampler. `group_size` is that of the
    batches' groups, 0 without; None until the first batch tells."""

    given: Optional[Given]
    batch_size: int
    drop_last: bool
    group_size: Optional[int]


class SamplerOrder:
    """Runs a sampler or batch_sampler, epoch by epoch, as torch's DataLoader
    does."""

    def __init__(self, sampled: Sampled) -> None:
        assert sampled.given is not None
        self.sampled = sampled
        self._given = sampled.given
        self._check_size()
        self._iterator: Optional[Iterator[Any]] = None
        self._state_holder: Any = None
        # The state of the sampler with which the epoch began, if none was
        # loaded.
        self.start_state: Any = None
        self._index = 0  # of the next batch
        self._row = 0
        self._digest = b""

    def _check_size(self) -> None:
        group_size = self.sampled.group_size
        batch_size = self.sampled.batch_size
        most = MAX_BATCH_SIZE // (group_size or 1)
        if batch_size > most:
            groups = f" of groups of {group_size}" if group_size else ""
            raise InvalidArgument(
                f"batch_size={batch_size}; expected 1 to {most} with a "
                f"sampler{groups}"
            )

    def __len__(self) -> int:
        """Batches per epoch; raises TypeError if the sampler does not know."""
        num_items = len(self._given.source)
        if self._given.batch_sampler is not None:
            return num_items
        if self.sampled.drop_last:
            return num_items // self.sampled.batch_size
        return -(-num_items // self.sampled.batch_size)

    # -- An epoch -----------------------------------------------------------

    def begin(
        self,
        skip: int,
        row: Optional[int],
        expected_digest: Optional[bytes],
        sampler_state: Any,
    ) -> None:
        """Begins an epoch after its first `skip` batches.

        A sampler with state_dict continues from its state. Any other is run
        again and must yield the same indices.
        """
        source = self._given.source
        self.start_state = self.present_state()
        self._iterator = None
        self._index = 0
        self._row = 0
        self._digest = b""
        if sampler_state is not None and has_state(source):
            source.load_state_dict(copy.deepcopy(sampler_state))
        self._state_holder = source if has_state(source) else None
        iterator = iter(source)
        if self._state_holder is None and has_state(iterator):
            self._state_holder = iterator
            if sampler_state is not None:
                iterator.load_state_dict(copy.deepcopy(sampler_state))
            self.start_state = self._sampler_state()
        self._iterator = iterator
        if sampler_state is not None:
            if self._state_holder is None:
                raise FailedPrecondition(
                    "state_dict has a sampler_state, but the sampler has no "
                    "load_state_dict"
                )
            if skip == 0 and self._state_holder is source:
                self._iterator = _begun(source, iterator)
            self._index = skip
            self._row = row or 0
            self._digest = expected_digest or b""
            return
        for number in range(skip):
            if self.draw() is None:
                raise FailedPrecondition(
                    f"state_dict: batch is {skip}, but the sampler yields only "
                    f"{number} batches"
                )
        if skip and (
            (expected_digest is not None and expected_digest != self._digest)
            or (row is not None and row != self._row)
        ):
            self._iterator = None
            raise FailedPrecondition(
                "state_dict: the sampler does not yield the same samples as "
                f"before batch {skip}; set its seed and its epoch as they were "
                "(a sampler with state_dict and load_state_dict is set by "
                "them). If every rank has its own sampler, it also has its own "
                "state"
            )

    def draw(self) -> Optional[Drawn]:
        """Returns the next batch of the epoch; None after the last one."""
        if self._iterator is None:
            return None
        batch = self._next_batch(self._iterator)
        if batch is None:
            self._iterator = None
            return None
        if self._given.subset is not None:
            batch = _indices_of(self._given.subset, batch)
        index, first_row = self._index, self._row
        self._index += 1
        self._row += len(batch)
        self._digest = digest(batch, self._digest)
        return Drawn(
            index, batch, first_row, self._digest, self._sampler_state()
        )

    def present_state(self) -> Any:
        """Returns the sampler's state, with which an epoch would begin; None if
        the sampler has none, or only its iterators, whose ends with the epoch.

        None, too, if the sampler did not reach the end of the epoch that it
        began: its state is a place within that epoch.
        """
        if self._iterator is not None or not self._given.has_state():
            return None
        return copy.deepcopy(self._given.source.state_dict())

    def _sampler_state(self) -> Any:
        if self._state_holder is None:
            return None
        return copy.deepcopy(self._state_holder.state_dict())

    def _next_batch(
        self, iterator: Iterator[Any]
    ) -> Optional["array.array[int]"]:
        order = self.sampled
        if self._given.batch_sampler is not None:
            try:
                given = next(iterator)
            except StopIteration:
                return None
            batch, order.group_size = flat(
                self._index, given, order.group_size
            )
            self._check_size()
            num_items = len(batch) // (order.group_size or 1)
            if not 1 <= num_items <= order.batch_size:
                what = "groups" if order.group_size else "samples"
                raise InvalidArgument(
                    f"batch_sampler: a batch of {num_items} {what}; "
                    f"expected 1 to {order.batch_size} (batch_size=)"
                )
            return batch
        items = list(itertools.islice(iterator, order.batch_size))
        if not items or (order.drop_last and len(items) < order.batch_size):
            return None
        return index_array("sampler", items)
