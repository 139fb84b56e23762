from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from ..errors import InvalidArgument
from ._base import Path, Source, existing, library

# The usage of the rows of a split, in lower case; None: all.
_USAGES = {
    "train": "training",
    "public_test": "publictest",
    "private_test": "privatetest",
    "all": None,
}
_PIXELS = {str(value): value for value in range(256)}


def csv_pixels(
    path: Path,
    split: str = "train",
    height: Optional[int] = None,
    width: Optional[int] = None,
) -> Source:
    """Reads grey images from a CSV file, one per row, as in FER-2013: `image`
    uint8 [N, H, W, 1] and `label` int64.

    The first row names the columns, in any order and case: `pixels`, integers
    from 0 to 255 separated by spaces, row by row; `emotion` or `label`, an
    integer; `usage`, one of Training, PublicTest and PrivateTest. The last two
    may be missing. Other columns are ignored, and must not contain commas.

    Args:
      split: "train", "public_test", "private_test" or "all". Without a column
        `usage` every row belongs to every split.
      height, width: size of the images. None: they are square.
    """
    numpy = library("numpy", "numpy", "csv_pixels")
    if split not in _USAGES:
        raise InvalidArgument(
            f"split is {split!r}, expected one of {', '.join(_USAGES)}"
        )
    images = _Images(
        numpy,
        existing(path),
        _USAGES[split],
        _extent("height", height),
        _extent("width", width),
    )
    images.read()
    if not images.shape:
        raise InvalidArgument(f"{path}: no row of split {split!r}")
    columns: Dict[str, Any] = {
        "image": numpy.frombuffer(images.pixels, "uint8").reshape(
            (-1,) + images.shape
        )
    }
    if images.labels:
        try:
            columns["label"] = numpy.array(images.labels, "int64")
        except OverflowError as error:
            raise InvalidArgument(f"{path}: a label: {error}") from error
    return Source(columns, kinds={"image": "image"})


def _extent(name: str, value: Any) -> int:
    """Returns 0 for None. Text that is a number is taken, too."""
    if value is None:
        return 0
    try:
        extent = int(value)
    except ValueError:
        extent = 0
    if extent < 1:
        raise InvalidArgument(f"{name} is {value!r}, expected at least 1")
    return extent


def _cells(line: str) -> List[str]:
    return [cell.strip().strip('"') for cell in line.split(",")]


class _Images:
    """Images and labels of the rows with this usage."""

    def __init__(
        self,
        numpy: Any,
        path: str,
        usage: Optional[str],
        height: int,
        width: int,
    ) -> None:
        self._numpy = numpy
        self._path = path
        self._usage = usage
        self._height = height
        self._width = width
        self._line = 1
        self.shape: Tuple[int, ...] = ()
        self.pixels = bytearray()
        self.labels: List[int] = []

    def read(self) -> None:
        try:
            with open(self._path, encoding="utf-8-sig") as file:
                names = _cells(file.readline())
                places = self._places(names)
                for self._line, line in enumerate(file, 2):
                    if not line.isspace():
                        self._add(_cells(line), len(names), places)
        except UnicodeDecodeError as error:
            raise self._error(str(error)) from error

    def _places(self, names: List[str]) -> Dict[str, int]:
        """Returns the columns of pixels, label and usage."""
        places: Dict[str, int] = {}
        for place, name in enumerate(names):
            meaning = name.lower()
            meaning = "label" if meaning == "emotion" else meaning
            if meaning not in ("pixels", "label", "usage"):
                continue
            if meaning in places:
                raise self._error(f"two columns of {meaning}")
            places[meaning] = place
        if "pixels" not in places:
            raise self._error(
                "no column is called pixels; expected a first row as "
                f"emotion,pixels,Usage, found {','.join(names)[:80]!r}"
            )
        return places

    def _add(
        self, cells: List[str], num_columns: int, places: Dict[str, int]
    ) -> None:
        if len(cells) != num_columns:
            raise self._error(
                f"{len(cells)} columns, expected {num_columns} as in the first "
                "row"
            )
        if self._usage is not None and "usage" in places:
            if cells[places["usage"]].lower() != self._usage:
                return
        image = self._image(cells[places["pixels"]])
        if not self.shape:
            self.shape = self._shape(len(image))
        height, width, _ = self.shape
        if len(image) != height * width:
            raise self._error(
                f"{len(image)} pixels, expected {height} x {width}"
            )
        self.pixels += image
        if "label" in places:
            text = cells[places["label"]]
            try:
                self.labels.append(int(text))
            except ValueError:
                raise self._error(
                    f"the label is {text!r}, expected an integer"
                ) from None

    def _image(self, text: str) -> bytes:
        digits = text.replace(" ", "")
        if digits.isascii() and digits.isdigit():
            values = self._numpy.fromstring(text, "int64", sep=" ")
            if values.max() <= 255:
                return bytes(values.astype("uint8"))
        # Three times as slow; finds the pixel that is wrong.
        try:
            return bytes(map(_PIXELS.__getitem__, text.split()))
        except KeyError as error:
            raise self._error(
                f"a pixel is {error}, expected an integer from 0 to 255"
            ) from None

    def _shape(self, count: int) -> Tuple[int, int, int]:
        height, width = self._height, self._width
        if not height and not width:
            height = width = round(count**0.5)
        height = height or count // max(1, width)
        width = width or count // max(1, height)
        if not count or height * width != count:
            raise self._error(
                f"{count} pixels are not {height} x {width}: set height and "
                "width"
            )
        return height, width, 1

    def _error(self, what: str) -> InvalidArgument:
        return InvalidArgument(f"{self._path}: line {self._line}: {what}")
