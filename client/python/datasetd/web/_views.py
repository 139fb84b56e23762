"""The page's view of one field of a sample: a picture, an overlay, a number
or a line."""

from __future__ import annotations

import math
import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .._descriptions import Field
from ._png import data_url, png

# Larger sides are thinned to this for the page.
_MAX_SIDE = 512
_MAX_LINE_POINTS = 256

Message = Dict[str, Any]


def op_of(message: Message) -> Tuple[str, Message]:
    for name, parameters in message.items():
        if name not in ("draw_id", "drawId"):
            return name, parameters if isinstance(parameters, dict) else {}
    return "", {}


# How a number becomes a level of 0 to 255, (number - offset) / scale: (scale,
# offset) for each of four channels.
Channels = List[Tuple[float, float]]


# Of a field that is not an image: it is a spectrogram with these, and without
# them if it has so many rows and columns.
_OF_SPECTROGRAMS = ("mel_spectrogram", "time_masking", "frequency_masking")
_LEAST_SIDE = 8
# A waveform [T, C] has at most so many channels, unless it is of sequences.
_MAX_CHANNELS = 4


class Scale(NamedTuple):
    channels: Optional[Channels]  # None: from the least number to the largest
    is_spectrogram: bool = False


def scale_of(dtype: str, ops: Sequence[Message]) -> Scale:
    return Scale(
        channels_of(dtype, ops) if dtype == "uint8" else None,
        _makes_spectrogram(ops),
    )


def _makes_spectrogram(ops: Sequence[Message]) -> bool:
    for op in ops:
        name, parameters = op_of(op)
        # As protobuf's JSON may have it, too: melSpectrogram.
        if re.sub("([A-Z])", r"_\1", name).lower() in _OF_SPECTROGRAMS:
            return True
        if _makes_spectrogram(parameters.get("transforms") or ()):
            return True
    return False


def channels_of(dtype: str, ops: Sequence[Message]) -> Channels:
    """Follows ToDtype and Normalize, so that they can be undone. `dtype` is
    that of the samples; floating point numbers go from 0 to 1."""
    is_uint8 = dtype == "uint8"
    channels = [(1.0 if is_uint8 else 1.0 / 255.0, 0.0)] * 4
    for op in ops:
        name, parameters = op_of(op)
        if name in ("to_dtype", "toDtype") and is_uint8:
            if parameters.get("dtype") not in ("DTYPE_UINT8", 1):
                is_uint8 = False
                if parameters.get("scale"):
                    channels = [(s / 255.0, o) for s, o in channels]
        elif name == "normalize":
            channels = [
                (s / std, (o - mean) / std)
                for (s, o), mean, std in zip(
                    channels,
                    _spread(parameters.get("mean")),
                    _spread(parameters.get("std")),
                )
            ]
    return channels


def levels_of(pixels: Any, channels: Channels) -> Any:
    """Returns uint8 of numbers [H, W, C]."""
    import numpy

    levels = pixels.astype(numpy.float64)
    for c in range(levels.shape[2]):
        factor, offset = channels[c]
        levels[:, :, c] = (levels[:, :, c] - offset) / factor
    levels = numpy.nan_to_num(levels, nan=0.0, posinf=255.0, neginf=0.0)
    return numpy.rint(levels.clip(0.0, 255.0)).astype(numpy.uint8)


def _spread(values: Any) -> List[float]:
    # In a pasted message one number may stand for a list of one.
    given = values if isinstance(values, list) else [values or 0.0]
    numbers = [float(value) for value in given or [0.0]]
    return [numbers[min(c, len(numbers) - 1)] for c in range(4)]


def view_of(
    field: Field, value: Any, scale: Scale, notes: List[str]
) -> Message:
    """Returns what the page shows for one field of one sample; images are
    [C, H, W]."""
    if field.is_mask:
        return _mask(value)
    if field.is_image and value.ndim == 3:
        return _image(field, value, scale, notes)
    planes = spectrogram_of(field, value, scale)
    if planes is not None:
        return _spectrogram(field, value, planes, notes)
    wave = waveform_of(field, value)
    if wave is None or value.ndim == 1:
        return _numbers(value)
    if value.shape[1] > 1:
        _add(
            notes,
            f"Of {field.name}, with {value.shape[1]} channels, the first is "
            "shown.",
        )
    return {**_numbers(wave), "shape": list(value.shape)}


def spectrogram_of(field: Field, value: Any, scale: Scale) -> Any:
    """Returns the first channel of a spectrogram, [frequencies, frames]; None
    of other values."""
    if field.is_image or value.ndim not in (2, 3) or 0 in value.shape:
        return None
    # Of fields [F, T], and not of steps.
    is_one = scale.is_spectrogram or (
        value.dtype.kind == "f"
        and value.ndim == len(field.shape)
        and not field.is_sequence
        and min(value.shape[-2:]) >= _LEAST_SIDE
    )
    if not is_one:
        return None
    return value if value.ndim == 2 else value[0]


def waveform_of(field: Field, value: Any) -> Any:
    """Returns the first channel of a sequence or a window, [steps]; None of
    other values."""
    if field.is_image or value.ndim not in (1, 2):
        return None
    if value.ndim == 1:
        return value
    num_steps, num_channels = value.shape
    is_long = num_channels <= _MAX_CHANNELS < num_steps
    if not num_channels or not (
        is_long or field.is_sequence or value.ndim > len(field.shape)
    ):
        return None
    return value[:, 0]


