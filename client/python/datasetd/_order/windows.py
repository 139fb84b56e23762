"""windows=: rows that are windows of a stream."""

from __future__ import annotations

import ast
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

from .._arguments import checked_int
from .._descriptions import Field
from ..errors import InvalidArgument
from .crops import Crops, crops

# The field whose next step is predicted, and the field of those steps.
_TOKENS, TARGETS = "tokens", "targets"
# Of rows of documents: FieldOptions.row_field by name.
ROW_FIELDS = {
    "position_ids": "ROW_FIELD_POSITION_IDS",
    "cu_seqlens": "ROW_FIELD_CU_SEQLENS",
}
_MAX = 2**63 - 1
_MAX_TEXT = 500


class Windows(NamedTuple):
    """Windows of `length` steps, as blocks, random_windows and documents make
    them.

    `order` is what WindowOrder says besides the length; empty: a sampler
    decides. `targets` is the field whose steps, one later, are the field
    `targets`; None: `tokens`, if there is one; "": none. Of documents `ends`
    is the number that ends each, in the field `field`, or `starts` are their
    first steps.
    """

    length: int
    order: Dict[str, Any] = {}
    targets: Optional[str] = None
    field: str = _TOKENS
    ends: Optional[int] = None
    starts: Any = None

    @property
    def are_documents(self) -> bool:
        return "documents" in self.order

    @property
    def is_random(self) -> bool:
        """Whether each window's first step is drawn by itself."""
        return "random" in self.order

    def message(self, is_sent: bool) -> Dict[str, Any]:
        """Returns FeedOptions.window_order. `is_sent`: the client makes the
        order."""
        message: Dict[str, Any] = {"length": str(self.length)}
        if not is_sent:
            message.update(self.order or {"blocks": {}})
        return message

    def identity(self) -> str:
        """Returns what tells the windows from others'."""
        kind, options = next(iter(self.order.items()), ("blocks", {}))
        return " ".join(
            [
                f"{kind} {self.length}",
                *(f"{k}={v}" for k, v in options.items()),
            ]
        )

    def derived(self, fields: Sequence[Field]) -> Dict[str, Dict[str, Any]]:
        """Returns the FieldOptions of the fields that a batch has besides those
        of the dataset, `fields`, by name."""
        derived: Dict[str, Dict[str, Any]] = {}
        source = self.target_field(fields)
        if source is not None:
            derived[TARGETS] = {"source": source, "shift": 1}
        if self.are_documents:
            names = [field.name for field in fields]
            for name, row_field in ROW_FIELDS.items():
                if name not in names:
                    derived[name] = {
                        "source": names[0],
                        "row_field": row_field,
                    }
        return derived

    def first_steps(self, column: Any) -> Any:
        """Returns the first steps of documents, an int64 array; `column` is
        called for the values of a field."""
        import numpy

        if self.starts is not None:
            starts = numpy.asarray(self.starts)
            if starts.ndim != 1 or starts.dtype.kind not in "iu":
                raise InvalidArgument(
                    f"documents: starts is {starts.dtype} {starts.shape}; "
                    "expected integers, the first step of each document"
                )
            return starts.astype(numpy.int64)
        values = numpy.asarray(column(self.field))
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise InvalidArgument(
                f"documents: field {self.field!r} is {values.dtype} "
                f"{values.shape}; expected integers, one for each step, of "
                f"which {self.ends} ends a document"
            )
        ends = numpy.flatnonzero(values[:-1] == self.ends) + 1
        return numpy.concatenate([[0], ends]).astype(numpy.int64)

    def with_rows(self, starts: Any, num_steps: int) -> Windows:
        """Returns the windows with what the daemon is to know of documents
        that begin at `starts`."""
        documents = self.order["documents"]
        if "max_document" not in documents:
            return self
        num_rows = _count_rows(
            starts, num_steps, int(documents["max_document"]), self.length
        )
        order = {"documents": {**documents, "num_rows": str(num_rows)}}
        return self._replace(order=order)

    def target_field(self, fields: Sequence[Field]) -> Optional[str]:
        """Returns the name of the field whose next steps are `targets`; None:
        there are no targets."""
        names = [field.name for field in fields]
        if self.targets == "" or (
            self.targets is None and (_TOKENS not in names or TARGETS in names)
        ):
            return None
        source = _TOKENS if self.targets is None else self.targets
        if source not in names:
            raise InvalidArgument(
                f"windows: targets={source!r}; expected one of the fields "
                f'{names}, or "" for no targets'
            )
        if TARGETS in names:
            raise InvalidArgument(
                f"windows: targets={source!r}: the dataset has a field "
                f'{TARGETS!r} of its own: use targets=""'
            )
        return source


