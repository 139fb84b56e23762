"""--transforms of a command line: presets, JSON, or a file of JSON."""

from __future__ import annotations

import contextlib
import re
from typing import Any, Callable, Dict, Iterator, List, Tuple

from .. import errors
from .._client.client import Client
from .._descriptions import Field
from ..web._samples import parse_transforms
from ..web._views import op_of
from .command_line import UsageError

Message = Dict[str, Any]

_EXPECTED = (
    'expected a list such as [{"random_crop": {"height": 32, "width": 32}}]'
)


def size_of(field: Field) -> Tuple[int, int]:
    """Returns height and width of an image, on which presets depend; the
    smallest if they differ."""
    height, width = (field.smallest or field.shape)[:2]
    return height, width


def parse(text: str, height: int, width: int) -> List[Message]:
    """Returns Transform messages, for images of height x width. Raises
    UsageError.

    none                     no transforms
    crop-flip                presets, joined by '-', in this order of doing
    [{"center_crop": {"height": 24, "width": 24}}]   Transform messages, where
                             enums may lack their prefix: "reflect"
    {"transforms": [...]}    a Pipeline message
    @FILE                    the file's text, as above
    """
    if text.startswith("@"):
        text = _text_of(text[1:])
    text = text.strip()
    if text.startswith(("[", "{")):
        return _messages(text)
    if text in ("", "none"):
        return []
    ops = []
    for name in text.split("-"):
        if name not in _PRESETS:
            raise UsageError(
                f"--transforms: no preset '{name}' in '{text}'; expected "
                f"none, or {', '.join(_PRESETS)} joined by '-', or JSON, or "
                "@FILE"
            )
        ops.append(_PRESETS[name](height, width))
    return ops


def _text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise UsageError(f"--transforms: {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"--transforms: {path}: {error}") from None
    if not text.strip():
        raise UsageError(
            f"--transforms: {path} holds no transforms; write [] for none"
        )
    return text


def _messages(text: str) -> List[Message]:
    try:
        found = parse_transforms(text, [""])
    except errors.InvalidArgument as error:
        text = str(error).removeprefix("the transforms are not JSON: ")
        raise UsageError(f"--transforms as JSON: {text}; {_EXPECTED}") from None
    ops = found.pop("", [])
    if found:
        raise UsageError(
            f"--transforms as JSON: {next(iter(found))} is neither transforms "
            f"nor an op; {_EXPECTED}"
        )
    return ops


@contextlib.contextmanager
def errors_of_form() -> Iterator[None]:
    """Raises UsageError where a request's transforms are no messages of
    transform.proto."""
    try:
        yield
    except errors.InvalidArgument as error:
        wrong = re.match(
            r"\w+ as JSON: (.*); its fields are those in proto/",
            str(error),
            re.DOTALL,
        )
        if wrong is None:
            raise
        # Without the path to the transforms.
        text = wrong[1].replace("fields[0].value.", "")
        raise UsageError(f"--transforms as JSON: {text}; {_EXPECTED}") from None


def check_form(
    client: Client, dataset: str, field: str, ops: List[Message]
) -> None:
    """Raises UsageError if `ops` are no messages of transform.proto; whether
    the daemon accepts them is not asked."""
    with contextlib.suppress(errors.Error), errors_of_form():
        client._session.call(
            "ExplainTransforms",
            dataset=dataset,
            fields={field: {"transforms": ops}},
        )


def take_number_ops(ops: List[Message]) -> List[str]:
    """Removes the trailing ops that only change numbers, and returns their
    names in order."""
    names = {
        "to_dtype": "to_dtype", "toDtype": "to_dtype", "normalize": "normalize"
    }  # fmt: skip
    taken: List[str] = []
    while ops and op_of(ops[-1])[0] in names:
        taken.insert(0, names[op_of(ops.pop())[0]])
    return taken


def _crop(height: int, width: int) -> Message:
    # Reflection needs more pixels than it adds.
    side = min(max(height, width) // 8 or 1, min(height, width) - 1)
    return {
        "random_crop": {
            "height": height,
            "width": width,
            "padding_mode": "PADDING_MODE_REFLECT",
            "padding": dict.fromkeys(("left", "top", "right", "bottom"), side),
        }
    }


def _jitter(height: int, width: int) -> Message:
    most = {"min": 0.6, "max": 1.4}
    return {
        "color_jitter": {
            **dict.fromkeys(("brightness", "contrast", "saturation"), most),
            "hue": {"min": -0.1, "max": 0.1},
        }
    }


_PRESETS: Dict[str, Callable[[int, int], Message]] = {
    "crop": _crop,
    "flip": lambda height, width: {"random_horizontal_flip": {}},
    "vflip": lambda height, width: {"random_vertical_flip": {}},
    "altflip": lambda height, width: {"alternating_flip": {}},
    "resizedcrop": lambda height, width: {
        "random_resized_crop": {"size": {"height": height, "width": width}}
    },
    "rotate": lambda height, width: {
        "random_rotation": {
            "degrees": {"min": -10, "max": 10},
            "interpolation": "INTERPOLATION_MODE_BILINEAR",
        }
    },
    "jitter": _jitter,
}
