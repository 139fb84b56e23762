from __future__ import annotations

import re
from typing import Any, List, Mapping, Sequence, Union

from ..errors import InvalidArgument
from ._base import Path, Source, existing, library

_MAX_INT64 = (1 << 63) - 1
_NUMBER = re.compile(r"\s*[-+]?\d+(\.\d*)?([eE][-+]?\d+)?\s*")


def csv(
    path: Path,
    fields: Union[
        None, str, Sequence[str], Mapping[str, Union[str, Sequence[str]]]
    ] = None,
    **options: Any,
) -> Source:
    """Columns of a CSV file, by pandas.

    Args:
      fields: columns, or for each field a column, or a list of columns, which
        make a field (K,) of each sample:
        `{"x": ["width", "height"], "label": "species"}`.
      options: of pandas.read_csv, as sep=";". low_memory is False by default.

    Integers become int64, other numbers float32. One text column may be
    chosen: it becomes class indices, in alphabetical order, and its texts
    become the class names.
    """
    pandas = library("pandas", "pandas", "csv")
    frame = _read(pandas, existing(path), options)
    if options.get("index_col") is None and not frame.index.equals(
        pandas.RangeIndex(len(frame))
    ):
        raise InvalidArgument(
            f"{path}: rows have more cells than there are names of columns, "
            "and pandas takes the first cells for an index: name all, as "
            "names=[...] with header=0 if the file has a header"
        )
    # Without a header they are numbers.
    frame.columns = [str(name) for name in frame.columns]
    if fields is None:
        fields = list(frame)
    elif isinstance(fields, str):
        fields = [fields]
    chosen = (
        dict(fields)
        if isinstance(fields, Mapping)
        else {str(name): name for name in fields}
    )
    classes: List[str] = []
    columns = {}
    for field, names in chosen.items():
        is_group = isinstance(names, (list, tuple))
        group = [str(name) for name in names] if is_group else [str(names)]
        missing = [name for name in group if name not in frame]
        if missing:
            raise InvalidArgument(
                f"{path} has no column {missing[0]!r}; it has "
                f"{', '.join(map(str, frame))}"
            )
        part = frame[group]
        if part.isna().to_numpy().any():
            raise InvalidArgument(
                f"{path}: {group} has empty cells: fill them, as "
                "frame = pandas.read_csv(...).fillna(0), and push_dataset("
                "name, frame)"
            )
        for name, dtype in zip(group, part.dtypes):
            if dtype.kind == "u":
                is_too_wide = (frame[name] > _MAX_INT64).any()
            else:
                is_too_wide = (
                    dtype.kind not in "bif"
                    and not _is_typed(options, name)
                    and _are_wide_numbers(frame[name])
                )
            if is_too_wide:
                raise InvalidArgument(
                    f"{path}: column {name!r} has integers below -2**63 or "
                    "above 2**63 - 1, and integers become int64: leave it out "
                    "with fields=, or make classes of it with dtype="
                    f"{{{name!r}: str}}"
                )
        if all(dtype.kind in "biuf" for dtype in part.dtypes):
            is_whole = all(dtype.kind in "biu" for dtype in part.dtypes)
            values = part.to_numpy("int64" if is_whole else "float32")
            columns[field] = values if is_group else values[:, 0]
            continue
        if len(group) > 1 or classes:
            raise InvalidArgument(
                f"{path}: {group} holds text, which only one column may: "
                "leave it out with fields="
            )
        codes, texts = pandas.factorize(part[group[0]].astype(str), sort=True)
        columns[field] = codes.astype("int64")
        classes = [str(text) for text in texts]
    return Source(columns, classes)


def _are_wide_numbers(column: Any) -> bool:
    """True for texts that pandas would have read as numbers, if 64 bits held
    them."""
    return all(_NUMBER.fullmatch(str(value)) for value in column) and any(
        abs(float(value)) > _MAX_INT64 for value in column
    )


def _is_typed(options: Mapping[str, Any], name: str) -> bool:
    """True if the options say what becomes of the column's texts."""
    for given in (options.get("dtype"), options.get("converters")):
        if given is not None:
            if not isinstance(given, Mapping) or name in map(str, given):
                return True
    return False


def _read(pandas: Any, path: str, options: Mapping[str, Any]) -> Any:
    """Reads each column as a whole. pandas would read a file in pieces, and a
    class such as 007 be a number in some of them and text in others."""
    if "low_memory" not in options:
        try:
            return pandas.read_csv(path, low_memory=False, **options)
        except ValueError as error:
            # Other engines read whole columns, and do not know the option.
            if "low_memory" not in str(error):
                raise
    return pandas.read_csv(path, **options)
