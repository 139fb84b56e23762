"""The doctor on machines with emulated GPUs: it describes them, and tries each
way to share their memory with a daemon of its own."""

import json
import os
import re
import subprocess

import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()

_COMPUTE_MODE = "20"  # of CUdevice_attribute
# The major version of CUDA whose drivers run the kernels of this build.
_NEEDED = int(os.environ["KERNELS_NEED_CUDA"])


class _Doctor:
    """One run: its exit code, and its findings. `machine` has the emulated
    driver's variables."""

    def __init__(self, *arguments, environment=None, **machine):
        machine = {f"DATASETD_EMULATED_GPU_{key}": str(value)
                   for key, value in machine.items()}
        with harness.Daemon() as daemon:
            done = subprocess.run(
                [harness.runfile("client/ctl/datasetctl"), "--address",
                 daemon.socket_path, "--json", "doctor", *arguments],
                stdout=subprocess.PIPE, check=False,
                timeout=harness.DEADLINE_SECONDS,
                env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": "", **machine,
                     **(environment or {})})
        self.code = done.returncode
        self.findings = json.loads(done.stdout)["findings"]

    def all(self, check):
        return [(f["severity"], f["text"]) for f in self.findings
                if f["check"] == check]

    def one(self, check):
        found = [f for f in self.findings if f["check"] == check]
        assert len(found) == 1, self.findings
        return found[0]


def _doctor(**options):
    return _Doctor("--no_sharing", **options)


def test_gpus_are_described():
    doctor = _doctor(DEVICES=2, DRIVER_VERSION=_NEEDED * 1000 + 80)
    driver = doctor.one("GPU driver")
    assert driver["severity"] == "ok"
    assert driver["text"].startswith(f"CUDA {_NEEDED}.8, 2 GPUs")
    assert f"kernels of CUDA {_NEEDED}." in driver["text"]
    assert f"need a driver of CUDA {_NEEDED}.0 (R5" in driver["text"]
    system = doctor.one("system")
    assert system["severity"] == "ok"
    assert re.match(r"Linux \S+ \(5\.6 or newer is needed\), glibc 2\.\d+ "
                    r"\(the packages need 2\.28", system["text"])
    assert doctor.all("compute mode") == [
        ("ok", "GPU 0 (Emulated GPU): DEFAULT"),
        ("ok", "GPU 1 (Emulated GPU): DEFAULT")]
    assert doctor.one("MPS")["text"] == "not in use"
    assert doctor.code == 0


def test_a_driver_that_is_too_old_for_the_daemon():
    finding = _doctor(DRIVER_VERSION=11040).one("GPU driver")
    assert finding["severity"] == "warning"
    assert "the driver is of CUDA 11.4; install" in finding["text"]
    assert "12.0 or later" in finding["text"]


@pytest.mark.skipif(_NEEDED == 12, reason="12.0 is the oldest driver")
def test_a_driver_that_is_too_old_for_the_kernels():
    doctor = _doctor(DRIVER_VERSION=(_NEEDED - 1) * 1000 + 40)
    finding = doctor.one("GPU driver")
    assert finding["severity"] == "warning"
    assert finding["text"].startswith(f"CUDA {_NEEDED - 1}.4, 1 GPU; ")
    assert f"datasetd's kernels need {_NEEDED}.0 (R" in finding["text"]
    assert finding["text"].endswith("served from host memory only")
    assert "update NVIDIA's driver" in finding["fix"]
    assert len(doctor.all("compute mode")) == 1


@pytest.mark.parametrize("mode, word", [
    (2, "PROHIBITED"), (3, "EXCLUSIVE_PROCESS")])
def test_a_compute_mode_that_keeps_others_out_is_a_fault(mode, word):
    doctor = _doctor(ATTRIBUTES=f"{_COMPUTE_MODE}={mode}")
    finding = doctor.one("compute mode")
    assert finding["severity"] == "fault"
    assert word in finding["text"]
    # By its UUID, since nvidia-smi counts in another order.
    assert re.match(r"nvidia-smi -i GPU-[0-9a-f-]{36} -c DEFAULT",
                    finding["fix"])
    assert doctor.code == 1


def test_a_server_of_mps_is_a_warning_and_allows_exclusive(tmp_path):
    control = tmp_path / "control"
    control.touch()
    environment = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    doctor = _doctor(ATTRIBUTES=f"{_COMPUTE_MODE}=3", environment=environment)
    assert doctor.one("compute mode")["severity"] == "ok"
    finding = doctor.one("MPS")
    assert finding["severity"] == "warning"
    assert str(tmp_path) in finding["text"]
    assert "one user at a time" in finding["text"]
    assert doctor.code == 0

    control.unlink()
    doctor = _doctor(environment=environment)
    assert doctor.one("MPS")["severity"] == "fault"
    assert "systemctl start datasetd-mps" in doctor.one("MPS")["fix"]
    assert doctor.code == 1


