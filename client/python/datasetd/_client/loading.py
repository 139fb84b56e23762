"""Loads: builds the spec and waits until the dataset is ready."""

from __future__ import annotations

import contextlib
import logging
import operator
import os
import sys
import time
from typing import (
    Any,
    Callable,
    Dict,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    TypedDict,
    Union,
)

from .._arguments import absolute, device_name, encode
from .._connection import library
from .._connection.session import Session
from .._datasets.subset import Samples
from .._descriptions import fields_of, summary_of
from .._feed.options import check_one_image, image_field, warn_of_kinds
from .._ranks import nodes
from .._warnings import warn
from ..errors import Error, FailedPrecondition, InvalidArgument, NotFound
from ..transforms._pipeline import (
    Pipelines,
    moves_masks,
    pipelines_message,
    spread_pipelines,
)
from .folders import advice as folder_advice
from .formats import FUNCTIONS, is_read_here
from .progress import make_progress

_POLL_SECONDS = 0.01
_MAX_POLL_SECONDS = 0.5
_RESIDENCIES = ("device", "pinned", "split", "auto", "mapped")

Classes = Union[None, str, Samples, Sequence[str]]
Progress = Union[bool, Callable[[Dict[str, Any]], None]]


class LoadOptions(TypedDict, total=False):
    """Client.load_dataset's options that have no position, for type checkers.
    The signatures of load_dataset, datasetd.load and, where pushes have the
    option, push_dataset name it, too."""

    residency: str
    device_bytes: Optional[int]
    part: Optional[nodes.Given]
    part_epoch: Optional[int]
    part_seed: int
    private: bool
    pin: bool
    classes: Classes
    ignore_other_classes: bool


def dataset_spec(
    name: str,
    format: str,
    path: Union[str, "os.PathLike[str]", None],
    split: Optional[str],
    pretransforms: Pipelines,
    device: Any,
    options: Optional[Mapping[str, str]],
    classes: Optional[Sequence[str]] = None,
    ignore_other_classes: bool = False,
    **others: Any,
) -> Dict[str, Any]:
    """Returns the DatasetSpec message for Client.load_dataset's arguments;
    `classes` are names, and `others` those of common_message."""
    given: Dict[str, Any] = {}
    if classes is not None:
        given["class_names"] = list(classes)
    if ignore_other_classes:
        given["ignore_other_classes"] = True
    return {
        **given,
        "name": name,
        "format": format,
        "path": "" if path is None else absolute(path),
        "split": split or "",
        "device": device_name(device),
        "pretransforms": _as_message(
            pipelines_message(
                "pretransforms", pretransforms, _mask_names(options or {})
            )
        ),
        "options": {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in (options or {}).items()
        },
        **common_message(others),
    }


