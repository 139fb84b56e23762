"""The command `python -m datasetd preview`."""

from __future__ import annotations

import argparse
import array
import json
import os
import tempfile
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from .. import errors
from .._client.client import Client
from .._datasets.dataset import Dataset
from .._datasets.reading import read
from .._descriptions import Field
from .._order.windows import Cut, cut_of
from ..web._png import png
from ..web._samples import as_float32, check_numpy
from ..web._views import (
    Scale,
    channels_of,
    heat_of,
    levels_of,
    range_of,
    scale_of,
    spectrogram_of,
    waveform_of,
)
from . import transforms_text
from .command_line import (
    MAX_UINT64,
    WINDOWS,
    Option,
    UsageError,
    os_error,
    whole,
    windows_of,
)

DESCRIPTION = (
    "Writes a PNG contact sheet with one row per sample: the original on the "
    "left, then one column per epoch, as a job with this seed receives it."
)

_TARGET_PIXELS = 96
_GAP = 4
_ORIGINAL_GAP = 16  # between the original and the rest
_BACKGROUND = 0xF4
_MAX_BYTES = 10**9
_WAVE_HEIGHT, _WAVE_WIDTH = 96, 256

Message = Dict[str, Any]


_NUMBER = whole(0, MAX_UINT64)
OPTIONS: Sequence[Option] = (
    ("name", str, None, "name of the dataset"),
    ("--output", str, "preview.png", "output file"),
    ("--samples,--rows", whole(1, 256), 8, "number of samples, one per row"),
    ("--epochs,--columns", whole(1, 64), 8, "number of epochs, one per column"),
    ("--first", _NUMBER, 0, "index of the first sample, or window"),
    ("--seed", _NUMBER, 0, "seed of the job"),
    ("--epoch", _NUMBER, 0, "first epoch"),
    (
        "--field",
        str,
        "",
        "image, sequence, or field of windows; default: the first one",
    ),
    ("--zoom", whole(0, 64), 0, "magnification; 0: to about 96 pixels"),
    (
        "--transforms",
        str,
        "",
        "none; or crop, flip, vflip, altflip, resizedcrop, rotate, jitter "
        "joined by '-'; or a JSON list of Transform messages; or @FILE that "
        "holds one; default: crop-flip for images, else none",
    ),
    ("--windows", windows_of, "", WINDOWS),
)


def run(client: Client, arguments: argparse.Namespace, as_json: bool) -> str:
    """Writes the picture and returns what to print. Raises the daemon's
    errors, UsageError, ResourceExhausted."""
    check_numpy()
    with client._described(arguments.name) as dataset:
        cut = cut_of(
            arguments.windows, dataset.fields, dataset.num_samples
        )
        field = _shown_field(dataset, arguments.field, cut)
        first, end = arguments.first, cut.total
        if first >= end:
            what = "samples" if cut.order is None else "windows in an epoch"
            raise UsageError(
                f"--first {first}: the dataset has {end} {what}, from 0"
            )
        indices = cut.indices(first, min(arguments.samples, end - first))
        text, size = arguments.transforms or "none", (1, 1)
        if field.is_image:
            text = arguments.transforms or "crop-flip"
            size = transforms_text.size_of(field)
        ops = transforms_text.parse(text, *size)
        transforms_text.check_form(client, dataset.name, field.name, ops)
        left_out = (
            transforms_text.take_number_ops(ops) if field.is_image else []
        )
        seed, epoch = arguments.seed, arguments.epoch
        plain = cut if cut.order is not None else cut._replace(fields={})
        (originals,) = _read(dataset, field, [], plain, indices, seed, [epoch])
        epochs = [(epoch + i) & MAX_UINT64 for i in range(arguments.epochs)]
        augmented = _read(dataset, field, ops, cut, indices, seed, epochs)
    if not field.is_image:
        originals, augmented = _numbers_pictures(
            field, ops, originals, augmented
        )
    zoom = arguments.zoom or default_zoom(*originals[0].shape[:2])
    sheet = contact_sheet(originals, list(zip(*augmented)), zoom)
    height, width = sheet.shape[:2]
    save(png(sheet), arguments.output)
    if as_json:
        result = {
            "output": _shown(os.path.join(os.getcwd(), arguments.output)),
            "width": width,
            "height": height,
            "num_samples": len(indices),
            "num_epochs": len(epochs),
            "left_out": left_out,
        }
        return json.dumps(result, indent=2) + "\n"
    text = (
        f"{_shown(arguments.output)}: {width}x{height}, {len(indices)} "
        f"samples, the original and {len(epochs)} epochs each\n"
    )
    if left_out:
        text += "left out, as they change numbers and no picture: "
        text += ", ".join(left_out) + "\n"
    return errors.printable(text)


