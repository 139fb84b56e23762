from __future__ import annotations

import io
import os
import pickle
from typing import Any, Dict, List

from ..errors import DataLoss, NotFound
from ._base import Path, Source, existing, library

_SAFE = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


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
        return dict(content)
    except FileNotFoundError as error:
        raise NotFound(f"{path}: no such file") from error
    except Exception as error:
        raise DataLoss(f"{path} is no batch of CIFAR: {error}") from error


def cifar_python(path: Path, split: str = "train") -> Source:
    """CIFAR-10 or CIFAR-100 of the Python version, [N, 32, 32, 3] and labels.

    Args:
      path: the directory cifar-10-batches-py or cifar-100-python.
      split: "train" or "test".

    Pickles may only contain arrays of numbers; no code is run.
    """
    numpy = library("numpy", "numpy", "cifar_python")
    root = existing(path)
    if os.path.exists(os.path.join(root, "meta")):
        names = _load(os.path.join(root, "meta"))["fine_label_names"]
        files, labels = [split], {
            "label": "fine_labels", "coarse_label": "coarse_labels",
        }
    else:
        names = _load(os.path.join(root, "batches.meta"))["label_names"]
        files, labels = ["test_batch"], {"label": "labels"}
        if split == "train":
            files = [f"data_batch_{i}" for i in range(1, 6)]
    batches: List[Dict[str, Any]] = [
        _load(os.path.join(root, name)) for name in files
    ]
    try:
        images = numpy.concatenate([batch["data"] for batch in batches])
        columns = {
            "image": images.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1),
            **{
                field: numpy.concatenate(
                    [numpy.asarray(batch[key], "int64") for batch in batches]
                )
                for field, key in labels.items()
            },
        }
    except (KeyError, ValueError) as error:
        raise DataLoss(f"{root} holds no CIFAR images: {error}") from error
    return Source(columns, [str(name) for name in names])
