"""Batches for JAX on a GPU outlive the work that reads them.

A stand-in has the rule of XLA that matters here: work is enqueued and runs
late, and a buffer is freed when its last use is enqueued. It reads device
memory through the emulated driver. JAX itself needs the CUDA runtime.
"""

import importlib.machinery
import sys
import types

import numpy as np
import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402

from tests.conformance import loader_harness as loaders  # noqa: E402

_NUM_SAMPLES = 120
_BATCH_SIZE = 10


class _Device:
    """Work in the order in which it was enqueued."""

    def __init__(self):
        self._queue = []

    def enqueue(self, work):
        self._queue.append(work)

    def run(self):
        queue, self._queue = self._queue, []
        for work in queue:
            work()


class _Array:
    """A buffer; a function gives its elements when the work that reads it
    runs."""

    def __init__(self, device, read, keeper=None):
        self.device = device
        self.read = read
        self._keeper = keeper  # of memory that is not XLA's

    def block_until_ready(self):
        self.device.run()
        return self

    def copy(self):
        return _computed(self.device, [self], lambda data: data)

    def devices(self):
        return [types.SimpleNamespace(platform="gpu")]


def _computed(device, inputs, function):
    """The result of work on the inputs, which it does not keep."""
    reads = [each.read for each in inputs]
    result = []
    device.enqueue(lambda: result.append(function(*[read()
                                                    for read in reads])))
    return _Array(device, lambda: result[0])


@pytest.fixture(name="device")
def _device(monkeypatch):
    device = _Device()

    def from_dlpack(tensor):
        # The stream that the consumer says is not the one that computes.
        capsule = tensor.__dlpack__(stream=1)
        shape = tensor.shape
        view = loaders._DLTensor.from_address(
            loaders._capsule_pointer(capsule, b"dltensor"))
        address, ordinal = view.data, view.device_id
        size = int(np.prod(shape)) * (view.bits // 8)
        dtype = np.uint8 if view.bits == 8 else np.int64

        def read():
            data = np.empty(size, np.uint8)
            loaders._copy_from_gpu(data.ctypes.data, address, size, ordinal)
            return data.view(dtype).reshape(shape)

        return _Array(device, read, keeper=capsule)

    jax = types.ModuleType("jax")
    jax.__spec__ = importlib.machinery.ModuleSpec("jax", None)
    for name, members in {"dlpack": {"from_dlpack": from_dlpack},
                          "numpy": {},
                          "tree_util": {"register_pytree_node":
                                        lambda *_: None}}.items():
        module = types.ModuleType(f"jax.{name}")
        vars(module).update(members)
        setattr(jax, name, module)
        monkeypatch.setitem(sys.modules, f"jax.{name}", module)
    jax.config = types.SimpleNamespace(jax_enable_x64=True)
    monkeypatch.setitem(sys.modules, "jax", jax)
    return device


def test_a_step_that_runs_late_reads_its_own_batch(device):
    with harness.Daemon(devices=["cuda:0"]) as daemon:
        daemon.write_dataset(_NUM_SAMPLES)
        planes = daemon.planes
        with daemon.connect() as client:
            dataset = daemon.load(client)
            steps = []
            with datasetd.DataLoader(dataset, batch_size=_BATCH_SIZE,
                                     prefetch=2, framework="jax",
                                     timeout=60) as loader:
                # More batches than slots: each is filled again and again.
                for images, _ in loader:
                    steps.append(_computed(device, [images],
                                           lambda data: data.copy()))
                    del images
            device.run()
            for i, step in enumerate(steps):
                rows = slice(i * _BATCH_SIZE, (i + 1) * _BATCH_SIZE)
                assert (step.read() == planes[rows]).all(), f"batch {i}"
            assert len(steps) == _NUM_SAMPLES // _BATCH_SIZE


if __name__ == "__main__":
    harness.main(__file__)
