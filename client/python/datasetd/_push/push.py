"""Pushes: sends Python data to the daemon as a dataset."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import itertools
import math
import re
import tempfile
import time
import weakref
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    Optional,
    Tuple,
)

from .._arguments import encode
from .._connection import library as _library
from .._connection.session import Session
from .._datasets.parts import Part
from ..errors import (
    AlreadyExists,
    DataLoss,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
)
from ..sources._base import Note
from . import concat, encoded
from .columns import Columns, contiguous
from .data import classes_of, columns_of, is_map_style, notes_of, part_of
from .field_names import FieldNames
from .labels import Labels
from .sample_encoder import SampleEncoder
from .samples import Fields, Report, progress_message

_BLOCK_BYTES = 1 << 20
# Samples at the start that are read twice; then those at powers of two.
_NUM_CHECKED = 8
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_IF_EXISTS = ("same", "keep", "replace", "error")
_POLL_SECONDS = 0.01
_MAX_POLL_SECONDS = 0.5
# Tries of a push whose name is taken, though no dataset of it is seen.
_MAX_VAIN = 5
_MAX_NOTES = 32
_MAX_NOTE_BYTES = 1024
_MAX_FEED_FIELDS = 8

# From the Field messages of a PushHeader.
PretransformsOf = Callable[[List[Dict[str, Any]]], Dict[str, Any]]


class _Sender:
    """One datasetd_push, cancelled unless finish() was called.

    REQUIRES: the client outlives it.
    """

    def __init__(
        self, client: ctypes.c_void_p, header: Dict[str, Any]
    ) -> None:
        """Raises errors of the header: the name is taken, the budget too
        small."""
        self._library = _library.load()
        self._block = bytearray()
        handle = ctypes.c_void_p()
        self._handle = handle
        # Before the handle exists, since Ctrl-C may come right after.
        self.close = weakref.finalize(self, _free, self._library, handle)
        self.close.atexit = False  # goes with the process
        self._call(
            "push_begin",
            client,
            encode(header),
            _library.WaitFunction(0),  # NULL: the thread's
            None,
            ctypes.byref(handle),
        )

    def _call(self, name: str, *arguments: Any) -> None:
        _library.call(getattr(self._library, name), *arguments)

    def write(self, data: bytes) -> None:
        self._block += data
        if len(self._block) >= _BLOCK_BYTES:
            self._flush()

    def write_block(self, data: bytes) -> None:
        """Sends bytes without a copy. Releases the GIL."""
        self._flush()
        self._call("push_write", self._handle, data, len(data))

    def write_sample(self, parts: List[bytes]) -> None:
        self.write(b"".join(parts))

    def write_rows(self, arrays: List[Any]) -> None:
        """Sends rows of all fields. Releases the GIL."""
        rows = [contiguous(array) for array in arrays]
        pointers = (ctypes.c_void_p * len(rows))(
            *(array.ctypes.data for array in rows)
        )
        self._call(
            "push_write_samples", self._handle, pointers, len(rows),
            len(rows[0]),
        )  # fmt: skip

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
        return _library.parse_answer(self._library.take_text(text))


def _free(library: _library.Library, handle: ctypes.c_void_p) -> None:
    if handle:
        library.push_close(handle)


class _SampleData:
    """Samples in the form that a push sends."""

    def __init__(
        self,
        name: Optional[str],
        samples: Any,
        names: FieldNames,
        is_part: bool,
        stack: contextlib.ExitStack,
        most_bytes: Callable[[], float],
    ) -> None:
        """Encodes the first sample; or all, to a file, if their number, sizes
        or classes are unknown: at most most_bytes(), the memory for them."""
        self._name = name
        self._labels = names.labels
        self._encoder = SampleEncoder(names, names.is_ragged)
        self._encoded = self._encode(samples)
        self._spool: Any = None
        first = next(self._encoded, None)
        is_ragged = names.is_ragged or names.has_sequences
        # Without a name they are read twice, once for that.
        is_open = is_ragged or self._labels.ignores_others or name is None
        self.total: int
        try:
            self.total = -1 if is_open else len(samples)
        except TypeError:
            self.total = -1
        if first is None:
            self.total = 0
        else:
            self._encoded = itertools.chain([first], self._encoded)
        has_open_classes = self._encoder.place_of_text >= 0
        if has_open_classes and is_part:
            raise InvalidArgument(
                f"part: the text of field {self._labels.field!r} would become "
                "other classes on each node: give class_names="
            )
        if self.total < 0 or has_open_classes:
            # The daemon reserves memory before the first sample.
            self._spool = stack.enter_context(tempfile.TemporaryFile())
            self._spool_samples(most_bytes())
            self.total = self._encoder.num_samples
            self._spool.seek(0)
            self._encoded = iter(())
        self.fields = self._encoder.fields_message()
        self.images = names.images

    def _spool_samples(self, most_bytes: float) -> None:
        size = 0
        place = self._encoder.place_of_text
        texts: List[Tuple[int, int]] = []  # offset and index
        for parts in self._encoded:
            if place >= 0:
                offset = size + sum(map(len, parts[:place]))
                texts.append((offset, int.from_bytes(parts[place], "little")))
            size += self._spool.write(b"".join(parts))
            if size > most_bytes:
                raise ResourceExhausted(
                    f"dataset {self._name or 'without a name'!r}: the first "
                    f"{self._encoder.num_samples} samples have {size} bytes, "
                    f"and the device's memory budget is {most_bytes:.0f}"
                )
        if place >= 0:
            moved = self._labels.settle()
            for offset, index in texts:
                if moved[index] != index:
                    self._spool.seek(offset)
                    self._spool.write(moved[index].to_bytes(8, "little"))

    def _encode(self, samples: Any) -> Iterator[List[bytes]]:
        # A map-style dataset may have an __iter__ that never ends, or none.
        if not is_map_style(samples) or isinstance(samples, Mapping):
            for sample in _iterated(samples):
                parts = self._encoder.encode(sample)
                if parts is not None:
                    yield parts
            return
        for i in range(len(samples)):
            parts = self._encoder.encode(_item(samples, i))
            if parts is None:
                continue
            is_checked = i < _NUM_CHECKED or i & (i - 1) == 0
            if is_checked and parts != self._encoder.encode_again(
                _item(samples, i)
            ):
                raise InvalidArgument(
                    f"samples[{i}] is not the same twice: a random transform "
                    "would be frozen at one draw. Push without it and give "
                    "transforms= to DataLoader (T.from_torchvision converts "
                    "them); to keep one draw, push a generator: (samples[i] "
                    "for i in range(len(samples)))"
                )
            yield parts

    def content(self) -> Iterator[bytes]:
        """Yields all bytes of all samples. REQUIRES: no name was given."""
        yield self._encoder.sizes_bytes()
        yield from self._spooled()
        self._spool.seek(0)

    def _spooled(self) -> Iterator[bytes]:
        while True:
            data: bytes = self._spool.read(_BLOCK_BYTES)
            if not data:
                return
            yield data

    def send(self, sender: _Sender, report: Report) -> None:
        sender.write(self._encoder.sizes_bytes())
        sent = 0
        if self._spool is not None:
            for data in self._spooled():
                sender.write(data)
                sent += len(data)
                if report is not None:
                    report(progress_message(self.total, self.total, sent))
        for parts in self._encoded:
            sender.write_sample(parts)
            sent += sum(map(len, parts))
            if report is not None:
                count = min(self._encoder.num_samples, self.total)
                report(progress_message(count, self.total, sent))
        self._check_count()

    def _check_count(self) -> None:
        if self._encoder.num_samples != self.total:
            raise InvalidArgument(
                f"dataset {self._name!r}: len() is {self.total}, but there "
                f"were {self._encoder.num_samples} samples"
            )


def _item(samples: Any, i: int) -> Any:
    try:
        return samples[i]
    except Exception as error:
        _locate(error, f"samples[{i}]")
        raise


def _iterated(samples: Any) -> Iterator[Any]:
    iterator = iter(samples)
    for i in itertools.count():
        try:
            sample = next(iterator)
        except StopIteration:
            return
        except Exception as error:
            _locate(error, f"sample {i}")
            raise
        yield sample


def _locate(error: Exception, where: str) -> None:
    """Adds the sample to the text of an exception of the data; raises DataLoss
    where its text is not its own."""
    if isinstance(error, OSError) and error.strerror:
        error.strerror = f"{where}: {error.strerror}"
    elif len(error.args) == 1 and isinstance(error.args[0], str):
        error.args = (f"{where}: {error.args[0]}",)
    if where not in str(error):
        raise DataLoss(f"{where}: {type(error).__name__}: {error}") from error


def _notes_message(notes: List[Note]) -> Dict[str, Any]:
    """Returns that field of a PushHeader, if there are any."""
    messages = []
    for note in dict.fromkeys(notes):
        text = note.text.encode()[:_MAX_NOTE_BYTES].decode(errors="ignore")
        messages.append({"text": text, "is_warning": note.is_warning})
    return {"notes": messages[:_MAX_NOTES]} if messages else {}


def _note_of_many(source: Any) -> List[Note]:
    if len(source.fields) <= _MAX_FEED_FIELDS:
        return []
    return [
        Note(
            f"{len(source.fields)} fields, and a loader has at most "
            f"{_MAX_FEED_FIELDS}: choose them with DataLoader(fields=[...]), "
            "or push columns of one kind as an array (N, K), as {'x': "
            "frame[names].to_numpy('float32'), 'y': ...}, or of a csv by "
            "fields={'x': [names], 'y': 'name'}",
            is_warning=True,
        )
    ]


def _options_message(
    source: Any, given: encoded.ImageOptions
) -> Dict[str, Any]:
    """Returns those fields of a PushHeader, if they are not the defaults."""
    if any(field.get("is_encoded") for field in source.fields):
        options = source.images.message()
        return {"options": options} if options else {}
    if given != encoded.DEFAULTS:
        raise InvalidArgument(
            "options are for encoded images, and no field is one"
        )
    return {}


def _name_of(source: Any, header: Dict[str, Any]) -> str:
    """Returns a name of the content and of what the daemon makes of it."""
    digest = hashlib.sha256()
    made_of = ("device", "fields", "class_names", "pretransforms", "options",
               "bad_samples", "residency", "device_bytes")  # fmt: skip
    digest.update(encode({key: header.get(key, "") for key in made_of}))
    for data in source.content():
        digest.update(data)
    return f"push-{digest.hexdigest()[:12]}"


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"name={name!r}: a dataset's name has 1 to 128 characters of "
            "[A-Za-z0-9._-] and begins with a letter or digit"
        )


def _budget_of(session: Session, device: str) -> float:
    """Returns the device's memory budget; infinite if there is none."""
    for known in session.call("GetStatus")["devices"]:
        if device in ("", known["name"]):
            return float(known["memory_budget_bytes"])
    return math.inf


