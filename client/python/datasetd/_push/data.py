"""Input of a push: columns of arrays and tables, or samples."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .._arguments import has_items_of
from .._datasets.parts import Part
from ..errors import InvalidArgument
from ..sources._base import Note, SampleSource, Source
from ..sources._csv import NUMBER
from . import concat, encoded
from .columns import Columns
from .field_names import FieldNames, Kinds
from .labels import names_of_features
from .rows import Rows, is_named
from .samples import Fields, exact_array
from .tables import of_arrow, of_hugging_face, places_of

_OF_PANDAS = ("DataFrame", "ExtensionArray", "Index", "Series")
_LISTS_TEXT = (
    "a tuple of lists of numbers may be columns or samples: push columns as a "
    "dict {'x': X, 'y': y}, and samples as a list, list(data)"
)


class _Zipped:
    """Columns of objects as samples."""

    def __init__(self, columns: Mapping[str, Any], length: int) -> None:
        self._columns = columns
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, i: int) -> Dict[str, Any]:
        return {name: column[i] for name, column in self._columns.items()}


def _is_array(value: Any) -> bool:
    """True for arrays and tensors of at least one axis, including those not in
    memory, such as h5py's and zarr's, of which zarr's have no len()."""
    shape = getattr(value, "shape", None)
    return (
        hasattr(value, "dtype")
        and hasattr(value, "__getitem__")
        and isinstance(shape, tuple)
        and len(shape) > 0
    )


def _is_column(value: Any) -> bool:
    if _is_array(value):
        return True
    return (
        hasattr(value, "__len__")
        and hasattr(value, "__getitem__")
        and not isinstance(value, (str, bytes, Mapping))
        and getattr(value, "shape", None) != ()
    )


def _length(value: Any) -> int:
    return int(value.shape[0]) if _is_array(value) else len(value)


def _of_pandas(values: Any, where: str) -> Any:
    """Returns what pandas has, such as a Series, as a NumPy array, whose [i] is
    by position and not by the index; anything else as it is. Raises
    InvalidArgument if values are missing, also in polars' Series."""
    if is_named(values, "polars", "Series") and values.null_count():
        raise InvalidArgument(
            f"{where} has missing values: fill them, e.g. column.fill_null(0), "
            "or drop them, or leave the column out with fields="
        )
    if not is_named(values, "pandas", *_OF_PANDAS):
        return values
    # Int64, Float32, boolean and their like are objects otherwise.
    dtype = getattr(getattr(values, "dtype", None), "numpy_dtype", None)
    if dtype is None or dtype.kind not in "biuf":
        return values.to_numpy()
    if values.isna().any():
        raise InvalidArgument(
            f"{where} has missing values: fill them, e.g. column.fillna(0), "
            "or drop them, or leave the column out with fields="
        )
    return values.to_numpy(dtype)


def _as_array(value: Any, where: str) -> Any:
    """Returns a column as an array, or None if its values are objects."""

    value = _of_pandas(value, where)
    if _is_array(value):
        return None if getattr(value.dtype, "kind", "") == "O" else value
    if not isinstance(value, (list, tuple, range)):
        return None
    first: Any = value
    while isinstance(first, (list, tuple, range)) and len(first):
        first = first[0]
    if not isinstance(first, (bool, int, float)):
        return None
    array = exact_array(value, where)
    if array.dtype == object:
        raise InvalidArgument(
            f"{where} mixes numbers with other values, such as None or text: "
            "all samples have one shape and dtype; fill or drop them"
        )
    return array


def _is_of_lists(value: Any) -> bool:
    """True for a list whose values are lists or arrays."""
    return (
        isinstance(value, (list, tuple))
        and len(value) > 0
        and (isinstance(value[0], (list, tuple)) or _is_array(value[0]))
    )


def _texts(value: Any) -> Optional[Sequence[Any]]:
    """Returns the texts of a column of text; None for another column."""
    is_array = _is_array(value)
    if not is_array and not isinstance(value, (list, tuple)):
        return None
    kind = getattr(getattr(value, "dtype", None), "kind", "?")
    if is_array and (len(value.shape) > 1 or kind not in "OU"):
        return None
    first = next((one for one in value if one is not None), None)
    return value if isinstance(first, str) else None


def _files(value: Any, kind: str, where: str) -> Optional[encoded.FileRows]:
    """Returns a column of encoded images, or None if it is none."""
    if not isinstance(value, (list, tuple)) and not _is_array(value):
        return None
    return encoded.rows_of(value, _length(value), kind, where)


