from __future__ import annotations

from typing import Any, Iterator

from ..errors import FailedPrecondition, InvalidArgument
from ._base import (
    Fields,
    Note,
    Path,
    Source,
    choose,
    existing,
    library,
    listed,
)


def zarr(path: Path, fields: Fields = None) -> Source:
    """Reads arrays [N, ...] of a Zarr group, or a single array, which is named
    `data` or by the only name in `fields`.

    Arrays are read in order, chunk by chunk; they need not fit in memory.
    Chunks that are pickles are refused: reading them would run their code.
    """
    package = library("zarr", "zarr", "zarr")
    root = package.open(existing(path), mode="r")
    return _columns(root, package.Group, fields, path)


def n5(path: Path, fields: Fields = None) -> Source:
    """Reads arrays [N, ...] of an N5 group, with zarr before version 3."""
    package = library("zarr", "zarr<3", "n5")
    store = getattr(package, "N5Store", None)
    if store is None:
        raise FailedPrecondition(
            f"zarr {package.__version__} does not read N5: pip install 'zarr<3'"
        )
    root = package.open(store(existing(path)), mode="r")
    return _columns(root, package.Group, fields, path)


def _columns(root: Any, group: Any, fields: Fields, path: Path) -> Source:
    if not isinstance(root, group):
        names = [fields] if isinstance(fields, str) else None
        columns = dict.fromkeys(
            names or choose(fields, ["data"], str(path)), root
        )
        notes = []
    else:
        # zarr 3 lists them in any order.
        names = sorted(name for name, _ in root.arrays())
        chosen = choose(fields, names, str(path))
        groups = sorted(name for name, _ in root.groups())
        left_out = [name for name in names if name not in chosen.values()]
        notes = [
            Note(f"left out: {kind} {listed(found)}")
            for kind, found in (("groups", groups), ("arrays", left_out))
            if found
        ]
        columns = {field: root[name] for field, name in chosen.items()}
    for field, array in columns.items():
        if "pickle" in _codecs(array):
            raise InvalidArgument(
                f"{path}: the chunks of {field!r} are pickles, which may run "
                "code: open it with zarr, and push the array if it may be "
                "trusted"
            )
    return Source(columns, notes=notes)


def _codecs(array: Any) -> Iterator[str]:
    # zarr 3 has any number of compressors, zarr 2 one or none.
    compressors = (
        array.compressors
        if hasattr(array, "compressors")
        else [array.compressor]
    )
    for codec in (*(array.filters or ()), *compressors):
        yield getattr(codec, "codec_id", "")
        # N5 wraps the compressor of a file.
        yield getattr(getattr(codec, "_compressor", None), "codec_id", "")
