"""Directories and those below them."""

from __future__ import annotations

import errno
import os
from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    Iterator,
    List,
    NoReturn,
    Optional,
    Sequence,
    Tuple,
)

from ..errors import InvalidArgument
from ._base import Note, class_list, index_of, listed, unlisted

# Root, class names, and of each file its path from there and its class.
ClassFiles = Tuple[str, List[str], List[Tuple[str, Optional[int]]], List[Note]]


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


def class_files(
    root: str,
    extensions: Sequence[str],
    kind: Tuple[str, str],
    classes: Any,
    ignore_other_classes: bool,
) -> ClassFiles:
    """Finds the files of a directory with one directory per class, in the order
    of torchvision's ImageFolder; those of a directory without directories have
    no class. `kind` is what such a file, and what several are called."""
    one, many = kind
    endings = tuple(ending.lower() for ending in extensions)
    names = class_list(classes)
    folders = sorted(e.name for e in os.scandir(root) if e.is_dir())
    hidden = [name for name in folders if name.startswith(".")]
    notes = []
    if hidden:
        notes.append(Note(f"left out: hidden directories, {listed(hidden)}"))
    folders = [name for name in folders if name not in hidden]
    loose = sorted(
        e.name
        for e in os.scandir(root)
        if e.is_file() and e.name.lower().endswith(endings)
    )
    if not folders and loose and names is None:
        notes.append(Note("there are no directories of classes: no labels"))
        return root, [], [(name, None) for name in loose], notes
    if not folders:
        raise InvalidArgument(
            f"{root} contains no directory, expected one for each class"
            + ("" if names is None else f" of {listed(names)}")
        )
    if loose:
        notes.append(
            Note(
                f"left out: {len(loose)} {many} outside of the directories of "
                "classes",
                True,
            )
        )
    if names is None:
        names = folders
    index_of(names, "classes")
    others = [name for name in folders if name not in names]
    if others and not ignore_other_classes:
        raise unlisted(
            others[0], os.path.join(root, others[0]), names, "classes"
        )
    if others:
        notes.append(
            Note(
                "left out: directories of classes that are not listed, "
                + listed(others)
            )
        )
    files: List[Tuple[str, Optional[int]]] = []
    left_out: Dict[str, int] = {}  # files by ending
    for label, name in enumerate(names):
        before = len(files)
        top = os.path.join(root, name)
        walked = walk(top, _refuse) if name in folders else ()
        for folder, inner in sorted(walked):
            for file in inner:
                if file.lower().endswith(endings):
                    path = os.path.join(folder, file)
                    files.append((os.path.relpath(path, root), label))
                else:
                    ending = os.path.splitext(file)[1].lower() or file
                    left_out[ending] = left_out.get(ending, 0) + 1
        if len(files) == before:
            notes.append(Note(f"class {name!r} has no {one}"))
    if not files:
        raise InvalidArgument(
            f"{root}: no {one} in the directories of its classes, "
            f"{listed(names)}; {many} end in {', '.join(endings[:8])}, ..."
        )
    if left_out:
        counts = [f"{count} {ending}" for ending, count in left_out.items()]
        notes.append(
            Note(f"left out: files of other kinds, {', '.join(counts[:8])}")
        )
    return root, names, files, notes


def _refuse(error: OSError) -> NoReturn:
    raise error
