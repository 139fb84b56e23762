"""Helpers of the sources."""

from __future__ import annotations

import collections
import importlib
import os
from typing import (
    Any,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Union,
)

from ..errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
)
from ._names import is_mask

Path = Union[str, "os.PathLike[str]"]
Fields = Union[None, str, Sequence[str], Mapping[str, str]]
# Fields that are something and, after a minus, fields that are not, as
# ["photo", "-codes"] or "photo,-codes".
Choices = Union[None, str, Sequence[str]]

# The daemon's, as NumPy has them.
DTYPES = (
    "uint8", "int8", "uint16", "int16", "uint32", "int32", "int64", "float16",
    "float32", "float64",
)
# First bytes of the images that the daemon decodes: JPEG, PNG and BMP.
IMAGE_MAGIC = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"BM")
_BYTES = ("uint8", "bool")
_IMAGE_DTYPES = ("uint8", "bool", "float16", "float32")
_MAX_CHANNELS = 4


class Note(NamedTuple):
    """Something that was omitted, changed or decided; a warning if training
    may be affected."""

    text: str
    is_warning: bool = False


class Source(Dict[str, Any]):
    """Columns by field: arrays [N, ...] of N samples.

    Attributes: classes, the class names; kinds, the kinds of fields, which
    push_dataset would otherwise guess; notes, for Dataset.notes; label, the
    field that contains indices of classes.
    """

    def __init__(
        self,
        columns: Mapping[str, Any],
        classes: Sequence[str] = (),
        kinds: Optional[Mapping[str, str]] = None,
        notes: Iterable[Note] = (),
        label: str = "label",
    ) -> None:
        super().__init__(columns)
        self.classes: List[str] = list(classes)
        self.kinds: Dict[str, str] = dict(kinds or {})
        self.notes: List[Note] = list(notes)
        self.label = label


class SampleSource:
    """Samples that are read one by one: has len() and [i].

    Attributes as of Source.
    """

    classes: List[str]
    kinds: Dict[str, str]
    notes: List[Note]
    label = "label"


def listed(names: Iterable[Any], most: int = 8) -> str:
    """Returns the names for a message; of more than `most` the first ones and
    the number of the others."""
    texts = [repr(str(name)) for name in names]
    rest = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {rest} more" if rest > 0 else "")


def class_list(classes: Any, option: str = "classes") -> Optional[List[str]]:
    """Returns the class names that an option gives, as a list or by what has
    `classes`, such as a Dataset; None for None."""
    if classes is None:
        return None
    if isinstance(classes, str):
        raise InvalidArgument(
            f"{option}={classes!r}: only load_dataset and push_dataset take "
            "the name of a resident dataset; here pass its list, "
            "dataset.classes"
        )
    names = getattr(classes, "classes", classes)
    if not isinstance(names, (list, tuple)) or not all(
        isinstance(name, str) for name in names
    ):
        raise InvalidArgument(
            f"{option}={classes!r}; expected a list of class names, a dataset "
            "that has classes, or the name of a resident one"
        )
    if not names:
        raise InvalidArgument(f"{option} is empty; expected class names")
    return list(names)


def index_of(names: Sequence[str], option: str) -> Dict[str, int]:
    """Returns the index of each class."""
    for name, count in collections.Counter(names).items():
        if count > 1:
            raise InvalidArgument(f"{option} has {name!r} {count} times")
    return {name: i for i, name in enumerate(names)}


def unlisted(
    name: str, where: str, classes: Sequence[str], option: str
) -> InvalidArgument:
    """The error for a class that `option` does not list."""
    return InvalidArgument(
        f"{where} is of class {name!r}, which {option} does not list: "
        f"{listed(classes)}. Add it there, or leave such samples out with "
        "ignore_other_classes=True"
    )


