from __future__ import annotations

from ._base import Fields, Path, Source, choose, existing, library


def npz(path: Path, fields: Fields = None) -> Source:
    """Arrays [N, ...] of an .npz file, by NumPy, which reads them into memory.

    Arrays of Python objects are refused: reading them would run their code.
    """
    numpy = library("numpy", "numpy", "npz")
    with numpy.load(existing(path), allow_pickle=False) as file:
        chosen = choose(fields, file.files, str(path))
        return Source({field: file[name] for field, name in chosen.items()})
