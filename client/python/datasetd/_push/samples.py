"""Values of samples: their arrays, dtypes and fields."""

from __future__ import annotations

from typing import (
    Any,
    Callable,
    Dict,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from ..errors import InvalidArgument
from ..sources._base import DTYPES
from . import encoded

Fields = Union[None, str, Sequence[str], Mapping[str, str]]
Report = Optional[Callable[[Dict[str, Any]], Any]]

MAX_CHANNELS = 4
# For other dtypes: a dtype that keeps their values.
_CASTS = {
    "uint64": "cast it to int64, if no value is above 2**63 - 1",
    "longdouble": "cast it to float64",
    "float128": "cast it to float64",
    "complex64": "view it as float32, with a last axis of 2",
    "complex128": "view it as float64, with a last axis of 2",
}
_IMAGE_DTYPES = ("uint8", "float16", "bfloat16", "float32")
LENGTHS_TEXT = (
    "all samples have one shape, unless they are pushed with ragged=True: then "
    "images differ in height and width, and sequences [T] or [T, C] in T; or "
    "pad them to one length"
)
KINDS = ("auto", "image", "image_chw", "mask", "array", "sequence", "label")
_EXACT_FLOAT = 1 << 53  # float64 has all integers up to it


class Spec(NamedTuple):
    """A field of the daemon, and how values are converted to it."""

    name: str
    kind: str
    dtype: str
    shape: Tuple[int, ...]
    is_image: bool
    is_mask: bool
    is_chw: bool
    # Sent as files; the shape is (-1, -1, C).
    is_encoded: bool = False
    # Each sample has a length of its own; the shape is that of the first.
    is_sequence: bool = False


def check_dtype(dtype: Any, where: str) -> None:
    """Raises InvalidArgument unless the daemon supports this NumPy dtype."""
    if dtype.name in DTYPES:
        return
    if dtype.name == "bfloat16":  # of ml_dtypes
        way = "convert it to a torch tensor, or cast it to float32"
    elif dtype.kind in "OSUVa":
        way = (
            "it is not a number; leave it out with fields=, or convert it to "
            "numbers, e.g. float(value)"
        )
    elif dtype.kind in "mM":
        way = "cast it to int64"
    else:
        way = _CASTS.get(dtype.name, "cast it")
    raise InvalidArgument(
        f"{where} has dtype {dtype}: {way}; datasetd supports "
        f"{', '.join(DTYPES)}, bfloat16 and bool"
    )


def to_array(value: Any, where: str) -> Any:
    """Returns NumPy's array of a value."""
    import numpy

    if isinstance(value, numpy.ma.MaskedArray) and numpy.any(value.mask):
        raise InvalidArgument(
            f"{where} has masked values: fill them, e.g. array.filled(0), or "
            "leave them out"
        )
    if isinstance(value, (list, tuple)):
        return exact_array(value, where)
    return numpy.asarray(value)


def exact_array(value: Any, where: str) -> Any:
    """Returns the array of nested lists: Python's integers as int64, its
    floats as float64. Raises InvalidArgument for an integer that the array's
    dtype does not hold."""
    import numpy

    try:
        array = numpy.asarray(value)
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(f"{where}: {error}; {LENGTHS_TEXT}") from None
    is_large = array.dtype.kind == "f" and (abs(array) >= _EXACT_FLOAT).any()
    if array.dtype.kind != "O" and not is_large:
        return array
    numbers = numpy.asarray(value, object).ravel().tolist()
    integers = [n for n in numbers if isinstance(n, int)]
    for number in integers:
        is_held = -(2**63) <= number < 2**63
        is_needed = array.dtype.kind == "O" or len(integers) == len(numbers)
        if is_needed and not is_held:
            raise InvalidArgument(
                f"{where}: {number} is not a 64-bit integer"
            )
        if array.dtype.kind == "f" and float(number) != number:
            raise InvalidArgument(
                f"{where}: {number} is among floats, and {array.dtype} cannot "
                "represent it: make it a separate field"
            )
    return array


def tensor_to_numpy(tensor: Any, where: str) -> Tuple[Any, str]:
    """Returns NumPy's array of a tensor of torch, of bfloat16 as int16, and
    the name of the dtype."""
    tensor = tensor.detach().cpu()
    if str(tensor.dtype) == "torch.bfloat16":
        import torch

        return tensor.view(torch.int16).numpy(), "bfloat16"
    try:
        array = tensor.numpy()
    except (TypeError, RuntimeError) as error:
        layout = getattr(tensor, "layout", "of no layout")
        if getattr(tensor, "is_quantized", False):
            way = "tensor.dequantize()"
        elif str(layout) != "torch.strided":
            way = "tensor.to_dense()"
        else:
            way = "tensor.float()"
        raise InvalidArgument(
            f"{where} is a tensor of {tensor.dtype} ({layout}), which NumPy "
            f"does not support: convert it with {way}"
        ) from error
    return array, array.dtype.name


def plain(array: Any, where: str) -> Any:
    """Returns `array` with a little-endian dtype that the daemon supports."""
    import numpy

    if array.dtype == numpy.bool_:
        return array.astype(numpy.uint8)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    check_dtype(array.dtype, where)
    return array


def _pil_to_array(image: Any, where: str, kind: str, name: str) -> Any:
    import numpy

    mode = image.mode
    is_image = kind.startswith("image") or (kind, name) == ("auto", "image")
    if mode.startswith("I;16"):
        return numpy.asarray(image).astype(numpy.int32)
    if mode == "1" and is_image:
        return numpy.asarray(image.convert("L"))  # 0 and 255
    if mode in ("1", "L", "LA", "RGB", "RGBA", "I", "F"):
        return numpy.asarray(image)
    if mode not in ("P", "PA"):
        # Transforms know colours as RGB. An array has no transforms.
        return numpy.asarray(image if kind == "array" else image.convert("RGB"))
    if is_image:
        return numpy.asarray(image.convert("RGB"))
    if kind in ("mask", "array") or name == "mask":
        return numpy.asarray(image.getchannel(0))
    raise InvalidArgument(
        f"{where} is a palette image: fields={{{name!r}: 'mask'}} keeps its "
        "classes, 'image' converts it to its colours"
    )


def to_value(
    value: Any, where: str, kind: str = "auto", name: str = "image"
) -> Tuple[Any, str, str]:
    """Returns (array, dtype, origin: "torch", "pil" or "numpy")."""
    import numpy

    module = type(value).__module__.split(".")[0]
    if module == "torch" or hasattr(value, "detach"):
        array, dtype = tensor_to_numpy(value, where)
        if dtype == "bfloat16":
            return array, dtype, "torch"
        origin = "torch"
    elif module == "PIL":
        array, origin = _pil_to_array(value, where, kind, name), "pil"
    elif isinstance(value, bool):
        array, origin = numpy.asarray(value, numpy.uint8), "numpy"
    elif isinstance(value, int):
        try:
            array, origin = numpy.asarray(value, numpy.int64), "numpy"
        except OverflowError:
            raise InvalidArgument(
                f"{where}: {value} is not a 64-bit integer"
            ) from None
    elif isinstance(value, (str, bytes, bytearray)) or value is None:
        if encoded.is_image_file(value):
            way = "decode it first: datasetd.sources.decode_image(value)"
        else:
            way = (
                "replace it by a number, such as the index of its class, or "
                "leave it out of a dict with fields=; text becomes class "
                "indices in a field called label, or by fields={name: 'label'}"
            )
        raise InvalidArgument(
            f"{where} is {type(value).__name__}, expected a tensor, an array, "
            f"a PIL image or a number; {way}"
        )
    else:
        array, origin = to_array(value, where), "numpy"
    array = plain(array, where)
    return array, array.dtype.name, origin


def make_spec(
    name: str,
    kind: str,
    value: Any,
    images: encoded.ImageOptions = encoded.DEFAULTS,
) -> Spec:
    """Returns the field for its first value."""
    where = f"field {name!r} of the first sample"
    if _is_encoded(kind, value):
        is_mask = kind == "mask" or (kind, name) == ("auto", "mask")
        data = encoded.to_bytes(value, where)
        channels = encoded.channels_of(data, images, is_mask)
        if not channels:
            raise (
                encoded.mask_advice(where)
                if is_mask
                else encoded.own_advice(where)
            )
        return Spec(
            name, kind, "uint8", (-1, -1, channels), True, is_mask, False, True
        )
    array, dtype, origin = to_value(value, where, kind, name)
    shape = array.shape
    is_chw = kind == "image_chw"
    is_mask = kind == "mask"
    is_image = is_chw or is_mask or kind == "image"
    if is_mask:
        is_chw = origin == "torch" and len(shape) == 3
    elif kind == "auto" and dtype in ("uint8", "float32"):
        if origin == "pil":
            is_image = True
        elif len(shape) == 3 and origin == "torch":
            is_image = is_chw = shape[0] <= MAX_CHANNELS
        elif len(shape) == 3:
            is_image = shape[2] <= MAX_CHANNELS
        elif len(shape) == 2:
            is_image = dtype == "uint8" or name in ("image", "mask")
        is_mask = is_image and name == "mask"
    if kind == "sequence" and len(shape) not in (1, 2):
        raise InvalidArgument(
            f"{where} has shape {tuple(shape)}, expected a sequence, [T] or "
            "[T, C]"
        )
    if is_image:
        if dtype not in _IMAGE_DTYPES:
            raise InvalidArgument(
                f"{where} is {dtype}, but {'masks' if is_mask else 'images'} "
                f"are {', '.join(_IMAGE_DTYPES)}: cast it to uint8, or to "
                "float32, which is exact up to 2**24; as 'array' it is not "
                "changed, and has no transforms"
            )
        if len(shape) == 2 and not is_chw:
            shape += (1,)
        channels = shape[0 if is_chw else -1] if len(shape) == 3 else 0
        if not 1 <= channels <= MAX_CHANNELS:
            raise InvalidArgument(
                f"{where} has shape {tuple(array.shape)}, expected an image "
                f"as {'(C, H, W)' if is_chw else '(H, W) or (H, W, C)'} with C "
                f"of 1 to {MAX_CHANNELS}; in fields=, 'image_chw' is for "
                "(C, H, W), 'image' for (H, W, C), and 'array' for any shape"
            )
        if is_chw:
            shape = (shape[1], shape[2], shape[0])
    return Spec(
        name, kind, dtype, tuple(int(n) for n in shape), is_image, is_mask,
        is_chw, is_sequence=kind == "sequence",
    )


def _is_encoded(kind: str, value: Any) -> bool:
    if kind in ("image", "mask"):
        return encoded.is_bytes(value)
    return kind == "auto" and encoded.is_image_file(value)


def numpy_dtype(spec: Spec) -> str:
    """Returns the NumPy dtype of the field's values."""
    return "int16" if spec.dtype == "bfloat16" else spec.dtype


def numpy_array(spec: Spec, shape: Tuple[int, ...]) -> Any:
    """Returns an array of zeros as the field's values have them."""
    import numpy

    return numpy.zeros(shape, numpy_dtype(spec))


def field_message(spec: Spec) -> Dict[str, Any]:
    """Returns the Field of a PushHeader."""
    message = {
        "name": spec.name,
        "dtype": "DTYPE_" + spec.dtype.upper(),
        "shape": list(spec.shape),
        "is_image": spec.is_image,
        "is_mask": spec.is_mask,
    }
    if spec.is_encoded:
        message["is_encoded"] = True
    return message


def sizes_message(
    spec: Spec, sizes: Sequence[Tuple[int, int]]
) -> Dict[str, Any]:
    """Returns what the Field of a PushHeader has of samples that differ in
    size: of images (height, width), of sequences (steps, 1)."""
    heights = [height for height, _ in sizes]
    widths = [width for _, width in sizes]
    if not any(heights):
        raise InvalidArgument(
            f"field {spec.name!r}: its sequences have no steps at all: leave "
            "it out with fields="
        )
    axes = 2 if spec.is_image else 1
    return {
        "shape": [-1] * axes + list(spec.shape[axes:]),
        "largest": {"height": max(heights), "width": max(widths)},
        "num_pixels": sum(h * w for h, w in sizes),
    }


def progress_message(count: int, total: int, sent: int) -> Dict[str, Any]:
    return {
        "progress": {
            "num_samples_loaded": count,
            "num_samples": total,
            "loaded_bytes": sent,
        }
    }