def _is_taken(session: Session, name: str) -> bool:
    """Takes no hold, as get_dataset would."""
    return any(
        dataset["name"] == name and dataset["state"] != "DATASET_STATE_FAILED"
        for dataset in session.call("ListDatasets")["datasets"]
    )


def _find(
    session: Session, name: str
) -> Tuple[Optional[Dict[str, Any]], bool]:
    """Adds a holder of the dataset of this name and returns it. Waits for
    loads and pushes by others; returns None if there is none, and True if that
    which it waited for has failed, so that the name is free."""
    message, has_waited = _await(session, name)
    if message is None or message["state"] != "DATASET_STATE_READY":
        return None, has_waited
    session.hold(name)
    return message, False


def _await(
    session: Session, name: str
) -> Tuple[Optional[Dict[str, Any]], bool]:
    """Returns the dataset of this name, or None, once it is no longer loading
    or pushed; True if it was."""
    pause = _POLL_SECONDS
    has_waited = False
    while True:
        try:
            response = session.call("GetDataset", name=name)
        except NotFound:
            return None, has_waited
        message: Dict[str, Any] = response["dataset"]
        if message["state"] != "DATASET_STATE_LOADING":
            return message, has_waited
        has_waited = True
        time.sleep(pause)
        pause = min(2 * pause, _MAX_POLL_SECONDS)


