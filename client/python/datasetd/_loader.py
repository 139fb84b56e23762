"""DataLoader: a job's batches from a dataset."""

from __future__ import annotations

import array
import ctypes
import operator
import time
import weakref
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional
from typing import Sequence, Tuple, Union

from . import _benchmark, _frameworks, _library, _sampling
from ._ahead import SentAhead
from ._client import Dataset, Field
from .errors import (
    Aborted,
    Closed,
    DaemonDraining,
    DaemonGone,
    DeadlineExceeded,
    Error,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from .transforms._pipeline import Pipelines, batch_ops, pipelines_message

_DEADLINE_EXCEEDED = 4
# Python runs signal handlers between waits.
_WAIT_STEP_NS = 100_000_000
_LAYOUTS = ("NCHW", "NHWC")
_STATE_VERSION = 1
_RETRY_SECONDS = 0.2


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
      sampler: anything that gives sample indices when it is iterated, such as
        torch.utils.data.Sampler or a list: the order of each epoch, cut into
        batches. Excludes shuffle.
      batch_sampler: gives lists of indices: the batches. Excludes shuffle,
        sampler and drop_last; batch_size is then the most samples of a batch,
        where batch_sampler.batch_size does not say it.
      subset: sample indices, none twice: the loader draws from these alone, as
        from a dataset that holds them in this order.
      fields: names of the fields of a batch, in this order; None: all of them.
        An op draws the same for a sample whatever other fields there are.
      name: shown by `datasetctl feeds`.
      timeout: seconds to wait for a batch, and for the daemon to take what a
        sampler gave; None waits without end.
      reconnect: seconds to try to reach a daemon that was lost, to wait until
        it has the dataset again, and go on at the exact next batch; 0 or False
        raises DaemonGone at once, True is 60.

    iter() begins at the loaded position after load_state_dict; else at epoch e
    after set_epoch(e); else at the epoch after the last one begun, finished or
    broken off (first 0). A newer iterator invalidates the older one.

    A sampler runs in this process, ahead of the batches, and is iterated once
    an epoch, by iter(); set_epoch() and load_state_dict() tell it the epoch if
    it has set_epoch. What it gives may repeat samples, so that random
    transforms draw by the place in the epoch and not by the sample. To resume, one with
    state_dict and load_state_dict goes on from its state; another one is run
    anew up to the batch, and it is an error if it does not give what it gave.
    rank and world_size then only keep the draws of the ranks apart.

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
        sampler: Optional[Iterable[int]] = None,
        batch_sampler: Optional[Iterable[Iterable[int]]] = None,
        subset: Optional[Iterable[int]] = None,
        fields: Union[None, str, Sequence[str]] = None,
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
        chosen = self._chosen_fields(fields)
        self._options: Dict[str, Any] = {
            "dataset": dataset.name,
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "seed": str(self.seed),
            "drop_last": self.drop_last,
            "rank": self.rank,
            "world_size": self.world_size,
            "fields": self._fields_message(chosen, transforms, layout),
            "name": name,
        }
        if prefetch is not None:
            self._options["prefetch"] = _checked_int(
                "prefetch", prefetch, 1, 62
            )
        self._field_names = fields
        if fields is not None:
            self._options["field_names"] = [field.name for field in chosen]
        self._transforms = transforms
        self._layout = layout
        self._subset_hash: Optional[str] = None
        # None: the order is the daemon's.
        self._ahead: Optional[SentAhead] = None
        order = self._make_order(sampler, batch_sampler, subset)
        if order is not None:
            self._ahead = SentAhead(order, self._send_or_recover)
        self._fetcher: Any = None

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

    def _chosen_fields(
        self, fields: Union[None, str, Sequence[str]]
    ) -> List[Field]:
        there = {field.name: field for field in self.dataset.fields}
        if fields is None:
            return list(there.values())
        names = [fields] if isinstance(fields, str) else list(fields)
        for name in names:
            if not isinstance(name, str) or name not in there:
                raise InvalidArgument(
                    f"fields: dataset '{self.dataset.name}' has no field "
                    f"{name!r}; it has {list(there)}"
                )
        if len(set(names)) < len(names):
            raise InvalidArgument(f"fields: {names} names a field twice")
        if not names:
            raise InvalidArgument(
                f"fields: there are none; expected some of {list(there)}, or "
                "None for all"
            )
        return [there[name] for name in names]

    def _fields_message(
        self,
        fields: List[Field],
        transforms: Pipelines,
        layout: Union[str, Mapping[str, str]],
    ) -> Dict[str, Any]:
        images = [f.name for f in fields if f.is_image]
        names = [f.name for f in fields]
        masks = [f.name for f in fields if f.is_mask]
        pipelines = pipelines_message("transforms", transforms, masks)
        for op in batch_ops(transforms):
            self._check_labels(fields, op, pipelines)
        layouts = (
            dict(layout)
            if isinstance(layout, Mapping)
            else {field: layout for field in images}
        )
        for argument, keys in (("transforms", pipelines), ("layout", layouts)):
            for key in keys:
                if key in names:
                    continue
                if any(key == field.name for field in self.dataset.fields):
                    raise InvalidArgument(
                        f"{argument}: field {key!r} is not among "
                        f"fields={names}: name it there, too, or leave it out "
                        "here"
                    )
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

    def _check_labels(
        self, fields: List[Field], op: Any, pipelines: Mapping[str, Any]
    ) -> None:
        scalars = [
            f.name for f in fields if f.shape == () and "int" in f.dtype
        ]
        if op.labels not in scalars:
            raise InvalidArgument(
                f"transforms: {op!r}: labels={op.labels!r}; expected a field "
                f"of integers of dataset '{self.dataset.name}', and of the "
                f"loader's fields: {scalars}"
            )
        if pipelines.get(op.labels):
            raise InvalidArgument(
                f"transforms: {op!r} changes {op.labels!r} itself: give that "
                "field no transforms"
            )

    def _make_order(
        self,
        sampler: Any,
        batch_sampler: Any,
        subset: Optional[Iterable[int]],
    ) -> Optional[_sampling.SamplerOrder]:
        def exclude(argument: str, **others: bool) -> None:
            for other, is_given in others.items():
                if is_given:
                    raise InvalidArgument(
                        f"{argument}= and {other}= exclude each other"
                    )

        if batch_sampler is not None:
            exclude(
                "batch_sampler",
                sampler=sampler is not None,
                shuffle=self.shuffle,
                drop_last=self.drop_last,
                subset=subset is not None,
            )
        if sampler is not None:
            exclude(
                "sampler", shuffle=self.shuffle, subset=subset is not None
            )
        if subset is not None:
            indices = _sampling.index_array("subset", subset)
            self._options["subset"] = {"indices": indices.tolist()}
            self._subset_hash = _sampling.digest(indices).hex()
        if sampler is None and batch_sampler is None:
            return None
        order = _sampling.SamplerOrder(
            sampler, batch_sampler, self.batch_size, self.drop_last
        )
        self.batch_size = order.batch_size
        self._options["batch_size"] = order.batch_size
        self._options["drop_last"] = False
        self._options["client_order"] = {"draws_by_sample": False}
        return order

    def _open(self) -> None:
        """Opens the feed at the current position."""
        epoch, index = self._position
        options = dict(self._options)
        options["start"] = {"epoch": str(epoch), "batch": str(index)}
        self._connection = self.dataset.client._handle()
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
        if self._ahead is not None:
            self._ahead.set_limits(
                int(info["order_capacity"]), self.prefetch
            )
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
        if self._ahead is not None:
            return len(self._ahead.order)
        return self._num_batches

    def __iter__(self) -> Iterator[Batch]:
        self._require_feed()
        self._iterator = None
        if self._loaded is not None:
            epoch, index = self._loaded
        elif self._requested_epoch is not None:
            epoch, index = self._requested_epoch, 0
        else:
            epoch, index = self._last_epoch + 1, 0
        if self._ahead is not None:
            self._ahead.begin(index, self._loaded is not None)
        self._seek(epoch, index)
        self._loaded = None
        self._requested_epoch = None
        self._position = (epoch, index)
        self._last_epoch = epoch
        if self._ahead is None:
            self._iterator = _EpochIterator(self, self._num_batches - index)
        else:
            self._iterator = _SamplerIterator(self, 0)
            self._ahead.top_up()
        return _benchmark.watch(self, self._iterator)

    def set_epoch(self, epoch: int) -> None:
        """The next iter() begins at `epoch`.

        A loaded position within that same epoch stays.
        """
        number = _checked_int("epoch", epoch, 0, 2**63 - 1)
        if self._ahead is not None:
            self._ahead.order.set_epoch(number)
        if self._loaded is not None and self._loaded[0] == number:
            return
        self._loaded = None
        self._requested_epoch = number
        if self._ahead is not None:
            self._ahead.state = {}

    def _seek(self, epoch: int, index: int) -> None:
        if self._num_batches == 0 and self._ahead is None:
            return
        if self._library.quick.feed_seek(
            self._feed, epoch, index, ctypes.byref(self._error)
        ):
            error = self._error.to_exception()
            if not self._may_recover(error):
                raise error
            self._position = (epoch, index)
            self._recover(error)

    def _send_or_recover(self, block: List[_sampling.Drawn]) -> None:
        try:
            self._send(block)
        except (DaemonGone, DaemonDraining) as error:
            if self._reconnect_seconds <= 0:
                raise
            # Sends all that is pending.
            self._recover(error)

    def _send(self, block: List[_sampling.Drawn]) -> None:
        indices = array.array("q")
        for drawn in block:
            indices.extend(drawn.indices)
        sizes = array.array("I", [len(drawn.indices) for drawn in block])
        raised: List[BaseException] = []
        on_wait = _library.WaitFunction(
            _library.catching(lambda _: None, raised)
        )
        failed = self._library.feed_send_indices_within(
            self._feed,
            indices.buffer_info()[0],
            len(indices),
            sizes.buffer_info()[0],
            len(sizes),
            block[0].first_row,
            0,
            -1 if self.timeout is None else int(self.timeout * 1e9),
            on_wait,
            None,
            ctypes.byref(self._error),
        )
        if raised:
            raise raised[0]
        if failed:
            if self._error.code == _DEADLINE_EXCEEDED:
                raise DeadlineExceeded(
                    "the daemon did not take the sampler's indices within "
                    f"{self.timeout} s (timeout=)"
                )
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
        if self._ahead is not None:
            self._position = self._ahead.pass_on(handle.epoch, handle.index)
        elif index < self._num_batches:
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
                if not self._may_recover(error):
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

    def _may_recover(self, error: Error) -> bool:
        return self._reconnect_seconds > 0 and isinstance(
            error, (DaemonGone, DaemonDraining)
        )

    def _recover(self, cause: Error) -> None:
        """Reopens dataset and feed on a daemon that came back."""
        deadline = time.monotonic() + self._reconnect_seconds
        self._end_feed()
        client = self.dataset.client
        lost = self._connection
        last: Error = cause
        while time.monotonic() < deadline:
            try:
                client._reconnect(lost)
                lost = client._handle()
                dataset = self._await_dataset(deadline)
                if dataset.content_hash != self.content_hash:
                    raise FailedPrecondition(
                        f"dataset '{dataset.name}' came back with other "
                        f"samples: content_hash {dataset.content_hash}, was "
                        f"{self.content_hash}"
                    )
                self._open()
                dataset.close()  # the feed has its own hold
                if self._ahead is not None:
                    for block in self._ahead.blocks():
                        self._send(block)
                return
            except (Unavailable, Aborted, NotFound, Unauthenticated) as error:
                last = error
                time.sleep(_RETRY_SECONDS)
        raise last from cause

    def _await_dataset(self, deadline: float) -> Dataset:
        """The dataset on a new daemon, which may be loading it still."""
        name = self.dataset.name

        def check(*_: Any) -> None:
            if time.monotonic() >= deadline:
                raise DeadlineExceeded(
                    f"dataset '{name}' was still loading "
                    f"{self._reconnect_seconds:g} s after the daemon was lost "
                    "(reconnect=)"
                )

        client = self.dataset.client
        if self.dataset._spec is not None:
            return client._load(self.dataset._spec, check)
        while True:
            dataset = client.get_dataset(name)
            state = dataset._message["state"].replace("DATASET_STATE_", "")
            if state == "FAILED":
                raise FailedPrecondition(
                    f"dataset '{name}' did not come back: "
                    f"{dataset._message['error']}"
                )
            if state != "LOADING":
                return dataset
            dataset.close()
            check()
            time.sleep(_RETRY_SECONDS)

    # -- Random access --------------------------------------------------------

    def fetch(
        self, indices: Iterable[int], epoch: Optional[int] = None
    ) -> Batch:
        """A batch of just these samples, in this order.

        Through the loader's transforms, augmented as the daemon's own order
        augments them in `epoch` (None: the one last begun). It does not move
        the loader: it has a small feed of its own, opened by the first call and
        anew for more rows than before. A call then costs one round trip and
        the making of the batch.
        """
        self._require_feed()
        if self._fetcher is None:
            from ._fetch import Fetcher

            self._fetcher = Fetcher(
                self.dataset,
                {
                    "fields": self._field_names,
                    "transforms": self._transforms,
                    "layout": self._layout,
                    "seed": self.seed,
                    "framework": self._framework_name,
                    "timeout": self.timeout,
                },
            )
        if epoch is None:
            epoch = max(self._last_epoch, 0)
        return self._fetcher.fetch(indices, epoch)

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
        state = self._base_state(epoch, index)
        if self._ahead is not None:
            state.update(
                (key, value)
                for key, value in self._ahead.state.items()
                if value is not None
            )
        return state

    def _base_state(self, epoch: int, index: int) -> Dict[str, Any]:
        sampler = "random" if self.shuffle else "sequential"
        state = {
            "version": _STATE_VERSION,
            "content_hash": self.content_hash,
            "seed": self.seed,
            "epoch": epoch,
            "batch": index,
            "batch_size": self.batch_size,
            "drop_last": self.drop_last,
            "sampler": sampler if self._ahead is None else "given",
            "world_size": self.world_size,
            "transforms_hash": self.transforms_hash,
        }
        if self._subset_hash is not None:
            state["subset"] = self._subset_hash
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iter() goes on where state_dict() was taken.

        FailedPrecondition, naming the field, if the state is of another job:
        inside an epoch all must match; at batch 0, batch_size and world_size
        may differ. Whether a sampler gives what it gave is seen by iter().
        """
        mine = self._base_state(0, 0)
        missing = sorted(set(mine) - set(state) - {"subset"})
        if missing:
            raise InvalidArgument(f"state_dict: {missing} is missing")
        if state["version"] != _STATE_VERSION:
            raise FailedPrecondition(
                f"state_dict: version is {state['version']!r}, this package "
                f"reads {_STATE_VERSION}"
            )
        epoch = _checked_int("state_dict: epoch", state["epoch"], 0, 2**63 - 1)
        index = _checked_int("state_dict: batch", state["batch"], 0, 2**63 - 1)
        for key in (*mine, "subset"):
            if key in ("version", "epoch", "batch"):
                continue
            if index == 0 and key in ("batch_size", "world_size"):
                continue
            if state.get(key) != mine.get(key):
                raise FailedPrecondition(
                    f"state_dict: {key} is {state.get(key)!r}, this loader has "
                    f"{mine.get(key)!r}"
                    + (f" (at batch {index} of epoch {epoch})" if index else "")
                )
        if self._ahead is None:
            if index > 0 and index >= self._num_batches:
                raise InvalidArgument(
                    f"state_dict: batch is {index}, an epoch has "
                    f"{self._num_batches}"
                )
        else:
            self._ahead.state = self._checked_order_state(state, index)
            self._ahead.order.set_epoch(epoch)
        self._loaded = (epoch, index)
        self._requested_epoch = None

    @staticmethod
    def _checked_order_state(
        state: Mapping[str, Any], index: int
    ) -> Dict[str, Any]:
        result = {"sampler_state": state.get("sampler_state")}
        if index == 0:
            return result
        for key in ("row", "order_hash"):
            if key not in state:
                raise InvalidArgument(f"state_dict: [{key!r}] is missing")
        result["row"] = _checked_int(
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
        if self._fetcher is not None:
            self._fetcher.close()
        self._end_feed()
        self._iterator = None

    def __enter__(self) -> "DataLoader":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        batches = (
            f"{self._num_batches} batches"
            if self._ahead is None
            else "the order of a sampler"
        )
        return (
            f"datasetd.DataLoader({self.dataset.name!r}, "
            f"batch_size={self.batch_size}, {batches})"
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


class _SamplerIterator(_EpochIterator):
    """The rest of one epoch of a sampler's, whose end it tells."""

    __slots__ = ()

    def __next__(self) -> Batch:
        loader = self._loader
        if loader._iterator is not self:
            raise Closed(
                "the loader is closed"
                if loader._feed is None
                else "a newer iterator of this loader was made; it goes on "
                "where that one is"
            )
        loader._ahead.top_up()
        if not loader._ahead.has_more():
            raise StopIteration
        # In no local: an error of the sampler's may keep this frame.
        return loader._take()

    def __len__(self) -> int:
        """Batches left, by the sampler's word."""
        epoch, index = self._loader._position
        num_passed = index if epoch == self.epoch else len(self._loader)
        return max(0, len(self._loader) - num_passed)


__all__ = ["Batch", "DataLoader"]
