"""Converts a batch's tensors to a framework's arrays.

Each array keeps its batch's slot until it is freed, but for copies.
"""

from __future__ import annotations

import ctypes
import importlib.util
import math
import sys
from typing import (
    Any,
    Container,
    Dict,
    Iterable,
    List,
    NamedTuple,
    Optional,
    Tuple,
    Type,
)

from .._connection import library
from ..errors import FailedPrecondition, InvalidArgument
from . import stream_check
from .dlpack import (
    CPU,
    CUDA,
    FieldInfo,
    Handle,
    Tensor,
    is_taken,
    lent_capsule,
    new_tensor,
    owning_capsule,
)

# Fields that are no images are small up to this size of a batch: copies of
# them keep no images (see held.py).
SMALL_BYTES = 1 << 16

_BYTES = {
    "uint8": 1,
    "int8": 1,
    "uint16": 2,
    "int16": 2,
    "uint32": 4,
    "int32": 4,
    "int64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
}


class Framework:
    """How batches become arrays. One per loader."""

    # True if arrays are made from tensors delivered with the batch, else from
    # its handle.
    takes_tensors = False
    # False if it has no memory of its own.
    can_copy = True
    # Bits of the fields whose tensors are copies that the library made; set by
    # the user of from_tensors().
    copied = 0

    def __init__(
        self, device: Tuple[int, int], fields: List[FieldInfo]
    ) -> None:
        self.device = device

    def stream(self) -> int:
        """Returns the stream that will use the next batch."""
        return 0

    def wait(self, stream: Any, earlier: int) -> None:
        """Makes a stream, an object or a number, wait for the copies that
        stream `earlier` makes. Nothing if copies are complete when they are
        returned."""

    @property
    def lends_small(self) -> bool:
        """True if small fields are copies only while slots are short. On a GPU
        a copy is an allocation and a kernel for each batch, and a turn of the
        device where the job has no other work."""
        return self.can_copy and self.device[0] == CUDA

    def copies(self, info: FieldInfo, images: Container[str]) -> bool:
        """True for a field of which copies keep no images: a small one, and
        none of `images`."""
        return (
            self.can_copy
            and info.name not in images
            and size_bytes(info.dtype, info.shape) <= SMALL_BYTES
        )

    def from_tensors(
        self, addresses: Iterable[int], owners: List[Any], rows: int
    ) -> List[Any]:
        """Returns an array of `rows` rows (or groups) per tensor, in the
        fields' order.

        Appends an owner for each tensor. If this is interrupted, an array owns
        a tensor exactly if the tensor has an owner whose owns() is true.
        """
        raise NotImplementedError

    def owns(self, owner: Any) -> bool:
        raise NotImplementedError

    def from_handle(self, handle: Handle, field: int, info: FieldInfo) -> Any:
        """Returns the array of field `field` (or INDICES), described by
        `info`."""
        raise NotImplementedError

    def split_indices(
        self, handle: Handle, info: FieldInfo
    ) -> Tuple[Any, Any]:
        """Returns the datasets of a mixture, and the samples in them, which
        the 64 bits of its indices name. REQUIRES: can_copy."""
        indices = self.from_handle(handle, library.INDICES, info)
        return indices >> 32, indices & 0xFFFFFFFF


def check_torch_dtype(torch: Any, info: FieldInfo) -> None:
    """Raises InvalidArgument if torch has no such dtype."""
    # Versions before 2.3 do not have uint16 and uint32.
    if not hasattr(torch, info.dtype):
        raise InvalidArgument(
            f"field '{info.name}' is {info.dtype}, which torch "
            f"{torch.__version__} does not have: add "
            f"transforms={{'{info.name}': [ToDtype('int64')]}}, or "
            "ToDtype('float32'), or use framework='numpy', 'jax' or 'dlpack'"
        )