def common_message(given: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns the fields of a DatasetSpec or PushHeader message for arguments
    that loads and pushes share, by their names; all but the first only if they
    are not the defaults."""
    bad_samples = given.get("bad_samples", "fail")
    max_bad_samples = given.get("max_bad_samples")
    residency = given.get("residency", "device")
    device_bytes = given.get("device_bytes")
    if bad_samples not in ("fail", "skip", "replace"):
        raise InvalidArgument(
            f"bad_samples is {bad_samples!r}: expected 'fail', 'skip' or "
            "'replace'"
        )
    message: Dict[str, Any] = {
        "bad_samples": f"BAD_SAMPLE_POLICY_{bad_samples.upper()}"
    }
    if max_bad_samples is not None:
        message["max_bad_samples"] = max_bad_samples
    if residency not in _RESIDENCIES:
        raise InvalidArgument(
            f"residency is {residency!r}: expected one of "
            + ", ".join(map(repr, _RESIDENCIES))
        )
    if residency != "device":
        message["residency"] = f"RESIDENCY_{residency.upper()}"
    if device_bytes is not None:
        count = operator.index(device_bytes)
        if not 0 < count < 1 << 63:
            raise InvalidArgument(
                f"device_bytes is {count}: expected 1 to 2**63 - 1"
            )
        message["device_bytes"] = count
    for flag in ("private", "pin"):
        if given.get(flag):
            message[flag] = True
    return message


def _as_message(pretransforms: Dict[str, Any]) -> Dict[str, Any]:
    return {field: {"transforms": ops} for field, ops in pretransforms.items()}


def names_of_classes(session: Session, classes: Any) -> Optional[List[str]]:
    """Returns the class names that load_dataset's argument `classes` gives."""
    if classes is None:
        return None
    if isinstance(classes, str):
        message = await_loaded(session, classes)
        session.release(classes)
        origin, names = f"dataset {classes!r}", list(message["class_names"])
    elif hasattr(classes, "class_names"):
        origin, names = f"dataset {classes.name!r}", list(classes.class_names)
    else:
        origin, names = "the list", list(classes)
    for name in names:
        if not isinstance(name, str):
            raise InvalidArgument(
                f"classes: {name!r} is not a str; expected class names in the "
                "order of their labels, a Dataset, or the name of one"
            )
    if not names:
        raise InvalidArgument(f"classes: {origin} has no class names")
    return names


def options_with_classes(
    options: Optional[Mapping[str, Any]],
    names: Optional[List[str]],
    ignore_other_classes: bool,
) -> Dict[str, Any]:
    """Returns options for a function of datasetd.sources, which refuses
    `classes` if it derives none."""
    given: Dict[str, Any] = dict(options or {})
    if names is not None:
        given["classes"] = names
    if ignore_other_classes:
        given["ignore_other_classes"] = True
    return given


def report(message: Dict[str, Any], progress: Progress) -> None:
    """Reports what a load found, left out and decided: in the log, on stderr
    beside a bar, and in warnings where training may be affected."""
    summary = summary_of(message)
    logging.getLogger("datasetd").info(
        "dataset %r: %s", message["name"], summary
    )
    if progress is True:
        print(f"dataset {message['name']!r}: {summary}", file=sys.stderr)
    for note in message.get("notes", ()):
        if note["is_warning"]:
            warn(f"dataset {message['name']!r}: {note['text']}")


def pushed_pretransforms(
    value: Pipelines, pushed: List[Dict[str, Any]]
) -> Dict[str, Any]:
    """Returns a PushHeader's pretransforms for its fields."""
    fields = fields_of({"fields": pushed})
    masks = [field.name for field in fields if field.is_mask]
    image = image_field(fields)
    spread = spread_pipelines("pretransforms", value, masks, image, masks)
    messages = spread.messages
    warn_of_kinds("pretransforms", "of the push", fields, spread, image)
    if moves_masks(value) and image in messages:
        check_one_image("pretransforms", fields, image)
    return _as_message(messages)


def _changes(value: Pipelines, masks: List[str]) -> bool:
    """True if the pipeline would be for some of the masks, too."""
    try:
        messages = pipelines_message(
            "pretransforms", value, masks, "image", masks
        )
    except InvalidArgument:  # of an op or a fill that masks cannot have
        return bool(masks)
    return any(mask in messages for mask in masks)


def warn_of_masks(
    value: Pipelines, name: str, loaded: List[Dict[str, Any]]
) -> None:
    """Warns of masks that a pipeline of torchvision's v2 would have moved with
    the image: whether there are any is known when the dataset is loaded."""
    fields = fields_of({"fields": loaded})
    masks = [field.name for field in fields if field.is_mask]
    if not moves_masks(value):
        spread = spread_pipelines("pretransforms", value, masks)
        warn_of_kinds("pretransforms", name, fields, spread, "image")
    elif _changes(value, masks):
        warn(
            f"pretransforms: dataset {name!r} has the masks {masks}, but the "
            "pipeline of torchvision's v2 was applied only to the image: pass "
            f"T.from_torchvision(pipeline, masks={masks}) of "
            "datasetd.transforms, or {'image': pipeline} if this is intended"
        )


def _mask_names(options: Mapping[str, Any]) -> Set[str]:
    """Returns the fields that a reader will make masks, from its options."""
    names = {"mask"}
    for item in str(options.get("masks", "")).split(","):
        name = item.strip()
        if name.startswith("-"):
            names.discard(name[1:])
        else:
            names.add(name)
    return names


def load(
    session: Session, spec: Dict[str, Any], progress: Progress
) -> Dict[str, Any]:
    """Loads and returns the Dataset message; the caller holds the dataset."""
    try:
        message = _wait(session, "load_dataset", spec, progress)
    except (NotFound, InvalidArgument) as error:
        if spec["format"] not in session.call("GetStatus")["formats"]:
            here = sorted(filter(is_read_here, FUNCTIONS))
            advice = f"This process reads: {', '.join(here)}"
        else:
            advice = folder_advice(spec["format"], spec["path"])
        if not advice:
            raise
        raise type(error)(f"{error}. {advice}") from None
    session.hold(message["name"])
    return message


def await_loaded(session: Session, name: str) -> Dict[str, Any]:
    """Returns the Dataset message of a dataset, once it is no longer loading;
    the caller holds the dataset."""

    def get() -> Dict[str, Any]:
        response = session.call("GetDataset", name=name)
        found: Dict[str, Any] = response["dataset"]
        return found

    message = get()
    session.hold(name)
    try:
        pause = _POLL_SECONDS
        while message["state"] == "DATASET_STATE_LOADING":
            time.sleep(pause)
            pause = min(2 * pause, _MAX_POLL_SECONDS)
            message = get()
        if message["state"] != "DATASET_STATE_READY":
            why = message["error"] or "it is being unloaded"
            raise FailedPrecondition(f"dataset {name!r} is not there: {why}")
    except BaseException:
        with contextlib.suppress(Error):
            session.release(name)
        raise
    return message


def estimate(
    session: Session, spec: Dict[str, Any], progress: Progress
) -> Dict[str, Any]:
    """Returns the LoadEstimate message of a dry run."""
    return _wait(session, "estimate_load", spec, progress)


def _wait(
    session: Session, function: str, spec: Dict[str, Any], progress: Progress
) -> Dict[str, Any]:
    raised: List[BaseException] = []
    report: Any = (
        make_progress(spec["name"]) if progress is True else progress or None
    )

    def on_progress(text: bytes) -> None:
        if callable(report):
            report(library.parse_answer(text))

    callback = library.ProgressFunction(
        library.catching(on_progress, raised)
    )
    try:
        text = session.call_text(function, encode(spec), callback, None)
    finally:
        if progress is True:
            report.close()
        if raised:
            raise raised[0]
    return library.parse_answer(text)
