"""Converts lists of ops to messages for each field."""

from __future__ import annotations

import itertools
from typing import (
    Any,
    Callable,
    Container,
    Dict,
    Iterator,
    List,
    Mapping,
    Sequence,
    Tuple,
    Union,
)

from ..errors import InvalidArgument
from ._base import Transform
from ._importer import advice, from_torchvision, is_for_masks
from .groups import BatchOp, RandomApply
from .sequences import AddNoise

# A callable is a Compose or another transform of torchvision.
_Op = Union[Transform, Callable[..., Any]]
_Ops = Union[_Op, Sequence[_Op]]
Pipelines = Union[None, _Ops, Mapping[str, _Ops]]
Messages = List[Dict[str, Any]]


def pipelines_message(
    argument: str,
    value: Pipelines,
    masks: Container[str] = (),
    image: str = "image",
    moved: Sequence[str] = (),
) -> Dict[str, Messages]:
    """Returns {field: [Transform messages]}.

    In a list an op applies to its `fields`, else to the field `image`; in a
    dict to the field of its list. Errors name `argument`; `masks` are the
    fields that hold classes, and `moved` those that a pipeline of torchvision's
    v2 moves with the image.
    """
    return spread_pipelines(argument, value, masks, image, moved).messages


def spread_pipelines(
    argument: str,
    value: Pipelines,
    masks: Container[str] = (),
    image: str = "image",
    moved: Sequence[str] = (),
) -> Spread:
    """Does what pipelines_message does, and returns the batch ops, too."""
    spread = Spread(argument, masks)
    if value is None:
        return spread
    if isinstance(value, Mapping):
        for field, ops in value.items():
            name = f"{argument}[{field!r}]"
            spread.messages.setdefault(field, [])
            for op in _checked_list(name, ops):
                if op.fields is not None:
                    raise InvalidArgument(
                        f"{name}: {op!r} names fields; in a dict an op applies "
                        "to the field of its list: use one list with fields="
                    )
                spread.add(op, (field,))
        return spread
    is_converted = _is_torchvision(value)
    for op in _checked_list(argument, value, image, moved):
        fields = op.fields or (image,)
        spread.add(op, fields)
        if moves_pixels(op):
            is_asked = op.fields is not None and not is_converted
            alone = is_asked or fields != (image,)
            (spread.shared if alone else spread.unshared).append(op)
    return spread


def noise_of(value: Any) -> Iterator[Any]:
    """Yields what the AddNoise of pipelines, or of dicts of them, take noise
    from: Datasets or their names."""
    if isinstance(value, AddNoise):
        yield value.noise
    elif isinstance(value, RandomApply):
        yield from noise_of(value.transforms)
    elif isinstance(value, Mapping):
        yield from noise_of(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from noise_of(inner)


def moves_pixels(op: Transform) -> bool:
    """True for geometry, and for policies, which have some."""
    if isinstance(op, RandomApply):
        return any(map(moves_pixels, op.transforms))
    return op._op.family in ("geometry", "policy")


def _check_fills(argument: str, op: Transform, fields: Tuple[str, ...]) -> None:
    """Rejects fills for fields that the op does not apply to."""
    if isinstance(op, RandomApply):
        for inner in op.transforms:
            _check_fills(argument, inner, inner.fields or fields)
    fill = getattr(op, "fill", None)
    if not isinstance(fill, dict):
        return
    for field in fill:
        if field not in fields:
            raise InvalidArgument(
                f"{argument}: {op!r}: fill has the key {field!r}; expected "
                f"some of its fields, {list(fields)}"
            )


def _checked_list(
    name: str, ops: Any, image: str = "image", moved: Sequence[str] = ()
) -> Sequence[Transform]:
    if isinstance(ops, Transform):
        ops = [ops]
    if _is_torchvision(ops):
        return from_torchvision(ops, moved if moves_masks(ops) else (), image)
    if not isinstance(ops, (list, tuple)):
        raise InvalidArgument(
            f"{name}: {ops!r}; expected a list of transforms; "
            + (
                advice(ops)
                or "datasetd.transforms.from_torchvision converts those of "
                "torchvision"
            )
        )
    others = [op for op in ops if not isinstance(op, Transform)]
    for op in sorted(others, key=_is_torchvision):
        raise InvalidArgument(
            f"{name}: {op!r} is not of a datasetd.transforms class; "
            + (
                (not _is_torchvision(op) and advice(op))
                or "those of torchvision run in this process, not in the "
                "daemon: see datasetd.transforms.from_torchvision"
            )
        )
    return ops


def moves_masks(value: Pipelines) -> bool:
    """True for a pipeline of torchvision's v2, which names no fields and moves
    the masks with the image."""
    return _is_torchvision(value) and is_for_masks(value)


def _is_torchvision(ops: Any) -> bool:
    """True for a transform of torchvision, such as a Compose, or a list or
    nn.Sequential of nothing else."""
    if isinstance(ops, (list, tuple)) or (
        type(ops).__name__ == "Sequential" and hasattr(ops, "__len__")
    ):
        return len(ops) > 0 and all(map(_is_torchvision, ops))
    return type(ops).__module__.startswith("torchvision.")


class Spread:
    """Collects ops as messages by field."""

    def __init__(self, argument: str, masks: Container[str]) -> None:
        self.messages: Dict[str, Messages] = {}
        # Ops of a list that move pixels: of the image since they name no
        # fields, and others.
        self.unshared: List[Transform] = []
        self.shared: List[Transform] = []
        self._argument = argument
        self._masks = masks
        # For ops on several fields.
        self._draw_ids = itertools.count(1)
        self._last: Dict[str, BatchOp] = {}

    @property
    def batch_ops(self) -> List[BatchOp]:
        """The ops that also change a field of labels, for each of their
        images."""
        return list(self._last.values())

    def add(self, op: Transform, fields: Tuple[str, ...]) -> None:
        _check_fills(self._argument, op, fields)
        for field in fields:
            if field in self._last:
                raise InvalidArgument(
                    f"{self._argument}: {op!r} follows {self._last[field]!r}, "
                    f"which must be the last transform of {field!r}"
                )
            if isinstance(op, BatchOp):
                self._last[field] = op
        for field, message in self._messages(op, fields).items():
            self.messages.setdefault(field, []).append(message)

    def _messages(
        self, op: Transform, fields: Tuple[str, ...]
    ) -> Dict[str, Dict[str, Any]]:
        draw_id = next(self._draw_ids) if len(fields) > 1 else 0
        if isinstance(op, RandomApply):
            return self._group_messages(op, fields, draw_id)
        for field in fields:
            if field in self._masks and not op._takes_masks:
                raise InvalidArgument(
                    f"{self._argument}: {op!r} on {field!r}: that is a mask, "
                    "whose values are classes; it takes geometric ops, ToDtype "
                    "and Normalize"
                )
        return {
            field: op.to_message(field, field in self._masks, draw_id)
            for field in fields
        }

    def _group_messages(
        self, group: RandomApply, fields: Tuple[str, ...], draw_id: int
    ) -> Dict[str, Dict[str, Any]]:
        inner: Dict[str, Messages] = {field: [] for field in fields}
        for op in group.transforms:
            for field in op.fields or ():
                if field not in fields:
                    raise InvalidArgument(
                        f"{self._argument}: {op!r} in a RandomApply for "
                        f"{list(fields)}: add {field!r} to its fields"
                    )
            for field, message in self._messages(
                op, op.fields or fields
            ).items():
                inner[field].append(message)
        return {
            field: group.group_message(messages, draw_id)
            for field, messages in inner.items()
            if messages
        }
