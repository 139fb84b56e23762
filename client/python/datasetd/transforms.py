"""The ops that the daemon runs for every batch, and for images at load.

Names, parameters, defaults and meaning are those of torchvision.transforms.v2;
what differs is said at the op. The classes only describe: the daemon does the
work, and draws the random parameters per sample.

    from datasetd import transforms as T
    [T.RandomCrop(32, padding=4, padding_mode="reflect"),
     T.RandomHorizontalFlip(),
     T.ToDtype("float16", scale=True),
     T.Normalize(mean, std)]
"""

from __future__ import annotations

import math
import numbers
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from .errors import InvalidArgument

__all__ = [
    "AlternatingFlip",
    "CenterCrop",
    "Normalize",
    "Pad",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomVerticalFlip",
    "ToDtype",
    "Transform",
]

Size = Union[int, Sequence[int]]
Padding = Union[int, Sequence[int]]
Fill = Union[None, int, float, Sequence[float]]

_PADDING_MODES = ("constant", "edge", "reflect", "symmetric")
_DTYPES = ("uint8", "float16", "bfloat16", "float32")
_MAX_UINT32 = 2**32 - 1


def _fail(op: str, name: str, value: Any, expected: str) -> InvalidArgument:
    return InvalidArgument(f"{op}: {name}={value!r}; expected {expected}")


