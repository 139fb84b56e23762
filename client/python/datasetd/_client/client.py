"""Client: a connection to a daemon."""

from __future__ import annotations

import functools
import operator
import os
import weakref
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    Literal,
    Mapping,
    NoReturn,
    Optional,
    Sequence,
    Tuple,
    Union,
    overload,
)

from .._arguments import (
    absolute,
    checked_int,
    checked_seconds,
    device_name,
    loader_timeout,
)
from .._batches.batch import Batch
from .._batches.frameworks import resolve
from .._connection.session import Session
from .._datasets import parts
from .._datasets.dataset import Dataset
from .._datasets.mixture import Mixture
from .._datasets.reading import read
from .._datasets.subset import Samples, whole_of
from .._descriptions import DrawnOp, LoadEstimate, drawn_ops_of, estimate_of
from .._feed.options import chosen_fields, fields_message, image_field
from .._order.sampling import index_array
from .._order.windows import GivenWindows, as_windows, cut_of
from .._push import encoded, push
from .._push.data import with_kinds
from .._push.samples import Fields
from .._ranks import nodes
from ..errors import FailedPrecondition, InvalidArgument, NotFound, OutOfRange
from ..transforms._pipeline import Pipelines, pipelines_message
from . import folders, formats, loading
from .folders import Paths
from .loading import Classes, LoadOptions, Progress
from .progress import make_progress

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack

SYSTEM_ADDRESS = "/run/datasetd/datasetd.sock"
# Samples per call.
_EXPLAINED_AT_ONCE = 64

Device = Union[
    None, str, "torch.device", Sequence[Union[str, "torch.device"]]
]


