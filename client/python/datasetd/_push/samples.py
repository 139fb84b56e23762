"""Encodes samples of Python objects as the bytes that a push sends."""

from __future__ import annotations

import math
from array import array as IntArray
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    List,
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

if TYPE_CHECKING:
    from .field_names import FieldNames

Fields = Union[None, str, Sequence[str], Mapping[str, str]]
Report = Optional[Callable[[Dict[str, Any]], Any]]

MAX_CHANNELS = 4
# For other dtypes: a dtype that keeps their values.
_CASTS = {
    "uint64": "cast it to int64, if no value is above 2**63 - 1",
    "longdouble": "cast it to float64",
    "float128": "cast it to float64",
    "complex64": "view it as float32, with an axis of 2 behind the others",
    "complex128": "view it as float64, with an axis of 2 behind the others",
}
_IMAGE_DTYPES = ("uint8", "float16", "bfloat16", "float32")
LENGTHS_TEXT = (
    "all samples have one shape: pad them to one length and push the lengths "
    "as a field of their own; images may differ in size with ragged=True"
)
KINDS = ("auto", "image", "image_chw", "mask", "array", "label")
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


def check_dtype(dtype: Any, where: str) -> None:
    """Raises InvalidArgument unless the daemon supports this NumPy dtype."""
    if dtype.name in DTYPES:
        return
    if dtype.name == "bfloat16":  # of ml_dtypes
        way = "give it as a torch tensor, or cast it to float32"
    elif dtype.kind in "OSUVa":
        way = (
            "it is no number; leave it out with fields=, or make numbers of "
            "it, as float(value)"
        )
    elif dtype.kind in "mM":
        way = "cast it to int64"
    else:
        way = _CASTS.get(dtype.name, "cast it")
    raise InvalidArgument(
        f"{where} has dtype {dtype}: {way}; datasetd holds "
        f"{', '.join(DTYPES)}, bfloat16 and bool"
    )


