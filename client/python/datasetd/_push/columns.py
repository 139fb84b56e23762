"""Columns: fields as whole arrays, sent in blocks of rows."""

from __future__ import annotations

import math
from typing import Any, Dict, Iterator, List, Mapping, Tuple, Union

from ..errors import InvalidArgument
from . import encoded
from .field_names import FieldNames
from .rows import SequenceRows, joined
from .samples import (
    Report,
    Spec,
    field_message,
    make_spec,
    numpy_dtype,
    progress_message,
    sizes_message,
)

_BLOCK_BYTES = 1 << 20
_MAX_FIELDS = 64


class Columns:
    """Fields as whole arrays, which a push sends in blocks of rows."""

    def __init__(
        self, rows: Mapping[str, Any], names: Union[FieldNames, List[Spec]]
    ) -> None:
        """`rows`: Rows, or what has their read() and length, by field; `names`
        says what the fields are, or how to find out."""
        lengths = {name: column.length for name, column in rows.items()}
        if len(set(lengths.values())) > 1:
            raise InvalidArgument(
                "columns have one row for each sample, and these differ in "
                "length: "
                + ", ".join(f"{n!r} has {k}" for n, k in lengths.items())
            )
        if len(rows) > _MAX_FIELDS:
            raise InvalidArgument(
                f"{len(rows)} columns, and a dataset has at most {_MAX_FIELDS} "
                "fields: put columns of one kind together into an array (N, "
                "K), as {'x': frame[names].to_numpy('float32'), 'y': ...}"
            )
        self.total = next(iter(lengths.values()), 0)
        # The ranges of rows that are sent.
        self._ranges = [(0, self.total)]
        self._rows = list(rows.values())
        self._specs: List[Spec] = []
        self.images = encoded.DEFAULTS
        if isinstance(names, list):
            self._specs = names
        elif self.total:
            self.images = names.images
            firsts = {name: column.first() for name, column in rows.items()}
            names.find_kinds(firsts)
            self._specs = [
                make_spec(name, names.kind(name), first, names.images)
                for name, first in firsts.items()
            ]
            if names.kept is not None:
                self.restrict(_ranges_of(names.kept))
            for spec, column in zip(self._specs, self._rows):
                if spec.is_encoded:
                    column.is_mask = spec.is_mask
        # Samples are sent part by part.
        self._has_parts = any(
            spec.is_encoded or spec.is_sequence for spec in self._specs
        )

    @property
    def fields(self) -> List[Dict[str, Any]]:
        """The Field messages of a PushHeader."""
        messages = []
        for spec, column in zip(self._specs, self._rows):
            message = field_message(spec)
            if spec.is_sequence:
                lengths = self._lengths(spec, column).tolist()
                message.update(
                    sizes_message(spec, [(length, 1) for length in lengths])
                )
            messages.append(message)
        return messages

    def _lengths(self, spec: Spec, column: Any) -> Any:
        """Returns the lengths of the sequences that are sent."""
        import numpy

        if not isinstance(column, SequenceRows):
            return numpy.full(self.total, spec.shape[0])
        return numpy.concatenate(
            [column.lengths[begin:end] for begin, end in self._ranges]
        )

    def _sizes(self) -> bytes:
        """Returns the sizes, which precede the samples."""
        import numpy

        tables = []
        for spec, column in zip(self._specs, self._rows):
            if spec.is_sequence:
                table = numpy.ones((self.total, 2), numpy.int32)
                table[:, 0] = self._lengths(spec, column)
                tables.append(table.tobytes())
        return b"".join(tables)

    def restrict(self, ranges: List[Tuple[int, int]]) -> None:
        """Sends only these ranges, (begin, end), of the rows that it has sent
        otherwise."""
        if self._ranges != [(0, self.total)]:
            ranges = _within(self._ranges, ranges)
        self._ranges = ranges
        self.total = sum(end - begin for begin, end in ranges)

    def content(self) -> Iterator[Any]:
        """Yields all bytes of all samples."""
        if self._has_parts:
            yield self._sizes()
            for _, data in self._part_blocks():
                yield data
            return
        for arrays in self._blocks():
            yield from map(contiguous, arrays)

    def send(self, sender: Any, report: Report) -> None:
        """Sends all blocks by a _Sender of push.py."""
        count = sent = 0
        for rows, num_bytes in self._sent_blocks(sender):
            count += rows
            sent += num_bytes
            if report is not None:
                report(progress_message(count, self.total, sent))

    def _sent_blocks(self, sender: Any) -> Iterator[Tuple[int, int]]:
        """Yields the samples and the bytes of each block once it is sent."""
        if self._has_parts:
            sender.write(self._sizes())
            for rows, data in self._part_blocks():
                sender.write_block(data)
                yield rows, len(data)
            return
        row_bytes = self._row_bytes()
        for arrays in self._blocks():
            sender.write_rows(arrays)
            yield len(arrays[0]), len(arrays[0]) * row_bytes

    def _row_bytes(self) -> int:
        import numpy

        return sum(
            numpy.dtype(numpy_dtype(spec)).itemsize * math.prod(spec.shape)
            for spec in self._specs
        )

    def _part_blocks(self) -> Iterator[Tuple[int, bytes]]:
        """Yields the number of samples in a block and its bytes, about 1 MiB
        at a time."""
        rows = encoded.ROWS_AT_ONCE
        for begin, last in self._ranges:
            while begin < last:
                end = min(last, begin + rows)
                parts: List[List[bytes]] = []
                for spec, column in zip(self._specs, self._rows):
                    parts += _parts(spec, column.read(begin, end), end - begin)
                data = encoded.join(parts)
                yield end - begin, data
                begin = end
                # At most twice as many, since sizes differ.
                wanted = rows * _BLOCK_BYTES // max(1, len(data))
                rows = max(1, min(wanted, 2 * rows))

    def _blocks(self) -> Iterator[List[Any]]:
        """Yields the fields' rows, about 1 MiB at a time. REQUIRES: none is
        encoded, nor of sequences."""
        rows = max(1, _BLOCK_BYTES // max(1, self._row_bytes()))
        for pieces in self._pieces(rows):
            count = sum(end - begin for begin, end in pieces)
            yield [
                _block(spec, _read(spec, column, pieces), count)
                for spec, column in zip(self._specs, self._rows)
            ]

    def _pieces(self, num_rows: int) -> Iterator[List[Tuple[int, int]]]:
        """Yields the ranges, cut and joined to `num_rows` rows at a time."""
        pieces: List[Tuple[int, int]] = []
        missing = num_rows
        for begin, last in self._ranges:
            while begin < last:
                end = min(last, begin + missing)
                pieces.append((begin, end))
                missing -= end - begin
                begin = end
                if not missing:
                    yield pieces
                    pieces, missing = [], num_rows
        if pieces:
            yield pieces


def _ranges_of(kept: Any) -> List[Tuple[int, int]]:
    """Returns the ranges of rows for which `kept` is true."""
    import numpy

    steps = numpy.diff(numpy.concatenate([[0], kept.astype("int8"), [0]]))
    begins, ends = numpy.nonzero(steps > 0)[0], numpy.nonzero(steps < 0)[0]
    return list(zip(begins.tolist(), ends.tolist()))


def _within(
    outer: List[Tuple[int, int]], inner: List[Tuple[int, int]]
) -> List[Tuple[int, int]]:
    """Returns ranges of the rows that `outer` has, as ranges of all."""
    found = []
    for begin, end in inner:
        offset = 0
        for first, last in outer:
            low = max(begin, offset)
            high = min(end, offset + last - first)
            if low < high:
                found.append((first + low - offset, first + high - offset))
            offset += last - first
    return found


def _read(spec: Spec, rows: Any, pieces: List[Tuple[int, int]]) -> Any:
    parts = [rows.read(*piece) for piece in pieces]
    return joined(parts, f"column {spec.name!r}")


def _parts(spec: Spec, values: Any, count: int) -> List[List[bytes]]:
    """Returns lists of the parts that each sample has of a field."""
    if spec.is_encoded:
        files = encoded.files_for_daemon(values, spec.shape[2])
        return [encoded.size_parts(files), files]
    if isinstance(values, list):
        return [[_sequence(spec, value).tobytes() for value in values]]
    return [encoded.array_parts(contiguous(_block(spec, values, count)))]


def _sequence(spec: Spec, value: Any) -> Any:
    if (
        value.shape[1:] != spec.shape[1:]
        or value.dtype.name != numpy_dtype(spec)
    ):
        raise InvalidArgument(
            f"column {spec.name!r}: its first sequence is {spec.dtype} "
            f"{spec.shape}, and one read later is {value.dtype} {value.shape}"
        )
    return value


def _block(spec: Spec, array: Any, count: int) -> Any:
    if spec.is_chw:
        array = array.transpose(0, *range(2, array.ndim), 1)
    if spec.is_image and array.ndim == 3:
        array = array[..., None]
    if (
        array.shape != (count,) + spec.shape
        or array.dtype.name != numpy_dtype(spec)
    ):
        raise InvalidArgument(
            f"column {spec.name!r}: its first sample is {spec.dtype} "
            f"{spec.shape}, and {count} rows read later are {array.dtype} "
            f"{array.shape}"
        )
    return array


def copy_rows(target: Any, rows: Any) -> None:
    """Assigns target[...] = rows, of the same shape.

    Planes of images become pixels one plane after another, which is about three
    times as fast as NumPy's own order.
    """
    if rows.ndim == 4 and rows.strides[3] > rows.strides[2]:
        for channel in range(rows.shape[3]):
            target[..., channel] = rows[..., channel]
    else:
        target[...] = rows


def contiguous(rows: Any) -> Any:
    """Returns the rows contiguously: themselves, or a copy."""
    import numpy

    if rows.flags.c_contiguous:
        return rows
    copy = numpy.empty(rows.shape, rows.dtype)
    copy_rows(copy, rows)
    return copy
