"""Samples: original and augmented samples of a dataset, as the page shows
them.

They are drawn through a feed of this process, which is closed at once, takes a
small slab, and never evicts a dataset.
"""

from __future__ import annotations

import importlib.util
import json
import math
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .. import errors
from .._batches.held import Held
from .._client.client import Client
from .._connection.session import Session
from .._descriptions import DrawnOp, Field, drawn_ops_of
from .._feed.feed import Feed, Waited
from ._views import Scale, op_of, scale_of, view_of

MAX_SAMPLES = 64
# The largest slab of a feed; where images are large it has fewer rows.
_SLAB_BYTES = 32 << 20
_MAX_ROW_BYTES = 256 << 20
_PREFETCH = 1
_NUM_SLOTS = _PREFETCH + 2
_TIMEOUT_SECONDS = 60.0

_ITEM_BYTES = {
    "uint8": 1,
    "int8": 1,
    "uint16": 2,
    "int16": 2,
    "uint32": 4,
    "int32": 4,
    "int64": 8,
    "float16": 2,
    "bfloat16": 4,  # comes as float32
    "float32": 4,
    "float64": 8,
}

# Parameters of ops that are sides of an image.
_SIDE_KEYS = (
    "height",
    "width",
    "shorter_edge",
    "shorterEdge",
    "max_size",
    "maxSize",
)

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
# By field that is a view of another one: source and view of FieldOptions.
Sources = Dict[str, Message]


class Request(NamedTuple):
    dataset: str
    first: int
    num_samples: int
    seed: int
    epoch: int
    feed_id: Optional[int]  # whose transforms apply
    pasted: str  # else these


def samples(client: Client, request: Request) -> Message:
    """Returns the grid's samples. Raises the errors of OpenFeed."""
    if importlib.util.find_spec("numpy") is None:
        raise errors.FailedPrecondition(
            "pictures of samples are made with NumPy, which this Python does "
            "not have: python3 -m pip install numpy"
        )
    with client._described(request.dataset) as dataset:
        fields = dataset.fields
        if not dataset.num_samples:  # it is being read
            raise errors.FailedPrecondition(
                f"dataset '{request.dataset}' has no samples yet"
            )
        first = min(request.first, dataset.num_samples - 1)
        end = min(first + request.num_samples, dataset.num_samples)
        indices = list(range(first, end))
        transforms, sources = _transforms(client, request, fields)
        session = client._session
        notes: List[str] = []
        framework = _framework(dataset.device)
        views: List[Message] = [
            {"index": index, "original": {}, "augmented": {}, "ops": []}
            for index in indices
        ]
        _originals(
            session, request, fields, indices, framework, views, notes
        )
        if any(transforms.values()):
            _augmented(
                session,
                request,
                _with_views(fields, sources),
                transforms,
                sources,
                indices,
                framework,
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
            "num_samples": dataset.num_samples,
            "has_transforms": any(transforms.values()),
            "transforms": _counted_names(transforms),
        }


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


def _framework(device: str) -> str:
    if device == "cpu":
        return "numpy"
    try:
        import torch

        has_gpu = torch.cuda.is_available()
    except ImportError:
        has_gpu = False
    if not has_gpu:
        raise errors.FailedPrecondition(
            f"the dataset is on {device}: its samples are copied to the host "
            "by a torch with CUDA, which this Python does not have"
        )
    return "torch"


# -- Transforms ---------------------------------------------------------------


def _transforms(
    client: Client, request: Request, fields: List[Field]
) -> Tuple[Transforms, Sources]:
    if request.feed_id is not None:
        of_feed = client._session.call(
            "GetFeedTransforms", feed_id=str(request.feed_id)
        )["fields"]
        return (
            {name: list(one["transforms"]) for name, one in of_feed.items()},
            {
                name: {"source": one["source"], "view": one["view"]}
                for name, one in of_feed.items()
                if one["source"]
            },
        )
    if not request.pasted.strip():
        return {}, {}
    images = [field.name for field in fields if field.is_image]
    return parse_transforms(request.pasted, images), {}


def _with_views(fields: List[Field], sources: Sources) -> List[Field]:
    """Returns the fields, with the views in the places of their sources."""
    result = []
    for field in fields:
        views = [
            field._replace(name=name)
            for name, options in sources.items()
            if options["source"] == field.name
        ]
        result += views or [field]
    return result


