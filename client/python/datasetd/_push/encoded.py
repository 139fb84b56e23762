"""Encoded images: files as bytes, which the daemon decodes."""

from __future__ import annotations

import io
import os
import stat
import struct
from typing import (
    Any,
    Callable,
    Dict,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
)

from ..errors import DataLoss, InvalidArgument
from ..sources._base import IMAGE_MAGIC
from ..sources._images import converted

_MAX_FILE_BYTES = (1 << 32) - 1
_MAX_IMAGE_BYTES = 256 << 20  # the daemon's
# For those who read many: files have no size that is known before.
ROWS_AT_ONCE = 64
# First bytes of other files that Pillow decodes: GIF, WebP, TIFF.
_OF_PILLOW = (b"GIF8", b"RIFF", b"II*\0", b"MM\0*")
_JPEG, _PNG, _ = IMAGE_MAGIC
_BYTES = (bytes, bytearray, memoryview)
_EXIF_ORIENTATION = 0x112
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
OPTIONS = ("apply_exif", "channels", "fast_decode", "max_pixels")


class ImageOptions(NamedTuple):
    """How encoded images are decoded."""

    # 0: those of each field's first image, which all must have.
    channels: int = 3
    is_given: bool = False  # the channels
    others: Mapping[str, str] = {}

    def message(self) -> Dict[str, str]:
        """Returns the options of a PushHeader."""
        own = {} if self.channels else {"channels": "as_is"}
        return {**self.others, **own}

    def of_hugging_face(self) -> "ImageOptions":
        """Returns these for the images that Hugging Face's decoder gives: with
        their own channels, and turned as EXIF says, if nothing is given."""
        options = self._replace(others={"apply_exif": "true", **self.others})
        return options if self.is_given else options._replace(channels=0)


DEFAULTS = ImageOptions()


def make_options(options: Optional[Mapping[str, Any]]) -> ImageOptions:
    texts = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in (options or {}).items()
    }
    for key in texts:
        if key not in OPTIONS:
            raise InvalidArgument(
                f"options has no {key!r}; it has {', '.join(OPTIONS)}, for "
                "encoded images"
            )
    if "channels" not in texts:
        return ImageOptions(others=texts)
    text = texts.pop("channels")
    if text not in ("1", "3", "4", "as_is"):
        raise InvalidArgument(
            f"options: channels is {text!r}, expected 1, 3, 4 or as_is"
        )
    return ImageOptions(0 if text == "as_is" else int(text), True, texts)


def is_image_file(value: Any) -> bool:
    """True for a value that holds a file of an image, by its first bytes."""
    data = data_of(value)
    if data is None:
        return False
    head = bytes(data[:18])
    if head.startswith(b"RIFF"):  # also that of WAV
        return head[8:12] == b"WEBP"
    if head.startswith(b"BM"):  # and the size of a known header
        return head[14:] in (b"\x0c\0\0\0", b"\x28\0\0\0", b"\x6c\0\0\0",
                             b"\x7c\0\0\0")
    return head.startswith(IMAGE_MAGIC + _OF_PILLOW)


def is_bytes(value: Any) -> bool:
    """True for bytes, and for Hugging Face's dict of bytes and a path."""
    return data_of(value) is not None


def data_of(value: Any) -> Any:
    """Returns the bytes of a file that a value holds, or None."""
    if isinstance(value, Mapping) and set(value) == {"bytes", "path"}:
        value = value["bytes"]
    return value if isinstance(value, _BYTES) else None


def to_bytes(value: Any, where: str, may_open: bool = False) -> bytes:
    """Returns the file that `value` holds, or with `may_open` names."""
    if type(value) is bytes:
        return value
    if isinstance(value, Mapping):
        data = value.get("bytes")
        if data is None and value.get("path"):
            if may_open:
                return _content(value["path"], where)
            raise InvalidArgument(
                f"{where} is a path without bytes, and files that data names "
                "are not read: put the bytes there, or push a Hugging Face "
                "dataset, if its paths may be trusted"
            )
        value = data
    if isinstance(value, _BYTES):
        return bytes(value)
    if getattr(getattr(value, "dtype", None), "name", "") == "uint8":
        content: bytes = value.tobytes()  # as of HDF5
        return content
    raise InvalidArgument(
        f"{where} is {type(value).__name__}, and the first sample an encoded "
        "image, as bytes"
    )