def to_array(value: Any, where: str) -> Any:
    """Returns NumPy's array of a value."""
    import numpy

    if isinstance(value, numpy.ma.MaskedArray) and numpy.any(value.mask):
        raise InvalidArgument(
            f"{where} has masked values: fill them, as array.filled(0), or "
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
            raise InvalidArgument(f"{where}: {number} is no 64-bit integer")
        if array.dtype.kind == "f" and float(number) != number:
            raise InvalidArgument(
                f"{where}: {number} stands among floats, and {array.dtype} "
                "does not hold it: make it a field of its own"
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
            f"does not hold: convert it, as {way}"
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
        "classes, 'image' takes its colours"
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
                f"{where}: {value} is no 64-bit integer"
            ) from None
    elif isinstance(value, (str, bytes, bytearray)) or value is None:
        if encoded.is_image_file(value):
            way = "decode it first, as datasetd.sources.decode_image(value)"
        else:
            way = (
                "give a number for it, such as the index of its class, or "
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
    if is_image:
        if dtype not in _IMAGE_DTYPES:
            raise InvalidArgument(
                f"{where} is {dtype}, and {'masks' if is_mask else 'images'} "
                f"are {', '.join(_IMAGE_DTYPES)}: cast it to uint8, or to "
                "float32, which is exact up to 2**24; as 'array' it is kept as "
                "it is, and there are no transforms for it"
            )
        if len(shape) == 2 and not is_chw:
            shape += (1,)
        channels = shape[0 if is_chw else -1] if len(shape) == 3 else 0
        if not 1 <= channels <= MAX_CHANNELS:
            raise InvalidArgument(
                f"{where} has shape {tuple(array.shape)}, expected an image "
                f"as {'(C, H, W)' if is_chw else '(H, W) or (H, W, C)'} with C "
                f"of 1 to {MAX_CHANNELS}; in fields=, 'image_chw' is for "
                "(C, H, W), 'image' for (H, W, C), and 'array' keeps all as "
                "they are"
            )
        if is_chw:
            shape = (shape[1], shape[2], shape[0])
    return Spec(
        name, kind, dtype, tuple(int(n) for n in shape), is_image, is_mask,
        is_chw,
    )


def _is_encoded(kind: str, value: Any) -> bool:
    if kind in ("image", "mask"):
        return encoded.is_bytes(value)
    return kind == "auto" and encoded.is_image_file(value)


def numpy_dtype(spec: Spec) -> str:
    """Returns the NumPy dtype of the field's values."""
    return "int16" if spec.dtype == "bfloat16" else spec.dtype


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


def progress_message(count: int, total: int, sent: int) -> Dict[str, Any]:
    return {
        "progress": {
            "num_samples_loaded": count,
            "num_samples": total,
            "loaded_bytes": sent,
        }
    }


class SampleEncoder:
    """Encodes samples; the first one determines the fields."""

    def __init__(self, names: FieldNames, ragged: bool = False) -> None:
        self._names = names
        self._labels = names.labels
        self._specs: List[Spec] = []
        self.num_samples = 0
        # With `ragged`: height and width of each sample, by image field.
        self._is_ragged = ragged
        self._sizes: "Dict[str, IntArray[int]]" = {}

    def fields_message(self) -> List[Dict[str, Any]]:
        messages = []
        for spec in self._specs:
            message = field_message(spec)
            sizes = self._ragged_sizes(spec)
            if sizes is not None:
                heights, widths = sizes[::2], sizes[1::2]
                message.update(
                    shape=[-1, -1, spec.shape[2]],
                    largest={"height": max(heights), "width": max(widths)},
                    num_pixels=sum(h * w for h, w in zip(heights, widths)),
                )
            messages.append(message)
        return messages

    def sizes_bytes(self) -> bytes:
        """Returns the sizes, which precede the samples."""
        tables = (self._ragged_sizes(spec) for spec in self._specs)
        return b"".join(t.tobytes() for t in tables if t is not None)

    def read_parts(self, file: Any) -> List[bytes]:
        """Reads a sample that was written to a file. REQUIRES: one size."""
        parts = []
        for spec in self._specs:
            head = b""
            if spec.is_encoded:
                head = file.read(4)
                size = int.from_bytes(head, "little")
            else:
                size = self._part_size(spec)
            parts.append(head + file.read(size))
        return parts

    def rows_at_once(self, num_bytes: int) -> int:
        """Returns the number of samples in so many bytes."""
        if any(spec.is_encoded for spec in self._specs):
            return encoded.ROWS_AT_ONCE
        sample_bytes = sum(map(self._part_size, self._specs))
        return max(1, num_bytes // max(1, sample_bytes))

    @staticmethod
    def _part_size(spec: Spec) -> int:
        import numpy

        return numpy.dtype(numpy_dtype(spec)).itemsize * math.prod(spec.shape)

    def arrays(self, samples: Sequence[Sequence[bytes]]) -> List[Any]:
        """Returns an array per field of samples, which must have the size of
        the first; None if encoded images differ in it, or are damaged."""
        import numpy

        return [
            encoded.pixels(
                [part[4:] for part in parts],
                spec.shape[2],
                self._names.images.others,
                spec.is_mask,
            )
            if spec.is_encoded
            else numpy.frombuffer(b"".join(parts), numpy_dtype(spec)).reshape(
                (len(samples),) + spec.shape
            )
            for spec, parts in zip(self._specs, zip(*samples))
        ]

    def _ragged_sizes(self, spec: Spec) -> "Optional[IntArray[int]]":
        """Returns None if all samples have the size of the first."""
        sizes = self._sizes.get(spec.name)
        first = IntArray("i", spec.shape[:2])
        if sizes is None or sizes == first * self.num_samples:
            return None
        return sizes

    @property
    def place_of_text(self) -> int:
        """The field whose text has indices of first use, which settle() is to
        sort at the end; -1 if there is none."""
        if not self._labels.field or self._labels.is_listed:
            return -1
        return [spec.name for spec in self._specs].index(self._labels.field)

    def encode(self, sample: Any) -> Optional[List[bytes]]:
        """Encodes the fields of the next sample; None for one of a class that
        is left out."""
        values = self._values(sample)
        if not self._specs:
            self._names.find_kinds(values)
        for name, value in values.items():
            is_text = isinstance(value, str) and self._names.is_label(name)
            if not is_text and not self._labels.translates(name):
                continue
            index = self._index(name, value, is_text)
            if index is None:
                return None
            values[name] = index
        if not self._specs:
            self._specs = [
                make_spec(
                    name, self._names.kind(name), value, self._names.images
                )
                for name, value in values.items()
            ]
        parts = []
        for spec in self._specs:
            where = f"sample {self.num_samples}, field {spec.name!r}"
            if spec.is_encoded:
                data = encoded.to_bytes(values[spec.name], where)
                if spec.is_mask:
                    encoded.check_mask(data, where)
                data = encoded.for_daemon(data, spec.shape[2])
                parts.append(encoded.to_part(data))
                continue
            value, dtype, _ = to_value(
                values[spec.name], where, spec.kind, spec.name
            )
            if spec.is_chw and value.ndim == 3:
                value = value.transpose(1, 2, 0)
            if spec.is_image and value.ndim == 2:
                value = value[:, :, None]
            shape = value.shape
            if self._is_ragged and spec.is_image and value.ndim == 3:
                sizes = self._sizes.setdefault(spec.name, IntArray("i"))
                sizes.extend(shape[:2])
                shape = spec.shape[:2] + shape[2:]
            if dtype != spec.dtype or shape != spec.shape:
                raise self._unequal(spec, where, dtype, value.shape)
            parts.append(value.tobytes())
        self.num_samples += 1
        return parts

    def _index(self, name: str, value: Any, is_text: bool) -> Optional[int]:
        where = f"sample {self.num_samples}, field {name!r}"
        if not is_text:
            return self._labels.of_own(int(value), where)
        self._labels.begin(name, self._names.kind(name) == "label")
        return self._labels.of_text(value, where)

    def encode_again(self, sample: Any) -> Optional[List[bytes]]:
        """Encodes the last sample again, after it was read again."""
        self.num_samples -= 1
        kept = {name: sizes[:] for name, sizes in self._sizes.items()}
        for sizes in self._sizes.values():
            del sizes[-2:]
        try:
            return self.encode(sample)
        finally:
            self._sizes.update(kept)

    def _unequal(
        self, spec: Spec, where: str, dtype: str, shape: Tuple[int, ...]
    ) -> InvalidArgument:
        text = (
            f"{where} is {dtype} {tuple(shape)}, and that of the first sample "
            f"{spec.dtype} {spec.shape}"
        )
        one = ": all samples have one dtype and shape"
        is_image = spec.is_image and len(shape) == 3
        if is_image and shape[2] != spec.shape[2]:
            text += f"{one}; make them one mode before, as "
            text += "image.convert('RGB') does"
        elif is_image and dtype == spec.dtype and not self._is_ragged:
            text += f"{one}; resize them before, or push with ragged=True"
        elif dtype == spec.dtype:
            text += f": {LENGTHS_TEXT}"
        else:
            text += f"{one}; cast them before, as float(value) or int(value)"
        if self.num_samples == 1 and not spec.is_image:
            text += (
                ". Columns are pushed as a tuple (X, y) or as a dict "
                "{'x': X, 'y': y}, not as a list"
            )
        return InvalidArgument(text)

    def _values(self, sample: Any) -> Dict[str, Any]:
        where = f"sample {self.num_samples}"
        if isinstance(sample, Mapping):
            return self._names.choose(sample, where)
        values = sample if isinstance(sample, (tuple, list)) else (sample,)
        return self._names.give(
            values, where, getattr(sample, "_fields", ())
        )
