from __future__ import annotations

from typing import Any, List, Mapping, Sequence, Union

from ..errors import InvalidArgument
from ._base import Path, Source, existing, library

_MAX_INT64 = (1 << 63) - 1


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
            raise InvalidArgument(f"{path}: {group} has empty cells; fill them")
        for name, dtype in zip(group, part.dtypes):
            if dtype.kind == "u" and (frame[name] > _MAX_INT64).any():
                raise InvalidArgument(
                    f"{path}: column {name!r} has integers above 2**63 - 1, "
                    "and integers become int64: leave it out with fields="
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
