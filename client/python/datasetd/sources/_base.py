"""Helpers of the sources."""

from __future__ import annotations

import importlib
import os
from typing import Any, Dict, Iterable, List, Mapping, Sequence, Tuple, Union

from ..errors import FailedPrecondition, InvalidArgument, NotFound

Path = Union[str, "os.PathLike[str]"]
Fields = Union[None, str, Sequence[str], Mapping[str, str]]


class Source(Dict[str, Any]):
    """Columns by field: arrays [N, ...] of N samples."""

    def __init__(
        self, columns: Mapping[str, Any], classes: Sequence[str] = ()
    ) -> None:
        super().__init__(columns)
        self.classes: List[str] = list(classes)


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
    exist."""
    expanded = os.path.expanduser(os.fspath(path))
    if not os.path.exists(expanded):
        raise NotFound(f"{expanded}: no such file or directory")
    return expanded


def choose(fields: Fields, names: Iterable[str], where: str) -> Dict[str, str]:
    """Returns the file's name of each field."""
    there = list(names)
    if fields is None:
        chosen = {name: name for name in there}
    elif isinstance(fields, Mapping):
        chosen = dict(fields)
    else:
        wanted = [fields] if isinstance(fields, str) else fields
        chosen = {name: name for name in wanted}
    for name in chosen.values():
        if name not in there:
            raise InvalidArgument(
                f"{where} has no {name!r}; it has {', '.join(there) or 'none'}"
            )
    if not chosen:
        raise InvalidArgument(f"{where} holds no array")
    return chosen


def shards(paths: Union[Path, Sequence[Path]]) -> Tuple[str, ...]:
    """Returns the files in order: one or several."""
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    return tuple(existing(path) for path in paths)