class TorchFramework(Framework):
    takes_tensors = True

    def __init__(
        self, device: Tuple[int, int], fields: List[FieldInfo]
    ) -> None:
        super().__init__(device, fields)
        import torch
        import torch.utils.dlpack

        for info in fields:
            check_torch_dtype(torch, info)
        self._from_dlpack: Any = torch.utils.dlpack.from_dlpack
        self._stream_check = stream_check.start(torch)
        self._current_stream: Any = None
        if device[0] == CUDA:
            if not torch.cuda.is_available():
                raise InvalidArgument(
                    "the dataset is on a GPU, but torch "
                    f"{torch.__version__} cannot use one: install a torch with "
                    "CUDA, or use another framework"
                )
            self._current_stream = torch.cuda.current_stream

    def stream(self) -> int:
        if self._current_stream is None:
            return 0
        number: int = self._current_stream(self.device[1]).cuda_stream
        return number

    def wait(self, stream: Any, earlier: int) -> None:
        import torch

        waiting = _torch_stream(stream, self.device[1])
        copying = _torch_stream(earlier, self.device[1])
        if waiting == copying:
            return
        # A graph cannot wait for what is outside of it; torch waits for the
        # device before it begins a capture.
        if (
            waiting != torch.cuda.current_stream()
            or not torch.cuda.is_current_stream_capturing()
        ):
            waiting.wait_stream(copying)

    def from_tensors(
        self, addresses: Iterable[int], owners: List[Any], rows: int
    ) -> List[Any]:
        # No destructor, which would be called for every array.
        for address in addresses:
            owners.append(lent_capsule(address))
        arrays = [self._from_dlpack(capsule) for capsule in owners]
        if self._stream_check is not None:
            self._stream_check.add(
                array
                for i, array in enumerate(arrays)
                if not self.copied >> i & 1
            )
        return arrays

    def owns(self, owner: Any) -> bool:
        return is_taken(owner)

    def from_handle(self, handle: Handle, field: int, info: FieldInfo) -> Any:
        array = self._from_dlpack(owning_capsule(new_tensor(handle, field)))
        if self._stream_check is not None:
            self._stream_check.add([array])
        return array


class _Memory:
    """Base of a NumPy array; owns `tensor` once it is set."""

    __slots__ = ("__array_interface__", "tensor", "_delete")

    def __init__(self, interface: Dict[str, Any], delete: Any) -> None:
        self.tensor = 0
        self._delete = delete
        self.__array_interface__ = interface

    def __del__(self) -> None:
        # Unset if __init__ was interrupted before its first line.
        if getattr(self, "tensor", 0):
            self._delete(self.tensor)


class _Layout(NamedTuple):
    """A field as NumPy describes it."""

    sample_shape: Tuple[int, ...]
    strides_bytes: Tuple[int, ...]
    type_code: str
    view_type: Any  # None: no view


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
        self._asarray: Any = numpy.asarray
        self._delete = library.load().quick.tensor_delete
        self._view_types: Dict[str, Any] = {}
        for info in fields:
            if info.dtype == "bfloat16":
                if importlib.util.find_spec("ml_dtypes") is None:
                    raise InvalidArgument(
                        f"field '{info.name}' is bfloat16, which NumPy does "
                        "not have: use float16 or float32, install ml_dtypes, "
                        "or use framework='torch'"
                    )
                import ml_dtypes

                self._view_types[info.dtype] = numpy.dtype(ml_dtypes.bfloat16)
        self._type_codes = {
            name: ("V2" if name == "bfloat16" else numpy.dtype(name).str)
            for name in _BYTES
        }
        # Created once, since they are needed for every batch.
        self._layouts = [self._layout(info) for info in fields]

    def from_tensors(
        self, addresses: Iterable[int], owners: List[Any], rows: int
    ) -> List[Any]:
        arrays: List[Any] = []
        for address, layout in zip(addresses, self._layouts):
            memory = self._memory(address, layout, rows)
            owners.append(memory)
            memory.tensor = address
            arrays.append(self._array(memory, layout))
        return arrays

    def owns(self, owner: Any) -> bool:
        return bool(owner.tensor)

    def from_handle(self, handle: Handle, field: int, info: FieldInfo) -> Any:
        layout = self._layout(info)
        address = new_tensor(handle, field)
        memory = self._memory(
            address, layout, info.extent(handle.num_samples)
        )
        memory.tensor = address
        return self._array(memory, layout)

    def _layout(self, info: FieldInfo) -> _Layout:
        item = _BYTES[info.dtype]
        return _Layout(
            info.shape[1:],
            tuple(stride * item for stride in info.strides),
            self._type_codes[info.dtype],
            self._view_types.get(info.dtype),
        )

    def _memory(self, address: int, layout: _Layout, rows: int) -> _Memory:
        # DLManagedTensor begins with the data pointer.
        data = ctypes.c_void_p.from_address(address).value
        return _Memory(
            {
                "version": 3,
                "shape": (rows,) + layout.sample_shape,
                "strides": layout.strides_bytes,
                "typestr": layout.type_code,
                "data": (data, False),
            },
            self._delete,
        )

    def _array(self, memory: _Memory, layout: _Layout) -> Any:
        array = self._asarray(memory)
        view = layout.view_type
        return array if view is None else array.view(view)


