"""Streams of a batch, from Python."""

import contextlib
import ctypes
import types

import numpy as np
import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402
from datasetd._batches import frameworks, transfer  # noqa: E402

from tests.conformance import loader_harness as loaders  # noqa: E402

_NUM_SAMPLES = 120
_PER_THREAD = 2  # CU_STREAM_PER_THREAD


@contextlib.contextmanager
def _loader(device="cuda:0", **options):
    """(loader, planes of the images, labels)."""
    with harness.Daemon(devices=[device]) as daemon:
        daemon.write_dataset(_NUM_SAMPLES)
        with daemon.connect() as client:
            dataset = daemon.load(client)
            with datasetd.DataLoader(dataset, **{
                    "batch_size": 10, "framework": "dlpack", "timeout": 60,
                    **options}) as loader:
                yield loader, daemon.planes, daemon.labels


def test_the_stream_per_thread_is_refused():
    """The thread that frees the batch has another."""
    with _loader() as (loader, *_):
        batch = next(iter(loader))
        for call in (lambda: batch.record_stream(_PER_THREAD),
                     lambda: batch.image.__dlpack__(stream=_PER_THREAD)):
            with pytest.raises(ValueError, match="pass a real stream") as error:
                call()
            assert isinstance(error.value, datasetd.InvalidArgument)
        batch.record_stream(1)
        batch.image.__dlpack__(stream=1)


def _torch_stream(number, device_index):
    """As a torch.cuda.Stream."""
    return types.SimpleNamespace(
        cuda_stream=number, device=types.SimpleNamespace(index=device_index))


def test_the_default_stream_of_another_gpu_is_refused():
    """Its handle is that of the feed's own."""
    with _loader() as (loader, *_):
        batch = next(iter(loader))
        for number in (0, 1):
            with pytest.raises(
                datasetd.InvalidArgument,
                match=r"the default stream of cuda:1 has no handle of its own.*"
                      r"do the work on a torch.cuda.Stream\('cuda:1'\)"
            ):
                batch.record_stream(_torch_stream(number, 1))
            batch.record_stream(_torch_stream(number, 0))


class _Gpu:
    """The job's part of the driver, and its streams, which are held back."""

    def __init__(self):
        self._driver = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxPushCurrent_v2", context)
        self.taking, self.copying, self.third = (
            self._stream() for _ in range(3))
        self.call("datasetd_emulated_gpu_hold", self.copying, 1)
        self.current = self.taking

    def _stream(self):
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), 1)
        return stream

    def call(self, name, *arguments):
        result = getattr(self._driver, name)(*arguments)
        assert result == 0, f"{name}: {result}"

    def allocate(self, size):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), size)
        return address

    def wait(self, stream, earlier):
        event = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(event), 2)
        self.call("cuEventRecord", event, ctypes.c_void_p(earlier))
        self.call("cuStreamWaitEvent", ctypes.c_void_p(stream), event, 0)
        self.call("cuEventDestroy_v2", event)

    def is_done(self, stream):
        return self._driver.cuStreamQuery(stream) == 0

    def read(self, array):
        """When the work of all streams is done."""
        for stream in (self.copying, self.third):
            self.call("datasetd_emulated_gpu_hold", stream, 0)
        self.call("cuCtxSynchronize")
        data = np.empty(array.size, np.uint8)
        self.call("cuMemcpyDtoH_v2", ctypes.c_void_p(data.ctypes.data),
                  array.address, array.size)
        return data


class _Array:
    """Device memory, whose copies the current stream makes."""

    def __init__(self, gpu, address, size, owner=None):
        self.gpu, self.address, self.size = gpu, address, size
        self._owner = owner

    def clone(self):
        copy = self.gpu.allocate(self.size)
        self.gpu.call("cuMemcpyDtoDAsync_v2", copy, self.address,
                      ctypes.c_size_t(self.size), self.gpu.current)
        return _Array(self.gpu, copy, self.size)