def _open_at_once(path: str, flags: int) -> int:
    # Without this flag a FIFO is waited for.
    return os.open(path, flags | os.O_NONBLOCK)


def _content(path: str, where: str) -> bytes:
    """Returns the content of a regular file."""
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise DataLoss(f"{where}: {path} is no regular file")
            return file.read()
    except (OSError, ValueError) as error:
        raise DataLoss(f"{where}: {error}") from error


def channels_of(data: bytes, options: ImageOptions, is_mask: bool) -> int:
    """Returns the number of channels of a field with this first image; 0 if
    they are its own, and the daemon would change them."""
    if is_mask:
        return 1 if keeps_classes(data) else 0
    return options.channels or _own_channels(data)


def keeps_classes(data: bytes) -> bool:
    """True for a PNG of one channel of up to 8 bits, or of a palette: as a
    mask it has the values in the file, as an image colours, or 0 to 255."""
    return (
        data.startswith(_PNG)
        and len(data) > 25
        and data[24] <= 8
        and data[25] in (0, 3)
    )


def check_mask(data: bytes, where: str) -> None:
    """Raises InvalidArgument for an image whose values the daemon would not
    keep. What is damaged is a bad sample there."""
    if keeps_classes(data) or not data.startswith(IMAGE_MAGIC + _OF_PILLOW):
        return
    has_header = len(data) >= 26 and data[12:16] == b"IHDR"
    if has_header or not data.startswith(_PNG):
        raise mask_advice(where)


def _own_channels(data: bytes) -> int:
    if data.startswith(_PNG):
        if len(data) < 26 or data[24] == 16:
            return 0
        return {0: 1, 2: 3, 6: 4}.get(data[25], 0)
    if not data.startswith(_JPEG):
        return 0
    place = 2
    while place + 9 < len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return 1 if data[place + 9] == 1 else 3
        if marker == 0xFF:
            place += 1
        else:
            place += 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    return 0


def for_daemon(data: bytes, channels: int) -> bytes:
    """Returns the file, as PNG if Pillow alone reads it.

    What cannot be decoded stays: the daemon treats it as a bad sample.
    """
    if data.startswith(IMAGE_MAGIC) or not data.startswith(_OF_PILLOW):
        return data
    try:
        from PIL import Image

        image = converted(Image.open(io.BytesIO(data)), _MODES[channels])
        # For apply_exif. Pillow has turned a TIFF, and taken it away.
        exif = Image.Exif()
        orientation = image.getexif().get(_EXIF_ORIENTATION, 1)
        if orientation != 1:
            exif[_EXIF_ORIENTATION] = orientation
        file = io.BytesIO()
        image.save(file, "png", compress_level=0, exif=exif)
    except MemoryError:
        raise
    except Exception:  # Pillow's plugins raise any, as does its limit of pixels
        return data
    png = file.getvalue()
    return data if len(png) > _MAX_IMAGE_BYTES else png


def files_for_daemon(files: List[bytes], channels: int) -> List[bytes]:
    if all(data.startswith(IMAGE_MAGIC) for data in files):
        return files
    return [for_daemon(data, channels) for data in files]


def to_part(data: bytes) -> bytes:
    """Returns the bytes of a file in a push."""
    if len(data) > _MAX_FILE_BYTES:
        raise InvalidArgument(f"an encoded image of {len(data)} bytes")
    return struct.pack("<I", len(data)) + data


def join(columns: Sequence[List[bytes]]) -> bytes:
    """Joins the parts of samples, given by column, sample by sample."""
    parts = [b""] * (len(columns) * len(columns[0]))
    for i, column in enumerate(columns):
        parts[i :: len(columns)] = column
    return b"".join(parts)


