"""Names the folder that a wrong path probably meant."""

from __future__ import annotations

import os
from typing import Dict, Iterator, List, Tuple

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
