"""Checks of the ops' arguments. Each returns the normalised value, or raises
InvalidArgument with the op, the argument and the allowed values."""

from __future__ import annotations

import enum
import math
import numbers
from typing import (
    TYPE_CHECKING,
    Any,
    Dict,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from ..errors import InvalidArgument

if TYPE_CHECKING:
    from typing_extensions import TypeGuard  # typing's from Python 3.10 on

Size = Union[int, Sequence[int]]
Padding = Union[int, Sequence[int]]
Number = Union[int, float]
Fill = Union[None, int, float, Sequence[float], Dict[str, Any]]
Fields = Union[None, str, Sequence[str]]

PADDING_MODES = ("constant", "edge", "reflect", "symmetric")
RESIZE_MODES = ("nearest", "nearest-exact", "bilinear", "bicubic")
AFFINE_MODES = ("nearest", "bilinear")
IMAGE_DTYPES = ("uint8", "float16", "bfloat16", "float32")
_MAX_INT32 = 2**31 - 1
_MAX_UINT32 = 2**32 - 1
# Pillow's numbers, which torchvision also accepts.
_PILLOW_MODES = {0: "nearest", 2: "bilinear", 3: "bicubic"}


class InterpolationMode(enum.Enum):
    """Like torchvision's, whose members and names are also accepted."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"


def fail(op: str, name: str, value: Any, expected: str) -> InvalidArgument:
    return InvalidArgument(f"{op}: {name}={value!r}; expected {expected}")


def is_int(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    return (
        isinstance(value, numbers.Real)
        and not isinstance(value, bool)
        and math.isfinite(value)
    )


def is_sequence(value: Any) -> "TypeGuard[Sequence[Any]]":
    # NumPy arrays and torch sizes count, but not arrays of one value; text,
    # dicts and sets do not.
    return (
        hasattr(value, "__len__")
        and not isinstance(value, (str, bytes, dict, set, frozenset))
        and getattr(value, "shape", None) != ()
    )


def boolean(op: str, name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise fail(op, name, value, "True or False")
    return value


def integer(op: str, name: str, value: Any, low: int, high: int) -> int:
    if not is_int(value) or not low <= value <= high:
        raise fail(op, name, value, f"an int from {low} to {high}")
    return int(value)


def coordinate(op: str, name: str, value: Any) -> int:
    return integer(op, name, value, -_MAX_INT32, _MAX_INT32)


def extent(op: str, name: str, value: Any) -> int:
    return integer(op, name, value, 1, _MAX_INT32)


def number(
    op: str,
    name: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
) -> float:
    if not is_number(value) or not low <= value <= high:
        raise fail(op, name, value, "a number" + _within(low, high))
    return float(value)


def _within(low: float, high: float) -> str:
    if low == -math.inf and high == math.inf:
        return ""
    if high == math.inf:
        return f" of {low:g} or more"
    if low == -math.inf:
        return f" of {high:g} or less"
    return f" from {low:g} to {high:g}"


def probability(op: str, value: Any) -> float:
    return number(op, "p", value, 0, 1)


def interval(
    op: str,
    name: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
) -> Tuple[float, float]:
    """(min, max), which may be equal."""
    expected = "(min, max), numbers" + _within(low, high) + " in that order"
    items = list(value) if is_sequence(value) else []
    if len(items) != 2 or not all(is_number(item) for item in items):
        raise fail(op, name, value, expected)
    if not low <= items[0] <= items[1] <= high:
        raise fail(op, name, value, expected)
    return float(items[0]), float(items[1])


def positive(op: str, name: str, value: Any) -> float:
    if not is_number(value) or value <= 0:
        raise fail(op, name, value, "a number above 0")
    return float(value)


def positive_interval(op: str, name: str, value: Any) -> Tuple[float, float]:
    low, high = interval(op, name, value)
    if low <= 0:
        raise fail(op, name, value, "(min, max), numbers above 0 in that order")
    return low, high


def angle_interval(op: str, name: str, value: Any) -> Tuple[float, float]:
    """A number d is (-d, d)."""
    if is_sequence(value):
        return interval(op, name, value)
    if not is_number(value) or value < 0:
        raise fail(op, name, value, "a number of 0 or more, or (min, max)")
    return -float(value), float(value)


def pair(op: str, name: str, value: Any) -> Tuple[float, float]:
    items = list(value) if is_sequence(value) else []
    if len(items) != 2 or not all(is_number(item) for item in items):
        raise fail(op, name, value, "(x, y), two numbers")
    return float(items[0]), float(items[1])


def center(op: str, value: Any) -> Optional[Tuple[float, float]]:
    return None if value is None else pair(op, "center", value)


def size(op: str, value: Any, name: str = "size") -> Tuple[int, int]:
    expected = "an int, or (height, width), of 1 or more"
    items = list(value) if is_sequence(value) else [value]
    if len(items) not in (1, 2):
        raise fail(op, name, value, expected)
    for item in items:
        if not is_int(item) or not 1 <= item <= _MAX_UINT32:
            raise fail(op, name, value, expected)
    return int(items[0]), int(items[-1])


def padding(op: str, value: Any) -> Tuple[int, int, int, int]:
    """(left, top, right, bottom)."""
    expected = (
        "an int, or 1, 2 (left and right, top and bottom) or 4 "
        "(left, top, right, bottom) of 0 or more"
    )
    items = list(value) if is_sequence(value) else [value]
    for item in items:
        if not is_int(item) or not 0 <= item <= _MAX_UINT32:
            raise fail(op, "padding", value, expected)
    sides = [int(item) for item in items]
    if len(sides) == 1:
        return (sides[0],) * 4
    if len(sides) == 2:
        return sides[0], sides[1], sides[0], sides[1]
    if len(sides) == 4:
        return sides[0], sides[1], sides[2], sides[3]
    raise fail(op, "padding", value, expected)


def padding_mode(op: str, value: Any) -> str:
    if value not in PADDING_MODES:
        raise fail(op, "padding_mode", value, f"one of {PADDING_MODES}")
    return str(value)


def interpolation(
    op: str, value: Any, modes: Tuple[str, ...] = AFFINE_MODES
) -> str:
    # torchvision's enum is one, too, by its value.
    text = getattr(value, "value", value)
    if is_int(text):
        text = _PILLOW_MODES.get(int(text), text)
    if isinstance(text, str):
        text = text.lower().replace("_", "-")
    if text not in modes:
        raise fail(op, "interpolation", value, f"one of {modes}")
    return str(text)


def floats(op: str, name: str, value: Any) -> List[float]:
    expected = "a number, or one per channel"
    items = list(value) if is_sequence(value) else [value]
    result = []
    for item in items:
        try:
            # A tensor's or an array's element is one, too; text is not.
            if isinstance(item, (str, bytes)):
                raise TypeError
            element = float(item)
        except (TypeError, ValueError):
            raise fail(op, name, value, expected) from None
        if not math.isfinite(element):
            raise fail(op, name, value, expected)
        result.append(element)
    if not result:
        raise fail(op, name, value, expected)
    return result


class FillByKind(NamedTuple):
    """The fills of all images and of all masks, whatever their names."""

    image: Any
    mask: Any


Fills = Union[List[float], Dict[str, List[float]], FillByKind]


def fill(op: str, value: Any, none: Sequence[float] = (0.0,)) -> Fills:
    """A list, or lists by field or by kind; None stands for `none`."""
    if value is None:
        return list(none)
    if isinstance(value, FillByKind):
        return FillByKind(*(fill(op, part, none) for part in value))
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise fail(
                    op,
                    "fill",
                    value,
                    "a number, one per channel, or a dict of these by the "
                    "name of a field, such as {'mask': 255}",
                )
        return {
            key: list(none) if item is None else floats(op, "fill", item)
            for key, item in value.items()
        }
    return floats(op, "fill", value)


def warp_fill(op: str, value: Any) -> Fills:
    """As fill(). None is an empty list: the image is taken as zeros outside,
    and no fill is blended in at its edges."""
    return fill(op, value, none=())


def dtype_name(value: Any) -> str:
    """The name of a dtype given as text, or as torch or NumPy has it."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, type):  # numpy.float16
        text = value.__name__
    else:  # torch.float16, numpy.dtype("float16")
        text = str(value)
    return text[len("torch.") :] if text.startswith("torch.") else text


def dtype(op: str, value: Any, others: Tuple[str, ...] = ()) -> str:
    """`others`: dtypes that are not those of images."""
    name = dtype_name(value)
    if name not in (*IMAGE_DTYPES, *others):
        raise fail(op, "dtype", value, f"one of {(*IMAGE_DTYPES, *others)}")
    return name


def fields(op: str, value: Any) -> Optional[Tuple[str, ...]]:
    if value is None:
        return None
    names = [value] if isinstance(value, str) else value
    if (
        not isinstance(names, (list, tuple))
        or not names
        or not all(isinstance(name, str) and name for name in names)
        or len(set(names)) != len(names)
    ):
        raise fail(op, "fields", value, "names of fields, each once")
    return tuple(names)