def _shown(path: str) -> str:
    """Returns the name of a file, which need not be UTF-8."""
    return os.fsencode(path).decode("utf-8", "replace")


def _shown_field(dataset: Dataset, name: str, cut: Cut) -> Field:
    """Returns the field of that name; if it is empty, the first image, or the
    first field that is no scalar."""
    shown = [
        field
        for field in dataset.fields
        if (field.is_image and len(field.shape) == 3 and cut.order is None)
        or (not field.is_image and name == field.name)
    ]
    if not shown and not name:
        shown = [
            field
            for field in dataset.fields
            if not field.is_image and (field.shape or cut.order is not None)
        ]
    for field in shown:
        if name in ("", field.name):
            return field
    raise errors.NotFound(
        f"dataset '{dataset.name}' has no image field"
        + (f" '{name}', nor any other '{name}'" if name else "")
        + " to show; its fields: "
        + ", ".join(field.name for field in dataset.fields)
    )


def _read(
    dataset: Dataset,
    field: Field,
    ops: Sequence[Message],
    cut: Cut,
    indices: Sequence[int],
    seed: int,
    epochs: Sequence[int],
) -> List[List[Any]]:
    """Returns result[epoch][sample]: the samples after `ops`. Those of images
    are [H, W, C] of uint8, with to_dtype and normalize undone."""
    options: Dict[str, Any] = dict(cut.fields) if cut.order is not None else {}
    options[field.name] = {
        # Smaller types would add another rounding.
        "transforms": as_float32(
            ops, lambda dtype: dtype not in ("DTYPE_UINT8", 1)
        ),
        **({"layout": "LAYOUT_NHWC"} if field.is_image else {}),
        **cut.fields.get(field.name, {}),
    }
    names = [field.name, *(name for name in options if name != field.name)]
    # Originals may be large; what transforms mix is read at once.
    at_once = len(indices) if ops else 1
    result: List[List[Any]] = []
    size = 0
    for epoch in epochs:
        values: List[Any] = []
        for begin in range(0, len(indices), at_once):
            wanted = array.array("q", indices[begin : begin + at_once])
            batch = read(
                dataset, wanted, "floats", names, options, seed, epoch,
                window_order=cut.order,
            )  # fmt: skip
            for value in batch[0]:
                if field.is_image:
                    value = _picture(field, value, ops)
                values.append(value)
                size += value.nbytes
            _check_size("the samples", size)
        result.append(values)
    return result


def _numbers_pictures(
    field: Field,
    ops: Sequence[Message],
    originals: Sequence[Any],
    augmented: Sequence[Sequence[Any]],
) -> Tuple[List[Any], List[List[Any]]]:
    """Returns pictures of waveforms and spectrograms, [H, W, 1], those of the
    epochs of a sample from the least to the largest number of all of them."""
    shown = [
        _pictures_alike(field, [value], Scale(None))[0] for value in originals
    ]
    rows = [
        _pictures_alike(field, row, scale_of(field.dtype, ops))
        for row in zip(*augmented)
    ]
    return shown, [list(column) for column in zip(*rows)]


def _pictures_alike(
    field: Field, values: Sequence[Any], scale: Scale
) -> List[Any]:
    import numpy

    planes = [spectrogram_of(field, value, scale) for value in values]
    draw: Callable[[Any, float, float], Any] = heat_of
    if planes[0] is None:
        planes = [waveform_of(field, value) for value in values]
        draw = _wave
    if planes[0] is None:
        raise errors.InvalidArgument(
            f"field '{field.name}' is {tuple(values[0].shape)} here; a picture "
            "is made of images, waveforms [T] or [T, C], and spectrograms"
        )
    numbers = [plane.astype(numpy.float64) for plane in planes]
    ends = [range_of(one) for one in numbers]
    low, high = min(e[0] for e in ends), max(e[1] for e in ends)
    return [draw(one, low, high) for one in numbers]


def _wave(numbers: Any, low: float, high: float) -> Any:
    """Returns uint8 [H, W, 1] of a line through [steps]."""
    import numpy

    pixels = numpy.full((_WAVE_HEIGHT, _WAVE_WIDTH, 1), 255, numpy.uint8)
    if not len(numbers):
        return pixels
    numbers = numpy.nan_to_num(numbers, nan=low, posinf=high, neginf=low)
    places = (high - numbers) / (high - low or 1.0) * (_WAVE_HEIGHT - 1)
    ends = numpy.linspace(0, len(places), _WAVE_WIDTH + 1).astype(int)
    last = places[0]
    for x, (begin, end) in enumerate(zip(ends, ends[1:])):
        # Also from the last column to this one.
        part = places[min(begin, len(places) - 1) : max(end, begin + 1)]
        top, bottom = min(part.min(), last), max(part.max(), last)
        pixels[round(top) : round(bottom) + 1, x] = 0x20
        last = part[-1]
    return pixels


