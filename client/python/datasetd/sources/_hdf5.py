from __future__ import annotations

from typing import Any, List, Mapping, Tuple

from ..errors import DataLoss, InvalidArgument
from ._base import (
    DTYPES,
    IMAGE_MAGIC,
    Choices,
    Fields,
    Note,
    Path,
    Source,
    array_kinds,
    choose,
    existing,
    library,
)
from ._names import is_label

_DTYPES = ("bool", *DTYPES)


class _Rows:
    """An HDF5 dataset, read by slices."""

    def __init__(self, dataset: Any, where: str) -> None:
        self._dataset = dataset
        self._where = where
        self.shape: Tuple[int, ...] = dataset.shape
        self.chunks = dataset.chunks
        self.dtype = dataset.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        try:
            return self._dataset[key]
        except OSError as error:
            raise DataLoss(f"{self._where}: {error}") from error


def hdf5(
    path: Path,
    fields: Fields = None,
    images: Choices = None,
    masks: Choices = None,
) -> Source:
    """Reads datasets [N, ...] of an HDF5 file with h5py: numbers, and encoded
    images as uint8 of variable length.

    They are read in order, and need not fit in memory. Text becomes classes in
    a dataset or a field whose name is one of labels: label, class, species.
    Data in other files, through external links, external storage or virtual
    datasets, is refused.

    Args:
      fields: "group/name" names a dataset of a group. None: the datasets of
        numbers and images in the root, sorted by name, without links.
      images, masks: as in npz().
    """
    h5py = library("h5py", "h5py", "hdf5")
    found = existing(path)
    try:
        file = h5py.File(found, "r")
    except OSError as error:
        raise DataLoss(f"{found}: {error}") from error

    notes = []
    if fields is None:
        names = sorted(name for name in file if _is_field(file, name, h5py))
        notes = _left_out(file, names, h5py)
    else:
        names = _datasets(file, fields, h5py)
    columns = {}
    for field, name in choose(fields, names, found).items():
        dataset = file[name]
        if _is_elsewhere(dataset, file):
            raise InvalidArgument(
                f"{found}: {name!r} keeps its data in other files, which are "
                "not read: open it with h5py, and push the dataset if you "
                "trust the file"
            )
        if _is_text(dataset, h5py) and (is_label(field) or is_label(name)):
            columns[field] = dataset.asstr()[:].astype(str)
            continue
        if not _is_array(dataset) and not _is_files(dataset, h5py):
            raise InvalidArgument(
                f"{found}: {name!r} is not an array [N, ...] of numbers that "
                f"datasetd supports: {', '.join(_DTYPES)}"
            )
        columns[field] = _Rows(dataset, f"{found}: {name!r}")
    kinds = array_kinds(columns, images, masks)
    return Source(columns, kinds=kinds, notes=notes)


def _left_out(file: Any, names: List[str], h5py: Any) -> List[Note]:
    """Returns the notes of what is in the root and no field. What may be the
    labels is a warning."""
    texts = []
    is_warning = False
    for name in sorted(file):
        if name in names:
            continue
        what = _description(file, name, h5py)
        texts.append(f"{name!r} ({what})")
        is_warning = is_warning or is_label(name) or what == "text"
    if not texts:
        return []
    more = f" and {len(texts) - 8} more" if len(texts) > 8 else ""
    text = (
        f"left out: {', '.join(texts[:8])}{more}; "
        "fields={'x': 'group/name'} names datasets of groups"
    )
    return [Note(text, is_warning)]


def _description(file: Any, name: str, h5py: Any) -> str:
    """Returns what is no field, in a word or two."""
    link = file.get(name, getlink=True)
    if not isinstance(link, h5py.HardLink):
        return "a link"
    item = file[name]
    if not isinstance(item, h5py.Dataset):
        return "a group"
    try:
        if h5py.check_string_dtype(item.dtype) is not None:
            return "text"
        if item.dtype.names is not None:
            return "a compound type"
        if not item.shape:
            return "one value"
        return str(item.dtype)
    except TypeError:
        return "a type that NumPy does not have"


def _is_array(dataset: Any) -> bool:
    try:
        name = dataset.dtype.name
    except TypeError:  # a type that NumPy does not have, such as bit fields
        return False
    return name in _DTYPES and bool(dataset.shape)


def _is_text(dataset: Any, h5py: Any) -> bool:
    """True for one text for each sample."""
    try:
        kind = h5py.check_string_dtype(dataset.dtype)
    except TypeError:
        return False
    return kind is not None and len(dataset.shape or ()) == 1


def _is_files(dataset: Any, h5py: Any) -> bool:
    """True for elements that are bytes of any number."""
    try:
        kind = h5py.check_vlen_dtype(dataset.dtype)
    except TypeError:
        return False
    return (
        getattr(kind, "name", "") == "uint8" and len(dataset.shape or ()) == 1
    )


def _is_elsewhere(dataset: Any, file: Any) -> bool:
    """True for external links and storage, and virtual datasets: by them a
    file could name any other file of its reader's."""
    return bool(
        dataset.file.filename != file.filename
        or dataset.external
        or dataset.is_virtual
    )


def _is_field(file: Any, name: str, h5py: Any) -> bool:
    """True for a dataset of numbers that is no link."""
    if not isinstance(file.get(name, getlink=True), h5py.HardLink):
        return False
    item = file[name]
    return isinstance(item, h5py.Dataset) and (
        _is_array(item)
        or _is_text(item, h5py)
        and is_label(name)
        or _is_files(item, h5py) and _begins_with_image(item)
    )


def _begins_with_image(dataset: Any) -> bool:
    return len(dataset) > 0 and bytes(dataset[0][:8]).startswith(IMAGE_MAGIC)


def _datasets(file: Any, fields: Fields, h5py: Any) -> List[str]:
    """Returns the datasets of all groups, and links to them in `fields`."""
    names: List[str] = []
    file.visititems(
        lambda name, item: names.append(name)
        if isinstance(item, h5py.Dataset)
        else None
    )
    wanted = fields.values() if isinstance(fields, Mapping) else fields
    for name in [wanted] if isinstance(wanted, str) else wanted or ():
        if name not in names and isinstance(file.get(name), h5py.Dataset):
            names.append(name)
    return names
