"""Converts torchvision's transforms without importing torchvision."""

from __future__ import annotations

from typing import (
    Any,
    Callable,
    Dict,
    List,
    NamedTuple,
    Sequence,
    Tuple,
    Type,
)

from ..errors import InvalidArgument
from . import (
    _checks,
    colour,
    dtypes,
    erasing,
    groups,
    moves,
    policies,
    resampling,
    sequences,
)
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

_PUBLIC = [
    name
    for module in (
        colour,
        dtypes,
        erasing,
        groups,
        moves,
        policies,
        resampling,
        sequences,
    )
    for name in module.__all__
]

# Images before one of these are Pillow's, and before ToPILImage they are not.
_TO_TENSOR = ("ToTensor", "PILToTensor", "ToImage", "ToImageTensor")
# These change the container of the pixels, but no pixel.
_NOTHING = (
    "Identity",
    "PILToTensor",
    "ToImage",
    "ToImageTensor",
    "ToPureTensor",
)

_BATCH_OPS = ("CutMix", "MixUp")
_WITHOUT_MASKS = (*_BATCH_OPS, *policies.__all__)

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


def from_torchvision(
    transform: Any, masks: Sequence[str] = (), image: str = "image"
) -> List[Transform]:
    """Converts a torchvision pipeline, v1 or v2, to ops of the daemon.

    Accepts a Compose, a list, an nn.Sequential, one transform, or the
    transforms of a model's weights (`weights.transforms()`). ToTensor becomes
    ToDtype("float32", scale=True); ops that only change the container
    (PILToTensor, ToImage, ...) are omitted. Resize and RandomResizedCrop
    antialias as in torchvision: on tensors if `antialias` is True, and always
    on Pillow images. Images before a ToTensor, PILToTensor or ToImage count as
    Pillow images, unless a ToPILImage comes first.

    The ops are for the field `image`. `masks` names the fields that are its
    masks. As in v2, geometric ops move them with the image, a ToDtype with a
    dict sets their dtype, and other ops do not change them.

    Raises InvalidArgument for an unsupported op; the message has its name, its
    position and an alternative.
    """
    if isinstance(masks, str):
        masks = [masks]
    return _convert_all(
        "from_torchvision",
        _flatten(transform),
        _Fields(image, tuple(masks)),
        False,
    )


def is_for_masks(transform: Any) -> bool:
    """True if torchvision applies `transform` to masks, too: v2's do."""
    return any(
        _is_torchvision(op) and ".v2" in _module(op)
        for op in _flatten(transform)
    )


def advice(op: Any) -> str:
    """Returns what works in the place of a callable that is neither
    torchvision's nor this package's; empty if nothing is known."""
    name = getattr(op, "__name__", _name(op)).lower().replace("_", "")
    for own in _PUBLIC:
        if own.lower() in (name, "random" + name):
            return f"use datasetd.transforms.{own}, which the daemon runs"
    values = list(getattr(op, "__dict__", {}).values())
    if callable(op) and any(map(_is_pipeline, values)):
        return (
            "if it makes several images of one, such as two crops, pass a "
            "list for each as views= of the DataLoader: views={'q': [...], "
            "'k': [...]} makes the fields q and k of a batch"
        )
    return ""


def _is_pipeline(value: Any) -> bool:
    """True for transforms, and a list of such."""
    if isinstance(value, (list, tuple)):
        return len(value) > 0 and all(map(_is_pipeline, value))
    return isinstance(value, Transform) or _is_torchvision(value)


class _Fields(NamedTuple):
    image: str
    masks: Tuple[str, ...]

    def spread(self, op: Transform) -> Transform:
        """Gives the op its fields."""
        if isinstance(op, RandomApply):
            for inner in op.transforms:
                self.spread(inner)
            is_for_all = any(inner.fields for inner in op.transforms)
        else:
            is_for_all = op._op.family == "geometry"
        if op.fields is None and self.masks and is_for_all:
            op.fields = (self.image, *self.masks)
        elif op.fields is None and (self.masks or self.image != "image"):
            op.fields = (self.image,)
        return op


