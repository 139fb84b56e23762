"""Paths of datasets: checks them, and suggests the path that was meant."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, Sequence, Tuple, Union

from .._arguments import absolute
from .._connection import library
from .._datasets import parts
from ..errors import InvalidArgument
from ..sources import _shards

Path = Union[str, "os.PathLike[str]"]
Paths = Union[None, Path, Sequence[Path]]

# Files of which a folder of the format has one, plain or with .gz.
_FILES: Dict[str, Tuple[str, ...]] = {
    "cifar10": ("data_batch_1.bin", "test_batch.bin"),
    "cifar10_python": ("data_batch_1", "test_batch"),
    "cifar100": ("train.bin", "test.bin"),
    "cifar100_python": ("meta", "train"),
    "mnist": (
        "train-images-idx3-ubyte",
        "train-images.idx3-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-images.idx3-ubyte",
    ),
}
# Formats that one download has instead of another.
_FAMILIES = (("cifar10", "cifar10_python"), ("cifar100", "cifar100_python"))
_MAX_FOLDERS = 1000
_MAX_NAMED = 3


def checked_path(format: str, path: Any) -> str:
    """Returns the path as text; of a list of shards, their pattern.

    Raises InvalidArgument for what is neither, and for URLs.
    """
    if not isinstance(path, (list, tuple)) and not hasattr(path, "__next__"):
        return _as_text(path)
    paths = [absolute(_as_text(one)) for one in path]
    if not paths:
        raise InvalidArgument("path is an empty list; expected files")
    if len(paths) == 1:
        return paths[0]
    if format not in parts.SHARDED:
        raise InvalidArgument(
            f"path is a list of {len(paths)}, and format {format!r} reads one "
            f"path: lists of shards are for {' and '.join(parts.SHARDED)}. "
            "Load each separately, and join them with datasetd.concat"
        )
    return _shards.pattern_of(paths)


def _as_text(path: Any) -> str:
    if not isinstance(path, (str, bytes, os.PathLike)) or not path:
        raise InvalidArgument(
            f"path={path!r}: expected the path of a file or directory. To push "
            "data of this process, call datasetd.push(name, data)"
        )
    text: str = os.fsdecode(path)
    if "://" in text and not os.path.exists(text):
        raise InvalidArgument(path_advice(text))
    return text


def path_advice(path: str) -> str:
    """Returns why there is nothing at `path`, and what to give instead; empty
    if something is there."""
    functions = library.load()
    text = functions.quick.path_advice(os.fsencode(os.path.expanduser(path)))
    advice: str = functions.take_text(text)
    return advice


def advice(format: str, path: str) -> str:
    """Returns what to give instead, as seen by this process; empty if nothing
    is found."""
    if format not in _FILES or _holds(path, format):
        return ""
    family = next((f for f in _FAMILIES if format in f), (format,))
    found: List[str] = []
    for folder in _folders(path):
        for other in sorted(family, key=lambda name: name != format):
            if _holds(folder, other):
                found.append(f"path={folder!r} with format={other!r}")
    if not found:
        return ""
    return "Found here: " + ", or ".join(found[:_MAX_NAMED])


def _holds(folder: str, format: str) -> bool:
    return any(
        os.path.isfile(os.path.join(folder, name + ending))
        for name in _FILES[format]
        for ending in ("", ".gz")
    )


def _folders(path: str) -> Iterator[str]:
    """Yields the folder, those in it and those in these."""
    level = [path]
    left = _MAX_FOLDERS
    for _ in range(3):
        yield from level
        level = [inner for folder in level for inner in _inner(folder)][:left]
        left -= len(level)


def _inner(folder: str) -> List[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(
                entry.path for entry in entries if entry.is_dir()
            )[:_MAX_FOLDERS]
    except OSError:
        return []
