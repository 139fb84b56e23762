"""Client and Dataset."""

from __future__ import annotations

import ctypes
import json
import operator
import os
import threading
import weakref
from typing import Any, Callable, Dict, Iterable, List, Literal, Mapping
from typing import NamedTuple, Optional, Sequence, Set, Tuple, Union, overload

from . import _library
from . import _push
from ._progress import make_progress
from .errors import Closed, InvalidArgument
from .transforms._pipeline import Pipelines, pipelines_message

Progress = Union[bool, Callable[[Dict[str, Any]], None]]


class Field(NamedTuple):
    """One named array of a dataset; `shape` is a sample's.

    It is (-1, -1, C) where samples have sizes of their own, and `smallest` and
    `largest` are (height, width), by each axis, of all of them.
    """

    name: str
    dtype: str
    shape: Tuple[int, ...]
    is_image: bool
    is_mask: bool = False  # an image of classes
    smallest: Optional[Tuple[int, int]] = None
    largest: Optional[Tuple[int, int]] = None


class DrawnOp(NamedTuple):
    """One thing that an op does to a sample.

    An op may do several, such as Pad and Crop; what changes nothing is left
    out. Names and parameters are those of torchvision's functional forms, and
    there are no parameters where it is not applied.
    """

    field: str
    position: int  # in the field's transforms; depth first
    name: str
    is_applied: bool  # not where p or a RandomApply left it out
    parameters: Dict[str, Tuple[float, ...]]


# Samples of one call.
_EXPLAINED_AT_ONCE = 64

class BadSample(NamedTuple):
    """A sample that could not be read or decoded; `offset` is its place in the
    file."""

    index: int
    path: str
    offset: int
    reason: str


class LoadEstimate(NamedTuple):
    """What a load would find and need; `problem` says why it would fail.

    `smallest` and `largest` are (height, width) of the source's images where
    they may differ. `host_bytes` is the most that loading takes of the host.
    """

    device: str
    num_samples: int
    fields: List[Field]
    num_classes: int
    source_bytes: int
    resident_bytes: int
    scratch_bytes: int
    free_bytes: int
    host_bytes: int
    smallest: Optional[Tuple[int, int]]
    largest: Optional[Tuple[int, int]]
    num_bad_samples: int
    bad_samples: List[BadSample]
    problem: str


def _extent(
    size: Optional[Dict[str, Any]]
) -> Optional[Tuple[int, int]]:
    return (int(size["height"]), int(size["width"])) if size else None


def _fields(messages: Sequence[Dict[str, Any]]) -> List[Field]:
    return [
        Field(
            field["name"],
            field["dtype"].replace("DTYPE_", "").lower(),
            tuple(int(extent) for extent in field["shape"]),
            bool(field["is_image"]),
            bool(field.get("is_mask", False)),
            _extent(field.get("smallest")),
            _extent(field.get("largest")),
        )
        for field in messages
    ]


def _bad_samples(messages: Sequence[Dict[str, Any]]) -> List[BadSample]:
    return [
        BadSample(
            int(sample["index"]),
            sample["path"],
            int(sample["offset"]),
            sample["reason"],
        )
        for sample in messages
    ]


def _estimate(message: Dict[str, Any]) -> LoadEstimate:
    return LoadEstimate(
        device=message["device"],
        fields=_fields(message["fields"]),
        smallest=_extent(message.get("smallest")),
        largest=_extent(message.get("largest")),
        bad_samples=_bad_samples(message["bad_samples"]),
        problem=message["problem"],
        **{
            name: int(message[name])
            for name in (
                "num_samples",
                "num_classes",
                "source_bytes",
                "resident_bytes",
                "scratch_bytes",
                "free_bytes",
                "host_bytes",
                "num_bad_samples",
            )
        },
    )


def _mask_names(options: Mapping[str, Any]) -> Set[str]:
    """The fields that a reader makes masks, before it has read anything."""
    names = {"mask"}
    for item in str(options.get("masks", "")).split(","):
        name = item.strip()
        if name.startswith("-"):
            names.discard(name[1:])
        else:
            names.add(name)
    return names


