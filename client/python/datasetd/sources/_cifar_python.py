from __future__ import annotations

import io
import math
import os
import pickle
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from ..errors import DataLoss, InvalidArgument, NotFound
from ._base import Path, Source, existing, library

# The numbers that a batch may have.
_INTEGERS = {f"{kind}{size}": size for kind in "ui" for size in (1, 2, 4, 8)}
_MAX_DIMENSIONS = 8


class _Format(NamedTuple):
    directory: str
    files: Dict[str, List[str]]  # by split
    names_file: str
    names_key: str
    # Field, key in a batch, number of classes.
    labels: Tuple[Tuple[str, str, int], ...]


_CIFAR10 = _Format(
    "cifar-10-batches-py",
    {
        "train": [f"data_batch_{i}" for i in range(1, 6)],
        "test": ["test_batch"],
    },
    "batches.meta",
    "label_names",
    (("label", "labels", 10),),
)
_CIFAR100 = _Format(
    "cifar-100-python",
    {"train": ["train"], "test": ["test"]},
    "meta",
    "fine_label_names",
    (("label", "fine_labels", 100), ("coarse_label", "coarse_labels", 20)),
)


class _Function:
    """What a pickle may call; it can neither read nor change it."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("it changes a function")


class _Dtype:
    """The description of a NumPy dtype of integers."""

    __slots__ = ("name", "order")

    def __init__(self, name: Any, *_: Any) -> None:
        if not isinstance(name, str) or name not in _INTEGERS:
            raise pickle.UnpicklingError("it has an array of no integers")
        self.name = name
        self.order = "="

    def __setstate__(self, state: Any) -> None:
        rest = (None, None, None, -1, -1, 0)
        if (
            not isinstance(state, tuple)
            or state[:1] + state[2:] != (3, *rest)
            or state[1] not in ("|", "=", "<", ">")
        ):
            raise pickle.UnpicklingError("it has an array of no plain dtype")
        self.order = state[1]


class _Array:
    """The description of a NumPy array, of which to_numpy() makes one."""

    __slots__ = ("_state",)

    def __init__(self, *_: Any) -> None:
        self._state: Any = None

    def __setstate__(self, state: Any) -> None:
        self._state = state

    def to_numpy(self, numpy: Any) -> Any:
        version, shape, dtype, is_fortran, data = self._state
        if isinstance(data, str):  # written by Python 2
            data = data.encode("latin1")
        if (
            version != 1
            or not isinstance(dtype, _Dtype)
            or not isinstance(data, bytes)
            or not isinstance(is_fortran, int)
            or not isinstance(shape, tuple)
            or len(shape) > _MAX_DIMENSIONS
            or not all(type(extent) is int and extent >= 0 for extent in shape)
            or math.prod(shape) * _INTEGERS[dtype.name] != len(data)
        ):
            raise ValueError("an array that is not as its shape and dtype say")
        array = numpy.frombuffer(data, dtype.order + dtype.name)
        return array.reshape(shape, order="F" if is_fortran else "C")


def _encode(text: Any, encoding: Any) -> bytes:
    if not isinstance(text, str) or encoding != "latin1":
        raise pickle.UnpicklingError("it has bytes in an unknown encoding")
    return text.encode("latin1")


def _no_call(*_: Any) -> None:
    raise pickle.UnpicklingError("it makes an array in an unknown way")


_FUNCTIONS: Dict[Tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _no_call,  # an argument of _reconstruct
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle._Unpickler):
    """Unpickles integers, texts, lists, dicts and descriptions of arrays.

    It gives the pickle no object of NumPy's, whose __setstate__ takes
    pointers. The unpickler in Python bounds what it keeps by the file's size;
    the one in C does not.
    """

    dispatch = {
        opcode: load
        for opcode, load in pickle._Unpickler.dispatch.items()
        if opcode != pickle.BYTEARRAY8[0]  # allocates what the file says
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _FUNCTIONS:
            raise pickle.UnpicklingError(f"it asks for {module + '.' + name!r}")
        return _Function(_FUNCTIONS[module, name])


def _load(path: str) -> Dict[str, Any]:
    try:
        with open(path, "rb") as file:
            content = _Unpickler(
                io.BytesIO(file.read()), encoding="latin1"
            ).load()
        if not isinstance(content, dict):
            raise ValueError("it is no dict")
        return {
            key.decode("latin1") if isinstance(key, bytes) else key: value
            for key, value in content.items()
        }
    except FileNotFoundError as error:
        raise NotFound(f"{path}: no such file") from error
    except Exception as error:
        raise DataLoss(f"{path} is no batch of CIFAR: {error}") from error


def _images(value: Any, numpy: Any) -> Any:
    """Returns images [N, 3, 32, 32] of a batch."""
    if not isinstance(value, _Array):
        raise ValueError("its images are no array")
    rows = value.to_numpy(numpy)
    if rows.dtype != "uint8":
        raise ValueError(f"images of dtype {rows.dtype}")
    if rows.shape[1:] not in ((3072,), (3, 32, 32)):
        raise ValueError(f"images of shape {rows.shape}, expected [N, 3072]")
    return rows.reshape(-1, 3, 32, 32)


def _labels(value: Any, numpy: Any, key: str, num_classes: int) -> Any:
    if isinstance(value, _Array):
        value = value.to_numpy(numpy)
        if value.ndim != 1:
            raise ValueError(f"{key} are no list")
        value = value.tolist()
    if not isinstance(value, list) or not all(type(v) is int for v in value):
        raise ValueError(f"{key} are not whole numbers")
    if not all(0 <= label < num_classes for label in value):
        raise ValueError(f"{key} are not 0 to {num_classes - 1}")
    return numpy.array(value, "uint8")


def _names(value: Any, key: str, num_classes: int) -> List[str]:
    if not isinstance(value, list) or len(value) != num_classes:
        raise ValueError(f"{key!r} is no list of {num_classes} names")
    names = [
        name.decode("latin1") if isinstance(name, bytes) else name
        for name in value
    ]
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"{key!r} is no list of {num_classes} names")
    return names


def _read(root: str, format: _Format, split: str) -> Source:
    numpy = library("numpy", "numpy", "cifar_python")
    if split not in format.files:
        raise InvalidArgument(
            f"split is {split!r}, expected {' or '.join(format.files)}"
        )
    images: List[Any] = []
    labels: Dict[str, List[Any]] = {field: [] for field, _, _ in format.labels}
    for name in format.files[split]:
        path = os.path.join(root, name)
        batch = _load(path)
        try:
            images.append(_images(batch["data"], numpy))
            for field, key, num_classes in format.labels:
                values = _labels(batch[key], numpy, key, num_classes)
                if len(values) != len(images[-1]):
                    raise ValueError(
                        f"{len(values)} {key}, {len(images[-1])} images"
                    )
                labels[field].append(values)
        except (KeyError, TypeError, ValueError) as error:
            raise DataLoss(f"{path} is no batch of CIFAR: {error}") from error
    columns = {
        "image": numpy.concatenate(images).transpose(0, 2, 3, 1),
        **{field: numpy.concatenate(parts) for field, parts in labels.items()},
    }
    path = os.path.join(root, format.names_file)
    if not os.path.exists(path):
        return Source(columns)
    names = _load(path).get(format.names_key)
    try:
        return Source(
            columns, _names(names, format.names_key, format.labels[0][2])
        )
    except ValueError as error:
        raise DataLoss(f"{path}: {error}") from error


def _root(path: Path, format: _Format) -> str:
    """Returns the directory of the batches: `path`, or the one in it."""
    root = existing(path)
    below = os.path.join(root, format.directory)
    return below if os.path.isdir(below) else root


def cifar10_python(path: Path, split: str = "train") -> Source:
    return _read(_root(path, _CIFAR10), _CIFAR10, split)


def cifar100_python(path: Path, split: str = "train") -> Source:
    return _read(_root(path, _CIFAR100), _CIFAR100, split)


def cifar_python(path: Path, split: str = "train") -> Source:
    """Reads the Python version of CIFAR-10 or CIFAR-100: `image` uint8
    [N, 32, 32, 3] and `label` uint8, and for CIFAR-100 `coarse_label`.

    Args:
      path: the directory cifar-10-batches-py or cifar-100-python, or the
        directory that contains it.
      split: "train" or "test".

    Pickles may only contain texts, and arrays and lists of integers; no code
    in them is run.
    """
    ten, hundred = _root(path, _CIFAR10), _root(path, _CIFAR100)
    if existing(path) not in (ten, hundred):
        raise InvalidArgument(
            f"{path} contains {_CIFAR10.directory} and {_CIFAR100.directory}: "
            "give the path of one of them"
        )
    if any(
        os.path.isfile(os.path.join(hundred, name))
        for name in ("meta", "train", "test")
    ):
        return _read(hundred, _CIFAR100, split)
    return _read(ten, _CIFAR10, split)