def heat_of(planes: Any, low: float, high: float) -> Any:
    """Returns uint8 [H, W, 1] of [frequencies, frames]: the lowest frequency
    at the bottom, `low` black and `high` white."""
    import numpy

    channels = [((high - low or 1.0) / 255.0, low)] * 4
    return numpy.ascontiguousarray(levels_of(planes[::-1, :, None], channels))


def _spectrogram(
    field: Field, value: Any, planes: Any, notes: List[str]
) -> Message:
    import numpy

    planes, step = _thinned(planes)
    low, high = range_of(planes.astype(numpy.float64))
    if value.ndim == 3 and len(value) > 1:
        _add(
            notes,
            f"Of {field.name}, with {len(value)} channels, the first is shown.",
        )
    _add(
        notes,
        f"{field.name} is a spectrogram: the lowest frequency is at the "
        "bottom, the least number black, the largest white.",
    )
    return {
        "kind": "image",
        "url": data_url(png(heat_of(planes, low, high))),
        "size": [*value.shape[-2:], 1],
        "step": step,
        "least": low,
        "largest": high,
    }


def _thinned(pixels: Any) -> Tuple[Any, int]:
    step = max(1, -(-max(pixels.shape[:2]) // _MAX_SIDE))
    return pixels[::step, ::step], step


def _image(
    field: Field, value: Any, scale: Scale, notes: List[str]
) -> Message:
    import numpy

    pixels = value.transpose(1, 2, 0)
    size = list(pixels.shape)
    if pixels.shape[2] not in (1, 2, 3, 4):
        return _numbers(value)
    if pixels.shape[2] == 2:
        pixels = pixels[:, :, :1]
        _add(notes, f"Of {field.name}, with two channels, the first is shown.")
    pixels, step = _thinned(pixels)
    if pixels.dtype != numpy.uint8:
        channels = scale.channels
        if channels is None:
            low, high = range_of(pixels.astype(numpy.float64))
            channels = [((high - low or 1.0) / 255.0, low)] * 4
            _add(
                notes,
                f"{field.name} is {field.dtype}: each image is shown from its "
                "least number, black, to its largest.",
            )
        pixels = levels_of(pixels, channels)
    return {
        "kind": "image",
        "url": data_url(png(numpy.ascontiguousarray(pixels))),
        "size": size,
        "step": step,
    }


def range_of(levels: Any) -> Tuple[float, float]:
    """Returns the least and the largest finite number; 0 if there is none."""
    import numpy

    finite = levels[numpy.isfinite(levels)]
    if not finite.size:
        return 0.0, 0.0
    return float(finite.min()), float(finite.max())


def _mask(value: Any) -> Message:
    """Classes as colours, 0 transparent."""
    import numpy

    classes = value.reshape(value.shape[-2:]) if value.ndim == 3 else value
    if classes.ndim != 2:
        return _numbers(value)
    classes, step = _thinned(classes)
    numbers = classes.astype(numpy.int64)
    pixels = numpy.zeros(numbers.shape + (4,), numpy.uint8)
    present = [int(number) for number in numpy.unique(numbers)[:256]]
    for number in present:
        if number != 0:
            pixels[numbers == number] = class_colour(number) + (160,)
    return {
        "kind": "mask",
        "url": data_url(png(pixels)),
        "size": list(value.shape),
        "step": step,
        "classes": present,
    }


def class_colour(number: int) -> Tuple[int, int, int]:
    """Distinct for neighbouring numbers: hues by the golden ratio."""
    import colorsys

    red, green, blue = colorsys.hsv_to_rgb((number * 0.6180339887) % 1, 0.9, 1)
    return round(255 * red), round(255 * green), round(255 * blue)


def _numbers(value: Any) -> Message:
    """A number, a line, or a summary."""
    import numpy

    array = numpy.asarray(value)
    if array.ndim == 0:
        number = array.item()
        if isinstance(number, float) and not math.isfinite(number):
            return {"kind": "number", "value": str(number)}
        # A browser's numbers are doubles.
        if isinstance(number, int) and abs(number) > 1 << 53:
            return {"kind": "number", "value": str(number)}
        return {"kind": "number", "value": number}
    flat = array.reshape(-1)
    numbers = flat.astype(numpy.float64)
    low, high = range_of(numbers)
    view: Message = {
        "kind": "line" if array.ndim == 1 else "array",
        "shape": list(array.shape),
        "least": low,
        "largest": high,
        "first": [
            str(item) for item in flat[:8].tolist()
        ],
    }
    if array.ndim == 1:
        # Each stretch shows its least and its largest number, so that no peak
        # is lost.
        stretch = max(1, -(-2 * len(numbers) // _MAX_LINE_POINTS))
        finite = numpy.nan_to_num(numbers, nan=low, posinf=high, neginf=low)
        points: List[float] = []
        for begin in range(0, len(finite), stretch):
            part = finite[begin : begin + stretch]
            points.append(float(part.min()))
            if stretch > 1:
                points.append(float(part.max()))
        view["points"] = points
    return view


def _add(notes: List[str], note: str) -> None:
    if note not in notes:
        notes.append(note)

