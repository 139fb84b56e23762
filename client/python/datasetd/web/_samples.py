"""Samples: original and augmented samples of a dataset, as the page shows
them. Reading them evicts no dataset."""

from __future__ import annotations

import array
import ast
import importlib.util
import json
import re
from typing import (
    Any,
    Callable,
    Dict,
    List,
    NamedTuple,
    NoReturn,
    Optional,
    Sequence,
    Tuple,
)

from .. import errors
from .._client.client import Client
from .._connection.session import Session
from .._datasets.dataset import Dataset
from .._datasets.reading import read
from .._descriptions import DrawnOp, Field, drawn_ops_of
from .._order.windows import Cut, cut_of, parse_windows
from ._views import Scale, op_of, scale_of, view_of

MAX_SAMPLES = 64
_TIMEOUT_SECONDS = 60.0
_HALVES = ("DTYPE_FLOAT16", "DTYPE_BFLOAT16", 5, 6)

# Prefixes of enum values, which a pasted text may leave out.
_ENUM_PREFIXES = {
    "dtype": "DTYPE_",
    "padding_mode": "PADDING_MODE_",
    "paddingMode": "PADDING_MODE_",
    "interpolation": "INTERPOLATION_MODE_",
    "policy": "AUTO_AUGMENT_POLICY_",
}

Message = Dict[str, Any]
# By field: a list of Transform messages.
Transforms = Dict[str, List[Message]]
# FieldOptions, without transforms, of fields that are views of others, later
# steps or crops.
Sources = Dict[str, Message]


class Request(NamedTuple):
    dataset: str
    first: int
    num_samples: int
    seed: int
    epoch: int
    feed_id: Optional[int]  # whose transforms and windows apply
    pasted: str  # else these
    windows: str = ""  # and these, as parse_windows() takes them


def samples(client: Client, request: Request) -> Message:
    """Returns the grid's samples. Raises the errors of ReadSamples."""
    check_numpy()
    with client._described(request.dataset) as dataset:
        fields = dataset.fields
        if not dataset.num_samples:  # it is being read
            raise errors.FailedPrecondition(
                f"dataset '{request.dataset}' has no samples yet"
            )
        notes: List[str] = []
        transforms, cut = _transforms(client, request, dataset, notes)
        first = min(request.first, max(cut.total - 1, 0))
        end = min(first + request.num_samples, cut.total)
        indices = cut.indices(first, end - first)
        if cut.order is not None:
            # The others have no windows.
            fields = [f for f in fields if not f.is_image and not f.is_sequence]
        views: List[Message] = [
            {"index": index, "original": {}, "augmented": {}, "ops": []}
            for index in indices
        ]
        _originals(dataset, request, fields, cut, indices, views, notes)
        has_transforms = any(transforms.values()) or any(
            "crop" in options for options in cut.fields.values()
        )
        if has_transforms:
            _augmented(
                dataset,
                request,
                _with_views(fields, cut.fields),
                transforms,
                cut,
                indices,
                views,
                notes,
            )
        names = list(dataset.class_names)
        labels = label_fields(fields) if names else []
        for view in views:
            for side in ("original", "augmented"):
                for name in labels:
                    _name_class(view[side].get(name), names)
        return {
            "samples": views,
            "notes": notes,
            "num_samples": cut.total,
            "unit": _unit(cut),
            "has_transforms": has_transforms,
            "transforms": _counted_names(transforms),
        }


def _unit(cut: Cut) -> str:
    """Returns what an index is of."""
    if cut.order is None:
        return "Sample"
    return "Random window" if cut.is_random else "Window at step"


def check_numpy() -> None:
    if importlib.util.find_spec("numpy") is None:
        raise errors.FailedPrecondition(
            "pictures of samples are made with NumPy, which this Python does "
            "not have: python3 -m pip install numpy"
        )


def label_fields(fields: Sequence[Field]) -> List[str]:
    """Returns the fields whose numbers are classes: `label`, or the only
    integer scalar."""
    scalars = [f.name for f in fields if f.shape == () and "int" in f.dtype]
    if "label" in scalars:
        return ["label"]
    return scalars if len(scalars) == 1 else []


def _name_class(value: Optional[Message], names: List[str]) -> None:
    if value is None or value["kind"] != "number":
        return
    number = value["value"]
    if isinstance(number, int) and 0 <= number < len(names):
        value["class"] = names[number]


# -- Transforms ---------------------------------------------------------------


