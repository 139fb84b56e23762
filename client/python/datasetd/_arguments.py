"""Checks of arguments. Errors name the argument."""

from __future__ import annotations

import json
import math
import operator
import os
from typing import Any, Dict, Optional, Union

from .errors import InvalidArgument


def checked_int(name: str, value: Any, least: int, most: int) -> int:
    """Accepts any integer, including NumPy's and torch's, but not bool."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InvalidArgument(f"{name}={value!r}; expected an int")
    number = operator.index(value)
    if not least <= number <= most:
        raise InvalidArgument(
            f"{name}={value!r}; expected {least} to {most}"
        )
    return number


def checked_seconds(name: str, value: Any) -> float:
    """Accepts a finite number >= 0."""
    try:
        seconds = math.nan if isinstance(value, (bool, str)) else float(value)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise InvalidArgument(
            f"{name}={value!r}; expected seconds, a number from 0"
        )
    return seconds


def nanoseconds(seconds: float) -> int:
    """Returns a time for the library, which takes less than 2**63."""
    return int(min(seconds * 1e9, 2**63 - 1))


def loader_timeout(value: Any) -> Optional[float]:
    """Like checked_seconds; None and, as in torch, 0 are no limit: None."""
    return None if value is None else checked_seconds("timeout", value) or None


def device_name(device: Any) -> str:
    """Returns the daemon's name of a device, given as str or torch.device, or
    of several; "" for None."""
    if device is None:
        return ""
    if isinstance(device, (list, tuple)) and device:
        return ",".join(device_name(one) for one in device)
    name = str(device)
    is_torch = type(device).__module__ == "torch"
    if not isinstance(device, str) and not is_torch:
        raise InvalidArgument(
            f"device={device!r}; expected 'cpu', 'cuda:0', 'each', a list of "
            "devices, or a torch.device"
        )
    return "cuda:0" if name == "cuda" else name


def absolute(path: Union[str, "os.PathLike[str]"]) -> str:
    """Returns the path as the daemon opens it; ~ is a home directory."""
    return os.path.abspath(os.path.expanduser(os.fspath(path)))


def encode(message: Dict[str, Any]) -> bytes:
    """Returns a message of proto/datasetd/v1 as JSON."""
    try:
        return _to_json(message)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(
            _without_json_form("", message) or str(error)
        ) from None


def _to_json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, ensure_ascii=False).encode()


def _without_json_form(name: str, value: Any) -> str:
    """Names the first value of a message that JSON does not have."""
    if isinstance(value, dict):
        parts = [(f"{name}.{key}".lstrip("."), value[key]) for key in value]
    elif isinstance(value, (list, tuple)):
        parts = [(f"{name}[{i}]", part) for i, part in enumerate(value)]
    else:
        try:
            _to_json(value)
            return ""
        except UnicodeEncodeError:
            return (
                f"{name}={value!r} is not UTF-8, which all paths and texts "
                "for the daemon are: rename it"
            )
        except (TypeError, ValueError):
            kind = type(value).__name__
            return f"{name}={value!r} is a {kind}; expected text or a number"
    return next(filter(None, (_without_json_form(*p) for p in parts)), "")


def has_items_of(value: Any, module: str, name: str) -> bool:
    """True if `value` is an instance of the module's class of this name, or of
    a subclass that leaves value[i] as it is."""
    kind = type(value)
    for base in kind.__mro__:
        if base.__name__ == name and base.__module__.split(".")[0] == module:
            return getattr(kind, "__getitem__", None) is getattr(
                base, "__getitem__", None
            )
    return False