class _Place(NamedTuple):
    fields: _Fields
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


def _parts(op: Any) -> List[Any]:
    """The ops that an op such as RandomApply or RandomChoice is made of."""
    return _flatten(list(getattr(op, "transforms", ())))


def _is_pillow(later: List[Any], is_pillow_after: bool) -> bool:
    """True if images before these ops are Pillow's."""
    for op in filter(_is_torchvision, later):
        if _name(op) in (*_TO_TENSOR, "ToPILImage"):
            return _name(op) != "ToPILImage"
    return is_pillow_after


def _convert_all(
    where: str, ops: List[Any], fields: _Fields, is_pillow_after: bool
) -> List[Transform]:
    result: List[Transform] = []
    for index, op in enumerate(ops):
        place = _Place(
            fields=fields,
            is_v2=".v2" in _module(op),
            is_pillow=_is_pillow(ops[index + 1 :], is_pillow_after),
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
    return [place.fields.spread(made) for made in _converted(op, name, place)]


def _converted(op: Any, name: str, place: _Place) -> List[Transform]:
    if not _is_torchvision(op):
        if name == "Identity" and _module(op).startswith("torch.nn."):
            return []
        if isinstance(getattr(op, "func", op), type):
            # The transforms of torchvision's weights are a partial.
            raise InvalidArgument("it makes a transform: call it")
        raise InvalidArgument(
            "it is not a transform of torchvision, and cannot run in the "
            "daemon: "
            + (advice(op) or _IN_THE_LOOP)
        )
    if name in _NOTHING:
        return []
    if place.fields.masks and name in _WITHOUT_MASKS:
        raise InvalidArgument(
            "torchvision does not support it for samples with masks: for the "
            f"image alone pass transforms={{{place.fields.image!r}: ...}}"
        )
    if any(_name(inner) in _BATCH_OPS for inner in _parts(op)):
        raise InvalidArgument(
            "a pipeline can only end with one MixUp or CutMix, for every "
            "batch: use one of them instead, or leave it out here and "
            f"{_IN_THE_LOOP}"
        )
    if name in _SPECIAL:
        return _SPECIAL[name](op, place)
    if name in _OPS:
        return [_of_same_name(_OPS[name], op, place)]
    raise InvalidArgument(
        "the daemon has no such op: "
        + _INSTEAD.get(name, f"leave it out, or {_IN_THE_LOOP}")
    )


def _of_same_name(make: Type[Transform], op: Any, place: _Place) -> Transform:
    arguments = {
        name: getattr(op, name)
        for name in make._arguments
        if name not in ("antialias", "fields", "inplace")
    }
    if "fill" in arguments:
        arguments["fill"] = _fill(arguments["fill"], place)
    if make is moves.RandomCrop and place.is_v2 and op.padding is not None:
        # It is stored there as left, right, top, bottom.
        left, right, top, bottom = op.padding
        arguments["padding"] = (left, top, right, bottom)
    if "antialias" in make._arguments:
        # None, and "warn" of some versions, are False for tensors.
        is_wanted = getattr(op, "antialias", None) is True
        arguments["antialias"] = place.is_pillow or is_wanted
        # Pillow's nearest is at the centres of pixels; that of tensors is not.
        mode = getattr(op.interpolation, "value", op.interpolation)
        if place.is_pillow and mode in ("nearest", 0):
            arguments["interpolation"] = "nearest-exact"
    return make(**arguments)


def _fill(value: Any, place: _Place) -> Any:
    """v2 has dicts by type; one number is for masks, too."""
    if not isinstance(value, dict):
        if value is None or not place.fields.masks:
            return value
        if isinstance(value, (int, float)) or len(value) == 1:
            return FillByKind(value, value)
        if place.is_v2:
            raise InvalidArgument(
                f"fill has {len(value)} numbers, but masks take one: pass "
                "{tv_tensors.Image: ..., tv_tensors.Mask: ...}"
            )
        return value
    # In torchvision 0.15 a number is a defaultdict of it.
    default = getattr(value, "default_factory", None)
    others = value.get("others", default() if default else None)
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


def _random_erasing(op: Any, place: _Place) -> List[Transform]:
    value = "random" if op.value is None else op.value
    return [erasing.RandomErasing(op.p, op.scale, op.ratio, value)]


def _random_apply(op: Any, place: _Place) -> List[Transform]:
    inner = _convert_all(place.where, _parts(op), place.fields, place.is_pillow)
    return [RandomApply(inner, op.p)] if inner else []


def _to_tensor(op: Any, place: _Place) -> List[Transform]:
    return [dtypes.ToDtype("float32", scale=True)]


def _convert_dtype(op: Any, place: _Place) -> List[Transform]:
    return [dtypes.ToDtype(op.dtype, scale=True)]


def _to_dtype(op: Any, place: _Place) -> List[Transform]:
    scale = bool(getattr(op, "scale", False))  # 0.15 has none
    if not isinstance(op.dtype, dict):
        return [dtypes.ToDtype(op.dtype, scale=scale)]
    by_type = {
        key if isinstance(key, str) else key.__name__: dtype
        for key, dtype in op.dtype.items()
    }
    others = by_type.pop("others", None)
    mask = by_type.pop("Mask", others)
    image = others
    for name, dtype in by_type.items():
        if name not in ("Image", "Tensor"):
            raise InvalidArgument(
                f"dtype has the key {name}: expected Image, Tensor, Mask or "
                "'others'"
            )
        image = dtype
    made: List[Transform] = []
    if image is not None:
        made.append(dtypes.ToDtype(image, scale=scale))
    if mask is not None and place.fields.masks:
        made.append(_mask_dtype(mask, place.fields.masks))
    elif mask is not None and mask is not others:
        raise InvalidArgument(
            "dtype has the key Mask, but no field is a mask: name them, such "
            "as from_torchvision(..., masks=['mask']); fields={'mask': 'mask'} "
            "of a push makes the pushed field a mask"
        )
    return made


def _mask_dtype(dtype: Any, masks: Tuple[str, ...]) -> Transform:
    name = _checks.dtype_name(dtype)
    if name not in _checks.IMAGE_DTYPES:
        raise InvalidArgument(
            f"dtype has {name} for masks; expected one of "
            f"{_checks.IMAGE_DTYPES}: leave out Mask, with 'others': None, "
            f"and call batch[{masks[0]!r}].squeeze(1).long() in the training "
            "loop"
        )
    return dtypes.ToDtype(name, fields=masks)


def _to_pil_image(op: Any, place: _Place) -> List[Transform]:
    if place.is_float:
        raise InvalidArgument(
            "images cannot be converted back to uint8: leave out "
            "this op and the conversion before it"
        )
    return []


# torchvision's search for the labels of a batch.
_OWN_LABELS = "_find_labels_default_heuristic"


def _mix(make: Callable[..., Transform]) -> Any:
    def convert(op: Any, place: _Place) -> List[Transform]:
        if op.num_classes is None:
            raise InvalidArgument(
                "num_classes is None; expected the number of classes, because "
                "the resident labels are integers"
            )
        getter = getattr(op, "_labels_getter", None)
        if getattr(getter, "__name__", _OWN_LABELS) != _OWN_LABELS:
            raise InvalidArgument(
                "labels_getter is a function, which cannot run in the daemon: "
                "pass the name of the field as labels= of datasetd.transforms"
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
    "RandomErasing": _random_erasing,
    "ToDtype": _to_dtype,
    "ToPILImage": _to_pil_image,
    "ToTensor": _to_tensor,
}
