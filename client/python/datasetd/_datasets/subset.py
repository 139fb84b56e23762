"""Samples by position: what Dataset and Subset have in common, and Subset."""

from __future__ import annotations

import math
import numbers
import sys
from typing import (
    TYPE_CHECKING,
    Any,
    Dict,
    Iterable,
    Iterator,
    List,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from .._arguments import has_items_of
from .._attributes import Fixed, missing
from .._batches.batch import Batch
from .._batches.frameworks import copy_of, resolve, size_bytes
from .._descriptions import Field
from .._order.sampling import index_array
from ..errors import InvalidArgument, OutOfRange, UsedAfterFork
from .reading import column_read, read

_BLOCK_BYTES = 4 << 20
_MAX_BLOCK_ROWS = 1 << 17


# What works in the place of torchvision's and others' attributes.
_TRANSFORMS = (
    "each job chooses its own: transforms= of datasetd.DataLoader, or "
    "pretransforms= of the load, once for all"
)
_LABELS = "column({label!r}) has it for all samples"
_OTHERS = (
    "the samples are resident and do not change: push_dataset(name, data) of "
    "the client makes a dataset of others, and select(indices) a Subset"
)
_NAMES = "class_names= of push_dataset names the classes of a new dataset"
_READING = {
    **dict.fromkeys(
        ("transform", "transforms", "target_transform"), _TRANSFORMS
    ),
    **dict.fromkeys(("targets", "labels", "target", "y"), _LABELS),
    **dict.fromkeys(
        ("samples", "imgs", "images", "data"),
        "column({image!r}) has it for all samples, and [i] is one sample; the "
        "paths of its files are not kept",
    ),
    "shuffle": "DataLoader(shuffle=True) draws a new order for each epoch, "
    "and select(indices) is in any order",
    "train_test_split": "train, test = dataset.split(0.8)",
    "random_split": "train, test = dataset.split(0.8)",
    "filter": "dataset.select(dataset.column({label!r}) == 3)",
    "map": _TRANSFORMS,
    "num_classes": "len(classes)",
    "batch_size": "batch_size= of datasetd.DataLoader",
}
_SETTING = {
    **dict.fromkeys(
        ("transform", "transforms", "target_transform"), _TRANSFORMS
    ),
    **dict.fromkeys(
        ("targets", "labels", "target", "y", "samples", "imgs", "images")
        + ("data", "indices", "dataset", "fields", "num_samples"),
        _OTHERS,
    ),
    **dict.fromkeys(("classes", "class_names", "class_to_idx"), _NAMES),
}


def _first(usual: str, fields: Iterable[Field]) -> str:
    """Returns the usual name, or that of the first field if none has it."""
    names = [field.name for field in fields]
    return usual if usual in names or not names else names[0]


class Samples(Fixed):
    """Random access to samples; base class of Dataset and Subset.

    `samples[indices]`, with a list, a slice, an array or a boolean mask, is a
    Batch; `samples[i]` is a Batch without the batch axis: `image, label =
    samples[i]`. Both are copies in host memory, as torch tensors if torch is
    installed, else as NumPy arrays. Images are [N, C, H, W] or [C, H, W];
    several samples that differ in size are a list. Negative indices count from
    the end. Each access is a call to the daemon: for training use DataLoader.
    """

    name: str
    fields: List[Field]
    class_names: List[str]

    _INSTEAD_OF_SETTING = _SETTING

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raises AttributeError, which names the alternative."""
            fields = self.__dict__.get("fields", ())
            if any(name == field.name for field in fields):
                instead = f"column({name!r}) has it for all samples"
            else:
                instead = _READING.get(name, "").format(
                    label=_first("label", (f for f in fields if not f.shape)),
                    image=_first("image", (f for f in fields if f.is_image)),
                )
            raise missing(self, name, instead)

    def _instead_of_setting(self, name: str) -> str:
        if any(name == field.name for field in self.fields):
            return _OTHERS
        return super()._instead_of_setting(name)

    def _whole(self) -> Any:
        """Returns the Dataset."""
        raise NotImplementedError

    def _to_indices(self, positions: Any) -> Any:
        """Returns the sample indices at `positions`, an int64 array."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    @property
    def classes(self) -> List[str]:
        """The class names, as in torchvision's datasets."""
        return self.class_names

    @property
    def class_to_idx(self) -> Dict[str, int]:
        """The label of each class name."""
        return {name: label for label, name in enumerate(self.class_names)}

    def __getitem__(self, key: Union[int, slice, Iterable[int]]) -> Batch[Any]:
        import numpy

        is_sample = _is_integer(key)
        if isinstance(key, slice):
            positions = numpy.arange(len(self))[key]
        else:
            given = [key] if is_sample else key
            positions = _checked_positions(given, len(self))
        batches = list(self._batches(self._to_indices(positions)))
        if is_sample:
            return type(batches[0])(values[0] for values in batches[0])
        if len(batches) == 1:
            return batches[0]
        return type(batches[0])(map(_joined, zip(*batches)))

    def __getitems__(self, indices: Iterable[int]) -> List[Batch[Any]]:
        """Returns the samples as a list. torch's own DataLoader calls it, from
        torch 2.0 on."""
        batch = self[indices]
        return [
            type(batch)(values[row] for values in batch)
            for row in range(len(batch[0]))
        ]

    def __iter__(self) -> Iterator[Batch[Any]]:
        """Yields every sample, in order."""
        import numpy

        for batch in self._batches(self._to_indices(numpy.arange(len(self)))):
            for row in range(batch.num_samples):
                # A copy, so that a sample that is kept keeps no other.
                yield type(batch)(copy_of(values[row]) for values in batch)

    def column(self, field: str) -> Any:
        """Returns a field of every sample as one NumPy array [N, ...], in
        host memory; bfloat16 becomes float32. Images are [N, C, H, W]. If
        samples differ in size, the result is an array of objects, one array for
        each sample."""
        import numpy

        whole = self._whole()
        known = {f.name: f for f in whole.fields}
        if field not in known:
            raise InvalidArgument(
                f"dataset {whole.name!r} has no field {field!r}; it has "
                f"{list(known)}"
            )
        column: Any = None
        indices = self._to_indices(numpy.arange(len(self)))
        for begin, block in _divided(whole, indices, [field]):
            with column_read(whole, block, field) as values:
                end = begin + len(values)
                if isinstance(values, list):
                    if column is None:
                        column = numpy.empty(len(self), object)
                    for row, value in enumerate(values, begin):
                        column[row] = value.copy("C")
                    continue
                if column is None:
                    shape = (len(self),) + values.shape[1:]
                    column = numpy.empty(shape, values.dtype)
                column[begin:end] = values
        return column

    def _batches(self, indices: Any) -> Iterator[Batch[Any]]:
        """Yields the samples at `indices`, about 4 MiB at a time."""
        whole = self._whole()
        framework = resolve(None)
        for _, block in _divided(whole, indices):
            yield _read(whole, block, framework)

    def select(self, indices: Iterable[int]) -> "Subset":
        """Returns these samples in this order, for DataLoader.

        `indices` are positions in this object, each at most once, or a boolean
        mask, as `dataset.select(dataset.column("label") == 3)`.
        """
        import numpy

        positions = _checked_positions(indices, len(self))
        values, counts = numpy.unique(positions, return_counts=True)
        if len(values) < len(positions):
            raise InvalidArgument(
                f"select: {values[counts > 1][0]} is there twice; sampler= of "
                "DataLoader may repeat samples"
            )
        if not len(positions):
            raise InvalidArgument("select: there are no indices")
        return Subset(self._whole(), self._to_indices(positions))

    def split(
        self, parts: Union[float, Sequence[float]], seed: int = 0
    ) -> Tuple["Subset", ...]:
        """Divides the samples at random: `train, test = dataset.split(0.8)`.

        Args:
          parts: the size of the first of two parts, or the sizes of all parts,
            as in torch's random_split: fractions or numbers of samples.
          seed: equal seeds produce equal parts, on every machine.

        Within a part the samples keep their order.
        """
        import numpy

        sizes = _part_sizes(parts, len(self))
        shuffled = numpy.random.RandomState(seed).permutation(len(self))
        return tuple(
            self.select(numpy.sort(part))
            for part in numpy.split(shuffled, numpy.cumsum(sizes)[:-1])
        )


class Subset(Samples):
    """Some samples of a Dataset, in a given order. Returned by select and
    split.

    A DataLoader of it behaves as if the dataset held only these samples; the
    indices of a batch are those of the dataset. It refers to its dataset and
    copies no sample.

    Attributes: dataset, indices (an int64 array [N] of sample indices), and
    client, name, fields, class_names, classes, class_to_idx of the dataset.
    """

    def __init__(self, dataset: Any, indices: Any) -> None:
        """REQUIRES: `dataset` is a Dataset; `indices` are distinct and in
        range."""
        self.dataset = dataset
        self.indices = indices
        self.name = dataset.name
        self.fields = dataset.fields
        self.class_names = dataset.class_names
        self._is_made = True

    @property
    def client(self) -> Any:
        return self.dataset.client

    def __len__(self) -> int:
        return len(self.indices)

    def _whole(self) -> Any:
        return self.dataset

    def _to_indices(self, positions: Any) -> Any:
        return self.indices[positions]

    def __reduce__(self) -> Any:
        return Subset, (self.dataset, self.indices)

    def __repr__(self) -> str:
        return f"datasetd.Subset({len(self)} samples of {self.dataset!r})"


def whole_of(samples: Any) -> Tuple[Any, Optional[Any]]:
    """Returns what `samples` is a subset of, and the indices: an array, or
    None if it is none. Takes torch's Subset, too, and subsets of subsets."""
    indices: Optional[Any] = None
    while hasattr(samples, "dataset") and hasattr(samples, "indices"):
        import numpy  # which only subsets need

        _check_items(samples)

        own = numpy.asarray(index_array("dataset.indices", samples.indices))
        if indices is not None:
            _check_inner(indices, len(own))
        indices = own if indices is None else own[indices]
        samples = samples.dataset
    if indices is not None and hasattr(samples, "__len__"):
        indices = _from_start(indices, len(samples))
    return samples, indices


def _from_start(indices: Any, length: int) -> Any:
    """Those below 0 count from the end, as in torch."""
    if not (indices < 0).any():
        return indices
    counted = indices.copy()
    counted[indices < 0] += length
    if (counted < 0).any():
        raise OutOfRange(
            f"dataset.indices: {indices[counted < 0][0]} is out of range of "
            f"the dataset of {length} samples"
        )
    return counted


def _check_inner(indices: Any, length: int) -> None:
    """Checks the indices of a Subset of a Subset that has `length` samples.
    Those below 0 count from the end, as in torch."""
    wrong = indices[(indices < -length) | (indices >= length)]
    if len(wrong):
        raise OutOfRange(
            f"dataset.indices: {wrong[0]} is out of range of the inner Subset "
            f"of {length} samples"
        )


def _check_items(samples: Any) -> None:
    if not has_items_of(samples, "torch", "Subset") and not has_items_of(
        samples, "datasetd", "Subset"
    ):
        raise InvalidArgument(
            f"dataset={type(samples).__name__}: its own __getitem__ would not "
            "be called, since the daemon makes the batches: give what it does "
            "as transforms=, and a Subset as the dataset"
        )


def _is_integer(key: Any) -> bool:
    # Arrays have __index__ whatever their size.
    return (
        hasattr(key, "__index__")
        and not isinstance(key, bool)
        and not getattr(key, "ndim", 0)
    )


def _checked_positions(given: Any, length: int) -> Any:
    """Returns an int64 array of positions from 0, of indices or a mask."""
    import numpy

    if isinstance(given, str):
        raise InvalidArgument(
            f"{given!r} is no index; column({given!r}) has the field's values"
        )
    try:
        if hasattr(given, "detach"):
            given = given.detach().cpu()
        elif not hasattr(given, "__array__"):
            given = list(given)
        array = numpy.asarray(given)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(
            f"{given!r}: expected indices, or a boolean mask: {error}"
        ) from None
    if array.dtype == bool and array.shape == (length,):
        return numpy.flatnonzero(array)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InvalidArgument(
            f"{array.dtype} {array.shape}: expected indices, or a boolean "
            f"mask ({length},)"
        )
    positions = array.astype(numpy.int64)
    positions[positions < 0] += length
    is_wrong = (positions < 0) | (positions >= length)
    if is_wrong.any():
        raise OutOfRange(
            f"index {array[is_wrong][0]}, and there are {length} samples"
        )
    return positions


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _part_sizes(parts: Any, length: int) -> List[int]:
    is_list = isinstance(parts, (list, tuple))
    if not all(map(_is_number, parts if is_list else [parts])):
        raise InvalidArgument(
            f"split: {parts!r}; expected fractions or numbers of samples"
        )
    if not is_list:
        parts = [parts, (1 if isinstance(parts, float) else length) - parts]
    if any(isinstance(part, float) for part in parts):
        is_whole = math.isclose(sum(parts), 1)
        ends = [
            round(length * sum(parts[: i + 1])) for i in range(len(parts))
        ]
        sizes = [end - begin for begin, end in zip([0] + ends, ends)]
    else:
        is_whole = sum(parts) == length
        sizes = list(parts)
    if not is_whole or any(size < 1 for size in sizes):
        raise InvalidArgument(
            f"split: {parts} gives {sizes} of {length} samples; expected "
            "fractions that sum to 1 or numbers that sum to the samples, and "
            "no part empty"
        )
    return sizes


def _largest_bytes(field: Field) -> int:
    """Returns the size of a sample of the field, at most."""
    shape = field.shape
    if -1 in shape:
        largest = field.largest or (1 << 12, 1 << 12)
        shape = tuple(largest) + tuple(shape[len(largest) :])
    return size_bytes(field.dtype, shape)


def _divided(
    whole: Any, indices: Any, fields: Sequence[str] = ()
) -> Iterator[Tuple[int, Any]]:
    """Yields pieces of `indices` of about 4 MiB of samples, each with its
    begin."""
    sample_bytes = sum(
        _largest_bytes(field)
        for field in whole.fields
        if not fields or field.name in fields
    )
    rows = max(1, min(_BLOCK_BYTES // (sample_bytes + 1), _MAX_BLOCK_ROWS))
    # Once without rows, for the error.
    for begin in range(0, max(1, len(indices)), rows):
        yield begin, indices[begin : begin + rows]


def _read(dataset: Any, indices: Any, framework: str) -> Batch[Any]:
    try:
        return read(dataset, indices, framework)
    except UsedAfterFork as error:
        torch = sys.modules.get("torch")
        if torch is None or torch.utils.data.get_worker_info() is None:
            raise
        raise UsedAfterFork(
            f"{error}. In torch's own DataLoader that needs num_workers=0, or "
            "multiprocessing_context='spawn': to train, give the dataset to "
            "datasetd.DataLoader"
        ) from None


def _joined(values: Sequence[Any]) -> Any:
    if isinstance(values[0], list):
        return [one for several in values for one in several]
    if hasattr(values[0], "clone"):
        import torch

        return torch.cat(values)
    import numpy

    return numpy.concatenate(values)
