"""Named tuples that describe datasets, samples and loads."""

from __future__ import annotations

from typing import (
    Any,
    Dict,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from .errors import Internal

Message = Mapping[str, Any]

_MAX_SHOWN = 10  # names of classes in a summary


class Field(NamedTuple):
    """One named array of a dataset; `shape` is that of a sample.

    If samples differ in size, it is (-1, -1, C) of images, and `smallest` and
    `largest` are the smallest and largest (height, width), for each axis. Of
    sequences of several lengths it is (-1,) or (-1, C), and these are (steps,).
    """

    name: str
    dtype: str
    shape: Tuple[int, ...]
    is_image: bool
    is_mask: bool = False  # an image of classes
    smallest: Optional[Tuple[int, ...]] = None
    largest: Optional[Tuple[int, ...]] = None

    @property
    def is_sequence(self) -> bool:
        """Whether samples are sequences of several lengths."""
        return self.shape[:1] == (-1,) and not self.is_image


class DrawnOp(NamedTuple):
    """One operation on a sample.

    An op may consist of several operations, such as Pad and Crop; those
    without effect are omitted. Names and parameters are those of torchvision's
    functional forms. There are no parameters if it is not applied.
    """

    field: str
    position: int  # in the field's transforms; depth first
    name: str
    is_applied: bool  # False if p or a RandomApply skipped it
    parameters: Dict[str, Tuple[float, ...]]


class BadSample(NamedTuple):
    """A sample that could not be read or decoded, at `offset` in the file."""

    index: int  # type: ignore[assignment]
    path: str
    offset: int
    reason: str


class Placement(NamedTuple):
    """The samples of a dataset that one device holds. `host_bytes` are in
    pinned host memory or a mapped file; memory that several devices share is
    counted for the first one."""

    device: str
    device_bytes: int
    host_bytes: int


class LoadEstimate(NamedTuple):
    """Result of a dry run; `problem` is the reason why the load would fail,
    `notes` are those of Dataset.

    `smallest` and `largest` are (height, width) of the source's images if they
    may differ. `host_bytes` is the maximum use of host memory.
    """

    device: str
    num_samples: int
    fields: List[Field]
    num_classes: int
    source_bytes: int
    resident_bytes: int
    free_bytes: int
    host_bytes: int
    smallest: Optional[Tuple[int, int]]
    largest: Optional[Tuple[int, int]]
    num_bad_samples: int
    bad_samples: List[BadSample]
    problem: str
    residency: str  # what would become of it; not "auto"
    placements: List[Placement]
    notes: List[str] = []


def fields_of(message: Message) -> List[Field]:
    """Those of a Dataset or LoadEstimate message."""
    return [
        Field(
            field["name"],
            dtype_of(field),
            tuple(int(extent) for extent in field["shape"]),
            bool(field["is_image"]),
            bool(field.get("is_mask", False)),
            _field_extent(field, "smallest"),
            _field_extent(field, "largest"),
        )
        for field in message["fields"]
    ]


def dtype_of(field: Message) -> str:
    """Returns the NumPy and torch name of a message's Dtype."""
    return enum_of(field["dtype"], "DTYPE_").lower()


def enum_of(value: Any, prefix: str) -> str:
    """Returns the name of an enum's value without its prefix."""
    if not isinstance(value, str):  # a number without a name
        raise Internal(
            f"the daemon's answer has {prefix}{value}, which this client does "
            "not know: install the client that came with the daemon"
        )
    return value.replace(prefix, "")


def residency_of(message: Message) -> str:
    """That of a Dataset or LoadEstimate message; "" if it is not known yet."""
    name = enum_of(message["residency"], "RESIDENCY_")
    return "" if name == "UNSPECIFIED" else name.lower()


def placements_of(message: Message) -> List[Placement]:
    """Those of a Dataset or LoadEstimate message."""
    return [
        Placement(
            placement["device"],
            int(placement["device_bytes"]),
            int(placement["host_bytes"]),
        )
        for placement in message["placements"]
    ]


def bad_samples_of(message: Message) -> List[BadSample]:
    """Those of a Dataset or LoadEstimate message."""
    return [
        BadSample(
            int(sample["index"]),
            sample["path"],
            int(sample["offset"]),
            sample["reason"],
        )
        for sample in message["bad_samples"]
    ]


def notes_of(message: Message) -> List[str]:
    """Those of a Dataset or LoadEstimate message."""
    return [note["text"] for note in message.get("notes", ())]


def summary_of(message: Message) -> str:
    """Returns what a load found, left out and decided, in one line."""
    count = int(message["num_samples"])
    text = f"{message['format']}: {count} sample{'s' * (count != 1)}"
    names = list(message["class_names"])
    if names:
        plural = "es" * (len(names) != 1)
        shown = ", ".join(map(repr, names[:_MAX_SHOWN]))
        more = ", ..." if len(names) > _MAX_SHOWN else ""
        text += f", {len(names)} class{plural} [{shown}{more}]"
    return "; ".join([text, *notes_of(message)])


def estimate_of(message: Message) -> LoadEstimate:
    return LoadEstimate(
        device=message["device"],
        fields=fields_of(message),
        smallest=_extent(message.get("smallest")),
        largest=_extent(message.get("largest")),
        bad_samples=bad_samples_of(message),
        problem=message["problem"],
        residency=residency_of(message),
        placements=placements_of(message),
        notes=notes_of(message),
        **{
            name: int(message[name])
            for name in (
                "num_samples",
                "num_classes",
                "source_bytes",
                "resident_bytes",
                "free_bytes",
                "host_bytes",
                "num_bad_samples",
            )
        },
    )


def drawn_ops_of(messages: Sequence[Message]) -> List[DrawnOp]:
    """Returns the ops of one sample of an ExplainTransformsResponse."""
    return [
        DrawnOp(
            op["field"],
            int(op["position"]),
            op["name"],
            bool(op["is_applied"]),
            {
                parameter["name"]: tuple(float(v) for v in parameter["values"])
                for parameter in op["parameters"]
            },
        )
        for op in messages
    ]


def _field_extent(field: Message, end: str) -> Optional[Tuple[int, ...]]:
    extent = _extent(field.get(end))
    # A sequence counts as an image of width 1.
    return extent[:1] if extent and not field["is_image"] else extent


def _extent(size: Optional[Message]) -> Optional[Tuple[int, int]]:
    return (int(size["height"]), int(size["width"])) if size else None
