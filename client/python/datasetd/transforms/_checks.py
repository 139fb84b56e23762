"""Checks of the ops' arguments. Each returns the normalised value, or raises
InvalidArgument with the op, the argument and the allowed values; ranges and
choices are those that the daemon has (_described.py)."""

from __future__ import annotations

import enum
import math
import numbers
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    List,
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
    Tuple,
    Union,
)

from ..errors import InvalidArgument
from ._described import Op, Parameter

if TYPE_CHECKING:
    from typing_extensions import TypeGuard  # typing's from Python 3.10 on

Size = Union[int, Sequence[int]]
Padding = Union[int, Sequence[int]]
Number = Union[int, float]
Fill = Union[None, int, float, Sequence[float], Dict[str, Any]]
Fields = Union[None, str, Sequence[str]]

IMAGE_DTYPES = ("uint8", "float16", "bfloat16", "float32")
# Pillow's numbers, which torchvision also accepts.
_PILLOW_MODES = {0: "nearest", 2: "bilinear", 3: "bicubic"}


class InterpolationMode(enum.Enum):
    """Like torchvision's, whose members and names are also accepted."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"


class Described(Protocol):
    """An op, a Transform."""

    @property
    def _op(self) -> Op: ...

    @property
    def _names(self) -> Dict[str, str]: ...


def fail(
    op: Described, name: str, value: Any, expected: str
) -> InvalidArgument:
    return InvalidArgument(
        f"{op._op.title}: {name}={value!r}; expected {expected}"
    )


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


def _described(op: Described, name: str) -> Parameter:
    return op._op.parameters[op._names.get(name, name)]


def _is_allowed(described: Parameter, value: float) -> bool:
    low, high = described.low, described.high
    return low <= value <= high and value > described.above


def _within(described: Parameter) -> str:
    low, high, above = described.low, described.high, described.above
    if above > -math.inf:
        return f" above {above:g}"
    if (low, high) == (-math.inf, math.inf):
        return ""
    if low >= 0 and high >= 1e6:  # more than anybody needs
        return f" of {low:g} or more, up to {high:.10g}"
    return f" from {low:.10g} to {high:.10g}"


def plain(op: Described, name: str, value: Any) -> Any:
    """Returns what is no sequence checked, and other arguments as they are."""
    described = op._op.parameters.get(op._names.get(name, name))
    if described is None or described.parts:
        return value
    kind = "choice" if described.choices else described.kind
    check = _PLAIN.get(kind)
    return check(op, name, value) if check else value


def boolean(op: Described, name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise fail(op, name, value, "True or False")
    return value


def integer(op: Described, name: str, value: Any) -> int:
    described = _described(op, name)
    if not is_int(value) or not _is_allowed(described, value):
        raise fail(op, name, value, "an int" + _within(described))
    return int(value)


def number(op: Described, name: str, value: Any, others: str = "") -> float:
    described = _described(op, name)
    if not is_number(value) or not _is_allowed(described, value):
        raise fail(op, name, value, "a number" + _within(described) + others)
    return float(value)


def _text(op: Described, name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise fail(op, name, value, "the name of a field")
    return value


def choice(op: Described, name: str, value: Any) -> Any:
    choices = tuple(_described(op, name).choices)
    # torchvision's enum is one, too, by its value.
    key = getattr(value, "value", value)
    if name == "interpolation":
        if is_int(key):
            key = _PILLOW_MODES.get(int(key), key)
        if isinstance(key, str):
            key = key.lower().replace("_", "-")
    if not (isinstance(key, str) or is_int(key)) or key not in choices:
        are_names = isinstance(choices[0], str)
        numbers_text = " or ".join(map(str, choices))
        expected = f"one of {choices}" if are_names else numbers_text
        raise fail(op, name, value, expected)
    return choices[choices.index(key)]


def interpolation(op: Described, value: Any) -> str:
    return str(choice(op, "interpolation", value))


_PLAIN: Dict[str, Callable[[Described, str, Any], Any]] = {
    "bool": boolean,
    "choice": choice,
    "double": number,
    "int32": integer,
    "string": _text,
    "uint32": integer,
}


def interval(op: Described, name: str, value: Any) -> Tuple[float, float]:
    """(min, max), which may be equal."""
    low, high = pair(op, name, value, "(min, max) in that order, numbers")
    if low > high:
        raise fail(op, name, value, "(min, max) in that order")
    return low, high


def spread(op: Described, name: str, value: Any) -> Tuple[float, float]:
    """(min, max). A number d is (-d, d)."""
    if is_sequence(value):
        return interval(op, name, value)
    described = _described(op, name)
    if not is_number(value) or not 0 <= value <= described.high:
        raise fail(
            op,
            name,
            value,
            f"a number from 0 to {described.high:.10g}, or (min, max)"
            + _within(described),
        )
    return -float(value), float(value)


def pair(
    op: Described, name: str, value: Any, form: str = "(x, y), two numbers"
) -> Tuple[float, float]:
    described = _described(op, name)
    items = list(value) if is_sequence(value) else []
    if len(items) != 2 or not all(
        is_number(item) and _is_allowed(described, item) for item in items
    ):
        raise fail(op, name, value, form + _within(described))
    return float(items[0]), float(items[1])


def center(op: Described, value: Any) -> Optional[Tuple[float, float]]:
    return None if value is None else pair(op, "center", value)


def size(op: Described, value: Any, name: str = "size") -> Tuple[int, int]:
    parameters = op._op.parameters
    described = parameters.get(name) or parameters["height"]
    items = list(value) if is_sequence(value) else [value]
    if len(items) not in (1, 2) or not all(
        is_int(item) and _is_allowed(described, item) for item in items
    ):
        raise fail(op, name, value, "an int, or (height, width), of 1 or more")
    return int(items[0]), int(items[-1])


def padding(op: Described, value: Any) -> Tuple[int, int, int, int]:
    """(left, top, right, bottom)."""
    described = _described(op, "padding")
    items = list(value) if is_sequence(value) else [value]
    if len(items) not in (1, 2, 4) or not all(
        is_int(item) and _is_allowed(described, item) for item in items
    ):
        raise fail(
            op,
            "padding",
            value,
            "an int, or 1, 2 (left and right, top and bottom) or 4 "
            "(left, top, right, bottom) of 0 or more",
        )
    left, top, right, bottom = map(int, items * (4 // len(items)))
    return left, top, right, bottom


def floats(op: Described, name: str, value: Any) -> List[float]:
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


def fill(op: Described, value: Any) -> Fills:
    """A list, or lists by field or by kind. None is 0; with an interpolation
    it is an empty list: the image is taken as zeros outside, and no fill is
    blended in at its edges."""
    none = [] if "interpolation" in op._op.parameters else [0.0]
    if value is None:
        return none
    if isinstance(value, FillByKind):
        return FillByKind(*(fill(op, part) for part in value))
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


def dtype_name(value: Any) -> str:
    """The name of a dtype given as text, or as torch or NumPy has it."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, type):  # numpy.float16
        text = value.__name__
    else:  # torch.float16, numpy.dtype("float16")
        text = str(value)
    return text[len("torch.") :] if text.startswith("torch.") else text


def dtype(op: Described, value: Any, others: Tuple[str, ...] = ()) -> str:
    """`others`: dtypes that are not those of images."""
    name = dtype_name(value)
    if name not in (*IMAGE_DTYPES, *others):
        raise fail(op, "dtype", value, f"one of {(*IMAGE_DTYPES, *others)}")
    return name


def fields(op: Described, value: Any) -> Optional[Tuple[str, ...]]:
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