class Dataset:
    """A dataset that the daemon keeps for this client.

    The daemon may drop it when every client has closed it or is gone.
    """

    def __init__(
        self,
        client: "Client",
        message: Dict[str, Any],
        spec: Optional[Dict[str, Any]],
    ) -> None:
        self._client = client
        self._spec = spec
        self._message = message
        self._is_open = True
        self.name: str = message["name"]
        self.num_samples = int(message["num_samples"])
        self.fields: List[Field] = _fields(message["fields"])
        self.device: str = message["device"]
        self.format: str = message["format"]
        self.path: str = message["path"]
        self.split: str = message["split"]
        self.resident_bytes = int(message["resident_bytes"])
        self.spec_id: str = message["spec_id"]
        self.content_hash: str = message["content_hash"]
        self.class_names: List[str] = list(message["class_names"])
        # Skipped or replaced while loading; the first 1000 are listed.
        self.num_bad_samples = int(message["num_bad_samples"])
        self.bad_samples = _bad_samples(message["bad_samples"])

    @property
    def client(self) -> "Client":
        return self._client

    def __len__(self) -> int:
        return self.num_samples

    def close(self) -> None:
        """Gives up the hold. Open loaders keep their own."""
        if self._is_open:
            self._is_open = False
            self._client._release(self.name)

    def __enter__(self) -> "Dataset":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"datasetd.Dataset({self.name!r}, {self.num_samples} samples, "
            f"device={self.device!r}, "
            f"fields={[field.name for field in self.fields]})"
        )


class _Connection:
    """One datasetd_client; closed when nothing refers to it any more."""

    def __init__(self, address: str, timeout: float) -> None:
        library = _library.load()
        options = _library.CClientOptions()
        options.struct_size = ctypes.sizeof(options)
        options.address = address.encode()
        options.connect_timeout_ns = int(timeout * 1e9)
        handle = ctypes.c_void_p()
        error = _library.CError()
        if library.client_connect(
            ctypes.byref(options), ctypes.byref(handle), ctypes.byref(error)
        ):
            raise error.to_exception()
        self.handle = handle
        self.address: str = library.client_address(handle).decode()
        self.close = weakref.finalize(self, library.client_close, handle)


_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


def _free_locks() -> None:
    # In a child of fork(): the thread that held one is not there.
    for client in _clients:
        client._lock = threading.Lock()


os.register_at_fork(after_in_child=_free_locks)


