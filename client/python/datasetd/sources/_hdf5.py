from __future__ import annotations

from ._base import Fields, Path, Source, choose, existing, library


def hdf5(path: Path, fields: Fields = None) -> Source:
    """Datasets [N, ...] of an HDF5 file, by h5py.

    They are read in order, and need not fit into memory. Unset, `fields` takes
    the datasets of the root; else "group/name" names one of a group.
    """
    h5py = library("h5py", "h5py", "hdf5")
    file = h5py.File(existing(path), "r")
    names = [n for n, item in file.items() if isinstance(item, h5py.Dataset)]
    if fields is not None:
        file.visititems(
            lambda name, item: names.append(name)
            if isinstance(item, h5py.Dataset) and "/" in name
            else None
        )
    chosen = choose(fields, names, str(path))
    return Source({field: file[name] for field, name in chosen.items()})
