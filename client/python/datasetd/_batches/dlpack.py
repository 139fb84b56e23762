"""DLPack access to a batch's memory."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, NoReturn, Optional, Tuple

from .._connection import library as _library

CPU = 1
CUDA = 2

# PyCapsule keeps the pointer, so the name must live as long as the process.
_NAME = ctypes.c_char_p(b"dltensor")
_new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", ctypes.pythonapi))
_is_named = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.py_object, ctypes.c_char_p
)(("PyCapsule_IsValid", ctypes.pythonapi))


class FieldInfo(NamedTuple):
    """A field of a batch: shape is [batch_size, ...], strides in elements."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]
    # Rows of a group, where shape is [groups, group_size, ...]; 0: there are
    # none.
    group_size: int = 0

    def grouped(self, group_size: int) -> "FieldInfo":
        """Returns the field with its rows in groups, as the library has it;
        itself for 0."""
        if not group_size:
            return self
        rows, row_stride = self.shape[0], self.strides[0]
        return self._replace(
            shape=(rows // group_size, group_size, *self.shape[1:]),
            strides=(row_stride * group_size, *self.strides),
            group_size=group_size,
        )

    def extent(self, num_rows: int) -> int:
        """Returns the first extent of a batch of `num_rows`."""
        return num_rows // (self.group_size or 1)


class Handle(_library.CBatch):
    """A hold on a batch, dropped with the object. No hold while `core` is
    None."""

    def __del__(self) -> None:
        # None at the interpreter's end, when the process ends soon.
        if self.core and _release is not None:
            _release(_addressof(self))


# The first member of a Handle, without an __init__ for every batch.
HANDLE_BYTES = ctypes.sizeof(_library.CBatch)
_addressof = ctypes.addressof
# Set by bind: looked up once, not per batch.
_release: Any = None
_destructor: Any = None


def bind(library: _library.Library) -> None:
    """Makes handles and capsules release through `library`."""
    global _release, _destructor
    if _release is None:
        library.quick.set_capsule_functions(
            _address_of(ctypes.pythonapi.PyCapsule_IsValid),
            _address_of(ctypes.pythonapi.PyCapsule_GetPointer),
        )
        _destructor = _address_of(library.quick.capsule_delete)
        _release = library.quick.batch_release


def _address_of(function: Any) -> ctypes.c_void_p:
    return ctypes.cast(function, ctypes.c_void_p)


def new_tensor(handle: Handle, field: int) -> int:
    """Returns the address of a DLManagedTensor that the caller owns."""
    library = _library.load()
    tensor = ctypes.c_void_p()
    error = _library.CError()
    if library.quick.batch_dlpack(
        ctypes.byref(handle), field, ctypes.byref(tensor), ctypes.byref(error)
    ):
        raise error.to_exception()
    assert tensor.value is not None
    return tensor.value


def record_stream(handle: Handle, stream: int) -> None:
    library = _library.load()
    error = _library.CError()
    if library.quick.batch_record_stream(
        ctypes.byref(handle), stream, ctypes.byref(error)
    ):
        raise error.to_exception()


def lent_capsule(address: int) -> Any:
    """Returns a capsule of a tensor that the caller owns until is_taken."""
    return _new_capsule(address, _NAME, None)


def is_taken(capsule: Any) -> bool:
    """True if a framework has taken ownership of the capsule's tensor."""
    return not _is_named(capsule, _NAME)


def owning_capsule(address: int) -> Any:
    """Returns a capsule that frees its tensor if no framework takes it."""
    return _new_capsule(address, _NAME, _destructor)


class Tensor:
    """A field for any framework that supports the DLPack protocol.

    Arrays made from it share the batch's memory and keep it alive.
    """

    __slots__ = ("_handle", "_field", "_device", "shape", "strides", "dtype")

    def __init__(
        self,
        handle: Handle,
        field: int,
        device: Tuple[int, int],
        info: FieldInfo,
    ) -> None:
        self._handle = handle
        self._field = field
        self._device = device
        self.shape = (info.extent(handle.num_samples),) + info.shape[1:]
        self.strides = info.strides
        self.dtype = info.dtype

    def __dlpack__(
        self,
        stream: Optional[int] = None,
        max_version: Optional[Tuple[int, int]] = None,
        dl_device: Optional[Tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> Any:
        """Returns a capsule, unversioned for any `max_version`.

        Raises BufferError if another device or a copy is requested, and
        InvalidArgument (a ValueError) for stream 2 of a GPU, the per-thread
        default stream.
        """
        if dl_device is not None and tuple(dl_device) != self._device:
            raise BufferError(
                f"the batch is on device {self._device}, requested on "
                f"{tuple(dl_device)}: it is not copied between devices"
            )
        if copy:
            raise BufferError(
                "a batch is not exported as a copy: import it, and copy the "
                "result"
            )
        # The batch is complete, so the consumer's stream waits for nothing;
        # but the slot is not reused before that stream is done with it.
        if self._device[0] == CUDA and stream not in (None, -1, 0):
            record_stream(self._handle, int(stream or 0))
        return owning_capsule(new_tensor(self._handle, self._field))

    def __dlpack_device__(self) -> Tuple[int, int]:
        return self._device

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a datasetd.Tensor is memory of this process: copy it to an array"
        )

    def __repr__(self) -> str:
        return (
            f"datasetd.Tensor(shape={self.shape}, dtype={self.dtype}, "
            f"device={self._device})"
        )
