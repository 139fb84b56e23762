"""Names and kinds of the fields of a push."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ..errors import InvalidArgument
from ..sources._base import Note, listed
from ..sources._names import field_names, is_label, is_mask
from . import encoded
from .labels import Labels
from .samples import KINDS, MAX_CHANNELS, Fields, make_spec, to_value

# Of what has a palette or may be a mask's file.
_PALETTE = -1


class Kinds(Dict[str, str]):
    """`fields` of a push: the kinds of some of them, while all are sent."""


class FieldNames:
    """Names and kinds of the values of a sample, how its encoded images are
    decoded, and which classes its labels are.

    Attributes: images, labels, notes, is_ragged.
    """

    def __init__(
        self,
        fields: Fields,
        images: encoded.ImageOptions = encoded.DEFAULTS,
        labels: Optional[Labels] = None,
        notes: Optional[List[Note]] = None,
        is_ragged: bool = False,
    ) -> None:
        self.images = images
        self.is_ragged = is_ragged
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
            if kind not in KINDS:
                raise InvalidArgument(
                    f"fields[{name!r}] is {kind!r}, expected one of "
                    f"{', '.join(KINDS)}"
                )

    def has_own_size(self, name: str) -> bool:
        """True if samples may have a size of their own."""
        return self.is_ragged or self.kind(name) == "sequence"

    @property
    def has_sequences(self) -> bool:
        return "sequence" in self._kinds.values()

    def make_sequence(self, name: str) -> bool:
        """Makes a field whose kind is not given one of sequences. Returns
        whether it is one."""
        if self.kind(name) == "auto":
            self._kinds[name] = "sequence"
        return self.kind(name) == "sequence"

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
                        "'image_chw'}} makes it an image (C, H, W)",
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
                        f"fields={{{name!r}: 'image'}} makes it an image"
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
                    "renamed fields, whose names have letters, digits and _: "
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


def _shape_of(
    name: str, kind: str, value: Any, images: encoded.ImageOptions
) -> Tuple[int, bool]:
    """Returns the channels that a value has as an image, _PALETTE of what has
    a palette or may be a mask's file, 0 if it is none, and whether it is
    uint8."""
    if isinstance(value, str) or kind in ("array", "sequence", "label"):
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
        and min(shape[1:]) > MAX_CHANNELS
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
        array, dtype, _ = to_value(value, where)
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
