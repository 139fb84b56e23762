"""Orders chosen by the job: samplers, lists of indices, subsets."""

from __future__ import annotations

import array
import copy
import hashlib
import itertools
from typing import Any, Iterable, Iterator, List, NamedTuple, Optional

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


class Grouping:
    """The groups of a loader's batches, [B, K].

    Attribute size is K; 0: there are none; None: the first batch of the sampler
    tells.
    """

    def __init__(self, size: Optional[int]) -> None:
        self.size = size

    @property
    def num_rows(self) -> int:
        """Rows of a group, or 1."""
        return self.size or 1

    def flat(self, number: int, given: Any) -> "array.array[int]":
        """Returns the indices of a sampler's batch, group by group."""
        what = f"batch_sampler: batch {number}"
        is_list = isinstance(given, (list, tuple))
        if not is_list and not hasattr(given, "tolist"):
            given = list(given)
        if _extents(given) < 2:
            self._check(what, 0)
            return index_array("batch_sampler", given)
        if hasattr(given, "tolist"):
            given = given.tolist()
        groups = [
            group.tolist() if hasattr(group, "tolist") else group
            for group in given
        ]
        size = len(groups[0])
        for place, group in enumerate(groups):
            if len(group) != size:
                raise InvalidArgument(
                    f"{what}: group {place} has {len(group)} samples, and "
                    f"group 0 has {size}: all groups have equally many"
                )
        self._check(what, size)
        return index_array(
            "batch_sampler", list(itertools.chain.from_iterable(groups))
        )

    def _check(self, what: str, size: int) -> None:
        if self.size is None:
            self.size = size
        if self.size != size:
            raise InvalidArgument(
                f"{what} has {_groups_text(size)}, and the loader has "
                f"{_groups_text(self.size)} (group_size=, or the batches "
                "before): all batches of a loader are alike"
            )


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


class SamplerOrder:
    """Runs a sampler or batch_sampler, epoch by epoch, as torch's DataLoader
    does."""

    def __init__(
        self,
        sampler: Any,
        batch_sampler: Any,
        batch_size: int,
        drop_last: bool,
        subset: Any = None,
        grouping: Optional[Grouping] = None,
    ) -> None:
        """`subset`: the samples that the sampler's indices count; None: all.
        `grouping` is of the batches of a batch_sampler; None: no groups."""
        self._sampler = sampler
        self._batch_sampler = batch_sampler
        self._drop_last = drop_last
        self._subset = subset
        self.grouping = grouping or Grouping(0)
        self.batch_size = (
            batch_size
            if batch_sampler is None
            else self._largest_batch(batch_sampler, batch_size)
        )
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
        most = MAX_BATCH_SIZE // self.grouping.num_rows
        if self.batch_size > most:
            groups = (
                f" of groups of {self.grouping.size}"
                if self.grouping.size
                else ""
            )
            raise InvalidArgument(
                f"batch_size={self.batch_size}; expected 1 to {most} with a "
                f"sampler{groups}"
            )

    @staticmethod
    def _largest_batch(batch_sampler: Any, batch_size: int) -> int:
        if batch_size != 1:
            return batch_size
        own = getattr(batch_sampler, "batch_size", None)
        if isinstance(own, int) and own > 0:
            return own
        if isinstance(batch_sampler, (list, tuple)):
            return max((len(batch) for batch in batch_sampler), default=1) or 1
        raise InvalidArgument(
            "batch_sampler has no batch_size: set the maximum number of "
            "samples of a batch, batch_size="
        )

    @property
    def _source(self) -> Any:
        return (
            self._sampler
            if self._batch_sampler is None
            else self._batch_sampler
        )

    def __len__(self) -> int:
        """Batches per epoch; raises TypeError if the sampler does not know."""
        if self._batch_sampler is not None:
            return len(self._batch_sampler)
        num_samples = len(self._sampler)
        if self._drop_last:
            return num_samples // self.batch_size
        return -(-num_samples // self.batch_size)

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
        source = self._source
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
        if self._subset is not None:
            batch = _indices_of(self._subset, batch)
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
        if self._iterator is not None or not has_state(self._source):
            return None
        return copy.deepcopy(self._source.state_dict())

    def _sampler_state(self) -> Any:
        if self._state_holder is None:
            return None
        return copy.deepcopy(self._state_holder.state_dict())

    def _next_batch(
        self, iterator: Iterator[Any]
    ) -> Optional["array.array[int]"]:
        if self._batch_sampler is not None:
            try:
                given = next(iterator)
            except StopIteration:
                return None
            batch = self.grouping.flat(self._index, given)
            self._check_size()
            num_items = len(batch) // self.grouping.num_rows
            if not 1 <= num_items <= self.batch_size:
                what = "groups" if self.grouping.size else "samples"
                raise InvalidArgument(
                    f"batch_sampler: a batch of {num_items} {what}; "
                    f"expected 1 to {self.batch_size} (batch_size=)"
                )
            return batch
        items: List[Any] = []
        for item in iterator:
            items.append(item)
            if len(items) == self.batch_size:
                break
        if not items or (self._drop_last and len(items) < self.batch_size):
            return None
        return index_array("sampler", items)
