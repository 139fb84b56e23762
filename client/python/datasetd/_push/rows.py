"""Rows: an array [N, ...] of one field, in memory or not, read by slices."""

from __future__ import annotations

import math
from typing import Any, Callable, List, Tuple

from .._descriptions import Field
from ..errors import InvalidArgument
from .samples import LENGTHS_TEXT, plain, tensor_to_numpy, to_array

_READ_BYTES = 4 << 20
_MAX_READ_BYTES = 256 << 20
_ROWS_AT_ONCE = 1 << 16


def module_of(value: Any) -> str:
    return type(value).__module__.split(".")[0]


def is_named(value: Any, module: str, *names: str) -> bool:
    """True if `value` is an instance of `module`'s class of this name."""
    return any(
        kind.__name__ in names and kind.__module__.split(".")[0] == module
        for kind in type(value).__mro__
    )


class Pieces:
    """Rows that are read a piece at a time, of which the last one is kept."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._piece: Any = None
        self._piece_begin = self._piece_end = 0

    def read(self, begin: int, end: int) -> Any:
        """Returns rows begin to end as a NumPy array; bfloat16 as int16."""
        parts = []
        while begin < end:
            if not self._piece_begin <= begin < self._piece_end:
                piece = self._read_piece(begin)
                self._piece_begin, self._piece_end, self._piece = piece
            stop = min(end, self._piece_end)
            offset = self._piece_begin
            parts.append(self._piece[begin - offset : stop - offset])
            begin = stop
        return joined(parts, self._where)

    def _read_piece(self, row: int) -> Tuple[int, int, Any]:
        """Returns begin and end of a piece that has `row`, and the piece."""
        raise NotImplementedError


class Rows(Pieces):
    """An array [N, ...] that is read by slices.

    NumPy arrays and memmaps are sliced in place. Chunked arrays and those not
    in memory are read once, in larger pieces.
    """

    def __init__(self, array: Any, where: str) -> None:
        super().__init__(where)
        self._array = array
        self._is_torch = is_named(array, "torch", "Tensor")
        self.length = int(array.shape[0])
        self._piece_rows = 0
        if not self._is_torch and module_of(array) != "numpy":
            row_bytes = int(getattr(array.dtype, "itemsize", 8))
            row_bytes *= math.prod(map(int, array.shape[1:]))
            self._piece_rows = _piece_rows(array, max(1, row_bytes))

    def first(self) -> Any:
        """Returns the value of the first sample."""
        return self._array[0] if self._is_torch else _first(self)

    def read(self, begin: int, end: int) -> Any:
        if self._is_torch:
            rows = self._array[begin:end]
            return plain(to_numpy(rows, self._where), self._where)
        if not self._piece_rows:
            return self._plain(begin, end)
        return super().read(begin, end)

    def _read_piece(self, row: int) -> Tuple[int, int, Any]:
        begin = row // self._piece_rows * self._piece_rows
        end = min(self.length, begin + self._piece_rows)
        return begin, end, self._plain(begin, end)

    def _plain(self, begin: int, end: int) -> Any:
        array = to_array(self._array[begin:end], self._where)
        return plain(array, self._where)


def joined(parts: List[Any], where: str) -> Any:
    """Returns rows that were read in parts as one array."""
    import numpy

    if len(parts) == 1:
        return parts[0]
    shapes = sorted({part.shape[1:] for part in parts})
    if len(shapes) > 1:
        raise InvalidArgument(
            f"{where} has values of shape {shapes[0]} and {shapes[1]}: all "
            "samples have one shape; pad or cut them"
        )
    return numpy.concatenate(parts)


def _first(rows: Any) -> Any:
    """Returns the first value as an array, even a scalar, to keep the
    dtype."""
    import numpy

    return numpy.asarray(rows.read(0, 1)[0])


def _piece_rows(array: Any, row_bytes: int) -> int:
    chunks = getattr(array, "chunks", None)
    rows = max(1, _READ_BYTES // row_bytes)
    if isinstance(chunks, tuple) and chunks and isinstance(chunks[0], int):
        chunk = max(1, min(chunks[0], _MAX_READ_BYTES // row_bytes))
        rows = max(1, rows // chunk) * chunk
    return rows


def to_numpy(values: Any, where: str) -> Any:
    """Returns a tensor, or an array, as NumPy's; bfloat16 as int16."""
    if not is_named(values, "torch", "Tensor"):
        return values
    return tensor_to_numpy(values, where)[0]


def of_batch(values: Any, field: Field) -> Any:
    """Returns a field of a batch as its columns were; images are (N, H, W, C),
    and bfloat16 is int16. REQUIRES: layout NHWC of images."""
    import numpy

    rows = numpy.asarray(to_numpy(values, f"field {field.name!r}"))
    # (H, W, C) in memory, but shaped (C, H, W).
    return rows.transpose(0, 2, 3, 1) if field.is_image else rows


class ArrowRows:
    """A pyarrow column of numbers or of lists of equal length."""

    def __init__(
        self, length: int, read: Callable[[int, int], Any], where: str
    ) -> None:
        self.length = length
        self._read = read
        self._where = where

    def first(self) -> Any:
        return _first(self)

    def read(self, begin: int, end: int) -> Any:
        return plain(
            _arrow_to_numpy(self._read(begin, end), self._where), self._where
        )


