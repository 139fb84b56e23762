"""One feed: the daemon's sequence of batches for one loader."""

from __future__ import annotations

import array
import ctypes
import threading
import time
import weakref
from typing import Any, Callable, Dict, List, Optional

from .._arguments import encode, nanoseconds
from .._batches import dlpack, frameworks
from .._batches.batch import Batch
from .._batches.transfer import Transfer
from .._connection import library as _library
from .._connection.at_exit import close_at_exit
from .._descriptions import dtype_of
from .._order.groups import ClassGroups
from .._order.sampling import Drawn
from .._order.weights import Weighted
from ..errors import Closed, DeadlineExceeded, Error, FailedPrecondition
from .feeds import Feeds

_DEADLINE_EXCEEDED = 4
# Python runs signal handlers between waits.
_WAIT_STEP_NS = 100_000_000

_addressof = ctypes.addressof


class Feed:
    """One datasetd_feed and the arrays of its batches.

    An interrupted call, such as by Ctrl-C, loses no batch and no memory: the
    next call continues. Closed by close(), or when it is garbage; held batches
    stay valid. For one thread at a time, except close(), which ends another
    thread's wait.

    Attributes from the daemon: num_batches (per epoch; 0 with client_order),
    num_samples, content_hash, noise, transforms_hash, prefetch, order_capacity
    (batches that it queues), fields; also the connection of the feed.
    """

    def __init__(
        self,
        feeds: Feeds,
        message: Dict[str, Any],
        weighted: Optional[Weighted] = None,
    ) -> None:
        """Opens one of the feeds of a loader; `message` is its FeedOptions.
        Errors as DataLoader."""
        options = feeds.options
        session = options.dataset._session
        self._library = library = _library.load()
        dlpack.bind(library)
        # Looked up once, since it is called for every batch.
        self._next = library.quick.feed_next
        self._error = _library.CError()
        self._error_address = _addressof(self._error)
        handle = ctypes.c_void_p()
        self._handle = handle
        # Held while the handle is in use.
        self._lock = threading.Lock()
        self._closed = ""  # why, once close() was called
        # send() raised: the next one begins where seek() says.
        self.needs_seek = False
        self._feeds = feeds
        # Before the handle exists, since Ctrl-C may come right after.
        self._free = weakref.finalize(self, _free, library, handle)
        self._free.atexit = False
        self.connection = session.connection()
        info = _library.parse_answer(
            session.call_text(
                "feed_open",
                encode(message),
                ctypes.byref(
                    _arrays(options.subset, weighted, options.groups)
                ),
                ctypes.byref(handle),
            )
        )
        self.num_batches = int(info["batches_per_epoch"])
        self.num_samples = int(info["num_samples"])
        self.content_hash: str = info["content_hash"]
        # Of datasets of noise, by name.
        self.noise: Dict[str, str] = {
            noise["dataset"]: noise["content_hash"]
            for noise in info.get("noise", ())
        }
        self.transforms_hash: str = info["transforms_hash"]
        self.prefetch = int(info["prefetch"])
        self.order_capacity = int(info["order_capacity"])
        group_size = int(message.get("group_order", {}).get("group_size", 0))
        self.fields = [
            dlpack.FieldInfo(
                field["name"],
                dtype_of(field),
                tuple(int(extent) for extent in field["shape"]),
                tuple(int(stride) for stride in field["strides"]),
            ).grouped(group_size)
            for field in info["layout"]["fields"]
        ]
        kind, number = ctypes.c_int32(), ctypes.c_int32()
        library.quick.feed_device(
            handle, ctypes.byref(kind), ctypes.byref(number)
        )
        self.device = (kind.value, number.value)  # as of DLPack
        try:
            self._framework = frameworks.make(
                options.framework, self.device, self.fields
            )
        except BaseException:
            self._free()
            raise
        self._transfer = Transfer(
            self._framework,
            self.fields,
            options.images,
            options.copies_held,
            self.prefetch + 2,
            feeds.warn_of_held,
            "mixture" in message,
        )
        close_at_exit(self._free, session.address)

    # -- Batches ------------------------------------------------------------

    def take(self) -> Batch[Any]:
        """Returns the next batch, within the loader's timeout.

        Raises DeadlineExceeded; AllSlotsHeld; DaemonGone, DaemonDraining,
        DatasetUnloaded, FeedEvicted or DeviceFailed if the feed has ended;
        UsedAfterFork; Closed; FailedPrecondition while another thread waits.
        """
        if self._closed or self._lock.locked():
            self.check_free()
        try:
            with self._lock:
                if self._closed:
                    self._check_open()
                transfer = self._transfer
                handle = transfer.begin()
                if handle is None:
                    batch = transfer.finish_interrupted()
                else:
                    if self._next(
                        self._handle,
                        transfer.stream,
                        0,
                        _addressof(handle),
                        transfer.tensors,
                        transfer.num_tensors,
                        transfer.copied,
                        self._error_address,
                    ):
                        self._wait(handle)
                    batch = transfer.finish(handle)
            return batch
        finally:
            if self._closed:
                self.close()

    def _wait(self, handle: dlpack.Handle) -> None:
        """Handles what the first attempt could not."""
        transfer = self._transfer
        timeout = self._feeds.timeout
        start = time.monotonic()
        try:
            while self._error.code == _DEADLINE_EXCEEDED:
                self._check_open()
                step = _WAIT_STEP_NS
                if timeout is not None:
                    left = (start + timeout - time.monotonic()) * 1e9
                    if left < 1:
                        raise DeadlineExceeded(
                            f"no batch came within {timeout} s (timeout=)"
                        )
                    step = int(min(step, left))
                # Without the GIL.
                if not self._library.feed_next(
                    self._handle,
                    transfer.stream,
                    step,
                    _addressof(handle),
                    transfer.tensors,
                    transfer.num_tensors,
                    transfer.copied,
                    self._error_address,
                ):
                    return
            raise self._error.to_exception()
        finally:
            self._feeds.waited_seconds += time.monotonic() - start

    # -- Order --------------------------------------------------------------

    def seek(self, epoch: int, index: int) -> None:
        """Makes batch `index` of `epoch` the next one. Errors as take()."""
        self.check_free()
        with self._lock:
            self._check_open()
            # An interrupted batch belongs to the previous order.
            self._transfer.drop()
            if self._library.quick.feed_seek(
                self._handle, epoch, index, ctypes.byref(self._error)
            ):
                raise self._error.to_exception()
            self.needs_seek = False

    def send(self, block: List[Drawn]) -> None:
        """Appends batches to a client's order.

        Raises InvalidArgument, OutOfRange, DeadlineExceeded if the daemon did
        not accept it in time, or DaemonGone; the block is then not used, and
        may be sent again after seek().
        """
        indices = array.array("q")
        for drawn in block:
            indices.extend(drawn.indices)
        sizes = array.array("I", [len(drawn.indices) for drawn in block])
        if self._give(
            self._library.feed_send_indices,
            indices.buffer_info()[0],
            len(indices),
            sizes.buffer_info()[0],
            len(sizes),
            block[0].first_row,
            0,
        ):
            self.needs_seek = True
            raise self._refusal("the sampler's indices")

    def set_weights(self, weighted: Weighted) -> None:
        """Draws by these weights from the next seek() on, also one to the
        present position.

        Raises what the daemon refuses them with, and the feed keeps those
        before; DeadlineExceeded if it did not accept them in time, and it may
        have them or not; or as take().
        """
        if self._give(
            self._library.feed_set_weights,
            weighted.weights.ctypes.data,
            len(weighted.weights),
        ):
            raise self._refusal("the weights")

    def _give(self, function: Callable[..., int], *arguments: Any) -> bool:
        """Calls a function of the library that waits for the daemon's answer.
        Returns true if it failed; self._error says why."""
        self.check_free()
        timeout = self._feeds.timeout
        raised: List[BaseException] = []
        on_wait = _library.WaitFunction(
            _library.catching(lambda _: self._check_open(), raised)
        )
        try:
            with self._lock:
                self._check_open()
                failed = function(
                    self._handle,
                    *arguments,
                    -1 if timeout is None else nanoseconds(timeout),
                    on_wait,
                    None,
                    ctypes.byref(self._error),
                )
        finally:
            if self._closed:
                self.close()
        if raised:
            raise raised[0]
        return bool(failed)

    def _refusal(self, what: str) -> Error:
        if self._error.code == _DEADLINE_EXCEEDED:
            return DeadlineExceeded(
                f"the daemon did not accept {what} within "
                f"{self._feeds.timeout} s (timeout=)"
            )
        return self._error.to_exception()

    # -- Life -----------------------------------------------------------------

    def check_free(self) -> None:
        """Raises FailedPrecondition instead of waiting for a lock, which in a
        signal handler would never end; Closed after close()."""
        self._check_open()
        if self._lock.locked():
            raise FailedPrecondition(
                "another thread, or code that a signal interrupted, is in this "
                "loader's next(): a loader is for one thread at a time"
            )

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(self._closed)

    def is_used(self) -> bool:
        """True if a thread is in a call."""
        return self._lock.locked()

    def close(self, why: str = "") -> None:
        """Makes calls raise Closed; running ones within 100 ms."""
        if not self._closed:
            self._closed = "the loader is closed" + (why and f": {why}")
        # A thread in a call notices, and closes when it returns.
        if not self._lock.locked():
            with self._lock:
                self._transfer.drop()
                self._free()


def _arrays(
    subset: "Optional[array.array[int]]",
    weighted: Optional[Weighted],
    groups: Optional[ClassGroups],
) -> _library.CFeedArrays:
    """Returns pointers to the numbers, which the caller keeps."""
    arrays = _library.CFeedArrays()
    if subset is not None:
        arrays.subset, arrays.subset_size = subset.buffer_info()
    if weighted is not None:
        arrays.weights = weighted.weights.ctypes.data
        arrays.num_weights = len(weighted.weights)
        if weighted.samples is not None:
            arrays.weighted_samples = weighted.samples.ctypes.data
    if groups is not None:
        arrays.classes = groups.classes.ctypes.data
        arrays.num_classes = len(groups.classes)
    return arrays


def _free(library: _library.Library, handle: ctypes.c_void_p) -> None:
    if handle:
        library.feed_close(handle)
