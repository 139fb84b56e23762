from __future__ import annotations

from typing import Any

from ..errors import FailedPrecondition
from ._base import Fields, Path, Source, choose, existing, library


def zarr(path: Path, fields: Fields = None) -> Source:
    """Arrays [N, ...] of a Zarr group, or a single array, named `data` or as
    `fields` says, one name.

    Read in order, chunk by chunk; they need not fit into memory.
    """
    package = library("zarr", "zarr", "zarr")
    root = package.open(existing(path), mode="r")
    return _columns(root, package.Group, fields, path)


def n5(path: Path, fields: Fields = None) -> Source:
    """Arrays [N, ...] of an N5 group, by zarr before version 3."""
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
        if isinstance(fields, str):
            return Source({fields: root})
        return Source(dict.fromkeys(choose(fields, ["data"], str(path)), root))
    # zarr 3 lists them in any order.
    names = sorted(name for name, _ in root.arrays())
    chosen = choose(fields, names, str(path))
    return Source({field: root[name] for field, name in chosen.items()})
