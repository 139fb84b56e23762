"""Reads copies of samples from the daemon, without a feed."""

from __future__ import annotations

import array
import contextlib
import ctypes
import importlib.util
import json
import math
import weakref
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
)

from .._arguments import encode, nanoseconds
from .._batches.batch import Batch, Detached, batch_class
from .._batches.dlpack import FieldInfo
from .._batches.frameworks import check_torch_dtype, item_bytes, jax_array
from .._connection import library as _library
from .._descriptions import dtype_of
from ..errors import DeadlineExceeded, InvalidArgument

# Makes an array of the library's memory: of FieldInfo, the offset in bytes, and
# whether a copy keeps the order in memory.
_Make = Callable[[FieldInfo, int, bool], Any]


class _Read:
    """Copies of samples in the library's memory, until close()."""

    def __init__(
        self,
        dataset: Any,
        indices: Any,
        request: Dict[str, Any],
        timeout: Optional[float],
    ) -> None:
        library = _library.load()
        handle = ctypes.c_void_p()
        # Before the handle exists, since Ctrl-C may come right after.
        self.close = weakref.finalize(self, _free, library, handle)
        self.close.atexit = False  # goes with the process
        request["dataset"] = dataset.name
        request["content_hash"] = dataset.content_hash
        numbers = array.array("q", indices.tobytes())
        address, count = numbers.buffer_info()
        text = ctypes.c_void_p()
        with dataset._session.connection().used() as client:
            try:
                _library.call(
                    library.read_samples,
                    client,
                    encode(request),
                    address,
                    count,
                    -1 if timeout is None else nanoseconds(timeout),
                    ctypes.byref(handle),
                    ctypes.byref(text),
                )
            except DeadlineExceeded as error:
                if not timeout:
                    raise
                raise DeadlineExceeded(
                    f"samples were not read within {timeout} s (timeout=): "
                    f"{error}"
                ) from None
        info = json.loads(library.take_text(text))
        self.fields: List[Dict[str, Any]] = info["fields"]
        size = int(info["size_bytes"])
        self.memory = (ctypes.c_char * size).from_address(
            library.samples_data(handle) or 0
        )

    def values(self, make: _Make) -> List[Any]:
        """Returns what `make` makes of each field, of ragged ones a list."""
        return [self._value(field, make) for field in self.fields]

    def _value(self, field: Dict[str, Any], make: _Make) -> Any:
        message = field["array"]
        info = FieldInfo(
            message["name"],
            dtype_of(message),
            tuple(map(int, message["shape"])),
            tuple(map(int, message["strides"])),
        )
        offset = int(message["offset_bytes"])
        if -1 not in info.shape:
            return make(info, offset, True)
        count = info.shape[0]
        begin = int(field["sizes_offset_bytes"])
        sizes = memoryview(self.memory).cast("B")[begin : begin + 8 * count]
        numbers = iter(sizes.cast("I"))
        result = []
        for height, width in zip(numbers, numbers):
            one = _of_size(info, height, width)
            result.append(make(one, offset, False))
            offset += math.prod(one.shape) * item_bytes(info.dtype)
        return result


def _of_size(info: FieldInfo, height: int, width: int) -> FieldInfo:
    """Returns one sample of a field whose samples differ in size: [N, C, -1,
    -1], or sequences [N, -1] or [N, -1, C]."""
    if len(info.shape) == 4:
        channels = info.shape[1]
        return info._replace(
            shape=(channels, height, width),
            strides=(1, width * channels, channels),
        )
    inner = info.shape[2:]
    return info._replace(
        shape=(height, *inner), strides=(math.prod(inner), 1)[: 1 + len(inner)]
    )


def _free(library: _library.Library, handle: ctypes.c_void_p) -> None:
    if handle:
        library.samples_close(handle)