class SequenceRows:
    """A pyarrow column of lists of several lengths, `lengths`."""

    def __init__(
        self, lengths: Any, read: Callable[[int, int], Any], where: str
    ) -> None:
        self.lengths = lengths
        self.length = len(lengths)
        self._read = read
        self._where = where

    def first(self) -> Any:
        return self.read(0, 1)[0]

    def read(self, begin: int, end: int) -> List[Any]:
        """Returns an array of each row."""
        import numpy

        parts: List[Any] = []
        for chunk in chunks_of(self._read(begin, end)):
            flat = plain(_arrow_to_numpy(chunk.flatten(), self._where),
                         self._where)  # fmt: skip
            lengths = self.lengths[begin + len(parts) :][: len(chunk)]
            parts += numpy.split(flat, numpy.cumsum(lengths)[:-1])
        return parts


def sequence_rows(
    length: int, read: Callable[[int, int], Any], where: str, is_asked: bool
) -> Any:
    """Returns SequenceRows of a column of lists, whose lengths differ or that
    `is_asked` for; else ArrowRows."""
    import numpy

    parts = [numpy.zeros(0, numpy.int64)]
    for begin in range(0, length, _ROWS_AT_ONCE):
        for chunk in chunks_of(read(begin, min(length, begin + _ROWS_AT_ONCE))):
            if chunk.null_count:
                return ArrowRows(length, read, where)  # whose error it is
            parts.append(numpy.diff(chunk.offsets.to_numpy()))
    lengths = numpy.concatenate(parts).astype(numpy.int64)
    if is_asked or (length and lengths.min() != lengths.max()):
        return SequenceRows(lengths, read, where)
    return ArrowRows(length, read, where)


def chunks_of(values: Any) -> List[Any]:
    """Returns the parts of a pyarrow column, without extension types."""
    import pyarrow

    chunks = values.chunks if hasattr(values, "chunks") else [values]
    return [
        chunk.storage if isinstance(chunk, pyarrow.ExtensionArray) else chunk
        for chunk in chunks
    ]


def is_list_type(kind: Any) -> bool:
    """True for Arrow's lists, whose lengths may differ."""
    import pyarrow

    if isinstance(kind, pyarrow.BaseExtensionType):
        kind = kind.storage_type
    return _is_list(kind)


def is_arrow_numeric(kind: Any) -> bool:
    """True if values of this type are numbers or lists of numbers."""
    import pyarrow

    types = pyarrow.types
    while True:
        if isinstance(kind, pyarrow.BaseExtensionType):
            kind = kind.storage_type
        elif _is_list(kind) or types.is_fixed_size_list(kind):
            kind = kind.value_type
        else:
            return bool(
                types.is_integer(kind)
                or types.is_floating(kind)
                or types.is_boolean(kind)
            )


def _is_text_type(kind: Any) -> bool:
    return str(kind) in ("string", "large_string")


def _is_list(kind: Any) -> bool:
    import pyarrow

    types = pyarrow.types
    return bool(types.is_list(kind) or types.is_large_list(kind))


def _arrow_to_numpy(values: Any, where: str) -> Any:
    import numpy
    import pyarrow

    if isinstance(values, pyarrow.ChunkedArray):
        if values.num_chunks == 1:
            values = values.chunk(0)
        else:
            # An empty one has lists of no known length.
            chunks = [chunk for chunk in values.chunks if len(chunk)]
            return joined(
                [_arrow_to_numpy(c, where) for c in chunks or values.chunks],
                where,
            )
    shape = [len(values)]
    while True:
        if values.null_count:
            raise InvalidArgument(
                f"{where} has nulls: fill or drop them, or leave it out with "
                "fields="
            )
        if isinstance(values, pyarrow.ExtensionArray):
            kind = values.type
            if hasattr(kind, "permutation"):  # a fixed-shape tensor
                array = values.to_numpy_ndarray()
                return array.reshape(shape + list(array.shape[1:]))
            values = values.storage
            continue
        if pyarrow.types.is_fixed_size_list(values.type):
            shape.append(values.type.list_size)
        elif _is_list(values.type):
            lengths = numpy.diff(values.offsets.to_numpy())
            if len(lengths) and lengths.min() != lengths.max():
                raise InvalidArgument(
                    f"{where} has lists of {lengths.min()} to {lengths.max()} "
                    f"values: {LENGTHS_TEXT}"
                )
            shape.append(int(lengths[0]) if len(lengths) else 0)
        else:
            break
        values = values.flatten()
    if not is_arrow_numeric(values.type):
        way = "which is not a number; leave it out with fields="
        if _is_text_type(values.type):
            way += (
                "; text becomes classes in a column called label, or by "
                "fields={name: 'label'}"
            )
        elif pyarrow.types.is_decimal(values.type):
            way += ", or cast it to float64"
        if "list_view" in str(values.type):
            # Arrow's own cast of a slice of these is wrong.
            way = "convert it: pyarrow.array(column.to_pylist())"
        raise InvalidArgument(f"{where} is {values.type}, {way}")
    return values.to_numpy(zero_copy_only=False).reshape(shape)
