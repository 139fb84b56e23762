"""Directories and those below them."""

from __future__ import annotations

import errno
import os
from typing import Any, Callable, FrozenSet, Iterator, List, Tuple


def walk(
    folder: str,
    onerror: Callable[[OSError], Any],
    above: FrozenSet[Tuple[int, int]] = frozenset(),
) -> Iterator[Tuple[str, List[str]]]:
    """Yields the folder and all below it, with the sorted names of their files.

    Links are followed. What cannot be read, and a link to a folder that it lies
    in, is an error: it is left out if onerror() returns.
    """
    try:
        info = os.stat(folder)
        here = (info.st_dev, info.st_ino)
        if here in above:
            raise OSError(errno.ELOOP, "A link to a directory above it", folder)
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        onerror(error)
        return
    folders: List[str] = []
    files: List[str] = []
    for entry in entries:
        if _is_folder(entry, onerror):
            folders.append(entry.path)
        else:
            files.append(entry.name)
    yield folder, files
    for path in folders:
        yield from walk(path, onerror, above | {here})


def _is_folder(entry: Any, onerror: Callable[[OSError], Any]) -> bool:
    try:
        return bool(entry.is_dir())
    except OSError as error:
        onerror(error)
        return False
