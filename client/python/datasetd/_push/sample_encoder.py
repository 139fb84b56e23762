"""Encodes samples of Python objects as the bytes that a push sends."""

from __future__ import annotations

from array import array as IntArray
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ..errors import InvalidArgument
from . import encoded
from .audio import Recordings, waveform_of
from .field_names import FieldNames
from .samples import (
    LENGTHS_TEXT,
    Spec,
    field_message,
    make_spec,
    numpy_array,
    sizes_message,
    to_value,
)


class SampleEncoder:
    """Encodes samples; the first one determines the fields."""

    def __init__(self, names: FieldNames, ragged: bool = False) -> None:
        self._names = names
        self._labels = names.labels
        self._recordings = Recordings(names)
        self._specs: List[Spec] = []
        self.num_samples = 0
        # Height and width of each sample by image field, with `ragged`; steps
        # and 1 by field of sequences.
        self._is_ragged = ragged
        self._sizes: "Dict[str, IntArray[int]]" = {}

    def fields_message(self) -> List[Dict[str, Any]]:
        messages = []
        for spec in self._specs:
            message = field_message(spec)
            sizes = self._ragged_sizes(spec)
            if sizes is not None:
                pairs = list(zip(sizes[::2], sizes[1::2]))
                message.update(sizes_message(spec, pairs))
            messages.append(message)
        return messages

    def sizes_bytes(self) -> bytes:
        """Returns the sizes, which precede the samples."""
        tables = (self._ragged_sizes(spec) for spec in self._specs)
        return b"".join(t.tobytes() for t in tables if t is not None)

    def _ragged_sizes(self, spec: Spec) -> "Optional[IntArray[int]]":
        """Returns None if all samples have the size of the first, and the field
        was not declared to be one of sequences."""
        sizes = self._sizes.get(spec.name)
        first = IntArray("i", _size_of(spec, spec.shape))
        if sizes is None or (
            not spec.is_sequence and sizes == first * self.num_samples
        ):
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
            has_own_size = self._has_own_size(spec)
            if (
                has_own_size
                and not spec.is_image
                and _is_empty_list(values[spec.name])
            ):
                # An empty list has no dtype, and no inner axis.
                value = numpy_array(spec, (0,) + spec.shape[1:])
                dtype = spec.dtype
            shape = value.shape
            if has_own_size and len(shape) == len(spec.shape):
                sizes = self._sizes.setdefault(spec.name, IntArray("i"))
                sizes.extend(_size_of(spec, shape))
                axes = 2 if spec.is_image else 1
                shape = spec.shape[:axes] + shape[axes:]
            if dtype != spec.dtype or shape != spec.shape:
                raise self._unequal(spec, where, dtype, value.shape)
            parts.append(value.tobytes())
        self.num_samples += 1
        return parts

    def _has_own_size(self, spec: Spec) -> bool:
        return spec.is_sequence or (
            self._is_ragged and (spec.is_image or len(spec.shape) in (1, 2))
        )

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
        elif dtype == spec.dtype and self._has_own_size(spec):
            text += (
                ": sequences are [T] or [T, C], and differ in T alone; a "
                "waveform (C, T), as torchaudio has it, is transposed before: "
                "waveform.T"
            )
        elif dtype == spec.dtype:
            text += f": {LENGTHS_TEXT}"
        else:
            text += f"{one}; cast them before, as float(value) or int(value)"
        has_own_size = spec.is_image or self._has_own_size(spec)
        if self.num_samples == 1 and not has_own_size:
            text += (
                ". Columns are pushed as a tuple (X, y) or as a dict "
                "{'x': X, 'y': y}, not as a list"
            )
        return InvalidArgument(text)

    def _values(self, sample: Any) -> Dict[str, Any]:
        where = f"sample {self.num_samples}"
        values = self._named(sample, where)
        self._recordings.replace(values, where)
        return values

    def _named(self, sample: Any, where: str) -> Dict[str, Any]:
        if isinstance(sample, Mapping):
            return self._names.choose(sample, where)
        values = sample if isinstance(sample, (tuple, list)) else (sample,)
        if self._is_ragged or self._names.has_sequences:
            # A list of numbers is a sequence, not a number by field.
            is_list = isinstance(sample, list)
            if is_list and all(isinstance(v, (int, float)) for v in sample[:1]):
                values = (sample,)
        own = getattr(sample, "_fields", ())
        if self._specs:
            return self._names.give(values, where, own)
        # Names are guessed by what recordings hold.
        heard = [waveform_of(value, where) for value in values]
        steps = [
            value if one is None else one.steps
            for value, one in zip(values, heard)
        ]
        return dict(zip(self._names.give(steps, where, own), values))


def _size_of(spec: Spec, shape: Tuple[int, ...]) -> Tuple[int, int]:
    """Returns height and width of an image, steps and 1 of a sequence."""
    if spec.is_image:
        return shape[0], shape[1]
    return (shape[0] if shape else 1), 1


def _is_empty_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and not value