def _picture(field: Field, value: Any, ops: Sequence[Message]) -> Any:
    if value.dtype not in ("uint8", "float32"):
        raise errors.InvalidArgument(
            f"field '{field.name}' comes out of the transforms as "
            f"{value.dtype}; a picture is made of uint8 or float32: end with "
            "to_dtype"
        )
    if value.shape[0] not in (1, 3, 4):
        raise errors.InvalidArgument(
            f"field '{field.name}' has {value.shape[0]} channels; a picture "
            "has 1, 3 or 4"
        )
    pixels = value.transpose(1, 2, 0)
    if value.dtype == "uint8":
        return pixels
    return levels_of(pixels, channels_of(field.dtype, ops))


# -- The sheet ----------------------------------------------------------------


def default_zoom(height: int, width: int) -> int:
    """Returns the factor that makes the larger side about 96 pixels."""
    return max(1, _TARGET_PIXELS // max(height, width, 1))


def _check_size(what: str, size: int) -> None:
    if size > _MAX_BYTES:
        raise errors.ResourceExhausted(
            f"{what} of the preview would take {size / 1e9:.1f} GB, of at most "
            f"{_MAX_BYTES / 1e9:.1f} GB: ask for fewer --samples or --epochs, "
            "or a smaller --zoom"
        )


def contact_sheet(
    originals: Sequence[Any], augmented: Sequence[Sequence[Any]], zoom: int
) -> Any:
    """Returns [H, W, 3]: a row for each sample, with the original on the left,
    then its augmented versions.

    Pixels are enlarged by `zoom`. Grey images are shown grey; alpha shows the
    background. All augmented images have one size. Raises ResourceExhausted.
    """
    import numpy

    columns = augmented[0] if augmented else ()
    cell_height, cell_width = columns[0].shape[:2] if columns else (0, 0)
    heights = [max(image.shape[0], cell_height) * zoom for image in originals]
    left = _GAP + max(image.shape[1] for image in originals) * zoom
    height = _GAP + sum(heights) + _GAP * len(heights)
    width = left + _GAP
    if columns:
        left += _ORIGINAL_GAP
        width = left + len(columns) * (cell_width * zoom + _GAP)
    _check_size("the sheet", height * width * 3)
    sheet = numpy.full((height, width, 3), _BACKGROUND, numpy.uint8)

    def paste(image: Any, top: int, row_height: int, left: int) -> None:
        pixels = _rgb(image).repeat(zoom, 0).repeat(zoom, 1)
        # Smaller images are centred in the row.
        top += (row_height - pixels.shape[0]) // 2
        right, bottom = left + pixels.shape[1], top + pixels.shape[0]
        sheet[top:bottom, left:right] = pixels

    top = _GAP
    for i, row_height in enumerate(heights):
        paste(originals[i], top, row_height, _GAP)
        for j in range(len(columns)):
            at = left + j * (cell_width * zoom + _GAP)
            paste(augmented[i][j], top, row_height, at)
        top += row_height + _GAP
    return sheet


def _rgb(image: Any) -> Any:
    if image.shape[2] != 4:
        return image.repeat(3, 2) if image.shape[2] == 1 else image
    alpha = image[:, :, 3:].astype("uint32")
    shown = image[:, :, :3] * alpha + _BACKGROUND * (255 - alpha)
    return ((shown + 127) // 255).astype("uint8")


# -- The file -----------------------------------------------------------------


def save(content: bytes, path: str) -> None:
    """Writes the file, and replaces what is there only when it is complete. A
    symbolic link stays, and the file it leads to is replaced. A pipe or a
    device is written to."""
    try:
        replaced = _replaced(path)
        if replaced is None:
            with open(path, "wb") as file:
                file.write(content)
        else:
            _replace(content, *os.path.split(replaced))
    except OSError as error:
        raise os_error(path, error) from None


def _replaced(path: str) -> Optional[str]:
    """Returns the path of the file to replace, which may not exist; None if
    what is at `path` cannot be replaced: a pipe, a device, or a link to one or
    to nothing."""
    if os.path.islink(path):
        path = os.path.realpath(path)
        return path if os.path.isfile(path) else None
    is_there = os.path.exists(path)
    return path if os.path.isfile(path) or not is_there else None


def _replace(content: bytes, directory: str, name: str) -> None:
    descriptor, temporary = tempfile.mkstemp(
        prefix=name + ".", dir=directory or "."
    )
    try:
        with open(descriptor, "wb") as file:
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(descriptor, 0o666 & ~mask)
            file.write(content)
        os.replace(temporary, os.path.join(directory, name))
    except BaseException:
        os.unlink(temporary)
        raise