def size_parts(files: Sequence[bytes]) -> List[bytes]:
    """Returns the sizes that precede the files in a push."""
    import numpy

    sizes = numpy.fromiter(map(len, files), numpy.int64, len(files))
    if len(files) and sizes.max() > _MAX_FILE_BYTES:
        raise InvalidArgument(f"an encoded image of {sizes.max()} bytes")
    parts: List[bytes] = sizes.astype("<u4").view("V4").tolist()
    return parts


def array_parts(array: Any) -> List[bytes]:
    """Returns the bytes of each row of a contiguous array."""
    rows = array.reshape(len(array), -1)
    size = rows.shape[1] * rows.itemsize
    parts: List[bytes] = rows.view(f"V{size}").reshape(-1).tolist()
    return parts


class FileRows:
    """A column of files of images, read by slices; with `may_open` a value may
    be the path of one."""

    # Set for masks, so that each file is checked.
    is_mask = False

    def __init__(
        self,
        length: int,
        read: Callable[[int, int], List[Any]],
        where: str,
        may_open: bool = False,
    ) -> None:
        self.length = length
        self._read = read
        self._where = where
        self._may_open = may_open

    def first(self) -> bytes:
        return self.read(0, 1)[0]

    def read(self, begin: int, end: int) -> List[bytes]:
        values = self._read(begin, end)
        if set(map(type, values)) != {bytes}:
            values = [
                to_bytes(value, self._place(begin + i), self._may_open)
                for i, value in enumerate(values)
            ]
        if self.is_mask:
            for i, data in enumerate(values):
                check_mask(data, self._place(begin + i))
        return values

    def _place(self, row: int) -> str:
        return f"{self._where}, row {row}"


def rows_of(
    value: Any, length: int, kind: str, where: str
) -> Optional[FileRows]:
    """Returns a list or an object array of files as a column; None if its
    first value is none."""
    if not length:
        return None
    first = value[0]
    if getattr(getattr(first, "dtype", None), "name", "") == "uint8":
        first = first.tobytes()  # as of HDF5
    is_wanted = kind in ("image", "mask") and is_bytes(first)
    if not is_wanted and not is_image_file(first):
        return None

    def read(begin: int, end: int) -> List[Any]:
        return list(value[begin:end])

    return FileRows(length, read, where)


def is_arrow_files(kind: Any) -> bool:
    """True for Arrow's binary types, and for structs of bytes and path."""
    import pyarrow

    types = pyarrow.types
    if isinstance(kind, pyarrow.BaseExtensionType):
        kind = kind.storage_type
    if types.is_struct(kind):
        names = {kind.field(i).name for i in range(kind.num_fields)}
        return names == {"bytes", "path"} and is_arrow_files(
            kind.field("bytes").type
        )
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def arrow_files(values: Any) -> List[Any]:
    """Returns the values of such an Arrow array: bytes, or dicts if some have
    a path only."""
    import pyarrow

    if isinstance(values, pyarrow.ChunkedArray):
        return [v for chunk in values.chunks for v in arrow_files(chunk)]
    if isinstance(values, pyarrow.ExtensionArray):
        values = values.storage
    if pyarrow.types.is_struct(values.type) and not values.null_count:
        files = values.field("bytes")
        values = values if files.null_count else files
    listed: List[Any] = values.to_pylist()
    return listed


def mask_advice(where: str) -> InvalidArgument:
    return InvalidArgument(
        f"{where} is an encoded mask, but not a PNG with one channel of up to "
        "8 bits or with a palette, whose values would be kept: decode it "
        "first, as datasetd.sources.decode_image(value, None)"
    )


def own_advice(where: str) -> InvalidArgument:
    return InvalidArgument(
        f"{where} is an encoded image of a kind that the daemon would "
        "convert: options={'channels': 3} converts all to RGB; or decode it "
        "first, as datasetd.sources.decode_image(value, None)"
    )

