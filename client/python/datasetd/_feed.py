"""One feed: the daemon's sequence of batches for one loader."""

from __future__ import annotations

import array
import ctypes
import json
import threading
import time
import weakref
from typing import Any, Dict, List, Optional

from . import _dlpack, _frameworks, _library
from ._arguments import encode
from ._at_exit import close_at_exit
from ._batch import Batch
from ._descriptions import dtype_of
from ._sampling import Drawn
from ._session import Session
from ._transfer import Transfer
from .errors import Closed, DeadlineExceeded, FailedPrecondition

_DEADLINE_EXCEEDED = 4
# Python runs signal handlers between waits.
_WAIT_STEP_NS = 100_000_000

_addressof = ctypes.addressof


class Feed:
    """One datasetd_feed, and the arrays of its batches.

    Whatever interrupts a call, such as Ctrl-C, loses no batch and no memory:
    the next call goes on with it. Closed by close(), or when nothing refers to
    it any more; batches that are held stay valid. For one thread at a time,
    and close() for any: it ends another thread's wait.

    Attributes are what the daemon said: num_batches (of an epoch; 0 with a
    client's order), num_samples, content_hash, transforms_hash, prefetch,
    order_capacity (batches that may wait in it), fields; and the connection
    that it was opened through.
    """

    def __init__(
        self, session: Session, options: Dict[str, Any], framework: str
    ) -> None:
        """Opens it; `options` is a FeedOptions message. For the errors see
        DataLoader."""
        self._library = library = _library.load()
        _dlpack.bind(library)
        # Looked up once: it is called for every batch.
        self._next = library.quick.feed_next_tensors
        self._error = _library.CError()
        self._error_address = _addressof(self._error)
        handle = ctypes.c_void_p()
        self._handle = handle
        # Held while the handle is in use.
        self._lock = threading.Lock()
        self._is_closing = False
        # Spent in take(), waiting.
        self.waited_seconds = 0.0
        # Before there is anything to free: Ctrl-C may come as soon as there is.
        self._free = weakref.finalize(self, _free, library, handle)
        self._free.atexit = False
        self.connection = session.connection()
        info = json.loads(
            session.call_text(
                "feed_open", encode(options), ctypes.byref(handle)
            )
        )
        self.num_batches = int(info["batches_per_epoch"])
        self.num_samples = int(info["num_samples"])
        self.content_hash: str = info["content_hash"]
        self.transforms_hash: str = info["transforms_hash"]
        self.prefetch = int(info["prefetch"])
        self.order_capacity = int(info["order_capacity"])
        self.fields = [
            _dlpack.FieldInfo(
                field["name"],
                dtype_of(field),
                tuple(int(extent) for extent in field["shape"]),
                tuple(int(stride) for stride in field["strides"]),
            )
            for field in info["layout"]["fields"]
        ]
        kind, number = ctypes.c_int32(), ctypes.c_int32()
        library.quick.feed_device(
            handle, ctypes.byref(kind), ctypes.byref(number)
        )
        try:
            self._framework = _frameworks.make(
                framework, (kind.value, number.value), self.fields
            )
        except BaseException:
            self._free()
            raise
        self._transfer = Transfer(self._framework, self.fields)
        close_at_exit(self)

    # -- Batches ------------------------------------------------------------

    def take(self, timeout: Optional[float]) -> Batch:
        """The next batch, after at most `timeout` seconds; None: without end.

        DeadlineExceeded; AllSlotsHeld; DaemonGone, DaemonDraining,
        DatasetUnloaded, FeedEvicted or DeviceFailed at the feed's end;
        UsedAfterFork; Closed; FailedPrecondition while another thread waits.
        """
        self.check_free()
        try:
            with self._lock:
                self._check_open()
                transfer = self._transfer
                if transfer.is_interrupted:
                    batch = transfer.finish_interrupted()
                else:
                    handle = transfer.begin()
                    if self._next(
                        self._handle,
                        self._framework.stream(),
                        0,
                        _addressof(handle),
                        transfer.tensors,
                        transfer.num_tensors,
                        self._error_address,
                    ):
                        self._wait(handle, timeout)
                    batch = transfer.finish(handle)
            return batch
        finally:
            if self._is_closing:
                self.close()

    def _wait(
        self, handle: _dlpack.Handle, timeout: Optional[float]
    ) -> None:
        start = time.monotonic()
        try:
            self._fill(
                handle, timeout, None if timeout is None else start + timeout
            )
        finally:
            self.waited_seconds += time.monotonic() - start

    def _fill(
        self,
        handle: _dlpack.Handle,
        timeout: Optional[float],
        deadline: Optional[float],
    ) -> None:
        """What the first try could not."""
        transfer = self._transfer
        code = self._error.code
        while True:
            if code != _DEADLINE_EXCEEDED:
                raise self._error.to_exception()
            self._check_open()
            step = _WAIT_STEP_NS
            if deadline is not None:
                left = int((deadline - time.monotonic()) * 1e9)
                if left <= 0:
                    raise DeadlineExceeded(
                        f"no batch came within {timeout} s (timeout=)"
                    )
                step = min(step, left)
            # Without the GIL.
            if not self._library.feed_next_tensors(
                self._handle,
                self._framework.stream(),
                step,
                _addressof(handle),
                transfer.tensors,
                transfer.num_tensors,
                self._error_address,
            ):
                return
            code = self._error.code

    # -- Order --------------------------------------------------------------

    def seek(self, epoch: int, index: int) -> None:
        """The next batch is batch `index` of `epoch`. Errors as of take()."""
        self.check_free()
        with self._lock:
            self._check_open()
            # What was interrupted belongs to the order before.
            self._transfer.drop()
            if self._library.quick.feed_seek(
                self._handle, epoch, index, ctypes.byref(self._error)
            ):
                raise self._error.to_exception()

    def send(self, block: List[Drawn], timeout: Optional[float]) -> None:
        """Says what the next batches of a client's order are.

        Of a block that raises, nothing comes: InvalidArgument, OutOfRange,
        DeadlineExceeded where the daemon did not take it in time, DaemonGone.
        """
        self.check_free()
        indices = array.array("q")
        for drawn in block:
            indices.extend(drawn.indices)
        sizes = array.array("I", [len(drawn.indices) for drawn in block])
        raised: List[BaseException] = []
        on_wait = _library.WaitFunction(
            _library.catching(lambda _: self._check_open(), raised)
        )
        try:
            with self._lock:
                self._check_open()
                failed = self._library.feed_send_indices_within(
                    self._handle,
                    indices.buffer_info()[0],
                    len(indices),
                    sizes.buffer_info()[0],
                    len(sizes),
                    block[0].first_row,
                    0,
                    -1 if timeout is None else int(timeout * 1e9),
                    on_wait,
                    None,
                    ctypes.byref(self._error),
                )
        finally:
            if self._is_closing:
                self.close()
        if raised:
            raise raised[0]
        if failed:
            if self._error.code == _DEADLINE_EXCEEDED:
                raise DeadlineExceeded(
                    "the daemon did not take the sampler's indices within "
                    f"{timeout} s (timeout=)"
                )
            raise self._error.to_exception()

    # -- Life -----------------------------------------------------------------

    def check_free(self) -> None:
        """FailedPrecondition where a lock would be waited for; for ever, where
        a signal handler waits for what it interrupted."""
        if self._lock.locked():
            raise FailedPrecondition(
                "another thread, or what a signal interrupted, is in this "
                "loader's next(): a loader is for one thread at a time"
            )

    def _check_open(self) -> None:
        if self._is_closing:
            raise Closed("the loader is closed")

    def is_used(self) -> bool:
        """Whether a thread is in a call."""
        return self._lock.locked()

    def close(self) -> None:
        """Calls raise Closed from now on, and those under way within 100 ms."""
        self._is_closing = True
        # A thread that is in a call sees it, and closes when it leaves.
        if not self._lock.locked():
            with self._lock:
                self._transfer.drop()
                self._free()


def _free(library: _library.Library, handle: ctypes.c_void_p) -> None:
    if handle:
        library.feed_close(handle)
