from __future__ import annotations

import zipfile
import zlib

from ..errors import DataLoss, InvalidArgument
from ._base import (
    Choices,
    Fields,
    Path,
    Source,
    array_kinds,
    choose,
    existing,
    library,
)


def npz(
    path: Path,
    fields: Fields = None,
    images: Choices = None,
    masks: Choices = None,
) -> Source:
    """Reads arrays [N, ...] of an .npz file into memory, with NumPy.

    Args:
      fields: None: every array, sorted by name.
      images, masks: fields that are images or masks, and with a minus, fields
        that are not: ["photo", "-codes"] or "photo,-codes". None: as in format
        npy.

    Arrays of Python objects are refused: reading them would run their code.
    """
    numpy = library("numpy", "numpy", "npz")
    found = existing(path)
    if not zipfile.is_zipfile(found):
        raise DataLoss(f"{found} is no .npz file, or it is cut off")
    try:
        with numpy.load(found, allow_pickle=False) as file:
            chosen = choose(fields, sorted(file.files), found)
            columns = {field: file[name] for field, name in chosen.items()}
    except InvalidArgument:
        raise
    except ValueError as error:  # an array of objects
        raise InvalidArgument(f"{found}: {error}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise DataLoss(f"{found}: {error}") from error
    return Source(columns, kinds=array_kinds(columns, images, masks))
