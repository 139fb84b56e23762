"""The kernels as they are shipped, on drivers and GPUs of several years: which
machine code is taken, that the pixels are the host's, and what is refused."""

import itertools
import os
import re

import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()

from tests.conformance import loader_harness as loaders  # noqa: E402
from tests.deploy import source_build_job as job  # noqa: E402

if os.environ["KERNELS_NEED_CUDA"] != "12":
    pytest.skip("without a ptxas of CUDA 12 the kernels are of 13",
                allow_module_level=True)

# Capabilities, of which the daemon sees a GPU each, to the machine code.
_TAKEN = {"7.0": "sm_70", "7.5": "sm_75", "8.0": "sm_80", "8.6": "sm_80",
          "8.9": "sm_80", "9.0": "sm_90", "10.0": "sm_100", "12.0": "sm_120"}
# All, or a batch: the emulator takes its time.
_BATCH_SIZE, _NUM_BATCHES = (
    (100, 20) if os.environ.get("DATASETD_TEST_FULL") == "1" else (4, 1))


def _digest(daemon, device):
    """That of the first batches of what tests of packages draw."""
    folder = os.path.join(daemon.data_root, "d")
    if not os.path.exists(folder):
        os.makedirs(folder)
        job.write(folder)
    with daemon.connect() as client, job.loader(
            client, folder, device, _BATCH_SIZE, timeout=60, prefetch=1,
            framework="numpy" if device == "cpu" else "dlpack") as loader:
        return job.digest(
            loaders.Taken(batch).fields
            for batch in itertools.islice(loader, _NUM_BATCHES))


@pytest.fixture(scope="module", name="expected")
def _expected():
    with harness.Daemon() as daemon:
        return _digest(daemon, "cpu")


@pytest.mark.parametrize("version", [12000, 12020, 12040, 12080, 13000])
def test_every_driver_runs_what_it_can_read(expected, version, tmp_path):
    journal = tmp_path / "driver.log"
    # ABI 8, which the code for 10.0 and 12.0 has, came with 12.8.
    served = {capability: image for capability, image in _TAKEN.items()
              if version >= 12080 or len(capability) == 3}
    with harness.Daemon(devices=[], environment={
            "DATASETD_EMULATED_GPU_COMPUTE_CAPABILITY": ",".join(_TAKEN),
            "DATASETD_EMULATED_GPU_DRIVER_VERSION": str(version),
            "DATASETD_EMULATED_GPU_LOG": str(journal)}) as daemon:
        with daemon.connect() as client:
            devices = client.status()["devices"]
        assert [device["name"] for device in devices] == [
            f"cuda:{i}" for i in range(len(served))]
        for device, capability in zip(devices, served):
            assert device["description"].endswith(
                f", compute capability {capability}, driver of CUDA "
                f"12.{version % 1000 // 10}, kernels of CUDA 12.9"
                if version < 13000 else ", kernels of CUDA 12.9")
            assert _digest(daemon, device["name"]) == expected
        log = daemon.log()
    assert re.findall(r"cuModuleLoadData = 0 CUDA_SUCCESS: (\S+)",
                      journal.read_text()) == list(served.values())
    for i, capability in list(enumerate(_TAKEN))[len(served):]:
        assert f"cuda:{i} is not used" in log
        assert f"cuda:{i}, compute capability {capability}, cannot run" in log
        assert "machine code of CUDA 12.9 for 7.0, 7.5, 8.0, 9.0, 10.0" in log
        assert "update the NVIDIA driver" in log


if __name__ == "__main__":
    harness.main(__file__)
