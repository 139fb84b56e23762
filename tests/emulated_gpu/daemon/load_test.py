"""Loads with pretransforms on the emulated GPU: what the driver is asked."""

import os

import numpy as np
import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()

from datasetd import transforms as T  # noqa: E402

_NUM_SAMPLES = 48
_EXTENT = 1024  # eight images as they are read are a chunk


def _calls(log):
    """[(thread, function, detail)] of the driver's log."""
    calls = []
    for line in log.read_text().splitlines():
        _, thread, function, *rest = line.split(" ", 3)
        calls.append((thread, function, rest[0] if rest else ""))
    return calls


def test_a_load_copies_each_chunk_once_and_asks_for_nothing_back(tmp_path):
    log = tmp_path / "driver.log"
    generator = np.random.default_rng(3)
    with harness.Daemon(
            devices=["cuda:0"],
            environment={"DATASETD_EMULATED_GPU_LOG": str(log)}) as daemon:
        images = generator.integers(
            0, 256, (_NUM_SAMPLES, _EXTENT, _EXTENT, 1), dtype=np.uint8)
        np.save(os.path.join(daemon.data_root, "image.npy"), images)
        with daemon.connect() as client:
            at_start = len(_calls(log))
            dataset = client.load_dataset(
                "d", format="npy", path=daemon.data_root,
                pretransforms={"image": [T.CenterCrop(16)]})
            assert dataset.num_samples == _NUM_SAMPLES
            calls = _calls(log)[at_start:]
    # The thread that loads is the one that copies.
    thread = next(thread for thread, function, _ in calls
                  if function.startswith("cuMemcpyHtoD"))
    names = [function for caller, function, _ in calls if caller == thread]
    copies = [name for name in names if name.startswith("cuMemcpyHtoD")]
    assert len(copies) == _NUM_SAMPLES // 8
    assert not [name for _, name, _ in calls if name == "cuLaunchKernel"]
    assert not [name for name in names if name.startswith("cuMemcpyDtoH")]
    assert not [call for call in calls if call[1] == "cuCtxSynchronize"]
    assert not [call for call in calls if "spins" in call[2]]


@pytest.mark.parametrize("attributes, registers", [
    ("", True),
    # CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM: memory of cuMemHostAlloc alone
    # has one address for host and device.
    ("91=0", False),
])
def test_pinned_samples_are_registered_and_given_back(
        tmp_path, attributes, registers):
    log = tmp_path / "driver.log"
    with harness.Daemon(
            devices=["cuda:0"], pinned_budget_mib=64,
            environment={"DATASETD_EMULATED_GPU_LOG": str(log),
                         "DATASETD_EMULATED_GPU_ATTRIBUTES": attributes,
                         }) as daemon:
        images = np.arange(40 * 64, dtype=np.uint8).reshape(40, 8, 8, 1)
        np.save(os.path.join(daemon.data_root, "image.npy"), images)
        with daemon.connect() as client:
            dataset = client.load_dataset(
                "d", format="npy", path=daemon.data_root, residency="pinned")
            assert dataset.residency == "pinned"
            dataset.close()
            client.unload_dataset("d")
            harness.poll_until(
                lambda: int(client.status()["devices"][0]["pinned_bytes"]) == 0,
                "the memory's return")
    names = [function for _, function, _ in _calls(log)]
    for function in ("cuMemHostRegister_v2", "cuMemHostUnregister"):
        assert names.count(function) == (1 if registers else 0), function


if __name__ == "__main__":
    harness.main(__file__)