def test_mig_is_seen_or_said_not_to_be_seen(tmp_path):
    if not os.path.exists("/dev/nvidiactl"):
        assert "libnvidia-ml.so.1" in _doctor().one("MIG")["text"]
    (tmp_path / "libnvidia-ml.so.1").symlink_to(os.path.abspath(
        harness.runfile("tests/testing/libfake_nvml.so")))
    library_path = {
        "LD_LIBRARY_PATH": f"{tmp_path}:{os.environ['LD_LIBRARY_PATH']}"}

    def mig(**machine):
        return _doctor(DEVICES=2, environment={
            **library_path, "FAKE_GPUS": "2", **machine}).one("MIG")

    assert mig()["text"] == "not in use"
    assert "does not answer" in mig(FAKE_NVML="999")["text"]
    finding = mig(FAKE_MIG="1")
    assert finding["severity"] == "warning"
    assert finding["text"].startswith("GPU 1 is divided")
    assert "CUDA_VISIBLE_DEVICES" in finding["fix"]


def test_nodes_links_and_peers_are_told(tmp_path):
    (tmp_path / "libnvidia-ml.so.1").symlink_to(os.path.abspath(
        harness.runfile("tests/testing/libfake_nvml.so")))
    doctor = _doctor(DEVICES=2, environment={
        "LD_LIBRARY_PATH": f"{tmp_path}:{os.environ['LD_LIBRARY_PATH']}",
        "FAKE_GPUS": "2", "FAKE_NVLINKS": "12"})
    nodes = [text for _, text in doctor.all("NUMA node")]
    assert [text.split(" ")[0] for text in nodes] == ["cuda:0", "cuda:1"]
    assert all("(GPU-" in text and "at 0000:0" in text and
               ", 12 NVLinks: " in text for text in nodes)
    assert doctor.all("peer access") == [
        ("ok", "all 2 GPUs read one another's memory")]
    finding = _doctor(DEVICES=2, PEERS=0).one("peer access")
    assert finding["severity"] == "warning"
    assert ("not read directly: cuda:0 from cuda:1, cuda:1 from cuda:0;"
            in finding["text"])
    assert "nvidia-smi topo -p2p r" in finding["fix"]
    assert not _doctor(DEVICES=1).all("peer access")


def test_the_daemons_devices_and_memory_are_told():
    with harness.Daemon(
            devices=["cuda:0", "cuda:1"],
            environment={"DATASETD_EMULATED_GPU_DEVICES": "2",
                         "DATASETD_EMULATED_GPU_FAULTS":
                         "1/cuMemcpyHtoDAsync_v2@1=214"}) as daemon:
        def doctor():
            done = subprocess.run(
                [harness.runfile("client/ctl/datasetctl"), "--address",
                 daemon.socket_path, "--json", "doctor", "--no_sharing"],
                stdout=subprocess.PIPE, check=False,
                timeout=harness.DEADLINE_SECONDS,
                env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": "",
                     "DATASETD_EMULATED_GPU_DEVICES": "2"})
            findings = json.loads(done.stdout)["findings"]
            return done.returncode, findings

        code, findings = doctor()
        assert code == 0
        first, second = [f for f in findings if f["check"] == "device"]
        assert first["text"].startswith("cuda:0 (GPU-")
        assert first["text"].endswith(" serves; it reads the memory of cuda:1")
        assert second["severity"] == "ok"
        assert [f["severity"] for f in findings
                if f["check"] == "cgroup memory"] == ["ok"]

        folder = os.path.join(daemon.data_root, "d")
        harness.write_cifar10_test(folder, 10)
        load = subprocess.run(
            [harness.runfile("client/ctl/datasetctl"), "--address",
             daemon.socket_path, "load", "d", "--format=cifar10",
             "--split=test", f"--path={folder}", "--device=cuda:1"],
            stderr=subprocess.PIPE, text=True, check=False,
            timeout=harness.DEADLINE_SECONDS)
        assert load.returncode == 1
        assert "device cuda:1 (GPU-" in load.stderr
        code, findings = doctor()
        assert code == 1
        (failed,) = [f for f in findings if f["severity"] == "fault"]
        assert failed["check"] == "device"
        assert failed["text"].startswith("cuda:1 (GPU-")
        assert "has failed: " in failed["text"]
        assert "ECC_UNCORRECTABLE" in failed["text"]
        assert "restart the daemon" in failed["fix"]


def test_a_driver_that_fails_is_named():
    finding = _doctor(FAULTS="cuInit@1=100").one("GPU driver")
    assert finding["severity"] == "warning"
    assert "CUDA_ERROR_NO_DEVICE" in finding["text"]
    finding = _doctor(environment={"CUDA_VISIBLE_DEVICES": "7"}).one(
        "GPU driver")
    assert "offers no GPU" in finding["text"]
    assert "'7'" in finding["fix"]


def test_both_ways_to_share_work():
    assert _Doctor().all("sharing")[1:] == [
        ("ok", "cuda:0 by cuda_ipc_handle: two processes read the same memory"),
        ("ok", "cuda:0 by cuda_vmm_fd: two processes read the same memory")]


@pytest.mark.parametrize("function, refused", [
    ("cuIpcGetMemHandle", "cuda_ipc_handle"),
    ("cuMemExportToShareableHandle", "cuda_vmm_fd"),
])
def test_a_way_that_is_refused_is_named(function, refused):
    ways = _Doctor(FAULTS=f"{function}@1+=800").all("sharing")[1:]
    assert len(ways) == 2
    for severity, text in ways:
        if f"by {refused}:" in text:
            assert severity == "warning"
            assert "CUDA_ERROR_NOT_PERMITTED" in text
        else:
            assert severity == "ok"


if __name__ == "__main__":
    harness.main(__file__)
