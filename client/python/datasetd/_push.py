"""Pushes: datasets made of Python objects, sent sample by sample."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import tempfile
import weakref
from typing import Any, Dict, Iterable, Iterator, List, Mapping

from . import _library
from ._arguments import encode
from ._connection import Connection
from ._samples import Fields, SampleEncoder
from .errors import InvalidArgument

_BLOCK_BYTES = 1 << 20


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
    """One datasetd_push; breaks it off when it goes before finish().

    REQUIRES: the client outlives it.
    """

    def __init__(
        self, client: ctypes.c_void_p, header: Dict[str, Any]
    ) -> None:
        self._library = _library.load()
        self._block = bytearray()
        handle = ctypes.c_void_p()
        self._handle = handle
        # Before there is anything to free: Ctrl-C may come as soon as there is.
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
        message: Dict[str, Any] = json.loads(self._library.take_text(text))
        return message


def _free(library: _library.Library, handle: ctypes.c_void_p) -> None:
    if handle:
        library.push_close(handle)


def push(
    connection: Connection,
    header: Dict[str, Any],
    samples: Iterable[Any],
    fields: Fields,
    report: Any,
    ragged: bool = False,
) -> Dict[str, Any]:
    """Sends the samples; returns the Dataset message."""
    encoder = SampleEncoder(fields, ragged)
    with contextlib.ExitStack() as stack:
        encoded: Iterator[bytes] = map(encoder.encode, _iterate(samples))
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
        client = stack.enter_context(connection.used())
        sender = _Sender(client, header)
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
        message = sender.finish()
    return message


def _progress(encoder: SampleEncoder, total: int, sent: int) -> Dict[str, Any]:
    return {
        "progress": {
            "num_samples_loaded": min(encoder.num_samples, total),
            "num_samples": total,
            "loaded_bytes": sent,
        }
    }