def _transforms(
    client: Client, request: Request, dataset: Dataset, notes: List[str]
) -> Tuple[Transforms, Cut]:
    fields = dataset.fields
    if request.feed_id is None:
        cut = cut_of(
            parse_windows(request.windows), fields, dataset.num_samples
        )
        if not request.pasted.strip():
            return {}, cut
        names = [field.name for field in fields if field.is_image]
        if cut.order is not None or not names:
            names = [field.name for field in fields if not field.is_image]
        return parse_transforms(request.pasted, names), cut
    of_feed = client._session.call(
        "GetFeedTransforms", feed_id=str(request.feed_id)
    )
    # Fields of rows have no samples of their own, and lengths of crops are
    # seen in these.
    shown = {
        name: one
        for name, one in of_feed["fields"].items()
        if one["row_field"] == "ROW_FIELD_UNSPECIFIED"
    }
    order = of_feed.get("window_order")
    if order and order.get("documents") is not None:
        notes.append(
            "The loader lays documents end to end, in another order in each "
            "epoch: here are windows of the stream as it is."
        )
        order = {"length": order["length"]}
    elif order and order.get("random") is None:
        notes.append(
            "Windows begin at each multiple of the stride; those of a shuffled "
            "loader later, at another step in each epoch."
        )
    return (
        {name: list(one["transforms"]) for name, one in shown.items()},
        Cut(
            {
                name: _source_of(one)
                for name, one in shown.items()
                if one["source"] or one.get("crop")
            },
            order or None,
            dataset.num_samples,
        ),
    )


def _source_of(options: Message) -> Message:
    source: Message = {}
    if options["source"]:
        source.update(source=options["source"], view=options["view"])
    if options["shift"]:
        source["shift"] = options["shift"]
    if options.get("crop"):
        source["crop"] = options["crop"]
    return source


def _with_views(fields: List[Field], sources: Sources) -> List[Field]:
    """Returns the fields, with the views in the places of their sources, and
    later steps behind these."""
    result = []
    for field in fields:
        views = [
            field._replace(name=name)
            for name, options in sources.items()
            if options.get("source") == field.name
        ]
        later = [view for view in views if "shift" in sources[view.name]]
        result += [one for one in views if one not in later] or [field]
        result += later
    return result


def parse_transforms(text: str, images: List[str]) -> Transforms:
    """Reads a list of Transform messages, for the first of `images`, or a dict
    of such lists by field, or a Pipeline message."""
    try:
        value = _expanded(_parsed(text))
    except (ValueError, RecursionError) as error:
        raise errors.InvalidArgument(
            f"the transforms are not JSON: {error}"
        ) from None
    if isinstance(value, dict) and set(value) == {"transforms"}:
        value = value["transforms"]
    if isinstance(value, list):
        value = {(images or ["image"])[0]: value}
    if not isinstance(value, dict):
        value = {"": None}
    found: Transforms = {}
    for field, ops in value.items():
        if isinstance(ops, dict) and "transforms" in ops:
            ops = ops["transforms"]
        if not isinstance(ops, list) or not all(
            isinstance(op, dict) for op in ops
        ):
            raise errors.InvalidArgument(
                "the transforms are not a list of ops such as "
                '[{"random_horizontal_flip": {}}], nor such lists by field'
            )
        found[field] = ops
    return found


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError:
        # As Python and JavaScript write it, and protobuf reads it.
        keys = re.sub(r"([{,]\s*)([A-Za-z_]\w*)(?=\s*:)", r'\1"\2"', text)
        try:
            return ast.literal_eval(keys)
        except (ValueError, TypeError, SyntaxError, MemoryError):
            pass
        raise


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _expanded(message: Any) -> Any:
    """Returns the message with the full names of enum values."""
    if isinstance(message, list):
        return [_expanded(item) for item in message]
    if not isinstance(message, dict):
        return message
    expanded = {}
    for key, value in message.items():
        prefix = _ENUM_PREFIXES.get(key)
        if (
            prefix
            and isinstance(value, str)
            and not value.upper().startswith(prefix)
        ):
            value = prefix + value.upper().replace("-", "_")
        expanded[key] = _expanded(value)
    return expanded


def _counted_names(transforms: Transforms) -> Dict[str, List[str]]:
    return {
        field: [op_of(op)[0] for op in ops]
        for field, ops in transforms.items()
        if ops
    }