class Client:
    """A connection to a daemon. Thread-safe."""

    def __init__(
        self, address: Optional[str] = None, timeout: float = 10.0
    ) -> None:
        self._library = _library.load()
        self._timeout = timeout
        self._lock = threading.Lock()
        _clients.add(self)
        self._holds: Dict[str, int] = {}
        self._connection: Optional[_Connection] = _Connection(
            address or "", timeout
        )
        self.address = self._connection.address

    # -- Datasets ---------------------------------------------------------

    @overload
    def load_dataset(
        self, *arguments: Any, dry_run: Literal[True], **more: Any
    ) -> LoadEstimate: ...

    @overload
    def load_dataset(self, *arguments: Any, **more: Any) -> Dataset: ...

    def load_dataset(
        self,
        name: str,
        format: str,
        path: Union[str, "os.PathLike[str]", None] = None,
        split: Optional[str] = None,
        pretransforms: Pipelines = (),
        device: Optional[str] = None,
        options: Optional[Mapping[str, str]] = None,
        progress: Progress = False,
        bad_samples: str = "fail",
        max_bad_samples: Optional[int] = None,
        dry_run: bool = False,
    ) -> Union[Dataset, LoadEstimate]:
        """Loads a dataset, or attaches to what the same arguments loaded.

        Args:
          name: 1 to 128 characters of [A-Za-z0-9._-].
          format: a reader of the daemon; docs/formats.md lists them with their
            options, status() names those that this daemon has.
          path: made absolute here; opened by the daemon, below its data roots.
          split: None is the reader's default.
          pretransforms: run once, at load; a list, for `image` or the `fields`
            of each op, or a dict by field.
          device: "cuda:0", "cpu"; None is the daemon's first one.
          options: of the reader.
          progress: True shows a bar of tqdm, or without it a line on stderr; a
            function is called with the Dataset message as a dict (of a dry run
            the EstimateLoadResponse), and what it raises ends the load.
          bad_samples: what becomes of samples that cannot be read or decoded:
            "fail" ends the load; "skip" leaves them out; "replace" puts the
            good sample before in their place. See Dataset.bad_samples.
          max_bad_samples: a load that skips or replaces more fails; None is
            100.
          dry_run: loads nothing and returns a LoadEstimate.
        """
        spec: Dict[str, Any] = {
            "name": name,
            "format": format,
            "path": "" if path is None else os.path.abspath(os.fspath(path)),
            "split": split or "",
            "device": device or "",
            "pretransforms": {
                field: {"transforms": ops}
                for field, ops in pipelines_message(
                    "pretransforms", pretransforms, _mask_names(options or {})
                ).items()
            },
            "options": {
                key: str(value).lower() if isinstance(value, bool) else
                str(value)
                for key, value in (options or {}).items()
            },
            "bad_samples": f"BAD_SAMPLE_POLICY_{bad_samples.upper()}",
        }
        if bad_samples not in ("fail", "skip", "replace"):
            raise InvalidArgument(
                f"bad_samples is {bad_samples!r}: expected 'fail', 'skip' or "
                "'replace'"
            )
        if max_bad_samples is not None:
            spec["max_bad_samples"] = max_bad_samples
        if dry_run:
            message = self._wait("estimate_load", spec, progress)
            return _estimate(message)
        return self._load(spec, progress)

    def _load(self, spec: Dict[str, Any], progress: Progress) -> Dataset:
        return self._hold(self._wait("load_dataset", spec, progress), spec)

    def _wait(
        self, function: str, spec: Dict[str, Any], progress: Progress
    ) -> Dict[str, Any]:
        """The result of a call that tells how far it is."""
        raised: List[BaseException] = []
        report = (
            make_progress(spec["name"])
            if progress is True
            else progress or None
        )

        def on_progress(text: bytes) -> None:
            if callable(report):
                report(json.loads(text))

        callback = _library.ProgressFunction(
            _library.catching(on_progress, raised)
        )
        try:
            text = self._call_text(function, _encode(spec), callback, None)
        finally:
            if progress is True:
                report.close()
            if raised:
                raise raised[0]
        return json.loads(text)

    def push_dataset(
        self,
        name: str,
        samples: Iterable[Any],
        fields: _push.Fields = None,
        pretransforms: Pipelines = (),
        device: Optional[str] = None,
        class_names: Optional[Sequence[str]] = None,
        progress: Progress = False,
        ragged: bool = False,
    ) -> Dataset:
        """Makes a dataset of Python samples, which are sent once.

        A name that is taken raises AlreadyExists: get_dataset(name) then holds
        what is there.

        Args:
          name: as of load_dataset.
          samples: a torch Dataset, a Hugging Face dataset, a list, or any
            iterable. A sample is a value, a tuple or a dict of values: torch
            tensors, NumPy arrays, PIL images, numbers. All have the dtypes and
            shapes of the first. Without len(), they are kept in a temporary
            file until their number is known.
          fields: names of a sample's values; of a dict, the keys to send. A dict
            gives kinds, too: "image" (H, W) or (H, W, C), "image_chw" (C, H, W),
            "array", "auto". Unset, the first image is `image`, the first whole
            number `label`. By "auto", PIL images, uint8 or float32 arrays (H,
            W, C) and torch tensors (C, H, W) of up to 4 channels, and uint8
            arrays (H, W), are images.
          pretransforms, device, progress: as of load_dataset.
          class_names: None takes those of a torchvision dataset.
          ragged: images may differ in height and width; then they stay as they
            are, and a loader's transforms make them one size. All are kept in a
            temporary file first.
        """
        header: Dict[str, Any] = {
            "name": name,
            "device": device or "",
            "pretransforms": {
                field: {"transforms": ops}
                for field, ops in pipelines_message(
                    "pretransforms", pretransforms
                ).items()
            },
            "class_names": list(
                _push.class_names_of(samples)
                if class_names is None
                else class_names
            ),
        }
        report = make_progress(name) if progress is True else progress or None
        try:
            message = _push.push(
                self._handle(), header, samples, fields, report, ragged
            )
        finally:
            if progress is True:
                report.close()
        return self._hold(message, None)

    def get_dataset(self, name: str) -> Dataset:
        """Holds and describes a dataset that was loaded before."""
        text = self._call_text("get_dataset", name.encode())
        return self._hold(json.loads(text), None)

    def list_datasets(self) -> List[Dict[str, Any]]:
        """Every dataset of the daemon, as Dataset messages in dicts."""
        return json.loads(self._call_text("list_datasets"))["datasets"]

    def unload_dataset(self, name: str, force: bool = False) -> None:
        """Takes a dataset out of memory.

        FailedPrecondition if it has open feeds, unless `force`: then their
        loaders raise DatasetUnloaded.
        """
        self._call("unload_dataset", name.encode(), int(force))

    def fetch(
        self,
        dataset: Dataset,
        indices: Sequence[int],
        transforms: Pipelines = (),
        layout: Union[str, Mapping[str, str]] = "NCHW",
        seed: int = 0,
        epoch: int = 0,
        framework: Optional[str] = None,
        timeout: Optional[float] = None,
        fields: Union[None, str, Sequence[str]] = None,
    ) -> Any:
        """A Batch of just these samples, in this order.

        Augmented as a DataLoader with this seed augments them in `epoch`. Opens
        a feed and closes it: for repeated use take DataLoader.fetch.
        """
        from ._fetch import Fetcher

        fetcher = Fetcher(
            dataset,
            {
                "fields": fields,
                "transforms": transforms,
                "layout": layout,
                "seed": seed,
                "framework": framework,
                "timeout": timeout,
            },
        )
        try:
            return fetcher.fetch(indices, epoch)
        finally:
            fetcher.close()

    def list_feeds(self) -> List[Dict[str, Any]]:
        """Every feed of the daemon, as Feed messages in dicts."""
        return json.loads(self._call_text("list_feeds"))["feeds"]

    def explain(
        self,
        dataset: "Dataset",
        transforms: Pipelines,
        seed: int = 0,
        epoch: int = 0,
        indices: Iterable[int] = (0,),
    ) -> List[List[DrawnOp]]:
        """What a loader with these `transforms` and `seed` draws in `epoch`.

        A list for each of the samples `indices`: what is done to its images,
        as it is done, field by field.
        """
        fields = {
            field: {"transforms": ops}
            for field, ops in pipelines_message(
                "transforms",
                transforms,
                [field.name for field in dataset.fields if field.is_mask],
            ).items()
        }
        try:
            wanted = [str(operator.index(index)) for index in indices]
        except TypeError as error:
            raise InvalidArgument(f"indices: {error}; expected ints") from None
        samples: List[List[DrawnOp]] = []
        for begin in range(0, len(wanted), _EXPLAINED_AT_ONCE):
            request = {
                "dataset": dataset.name,
                "fields": fields,
                "seed": str(operator.index(seed)),
                "epoch": str(operator.index(epoch)),
                "indices": wanted[begin : begin + _EXPLAINED_AT_ONCE],
            }
            response = json.loads(
                self._call_text("explain_transforms", _encode(request))
            )
            samples.extend(
                [_drawn_op(op) for op in sample["ops"]]
                for sample in response["samples"]
            )
        return samples

    def status(self) -> Dict[str, Any]:
        """The daemon's version, devices and memory, as a dict."""
        return json.loads(self._call_text("get_status"))

    # -- Life -------------------------------------------------------------

    def close(self) -> None:
        """Ends the session. The daemon drops what only it held; open loaders
        go on."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"datasetd.Client({self.address!r})"

    # -- For the package ----------------------------------------------------

    def _handle(self) -> _Connection:
        connection = self._connection
        if connection is None:
            raise Closed("the client is closed")
        return connection

    def _call(self, name: str, *arguments: Any) -> None:
        connection = self._handle()
        error = _library.CError()
        function = getattr(self._library, name)
        if function(connection.handle, *arguments, ctypes.byref(error)):
            raise error.to_exception()

    def _call_text(self, name: str, *arguments: Any) -> str:
        text = ctypes.c_void_p()
        self._call(name, *arguments, ctypes.byref(text))
        return self._library.take_text(text)

    def _hold(
        self, message: Dict[str, Any], spec: Optional[Dict[str, Any]]
    ) -> Dataset:
        dataset = Dataset(self, message, spec)
        with self._lock:
            self._holds[dataset.name] = self._holds.get(dataset.name, 0) + 1
        return dataset

    def _release(self, name: str) -> None:
        # The daemon counts sessions, not objects.
        with self._lock:
            self._holds[name] -= 1
            is_last = self._holds[name] == 0
            is_open = self._connection is not None
        if is_last and is_open:
            self._call("release_dataset", name.encode())

    def _open_feed(
        self, options: Dict[str, Any]
    ) -> Tuple[ctypes.c_void_p, Dict[str, Any]]:
        connection = self._handle()
        feed = ctypes.c_void_p()
        text = ctypes.c_void_p()
        error = _library.CError()
        if self._library.feed_open(
            connection.handle,
            _encode(options),
            ctypes.byref(feed),
            ctypes.byref(text),
            ctypes.byref(error),
        ):
            raise error.to_exception()
        return feed, json.loads(self._library.take_text(text))

    def _reconnect(self, lost: _Connection) -> None:
        """A new session in the place of `lost`, whose daemon is gone; unless
        another loader has made one."""
        with self._lock:
            if self._connection not in (lost, None):
                return
        connection = _Connection(self.address, self._timeout)
        with self._lock:
            if self._connection is None:
                raise Closed("the client is closed")
            self._connection = connection


def _drawn_op(op: Dict[str, Any]) -> DrawnOp:
    return DrawnOp(
        op["field"],
        int(op["position"]),
        op["name"],
        bool(op["is_applied"]),
        {
            parameter["name"]: tuple(float(v) for v in parameter["values"])
            for parameter in op["parameters"]
        },
    )


def _encode(message: Dict[str, Any]) -> bytes:
    try:
        return json.dumps(message, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidArgument(
            f"an argument has no JSON form: {error}"
        ) from None


def connect(address: Optional[str] = None, timeout: float = 10.0) -> Client:
    """Connects to the daemon at `address`.

    "unix:/path/datasetd.sock" or the path; None is $DATASETD_ADDRESS, and
    without that /run/datasetd/datasetd.sock. DaemonGone if none is there.
    """
    return Client(address, timeout)