class DlpackFramework(Framework):
    can_copy = False

    def from_handle(self, handle: Handle, field: int, info: FieldInfo) -> Any:
        return Tensor(handle, field, self.device, info)


class JaxFramework(Framework):
    def __init__(
        self, device: Tuple[int, int], fields: List[FieldInfo]
    ) -> None:
        super().__init__(device, fields)
        import jax.dlpack

        self._jax: Any = jax
        self._from_dlpack: Any = jax.dlpack.from_dlpack

    # XLA frees a buffer when its last use is enqueued on a stream that is not
    # told here, so the slot would be filled again while it is read: on a GPU
    # all fields are copies.
    lends_small = False

    def copies(self, info: FieldInfo, images: Container[str]) -> bool:
        return self.device[0] == CUDA or super().copies(info, images)

    def from_handle(self, handle: Handle, field: int, info: FieldInfo) -> Any:
        tensor = Tensor(handle, field, self.device, info)
        if info.dtype in _HALVED and not self._jax.config.jax_enable_x64:
            self._check_halved(tensor, info)
        return self._from_dlpack(tensor)

    def split_indices(
        self, handle: Handle, info: FieldInfo
    ) -> Tuple[Any, Any]:
        tensor = Tensor(handle, library.INDICES, self.device, info)
        halves = not self._jax.config.jax_enable_x64
        if self.device[0] == CPU:
            import numpy

            packed: Any = numpy.from_dlpack(tensor)
            if halves:
                _check_fits(_range(packed & 0xFFFFFFFF, numpy), info)
            # JAX makes 32 bits of them by itself.
            cpu = self._jax.devices("cpu")[0]
            return (
                self._jax.device_put(packed >> 32, cpu),
                self._jax.device_put(packed & 0xFFFFFFFF, cpu),
            )
        with self._enable_x64():
            packed = self._from_dlpack(tensor)
            datasets, indices = packed >> 32, packed & 0xFFFFFFFF
            if halves:
                _check_fits(_range(indices, self._jax.numpy), info)
                datasets = datasets.astype("int32")
                indices = indices.astype("int32")
            # The slot may go back then.
            return datasets.block_until_ready(), indices.block_until_ready()

    def _enable_x64(self) -> Any:
        enable: Any = getattr(self._jax, "enable_x64", None)
        if enable is None:  # of earlier versions
            import jax.experimental

            enable = jax.experimental.enable_x64
        return enable(True)

    def _check_halved(self, tensor: Tensor, info: FieldInfo) -> None:
        """Raises InvalidArgument if a value of a 64-bit field does not fit the
        32 bits that JAX makes of it, without a word."""
        if self.device[0] == CPU:
            import numpy

            values = _range(numpy.from_dlpack(tensor), numpy)
        else:
            with self._enable_x64():
                values = _range(
                    self._from_dlpack(tensor), self._jax.numpy
                )
        _check_fits(values, info)


