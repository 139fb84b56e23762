"""A daemon's errors for GPUs and drivers that it cannot use, and the memory
that it takes of a GPU that it can."""

import os
import tempfile

import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()

_MIB = 1 << 20
# The major version of CUDA whose drivers run the kernels of this build.
_NEEDED = int(os.environ["KERNELS_NEED_CUDA"])


def _refusal(**variables):
    """The log of a daemon that must not start."""
    environment = {f"DATASETD_EMULATED_GPU_{name.upper()}": str(value)
                   for name, value in variables.items()}
    with harness.Daemon(devices=["cuda:0"], await_ready=False,
                        environment=environment) as daemon:
        assert daemon.wait() != 0
        return daemon.log()


def _serve(**variables):
    """The names of the devices of a daemon to which none is named, its log,
    and the driver's calls."""
    environment = {f"DATASETD_EMULATED_GPU_{name.upper()}": str(value)
                   for name, value in variables.items()}
    with tempfile.TemporaryDirectory() as folder:
        journal = os.path.join(folder, "driver.log")
        environment["DATASETD_EMULATED_GPU_LOG"] = journal
        with harness.Daemon(devices=[], environment=environment) as daemon:
            daemon.write_dataset(20)
            with daemon.connect() as client:
                daemon.load(client)
                names = [device["name"] for device in
                         client.status()["devices"]]
            log = daemon.log()
        with open(journal, encoding="utf-8") as lines:
            return names, log, lines.read()


def test_a_gpu_that_the_build_has_no_code_for():
    log = _refusal(compute_capability="5.0")
    assert "cuda:0, compute capability 5.0, cannot run the kernels" in log
    assert "this build, which has machine code of CUDA" in log
    assert "CUDA_ERROR_NO_BINARY_FOR_GPU" in log
    assert "--define=cuda_archs" in log


@pytest.mark.parametrize("error, name, remedy", [
    (200, "CUDA_ERROR_INVALID_IMAGE", "update the NVIDIA driver"),
    (218, "CUDA_ERROR_INVALID_PTX", "update the NVIDIA driver"),
    (221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "libnvidia-ptxjitcompiler"),
    (222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "update the NVIDIA driver"),
    (223, "CUDA_ERROR_JIT_COMPILATION_DISABLED", "CUDA_DISABLE_PTX_JIT"),
])
def test_ptx_that_the_driver_cannot_compile(error, name, remedy):
    log = _refusal(faults=f"cuModuleLoadData@1={error}")
    assert "compute capability 9.0, cannot run the kernels" in log
    assert name in log
    assert remedy in log


def test_a_driver_that_is_too_old():
    log = _refusal(driver_version=11080)
    assert "the driver is of CUDA 11.8" in log
    assert "install a driver of CUDA 12.0 or later" in log


@pytest.mark.skipif(_NEEDED == 12, reason="12.0 is the oldest driver")
def test_a_driver_that_is_too_old_for_the_kernels():
    log = _refusal(driver_version=(_NEEDED - 1) * 1000 + 20)
    assert (f"the driver is of CUDA {_NEEDED - 1}.2, and datasetd's kernels "
            f"need {_NEEDED}.0 (R" in log)
    assert ("update the driver, build datasetd with a ptxas of CUDA "
            f"{_NEEDED - 1} (deploy/install_deps.sh), or use device cpu" in log)


def test_the_oldest_driver_of_the_toolkits_major_version():
    with harness.Daemon(devices=["cuda:0"], environment={
            "DATASETD_EMULATED_GPU_DRIVER_VERSION":
            str(_NEEDED * 1000)}) as daemon:
        with daemon.connect() as client:
            assert client.status()["devices"][0]["name"] == "cuda:0"


@pytest.mark.skipif(_NEEDED == 12, reason="12.0 is the oldest driver")
def test_unnamed_gpus_of_an_old_driver_are_as_none():
    names, log, calls = _serve(devices=2,
                               driver_version=(_NEEDED - 1) * 1000 + 20)
    assert names == ["cpu"]
    for gpu in ("cuda:0", "cuda:1"):
        assert (f"{gpu} is not used (the driver is of CUDA {_NEEDED - 1}.2, "
                f"and datasetd's kernels need {_NEEDED}.0" in log)
    assert "none of the GPUs can be used: serving from host memory" in log
    # No context takes memory for nothing.
    assert "cuDevicePrimaryCtxRetain =" not in calls


@pytest.mark.parametrize("variables, reason", [
    # 64 multiprocessors of 2048 threads, each with 512 bytes and a stack.
    ({"memory_mib": "64,4096", "multiprocessors": 64},
     "cuLaunchKernel: CUDA_ERROR_OUT_OF_MEMORY"),
    ({"compute_capability": "6.1,9.0"}, "compute capability 6.1, cannot run"),
    ({"faults": "cuDevicePrimaryCtxRetain@1=46"},
     "CUDA_ERROR_DEVICE_UNAVAILABLE"),
    # After these a device is of no more use; that of no other ends the daemon.
    ({"faults": "0/kernel@1=700"}, "CUDA_ERROR_ILLEGAL_ADDRESS"),
    ({"faults": "0/cuMemGetInfo_v2@1+=719"}, "CUDA_ERROR_LAUNCH_FAILED"),
])
def test_an_unnamed_gpu_that_cannot_be_used_is_left_out(variables, reason):
    names, log, calls = _serve(devices=2, **variables)
    assert names == ["cuda:1"]
    assert "cuda:0 is not used (" in log
    assert reason in log
    assert "cuda:1 is not used" not in log
    assert "from host memory" not in log
    if "cuDevicePrimaryCtxRetain" not in str(variables):
        assert calls.count("cuDevicePrimaryCtxRelease_v2 =") == 1


def test_the_host_serves_if_no_unnamed_gpu_can():
    names, log, _ = _serve(devices=2, compute_capability="6.1",
                           faults="cuDevicePrimaryCtxRetain@2=2")
    assert names == ["cpu"]
    assert "cuda:0 is not used (" in log
    assert "cuda:1 is not used (" in log
    assert "none of the GPUs can be used: serving from host memory" in log


def test_no_memory_for_the_kernels_stacks():
    # The second launch is that of the chains.
    log = _refusal(faults="cuLaunchKernel@2=2")
    assert "cuLaunchKernel: CUDA_ERROR_OUT_OF_MEMORY" in log


def test_the_kernels_stacks_are_not_in_the_budget():
    """Their memory is taken before what is left is counted."""
    with harness.Daemon(devices=["cuda:0"], memory_budget_mib=0, environment={
            "DATASETD_EMULATED_GPU_MEMORY_MIB": "256",
            "DATASETD_EMULATED_GPU_MULTIPROCESSORS": "16"}) as daemon:
        with daemon.connect() as client:
            budget = int(client.status()["devices"][0]["memory_budget_bytes"])
    # 16 multiprocessors of 2048 threads, each with 512 bytes and a stack.
    assert budget < 0.9 * (256 * _MIB - 16 * 2048 * 512)
    assert budget > 64 * _MIB


def test_a_fault_of_a_kernel_at_start_is_an_error():
    log = _refusal(faults="kernel@1=700")
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in log


if __name__ == "__main__":
    harness.main(__file__)