def read(
    dataset: Any,
    indices: Any,
    framework: str,
    fields: Sequence[str] = (),
    options: Optional[Mapping[str, Any]] = None,
    seed: int = 0,
    epoch: int = 0,
    timeout: Optional[float] = 0,
    keeps_datasets: bool = False,
    window_order: Optional[Mapping[str, Any]] = None,
) -> Batch[Any]:
    """Returns a Batch of copies of samples, in host memory; a field whose
    samples differ in size is a list of arrays.

    Raises FailedPrecondition if the daemon's dataset is not `dataset` any more.

    Args:
      dataset: a Dataset.
      indices: int64, a NumPy array or an array.array.
      framework: of the arrays: a name of _batches.frameworks, or "bits" or
        "floats" for NumPy with bfloat16 as int16 or float32.
      fields: their names; none: all.
      options: FieldOptions messages by field.
      timeout: seconds; 0: those of every call; None: no limit.
      keeps_datasets: evicts no unused dataset.
      window_order: a WindowOrder message: the indices are of windows.
    """
    request = {
        "field_names": list(fields),
        "fields": dict(options or {}),
        "seed": str(seed),
        "epoch": str(epoch),
        "keeps_datasets": keeps_datasets,
    }
    if window_order is not None:
        request["window_order"] = dict(window_order)
    done = _Read(dataset, indices, request, timeout)
    try:
        values = done.values(_maker(framework, done.memory))
    finally:
        done.close()
    batch = batch_class(f["array"]["name"] for f in done.fields)(values)
    batch._handle = Detached(
        epoch, 0, len(indices), 0, _index_array(framework, indices)
    )
    return batch


@contextlib.contextmanager
def column_read(dataset: Any, indices: Any, field: str) -> Iterator[Any]:
    """Yields a field of some samples as read() returns it with "floats". Arrays
    may lie in memory that is freed afterwards."""
    done = _Read(dataset, indices, {"field_names": [field]}, 0)
    try:
        (values,) = done.values(_numpy_maker(done.memory, "floats", False))
        yield values
        del values
    finally:
        done.close()


def _maker(framework: str, memory: Any) -> _Make:
    if framework == "torch":
        return _torch_maker(memory)
    # As NumPy's arrays have __dlpack__, they also stand for "dlpack".
    make = _numpy_maker(memory, framework)
    if framework != "jax":
        return make

    def make_jax(info: FieldInfo, offset: int, keeps_order: bool) -> Any:
        return jax_array(make(info, offset, keeps_order), info)

    return make_jax


def _torch_maker(memory: Any) -> _Make:
    import torch

    def make(info: FieldInfo, offset: int, keeps_order: bool) -> Any:
        check_torch_dtype(torch, info)
        dtype = getattr(torch, info.dtype)
        count = math.prod(info.shape)
        if not count:
            return torch.empty(info.shape, dtype=dtype)
        flat = torch.frombuffer(memory, dtype=dtype, count=count, offset=offset)
        return flat.as_strided(info.shape, info.strides).clone(
            memory_format=torch.preserve_format
            if keeps_order
            else torch.contiguous_format
        )

    return make


def _numpy_maker(
    memory: Any, framework: str, copies: bool = True
) -> _Make:
    import numpy

    def dtype_of_array(info: FieldInfo) -> Any:
        if info.dtype != "bfloat16":
            return numpy.dtype(info.dtype)
        if framework in ("bits", "floats"):
            return numpy.dtype("int16")
        if importlib.util.find_spec("ml_dtypes") is None:
            raise InvalidArgument(
                f"field '{info.name}' is bfloat16, which NumPy does not have: "
                "install ml_dtypes, or use framework='torch'"
            )
        import ml_dtypes

        return numpy.dtype(ml_dtypes.bfloat16)

    def make(info: FieldInfo, offset: int, keeps_order: bool) -> Any:
        dtype = dtype_of_array(info)
        view: Any = numpy.ndarray(
            info.shape,
            dtype,
            memory,
            offset,
            [stride * dtype.itemsize for stride in info.strides],
        )
        if info.dtype == "bfloat16" and framework == "floats":
            # A bfloat16 is the upper half of a float32.
            wide = view.astype(numpy.int32) << 16
            return wide.view(numpy.float32)
        if not copies:
            return view
        return view.copy("K" if keeps_order else "C")

    return make


def _index_array(framework: str, indices: Any) -> Any:
    if framework == "torch":
        import torch

        return torch.frombuffer(
            bytearray(indices.tobytes()), dtype=torch.int64
        )
    import numpy

    result: Any = numpy.array(indices, numpy.int64)
    if framework == "jax":
        return jax_array(result, FieldInfo("indices", "int64", (), ()))
    return result


__all__ = ["column_read", "read"]