def jax_array(array: Any, info: FieldInfo) -> Any:
    """Returns NumPy's array as JAX's. Raises InvalidArgument if a value does
    not fit the 32 bits that JAX makes of 64."""
    import jax
    import numpy

    if info.dtype in _HALVED and not jax.config.jax_enable_x64:
        _check_fits(_range(array, numpy), info)
    return jax.device_put(array)


def _check_fits(values: Tuple[Any, Any], info: FieldInfo) -> None:
    dtype, least, most = _HALVED[info.dtype]
    for value in values:
        if not least <= value <= most:
            raise InvalidArgument(
                f"field '{info.name}': {value} does not fit {dtype}, to "
                f"which JAX converts {info.dtype}: call jax.config.update("
                "'jax_enable_x64', True), leave the field out (fields=), "
                "or push it with smaller numbers"
            )


def _range(array: Any, module: Any) -> Tuple[Any, Any]:
    """Returns the least and the greatest value, without NaN."""
    if not array.size:
        return 0, 0
    if "float" in str(array.dtype):
        # The greatest that is finite: an infinite one stays as it is.
        array = module.where(module.isfinite(array), array, 0)
    return array.min().item(), array.max().item()


# What JAX makes of 64 bits unless jax_enable_x64 is set.
_FLOAT32_MAX = float.fromhex("0x1.fffffep127")
_HALVED = {
    "int64": ("int32", -(2**31), 2**31 - 1),
    "float64": ("float32", -_FLOAT32_MAX, _FLOAT32_MAX),
}


def item_bytes(dtype: str) -> int:
    """Returns the size of an element."""
    return _BYTES[dtype]


def size_bytes(dtype: str, shape: Tuple[int, ...]) -> int:
    """Returns the size of an array without gaps."""
    return _BYTES[dtype] * math.prod(shape)


def copy_of(array: Any) -> Any:
    """Returns a copy in the framework's own memory, with the same layout."""
    # JAX's arrays have a clone(), too, which shares the memory.
    if hasattr(array, "block_until_ready"):
        return _jax_copy(array)
    if hasattr(array, "clone"):  # torch
        return array.clone()
    if isinstance(array, Tensor):
        raise FailedPrecondition(
            "a datasetd.Tensor (framework='dlpack') cannot be copied: convert "
            "it to an array of a framework, for example with "
            "torch.from_dlpack, and copy that"
        )
    return array.copy("K") if hasattr(array, "strides") else array


def description(array: Any) -> str:
    """Returns dtype and shape, or the type if it has none."""
    if not hasattr(array, "dtype") or not hasattr(array, "shape"):
        return type(array).__name__
    dtype = str(array.dtype).replace("torch.", "")
    return f"{dtype} {list(array.shape)}"


def device_text(array: Any) -> str:
    """Returns the array's device; empty if it has none."""
    if isinstance(array, Tensor):
        kind, number = array.__dlpack_device__()
        return "cpu" if kind == CPU else f"cuda:{number}"
    if hasattr(array, "block_until_ready"):
        return ", ".join(map(str, array.devices()))
    if hasattr(array, "is_cuda"):  # torch
        return str(array.device)
    return "cpu" if hasattr(array, "strides") else ""


def as_list(array: Any) -> List[int]:
    """Returns the values of an array of indices."""
    if isinstance(array, Tensor):
        import numpy

        array = numpy.from_dlpack(array)
    result: List[int] = array.tolist()
    return result


def mask_like(
    array: Any, num_rows: int, num_false: int, group_size: int
) -> Any:
    """Returns a mask of the framework and device of `array`: true, but for the
    last `num_false` rows; in groups unless group_size is 0. A new one each
    time, since the job may change it."""
    num_true = num_rows - num_false
    if isinstance(array, Tensor):
        raise FailedPrecondition(
            "valid: framework='dlpack' has no memory for a mask: the last "
            "num_padding rows of a batch are padding"
        )
    if hasattr(array, "is_cuda"):  # torch
        mask = array.new_ones(num_rows, dtype=sys.modules["torch"].bool)
        if num_false:
            mask[num_true:] = False
        return mask.view(-1, group_size) if group_size else mask
    import numpy

    values = numpy.arange(num_rows) < num_true
    if group_size:
        values = values.reshape(-1, group_size)
    if hasattr(array, "block_until_ready"):
        (device,) = array.devices()
        return sys.modules["jax"].device_put(values, device)
    return values


