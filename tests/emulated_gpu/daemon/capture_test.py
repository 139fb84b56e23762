"""A garbage collection while the job captures a CUDA graph frees a loader and
its batches: the capture stays valid, and the memory goes back afterwards."""

import ctypes
import gc

import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402

_NON_BLOCKING = 1
_GLOBAL = 0  # CU_STREAM_CAPTURE_MODE_GLOBAL


class _Stream:
    """A stream of the job, and its captures."""

    def __init__(self):
        self._driver = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self._stream = ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self._call("cuCtxPushCurrent_v2", context)
        self._call("cuStreamCreate", ctypes.byref(self._stream),
                   _NON_BLOCKING)

    def _call(self, name, *arguments):
        result = getattr(self._driver, name)(*arguments)
        assert result == 0, f"{name}: {result}"

    def begin_capture(self):
        self._call("cuStreamBeginCapture_v2", self._stream, _GLOBAL)

    def end_capture(self):
        """Fails if the capture was invalidated."""
        graph = ctypes.c_void_p()
        self._call("cuStreamEndCapture", self._stream, ctypes.byref(graph))
        self._call("cuGraphDestroy", graph)


@pytest.mark.parametrize("export", ["cuda_vmm_fd", "cuda_ipc_handle"])
def test_a_collection_during_a_capture(export):
    with harness.Daemon(devices=["cuda:0"], slab_export=export) as daemon:
        daemon.write_dataset(100)
        with daemon.connect() as client:
            dataset = daemon.load(client)
            stream = _Stream()
            loader = datasetd.DataLoader(dataset, batch_size=10,
                                         framework="dlpack")
            garbage = [loader, next(iter(loader))]
            garbage.append(garbage)
            del loader, garbage
            stream.begin_capture()
            gc.collect()
            harness.poll_until(
                lambda: int(client.status()["devices"][0]["slab_bytes"]) == 0,
                "the slab's end")
            stream.end_capture()


if __name__ == "__main__":
    harness.main(__file__)