def _count_rows(
    starts: Any, num_steps: int, max_document: int, length: int
) -> int:
    """Returns how many rows have whole documents, as many as fit."""
    import numpy

    sizes = numpy.diff(starts, append=num_steps).clip(0, max_document)
    ends = numpy.cumsum(sizes)
    num_rows = first = used = 0
    while first < len(ends):
        # Those that end within `length` steps of the row's first one.
        first = int(numpy.searchsorted(ends, used + length, "right"))
        used = int(ends[first - 1])
        num_rows += 1
    return num_rows


def _windows(length: Any, targets: Any, **order: Any) -> Windows:
    if targets is not None and not isinstance(targets, str):
        raise InvalidArgument(
            f'targets={targets!r}; expected the name of a field, "" for no '
            "targets, or None for those of 'tokens'"
        )
    return Windows(checked_int("length", length, 1, _MAX), order, targets)


def blocks(
    length: int,
    stride: Optional[int] = None,
    *,
    phase: Optional[int] = None,
    targets: Optional[str] = None,
) -> Windows:
    """Consecutive windows of a stream, for DataLoader(windows=).

    Window w of an epoch has the `length` samples of the dataset from phase + w
    * stride on. An epoch has each window once, permuted with shuffle. What is
    left at the end of the stream, less than one stride, is left out; of a phase
    that is drawn, at the beginning and the end less than two strides and a
    window.

    Args:
      length: steps of a window.
      stride: steps from one window to the next; None: length, so that each step
        comes once.
      phase: first step of window 0. None: with shuffle drawn for each epoch,
        below stride, so that windows are cut elsewhere in each epoch; else 0.
      targets: the field whose steps, one later, are the field `targets` of a
        batch. None: `tokens`, if the dataset has it; "": no targets.
    """
    order: Dict[str, Any] = {}
    if stride is not None:
        order["stride"] = str(checked_int("stride", stride, 1, _MAX))
    if phase is not None:
        order["phase"] = str(checked_int("phase", phase, 0, _MAX))
    return _windows(length, targets, blocks=order)


def random_windows(
    length: int,
    num_windows: Optional[int] = None,
    *,
    targets: Optional[str] = None,
) -> Windows:
    """Windows of a stream that begin anywhere, for DataLoader(windows=).

    The first step of each window is drawn by itself, uniformly, as nanoGPT's
    training script does. Excludes shuffle.

    Args:
      length: steps of a window.
      num_windows: windows per epoch, over all ranks; None: as many as have the
        steps of the stream.
      targets: as of blocks.
    """
    order: Dict[str, Any] = {}
    if num_windows is not None:
        order["num_windows"] = str(
            checked_int("num_windows", num_windows, 0, 2**32 - 1)
        )
    return _windows(length, targets, random=order)


def documents(
    length: int,
    ends: Optional[int] = None,
    *,
    starts: Any = None,
    field: str = _TOKENS,
    ignore_ends: bool = False,
    ignore_index: int = -100,
    targets: Optional[str] = None,
    max_document: Optional[int] = None,
) -> Windows:
    """Rows of documents of a stream, for DataLoader(windows=).

    The documents are laid end to end, with shuffle permuted in each epoch, and
    cut into rows of `length` steps. An epoch has each step once; the last row
    is filled up with zeros. Each batch also has `position_ids`, int64 [B,
    length], the position of each step in its document, and `cu_seqlens`, int32
    [B, length + 1]: the places at which the documents of a row begin, and
    then, repeated, its number of steps. fields= leaves out what is not needed.

    With max_document a row begins at a document's start, and has whole ones, of
    which each is cut after so many steps: as many consecutive documents as fit.
    Its last steps may be empty, and are zeros, with ignore_index as targets.
    Shuffle then permutes the rows, whose documents stay together.

    Args:
      length: steps of a row.
      ends: the token that ends a document, and belongs to it.
      starts: or else the first steps of all documents, ascending from 0.
      field: the field of the token.
      ignore_ends: makes the target of a document's last step ignore_index, not
        the first step of the document behind it.
      ignore_index: the target where there is no next step.
      targets: as of blocks; the field must be of integers.
      max_document: steps that a document has at most, up to length; None: rows
        are cut wherever they are full, and every step comes.
    """
    if (ends is None) == (starts is None):
        raise InvalidArgument(
            "documents: expected either ends=, the token that ends a document, "
            "or starts=, the first step of each"
        )
    if ends is not None:
        ends = checked_int("ends", ends, -(2**63), _MAX)
    order = {
        "ignore_index": str(
            checked_int("ignore_index", ignore_index, -(2**63), _MAX)
        ),
        "ignores_ends": bool(ignore_ends),
    }
    if max_document is not None:
        order["max_document"] = str(
            checked_int("max_document", max_document, 1, length)
        )
    windows = _windows(length, targets, documents=order)
    return windows._replace(field=field, ends=ends, starts=starts)


