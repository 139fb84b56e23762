"""Transfer: passes batches from the library to the job without loss."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Container, List, Optional

from .._connection import library
from . import held
from .batch import Batch, Origin, batch_class
from .dlpack import CUDA, HANDLE_BYTES, FieldInfo, Handle
from .frameworks import Framework, copy_of


class Transfer:
    """Makes Batches from the library's results and loses none of them.

    Python may run signal handlers, and raise KeyboardInterrupt, between any
    two steps. So results are stored here from begin() until finish() has
    returned; an interrupted one is finished or dropped later.

    For one thread at a time. One per feed, for every batch.
    """

    _handle: Optional[Handle] = None
    # The framework's current stream at begin().
    stream = 0

    def __init__(
        self,
        framework: Framework,
        fields: List[FieldInfo],
        images: Container[str],
        copies_held: bool,
        num_slots: int,
        warn_of_held: Callable[[int, int], None],
        is_mixture: bool = False,
    ) -> None:
        """`copies_held`: batches are copies while the job holds many of the
        slots, and warn_of_held() is called with the number and of how many."""
        self._framework = framework
        self._fields = fields
        self._warn_of_held = warn_of_held
        self._num_slots = num_slots
        self._small = [
            i
            for i, info in enumerate(fields)
            if framework.copies(info, images)
        ]
        self._all_small = sum(1 << i for i in self._small)
        # Small fields are copies while more slots are held.
        self._most_lent = (
            held.most_lent(num_slots) if framework.lends_small else 0
        )
        # Batches are copies while more slots are held.
        self._is_small = len(self._small) == len(fields)
        if self._is_small:
            self._most_held = self._most_lent
        elif framework.can_copy and copies_held:
            self._most_held = held.most(num_slots)
        else:
            self._most_held = num_slots
        self._batch_class = batch_class(field.name for field in fields)
        self._origin = Origin(
            framework,
            FieldInfo(
                "indices",
                "int64",
                fields[0].shape[: 2 if fields[0].group_size else 1],
                (fields[0].group_size, 1) if fields[0].group_size else (1,),
                fields[0].group_size,
            ),
            is_mixture,
        )
        self._delete = library.load().quick.tensor_delete
        # Filled by datasetd_feed_next, with the handle of begin().
        self.tensors = (ctypes.c_void_p * len(fields))()
        self.num_tensors = len(fields) if framework.takes_tensors else 0
        # On the host the library copies small fields in less time than a
        # framework.
        self.copied = framework.copied = (
            sum(1 << i for i in self._small if i < 64)
            if self.num_tensors and not framework.lends_small
            else 0
        )
        self._owners: List[Any] = []

    def begin(self) -> Optional[Handle]:
        """Returns a handle for the library to fill; None if it has filled one
        that finish() has not returned: finish_interrupted() does."""
        handle = self._handle
        if handle is not None and handle.core:
            return None
        self._owners = []
        self.stream = self._framework.stream()
        handle = self._handle = Handle(HANDLE_BYTES)
        return handle

    def finish(self, handle: Handle) -> Batch[Any]:
        """Returns the Batch of a handle of begin() that the library filled; as
        a copy that holds no slot while the job holds many."""
        if not self.num_tensors:
            return self._made(self._from_handle(handle), handle, 0)
        arrays = self._framework.from_tensors(
            self.tensors,
            self._owners,
            self._fields[0].extent(handle.num_samples),
        )
        return self._made(arrays, handle, self.copied)

    def finish_interrupted(self) -> Batch[Any]:
        """Returns the batch that an interrupt kept from the job. REQUIRES:
        begin() returned None."""
        handle = self._handle
        assert handle is not None
        self._drop_tensors()
        # The call that took it may have had another.
        self.stream = self._framework.stream()
        self._origin.record_current(handle)
        return self._made(self._from_handle(handle), handle, 0)

    def drop(self) -> None:
        """Releases an interrupted batch, if there is one."""
        if self._handle is not None and self._handle.core:
            self._drop_tensors()
        self._handle = None
        self._owners = []

    def _from_handle(self, handle: Handle) -> List[Any]:
        return [
            self._framework.from_handle(handle, i, info)
            for i, info in enumerate(self._fields)
        ]

    def _made(
        self, arrays: List[Any], handle: Handle, copied: int
    ) -> Batch[Any]:
        """`copied` has the bits of the arrays that are copies."""
        is_copy = handle.num_held > self._most_held
        has_copies = is_copy or (
            handle.num_held > self._most_lent and bool(self._small)
        )
        if is_copy and not self._is_small:
            # May raise; the batch is returned by the next call then.
            self._warn_of_held(handle.num_held - 1, self._num_slots)
        if has_copies and (is_copy or copied != self._all_small):
            for i in range(len(arrays)) if is_copy else self._small:
                if not copied >> i & 1:
                    arrays[i] = copy_of(arrays[i])
        batch = self._batch_class(arrays)
        if has_copies and self._framework.device[0] == CUDA:
            batch._copied_on = self.stream
        batch._origin = self._origin
        batch._handle = (
            batch._detached(handle, copy_of)
            if is_copy
            else handle
        )
        self._handle = None
        return batch

    def _drop_tensors(self) -> None:
        """Deletes the tensors that no array owns."""
        for i in range(self.num_tensors):
            address = self.tensors[i]
            if i < len(self._owners) and self._framework.owns(self._owners[i]):
                continue
            if address:
                # Cleared first: a leak is better than a double release.
                self.tensors[i] = None
                self._delete(address)

    def __del__(self) -> None:
        self.drop()
