"""Turns a batch's DLPack tensors into what a framework calls an array.

Each array keeps its batch's slot until it is gone itself.
"""

from __future__ import annotations

import ctypes
import importlib.util
from typing import Any, Callable, List, NamedTuple, Optional, Tuple

from . import _library
from .errors import InvalidArgument

CPU = 1
CUDA = 2

_BYTES = {
    "uint8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
}

# PyCapsule keeps the pointer, so the name must live as long as the process.
_NAME = ctypes.c_char_p(b"dltensor")
_new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", ctypes.pythonapi))
# By address: the capsule is being destroyed, and must not be referenced.
_is_valid = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p
)(("PyCapsule_IsValid", ctypes.pythonapi))
_get_pointer = ctypes.PYFUNCTYPE(
    ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p
)(("PyCapsule_GetPointer", ctypes.pythonapi))


class FieldInfo(NamedTuple):
    """A field of a batch: shape is [batch_size, ...], strides in elements."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]


class Handle(_library.CBatch):
    """A hold on a batch, given up when the object goes."""

    def __init__(self) -> None:
        # A constant: sizeof at every batch would be measurable.
        super().__init__(_CBATCH_BYTES)

    def __del__(self) -> None:
        # Gone at the interpreter's end, as the process soon is.
        if self.core and _release is not None:
            _release(_addressof(self))


_CBATCH_BYTES = ctypes.sizeof(_library.CBatch)
_addressof = ctypes.addressof
# Set by bind: looked up once, not at every batch.
_release: Any = None


def bind(library: _library.Library) -> None:
    """Makes handles release through `library`."""
    global _release
    _release = library.quick.batch_release


def _destroy_capsule(capsule: int) -> None:
    if _is_valid(capsule, _NAME):
        library = _library.load()
        library.quick.tensor_delete(_get_pointer(capsule, _NAME))


_destructor_type = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_destructor = _destructor_type(_destroy_capsule)
_destructor_address = ctypes.cast(_destructor, ctypes.c_void_p)


def new_tensor(handle: Handle, field: int) -> int:
    """The address of a DLManagedTensor that the caller owns."""
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


class Tensor:
    """A field for any framework that knows the DLPack protocol."""

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
        self.shape = (handle.num_samples,) + info.shape[1:]
        self.strides = info.strides
        self.dtype = info.dtype

    def __dlpack__(self, stream: Optional[int] = None, **_: Any) -> Any:
        # The batch is complete, so the consumer's stream waits for nothing;
        # but the slot is not reused before that stream is done with it.
        # Other keywords (max_version, copy, ...) ask for what a consumer of
        # an unversioned capsule does without.
        if self._device[0] == CUDA and stream not in (None, -1, 0):
            record_stream(self._handle, int(stream or 0))
        address = new_tensor(self._handle, self._field)
        return _new_capsule(address, _NAME, _destructor_address)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return self._device

    def __repr__(self) -> str:
        return (
            f"datasetd.Tensor(shape={self.shape}, dtype={self.dtype}, "
            f"device={self._device})"
        )


class Framework:
    """How batches become arrays. One per loader."""

    # Whether arrays are made from tensors that came with the batch, or from
    # its handle.
    takes_tensors = False

    def __init__(
        self, device: Tuple[int, int], fields: List[FieldInfo]
    ) -> None:
        self.device = device
        self.fields = fields

    def stream(self) -> int:
        """The stream that will use the next batch."""
        return 0

    def stream_number(self, stream: Any) -> int:
        """A stream object, or its number, as a number."""
        for name in ("cuda_stream", "ptr", "handle"):
            if hasattr(stream, name):
                return int(getattr(stream, name))
        return int(stream)

    def from_tensor(self, address: int, info: FieldInfo, rows: int) -> Any:
        raise NotImplementedError

    def from_handle(self, handle: Handle, field: int, info: FieldInfo) -> Any:
        """Of field `field` (or INDICES), which `info` describes."""
        address = new_tensor(handle, field)
        return self.from_tensor(address, info, handle.num_samples)


class TorchFramework(Framework):
    takes_tensors = True

    def __init__(
        self, device: Tuple[int, int], fields: List[FieldInfo]
    ) -> None:
        super().__init__(device, fields)
        import torch
        import torch.utils.dlpack

        self._from_dlpack = torch.utils.dlpack.from_dlpack
        self._delete = _library.load().quick.tensor_delete
        if device[0] == CUDA:
            if not torch.cuda.is_available():
                raise InvalidArgument(
                    f"the dataset is on a GPU, and torch {torch.__version__} "
                    "here has none: install a torch with CUDA, or use another "
                    "framework"
                )
            self._current_stream = torch.cuda.current_stream
            self.stream = self._cuda_stream  # type: ignore[method-assign]

    def _cuda_stream(self) -> int:
        return self._current_stream(self.device[1]).cuda_stream

    def from_tensor(self, address: int, info: FieldInfo, rows: int) -> Any:
        try:
            # No destructor: the tensor is torch's from here on.
            return self._from_dlpack(_new_capsule(address, _NAME, None))
        except BaseException:
            self._delete(address)
            raise


class _Memory:
    """What a NumPy array keeps as its base."""

    __slots__ = ("__array_interface__", "_tensor", "_delete")

    def __init__(self, interface: Any, tensor: int, delete: Any) -> None:
        self.__array_interface__ = interface
        self._tensor = tensor
        self._delete = delete

    def __del__(self) -> None:
        self._delete(self._tensor)


class NumpyFramework(Framework):
    takes_tensors = True

    def __init__(
        self, device: Tuple[int, int], fields: List[FieldInfo]
    ) -> None:
        super().__init__(device, fields)
        import numpy

        if device[0] != CPU:
            raise InvalidArgument(
                "framework='numpy' needs a dataset on device 'cpu'; this one "
                "is on a GPU: use 'torch', 'jax' or 'dlpack'"
            )
        self._asarray = numpy.asarray
        self._delete = _library.load().quick.tensor_delete
        self._types = {}
        for info in fields:
            if info.dtype == "bfloat16":
                if importlib.util.find_spec("ml_dtypes") is None:
                    raise InvalidArgument(
                        f"field '{info.name}' is bfloat16, which NumPy does "
                        "not have: use float16 or float32, install ml_dtypes, "
                        "or use framework='torch'"
                    )
                import ml_dtypes

                self._types[info.dtype] = numpy.dtype(ml_dtypes.bfloat16)
        self._view_types = self._types
        self._type_codes = {
            name: ("V2" if name == "bfloat16" else numpy.dtype(name).str)
            for name in _BYTES
        }

    def from_tensor(self, address: int, info: FieldInfo, rows: int) -> Any:
        # DLManagedTensor begins with the data pointer.
        data = ctypes.c_void_p.from_address(address).value
        item = _BYTES[info.dtype]
        memory = _Memory(
            {
                "version": 3,
                "shape": (rows,) + info.shape[1:],
                "strides": tuple(s * item for s in info.strides),
                "typestr": self._type_codes[info.dtype],
                "data": (data, False),
            },
            address,
            self._delete,
        )
        array = self._asarray(memory)
        view = self._view_types.get(info.dtype)
        return array if view is None else array.view(view)


class DlpackFramework(Framework):
    def from_handle(self, handle: Handle, field: int, info: FieldInfo) -> Any:
        return Tensor(handle, field, self.device, info)


class JaxFramework(Framework):
    def __init__(
        self, device: Tuple[int, int], fields: List[FieldInfo]
    ) -> None:
        super().__init__(device, fields)
        import jax.dlpack

        self._from_dlpack = jax.dlpack.from_dlpack

    def from_handle(self, handle: Handle, field: int, info: FieldInfo) -> Any:
        return self._from_dlpack(Tensor(handle, field, self.device, info))


_FRAMEWORKS: "dict[str, Callable[..., Framework]]" = {
    "torch": TorchFramework,
    "numpy": NumpyFramework,
    "jax": JaxFramework,
    "dlpack": DlpackFramework,
}


def resolve(name: Optional[str]) -> str:
    """The framework's name; None is torch where there is one, else NumPy."""
    if name is None:
        return "torch" if importlib.util.find_spec("torch") else "numpy"
    if name not in _FRAMEWORKS:
        raise InvalidArgument(
            f"framework={name!r}; expected one of {tuple(_FRAMEWORKS)}"
        )
    if name != "dlpack" and importlib.util.find_spec(name) is None:
        raise InvalidArgument(
            f"framework={name!r} is not installed for this Python: install it "
            "or use another one"
        )
    return name


def make(
    name: str, device: Tuple[int, int], fields: List[FieldInfo]
) -> Framework:
    """REQUIRES: resolve returned `name`."""
    return _FRAMEWORKS[name](device, fields)