def parse_transforms(text: str, images: List[str]) -> Transforms:
    """Reads a list of Transform messages, for the first of `images`, or a dict
    of such lists by field, or a Pipeline message."""
    try:
        value = _expanded(json.loads(text))
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


def _expanded(message: Any) -> Any:
    """Returns the message with the full names of enum values."""
    if isinstance(message, list):
        return [_expanded(item) for item in message]
    if not isinstance(message, dict):
        return message
    expanded = {}
    for key, value in message.items():
        prefix = _ENUM_PREFIXES.get(key)
        if prefix and isinstance(value, str) and value.lower() == value:
            value = prefix + value.upper().replace("-", "_")
        expanded[key] = _expanded(value)
    return expanded


def _counted_names(transforms: Transforms) -> Dict[str, List[str]]:
    return {
        field: [op_of(op)[0] for op in ops]
        for field, ops in transforms.items()
        if ops
    }


def _as_float32(ops: List[Message]) -> List[Message]:
    """Half floats would add a rounding, and NumPy has no bfloat16."""
    changed = []
    for op in ops:
        name, parameters = op_of(op)
        if name in ("to_dtype", "toDtype") and parameters.get("dtype") in (
            "DTYPE_FLOAT16",
            "DTYPE_BFLOAT16",
            5,
            6,
        ):
            op = {**op, name: {**parameters, "dtype": "DTYPE_FLOAT32"}}
        changed.append(op)
    return changed


# -- Drawing ------------------------------------------------------------------


def _is_ragged(field: Field) -> bool:
    return len(field.shape) == 3 and field.shape[0] < 0


def _largest_shape(field: Field) -> List[int]:
    shape = list(field.shape)
    if _is_ragged(field) and field.largest is not None:
        shape[:2] = field.largest
    return shape


def _row_bytes(field: Field) -> int:
    return math.prod(_largest_shape(field)) * _ITEM_BYTES[field.dtype]


def _output_bytes(field: Field, ops: List[Message]) -> int:
    """Returns an estimate of the size of a transformed sample, as float32,
    from the sizes that the ops name."""
    shape = _largest_shape(field)
    if not field.is_image or len(shape) not in (2, 3):
        return _row_bytes(field)
    side = max([*shape[:2], *_numbers_below(ops, _SIDE_KEYS)])
    if _numbers_below(ops, ("shorter_edge", "shorterEdge")):
        side *= math.ceil(max(shape[:2]) / max(min(shape[:2]), 1))
    padding = sum(_numbers_below(ops, ("left", "top", "right", "bottom")))
    return 4 * (side + padding) ** 2 * (shape[2] if len(shape) > 2 else 1)


def _numbers_below(value: Any, keys: Sequence[str]) -> List[int]:
    """Returns the integers at any of `keys`, however deep."""
    if isinstance(value, list):
        return [n for item in value for n in _numbers_below(item, keys)]
    if not isinstance(value, dict):
        return []
    found = []
    for key, item in value.items():
        if key in keys and isinstance(item, (int, float)):
            found.append(math.ceil(item))
        found += _numbers_below(item, keys)
    return found


def _draw(
    session: Session,
    options: Message,
    indices: List[int],
    rows: int,
    framework: str,
) -> List[Dict[str, Any]]:
    """Returns the samples as arrays by field, in order."""
    drawn: List[Dict[str, Any]] = []
    for begin in range(0, len(indices), rows):
        wanted = indices[begin : begin + rows]
        feed = Feed(
            session,
            {
                **options,
                "batch_size": len(wanted),
                "subset": {"indices": wanted},
                "prefetch": _PREFETCH,
                "name": "web",
                "keeps_datasets": True,
            },
            framework,
            images=(),
            held=Held("error", "the page"),
            waited=Waited(),
        )
        try:
            batch = feed.take(_TIMEOUT_SECONDS)
            arrays = {
                field.name: _on_host(array)
                for field, array in zip(feed.fields, batch)
            }
            del batch
        finally:
            feed.close()
        drawn.extend(
            {name: array[i] for name, array in arrays.items()}
            for i in range(len(wanted))
        )
    return drawn


def _on_host(array: Any) -> Any:
    if hasattr(array, "cpu"):
        array = array.cpu().numpy()
    return array.copy()


