"""Samples of Python objects, as the bytes that a push sends."""

from __future__ import annotations

from array import array as IntArray
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence
from typing import Tuple, Union

from .errors import InvalidArgument

Fields = Union[None, str, Sequence[str], Mapping[str, str]]

_MAX_CHANNELS = 4
_DTYPES = (
    "uint8", "int16", "int32", "int64", "float16", "float32", "float64",
)
_KINDS = ("auto", "image", "image_chw", "array")


class _Spec(NamedTuple):
    """A field as the daemon keeps it, and how a value becomes one."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    is_image: bool
    is_chw: bool


def _to_array(value: Any, where: str) -> Tuple[Any, str, str]:
    """(array, dtype, origin: "torch", "pil" or "numpy")."""
    import numpy

    module = type(value).__module__.split(".")[0]
    if module == "torch" or hasattr(value, "detach"):
        tensor = value.detach().cpu()
        if str(tensor.dtype) == "torch.bfloat16":
            import torch

            return tensor.view(torch.int16).numpy(), "bfloat16", "torch"
        array, origin = tensor.numpy(), "torch"
    elif module == "PIL":
        if value.mode not in ("1", "L", "LA", "RGB", "RGBA", "RGBX", "CMYK"):
            value = value.convert("RGB")
        array, origin = numpy.asarray(value), "pil"
    elif isinstance(value, bool):
        array, origin = numpy.asarray(value, numpy.uint8), "numpy"
    elif isinstance(value, int):
        try:
            array, origin = numpy.asarray(value, numpy.int64), "numpy"
        except OverflowError:
            raise InvalidArgument(
                f"{where}: {value} is no 64-bit integer"
            ) from None
    elif isinstance(value, float):
        array, origin = numpy.asarray(value, numpy.float32), "numpy"
    elif isinstance(value, (str, bytes)) or value is None:
        raise InvalidArgument(
            f"{where} is {type(value).__name__}, expected a tensor, an array, "
            "a PIL image or a number; leave it out with fields="
        )
    else:
        array, origin = numpy.asarray(value), "numpy"
    if array.dtype == numpy.bool_:
        array = array.astype(numpy.uint8)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    if array.dtype.name not in _DTYPES:
        raise InvalidArgument(
            f"{where} has dtype {array.dtype}, expected one of "
            f"{', '.join(_DTYPES)}, bfloat16 or bool"
        )
    return array, array.dtype.name, origin


def _make_spec(name: str, kind: str, value: Any) -> _Spec:
    where = f"field {name!r} of the first sample"
    array, dtype, origin = _to_array(value, where)
    shape = array.shape
    is_chw = kind == "image_chw"
    is_image = is_chw or kind == "image"
    if kind == "auto" and dtype in ("uint8", "float32"):
        if origin == "pil":
            is_image = True
        elif len(shape) == 3 and origin == "torch":
            is_image = is_chw = shape[0] <= _MAX_CHANNELS
        elif len(shape) == 3:
            is_image = shape[2] <= _MAX_CHANNELS
        elif len(shape) == 2:
            is_image = dtype == "uint8" or name in ("image", "mask")
    if is_image:
        if len(shape) == 2 and not is_chw:
            shape += (1,)
        channels = shape[0 if is_chw else -1] if len(shape) == 3 else 0
        if not 1 <= channels <= _MAX_CHANNELS:
            raise InvalidArgument(
                f"{where} has shape {tuple(array.shape)}, expected an image "
                f"as {'(C, H, W)' if is_chw else '(H, W) or (H, W, C)'} with C "
                f"of 1 to {_MAX_CHANNELS}; name its kind in fields="
            )
        if is_chw:
            shape = (shape[1], shape[2], shape[0])
    return _Spec(name, dtype, tuple(int(n) for n in shape), is_image, is_chw)


class SampleEncoder:
    """Makes bytes of samples; the first one says what the fields are."""

    def __init__(self, fields: Fields, ragged: bool = False) -> None:
        if isinstance(fields, str):
            fields = [fields]
        if isinstance(fields, Mapping):
            self._names: Optional[List[str]] = list(fields)
            self._kinds = dict(fields)
        else:
            self._names = None if fields is None else list(fields)
            self._kinds = {}
        if len(set(self._names or ())) != len(self._names or ()):
            raise InvalidArgument(f"fields: {fields} names a field twice")
        for name, kind in self._kinds.items():
            if kind not in _KINDS:
                raise InvalidArgument(
                    f"fields[{name!r}] is {kind!r}, expected one of "
                    f"{', '.join(_KINDS)}"
                )
        self._specs: List[_Spec] = []
        self._count = 0
        # With `ragged`, of each image field: height and width of each sample.
        self._is_ragged = ragged
        self._sizes: "Dict[str, IntArray[int]]" = {}

    @property
    def num_samples(self) -> int:
        return self._count

    def fields_message(self) -> List[Dict[str, Any]]:
        messages = []
        for spec in self._specs:
            message = {
                "name": spec.name,
                "dtype": "DTYPE_" + spec.dtype.upper(),
                "shape": list(spec.shape),
                "is_image": spec.is_image,
                "is_mask": spec.is_image and spec.name == "mask",
            }
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
        """What goes before the samples."""
        tables = (self._ragged_sizes(spec) for spec in self._specs)
        return b"".join(t.tobytes() for t in tables if t is not None)

    def _ragged_sizes(self, spec: _Spec) -> "Optional[IntArray[int]]":
        """None where all samples have the size of the first."""
        sizes = self._sizes.get(spec.name)
        first = IntArray("i", spec.shape[:2])
        if sizes is None or sizes == first * self._count:
            return None
        return sizes

    def encode(self, sample: Any) -> bytes:
        """The next sample's fields, one after another."""
        values = self._values(sample)
        if not self._specs:
            self._specs = [
                _make_spec(name, self._kinds.get(name, "auto"), value)
                for name, value in values.items()
            ]
        parts = []
        for spec in self._specs:
            where = f"sample {self._count}, field {spec.name!r}"
            value, dtype, _ = _to_array(values[spec.name], where)
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
                raise InvalidArgument(
                    f"{where} is {dtype} {tuple(value.shape)}, and that of the "
                    f"first sample {spec.dtype} {spec.shape}: all samples have "
                    "one dtype and shape; resize or cast them before"
                    + (
                        ", or push with ragged=True"
                        if spec.is_image and not self._is_ragged
                        else ""
                    )
                )
            parts.append(value.tobytes())
        self._count += 1
        return b"".join(parts)

    def _values(self, sample: Any) -> Dict[str, Any]:
        where = f"sample {self._count}"
        if isinstance(sample, Mapping):
            if self._names is None:
                self._names = list(sample)
            missing = [name for name in self._names if name not in sample]
            if missing:
                raise InvalidArgument(
                    f"{where} has no {missing[0]!r}; it has "
                    f"{', '.join(map(str, sample))}"
                )
            return {name: sample[name] for name in self._names}
        values = sample if isinstance(sample, (tuple, list)) else (sample,)
        if self._names is None:
            self._names = list(
                getattr(sample, "_fields", None) or self._guess_names(values)
            )
        if len(values) != len(self._names):
            raise InvalidArgument(
                f"{where} has {len(values)} values, expected "
                f"{len(self._names)}: {', '.join(self._names)}"
            )
        return dict(zip(self._names, values))

    @staticmethod
    def _guess_names(values: Sequence[Any]) -> List[str]:
        names: List[str] = []
        for i, value in enumerate(values):
            where = f"value {i} of the first sample"
            array, dtype, _ = _to_array(value, where)
            if _make_spec("_", "auto", value).is_image:
                name = "image"
            elif array.ndim == 0 and dtype.startswith(("int", "uint")):
                name = "label"
            else:
                name = f"field_{i}" if len(values) > 1 else "data"
            names.append(f"field_{i}" if name in names else name)
        return names