# The tests have no torch with CUDA: this has the part that matters.
class _Framework(frameworks.Framework):
    gpu = None
    # The names of those that are always copied.
    small = ("indices",)

    def stream(self):
        return self.gpu.current.value

    def wait(self, stream, earlier):
        self.gpu.wait(stream, earlier)

    def copies(self, info, images):
        return info.name in self.small

    def from_handle(self, handle, field, info):
        tensor = frameworks.Tensor(handle, field, self.device, info)
        capsule = tensor.__dlpack__()
        view = loaders._DLTensor.from_address(
            loaders._capsule_pointer(capsule, b"dltensor"))
        size = int(np.prod(tensor.shape)) * (view.bits // 8)
        return _Array(self.gpu, ctypes.c_uint64(view.data), size, capsule)


@pytest.mark.parametrize("copied", ["clone", "indices"])
def test_copies_on_another_stream_are_of_their_batch(copied, monkeypatch):
    """The batch is taken on one stream and copied on another, which is late."""
    monkeypatch.setitem(frameworks._FRAMEWORKS, "dlpack", _Framework)
    with _loader(prefetch=2) as (loader, planes, _):
        gpu = _Framework.gpu = _Gpu()
        batches = iter(loader)
        batch = next(batches)
        gpu.current = gpu.copying
        copy = batch.clone() if copied == "clone" else batch.indices
        del batch
        # The first stream waits for the copy. More batches than slots: each that
        # is free is filled again.
        gpu.current = gpu.third
        for _ in range(10):
            next(batches)
        if copied == "clone":
            assert (gpu.read(copy.image) == planes[:10].reshape(-1)).all()
        else:
            assert gpu.read(copy).view(np.int64).tolist() == list(range(10))


def test_a_view_of_the_indices_is_of_the_stream_that_asks(monkeypatch):
    """Those of a large batch are no copy."""
    monkeypatch.setitem(frameworks._FRAMEWORKS, "dlpack", _Framework)
    monkeypatch.setattr(_Framework, "small", ())
    with _loader(prefetch=2) as (loader, *_):
        gpu = _Framework.gpu = _Gpu()
        batches = iter(loader)
        batch = next(batches)
        gpu.current = gpu.copying
        indices = batch.indices
        copy = indices.clone()
        del batch, indices
        gpu.current = gpu.third
        for _ in range(10):
            next(batches)
        assert gpu.read(copy).view(np.int64).tolist() == list(range(10))


@pytest.mark.parametrize("use", ["peek", "record_stream", "clone", "held"])
def test_a_stream_waits_for_copies_that_another_makes(use, monkeypatch):
    """The stream that took the batch, and copies its label, is late."""
    monkeypatch.setitem(frameworks._FRAMEWORKS, "dlpack", _Framework)
    monkeypatch.setattr(_Framework, "small", ("indices", "label"))
    with _loader(prefetch=2, on_held="copy") as (loader, planes, labels):
        gpu = _Framework.gpu = _Gpu()
        gpu.current = gpu.copying
        row = 0
        if use == "peek":
            loader.peek()
        else:
            batches = iter(loader)
            # Those that are held from the start leave copies only.
            held = [next(batches) for _ in range(4 if use == "held" else 1)]
            batch, row = held[-1], 10 * (len(held) - 1)
        gpu.current = gpu.third
        if use == "peek":
            batch = next(iter(loader))
        elif use == "clone":
            batch = batch.clone()
        else:
            batch.record_stream(gpu.third.value)
        label, image = batch.label.clone(), batch.image.clone()
        gpu.call("datasetd_emulated_gpu_advance", gpu.third)
        assert not gpu.is_done(gpu.third)
        assert (gpu.read(label).view(np.int64) == labels[row:row + 10]).all()
        assert (gpu.read(image) == planes[row:row + 10].reshape(-1)).all()


def test_an_interrupted_batch_is_of_the_stream_that_gets_it(monkeypatch):
    monkeypatch.setitem(frameworks._FRAMEWORKS, "dlpack", _Framework)

    def interrupt(*_):
        monkeypatch.undo()
        raise KeyboardInterrupt

    with _loader(prefetch=2) as (loader, planes, _):
        gpu = _Framework.gpu = _Gpu()
        batches = iter(loader)
        monkeypatch.setattr(transfer.Transfer, "finish", interrupt)
        with pytest.raises(KeyboardInterrupt):
            next(batches)
        gpu.current = gpu.copying
        image = next(batches).image.clone()
        gpu.current = gpu.third
        for _ in range(10):
            next(batches)
        assert (gpu.read(image) == planes[:10].reshape(-1)).all()


def test_on_the_host_streams_mean_nothing():
    with _loader(device="cpu") as (loader, *_):
        batch = next(iter(loader))
        batch.record_stream(_PER_THREAD)
        batch.image.__dlpack__(stream=_PER_THREAD)


if __name__ == "__main__":
    harness.main(__file__)
