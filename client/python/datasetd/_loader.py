"""DataLoader: a job's batches from a dataset."""

from __future__ import annotations

import ctypes
import operator
import time
import weakref
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple, Union

from . import _frameworks, _library
from ._client import Dataset
from .errors import (
    Closed,
    DaemonDraining,
    DaemonGone,
    DeadlineExceeded,
    Error,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    Unavailable,
)
from .transforms._pipeline import Pipelines, batch_ops, pipelines_message

_DEADLINE_EXCEEDED = 4
# Python runs signal handlers between waits.
_WAIT_STEP_NS = 100_000_000
_LAYOUTS = ("NCHW", "NHWC")
_STATE_VERSION = 1


class Batch(tuple):
    """One batch: a tuple in field order, with the fields as attributes.

    A field whose name is one of the attributes below is reached as an item.
    """

    # Set for each loader's class.
    _framework: Any = None
    _indices_info: Any = None

    _handle: _frameworks.Handle

    @property
    def epoch(self) -> int:
        return self._handle.epoch

    @property
    def index(self) -> int:  # type: ignore[override]
        """Within the epoch."""
        return self._handle.index

    @property
    def num_samples(self) -> int:
        return self._handle.num_samples

    @property
    def num_padding(self) -> int:
        """The last rows, which repeat samples so that ranks stay equal."""
        return self._handle.num_padding

    @property
    def indices(self) -> Any:
        """Which samples these are: int64 [num_samples], on the device."""
        return self._framework.from_handle(
            self._handle, _library.INDICES, self._indices_info
        )

    def record_stream(self, stream: Any) -> None:
        """Keeps the memory until `stream` is done with it, too.

        For every stream but the one that was current when the batch was
        taken. A framework's stream object, or its number.
        """
        _frameworks.record_stream(
            self._handle, self._framework.stream_number(stream)
        )

    def __reduce__(self) -> Any:
        raise TypeError("a datasetd.Batch is memory of this process: clone it")


def _batch_class(
    framework: _frameworks.Framework, fields: List[_frameworks.FieldInfo]
) -> type:
    attributes: Dict[str, Any] = {
        "_framework": framework,
        "_indices_info": _frameworks.FieldInfo(
            "indices", "int64", fields[0].shape[:1], (1,)
        ),
    }
    for position, field in enumerate(fields):
        if not hasattr(Batch, field.name) or hasattr(tuple, field.name):
            if field.name not in vars(Batch):
                attributes[field.name] = property(
                    operator.itemgetter(position)
                )
    return type("Batch", (Batch,), attributes)


