"""Converts torchvision's transforms without importing torchvision."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Type

from ..errors import InvalidArgument
from . import colour, dtypes, erasing, moves, policies, resampling
from ._base import Transform
from ._checks import FillByKind
from .groups import CutMix, MixUp, RandomApply

# By name. A torchvision op of the same name has the arguments as attributes,
# unless _SPECIAL has it.
_OPS: Dict[str, Type[Transform]] = {
    name: op
    for module in (colour, dtypes, moves, policies, resampling)
    for name, op in vars(module).items()
    if isinstance(op, type)
    and issubclass(op, Transform)
    and op.__module__ == module.__name__
}

# Images before one of these are Pillow's.
_TO_TENSOR = ("ToTensor", "PILToTensor", "ToImage", "ToImageTensor")
# These change the container of the pixels, but no pixel.
_NOTHING = (
    "Identity",
    "PILToTensor",
    "ToImage",
    "ToImageTensor",
    "ToPureTensor",
)

_IN_THE_LOOP = "apply it to the batches in the training loop"
_INSTEAD = {
    "AugMix": "RandAugment is the nearest op here",
    "ElasticTransform": "RandomAffine is the nearest op here",
    "FiveCrop": "it makes five images of one: use CenterCrop or RandomCrop",
    "Lambda": "a function of this process cannot run in the daemon: "
    + _IN_THE_LOOP,
    "LinearTransformation": _IN_THE_LOOP,
    "RandomChoice": "use a RandomApply for each of its transforms",
    "RandomOrder": "put its transforms in one order; ColorJitter draws its own",
    "TenCrop": "it makes ten images of one: use CenterCrop or RandomCrop",
}


def from_torchvision(transform: Any) -> List[Transform]:
    """Converts a torchvision pipeline, v1 or v2, to ops of the daemon.

    Accepts a Compose, a list, an nn.Sequential or one transform. ToTensor
    becomes ToDtype("float32", scale=True); ops that only change the container
    (PILToTensor, ToImage, ...) are left out. Resize and RandomResizedCrop
    antialias as in torchvision: on Pillow images, that is before a ToTensor,
    PILToTensor or ToImage, and on tensors if `antialias` is True. Also accepts
    the transforms of a model's weights (`weights.transforms()`).

    Raises InvalidArgument for an unsupported op; the message has its name, its
    position and an alternative.
    """
    return _convert_all("from_torchvision", _flatten(transform), False)


class _Place(NamedTuple):
    is_v2: bool
    is_pillow: bool
    is_float: bool  # a dtype op came before
    where: str


def _name(op: Any) -> str:
    return type(op).__name__


def _module(op: Any) -> str:
    return type(op).__module__ or ""


def _is_torchvision(op: Any) -> bool:
    return _module(op).startswith("torchvision.")


def _is_container(op: Any) -> bool:
    if isinstance(op, (list, tuple)):
        return True
    if _module(op).startswith("torch.nn."):
        return _name(op) in ("Sequential", "ModuleList")
    return _is_torchvision(op) and _name(op) == "Compose"


def _flatten(op: Any) -> List[Any]:
    if not _is_container(op):
        return [op]
    parts = getattr(op, "transforms", op)
    return [inner for part in parts for inner in _flatten(part)]


def _convert_all(
    where: str, ops: List[Any], is_pillow_after: bool
) -> List[Transform]:
    result: List[Transform] = []
    for index, op in enumerate(ops):
        later = ops[index + 1 :]
        place = _Place(
            is_v2=".v2" in _module(op),
            is_pillow=is_pillow_after
            or any(
                _name(other) in _TO_TENSOR and _is_torchvision(other)
                for other in later
            ),
            is_float=any(isinstance(made, dtypes.ToDtype) for made in result),
            where=f"{where}: transforms[{index}] {_describe(op)}",
        )
        try:
            result.extend(_convert(op, place))
        except InvalidArgument as error:
            text = str(error)
            if not text.startswith(where):
                text = f"{place.where}: {text}"
            raise InvalidArgument(text) from None
    return result


def _describe(op: Any) -> str:
    if _is_torchvision(op) or _module(op).startswith("torch.nn."):
        return _name(op)
    function = getattr(op, "__qualname__", None)
    return f"{function or type(op).__qualname__} of {_module_of(op)}"


def _module_of(op: Any) -> str:
    return getattr(op, "__module__", None) or _module(op)


def _convert(op: Any, place: _Place) -> List[Transform]:
    name = _name(op)
    if isinstance(op, Transform):
        return [op]
    if not _is_torchvision(op):
        if name == "Identity" and _module(op).startswith("torch.nn."):
            return []
        if isinstance(getattr(op, "func", op), type):
            # The transforms of torchvision's weights are a partial.
            raise InvalidArgument("it makes a transform, and is none: call it")
        raise InvalidArgument(
            "it is not torchvision's, and cannot run in the daemon: "
            + _IN_THE_LOOP
        )
    if name in _NOTHING:
        return []
    if name in _SPECIAL:
        return _SPECIAL[name](op, place)
    if name in _OPS:
        return [_of_same_name(_OPS[name], op)]
    raise InvalidArgument(
        "the daemon has no such op: "
        + _INSTEAD.get(name, f"leave it out, or {_IN_THE_LOOP}")
    )


def _of_same_name(make: Type[Transform], op: Any) -> Transform:
    arguments = {
        name: getattr(op, name)
        for name in inspect.signature(make).parameters
        if name not in ("fields", "inplace")
    }
    if "fill" in arguments:
        arguments["fill"] = _fill(arguments["fill"])
    return make(**arguments)


def _fill(value: Any) -> Any:
    """v2 has dicts by type."""
    if not isinstance(value, dict):
        return value
    others = value.get("others", 0)
    result = FillByKind(others, others)
    for key, part in value.items():
        name = key if isinstance(key, str) else key.__name__
        if name in ("Image", "Tensor"):
            result = result._replace(image=part)
        elif name == "Mask":
            result = result._replace(mask=part)
        elif name != "others":
            raise InvalidArgument(
                f"fill has the key {name}; expected Image, Mask or 'others'"
            )
    return result


def _antialias(op: Any, place: _Place) -> bool:
    if place.is_pillow:
        return True
    # None, and "warn" of some versions, are False for tensors.
    return getattr(op, "antialias", None) is True


def _resize(op: Any, place: _Place) -> List[Transform]:
    return [
        resampling.Resize(
            op.size,
            op.interpolation,
            op.max_size,
            _antialias(op, place),
        )
    ]


def _random_resized_crop(op: Any, place: _Place) -> List[Transform]:
    return [
        resampling.RandomResizedCrop(
            op.size, op.scale, op.ratio, op.interpolation, _antialias(op, place)
        )
    ]


def _random_crop(op: Any, place: _Place) -> List[Transform]:
    padding = op.padding
    if place.is_v2 and padding is not None:
        # It is stored there as left, right, top, bottom.
        left, right, top, bottom = padding
        padding = (left, top, right, bottom)
    return [
        moves.RandomCrop(
            op.size, padding, op.pad_if_needed, _fill(op.fill), op.padding_mode
        )
    ]


def _random_erasing(op: Any, place: _Place) -> List[Transform]:
    value = "random" if op.value is None else op.value
    return [erasing.RandomErasing(op.p, op.scale, op.ratio, value)]


def _random_apply(op: Any, place: _Place) -> List[Transform]:
    ops = _flatten(list(op.transforms))
    inner = _convert_all(place.where, ops, place.is_pillow)
    return [RandomApply(inner, op.p)] if inner else []


def _to_tensor(op: Any, place: _Place) -> List[Transform]:
    return [dtypes.ToDtype("float32", scale=True)]


def _convert_dtype(op: Any, place: _Place) -> List[Transform]:
    return [dtypes.ToDtype(op.dtype, scale=True)]


def _to_dtype(op: Any, place: _Place) -> List[Transform]:
    dtype = op.dtype
    if isinstance(dtype, dict):
        dtype = _image_dtype(dtype)
        if dtype is None:
            return []
    return [dtypes.ToDtype(dtype, scale=bool(op.scale))]


def _image_dtype(by_type: Dict[Any, Any]) -> Any:
    image: Optional[Any] = by_type.get("others")
    for key, dtype in by_type.items():
        name = key if isinstance(key, str) else key.__name__
        if name in ("Image", "Tensor"):
            image = dtype
        elif name != "others" and dtype is not None:
            raise InvalidArgument(
                f"dtype has the key {name}: leave it out, and give "
                "ToDtype(..., fields=['mask']) for masks"
            )
    return image


def _to_pil_image(op: Any, place: _Place) -> List[Transform]:
    if place.is_float:
        raise InvalidArgument(
            "images do not go back from floating point to uint8: leave out "
            "this op and the conversion before it"
        )
    return []


def _mix(make: Callable[..., Transform]) -> Any:
    def convert(op: Any, place: _Place) -> List[Transform]:
        if op.num_classes is None:
            raise InvalidArgument(
                "num_classes is None; expected the number of classes, as the "
                "resident labels are integers"
            )
        return [make(alpha=op.alpha, num_classes=op.num_classes)]

    return convert


def _image_classification(op: Any, place: _Place) -> List[Transform]:
    """Converts the transforms of a model's weights; for Pillow images."""
    antialias = getattr(op, "antialias", None) is not False
    return [
        resampling.Resize(op.resize_size, op.interpolation, None, antialias),
        moves.CenterCrop(op.crop_size),
        dtypes.ToDtype("float32", scale=True),
        dtypes.Normalize(op.mean, op.std),
    ]


_SPECIAL: Dict[str, Callable[[Any, _Place], List[Transform]]] = {
    "ConvertDtype": _convert_dtype,
    "ConvertImageDtype": _convert_dtype,
    "CutMix": _mix(CutMix),
    "ImageClassification": _image_classification,
    "MixUp": _mix(MixUp),
    "RandomApply": _random_apply,
    "RandomCrop": _random_crop,
    "RandomErasing": _random_erasing,
    "RandomResizedCrop": _random_resized_crop,
    "Resize": _resize,
    "ToDtype": _to_dtype,
    "ToPILImage": _to_pil_image,
    "ToTensor": _to_tensor,
}