def _make_way(session: Session, name: str) -> bool:
    """Unloads the dataset of this name, after a load or push of it by others.
    Returns whether there was one."""
    message, has_waited = _await(session, name)
    if message is None:
        return has_waited
    # The look at it has held it.
    session.hold(name)
    try:
        with contextlib.suppress(NotFound):
            # Without the spec_id, this could end a push that another process
            # has begun since.
            session.call(
                "UnloadDataset", name=name, spec_id=message["spec_id"]
            )
    except FailedPrecondition as error:  # loaders
        raise FailedPrecondition(
            f"{error}: loader.close(), or client.unload_dataset({name!r}, "
            "force=True)"
        ) from None
    finally:
        session.release(name)
    return True


_WAYS = (
    "if_exists='keep' takes what is there, 'replace' pushes these samples in "
    "its place; or choose another name, or None for one of the content"
)


def _check_access(present: Dict[str, Any], header: Dict[str, Any]) -> None:
    """Raises FailedPrecondition, as a load does, if the dataset that is there
    is not private or pinned as asked."""
    for wanted, state in (("private", "is_private"), ("pin", "is_pinned")):
        if header.get(wanted) and not present[state]:
            raise FailedPrecondition(
                f"{wanted}: dataset {header['name']!r} is there, and not so: "
                "unload it first, or choose another name"
            )