def library(module: str, package: str, purpose: str) -> Any:
    """Imports a module; FailedPrecondition names the package if missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise FailedPrecondition(
            f"datasetd.sources.{purpose} needs the Python package {package!r}: "
            f"pip install {package} ({error})"
        ) from error


def existing(path: Path) -> str:
    """Returns the path with ~ expanded; raises NotFound if it does not
    exist, PermissionDenied if this process may not read it."""
    expanded = os.path.expanduser(os.fspath(path))
    if not os.path.exists(expanded):
        raise NotFound(f"{expanded}: no such file or directory")
    if not os.access(expanded, os.R_OK):
        raise PermissionDenied(
            f"{expanded}: this process reads the file, and may not"
        )
    return expanded


def choose(fields: Fields, names: Iterable[str], where: str) -> Dict[str, str]:
    """Returns the file's name of each field."""
    there = list(names)
    counts = collections.Counter(there)
    if fields is None:
        chosen = {name: name for name in there}
    elif isinstance(fields, Mapping):
        chosen = dict(fields)
    else:
        wanted = [fields] if isinstance(fields, str) else fields
        chosen = {name: name for name in wanted}
    for name in chosen.values():
        if name not in counts:
            raise InvalidArgument(
                f"{where} has no {name!r}; it has "
                f"{', '.join(map(str, there)) or 'none'}"
            )
        if counts[name] > 1:
            raise InvalidArgument(
                f"{where} has {name!r} {counts[name]} times: leave it out with "
                "fields="
            )
    if not chosen:
        raise InvalidArgument(f"{where} contains no array")
    return chosen


def array_kinds(
    arrays: Mapping[str, Any], images: Choices, masks: Choices
) -> Dict[str, str]:
    """Returns the kinds of arrays [N, ...], by the rules of format npy.

    Images are arrays (N, H, W, C) of 1 to 4 channels, and arrays (N, H, W) of
    uint8 or bool or of a field called image or mask. So are columns of encoded
    images, of objects. An image called mask is a mask, and so are those of one
    channel with other names of masks. `images` and `masks` choose otherwise.
    """
    is_image = _choices("images", images, arrays)
    is_chosen = _choices("masks", masks, arrays)
    kinds = {}
    for name, array in arrays.items():
        if is_chosen.get(name) and is_image.get(name) is False:
            raise InvalidArgument(
                f"images and masks contradict each other about {name!r}: a "
                "mask is an image"
            )
        kind = "auto" if array.dtype.kind == "U" else "array"
        by_default = _is_image(name, array)
        if is_chosen.get(name) or is_image.get(name, by_default):
            kind = "mask" if is_chosen.get(name, name == "mask") else "image"
        kinds[name] = kind
    for name, array in arrays.items():
        has_colours = any(
            kinds[other] == "image"
            and _channels(arrays[other]) > 1
            and not is_mask(other, True, True)
            for other in arrays
            if other != name
        )
        if (
            kinds[name] == "image"
            and name not in is_chosen
            and name not in is_image
            and _channels(array) == 1
            and is_mask(name, array.dtype.name in _BYTES, has_colours)
        ):
            kinds[name] = "mask"
    return kinds


def _channels(array: Any) -> int:
    """Returns the channels of an image; of encoded ones, which are looked at
    when they are sent, 0."""
    if array.dtype.kind == "O":
        return 0
    return int(array.shape[3]) if len(array.shape) == 4 else 1


def _choices(
    option: str, choices: Choices, names: Iterable[str]
) -> Dict[str, bool]:
    items = choices.split(",") if isinstance(choices, str) else choices or ()
    chosen: Dict[str, bool] = {}
    for item in items:
        text = item.strip()
        name = text[1:] if text.startswith("-") else text
        if name not in names or name in chosen:
            raise InvalidArgument(
                f"{option} is {choices!r}, expected fields, each once, with a "
                f"minus before those that are not {option}; the fields are "
                f"{', '.join(names)}"
            )
        chosen[name] = name == text
    return chosen


def _is_image(name: str, array: Any) -> bool:
    if array.dtype.kind == "O":
        return True
    if array.dtype.name not in _IMAGE_DTYPES:
        return False
    if len(array.shape) == 3:
        is_bytes = array.dtype.name in _BYTES
        return is_bytes or name in ("image", "mask")
    return len(array.shape) == 4 and 1 <= array.shape[3] <= _MAX_CHANNELS
