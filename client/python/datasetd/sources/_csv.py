from __future__ import annotations

import csv as _csv
import re
from typing import (
    Any,
    Dict,
    Iterator,
    List,
    Mapping,
    NoReturn,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from ..errors import InvalidArgument
from ._base import (
    Note,
    Path,
    Source,
    class_list,
    existing,
    index_of,
    library,
    listed,
    unlisted,
)
from ._names import is_label

_MAX_INT64 = (1 << 63) - 1
_MAX_EXACT = 1 << 53  # float64 has all integers up to it
NUMBER = re.compile(
    r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?inf(inity)?|nan|true|false",
    re.IGNORECASE,
)
# Options of pandas that change cells; without them they are the file's.
_OF_CELLS = (
    "dtype", "converters", "na_values", "keep_default_na", "na_filter",
    "parse_dates", "date_format", "true_values", "false_values", "thousands",
    "decimal", "low_memory",
)  # fmt: skip
# Options with which a row is still found in the file.
_OF_LINES = frozenset(
    _OF_CELLS
    + ("sep", "delimiter", "header", "names", "engine", "encoding", "usecols",
       "nrows", "index_col")
)  # fmt: skip


def csv(
    path: Path,
    fields: Union[
        None, str, Sequence[str], Mapping[str, Union[str, Sequence[str]]]
    ] = None,
    label: Optional[str] = None,
    classes: Any = None,
    ignore_other_classes: bool = False,
    **options: Any,
) -> Source:
    """Reads columns of a CSV file with pandas, with pandas's dtypes.

    Args:
      fields: columns; or for each field a column, or a list of K columns, which
        become a field of shape (K,):
        `{"x": ["width", "height"], "label": "species"}`.
      label: the column of text that becomes classes.
      classes: class names, in the order of the indices: a list, or an object
        with `classes`, such as a Dataset. None: the sorted texts.
      ignore_other_classes: omits rows of other classes.
      options: options of pandas.read_csv, such as sep=";". low_memory is False
        by default; dtype={"x": "float32"} makes numbers smaller.

    Text becomes classes in one column: the one that `label` or `dtype` names,
    or one that is called label, class, target, category, species or y, also as
    a field. Other text is an error, and so is a cell that is not a number in a
    column of numbers.
    """
    pandas = library("pandas", "pandas", "csv")
    names = class_list(classes)
    file = _File(pandas, existing(path), options)
    chosen = _chosen(file, fields)
    used = [name for group, _ in chosen.values() for name in group]
    file.used = used
    if label is not None and str(label) not in used:
        raise InvalidArgument(
            f"{path}: label={label!r} is not among the columns that are read: "
            f"{listed(used)}"
        )
    notes: List[Note] = []
    left_out = [name for name in file.frame if name not in used]
    if left_out:
        notes.append(Note(f"left out: columns {listed(left_out)}"))
    texts = {
        field: group[0]
        for field, (group, _) in chosen.items()
        if file.is_text(field, group, label)
    }
    if len(texts) > 1:
        raise InvalidArgument(
            f"{path}: the columns {listed(texts.values())} contain text, but "
            "only one column may: leave the others out with fields="
        )
    codes: Dict[str, Any] = {}
    for field, name in texts.items():
        codes[field], names = file.classes(
            name, names, ignore_other_classes, notes
        )
    columns = {
        field: codes[field] if field in codes else file.numbers(*group)
        for field, group in chosen.items()
    }
    return Source(
        columns, names or (), notes=notes, label=next(iter(codes), "label")
    )


def _chosen(file: _File, fields: Any) -> Dict[str, Tuple[List[str], bool]]:
    """Returns the columns of each field, and True if they are a list."""
    if fields is None:
        fields = list(file.frame)
    elif isinstance(fields, str):
        fields = [fields]
    if not isinstance(fields, Mapping):
        fields = {str(name): name for name in fields}
    chosen = {}
    for field, names in fields.items():
        is_group = isinstance(names, (list, tuple))
        group = [str(name) for name in names] if is_group else [str(names)]
        for name in group:
            if name not in file.frame:
                raise InvalidArgument(
                    f"{file.path} has no column {name!r}; it has "
                    f"{', '.join(map(str, file.frame))}"
                )
        chosen[field] = (group, is_group)
    return chosen


class _File:
    """A file as a frame of pandas, with its cells as they are written."""

    def __init__(
        self, pandas: Any, path: str, options: Mapping[str, Any]
    ) -> None:
        self.path = path
        self._pandas = pandas
        self._options = options
        frame = _read(pandas, path, options)
        if options.get("index_col") is None and not frame.index.equals(
            pandas.RangeIndex(len(frame))
        ):
            raise InvalidArgument(
                f"{path}: rows have more cells than there are names of "
                "columns, so pandas reads the first cells as an index: name "
                "all columns, by names=[...] and header=0 if the file has a "
                "header"
            )
        # Without a header they are numbers.
        frame.columns = [str(name) for name in frame.columns]
        self.frame = frame
        self.used: List[str] = []  # columns
        # The row in the file of each row of the frame.
        self._rows = list(range(len(frame)))

    def is_text(
        self, field: str, group: List[str], label: Optional[str]
    ) -> bool:
        """True for a column whose text becomes classes. Raises InvalidArgument
        for other text, and for empty cells."""
        for name in group:
            self._check_cells(name)
        if not len(self.frame):
            return False
        if all(_is_number_dtype(self.frame[name].dtype) for name in group):
            return False
        name = next(
            n for n in group if not _is_number_dtype(self.frame[n].dtype)
        )
        is_asked = str(label) == name or _is_typed(self._options, name)
        if not is_asked:
            self._check_is_all_text(name)
        is_asked = is_asked or is_label(name) or is_label(field)
        if is_asked and len(group) == 1:
            return True
        cell = self._cells(name)[0]
        way = "leave it out with fields="
        if len(group) == 1:
            way += f", or make classes of it with label={name!r}"
        others = [
            other
            for other in self.used
            if other != name
            and not _is_number_dtype(self.frame[other].dtype)
            and not is_label(other)
        ]
        raise InvalidArgument(
            f"{self._place(0, cell)}: column {name!r} contains text, such as "
            f"{cell!r}"
            + (f", and so do {listed(others)}" if others else "")
            + f": {way}"
        )

    def numbers(self, group: List[str], is_group: bool) -> Any:
        """Returns columns of numbers as an array."""
        import numpy

        columns = [self._array(name) for name in group]
        if not is_group:
            return columns[0]
        dtype = numpy.result_type(*columns)
        for name, column in zip(group, columns):
            is_exact = column.dtype.kind not in "iu" or dtype.kind in "iu"
            if not is_exact and (numpy.abs(column) > _MAX_EXACT).any():
                raise InvalidArgument(
                    f"{self.path}: column {name!r} has integers above 2**53, "
                    f"which {dtype}, the dtype of {listed(group)} together, "
                    "cannot represent: make it a separate field with fields="
                )
        return numpy.stack([c.astype(dtype) for c in columns], axis=1)

    def classes(
        self,
        name: str,
        names: Optional[List[str]],
        ignores_others: bool,
        notes: List[Note],
    ) -> Tuple[Any, List[str]]:
        """Returns class indices and names; takes rows of other classes out of
        the frame."""
        texts = [str(value) for value in self.frame[name]]
        if names is None:
            names = sorted(set(texts))
            notes.append(
                Note(
                    f"the text of column {name!r} became {len(names)} classes, "
                    f"sorted: {listed(names)}"
                )
            )
        index = index_of(names, "classes")
        kept = [row for row, text in enumerate(texts) if text in index]
        if len(kept) < len(texts):
            others = sorted(set(texts) - set(index))
            row = texts.index(others[0])
            if not ignores_others:
                where = self._place(self._rows[row], others[0])
                raise unlisted(others[0], where, names, "classes")
            notes.append(
                Note(
                    f"left out: {len(texts) - len(kept)} rows of classes that "
                    f"are not listed, {listed(others)}"
                )
            )
            self.frame = self.frame.iloc[kept]
            self._rows = [self._rows[row] for row in kept]
        import numpy

        codes = [index[texts[row]] for row in kept]
        return numpy.array(codes, "int64"), names

    def _array(self, name: str) -> Any:
        column = self.frame[name]
        dtype = getattr(column.dtype, "numpy_dtype", column.dtype)
        # What int64 does not hold is refused before.
        values = column.to_numpy("int64" if dtype == "uint64" else dtype)
        if values.dtype.kind == "f":
            self._check_is_finite(name, values)
        return values

    def _check_is_finite(self, name: str, values: Any) -> None:
        """Raises InvalidArgument for a number that its dtype does not hold."""
        import numpy

        infinite = numpy.isinf(values)
        if infinite.any():
            row = self._rows[int(infinite.argmax())]
            cell = self._cells(name)[row]
            if "inf" not in cell.lower():
                raise InvalidArgument(
                    f"{self._place(row, cell)}: column {name!r} is {cell!r}, "
                    f"which {values.dtype} cannot represent"
                )

    def _check_cells(self, name: str) -> None:
        """Raises InvalidArgument for empty cells, and for integers that int64
        does not hold."""
        column = self.frame[name]
        missing = column.isna().to_numpy()
        if missing.any():
            self._refuse_missing(name, int(missing.argmax()))
        if column.dtype.kind == "u":
            is_too_wide = (column > _MAX_INT64).any()
        else:
            is_too_wide = (
                not _is_number_dtype(column.dtype)
                and not _is_typed(self._options, name)
                and self._are_wide_numbers(name)
            )
        if is_too_wide:
            raise InvalidArgument(
                f"{self.path}: column {name!r} has integers below -2**63 or "
                "above 2**63 - 1, and integers become int64: leave it out "
                "with fields=, or make classes of it with dtype="
                f"{{{name!r}: str}}"
            )

    def _refuse_missing(self, name: str, row: int) -> NoReturn:
        cell = self._cells(name)[row]
        where = self._place(row, cell)
        given = self._options.get("na_values", ())
        words = [given] if isinstance(given, str) else given
        if isinstance(given, Mapping):
            words = given.get(name, ())
        is_word = bool(cell.strip()) and cell not in map(str, words)
        if is_word and not _is_number_dtype(self.frame[name].dtype):
            raise InvalidArgument(
                f"{where}: column {name!r} is {cell!r}, which pandas reads as "
                "an empty cell: keep_default_na=False keeps the word"
            )
        raise InvalidArgument(
            f"{where}: column {name!r} has empty cells"
            + (f", as pandas reads {cell!r}" if is_word else "")
            + ": fill them, such as by "
            "frame = pandas.read_csv(...).fillna(0), or drop the rows by "
            "dropna(), and call push_dataset(name, frame)"
        )

    def _check_is_all_text(self, name: str) -> None:
        """Raises InvalidArgument for text that is partly numbers."""
        values = [str(value) for value in self.frame[name].unique()]
        others = [value for value in values if not self._is_number(value)]
        if len(others) == len(values) or not others:
            return
        row = [str(value) for value in self.frame[name]].index(others[0])
        raise InvalidArgument(
            f"{self._place(row, others[0])}: column {name!r} is {others[0]!r}, "
            "but its other cells are numbers: if it is a missing value, "
            f"na_values=[{others[0]!r}] makes it an empty cell, which can be "
            "filled or dropped with pandas; thousands=',' and decimal=',' read "
            f"other notations of numbers; label={name!r} turns all cells, as "
            "text, into classes"
        )

    def _is_number(self, text: str) -> bool:
        """True for what would be one if the whole column was."""
        thousands = self._options.get("thousands")
        decimal = self._options.get("decimal")
        if thousands:
            text = text.replace(thousands, "")
        if decimal:
            text = text.replace(decimal, ".")
        return NUMBER.fullmatch(text.strip()) is not None

    def _are_wide_numbers(self, name: str) -> bool:
        """True for texts that pandas would have read as numbers, if 64 bits
        held them."""
        values = [str(value) for value in self.frame[name]]
        return all(map(self._is_number, values)) and any(
            value.strip().lstrip("+-").isdigit()
            and abs(int(value)) > _MAX_INT64
            for value in values
        )

    def _cells(self, name: str) -> List[str]:
        """Returns the cells of a column as they are written, or what pandas
        made of them."""
        options = {
            key: value
            for key, value in self._options.items()
            if key not in _OF_CELLS
        }
        options.update(dtype=str, keep_default_na=False, na_filter=False)
        try:
            frame = _read(self._pandas, self.path, options)
            frame.columns = [str(column) for column in frame.columns]
            cells = [str(cell) for cell in frame[name]]
        except (ValueError, KeyError, TypeError):
            cells = []
        if len(cells) >= len(self.frame):
            return cells
        return [str(value) for value in self.frame[name]]

    def _place(self, row: int, cell: str) -> str:
        """Returns the file and the line of a row that has the cell; its number
        among the rows if the line is not certain."""
        try:
            for number, (line, cells) in enumerate(self._lines()):
                if number == row:
                    if cell in cells:
                        return f"{self.path}, line {line}"
                    break
        except (OSError, ValueError, _csv.Error):
            pass
        return f"{self.path}, row {row + 1} after the header"

    def _lines(self) -> Iterator[Tuple[int, List[str]]]:
        """Yields the line and the cells of each row after the header."""
        options = self._options
        sep = options.get("sep", options.get("delimiter", ","))
        header = options.get("header", None if "names" in options else 0)
        if not _OF_LINES.issuperset(options) or header not in (None, 0):
            return
        encoding = options.get("encoding") or "utf-8-sig"
        with open(self.path, encoding=encoding, newline="") as file:
            rows = _csv.reader(file, delimiter=sep)
            has_header = header == 0
            before = 0
            for cells in rows:
                line, before = before + 1, rows.line_num
                if not cells:  # a blank line
                    continue
                if has_header:
                    has_header = False
                    continue
                yield line, cells


def _is_number_dtype(dtype: Any) -> bool:
    return dtype.kind in "biuf"


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