def _checked_int(name: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InvalidArgument(f"{name}={value!r}; expected an int")
    number = operator.index(value)
    if not least <= number <= most:
        raise InvalidArgument(
            f"{name}={value!r}; expected {least} to {most}"
        )
    return number


class DataLoader:
    """Iterates over the epochs of one job.

    Each job has its own order, seed, augmentation, batch size and clock; the
    samples are resident once for all of them.

    Args:
      dataset: of Client.load_dataset or get_dataset.
      batch_size: rows of a batch; of this rank.
      shuffle: a new order for every epoch, drawn from (seed, epoch).
      seed: of order and augmentation.
      drop_last: leave out what does not fill a batch; else the last one is
        short.
      rank, world_size: this rank's share of one global order.
      prefetch: batches made ahead, 1 to 62; None: what fits 64 MiB, within 4
        to 32.
      transforms: a list, for `image` or the `fields` of each op, or a dict by
        field.
      layout: "NCHW" or "NHWC", or a dict by field. The shape is [N, C, H, W]
        either way; NHWC shows in the strides (torch.channels_last).
      framework: "torch", "numpy", "jax" or "dlpack"; None is torch where it is
        installed, else NumPy.
      name: shown by `datasetctl feeds`.
      timeout: seconds to wait for a batch; None waits without end.
      reconnect: seconds to try to reach a daemon that was lost, and go on at
        the exact next batch; 0 or False raises DaemonGone at once, True is 60.

    iter() begins at the loaded position after load_state_dict; else at epoch e
    after set_epoch(e); else at the epoch after the last one begun, finished or
    broken off (first 0). A newer iterator invalidates the older one.

    For one thread at a time. Batches stay valid until they are freed, also
    after close; but one process holds at most prefetch + 2 of them.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        prefetch: Optional[int] = None,
        transforms: Pipelines = (),
        layout: Union[str, Mapping[str, str]] = "NCHW",
        framework: Optional[str] = None,
        name: str = "",
        timeout: Optional[float] = None,
        reconnect: Union[bool, float] = False,
    ) -> None:
        if not isinstance(dataset, Dataset):
            raise InvalidArgument(
                f"dataset={dataset!r}; expected what Client.load_dataset or "
                "get_dataset returned"
            )
        self.dataset = dataset
        self.batch_size = _checked_int("batch_size", batch_size, 1, 2**32 - 1)
        self.shuffle = bool(shuffle)
        self.seed = _checked_int("seed", seed, 0, 2**64 - 1)
        self.drop_last = bool(drop_last)
        self.world_size = _checked_int("world_size", world_size, 1, 2**32 - 1)
        self.rank = _checked_int("rank", rank, 0, self.world_size - 1)
        self.timeout = timeout
        self._reconnect_seconds = (
            60.0 if reconnect is True else float(reconnect or 0)
        )
        self._framework_name = _frameworks.resolve(framework)
        self._options: Dict[str, Any] = {
            "dataset": dataset.name,
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "seed": str(self.seed),
            "drop_last": self.drop_last,
            "rank": self.rank,
            "world_size": self.world_size,
            "fields": self._fields_message(transforms, layout),
            "name": name,
        }
        if prefetch is not None:
            self._options["prefetch"] = _checked_int(
                "prefetch", prefetch, 1, 62
            )

        self._library = _library.load()
        _frameworks.bind(self._library)
        self._error = _library.CError()
        self._error_address = ctypes.addressof(self._error)
        # The position of the batch after the last one handed out.
        self._position: Tuple[int, int] = (0, 0)
        self._loaded: Optional[Tuple[int, int]] = None
        self._requested_epoch: Optional[int] = None
        self._last_epoch = -1
        self._iterator: Optional["_EpochIterator"] = None
        self._waited_before = 0.0
        self._open()

    # -- Opening ------------------------------------------------------------

    def _fields_message(
        self, transforms: Pipelines, layout: Union[str, Mapping[str, str]]
    ) -> Dict[str, Any]:
        images = [f.name for f in self.dataset.fields if f.is_image]
        names = [f.name for f in self.dataset.fields]
        masks = [f.name for f in self.dataset.fields if f.is_mask]
        pipelines = pipelines_message("transforms", transforms, masks)
        for op in batch_ops(transforms):
            self._check_labels(op, pipelines)
        layouts = (
            dict(layout)
            if isinstance(layout, Mapping)
            else {field: layout for field in images}
        )
        for argument, keys in (("transforms", pipelines), ("layout", layouts)):
            for key in keys:
                if key not in names:
                    raise InvalidArgument(
                        f"{argument}: dataset '{self.dataset.name}' has no "
                        f"field {key!r}; it has {names}"
                    )
        if not isinstance(layout, Mapping) and layout not in _LAYOUTS:
            raise InvalidArgument(
                f"layout={layout!r}; expected one of {_LAYOUTS}"
            )
        message: Dict[str, Any] = {}
        for field, ops in pipelines.items():
            message.setdefault(field, {})["transforms"] = ops
        for field, value in layouts.items():
            if value not in _LAYOUTS or field not in images:
                raise InvalidArgument(
                    f"layout[{field!r}]={value!r}; expected one of "
                    f"{_LAYOUTS}, for an image field ({images})"
                )
            message.setdefault(field, {})["layout"] = "LAYOUT_" + value
        return message

    def _check_labels(self, op: Any, pipelines: Mapping[str, Any]) -> None:
        scalars = [
            f.name
            for f in self.dataset.fields
            if f.shape == () and "int" in f.dtype
        ]
        if op.labels not in scalars:
            raise InvalidArgument(
                f"transforms: {op!r}: labels={op.labels!r}; expected a field "
                f"of integers of dataset '{self.dataset.name}': {scalars}"
            )
        if pipelines.get(op.labels):
            raise InvalidArgument(
                f"transforms: {op!r} changes {op.labels!r} itself: give that "
                "field no transforms"
            )

    def _open(self) -> None:
        """Opens the feed at the current position."""
        epoch, index = self._position
        options = dict(self._options)
        options["start"] = {"epoch": str(epoch), "batch": str(index)}
        feed, info = self.dataset.client._open_feed(options)
        self._feed: Optional[ctypes.c_void_p] = feed
        self._close_feed = weakref.finalize(
            self, self._library.feed_close, feed
        )
        self._info = info
        self._num_batches = int(info["batches_per_epoch"])
        self.content_hash: str = info["content_hash"]
        self.transforms_hash: str = info["transforms_hash"]
        self.prefetch = int(info["prefetch"])
        self.num_samples = int(info["num_samples"])
        fields = [
            _frameworks.FieldInfo(
                field["name"],
                field["dtype"].replace("DTYPE_", "").lower(),
                tuple(int(extent) for extent in field["shape"]),
                tuple(int(stride) for stride in field["strides"]),
            )
            for field in info["layout"]["fields"]
        ]
        kind, number = ctypes.c_int32(), ctypes.c_int32()
        self._library.quick.feed_device(
            feed, ctypes.byref(kind), ctypes.byref(number)
        )
        try:
            self._framework = _frameworks.make(
                self._framework_name, (kind.value, number.value), fields
            )
        except BaseException:
            self.close()
            raise
        self._fields = fields
        self._batch_class = _batch_class(self._framework, fields)
        self._num_tensors = (
            len(fields) if self._framework.takes_tensors else 0
        )
        self._tensors = (ctypes.c_void_p * len(fields))()

    # -- Iterating ------------------------------------------------------------

    def __len__(self) -> int:
        """Batches of an epoch, for this rank."""
        return self._num_batches

    def __iter__(self) -> Iterator[Batch]:
        feed = self._require_feed()
        if self._loaded is not None:
            epoch, index = self._loaded
        elif self._requested_epoch is not None:
            epoch, index = self._requested_epoch, 0
        else:
            epoch, index = self._last_epoch + 1, 0
        self._seek(feed, epoch, index)
        self._loaded = None
        self._requested_epoch = None
        self._position = (epoch, index)
        self._last_epoch = epoch
        self._iterator = _EpochIterator(self, self._num_batches - index)
        return self._iterator

    def set_epoch(self, epoch: int) -> None:
        """The next iter() begins at `epoch`.

        A loaded position within that same epoch stays.
        """
        number = _checked_int("epoch", epoch, 0, 2**63 - 1)
        if self._loaded is not None and self._loaded[0] == number:
            return
        self._loaded = None
        self._requested_epoch = number

    def _seek(self, feed: ctypes.c_void_p, epoch: int, index: int) -> None:
        if self._num_batches == 0:
            return
        if self._library.quick.feed_seek(
            feed, epoch, index, ctypes.byref(self._error)
        ):
            raise self._error.to_exception()

    def _take(self) -> Batch:
        """The next batch, and the position after it."""
        framework = self._framework
        handle = _frameworks.Handle()
        address = _addressof(handle)
        tensors = self._tensors
        if self._library.quick.feed_next_tensors(
            self._feed,
            framework.stream(),
            0,
            address,
            tensors,
            self._num_tensors,
            self._error_address,
        ):
            self._wait(handle)
            framework = self._framework
            tensors = self._tensors
        fields = self._fields
        if self._num_tensors:
            arrays = self._convert(framework, tensors, handle.num_samples)
        else:
            arrays = [
                framework.from_handle(handle, i, info)
                for i, info in enumerate(fields)
            ]
        batch = self._batch_class(arrays)
        batch._handle = handle
        index = handle.index + 1
        if index < self._num_batches:
            self._position = (handle.epoch, index)
        else:
            self._position = (handle.epoch + 1, 0)
        return batch

    def _convert(self, framework: Any, tensors: Any, rows: int) -> List[Any]:
        addresses = list(tensors)
        arrays: List[Any] = []
        try:
            for address, info in zip(addresses, self._fields):
                arrays.append(framework.from_tensor(address, info, rows))
        except BaseException:
            # from_tensor took care of the one that failed.
            for address in addresses[len(arrays) + 1 :]:
                self._library.quick.tensor_delete(address)
            raise
        return arrays

    def _wait(self, handle: _frameworks.Handle) -> None:
        """Fills `handle`, which the first try could not."""
        deadline = (
            None
            if self.timeout is None
            else time.monotonic() + self.timeout
        )
        code = self._error.code
        while True:
            if code != _DEADLINE_EXCEEDED:
                error = self._error.to_exception()
                if self._reconnect_seconds <= 0 or not isinstance(
                    error, (DaemonGone, DaemonDraining)
                ):
                    raise error
                self._recover(error)
            elif deadline is not None and time.monotonic() >= deadline:
                raise DeadlineExceeded(
                    f"no batch came within {self.timeout} s (timeout=)"
                )
            step = _WAIT_STEP_NS
            if deadline is not None:
                left = int((deadline - time.monotonic()) * 1e9)
                step = max(0, min(step, left))
            # Without the GIL.
            if not self._library.feed_next_tensors(
                self._feed,
                self._framework.stream(),
                step,
                _addressof(handle),
                self._tensors,
                self._num_tensors,
                self._error_address,
            ):
                return
            code = self._error.code

    def _recover(self, cause: Error) -> None:
        """Reopens dataset and feed on a daemon that came back."""
        deadline = time.monotonic() + self._reconnect_seconds
        self._end_feed()
        client = self.dataset.client
        last: Error = cause
        while time.monotonic() < deadline:
            try:
                client._reconnect()
                if self.dataset._spec is not None:
                    dataset = client._load(self.dataset._spec, False)
                else:
                    dataset = client.get_dataset(self.dataset.name)
                if dataset.content_hash != self.content_hash:
                    raise FailedPrecondition(
                        f"dataset '{dataset.name}' came back with other "
                        f"samples: content_hash {dataset.content_hash}, was "
                        f"{self.content_hash}"
                    )
                self._open()
                return
            except (Unavailable, DaemonDraining, NotFound) as error:
                last = error
                time.sleep(0.2)
        raise last from cause

    # -- State ----------------------------------------------------------------

    def state_dict(self) -> Dict[str, Any]:
        """Where this job is: the batch after the last one handed out.

        Plain values, the same for all ranks.
        """
        if self._loaded is not None:
            epoch, index = self._loaded
        elif self._requested_epoch is not None:
            epoch, index = self._requested_epoch, 0
        else:
            epoch, index = self._position
        return {
            "version": _STATE_VERSION,
            "content_hash": self.content_hash,
            "seed": self.seed,
            "epoch": epoch,
            "batch": index,
            "batch_size": self.batch_size,
            "drop_last": self.drop_last,
            "sampler": "random" if self.shuffle else "sequential",
            "world_size": self.world_size,
            "transforms_hash": self.transforms_hash,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iter() goes on where state_dict() was taken.

        FailedPrecondition, naming the field, if the state is of another job:
        inside an epoch all must match; at batch 0, batch_size and world_size
        may differ.
        """
        mine = self.state_dict()
        missing = sorted(set(mine) - set(state))
        if missing:
            raise InvalidArgument(f"state_dict: {missing} is missing")
        if state["version"] != _STATE_VERSION:
            raise FailedPrecondition(
                f"state_dict: version is {state['version']!r}, this package "
                f"reads {_STATE_VERSION}"
            )
        epoch = _checked_int("state_dict: epoch", state["epoch"], 0, 2**63 - 1)
        index = _checked_int("state_dict: batch", state["batch"], 0, 2**63 - 1)
        for key in mine:
            if key in ("version", "epoch", "batch"):
                continue
            if index == 0 and key in ("batch_size", "world_size"):
                continue
            if state[key] != mine[key]:
                raise FailedPrecondition(
                    f"state_dict: {key} is {state[key]!r}, this loader has "
                    f"{mine[key]!r}"
                    + (f" (at batch {index} of epoch {epoch})" if index else "")
                )
        if index > 0 and index >= self._num_batches:
            raise InvalidArgument(
                f"state_dict: batch is {index}, an epoch has "
                f"{self._num_batches}"
            )
        self._loaded = (epoch, index)
        self._requested_epoch = None

    @property
    def waited_seconds(self) -> float:
        """Time that this process waited for batches."""
        if self._feed is None:
            return self._waited_before
        return self._waited_before + (
            self._library.quick.feed_waited_ns(self._feed) / 1e9
        )

    # -- Life -----------------------------------------------------------------

    def _require_feed(self) -> ctypes.c_void_p:
        if self._feed is None:
            raise Closed("the loader is closed")
        return self._feed

    def _end_feed(self) -> None:
        if self._feed is not None:
            self._waited_before = self.waited_seconds
            self._feed = None
            self._close_feed()

    def close(self) -> None:
        """Ends the feed. Batches that are still held stay valid."""
        self._end_feed()
        self._iterator = None

    def __enter__(self) -> "DataLoader":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"datasetd.DataLoader({self.dataset.name!r}, "
            f"batch_size={self.batch_size}, {self._num_batches} batches)"
        )


_addressof = ctypes.addressof


class _EpochIterator:
    """The rest of one epoch."""

    __slots__ = ("_loader", "_left", "epoch")

    def __init__(self, loader: DataLoader, left: int) -> None:
        self._loader = loader
        self._left = left
        self.epoch = loader._position[0]

    def __iter__(self) -> "_EpochIterator":
        return self

    def __next__(self) -> Batch:
        loader = self._loader
        if loader._iterator is not self:
            if self._left <= 0:
                raise StopIteration
            raise Closed(
                "the loader is closed"
                if loader._feed is None
                else "a newer iterator of this loader was made; it goes on "
                "where that one is"
            )
        if self._left <= 0:
            raise StopIteration
        loader._require_feed()
        batch = loader._take()
        self._left -= 1
        return batch

    def __len__(self) -> int:
        """Batches left."""
        return max(0, self._left)


__all__ = ["Batch", "DataLoader"]
