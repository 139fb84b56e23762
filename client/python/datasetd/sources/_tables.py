from __future__ import annotations

import os
import re
from typing import Any

from ._base import Fields, Path, choose, existing, library


def parquet(path: Path, fields: Fields = None) -> Any:
    """Reads columns of a Parquet file, or of a directory of them, with pyarrow:
    numbers, lists of one length, and encoded images as binary or as structs of
    bytes and path. Paths are not opened."""
    pq = library("pyarrow.parquet", "pyarrow", "parquet")
    _check_version("parquet")
    found = existing(path)
    # pyarrow refuses a directory of files with columns of one name itself.
    if os.path.isfile(found):
        names = pq.read_schema(found).names
    else:
        names = pq.ParquetDataset(found).schema.names
    chosen = choose(fields, names, str(path))
    columns = list(dict.fromkeys(chosen.values()))
    return _renamed(pq.read_table(found, columns=columns), chosen)


def arrow(path: Path, fields: Fields = None) -> Any:
    """Reads columns of an Arrow file or stream, or of Feather 2, with pyarrow.

    The file is mapped and read in order; it need not fit in memory.
    """
    pyarrow = library("pyarrow", "pyarrow", "arrow")
    library("pyarrow.ipc", "pyarrow", "arrow")
    _check_version("arrow")
    file = pyarrow.memory_map(existing(path))
    try:
        table = pyarrow.ipc.open_file(file).read_all()
    except pyarrow.ArrowInvalid:
        file.seek(0)
        table = pyarrow.ipc.open_stream(file).read_all()
    names = table.schema.names
    return _renamed(table, choose(fields, names, str(path)))


def _check_version(purpose: str) -> None:
    """Before version 14.0.1, pyarrow runs code that a file holds."""
    version = library("pyarrow", "pyarrow", purpose).__version__
    if [int(n) for n in re.findall("[0-9]+", version)[:3]] < [14, 0, 1]:
        library("pyarrow_hotfix", "pyarrow>=14.0.1", purpose)


def _renamed(table: Any, chosen: Any) -> Any:
    return table.select(list(chosen.values())).rename_columns(list(chosen))
