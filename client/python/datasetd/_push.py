"""Samples of Python objects, as the bytes that a push sends."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import tempfile
from array import array as IntArray
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple
from typing import Optional, Sequence, Tuple, Union

from . import _library
from .errors import InvalidArgument

Fields = Union[None, str, Sequence[str], Mapping[str, str]]

_BLOCK_BYTES = 1 << 20
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
    # What is kept as an image: see server/core/dataset_registry.cc.
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
        self._sizes: Dict[str, IntArray] = {}

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

    def _ragged_sizes(self, spec: _Spec) -> Optional[IntArray]:
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


def _iterate(samples: Any) -> Iterator[Any]:
    # A map-style dataset may have an __iter__ that never ends, or none.
    if hasattr(samples, "__getitem__") and hasattr(samples, "__len__"):
        if not isinstance(samples, Mapping):
            return (samples[i] for i in range(len(samples)))
    return iter(samples)


def class_names_of(samples: Any) -> List[str]:
    """Those that torchvision's datasets have."""
    classes = getattr(samples, "classes", None)
    if isinstance(classes, (list, tuple)) and all(
        isinstance(name, str) for name in classes
    ):
        return list(classes)
    return []


class _Sender:
    """One datasetd_push."""

    def __init__(self, connection: Any, header: Dict[str, Any]) -> None:
        self._library = _library.load()
        self._connection = connection  # outlives the push
        self._raised: List[BaseException] = []
        # Kept: the library calls it while the push lives.
        self._wait = _library.WaitFunction(
            _library.catching(lambda _: None, self._raised)
        )
        self._handle = ctypes.c_void_p()
        self._block = bytearray()
        self._call(
            "push_begin",
            connection.handle,
            json.dumps(header).encode(),
            self._wait,
            None,
            ctypes.byref(self._handle),
        )

    def _call(self, name: str, *arguments: Any) -> None:
        error = _library.CError()
        failed = getattr(self._library, name)(*arguments, ctypes.byref(error))
        if self._raised:
            raise self._raised[0]
        if failed:
            raise error.to_exception()

    def write(self, data: bytes) -> None:
        self._block += data
        if len(self._block) >= _BLOCK_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._block:
            return
        array = (ctypes.c_char * len(self._block)).from_buffer(self._block)
        self._call("push_write", self._handle, array, len(self._block))
        del array
        self._block = bytearray()

    def finish(self) -> Dict[str, Any]:
        self._flush()
        text = ctypes.c_void_p()
        self._call("push_finish", self._handle, ctypes.byref(text))
        return json.loads(self._library.take_text(text))

    def close(self) -> None:
        if self._handle:
            self._library.push_close(self._handle)
            self._handle = ctypes.c_void_p()


def push(
    connection: Any,
    header: Dict[str, Any],
    samples: Iterable[Any],
    fields: Fields,
    report: Any,
    ragged: bool = False,
) -> Dict[str, Any]:
    """Sends the samples; returns the Dataset message."""
    encoder = SampleEncoder(fields, ragged)
    with contextlib.ExitStack() as stack:
        encoded = (encoder.encode(sample) for sample in _iterate(samples))
        try:
            total = -1 if ragged else len(samples)  # type: ignore[arg-type]
        except TypeError:
            total = -1
        if total < 0:
            # Kept on disk until number and sizes are known: the daemon reserves
            # memory before it takes the first.
            spool = stack.enter_context(tempfile.TemporaryFile())
            for data in encoded:
                spool.write(data)
            total = encoder.num_samples
            spool.seek(0)
            encoded = iter(lambda: spool.read(_BLOCK_BYTES), b"")
        first = next(encoded, None)
        if first is None:
            raise InvalidArgument(
                f"dataset {header['name']!r}: there is no sample to push"
            )
        header = dict(
            header, num_samples=total, fields=encoder.fields_message()
        )
        sender = _Sender(connection, header)
        stack.callback(sender.close)
        sender.write(encoder.sizes_bytes())
        sent = 0
        for data in itertools.chain([first], encoded):
            sender.write(data)
            sent += len(data)
            if report is not None:
                report(_progress(encoder, total, sent))
        if encoder.num_samples != total:
            raise InvalidArgument(
                f"dataset {header['name']!r}: len() is {total}, but there were "
                f"{encoder.num_samples} samples"
            )
        return sender.finish()


def _progress(encoder: SampleEncoder, total: int, sent: int) -> Dict[str, Any]:
    return {
        "progress": {
            "num_samples_loaded": min(encoder.num_samples, total),
            "num_samples": total,
            "loaded_bytes": sent,
        }
    }
