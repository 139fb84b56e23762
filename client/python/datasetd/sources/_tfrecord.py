"""TFRecord files of tf.train.Example."""

from __future__ import annotations

import bisect
import gzip
import io
import itertools
import os
import re
import shutil
import struct
import tempfile
import zlib
from array import array as IntArray
from typing import (
    Any,
    BinaryIO,
    Callable,
    Dict,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
    cast,
)

from ..errors import DataLoss, InvalidArgument
from ._base import IMAGE_MAGIC, Note, Path, Source, existing, library, listed
from ._names import field_name, is_label
from ._shards import files_of

_HEADER_BYTES = 12  # the length and its CRC
_FOOTER_BYTES = 4  # the CRC of the data
_IMAGES = ("image", "jpeg", "png", "bmp", "byte")
_DTYPES = {"int": "int64", "float": "float32"}
_KIND = re.compile(r"([a-z0-9]+)(?:\[(\d+(?:x\d+)*)\])?")
_EXPECTED = (
    "expected FEATURE:KIND with a kind such as image, byte, int64, "
    "float32[16] or uint8[28x28x1]"
)

Features = Union[None, str, Mapping[str, Any]]


class _Feature(NamedTuple):
    name: str
    dtype: Optional[str]  # None: bytes, left as they are
    shape: Optional[Tuple[int, ...]]  # None: a number, or [K] of K


def _feature(field: str, name: str, kind: str) -> _Feature:
    match = _KIND.fullmatch(kind)
    if not name or match is None:
        raise InvalidArgument(
            f"features[{field!r}] is {name + ':' + kind!r}, {_EXPECTED}"
        )
    dtype, shape = match.groups()
    if dtype in _IMAGES:
        return _Feature(name, None, None)
    import numpy

    try:
        dtype = numpy.dtype(_DTYPES.get(dtype, dtype)).name
    except TypeError:
        raise InvalidArgument(
            f"features[{field!r}] has kind {kind!r}, {_EXPECTED}"
        ) from None
    sizes = None if shape is None else tuple(map(int, shape.split("x")))
    return _Feature(name, dtype, sizes)


def _parse(features: Union[str, Mapping[str, Any]]) -> Dict[str, _Feature]:
    """Returns the feature of each field."""
    parsed: Dict[str, _Feature] = {}
    if isinstance(features, str):
        for item in features.split(","):
            field, equals, rest = item.strip().partition("=")
            if not equals:
                rest, field = field, field_name(field.rpartition(":")[0])
            if field in parsed:
                raise InvalidArgument(
                    f"features has field {field!r} twice: {features!r}"
                )
            name, _, kind = rest.rpartition(":")
            parsed[field] = _feature(field, name, kind)
        return parsed
    for field, given in features.items():
        if isinstance(given, str):
            given = given.rpartition(":")[::2]
        if len(given) != 2:
            raise InvalidArgument(
                f"features[{field!r}] is {given!r}, {_EXPECTED}"
            )
        parsed[field] = _feature(field, *given)
    return parsed


class _Shard:
    """The records of a file; a compressed one is inflated into a temporary
    file. Lengths are checked against their CRC when it is opened."""

    def __init__(self, path: str, crc32c: Callable[[bytes], int]) -> None:
        self.path = path
        self._crc32c = crc32c
        self._file = self._opened()
        self.offsets = IntArray("q")
        self.sizes = IntArray("q")
        end = os.fstat(self._file.fileno()).st_size
        offset = 0
        while offset < end:
            header = os.pread(self._file.fileno(), _HEADER_BYTES, offset)
            where = f"{path}: offset {offset}"
            if not self._is_header(header):
                raise DataLoss(
                    f"{where}: the CRC of a record's length is wrong"
                    + ("" if offset else "; is this a file of TFRecords?")
                )
            (size,) = struct.unpack_from("<Q", header)
            left = end - offset - _HEADER_BYTES - _FOOTER_BYTES
            if size > left:
                raise DataLoss(
                    f"{where}: a record of {size} bytes, found {max(left, 0)}"
                )
            self.offsets.append(offset + _HEADER_BYTES)
            self.sizes.append(size)
            offset += _HEADER_BYTES + size + _FOOTER_BYTES

    def read(self, i: int) -> bytes:
        """Returns a record's data."""
        size = self.sizes[i]
        data = os.pread(
            self._file.fileno(), size + _FOOTER_BYTES, self.offsets[i]
        )
        if data[size:] != self._masked_crc(data[:size]):
            raise DataLoss(
                f"{self.path}: offset {self.offsets[i]}: the record's CRC is "
                "wrong"
            )
        return data[:size]

    def close(self) -> None:
        self._file.close()

    def _opened(self) -> BinaryIO:
        file = open(self.path, "rb")
        head = file.read(_HEADER_BYTES)
        file.seek(0)
        # A record's length may have the same first bytes.
        if self._is_header(head):
            return file
        inflated = cast(BinaryIO, tempfile.TemporaryFile())
        try:
            if head[:2] == b"\x1f\x8b":
                source: Any = gzip.GzipFile(fileobj=file)
            elif (
                len(head) > 1
                and head[0] & 15 == 8
                and (head[0] << 8 | head[1]) % 31 == 0
            ):
                source = io.BytesIO(zlib.decompress(file.read()))
            else:
                return file
            with file:
                shutil.copyfileobj(source, inflated, 1 << 20)
        except (EOFError, OSError, zlib.error) as error:
            raise DataLoss(f"{self.path}: {error}") from None
        inflated.flush()
        return inflated

    def _is_header(self, header: bytes) -> bool:
        return self._masked_crc(header[:8]) == header[8:]

    def _masked_crc(self, data: bytes) -> bytes:
        crc = self._crc32c(data)
        masked = (crc >> 15 | crc << 17) + 0xA282EAD8
        return struct.pack("<I", masked & 0xFFFFFFFF)