def push(
    session: Session,
    header: Dict[str, Any],
    data: Any,
    fields: Fields,
    report: Report,
    ragged: bool,
    if_exists: str,
    part: Optional[Part],
    images: encoded.ImageOptions,
    pretransforms_of: Optional[PretransformsOf],
    class_names: Optional[List[str]] = None,
    ignores_others: bool = False,
) -> Dict[str, Any]:
    """Sends the samples, or a part of them, unless the dataset exists. Returns
    the Dataset message; the session has one more holder. `pretransforms_of`
    makes the message of the pretransforms, if there are any, for the fields
    that are pushed."""
    if if_exists not in _IF_EXISTS:
        raise InvalidArgument(
            f"if_exists is {if_exists!r}, expected one of "
            f"{', '.join(_IF_EXISTS)}"
        )
    name: Optional[str] = header["name"]
    if name is not None:
        _check_name(name)
    if if_exists == "replace" and concat.is_part(data, name):
        raise InvalidArgument(
            f"dataset {name!r} cannot replace itself: choose another name, and "
            "unload it afterwards"
        )
    stack = contextlib.ExitStack()
    unkept = contextlib.ExitStack()

    def find(name: str) -> Tuple[Optional[Dict[str, Any]], bool]:
        found, has_failed = _find(session, name)
        if found is not None:
            unkept.callback(session.release, name)
        return found, has_failed

    def most_bytes() -> float:
        # Pretransforms may make samples smaller, and other memory may have room
        # for what the device has none.
        if pretransforms_of is not None or "residency" in header:
            return math.inf
        return _budget_of(session, header["device"])

    def prepare() -> Tuple[Any, Dict[str, Any]]:
        notes = notes_of(data)
        own, own_field = classes_of(data)
        labels = Labels(class_names, own, own_field, ignores_others, notes)
        names = FieldNames(fields, images, labels, notes, ragged)
        columns = columns_of(data, names)
        if part is not None:
            columns = part_of(columns, part)
        source: Any = (
            columns
            if isinstance(columns, Columns)
            else _SampleData(
                name,
                columns,
                names,
                part is not None,
                stack,
                most_bytes,
            )
        )
        if not source.total:
            raise InvalidArgument(
                ("" if name is None else f"dataset {name!r}: ")
                + "there is no sample to push"
            )
        labels.told()
        return source, dict(
            header,
            num_samples=source.total,
            fields=source.fields,
            class_names=labels.names,
            **_notes_message(notes + _note_of_many(source)),
            pretransforms=(
                {}
                if pretransforms_of is None
                else pretransforms_of(source.fields)
            ),
            **_options_message(source, images),
        )

    with stack, unkept:
        present: Optional[Dict[str, Any]] = None
        source: Any = None
        if name is None:
            source, header = prepare()
            name = header["name"] = _name_of(source, header)
            if if_exists == "same":  # by its name
                if_exists = "keep"
        if if_exists == "error" and _is_taken(session, name):
            raise AlreadyExists(f"dataset {name!r} is there: {_WAYS}")
        if if_exists == "keep":
            present, _ = find(name)
        message = present
        if source is None and present is None:
            source, header = prepare()
        header["accepts_same"] = if_exists == "same"
        if if_exists == "replace":
            _make_way(session, name)
        num_vain = 0
        while message is None:
            handle = stack.enter_context(session.connection().used())
            try:
                sender = _Sender(handle, header)
            except AlreadyExists:
                if if_exists in ("same", "error"):
                    raise
                # Another push was faster, or it is hidden from this user.
                if if_exists == "replace":
                    is_free = _make_way(session, name)
                else:
                    present, is_free = find(name)
                    message = present
                if message is None and not is_free:
                    if num_vain == _MAX_VAIN:
                        raise
                    time.sleep(_POLL_SECONDS * 2**num_vain)
                    num_vain += 1
            else:
                stack.callback(sender.close)
                source.send(sender, report)
                message = sender.finish()
                session.hold(name)
        if present is not None:
            _check_access(present, header)
        unkept.pop_all()
    assert message is not None
    return message