def as_float32(
    ops: Sequence[Message], is_changed: Callable[[Any], bool]
) -> List[Message]:
    """Returns the ops with float32 for each dtype of which `is_changed` is
    true."""
    changed = []
    for op in ops:
        name, parameters = op_of(op)
        if name in ("to_dtype", "toDtype") and is_changed(
            parameters.get("dtype")
        ):
            op = {**op, name: {**parameters, "dtype": "DTYPE_FLOAT32"}}
        changed.append(op)
    return changed


# -- Reading ------------------------------------------------------------------


def _read(
    dataset: Dataset,
    request: Request,
    indices: List[int],
    fields: Sequence[Field],
    options: Message,
    cut: Cut,
    is_at_once: bool,
) -> List[Dict[str, Any]]:
    """Returns the samples as arrays by field, in order. If they are not read at
    once, the daemon needs memory for one of them."""
    rows = len(indices) if is_at_once else 1
    drawn: List[Dict[str, Any]] = []
    for begin in range(0, len(indices), rows):
        wanted = indices[begin : begin + rows]
        batch = read(
            dataset,
            array.array("q", wanted),
            "floats",
            [field.name for field in fields],
            options,
            request.seed,
            request.epoch,
            _TIMEOUT_SECONDS,
            keeps_datasets=True,
            window_order=cut.order,
        )
        drawn.extend(
            {name: values[i] for name, values in batch.items()}
            for i in range(len(wanted))
        )
    return drawn


def _originals(
    dataset: Dataset,
    request: Request,
    fields: List[Field],
    cut: Cut,
    indices: List[int],
    views: List[Message],
    notes: List[str],
) -> None:
    options: Message = {
        f.name: {"layout": "LAYOUT_NHWC"} for f in fields if f.is_image
    }
    shown = fields
    if cut.order is not None:
        # Random windows begin where those with later steps do.
        options.update(cut.fields)
        shown = _with_views(fields, cut.fields)
    drawn = _read(dataset, request, indices, shown, options, cut, False)
    for view, arrays in zip(views, drawn):
        for field in shown:
            view["original"][field.name] = view_of(
                field, arrays[field.name], Scale(None), notes
            )


def _augmented(
    dataset: Dataset,
    request: Request,
    fields: List[Field],
    transforms: Transforms,
    cut: Cut,
    indices: List[int],
    views: List[Message],
    notes: List[str],
) -> None:
    sources = cut.fields
    for name in transforms:
        if name not in [field.name for field in fields]:
            raise errors.InvalidArgument(
                f"the dataset has no field {name!r}; it has "
                f"{[field.name for field in fields]}"
            )
    options: Message = {
        field.name: {
            # Half floats would add a rounding, and NumPy has no bfloat16.
            "transforms": as_float32(
                transforms.get(field.name, []), _HALVES.__contains__
            ),
            **({"layout": "LAYOUT_NHWC"} if field.is_image else {}),
            **sources.get(field.name, {}),
        }
        for field in fields
        if field.is_image or transforms.get(field.name) or field.name in sources
    }
    is_mixed = any(
        op_of(op)[0] in ("mix_up", "mixUp", "cut_mix", "cutMix")
        for ops in transforms.values()
        for op in ops
    )
    if is_mixed:
        notes.append(
            "MixUp and CutMix mix the samples of a batch: here those of the "
            "grid, in the job those of its batch."
        )
    session = dataset._session
    ops = _explain(session, request, transforms, cut, indices)
    for view, drawn_ops in zip(views, ops):
        view["ops"] = [op._asdict() for op in drawn_ops]
    drawn = _read(dataset, request, indices, fields, options, cut, is_mixed)
    for view, arrays in zip(views, drawn):
        for field in fields:
            view["augmented"][field.name] = view_of(
                field,
                arrays[field.name],
                scale_of(field.dtype, transforms.get(field.name, [])),
                notes,
            )


def _explain(
    session: Session,
    request: Request,
    transforms: Transforms,
    cut: Cut,
    indices: List[int],
) -> List[List[DrawnOp]]:
    response = session.call(
        "ExplainTransforms",
        dataset=request.dataset,
        fields={
            field: {
                "transforms": transforms.get(field, []),
                **cut.fields.get(field, {}),
            }
            for field in [*transforms, *cut.fields]
        },
        seed=str(request.seed),
        epoch=str(request.epoch),
        indices=[str(index) for index in indices],
        **cut.message(),
    )
    return [drawn_ops_of(sample["ops"]) for sample in response["samples"]]
