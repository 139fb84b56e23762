"""Encodes samples of Python objects as the bytes that a push sends."""

from __future__ import annotations

import math
from array import array as IntArray
from typing import (
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
from ..sources._base import DTYPES, Note, listed
from ..sources._names import field_names, is_label, is_mask
from . import encoded
from .labels import Labels

Fields = Union[None, str, Sequence[str], Mapping[str, str]]
Report = Optional[Callable[[Dict[str, Any]], Any]]

_MAX_CHANNELS = 4
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
_KINDS = ("auto", "image", "image_chw", "mask", "array", "label")
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


def _to_array(
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
    array, dtype, origin = _to_array(value, where, kind, name)
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
            is_image = is_chw = shape[0] <= _MAX_CHANNELS
        elif len(shape) == 3:
            is_image = shape[2] <= _MAX_CHANNELS
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
        if not 1 <= channels <= _MAX_CHANNELS:
            raise InvalidArgument(
                f"{where} has shape {tuple(array.shape)}, expected an image "
                f"as {'(C, H, W)' if is_chw else '(H, W) or (H, W, C)'} with C "
                f"of 1 to {_MAX_CHANNELS}; in fields=, 'image_chw' is for "
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


class Kinds(Dict[str, str]):
    """`fields` of a push: the kinds of some of them, while all are sent."""


class FieldNames:
    """Names and kinds of the values of a sample, how its encoded images are
    decoded, and which classes its labels are.

    Attributes: images, labels, notes.
    """

    def __init__(
        self,
        fields: Fields,
        images: encoded.ImageOptions = encoded.DEFAULTS,
        labels: Optional[Labels] = None,
        notes: Optional[List[Note]] = None,
    ) -> None:
        self.images = images
        self.notes: List[Note] = [] if notes is None else notes
        # The rows of columns that are sent, as booleans; None: all.
        self.kept: Any = None
        self.labels = labels or Labels(None, (), "", False, self.notes)
        if isinstance(fields, str):
            fields = [fields]
        has_all = fields is None or isinstance(fields, Kinds)
        self._names = None if has_all else list(fields or ())
        # What the data calls each field; None: values without names.
        self._sources: Optional[Dict[str, Any]] = None
        self._kinds = dict(fields) if isinstance(fields, Mapping) else {}
        if len(set(self._names or ())) != len(self._names or ()):
            raise InvalidArgument(f"fields: {fields} names a field twice")
        for name, kind in self._kinds.items():
            if kind not in _KINDS:
                raise InvalidArgument(
                    f"fields[{name!r}] is {kind!r}, expected one of "
                    f"{', '.join(_KINDS)}"
                )

    def kind(self, name: str) -> str:
        return self._kinds.get(name, "auto")

    def is_label(self, name: str) -> bool:
        """True if text of this field becomes classes."""
        kind = self.kind(name)
        return kind == "label" or kind == "auto" and (
            self.labels.is_given
            or is_label(name)
            or is_label(self.source(name))
        )

    def source(self, name: str) -> Any:
        """Returns what the data calls a field."""
        return (self._sources or {}).get(name, name)

    def name_of_column(self, place: int, own: Sequence[str]) -> str:
        """Returns the name of a column of text in a tuple."""
        names = list(self._names or own)
        return names[place] if place < len(names) else "label"

    def label_column(self, values: Sequence[Any], name: str, where: str) -> Any:
        """Returns the indices that a column of text becomes."""
        is_asked = self.kind(name) == "label"
        return self._kept(self.labels.all(values, name, where, is_asked))

    def own_column(self, values: Any, where: str) -> Any:
        """Returns the indices in the list that is given for the data's own."""
        return self._kept(
            [
                self.labels.of_own(int(value), f"{where}, row {row}")
                for row, value in enumerate(values)
            ]
        )

    def _kept(self, indices: List[Optional[int]]) -> Any:
        import numpy

        array = numpy.array([-1 if i is None else i for i in indices], "int64")
        if (array < 0).any():
            self.kept = array >= 0
        return array

    def find_kinds(self, firsts: Mapping[str, Any]) -> None:
        """Makes masks of the images of classes among the first sample's
        values, by their names; notes what may have been meant otherwise."""
        shapes = {
            name: _shape_of(name, self.kind(name), value, self.images)
            for name, value in firsts.items()
        }
        for name, value in firsts.items():
            if self.kind(name) == "auto" and _may_be_planes(value):
                self.notes.append(
                    Note(
                        f"field {name!r} of {tuple(value.shape)} is an array, "
                        f"which has no transforms: fields={{{name!r}: "
                        "'image_chw'}} makes an image of (C, H, W) of it",
                        is_warning=name == "image",
                    )
                )
        for name, (channels, is_bytes) in shapes.items():
            has_colours = any(
                shapes[other][0] > 1
                and self.kind(other) != "mask"
                and not is_mask(other, True, True)
                for other in shapes
                if other != name
            )
            if (
                self.kind(name) == "auto"
                and channels in (1, _PALETTE)
                and name != "mask"
                and is_mask(name, is_bytes, has_colours)
            ):
                self._kinds[name] = "mask"
                self.notes.append(
                    Note(
                        f"field {name!r} is a mask, by its name: "
                        f"fields={{{name!r}: 'image'}} makes an image of it"
                    )
                )

    def choose(self, values: Mapping[Any, Any], where: str) -> Dict[str, Any]:
        """Selects names; takes all of them if there are none yet."""
        if self._sources is None:
            self._sources = self._chosen(values, where)
            self._check_kinds()
        missing = [k for k in self._sources.values() if k not in values]
        if missing:
            raise InvalidArgument(
                f"{where} has no {missing[0]!r}; it has "
                f"{', '.join(map(str, values))}"
            )
        return {name: values[key] for name, key in self._sources.items()}

    def _chosen(
        self, values: Mapping[Any, Any], where: str
    ) -> Dict[str, Any]:
        """Returns what the data calls each field that is sent."""
        fields = field_names(values)
        keys = {key: field for field, key in fields.items()}
        # fields= has either name.
        for name in list(self._kinds):
            if name not in fields and name in keys:
                self._kinds[keys[name]] = self._kinds.pop(name)
        chosen = fields
        if self._names is not None:
            chosen = {}
            for name in self._names:
                key = name if name in values else fields.get(name, name)
                chosen[keys.get(key, name)] = key
            left_out = [key for key in values if key not in chosen.values()]
            if left_out:
                self.notes.append(Note(f"left out: {listed(left_out)}"))
        self._names = list(chosen)
        renamed = [
            f"{key!r} is {field!r}"
            for field, key in chosen.items()
            if field != key
        ]
        if renamed:
            more = f" and {len(renamed) - 8} more" if len(renamed) > 8 else ""
            self.notes.append(
                Note(
                    "names of fields, which have letters, digits and _: "
                    + ", ".join(renamed[:8])
                    + more
                )
            )
        return chosen

    def give(
        self, values: Sequence[Any], where: str, own: Sequence[str] = ()
    ) -> Dict[str, Any]:
        """Returns the values by name: given, `own`, or guessed names."""
        if self._names is None:
            self._names = list(own or _guess_names(values))
            self._check_kinds()
        if len(values) != len(self._names):
            raise InvalidArgument(
                f"{where} has {len(values)} values, expected "
                f"{len(self._names)}: {', '.join(self._names)}"
            )
        return dict(zip(self._names, values))

    def _check_kinds(self) -> None:
        names = list(self._sources or self._names or ())
        for name in self._kinds:
            if name not in names:
                raise InvalidArgument(
                    f"there is no field {name!r}; there are "
                    f"{', '.join(map(str, names))}"
                )


_PALETTE = -1


def _shape_of(
    name: str, kind: str, value: Any, images: encoded.ImageOptions
) -> Tuple[int, bool]:
    """Returns the channels that a value has as an image, _PALETTE of what has
    a palette or may be a mask's file, 0 if it is none, and whether it is
    uint8."""
    if isinstance(value, str) or kind in ("array", "label"):
        return 0, False
    if encoded.is_image_file(value):
        data = encoded.to_bytes(value, name, may_open=True)
        return (_PALETTE if encoded.keeps_classes(data) else 3), True
    if type(value).__module__.split(".")[0] == "PIL":
        if value.mode in ("P", "PA"):
            return _PALETTE, True
        is_bytes = value.mode in ("1", "L")
        return 1 if is_bytes else len(value.getbands()), is_bytes
    try:
        spec = make_spec(name, kind, value, images)
    except InvalidArgument:  # which it says again where it is sent
        return 0, False
    return spec.shape[2] if spec.is_image else 0, spec.dtype == "uint8"


def _may_be_planes(value: Any) -> bool:
    """True for an array that is an image if it is (C, H, W)."""
    shape: Tuple[int, ...] = getattr(value, "shape", ())
    dtype = getattr(getattr(value, "dtype", None), "name", "")
    return (
        dtype in ("uint8", "float32")
        and not hasattr(value, "detach")
        and len(shape) == 3
        and shape[0] in (1, 3, 4)
        and min(shape[1:]) > _MAX_CHANNELS
    )


def _guess_names(values: Sequence[Any]) -> List[str]:
    """Returns `image` for the first image, and `label` for the integer or
    text right after it, or for the only one if there is no image."""
    images: List[int] = []
    integers: List[int] = []
    for i, value in enumerate(values):
        where = f"value {i} of the first sample"
        is_pil = type(value).__module__.split(".")[0] == "PIL"
        if is_pil or encoded.is_image_file(value):
            images.append(i)
            continue
        if isinstance(value, str) and i > 0:
            # The name of a class comes right after its image, or last.
            if images and images[0] == i - 1 or i == len(values) - 1:
                integers.append(i)
            continue
        array, dtype, _ = _to_array(value, where)
        # Two axes of float32 may be anything.
        is_known = array.ndim != 2 or dtype == "uint8"
        if is_known and make_spec("image", "auto", value).is_image:
            images.append(i)
        elif array.ndim == 0 and dtype.startswith(("int", "uint")):
            integers.append(i)
    names = [f"field_{i}" for i in range(len(values))]
    if len(values) == 1:
        names = ["data"]
    if images:
        names[images[0]] = "image"
    if len(integers) == 1:
        names[integers[0]] = "label"
    elif images and images[0] + 1 in integers:
        names[images[0] + 1] = "label"
    return names


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
            where = f"sample {self.num_samples}, field {name!r}"
            if isinstance(value, str) and self._names.is_label(name):
                self._labels.begin(name, self._names.kind(name) == "label")
                index = self._labels.of_text(value, where)
            elif self._labels.translates(name):
                index = self._labels.of_own(int(value), where)
            else:
                continue
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
            value, dtype, _ = _to_array(
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
            f"{spec.dtype} {spec.shape}: all samples have one dtype and shape"
        )
        is_image = spec.is_image and len(shape) == 3
        if is_image and shape[2] != spec.shape[2]:
            text += "; make them one mode before, as image.convert('RGB') does"
        elif is_image and dtype == spec.dtype and not self._is_ragged:
            text += "; resize them before, or push with ragged=True"
        elif dtype == spec.dtype:
            text += f". {LENGTHS_TEXT}"
        else:
            text += "; cast them before, as float(value) or int(value)"
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
