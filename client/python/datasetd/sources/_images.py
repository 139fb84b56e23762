from __future__ import annotations

import io
import os
from typing import Any, List, Optional, Sequence, Tuple

from ..errors import DataLoss, InvalidArgument
from ._base import Note, Path, existing, library
from ._folders import class_files


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
    root, names, files, notes = class_files(
        root, extensions, ("image", "images"), classes, ignore_other_classes
    )
    return _Folder(root, names, files, mode, notes)