def as_windows(given: Any) -> Union[Windows, Crops]:
    """Returns DataLoader's windows=, checked."""
    if isinstance(given, (Windows, Crops)):
        return given
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        raise InvalidArgument(
            f"windows={given!r}; expected a length, datasetd.blocks(length), "
            "datasetd.random_windows(length), datasetd.documents(length) or "
            "datasetd.crops(length)"
        )
    return Windows(checked_int("windows", given, 1, _MAX))


def parse_windows(text: str) -> Union[None, Windows, Crops]:
    """Returns the windows of a text such as `500`, `blocks(500, stride=250)` or
    `crops(16000, random)`; None if it is empty."""
    if not text.strip():
        return None
    functions: Dict[str, Callable[..., Any]] = {
        "blocks": blocks, "crops": crops, "random_windows": random_windows
    }  # fmt: skip

    def value_of(node: ast.expr) -> Any:
        return node.id if isinstance(node, ast.Name) else ast.literal_eval(node)

    try:
        node = ast.parse(text.strip()[:_MAX_TEXT], mode="eval").body
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).removeprefix("datasetd.")
            make = functions[name]
            arguments = [value_of(one) for one in node.args]
            named = {str(one.arg): value_of(one.value) for one in node.keywords}
        else:
            make, named = as_windows, {}
            arguments = [ast.literal_eval(node)]
    except (KeyError, SyntaxError, ValueError, RecursionError, MemoryError):
        raise InvalidArgument(
            f"windows={text[:80]}; expected a length, or blocks(length), "
            "random_windows(length) or crops(length), with the arguments that "
            "these have in Python"
        ) from None
    try:
        windows: Union[Windows, Crops] = make(*arguments, **named)
        return windows
    except TypeError as error:
        raise InvalidArgument(f"windows={text[:80]}: {error}") from None


class Cut(NamedTuple):
    """What of a dataset is read and explained without a feed: samples, crops of
    them, or windows of a stream.

    `fields` are FieldOptions by name, and `order` a WindowOrder message, None
    of samples. REQUIRES: it is not of documents.
    """

    fields: Dict[str, Dict[str, Any]]
    order: Optional[Mapping[str, Any]]
    num_samples: int  # of the dataset

    def message(self) -> Dict[str, Any]:
        """Returns what a request has of windows."""
        return {} if self.order is None else {"window_order": self.order}

    @property
    def is_random(self) -> bool:
        return self.order is not None and self.order.get("random") is not None

    def indices(self, first: int, count: int) -> List[int]:
        """Returns the indices that the daemon takes of `count` samples, or
        windows of an epoch, from number `first` on: first steps, or of random
        windows their numbers. Blocks whose phase is drawn begin at step 0."""
        stride, phase, _ = self._blocks()
        return [phase + (first + i) * stride for i in range(count)]

    @property
    def total(self) -> int:
        """The number of samples, or of windows of an epoch."""
        return self._blocks()[2]

    def _blocks(self) -> Tuple[int, int, int]:
        """Returns stride, phase and number."""
        if self.order is None:
            return 1, 0, self.num_samples
        length = int(self.order["length"])
        shifts = [int(one.get("shift", 0)) for one in self.fields.values()]
        steps = self.num_samples - max(shifts, default=0)
        if self.is_random:
            number = self.order["random"].get("num_windows")
            return 1, 0, int(number or max(1, steps // length))
        order = self.order.get("blocks") or {}
        stride = int(order.get("stride") or 0) or length
        phase = int(order.get("phase") or 0)
        return stride, phase, max(0, (steps - length - phase) // stride + 1)


def cut_of(
    windows: Union[None, Windows, Crops],
    fields: Sequence[Field],
    num_samples: int,
) -> Cut:
    """Returns the windows or crops of a dataset with `fields`."""
    if windows is None:
        return Cut({}, None, num_samples)
    if isinstance(windows, Crops):
        return Cut(windows.cropped(fields), None, num_samples)
    if windows.are_documents:
        raise InvalidArgument(
            "windows=documents(): rows of documents draw nothing by "
            "themselves, and take no ops; a loader shows the documents of its "
            "rows in position_ids and cu_seqlens"
        )
    order = windows.message(is_sent=False)
    return Cut(windows.derived(fields), order, num_samples)


# Of DataLoader(windows=).
GivenWindows = Union[None, int, Windows, Crops]
