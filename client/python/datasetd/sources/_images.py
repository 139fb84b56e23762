from __future__ import annotations

import io
import os
from typing import Any, Dict, List, NoReturn, Optional, Sequence, Tuple

from ..errors import DataLoss, InvalidArgument
from ._base import (
    Note,
    Path,
    class_list,
    existing,
    index_of,
    library,
    listed,
    unlisted,
)
from ._folders import walk


def decode_image(data: bytes, mode: Optional[str] = "RGB") -> Any:
    """Returns the PIL image of an encoded file: JPEG, PNG, WebP, TIFF or any
    other type that Pillow reads. Of several frames it returns the first.

    `mode` is a mode of Pillow, None that of the file. A mode of 8 bits takes
    the upper 8 of 16 bits per channel; floats and 32 bits raise
    InvalidArgument.
    """
    pillow = library("PIL.Image", "pillow", "decode_image")
    image = pillow.open(io.BytesIO(data))
    image.load()
    return image if mode is None else converted(image, mode)


def converted(image: Any, mode: str) -> Any:
    """As image.convert(mode), which cuts off what is above 255. REQUIRES: a
    file's image, as it was opened."""
    if _is_deep(mode) or not _is_deep(image.mode):
        return image.convert(mode)
    # Older versions of Pillow have 16 bits of a PNG in mode I.
    if image.mode in ("I", "F") and image.format != "PNG":
        raise InvalidArgument(
            f"an image of Pillow's mode {image.mode} does not fit into mode "
            f"{mode}, of 8 bits: mode=None keeps its values"
        )
    import numpy

    pillow = library("PIL.Image", "pillow", "decode_image")
    image.load()  # a TIFF may be turned by it
    upper = (numpy.asarray(image) >> 8).astype(numpy.uint8)
    grey = pillow.fromarray(upper)
    grey.info = dict(image.info)
    return grey.convert(mode)


def _is_deep(mode: str) -> bool:
    """True for the modes of more than 8 bits a channel."""
    return mode in ("I", "F") or mode.startswith("I;16")


class _Folder:
    def __init__(
        self,
        root: str,
        classes: List[str],
        files: List[Tuple[str, Optional[int]]],
        mode: Optional[str],
        notes: List[Note],
    ) -> None:
        self.classes = classes
        self.notes = notes
        self._root = root
        self._files = files
        self._mode = mode

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, i: int) -> Any:
        name, label = self._files[i]
        path = os.path.join(self._root, name)
        with open(path, "rb") as file:
            data = file.read()
        try:
            image = decode_image(data, self._mode)
        except MemoryError:
            raise
        except Exception as error:  # Pillow's plugins raise any
            raise DataLoss(f"{path}: {error}") from error
        return image if label is None else (image, label)


def _refuse(error: OSError) -> NoReturn:
    raise error


def image_folder(
    path: Path,
    extensions: Optional[Sequence[str]] = None,
    mode: Optional[str] = "RGB",
    classes: Any = None,
    ignore_other_classes: bool = False,
) -> Any:
    """Reads images from a directory with one directory per class, decoded by
    Pillow: `image` and `label`, in the order of torchvision's ImageFolder. A
    directory that contains only images has only `image`.

    Args:
      extensions: such as [".tif", ".webp"]; None: all that Pillow knows.
      mode: as in decode_image; None: that of each file, with palettes refused.
      classes: class names, in the order of the labels: a list, or an object
        with `classes`, such as a Dataset; a class may have no directory. None:
        the sorted directories, except those whose names begin with a dot.
      ignore_other_classes: omits directories of other classes.

    A directory that cannot be read is an error. For JPEG and PNG,
    load_dataset's image_folder is faster.
    """
    pillow = library("PIL.Image", "pillow", "image_folder")
    root = existing(path)
    if extensions is None:
        extensions = list(pillow.registered_extensions())
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
        unlabelled: List[Tuple[str, Optional[int]]] = [
            (name, None) for name in loose
        ]
        return _Folder(root, [], unlabelled, mode, notes)
    if not folders:
        raise InvalidArgument(
            f"{root} contains no directory, expected one for each class"
            + ("" if names is None else f" of {listed(names)}")
        )
    if loose:
        notes.append(
            Note(
                f"left out: {len(loose)} images outside of the directories of "
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
    for label, kind in enumerate(names):
        top = os.path.join(root, kind)
        before = len(files)
        walked = walk(top, _refuse) if kind in folders else ()
        for folder, inner in sorted(walked):
            for name in inner:
                if name.lower().endswith(endings):
                    path = os.path.join(folder, name)
                    files.append((os.path.relpath(path, root), label))
                else:
                    ending = os.path.splitext(name)[1].lower() or name
                    left_out[ending] = left_out.get(ending, 0) + 1
        if len(files) == before:
            notes.append(Note(f"class {kind!r} has no image"))
    if not files:
        raise InvalidArgument(
            f"{root}: no image in the directories of its classes, "
            f"{listed(names)}; images end in {', '.join(endings[:8])}, ..."
        )
    if left_out:
        counts = [f"{count} {ending}" for ending, count in left_out.items()]
        notes.append(
            Note(f"left out: files of other kinds, {', '.join(counts[:8])}")
        )
    return _Folder(root, names, files, mode, notes)