def _values_of(feature: Any) -> Tuple[Optional[str], Any]:
    """Returns the dtype of a feature's numbers, None for bytes, and its
    values."""
    kind = feature.WhichOneof("kind")
    values = getattr(feature, kind).value if kind else ()
    if kind == "bytes_list":
        return None, values
    return "int64" if kind == "int64_list" else "float32", values


class _Records:
    """Examples as samples. Keeps the file of the last one open."""

    def __init__(
        self,
        files: Sequence[str],
        features: Features,
        decode: Mapping[str, Callable[[bytes], Any]],
    ) -> None:
        self._example = library(
            "tfrecord.example_pb2", "tfrecord", "tfrecord"
        ).Example
        self._error = library(
            "google.protobuf.message", "protobuf", "tfrecord"
        ).DecodeError
        self._crc32c = library("crc32c", "crc32c", "tfrecord").crc32c
        self._files = files
        self._decode = decode
        self.notes: List[Note] = []
        self._shard = (-1, cast(_Shard, None))
        # The index after the last record of each shard.
        self._ends = list(
            itertools.accumulate(
                len(self._opened(number).offsets)
                for number in range(len(files))
            )
        )
        if not len(self):
            raise InvalidArgument(f"{files[0]}: zero samples: no record")
        if features is None:
            self._features = self._infer()
        else:
            self._features = _parse(features)
        if not self._features:
            raise InvalidArgument("features is empty: it names the fields")
        self[0]  # says what is wrong before anything is sent
        self.all_numbers = all(
            feature.dtype is not None for feature in self._features.values()
        )

    def __len__(self) -> int:
        return self._ends[-1]

    def columns(self) -> Source:
        """Returns the records as arrays in memory. REQUIRES: all_numbers."""
        import numpy

        columns = {
            field: numpy.empty((len(self), *value.shape), value.dtype)
            for field, value in self[0].items()
        }
        for i in range(len(self)):
            for field, value in self[i].items():
                column = columns[field]
                if value.shape != column.shape[1:]:
                    raise InvalidArgument(
                        f"{self._read(i)[1]}: feature "
                        f"{self._features[field].name!r} has {value.size} "
                        f"values, and that of the first record "
                        f"{column[0].size}"
                    )
                column[i] = value
        return Source(columns, notes=self.notes)

    def __getitem__(self, i: int) -> Dict[str, Any]:
        example, where = self._read(i)
        found = example.features.feature
        return {
            field: self._value(field, feature, found, where)
            for field, feature in self._features.items()
        }

    def _opened(self, number: int) -> _Shard:
        if self._shard[0] != number:
            if self._shard[0] >= 0:
                self._shard[1].close()
            self._shard = (-1, self._shard[1])
            shard = _Shard(self._files[number], self._crc32c)
            self._shard = (number, shard)
        return self._shard[1]

    def _read(self, i: int) -> Tuple[Any, str]:
        """Returns the message and where it stands."""
        if not 0 <= i < len(self):
            raise IndexError(i)
        number = bisect.bisect_right(self._ends, i)
        shard = self._opened(number)
        index = i - (self._ends[number - 1] if number else 0)
        where = f"{shard.path}: offset {shard.offsets[index]}"
        try:
            return self._example.FromString(shard.read(index)), where
        except self._error as error:
            raise DataLoss(f"{where}: {error}") from None

    def _value(
        self, field: str, feature: _Feature, found: Any, where: str
    ) -> Any:
        import numpy

        if feature.name not in found:
            raise InvalidArgument(
                f"{where}: no feature {feature.name!r}; there are "
                f"{', '.join(sorted(found)) or 'none'}"
            )
        dtype, values = _values_of(found[feature.name])
        where = f"{where}: feature {feature.name!r}"
        if dtype is None:
            if len(values) != 1:
                raise InvalidArgument(
                    f"{where} has {len(values)} strings of bytes, expected one"
                )
            if feature.dtype is None:
                return self._decode.get(field, bytes)(values[0])
            element = numpy.dtype(feature.dtype)
            if len(values[0]) % element.itemsize:
                raise InvalidArgument(
                    f"{where} has {len(values[0])} bytes, which is not a "
                    f"multiple of the size of {feature.dtype}"
                )
            array = numpy.frombuffer(values[0], element)
        else:
            if feature.dtype != dtype:
                raise InvalidArgument(
                    f"{where} is a list of {dtype}, expected "
                    f"{feature.dtype or 'bytes'}"
                )
            array = numpy.array(values, dtype)
        if feature.shape is None:
            return array.reshape(()) if array.size == 1 else array
        if array.size != numpy.prod(feature.shape, dtype=int):
            raise InvalidArgument(
                f"{where} has {array.size} values, expected the shape "
                f"{list(feature.shape)}"
            )
        return array.reshape(feature.shape)

    def _infer(self) -> Dict[str, _Feature]:
        """Returns the fields of the first example: images, then numbers."""
        example, where = self._read(0)
        images, numbers = {}, {}
        left_out = []
        names: Dict[str, str] = {}  # by field
        for name, message in sorted(example.features.feature.items()):
            field = field_name(name)
            dtype, values = _values_of(message)
            if dtype is None:
                if len(values) != 1 or not values[0].startswith(IMAGE_MAGIC):
                    left_out.append(name)
                    continue
                images[field] = _Feature(name, None, None)
            elif len(values):
                numbers[field] = _Feature(name, dtype, None)
            else:
                left_out.append(name)
                continue
            if names.setdefault(field, name) != name:
                raise InvalidArgument(
                    f"{where}: features {names[field]!r} and {name!r} are both "
                    f"field {field!r}: name the fields with features="
                )
        if not images and not numbers:
            raise InvalidArgument(
                f"{where}: neither an image nor numbers; declare its bytes "
                "with features="
            )
        if left_out:
            self.notes.append(
                Note(
                    "left out: features that are bytes or empty in the first "
                    f"record, {listed(left_out)}; features= declares them",
                    is_warning=any(map(is_label, left_out)),
                )
            )
        return {**images, **numbers}


