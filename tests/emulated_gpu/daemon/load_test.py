"""Loads with pretransforms on the emulated GPU: what the driver is asked."""

import os

import numpy as np

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


if __name__ == "__main__":
    harness.main(__file__)
