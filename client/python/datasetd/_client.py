"""Client: what a process asks of a daemon."""

from __future__ import annotations

import json
import operator
import os
from typing import (
    Any,
    Dict,
    Iterable,
    List,
    Literal,
    Mapping,
    NoReturn,
    Optional,
    Sequence,
    Union,
    overload,
)

from . import _loading, _push
from ._arguments import checked_seconds, encode
from ._batch import Batch
from ._data import class_names_of
from ._dataset import Dataset
from ._descriptions import DrawnOp, LoadEstimate, drawn_ops_of, estimate_of
from ._loader import make_fetcher
from ._loading import Progress
from ._progress import make_progress
from ._samples import Fields
from ._session import Session
from .errors import InvalidArgument
from .transforms._pipeline import Pipelines, pipelines_message

# Samples of one call.
_EXPLAINED_AT_ONCE = 64

Path = Union[str, "os.PathLike[str]"]


class Client:
    """A connection to a daemon. Thread-safe.

    Of this process alone: neither pickled nor used after fork(); another one
    connects for itself.
    """

    def __init__(
        self, address: Optional[str] = None, timeout: float = 10.0
    ) -> None:
        """As connect()."""
        self._session = Session(
            address or "", checked_seconds("timeout", timeout)
        )
        self.address = self._session.address

    # -- Datasets -----------------------------------------------------------

    @overload
    def load_dataset(
        self,
        name: str,
        format: str,
        path: Optional[Path] = ...,
        split: Optional[str] = ...,
        pretransforms: Pipelines = ...,
        device: Optional[str] = ...,
        options: Optional[Mapping[str, Any]] = ...,
        progress: Progress = ...,
        bad_samples: str = ...,
        max_bad_samples: Optional[int] = ...,
        dry_run: Literal[False] = ...,
    ) -> Dataset: ...

    @overload
    def load_dataset(
        self,
        name: str,
        format: str,
        path: Optional[Path] = ...,
        split: Optional[str] = ...,
        pretransforms: Pipelines = ...,
        device: Optional[str] = ...,
        options: Optional[Mapping[str, Any]] = ...,
        progress: Progress = ...,
        bad_samples: str = ...,
        max_bad_samples: Optional[int] = ...,
        *,
        dry_run: Literal[True],
    ) -> LoadEstimate: ...

    def load_dataset(
        self,
        name: str,
        format: str,
        path: Optional[Path] = None,
        split: Optional[str] = None,
        pretransforms: Pipelines = (),
        device: Optional[str] = None,
        options: Optional[Mapping[str, Any]] = None,
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
        spec = _loading.dataset_spec(
            name,
            format,
            path,
            split,
            pretransforms,
            device,
            options,
            bad_samples,
            max_bad_samples,
        )
        if dry_run:
            return estimate_of(
                _loading.estimate(self._session, spec, progress)
            )
        message = _loading.load(self._session, spec, progress)
        return Dataset(self, self._session, message, spec)

    def push_dataset(
        self,
        name: str,
        data: Any,
        fields: Fields = None,
        pretransforms: Pipelines = (),
        device: Optional[str] = None,
        class_names: Optional[Sequence[str]] = None,
        progress: Progress = False,
        ragged: bool = False,
        if_exists: str = "same",
    ) -> Dataset:
        """Makes a dataset of what Python holds, which is sent once.

        Columns are sent at the speed of memory, without Python for each sample:
        `push_dataset("d", {"x": X, "y": y})`. Samples are drawn one by one:
        `push_dataset("d", samples)`.

        Args:
          name: as of load_dataset.
          data: columns or samples. Columns are arrays [N, ...], N the number of
            samples: a dict of them by field, a tuple (X, y), one alone, a
            TensorDataset, a DataFrame, a pyarrow Table, a Hugging Face Dataset
            of numbers, or what a function of datasetd.sources returns. An
            array is NumPy's, a memmap, a torch tensor, a list of numbers, or
            what has shape and dtype and is sliced, as h5py's and zarr's are;
            it is read in order, and need not fit into memory. Samples are a
            torch Dataset, a list or any iterable; a sample is a value, a tuple
            or a dict of values: torch tensors, NumPy arrays, PIL images,
            numbers. All have the dtypes and shapes of the first. Without
            len(), they are kept in a temporary file until their number is
            known.
          fields: names of a sample's values; of a dict or a table, the keys to
            send. A dict gives kinds, too: "image" (H, W) or (H, W, C),
            "image_chw" (C, H, W), "mask" (an image of classes, which geometry
            samples by nearest), "array", "auto". Unset, the first image is
            `image`, the first whole number `label`. By "auto", PIL images,
            uint8 or float32 arrays (H, W, C) and torch tensors (C, H, W) of up
            to 4 channels, and uint8 arrays (H, W), are images; one that is
            called `mask` is a mask. PIL images of 16 or 32 bits are int32, of
            mode F float32.
          pretransforms, device, progress: as of load_dataset.
          class_names: None takes those of the data: `classes` of a torchvision
            dataset, a ClassLabel of a Hugging Face one.
          ragged: images may differ in height and width; then they stay as they
            are, and a loader's transforms make them one size. All are kept in a
            temporary file first.
          if_exists: when the name is taken: "same" attaches if the content is
            the same, and raises AlreadyExists if it is not; "keep" takes what
            is there, "replace" unloads it first, "error" raises
            AlreadyExists. What another process is just pushing is waited for.
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
                class_names_of(data) if class_names is None else class_names
            ),
        }
        report: Any = (
            make_progress(name) if progress is True else progress or None
        )
        try:
            message = _push.push(
                self,
                self._session,
                header,
                data,
                fields,
                report,
                ragged,
                if_exists,
            )
        finally:
            if progress is True:
                report.close()
        return Dataset(self, self._session, message, None)

    def get_dataset(self, name: str) -> Dataset:
        """Holds and describes a dataset that was loaded before."""
        text = self._session.call_text("get_dataset", name.encode())
        return self._held(json.loads(text))

    def _held(self, message: Dict[str, Any]) -> Dataset:
        self._session.hold(message["name"])
        return Dataset(self, self._session, message, None)

    def list_datasets(self) -> List[Dict[str, Any]]:
        """Every dataset of the daemon, as Dataset messages in dicts."""
        return list(self._response("list_datasets")["datasets"])

    def unload_dataset(self, name: str, force: bool = False) -> None:
        """Takes a dataset out of memory.

        FailedPrecondition if it has open feeds, unless `force`: then their
        loaders raise DatasetUnloaded.
        """
        self._session.call("unload_dataset", name.encode(), int(force))

    def fetch(
        self,
        dataset: Dataset,
        indices: Iterable[int],
        transforms: Pipelines = (),
        layout: Union[str, Mapping[str, str]] = "NCHW",
        seed: int = 0,
        epoch: int = 0,
        framework: Optional[str] = None,
        timeout: Optional[float] = None,
        fields: Union[None, str, Sequence[str]] = None,
    ) -> Batch:
        """A Batch of just these samples, in this order.

        Augmented as a DataLoader with this seed augments them in `epoch`. Opens
        a feed and closes it: for repeated use take DataLoader.fetch.
        """
        fetcher = make_fetcher(
            dataset,
            fields=fields,
            transforms=transforms,
            layout=layout,
            seed=seed,
            framework=framework,
            timeout=timeout,
        )
        try:
            return fetcher.fetch(indices, epoch)
        finally:
            fetcher.close()

    # -- The daemon -----------------------------------------------------------

    def list_feeds(self) -> List[Dict[str, Any]]:
        """Every feed of the daemon, as Feed messages in dicts."""
        return list(self._response("list_feeds")["feeds"])

    def explain(
        self,
        dataset: Dataset,
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
            response = self._response("explain_transforms", encode(request))
            samples.extend(
                drawn_ops_of(sample["ops"]) for sample in response["samples"]
            )
        return samples

    def status(self) -> Dict[str, Any]:
        """The daemon's version, devices and memory, as a dict."""
        return self._response("get_status")

    def _response(self, function: str, *arguments: Any) -> Dict[str, Any]:
        message: Dict[str, Any] = json.loads(
            self._session.call_text(function, *arguments)
        )
        return message

    # -- Life -----------------------------------------------------------------

    def close(self) -> None:
        """Ends the session. The daemon drops what only it held; open loaders
        go on, and so do calls that are under way in other threads."""
        self._session.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a datasetd.Client is a connection of its process: in the other "
            f"one, call datasetd.connect({self.address!r})"
        )

    def __repr__(self) -> str:
        return f"datasetd.Client({self.address!r})"


def connect(address: Optional[str] = None, timeout: float = 10.0) -> Client:
    """Connects to the daemon at `address`.

    "unix:/path/datasetd.sock" or the path; None is $DATASETD_ADDRESS, and
    without that /run/datasetd/datasetd.sock. DaemonGone if none is there
    within `timeout` seconds.
    """
    return Client(address, timeout)