def tfrecord(
    paths: Union[Path, Sequence[Path]],
    features: Features = None,
    decode: Mapping[str, Callable[[bytes], Any]] = {},
) -> Any:
    """Reads examples of TFRecord files, plain or compressed with gzip or zlib,
    with the package `tfrecord`. CRCs are checked.

    Args:
      paths: files, or a pattern, `DIR/train-{00000..00127}-of-00128`.
      features: for each field the feature and its kind: `{"image":
        "image/encoded:image", "label": "image/class/label:int64"}`, or as
        text, `image=image/encoded:image,label=image/class/label:int64`. Kinds
        are `image` (an encoded image, which the daemon decodes), `byte` (bytes
        for `decode`), `int64` and `float32` (lists), and any dtype with a shape
        for bytes that are little-endian elements: `uint8[28x28x1]`. Without a
        shape one value is a number, and K values are an array [K]. None: the
        images, int64 lists and float lists of the first example, with `_` for
        characters that a field name cannot have.
      decode: for fields of bytes, a function that returns their value.

    Returns columns if all fields are numbers, else samples, each read once.
    """
    if isinstance(paths, (str, os.PathLike)):
        paths = files_of(os.path.expanduser(os.fspath(paths)))
    files = list(map(existing, paths))
    if not files:
        raise InvalidArgument("paths is empty: it names the files")
    records = _Records(files, features, decode)
    return records.columns() if records.all_numbers else records
