"""The content hash of a dataset, from what is about to be pushed.

docs/loading.md says how it is made.
"""

from __future__ import annotations

import ctypes
import struct
import weakref
from typing import Any, Dict, Iterable, List, Optional, Sequence

from . import _library
from ._columns import contiguous

_DIGEST_BYTES = 32
_LEAF_BYTES = 1 << 20
_ALIGNMENT_BYTES = 16  # of the samples of a ragged field


class _Blake3:
    """The digest of a stream of bytes."""

    def __init__(self) -> None:
        self._library = _library.load()
        self._handle = ctypes.c_void_p(self._library.digest_new())
        self._free = weakref.finalize(
            self, self._library.digest_finish, self._handle, None
        )

    def update(self, data: Any) -> None:
        import numpy

        values = numpy.frombuffer(data, numpy.uint8)
        self._library.digest_update(
            self._handle, ctypes.c_void_p(values.ctypes.data), values.nbytes
        )

    def digest(self) -> bytes:
        """Once."""
        result = ctypes.create_string_buffer(_DIGEST_BYTES)
        if self._free.detach() is not None:
            self._library.digest_finish(self._handle, result)
        return result.raw


class _Digest:
    """Of a stream of bytes: of the digests of its leaves, and its length."""

    def __init__(self) -> None:
        self._leaves = _Blake3()
        self._leaf = _Blake3()
        self._leaf_bytes = 0
        self._num_bytes = 0

    def update(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        self._num_bytes += len(view)
        while view:
            part = view[: _LEAF_BYTES - self._leaf_bytes]
            self._leaf.update(part)
            self._leaf_bytes += len(part)
            view = view[len(part) :]
            if self._leaf_bytes == _LEAF_BYTES:
                self._end_leaf()

    def _end_leaf(self) -> None:
        self._leaves.update(self._leaf.digest())
        self._leaf = _Blake3()
        self._leaf_bytes = 0

    def hexdigest(self) -> str:
        """Once."""
        if self._leaf_bytes:
            self._end_leaf()
        self._leaves.update(struct.pack("<Q", self._num_bytes))
        return self._leaves.digest().hex()


class ContentHash:
    """Takes samples in order, as arrays of rows or one by one."""

    def __init__(
        self, fields: Sequence[Dict[str, Any]], sizes: Iterable[Any] = ()
    ) -> None:
        """`fields` as in a PushHeader; `sizes`, by field, heights and widths
        where they differ."""
        self._fields = fields
        self._digests = [_Digest() for _ in fields]
        self._sizes: List[Optional[Any]] = list(sizes) or [None] * len(fields)

    def write_rows(self, arrays: Sequence[Any]) -> None:
        for digest, array in zip(self._digests, arrays):
            digest.update(contiguous(array).reshape(-1))

    def write_sample(self, parts: Sequence[bytes]) -> None:
        for digest, sizes, part in zip(self._digests, self._sizes, parts):
            digest.update(part)
            if sizes is not None:
                digest.update(bytes(-len(part) % _ALIGNMENT_BYTES))

    def hexdigest(self, num_samples: int) -> str:
        """Once, after the last sample."""
        text = f"datasetd content 2\n{num_samples}\n"
        for field, digest, sizes in zip(
            self._fields, self._digests, self._sizes
        ):
            if sizes is not None:
                digest.update(self._index(field, sizes))
            name = field["name"]
            dtype = field["dtype"].replace("DTYPE_", "").lower()
            text += f"{len(name)}:{name} {dtype}"
            text += "".join(f" {extent}" for extent in field["shape"])
            text += (
                " mask "
                if field["is_mask"]
                else " image " if field["is_image"] else " tensor "
            )
            text += digest.hexdigest() + "\n"
        names = _Blake3()
        names.update(text.encode())
        return names.digest().hex()

    @staticmethod
    def _index(field: Dict[str, Any], sizes: Any) -> bytes:
        """Where each sample begins, its height and its width."""
        import numpy

        dtype = field["dtype"].replace("DTYPE_", "").lower()
        pixel_bytes = field["shape"][2] * (
            2 if dtype == "bfloat16" else numpy.dtype(dtype).itemsize
        )
        index, place = [], 0
        for height, width in zip(sizes[::2], sizes[1::2]):
            index.append(struct.pack("<qii", place, height, width))
            size = height * width * pixel_bytes
            place += size + -size % _ALIGNMENT_BYTES
        return b"".join(index)