def _jax_copy(array: Any) -> Any:
    import jax
    import numpy

    # JAX gives memory back late, on a thread of its own, if it was the input
    # of a computation. NumPy does at once.
    (device,) = array.devices()
    if device.platform == "cpu":
        return jax.device_put(numpy.array(array), device)
    return array.copy().block_until_ready()


def device_object(framework: str, device: Tuple[int, int]) -> Any:
    """Returns a device of DLPack as moved() takes it."""
    kind, number = device
    if framework != "jax":
        return "cpu" if kind == CPU else f"cuda:{number}"
    import jax

    if kind == CPU:
        return jax.devices("cpu")[0]
    (found,) = (
        one
        for one in jax.local_devices(backend="gpu")
        if one.local_hardware_id == number
    )
    return found


def moved(array: Any, device: Any, non_blocking: bool) -> Any:
    """Returns an array on `device`; the same array if it is there."""
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(array, jax.Array):
        return jax.device_put(array, device)
    if hasattr(array, "is_cuda"):  # torch
        return array.to(device, non_blocking=non_blocking)
    if str(device) == "cpu" and not isinstance(array, Tensor):
        return array
    raise InvalidArgument(
        f"to({str(device)!r}): a {type(array).__name__} cannot be moved: "
        "use framework='torch' or 'jax'"
    )


def stream_number(stream: Any) -> int:
    """Returns the number of a stream, given the object or the number."""
    for name in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, name):
            stream = getattr(stream, name)
            # Numba's is a ctypes.c_void_p, of value None for 0.
            return int(getattr(stream, "value", stream) or 0)
    return int(stream)


def _gpu_of(stream: Any) -> Optional[int]:
    """Returns the number of a stream object's GPU, if it says."""
    index: Optional[int] = getattr(
        getattr(stream, "device", None), "index", None
    )
    if index is None and getattr(stream, "device_id", -1) >= 0:
        index = stream.device_id  # CuPy's
    return index


def _torch_stream(stream: Any, gpu: int) -> Any:
    """Returns a stream as torch's object; a number is of `gpu`."""
    torch = sys.modules["torch"]
    if isinstance(stream, torch.cuda.Stream):
        return stream
    number, other = stream_number(stream), _gpu_of(stream)
    gpu = gpu if other is None else other
    # torch takes 0 for a stream that is to be made.
    if number in (0, 1):
        return torch.cuda.default_stream(gpu)
    return torch.cuda.ExternalStream(number, device=gpu)


def stream_number_on(device: Tuple[int, int], stream: Any) -> int:
    """Returns the number of a stream, for the library's feed on `device`.

    Every GPU's default stream has the number 0 or 1, which the library takes
    for the one of the feed's own GPU.
    """
    number = stream_number(stream)
    other = _gpu_of(stream)
    if (
        number in (0, 1)
        and device[0] == CUDA
        and other not in (None, device[1])
    ):
        raise InvalidArgument(
            f"record_stream: the default stream of cuda:{other} has no handle "
            f"of its own ({number} means that of cuda:{device[1]}, where the "
            f"batch is): do the work on a torch.cuda.Stream('cuda:{other}'), "
            "and record that"
        )
    return number


def record_stream(array: Any, stream: Any) -> None:
    """Keeps an array in torch's own device memory for `stream`; others are
    ignored."""
    if not getattr(array, "is_cuda", False):
        return
    stream_check.record_stream(
        array, _torch_stream(stream, array.device.index)
    )


_FRAMEWORKS: Dict[str, Type[Framework]] = {
    "torch": TorchFramework,
    "numpy": NumpyFramework,
    "jax": JaxFramework,
    "dlpack": DlpackFramework,
}


def resolve(name: Optional[str]) -> str:
    """Returns the framework's name; None: torch if installed, else NumPy."""
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
