from __future__ import annotations

import io
import os
import pickle
from typing import Any, Dict, List, NamedTuple, Tuple

from ..errors import DataLoss, InvalidArgument, NotFound
from ._base import Path, Source, existing, library

_SAFE = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


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


class _Unpickler(pickle.Unpickler):
    """Only unpickles arrays of numbers."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _SAFE:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module, name)


def _load(path: str) -> Dict[str, Any]:
    try:
        with open(path, "rb") as file:
            content = _Unpickler(
                io.BytesIO(file.read()), encoding="latin1"
            ).load()
        return {
            key.decode("latin1") if isinstance(key, bytes) else key: value
            for key, value in dict(content).items()
        }
    except FileNotFoundError as error:
        raise NotFound(f"{path}: no such file") from error
    except Exception as error:
        raise DataLoss(f"{path} is no batch of CIFAR: {error}") from error


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


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
            rows = numpy.asarray(batch["data"])
            if rows.dtype != "uint8":
                raise ValueError(f"images of dtype {rows.dtype}")
            images.append(rows.reshape(-1, 3, 32, 32))
            for field, key, num_classes in format.labels:
                values = numpy.asarray(batch[key], "int64")
                if values.shape != (len(rows),):
                    raise ValueError(f"{len(values)} {key}, {len(rows)} images")
                if not ((values >= 0) & (values < num_classes)).all():
                    raise ValueError(f"{key} are not 0 to {num_classes - 1}")
                labels[field].append(values.astype("uint8"))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataLoss(f"{path} is no batch of CIFAR: {error}") from error
    columns = {
        "image": numpy.concatenate(images).transpose(0, 2, 3, 1),
        **{field: numpy.concatenate(parts) for field, parts in labels.items()},
    }
    path = os.path.join(root, format.names_file)
    if not os.path.exists(path):
        return Source(columns)
    names = _load(path).get(format.names_key)
    num_classes = format.labels[0][2]
    if not isinstance(names, list) or len(names) != num_classes:
        raise DataLoss(
            f"{path}: {format.names_key!r} is no list of {num_classes} names"
        )
    return Source(columns, [_text(name) for name in names])


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
    """CIFAR-10 or CIFAR-100 of the Python version: `image` uint8
    [N, 32, 32, 3] and `label` uint8, in CIFAR-100 `coarse_label`, too.

    Args:
      path: the directory cifar-10-batches-py or cifar-100-python, or the one
        that one of them is in.
      split: "train" or "test".

    Pickles may only contain arrays of numbers; no code is run.
    """
    ten, hundred = _root(path, _CIFAR10), _root(path, _CIFAR100)
    if existing(path) not in (ten, hundred):
        raise InvalidArgument(
            f"{path} holds {_CIFAR10.directory} and {_CIFAR100.directory}: "
            "name one of them"
        )
    if any(
        os.path.isfile(os.path.join(hundred, name))
        for name in ("meta", "train", "test")
    ):
        return _read(hundred, _CIFAR100, split)
    return _read(ten, _CIFAR10, split)
