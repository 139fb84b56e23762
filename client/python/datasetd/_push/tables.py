"""Tables of Arrow, and datasets of Hugging Face, as columns."""

from __future__ import annotations

import collections
from typing import Any, Callable, Dict, Sequence

from ..errors import InvalidArgument
from . import audio, encoded
from .columns import Columns
from .field_names import FieldNames
from .rows import (
    ArrowRows,
    Rows,
    SequenceRows,
    is_arrow_numeric,
    is_list_type,
    sequence_rows,
)


def _arrow_rows(
    name: str,
    kind: Any,
    length: int,
    read: Callable[[int, int], Any],
    names: FieldNames,
    may_open: bool = False,
) -> Any:
    where = f"column {name!r}"
    if _is_text(kind) and names.is_label(name):
        texts = read(0, length).to_pylist()
        return Rows(names.label_column(texts, name, where), where)
    if names.labels.translates(name):
        own = read(0, length).to_pylist()
        return Rows(names.own_column(own, where), where)
    if encoded.is_arrow_files(kind):
        return encoded.FileRows(
            length,
            lambda begin, end: encoded.arrow_files(read(begin, end)),
            where,
            may_open,
        )
    if (
        names.kind(name) in ("auto", "sequence")
        and is_list_type(kind)
        and is_arrow_numeric(kind)
    ):
        is_asked = names.kind(name) == "sequence"
        rows = sequence_rows(length, read, where, is_asked)
        if isinstance(rows, SequenceRows):
            names.make_sequence(name)
        return rows
    return ArrowRows(length, read, where)


def _is_text(kind: Any) -> bool:
    """True for Arrow's text, also as the values of a dictionary."""
    import pyarrow

    types = pyarrow.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind))


def places_of(
    columns: Sequence[Any], names: FieldNames, where: str
) -> Dict[str, int]:
    """Returns the places of the chosen ones among the columns of a table."""
    texts = [str(name) for name in columns]
    chosen = names.choose({text: i for i, text in enumerate(texts)}, where)
    counts = collections.Counter(texts)
    for name in map(names.source, chosen):
        if counts[name] > 1:
            raise InvalidArgument(
                f"{where} has {counts[name]} columns called {name!r}: rename "
                "them, or leave them out with fields="
            )
    return chosen


def of_arrow(table: Any, names: FieldNames) -> Any:
    """Returns columns, or samples if recordings are decoded one by one."""
    chosen = places_of(table.schema.names, names, "the table")
    for i in chosen.values():
        is_file = encoded.is_arrow_files(table.schema.field(i).type)
        if is_file and table.num_rows and audio.is_audio_file(
            table.column(i)[0].as_py()
        ):
            return audio.ArrowSamples(table)

    def rows(name: str, i: int) -> Any:
        column = table.column(i)
        return _arrow_rows(
            name,
            table.schema.field(i).type,
            table.num_rows,
            lambda begin, end: column.slice(begin, end - begin),
            names,
        )

    return Columns({n: rows(n, i) for n, i in chosen.items()}, names)


def of_hugging_face(dataset: Any, names: FieldNames) -> Any:
    """Returns columns, or samples if recordings are decoded one by one; None
    if the dataset decodes its samples."""
    settings = dataset.format
    if settings["type"] == "custom":
        return None
    schema = dataset.features.arrow_schema
    chosen = names.choose(
        {name: name for name in settings["columns"]}, "the dataset"
    )
    samples = audio.of_hugging_face(dataset, chosen)
    if samples is not None:
        return samples
    kinds = {name: schema.field(key).type for name, key in chosen.items()}

    def rows(name: str) -> Any:
        column = dataset.with_format("arrow", columns=[chosen[name]])
        return _arrow_rows(
            name,
            kinds[name],
            len(dataset),
            lambda begin, end: column[begin:end].column(0),
            names,
            may_open=True,
        )

    columns = {name: rows(name) for name in chosen}
    # As the images that samples would be.
    names.images = names.images.of_hugging_face()
    for name, column in columns.items():
        if isinstance(column, encoded.FileRows):
            if getattr(dataset.features[chosen[name]], "mode", None):
                return None
            if not len(dataset) or not _is_sent_encoded(name, column, names):
                return None
        elif isinstance(column, ArrowRows) and not is_arrow_numeric(
            kinds[name]
        ):
            return None
    return Columns(columns, names)


def _is_sent_encoded(
    name: str, column: encoded.FileRows, names: FieldNames
) -> bool:
    kind = names.kind(name)
    first = column.first()
    return (
        kind in ("auto", "image", "mask")
        and encoded.is_image_file(first)
        and encoded.channels_of(
            first, names.images, "mask" in (kind, name) and kind != "image"
        )
        > 0
    )
