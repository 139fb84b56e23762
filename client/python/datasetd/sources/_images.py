from __future__ import annotations

import io
import os
from typing import Any, List, NoReturn, Optional, Sequence, Tuple

from ..errors import DataLoss, InvalidArgument
from ._base import Path, existing, library
from ._folders import walk


def decode_image(data: bytes, mode: Optional[str] = "RGB") -> Any:
    """The PIL image of an encoded file: JPEG, PNG, WebP, TIFF and what else
    Pillow reads; of several frames, the first.

    `mode` is Pillow's, None the file's own. Of 16 bits a channel a mode of 8
    bits takes the upper ones, and floats and 32 bits raise InvalidArgument.
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
        self, root: str, classes: List[str], files: List[Tuple[str, int]],
        mode: Optional[str],
    ) -> None:
        self.classes = classes
        self._root = root
        self._files = files
        self._mode = mode

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, i: int) -> Tuple[Any, int]:
        name, label = self._files[i]
        path = os.path.join(self._root, name)
        with open(path, "rb") as file:
            data = file.read()
        try:
            return decode_image(data, self._mode), label
        except MemoryError:
            raise
        except Exception as error:  # Pillow's plugins raise any
            raise DataLoss(f"{path}: {error}") from error


def _refuse(error: OSError) -> NoReturn:
    raise error


def image_folder(
    path: Path,
    extensions: Optional[Sequence[str]] = None,
    mode: Optional[str] = "RGB",
) -> Any:
    """Images of a directory of a directory for each class, decoded by Pillow:
    `image` and `label`, in the order of torchvision's ImageFolder.

    Args:
      extensions: as [".tif", ".webp"]; None is all that Pillow knows.
      mode: as of decode_image; None is each file's own, with palettes refused.

    A class without an image is an error, and so is a directory that cannot be
    read. For JPEG and PNG, load_dataset's image_folder is faster.
    """
    pillow = library("PIL.Image", "pillow", "image_folder")
    root = existing(path)
    if extensions is None:
        extensions = list(pillow.registered_extensions())
    endings = tuple(ending.lower() for ending in extensions)
    classes = sorted(e.name for e in os.scandir(root) if e.is_dir())
    if not classes:
        raise InvalidArgument(
            f"{root} holds no directory, expected one for each class"
        )
    files: List[Tuple[str, int]] = []
    for label, kind in enumerate(classes):
        top = os.path.join(root, kind)
        paths = [
            os.path.join(folder, name)
            for folder, names in sorted(walk(top, _refuse))
            for name in names
            if name.lower().endswith(endings)
        ]
        if not paths:
            raise InvalidArgument(
                f"{top}: a class without an image; remove the directory, or "
                "put images into it"
            )
        files += [(os.path.relpath(path, root), label) for path in paths]
    return _Folder(root, classes, files, mode)