def _is_int(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_sequence(value: Any) -> bool:
    # NumPy arrays and torch sizes count; text does not.
    return hasattr(value, "__len__") and not isinstance(value, (str, bytes))


def _size(op: str, value: Any) -> Tuple[int, int]:
    expected = "an int, or (height, width), of 1 or more"
    items = list(value) if _is_sequence(value) else [value]
    if len(items) not in (1, 2):
        raise _fail(op, "size", value, expected)
    for item in items:
        if not _is_int(item) or not 1 <= item <= _MAX_UINT32:
            raise _fail(op, "size", value, expected)
    return int(items[0]), int(items[-1])


def _padding(op: str, value: Any) -> Tuple[int, int, int, int]:
    """(left, top, right, bottom)."""
    expected = (
        "an int, or 1, 2 (left and right, top and bottom) or 4 "
        "(left, top, right, bottom) of 0 or more"
    )
    items = list(value) if _is_sequence(value) else [value]
    for item in items:
        if not _is_int(item) or not 0 <= item <= _MAX_UINT32:
            raise _fail(op, "padding", value, expected)
    numbers_ = [int(item) for item in items]
    if len(numbers_) == 1:
        return (numbers_[0],) * 4
    if len(numbers_) == 2:
        return numbers_[0], numbers_[1], numbers_[0], numbers_[1]
    if len(numbers_) == 4:
        return numbers_[0], numbers_[1], numbers_[2], numbers_[3]
    raise _fail(op, "padding", value, expected)


def _floats(op: str, name: str, value: Any) -> List[float]:
    expected = "a number, or one per channel"
    items = list(value) if _is_sequence(value) else [value]
    result = []
    for item in items:
        try:
            # A tensor's or an array's element is one, too; text is not.
            if isinstance(item, (str, bytes)):
                raise TypeError
            number = float(item)
        except (TypeError, ValueError):
            raise _fail(op, name, value, expected) from None
        if not math.isfinite(number):
            raise _fail(op, name, value, expected)
        result.append(number)
    if not result:
        raise _fail(op, name, value, expected)
    return result


def _fill(op: str, value: Any) -> List[float]:
    if value is None:
        return [0.0]
    if isinstance(value, dict):
        raise _fail(op, "fill", value, "a number, or one per channel")
    return _floats(op, "fill", value)


def _padding_mode(op: str, value: Any) -> str:
    if value not in _PADDING_MODES:
        raise _fail(op, "padding_mode", value, f"one of {_PADDING_MODES}")
    return value


def _bool(op: str, name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _fail(op, name, value, "True or False")
    return value


def _probability(op: str, value: Any) -> float:
    if (
        not isinstance(value, numbers.Real)
        or isinstance(value, bool)
        or not 0.0 <= value <= 1.0
    ):
        raise _fail(op, "p", value, "a number from 0 to 1")
    return float(value)


def dtype_name(value: Any) -> str:
    """The name of a dtype given as text, or as torch or NumPy has it."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, type):  # numpy.float16
        text = value.__name__
    else:  # torch.float16, numpy.dtype("float16")
        text = str(value)
    return text[len("torch.") :] if text.startswith("torch.") else text


def _padding_message(padding: Tuple[int, int, int, int]) -> Dict[str, int]:
    return dict(zip(("left", "top", "right", "bottom"), padding))


class Transform:
    """One op. Equal ops compare equal."""

    # The name in transform.proto.
    _name = ""

    def to_message(self) -> Dict[str, Any]:
        """The op as a Transform message, in JSON's terms."""
        return {self._name: self._parameters()}

    def _parameters(self) -> Dict[str, Any]:
        return {}

    def __repr__(self) -> str:
        values = ", ".join(f"{k}={v!r}" for k, v in vars(self).items())
        return f"{type(self).__name__}({values})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(repr(self))


class Pad(Transform):
    _name = "pad"

    def __init__(
        self,
        padding: Padding,
        fill: Fill = 0,
        padding_mode: str = "constant",
    ) -> None:
        self.padding = _padding("Pad", padding)
        self.fill = _fill("Pad", fill)
        self.padding_mode = _padding_mode("Pad", padding_mode)

    def _parameters(self) -> Dict[str, Any]:
        return {
            "padding": _padding_message(self.padding),
            "fill": self.fill,
            "padding_mode": "PADDING_MODE_" + self.padding_mode.upper(),
        }


class CenterCrop(Transform):
    _name = "center_crop"

    def __init__(self, size: Size) -> None:
        self.size = _size("CenterCrop", size)

    def _parameters(self) -> Dict[str, Any]:
        return {"height": self.size[0], "width": self.size[1]}


class RandomCrop(Transform):
    _name = "random_crop"

    def __init__(
        self,
        size: Size,
        padding: Optional[Padding] = None,
        pad_if_needed: bool = False,
        fill: Fill = 0,
        padding_mode: str = "constant",
    ) -> None:
        self.size = _size("RandomCrop", size)
        self.padding = (
            None if padding is None else _padding("RandomCrop", padding)
        )
        self.pad_if_needed = _bool("RandomCrop", "pad_if_needed", pad_if_needed)
        self.fill = _fill("RandomCrop", fill)
        self.padding_mode = _padding_mode("RandomCrop", padding_mode)

    def _parameters(self) -> Dict[str, Any]:
        message: Dict[str, Any] = {
            "height": self.size[0],
            "width": self.size[1],
            "pad_if_needed": self.pad_if_needed,
            "fill": self.fill,
            "padding_mode": "PADDING_MODE_" + self.padding_mode.upper(),
        }
        if self.padding is not None:
            message["padding"] = _padding_message(self.padding)
        return message


class RandomHorizontalFlip(Transform):
    _name = "random_horizontal_flip"

    def __init__(self, p: float = 0.5) -> None:
        self.p = _probability("RandomHorizontalFlip", p)

    def _parameters(self) -> Dict[str, Any]:
        return {"p": self.p}


class RandomVerticalFlip(Transform):
    _name = "random_vertical_flip"

    def __init__(self, p: float = 0.5) -> None:
        self.p = _probability("RandomVerticalFlip", p)

    def _parameters(self) -> Dict[str, Any]:
        return {"p": self.p}


class AlternatingFlip(Transform):
    """Flips every image left-right on every second epoch.

    A random bit of the sample decides on which. Not in torchvision; from the
    CIFAR-10 speed runs.
    """

    _name = "alternating_flip"


class ToDtype(Transform):
    """`dtype` as text or as torch has it; no dict by input type."""

    _name = "to_dtype"

    def __init__(self, dtype: Any, scale: bool = False) -> None:
        name = dtype_name(dtype)
        if name not in _DTYPES:
            raise _fail("ToDtype", "dtype", dtype, f"one of {_DTYPES}")
        self.dtype = name
        self.scale = _bool("ToDtype", "scale", scale)

    def _parameters(self) -> Dict[str, Any]:
        return {"dtype": "DTYPE_" + self.dtype.upper(), "scale": self.scale}


class Normalize(Transform):
    """`inplace` is accepted and means nothing: the batch is written once."""

    _name = "normalize"

    def __init__(
        self,
        mean: Sequence[float],
        std: Sequence[float],
        inplace: bool = False,
    ) -> None:
        self.mean = _floats("Normalize", "mean", mean)
        self.std = _floats("Normalize", "std", std)
        _bool("Normalize", "inplace", inplace)
        if len(self.mean) != len(self.std):
            raise InvalidArgument(
                f"Normalize: mean has {len(self.mean)} values, std "
                f"{len(self.std)}; expected one each per channel"
            )
        if any(value <= 0 for value in self.std):
            raise _fail("Normalize", "std", std, "values above 0")

    def _parameters(self) -> Dict[str, Any]:
        return {"mean": self.mean, "std": self.std}


def pipeline_message(name: str, ops: Any) -> List[Dict[str, Any]]:
    """A list of ops as Transform messages; `name` is said in errors."""
    if isinstance(ops, Transform):
        ops = [ops]
    if not isinstance(ops, (list, tuple)):
        raise InvalidArgument(f"{name}: {ops!r}; expected a list of transforms")
    for op in ops:
        if not isinstance(op, Transform):
            raise InvalidArgument(
                f"{name}: {op!r} is no datasetd.transforms class; those of "
                "torchvision run in this process, not in the daemon"
            )
    return [op.to_message() for op in ops]