class Client:
    """A connection to a daemon. Thread-safe.

    Belongs to one process: it cannot be pickled or used after fork(). Connect
    in every process. A child of fork() can connect only if no client was open
    at the fork; otherwise use multiprocessing's "spawn".
    """

    def __init__(
        self,
        address: Optional[str] = None,
        timeout: float = 10.0,
        start_daemon: Optional[Callable[[], None]] = None,
    ) -> None:
        """Connects to the daemon at `address`, "unix:/path/datasetd.sock" or
        the path. None: $DATASETD_ADDRESS, else the system's daemon, else the
        latest one that jobs of this user share. Waits for a daemon that is
        starting, also after one that is shutting down; if there is none within
        `timeout` seconds, raises DaemonGone, or DaemonDraining while the old
        one is still there.

        With `start_daemon`, which is called before a lost daemon is looked
        for, it does not wait for one."""
        self._session = Session(
            address or "", checked_seconds("timeout", timeout), start_daemon
        )
        self.address = self._session.address

    # -- Datasets -----------------------------------------------------------

    @overload
    def load_dataset(
        self,
        name: str,
        format: str,
        path: Paths = ...,
        split: Optional[str] = ...,
        pretransforms: Pipelines = ...,
        device: Device = ...,
        options: Optional[Mapping[str, Any]] = ...,
        progress: Progress = ...,
        bad_samples: str = ...,
        max_bad_samples: Optional[int] = ...,
        dry_run: Literal[False] = ...,
        **more: Unpack[LoadOptions],
    ) -> Dataset: ...

    @overload
    def load_dataset(
        self,
        name: str,
        format: str,
        path: Paths = ...,
        split: Optional[str] = ...,
        pretransforms: Pipelines = ...,
        device: Device = ...,
        options: Optional[Mapping[str, Any]] = ...,
        progress: Progress = ...,
        bad_samples: str = ...,
        max_bad_samples: Optional[int] = ...,
        *,
        dry_run: Literal[True],
        **more: Unpack[LoadOptions],
    ) -> LoadEstimate: ...

    def load_dataset(
        self,
        name: str,
        format: str,
        path: Paths = None,
        split: Optional[str] = None,
        pretransforms: Pipelines = (),
        device: Device = None,
        options: Optional[Mapping[str, Any]] = None,
        progress: Progress = False,
        bad_samples: str = "fail",
        max_bad_samples: Optional[int] = None,
        dry_run: bool = False,
        *,
        residency: str = "device",
        device_bytes: Optional[int] = None,
        part: Optional[nodes.Given] = None,
        part_epoch: Optional[int] = None,
        part_seed: int = 0,
        private: bool = False,
        pin: bool = False,
        classes: Classes = None,
        ignore_other_classes: bool = False,
    ) -> Union[Dataset, LoadEstimate]:
        """Loads a dataset, or attaches to one loaded with the same arguments.

        Args:
          name: 1 to 128 characters of [A-Za-z0-9._-], beginning with a
            letter or digit.
          format: a format that the daemon reads, as listed by status(), or the
            name of a function of datasetd.sources, such as "hdf5": then this
            process reads the file and pushes it. docs/formats.md lists both;
            docs/readers.md has the options of the daemon's formats.
          path: made absolute, with ~ expanded. The daemon opens it, below its
            data roots, unless this process reads the format. For webdataset
            and tfrecord it may be a pattern of shards, "train-{000..146}.tar",
            or a list of them.
          split: name of a split; None: the reader's default.
          pretransforms: applied once, at load. A list, for `image` or the
            `fields` of each op, or a dict by field.
          device: "cuda:0", "cpu", a UUID, "GPU-...", or a torch.device; None:
            the daemon's first device. "cuda" is "cuda:0". A list, and "each"
            for all GPUs, puts a replica on every one: the samples are read
            once, and each loader uses the replica on its own GPU. Numbers
            are the daemon's.
          options: reader options, or arguments of the function.
          progress: True shows a tqdm bar, or without tqdm a line on stderr. A
            function is called with the Dataset message (in a dry run the
            EstimateLoadResponse) as a dict; an exception cancels the load.
          bad_samples: what to do with samples that cannot be read or decoded:
            "fail" fails the load; "skip" omits them; "replace" uses the
            preceding good sample instead. See Dataset.bad_samples.
          max_bad_samples: the load fails if it skips or replaces more; None:
            100. In formats that this process reads, only images that are sent
            encoded can be bad samples; other damage raises DataLoss.
          residency: where the samples are. "device": in the device's memory;
            "pinned": in pinned host memory, which it reads for each batch;
            "split": the first `device_bytes` on the device, the rest pinned;
            "auto": as many as its memory budget allows, the rest pinned;
            "mapped", for "cpu": in a file of the cache, mapped into memory.
            Batches are the same. See docs/loading.md.
          device_bytes: with "split", maximum bytes of samples on the device.
          dry_run: loads nothing and returns a LoadEstimate. Not available for
            formats that this process reads.
          part: "node", or (index, count): loads only this node's part, for
            DataLoader(partition=): every count-th shard of a webdataset or
            tfrecord pattern, every count-th file of other images, or a range of
            rows. The dataset is called "NAME.INDEXofCOUNT". "node" is the node
            that torchrun, Slurm or $RANK, $WORLD_SIZE and $LOCAL_WORLD_SIZE
            tell.
          part_epoch: deals shards, or pieces of the rest, in an order drawn
            from (part_seed, part_epoch); in each epoch each is in one part. The
            name ends in ".eEPOCH", or ".eEPOCHsSEED" with a part_seed.
          part_seed: equal on all nodes.
          private: hides the dataset from other users, except root and the
            daemon's user: they learn only that the name is taken.
          pin: never evicted to make room for another dataset. Only for root and
            the daemon's user; others get PermissionDenied.
          classes: class names in the order of their labels; or a Dataset or the
            name of a resident one, whose class_names are used, so that splits
            have the same labels. For formats that derive classes from folders
            or text. A class may have no samples; a sample of another class is
            an error. None: the classes of the source.
          ignore_other_classes: omits samples of classes that are not in
            `classes`.

        What the load omitted, changed or decided is in Dataset.notes, in the
        log "datasetd" and, with progress=True, on stderr. Whatever may affect
        training is a warning.
        """
        others: Dict[str, Any] = {
            "pretransforms": pretransforms,
            "device": device,
            "bad_samples": bad_samples,
            "max_bad_samples": max_bad_samples,
            "residency": residency,
            "device_bytes": device_bytes,
            "private": private,
            "pin": pin,
        }
        division = {
            "part": part,
            "part_epoch": part_epoch,
            "part_seed": part_seed,
        }
        names = loading.names_of_classes(self._session, classes)
        if path is not None:
            path = folders.checked_path(format, path)
        if formats.is_read_here(format):
            options = loading.options_with_classes(
                options, names, ignore_other_classes
            )
            if dry_run:
                raise InvalidArgument(
                    f"dry_run is for formats that the daemon reads, and "
                    f"{format!r} is read by this process"
                )
            return formats.load(
                self._session,
                self.push_dataset,
                self.get_dataset,
                name,
                format,
                path,
                split,
                options,
                progress,
                division,
                **others,
            )
        divided = parts.resolve(part, part_epoch, part_seed)
        if divided is not None:
            if path is not None and parts.has_shards(format, path):
                path = divided.shards(absolute(path))
            else:
                options = {**(options or {}), "part": divided.option()}
            name = divided.name(name)
        spec = loading.dataset_spec(
            name,
            format,
            path,
            split,
            options=options,
            classes=names,
            ignore_other_classes=ignore_other_classes,
            **others,
        )
        if dry_run:
            return estimate_of(
                loading.estimate(self._session, spec, progress)
            )
        load = functools.partial(loading.load, self._session, spec)
        message = load(progress)
        loading.warn_of_masks(pretransforms, name, message["fields"])
        loading.report(message, progress)
        return Dataset(self, self._session, message, load)

    def push_dataset(
        self,
        name: Optional[str],
        data: Any,
        fields: Fields = None,
        pretransforms: Pipelines = (),
        device: Device = None,
        class_names: Union[None, str, Sequence[str], Samples] = None,
        progress: Progress = False,
        ragged: bool = False,
        if_exists: str = "same",
        *,
        ignore_other_classes: bool = False,
        options: Optional[Mapping[str, Any]] = None,
        bad_samples: str = "fail",
        max_bad_samples: Optional[int] = None,
        residency: str = "device",
        device_bytes: Optional[int] = None,
        part: Optional[nodes.Given] = None,
        part_epoch: Optional[int] = None,
        part_seed: int = 0,
        private: bool = False,
        pin: bool = False,
    ) -> Dataset:
        """Creates a dataset from Python data, which is sent once.

        Columns are sent at the speed of memory, without Python code per
        sample: `push_dataset("d", {"x": X, "y": y})`. Samples are read one by
        one: `push_dataset("d", samples)`.

        Args:
          name: as in load_dataset. None: a name that is derived from the
            content, so that different data, such as those of the next run, have
            a different name.
          data: columns or samples. Columns are arrays [N, ...] with N samples:
            a dict by field, a tuple (X, y) that does not consist of lists only,
            a single array, a TensorDataset, a DataFrame, a pyarrow Table, a
            Hugging Face Dataset of numbers, or the result of a function of
            datasetd.sources. An array is a NumPy array, a memmap, a torch
            tensor, a list of numbers, or a sliceable object with shape and
            dtype, such as those of h5py and zarr; it is read in order and need
            not fit in memory. Python's numbers become int64 and float64, as in
            torch's default_collate. A list of JPEG, PNG or BMP files as bytes,
            or a column of them in a table, is decoded by the daemon; Pillow
            first converts GIF, WebP and TIFF to PNG.
            Samples are a torch Dataset, a list or any iterable. A sample is a
            value, or a tuple or dict of values: torch tensors, NumPy arrays,
            PIL images, encoded images as bytes, numbers. All must have the
            dtypes and shapes of the first; encoded images may differ in
            height and width. Samples without len() are kept in a temporary
            file until their number is known.
          fields: names of a sample's values; for a dict or a table, the keys to
            send. A dict also sets their kinds: "image" (H, W) or (H, W, C),
            "image_chw" (C, H, W), "mask" (an image of classes, which geometric
            ops sample with nearest), "array", "auto". By default the first
            image is `image`, the integer directly after it, or the only one,
            is `label`, and others are `field_1` and so on. With "auto", PIL
            images, uint8 or float32 arrays (H, W, C) and torch tensors
            (C, H, W) of up to 4 channels, and uint8 arrays (H, W), are images.
            An image named `mask` is a mask, and so are grey ones with other
            names of masks (docs/formats.md). "label" turns text into classes,
            as "auto" does in fields called label, class, target, category,
            species or y. "sequence" is [T] or [T, C], with a T of each sample's
            own. PIL images of 16 or 32 bits become int32, those of
            mode F float32. Keys that are not valid field names are converted:
            "a (b)" becomes a__b_.
          pretransforms: as in load_dataset, except that a list applies to the
            only image, whatever its name, and a pipeline of torchvision's v2
            also to the masks.
          device, progress, residency, device_bytes, private, pin: as in
            load_dataset.
          options: options of encoded images, as for image_folder: channels
            (default 3; for a Hugging Face dataset as_is), apply_exif
            (default False; for a Hugging Face dataset True), fast_decode,
            max_pixels.
          bad_samples, max_bad_samples: as in load_dataset, for encoded images.
          class_names: a list, a dataset, or the name of a resident one, whose
            classes are used: text, and indices of the data's own classes,
            become indices of these. None: the classes of the data (`classes`
            of a torchvision dataset, a ClassLabel of a Hugging Face dataset),
            or else the sorted texts of the labels.
          ignore_other_classes: omits samples of classes that are not in
            class_names; otherwise they are errors.
          ragged: images may differ in height and width. They keep their sizes,
            and the transforms of a loader must give them one size. Arrays [T]
            and [T, C] may differ in T: they are sequences (docs/sequences.md),
            as fields of the kind "sequence" always are, and columns of lists of
            several lengths in a table. Samples are first written to a temporary
            file.
          if_exists: if the name is taken: "same" attaches if the content is
            equal and else raises AlreadyExists; "keep" attaches without a
            comparison; "replace" unloads the old dataset first; "error" raises
            AlreadyExists. Waits for a push of the same name by another
            process.
          part, part_epoch, part_seed: as in load_dataset, of the rows instead
            of shards: pushes a contiguous range, or with part_epoch up to 64
            of them. `data` is that of all nodes; only the part is read. Samples
            need len() and [i].
        """
        fields = with_kinds(data, fields)
        divided = parts.resolve(part, part_epoch, part_seed)
        if divided is not None:
            if name is None:
                raise InvalidArgument(
                    "part: to push a part, give the dataset a name, name="
                )
            name = divided.name(name)
        header: Dict[str, Any] = {
            "name": name,
            "device": device_name(device),
            **loading.common_message(
                {
                    "bad_samples": bad_samples,
                    "max_bad_samples": max_bad_samples,
                    "residency": residency,
                    "device_bytes": device_bytes,
                    "private": private,
                    "pin": pin,
                }
            ),
        }
        report: Any = (
            make_progress(name or "push")
            if progress is True
            else progress or None
        )
        try:
            message = push.push(
                self._session,
                header,
                data,
                fields,
                report,
                ragged,
                if_exists,
                divided,
                encoded.make_options(options),
                functools.partial(loading.pushed_pretransforms, pretransforms)
                if pretransforms
                else None,
                formats.class_names(self._session, class_names, "class_names"),
                ignore_other_classes,
            )
        finally:
            if progress is True:
                report.close()
        loading.report(message, progress)
        return Dataset(self, self._session, message)

    def get_dataset(self, name: str) -> Dataset:
        """Holds and describes a dataset that was loaded before.

        Waits for one that is loading. Raises FailedPrecondition if its load
        has failed.
        """
        message = loading.await_loaded(self._session, name)
        return Dataset(self, self._session, message)

    def _described(self, name: str) -> Dataset:
        """Like get_dataset, but at once and in any state of the dataset."""
        message = self._session.call("GetDataset", name=name)["dataset"]
        self._session.hold(name)
        return Dataset(self, self._session, message)

    def list_datasets(self) -> List[Dict[str, Any]]:
        """Returns every dataset of the daemon, as Dataset messages in dicts."""
        return list(self._session.call("ListDatasets")["datasets"])

    def unload_dataset(self, name: str, force: bool = False) -> None:
        """Unloads a dataset.

        Raises FailedPrecondition if it has open feeds. With `force` it is
        unloaded anyway, and their loaders raise DatasetUnloaded.
        """
        self._session.call("UnloadDataset", name=name, force=bool(force))

    def fetch(
        self,
        dataset: Samples,
        indices: Iterable[int],
        transforms: Pipelines = (),
        layout: Union[str, Mapping[str, str]] = "NCHW",
        seed: int = 0,
        epoch: int = 0,
        framework: Optional[str] = None,
        timeout: Optional[float] = None,
        fields: Union[None, str, Sequence[str]] = None,
    ) -> Batch[Any]:
        """Returns a Batch of the given samples, in this order, in host memory;
        `to("cuda")` of the Batch copies it to a GPU.

        They are augmented as by a DataLoader with this seed in `epoch`. With
        a Subset as `dataset`, indices are positions in it. Images that differ
        in size are a list, unless the transforms give them one size.
        """
        framework = resolve(framework)
        whole, subset = _whole_of("fetch", dataset)
        chosen = chosen_fields(whole, fields)
        wanted = index_array("indices", indices)
        if subset is not None:
            for i in wanted:
                if not 0 <= i < len(subset):
                    raise OutOfRange(
                        f"indices: {i} is out of range of a Subset of "
                        f"{len(subset)} samples"
                    )
            wanted = subset[list(wanted)]
        return read(
            whole,
            wanted,
            framework,
            [field.name for field in chosen] if fields is not None else (),
            fields_message(whole, chosen, transforms, layout),
            checked_int("seed", seed, 0, 2**64 - 1),
            checked_int("epoch", epoch, 0, 2**64 - 1),
            loader_timeout(timeout),
        )

    # -- The daemon -----------------------------------------------------------

    def list_feeds(self) -> List[Dict[str, Any]]:
        """Returns every feed of the daemon, as Feed messages in dicts."""
        return list(self._session.call("ListFeeds")["feeds"])

    def explain(
        self,
        dataset: Samples,
        transforms: Pipelines,
        seed: int = 0,
        epoch: int = 0,
        indices: Iterable[int] = (0,),
        windows: GivenWindows = None,
    ) -> List[List[DrawnOp]]:
        """Returns the random parameters of a loader with `transforms`, `seed`
        and `windows` in `epoch`.

        The result has a list for each sample of `indices`: the windows or crops
        of its fields, and the operations in order of execution, field by field.
        With windows of a stream the indices are first steps, as
        Batch.indices are; of random windows, the numbers of rows in the epoch
        of all ranks.
        """
        whole, subset = _whole_of("explain", dataset)
        masks = [field.name for field in whole.fields if field.is_mask]
        fields: Dict[str, Any] = {
            field: {"transforms": ops}
            for field, ops in pipelines_message(
                "transforms",
                transforms,
                masks,
                image_field(whole.fields),
                masks,
            ).items()
        }
        cut = cut_of(
            None if windows is None else as_windows(windows),
            whole.fields,
            whole.num_samples,
        )
        if subset is not None and cut.order is not None:
            raise InvalidArgument(
                "explain: windows of a stream and a subset exclude each other"
            )
        for field, options in cut.fields.items():
            fields.setdefault(field, {}).update(options)
        try:
            numbers = map(operator.index, indices)
            wanted = [str(i if subset is None else subset[i]) for i in numbers]
        except TypeError as error:
            raise InvalidArgument(f"indices: {error}; expected ints") from None
        samples: List[List[DrawnOp]] = []
        for begin in range(0, len(wanted), _EXPLAINED_AT_ONCE):
            response = self._session.call(
                "ExplainTransforms",
                dataset=whole.name,
                fields=fields,
                seed=str(operator.index(seed)),
                epoch=str(operator.index(epoch)),
                indices=wanted[begin : begin + _EXPLAINED_AT_ONCE],
                **cut.message(),
            )
            samples.extend(
                drawn_ops_of(sample["ops"]) for sample in response["samples"]
            )
        return samples

    def status(self) -> Dict[str, Any]:
        """Returns the daemon's version, devices and memory, as a dict."""
        return self._session.call("GetStatus")

    # -- Life -----------------------------------------------------------------

    def close(self) -> None:
        """Ends the session. The daemon may drop datasets that only it held.
        Running calls of other threads continue, and so do open loaders, each
        with its present feed. Whatever needs another feed raises Closed: a
        second iterator beside the first, a state with another seed, or
        reconnecting after the daemon was lost."""
        self._session.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    @staticmethod
    def _attach(address: str, name: str, content_hash: str) -> Dataset:
        """Returns the dataset of a pickle, through a client that all such
        datasets of this process share."""
        key = os.getpid(), address
        client = _attached.get(key)
        if client is None or client._session._connection is None:
            client = _attached[key] = Client(address)
        try:
            dataset = client.get_dataset(name)
        except NotFound as error:
            raise NotFound(
                f"dataset {name!r}, which another process sent, does not "
                "exist: keep the Dataset open in that process until this one "
                "has it; another user's private dataset is not visible here "
                f"({error})"
            ) from None
        if content_hash and dataset.content_hash != content_hash:
            dataset.close()
            raise FailedPrecondition(
                f"dataset {name!r}, which another process sent, has other "
                f"samples here: content_hash {dataset.content_hash}, was "
                f"{content_hash}: it was unloaded and loaded again meanwhile"
            )
        return dataset

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a datasetd.Client is a connection of its process: in the other "
            f"one, call datasetd.connect({self.address!r})"
        )

    def __repr__(self) -> str:
        return f"datasetd.Client({self.address!r})"


# The clients of Client._attach, by process and address.
_attached: "weakref.WeakValueDictionary[Tuple[int, str], Client]" = (
    weakref.WeakValueDictionary()
)


def _whole_of(what: str, dataset: Any) -> Tuple[Any, Optional[Any]]:
    """As whole_of(), but refuses a mixture."""
    if isinstance(dataset, Mixture):
        raise InvalidArgument(
            f"{what}: a mixture is for a DataLoader: give one of its datasets, "
            "such as mixture.parts[0]"
        )
    return whole_of(dataset)