def _of_mapping(
    columns: Mapping[Any, Any],
    names: FieldNames,
    chosen: Optional[Dict[str, Any]] = None,
) -> Any:
    if chosen is None:
        chosen = names.choose(columns, "the dict of columns")
    arrays: Dict[str, Any] = {}
    texts: Dict[str, Any] = {}
    for name, value in chosen.items():
        where = f"column {name!r}"
        if not _is_column(value):
            raise InvalidArgument(
                f"{where} is {type(value).__name__}: a dict contains columns, "
                "which are arrays or lists of one value for each sample"
            )
        if names.is_label(name):
            names.labels.list_categories(value)
        chosen[name] = value = _of_pandas(value, where)
        text = _texts(value)
        if text is not None and names.is_label(name):
            texts[name] = text
        elif names.has_own_size(name) and _is_of_lists(value):
            arrays[name] = None  # of objects, whose lengths may differ
        else:
            arrays[name] = _as_array(value, where)
    rows = {
        name: _files(chosen[name], names.kind(name), f"column {name!r}")
        if array is None
        else Rows(array, f"column {name!r}")
        for name, array in arrays.items()
    }
    lengths = {name: _length(value) for name, value in chosen.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidArgument(
            "columns have one value for each sample, and these differ in "
            "length: "
            + ", ".join(f"{n!r} has {k}" for n, k in lengths.items())
        )
    if None not in rows.values():
        _add_labels(rows, texts, names)
        return Columns({name: rows[name] for name in chosen}, names)
    return _Zipped(
        {
            names.source(name): value
            if arrays.get(name) is None
            else arrays[name]
            for name, value in chosen.items()
        },
        next(iter(lengths.values())),
    )


def _add_labels(
    rows: Dict[str, Any], texts: Mapping[str, Any], names: FieldNames
) -> None:
    """Adds columns of text as indices, and changes the data's own indices to
    those of the list that is given."""
    for name, values in texts.items():
        where = f"column {name!r}"
        rows[name] = Rows(names.label_column(values, name, where), where)
    for name, column in rows.items():
        if names.labels.translates(name) and isinstance(column, Rows):
            where = f"column {name!r}"
            own = column.read(0, column.length)
            rows[name] = Rows(names.own_column(own, where), where)


def _of_sequence(
    values: Sequence[Any], names: FieldNames, own: Sequence[str] = ()
) -> Columns:
    rows = [Rows(value, f"column {i}") for i, value in enumerate(values)]
    if len({column.length for column in rows}) > 1:
        raise InvalidArgument(
            "a tuple of arrays means columns, and these differ in length: "
            + ", ".join(str(column.length) for column in rows)
            + " rows; to push samples, use a list"
        )
    if not rows[0].length:
        return Columns({}, names)
    firsts = [column.first() for column in rows]
    named = names.give(firsts, "the tuple of columns", own)
    return Columns(dict(zip(named, rows)), names)


def _refuse(data: Any) -> None:
    if isinstance(data, (str, bytes)) or hasattr(data, "__fspath__"):
        raise InvalidArgument(
            f"{data!r} is a path: load_dataset reads files, and "
            "push_dataset takes the result of a function of datasetd.sources, "
            "such as push_dataset(name, datasetd.sources.hdf5(path))"
        )
    if is_named(data, "datasets", "DatasetDict", "IterableDatasetDict"):
        raise InvalidArgument(
            "this is a DatasetDict: push one of its splits, such as "
            f"samples[{next(iter(data), 'train')!r}]"
        )
    if is_named(data, "polars", "DataFrame", "LazyFrame"):
        raise InvalidArgument(
            "this is a polars DataFrame: push its columns, frame.to_arrow()"
        )
    if is_named(data, "torch", "DataLoader"):
        raise InvalidArgument(
            "this is a DataLoader, which yields batches: push its dataset, "
            "loader.dataset"
        )


def _check_is_several(data: Any) -> None:
    """Raises InvalidArgument for a number, and an array of one value."""
    is_iterable = hasattr(data, "__iter__") or hasattr(data, "__getitem__")
    if not is_iterable or getattr(data, "shape", None) == ():
        raise InvalidArgument(
            f"data is {type(data).__name__}: expected columns, such as "
            "{'x': X, 'y': y}, or samples, such as a list"
        )


def columns_of(data: Any, names: FieldNames) -> Any:
    """Returns the columns of `data`, or its samples if it has none."""
    _refuse(data)
    resident = concat.as_concat(data)
    if resident is not None:
        return concat.columns(resident, names)
    if is_named(data, "datasets", "Dataset"):
        found = of_hugging_face(data, names)
        return data if found is None else found
    if is_named(data, "pyarrow", "Table", "RecordBatch"):
        return of_arrow(data, names)
    if is_named(data, "pandas", "DataFrame"):
        places = places_of(list(data), names, "the DataFrame")
        found = _of_mapping(
            {}, names, {name: data.iloc[:, i] for name, i in places.items()}
        )
        if isinstance(found, _Zipped) and not (
            names.is_ragged or names.has_sequences
        ):
            raise InvalidArgument(_objects_text(data, names))
        return found
    data = _of_pandas(data, "the column")
    if has_items_of(data, "torch", "TensorDataset"):
        return _of_sequence(data.tensors, names)
    if isinstance(data, Mapping):
        return _of_mapping(data, names)
    if isinstance(data, tuple) and any(
        is_named(value, "pandas", "DataFrame") for value in data
    ):
        data = tuple(map(_without_frame, data))
    if isinstance(data, tuple) and data:
        has_array = any(map(_is_array, data))
        if has_array or all(isinstance(v, (list, range)) for v in data):
            own = getattr(data, "_fields", ())
            arrays = [_column(v, i, names, own) for i, v in enumerate(data)]
            if all(array is not None for array in arrays):
                if not has_array:
                    raise InvalidArgument(_LISTS_TEXT)
                return _of_sequence(arrays, names, own)
    if _is_array(data) and _as_array(data, "the array") is not None:
        return _of_sequence([data], names)
    _check_is_several(data)
    return data


def _column(
    value: Any, place: int, names: FieldNames, own: Sequence[str]
) -> Any:
    """Returns a column of a tuple as an array, or None."""
    where = f"column {place}"
    texts = _texts(_of_pandas(value, where))
    if texts is None:
        return _as_array(value, where)
    return names.label_column(texts, names.name_of_column(place, own), where)


def _without_frame(value: Any) -> Any:
    """Returns a DataFrame as an array [N, columns], anything else as it is."""
    if not is_named(value, "pandas", "DataFrame"):
        return value
    columns = [
        _of_pandas(column, f"column {str(name)!r}")
        for name, column in value.items()
    ]
    if any(column.dtype.kind not in "biuf" for column in columns):
        raise InvalidArgument(_objects_text(value, None))
    import numpy

    return numpy.stack(columns, axis=1)


def _objects_text(frame: Any, names: Optional[FieldNames]) -> str:
    objects, example = [], ""
    for place, key in enumerate(map(str, frame)):
        values = frame.iloc[:, place].to_numpy()
        if values.dtype.kind != "O" or (
            names and names.is_label(key) and _texts(values) is not None
        ):
            continue
        objects.append(key)
        example = example or next(
            (
                f", such as {str(value)[:60]!r} in row {row}"
                for row, value in enumerate(values)
                if not NUMBER.fullmatch(str(value))
            ),
            "",
        )
    return (
        f"columns {', '.join(map(repr, objects))} of the DataFrame contain "
        f"objects{example}, not numbers: leave them out with fields=, or "
        "convert them to numbers, e.g. pandas.to_numeric(frame[name]), or the "
        "text of one to classes with fields={name: 'label'} or "
        "frame[name].astype('category').cat.codes.to_numpy('int64')"
    )


def with_kinds(data: Any, fields: Fields) -> Fields:
    """Returns `fields` with the kinds that a result of datasetd.sources has,
    where none are given."""
    if not isinstance(data, (Source, SampleSource)) or not data.kinds:
        return fields
    kinds = data.kinds
    if isinstance(fields, str):
        fields = [fields]
    has_all = fields is None or isinstance(fields, Kinds)
    given = fields if isinstance(fields, Mapping) else {}
    if isinstance(data, Source) and has_all:
        names = list(data)
    elif has_all:
        return Kinds({**kinds, **given})
    else:
        names = list(fields or ())
    return {
        name: kinds.get(name, "auto")
        if given.get(name, "auto") == "auto"
        else given[name]
        for name in names
    }


def classes_of(data: Any) -> Tuple[List[str], str]:
    """Returns the class names of torchvision and Hugging Face datasets, their
    Subsets, and datasetd.sources, and the field of their labels."""
    for _ in range(8):
        classes = getattr(data, "classes", None)
        if isinstance(classes, (list, tuple)) and all(
            isinstance(name, str) for name in classes
        ):
            label = getattr(data, "label", None)
            return list(classes), label if isinstance(label, str) else "label"
        features = getattr(data, "features", None)
        if isinstance(features, Mapping):
            found: Tuple[List[str], str] = names_of_features(features)
            if found[0]:
                return found
        if not hasattr(data, "indices"):
            break
        data = getattr(data, "dataset", None)
    return [], ""


def notes_of(data: Any) -> List[Note]:
    """Returns the notes of a source; others have none."""
    notes = getattr(data, "notes", ())
    return [note for note in notes if isinstance(note, Note)] if isinstance(
        notes, list
    ) else []


def is_map_style(samples: Any) -> bool:
    """True if samples have len() and [i]. torch's IterableDataset inherits an
    [i] that only raises."""
    return (
        hasattr(samples, "__getitem__")
        and hasattr(samples, "__len__")
        and not is_named(samples, "torch", "IterableDataset")
    )


def part_of(data: Any, part: Part) -> Any:
    """Returns a part of what columns_of() returned."""
    if isinstance(data, Columns):
        data.restrict(part.ranges(data.total))
        return data
    return _PartOfSamples(data, part)


class _PartOfSamples:
    """The samples of a part, in their order."""

    def __init__(self, samples: Any, part: Part) -> None:
        if not is_map_style(samples):
            raise InvalidArgument(
                "part: these samples have no len() or no [i], so a part of "
                "them cannot be read separately: pass samples with both, or "
                "push this node's samples without part="
            )
        self._samples = samples
        self._indices = [
            i
            for begin, end in part.ranges(len(samples))
            for i in range(begin, end)
        ]

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, i: int) -> Any:
        return self._samples[self._indices[i]]