def _rows_at_once(row_bytes: int) -> int:
    if row_bytes > _MAX_ROW_BYTES:
        raise errors.ResourceExhausted(
            f"a sample has {row_bytes} bytes; the page shows those of at most "
            f"{_MAX_ROW_BYTES}"
        )
    return max(1, min(MAX_SAMPLES, _SLAB_BYTES // (_NUM_SLOTS * row_bytes + 1)))


def _originals(
    session: Session,
    request: Request,
    fields: List[Field],
    indices: List[int],
    framework: str,
    views: List[Message],
    notes: List[str],
) -> None:
    plain = [field for field in fields if not _is_ragged(field)]
    options: Message = {"dataset": request.dataset}
    if plain:
        drawn = _draw(
            session,
            {
                **options,
                "field_names": [field.name for field in plain],
                "fields": {
                    f.name: {"layout": "LAYOUT_NHWC"}
                    for f in plain
                    if f.is_image
                },
            },
            indices,
            _rows_at_once(sum(_row_bytes(field) for field in plain)),
            framework,
        )
        for view, arrays in zip(views, drawn):
            for field in plain:
                view["original"][field.name] = view_of(
                    field, arrays[field.name], Scale(None), notes
                )
    for field in fields:
        if not _is_ragged(field) or field.largest is None:
            continue
        # A window of the largest size; explain tells how much of it is padding.
        height, width = field.largest
        window = [{"crop": {"height": height, "width": width}}]
        explained = _explain(
            session, request, {field.name: window}, {}, indices
        )
        drawn = _draw(
            session,
            {
                **options,
                "field_names": [field.name],
                "fields": {
                    field.name: {
                        "transforms": window,
                        "layout": "LAYOUT_NHWC",
                    }
                },
            },
            indices,
            _rows_at_once(_row_bytes(field)),
            framework,
        )
        for view, arrays, ops in zip(views, drawn, explained):
            right = bottom = 0
            for op in ops:
                if op.name == "Pad":
                    right, bottom = map(int, op.parameters["padding"][2:])
            view["original"][field.name] = view_of(
                field,
                arrays[field.name][:, : height - bottom, : width - right],
                Scale(None),
                notes,
            )


def _augmented(
    session: Session,
    request: Request,
    fields: List[Field],
    transforms: Transforms,
    sources: Sources,
    indices: List[int],
    framework: str,
    views: List[Message],
    notes: List[str],
) -> None:
    for name in transforms:
        if name not in [field.name for field in fields]:
            raise errors.InvalidArgument(
                f"the dataset has no field {name!r}; it has "
                f"{[field.name for field in fields]}"
            )
    shown = [
        field
        for field in fields
        if transforms.get(field.name) or not _is_ragged(field)
    ]
    options: Message = {
        "dataset": request.dataset,
        "seed": str(request.seed),
        "start": {"epoch": str(request.epoch), "batch": "0"},
        "field_names": [field.name for field in shown],
        "fields": {
            field.name: {
                "transforms": _as_float32(transforms.get(field.name, [])),
                **({"layout": "LAYOUT_NHWC"} if field.is_image else {}),
                **sources.get(field.name, {}),
            }
            for field in shown
            if field.is_image or transforms.get(field.name)
        },
    }
    if any(
        op_of(op)[0] in ("mix_up", "mixUp", "cut_mix", "cutMix")
        for ops in transforms.values()
        for op in ops
    ):
        notes.append(
            "MixUp and CutMix mix the samples of a batch: here those of the "
            "grid, in the job those of its batch."
        )
    ops = _explain(session, request, transforms, sources, indices)
    for view, drawn_ops in zip(views, ops):
        view["ops"] = [op._asdict() for op in drawn_ops]
    row_bytes = sum(
        _output_bytes(field, transforms.get(field.name, [])) for field in shown
    )
    drawn = _draw(
        session, options, indices, _rows_at_once(row_bytes), framework
    )
    for view, arrays in zip(views, drawn):
        for field in shown:
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
    sources: Sources,
    indices: List[int],
) -> List[List[DrawnOp]]:
    response = session.call(
        "ExplainTransforms",
        dataset=request.dataset,
        fields={
            field: {"transforms": ops, **sources.get(field, {})}
            for field, ops in transforms.items()
        },
        seed=str(request.seed),
        epoch=str(request.epoch),
        indices=[str(index) for index in indices],
    )
    return [drawn_ops_of(sample["ops"]) for sample in response["samples"]]
