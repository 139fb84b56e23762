"""GPUs by UUID: in the configuration, in a load, in the paths of sockets."""

import os
import subprocess
import tempfile

import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402

_UUIDS = ("GPU-11111111-2222-3333-4444-555555555555",
          "GPU-11111111-9999-8888-7777-666666666666")

_JOB = """
import ctypes
if ARGUMENTS.get("current") is not None:
    driver = ctypes.CDLL("libcuda.so.1")
    assert driver.cuInit(0) == 0
    context = ctypes.c_void_p()
    assert driver.cuDevicePrimaryCtxRetain(
        ctypes.byref(context), ARGUMENTS["current"]) == 0
    assert driver.cuCtxSetCurrent(context) == 0
client = datasetd.connect(ADDRESS)
say(pid=int(client.status()["pid"]), address=client.address)
"""


@pytest.fixture(name="_two_gpus", autouse=True)
def _two_gpus(monkeypatch):
    monkeypatch.setenv("DATASETD_EMULATED_GPU_UUIDS", ",".join(_UUIDS))
    monkeypatch.delenv("DATASETD_EMULATED_GPU_DEVICES")


def _control(daemon, *arguments):
    return subprocess.run(
        [harness.runfile("client/ctl/datasetctl"),
         f"--address={daemon.socket_path}", *arguments],
        capture_output=True, text=True, timeout=60, check=False)


def test_devices_and_loads_by_uuid():
    with harness.Daemon(devices=[_UUIDS[1], "cuda:0"]) as daemon:
        folder = os.path.join(daemon.data_root, "d")
        harness.write_cifar10_test(folder, 10)
        with daemon.connect() as client:
            assert [device["name"] for device in
                    client.status()["devices"]] == ["cuda:1", "cuda:0"]

            def load(name, device):
                return _control(daemon, "load", name, "--format=cifar10",
                                "--split=test", f"--path={folder}",
                                f"--device={device}")

            assert load("a", "GPU-11111111-9").returncode == 0
            assert client.get_dataset("a").device == "cuda:1"
            assert load("b", f"{_UUIDS[0]},cuda:1").returncode == 0
            # In the daemon's order.
            assert client.get_dataset("b").device == "cuda:1,cuda:0"
            refused = load("c", "GPU-1111")
            assert refused.returncode == 1
            assert ("'GPU-1111' is the beginning of several UUIDs, of cuda:1 "
                    f"({_UUIDS[1]}) and cuda:0 ({_UUIDS[0]}); write more of "
                    "it") in refused.stderr
            assert f"cuda:0 ({_UUIDS[0]})" in load("c", "GPU-2").stderr
            status = _control(daemon, "status").stdout
            for uuid in _UUIDS:
                assert uuid in status
            replicas = _control(daemon, "datasets", "b").stdout
            assert "on each device" in replicas
            assert f"cuda:0        30.7 kB, {_UUIDS[0]}" in replicas


@pytest.mark.parametrize("devices, message", [
    (["GPU-1111"], 'no device "GPU-1111", or more than one; there is: cpu, '
                   f"cuda:0 ({_UUIDS[0]}), cuda:1 ({_UUIDS[1]})"),
    (["GPU-7"], 'no device "GPU-7"'),
    (["cuda:1", "GPU-11111111-9"], "which is named already"),
])
def test_a_daemon_that_is_to_serve_no_such_gpu(devices, message):
    with harness.Daemon(await_ready=False, devices=devices) as daemon:
        assert daemon.wait() == 1
        assert message in daemon.log()


def _serve_by_uuid(parent, uuid):
    path = os.path.join(parent, "{gpu}", "d.sock")
    daemon = harness.Daemon(devices=[uuid], socket_path=path)
    daemon.socket_path = path
    return daemon


@pytest.mark.parametrize("umask, mode", [(0o077, 0o700), (0o027, 0o750)])
def test_who_enters_the_directory_of_a_gpu(umask, mode):
    # docs/loading.md: the group does with the umask that the page says.
    parent = tempfile.mkdtemp(prefix="dg", dir="/tmp")
    before = os.umask(umask)
    try:
        with harness.Daemon(
                devices=[_UUIDS[0]],
                socket_path=os.path.join(parent, "{gpu}", "d.sock")):
            made = os.path.join(parent, _UUIDS[0])
            assert os.stat(made).st_mode & 0o7777 == mode
            path = os.path.join(made, "d.sock")
            assert os.stat(path).st_mode & 0o7777 == 0o660
    finally:
        os.umask(before)
        subprocess.run(["rm", "-r", parent], check=True)


def test_a_client_finds_the_daemon_of_its_gpu(tmp_path, monkeypatch):
    # Short: the path of a socket has at most 107 bytes.
    parent = tempfile.mkdtemp(prefix="dg", dir="/tmp")
    try:
        with _serve_by_uuid(parent, _UUIDS[0]) as first, \
                _serve_by_uuid(parent, _UUIDS[1]) as second:
            assert os.path.exists(os.path.join(parent, _UUIDS[1], "d.sock"))

            def pid_of(current=None):
                with harness.Worker(_JOB, first.socket_path,
                                    current=current) as job:
                    return job.hear()["pid"]

            assert pid_of() == first.pid
            assert pid_of(current=1) == second.pid
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
            assert pid_of() == second.pid
            assert pid_of(current=0) == second.pid
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
            with pytest.raises(datasetd.InvalidArgument,
                               match="{gpu} stands for this process's GPU"):
                datasetd.connect(first.socket_path)
    finally:
        subprocess.run(["rm", "-r", parent], check=True)


def test_an_instance_of_a_divided_gpu_has_a_prefix_of_its_own(monkeypatch):
    uuid = "MIG-33333333-2222-3333-4444-555555555555"
    monkeypatch.setenv("DATASETD_EMULATED_GPU_UUIDS",
                       f"{_UUIDS[0]},{uuid}@{_UUIDS[1]}")
    parent = tempfile.mkdtemp(prefix="dg", dir="/tmp")
    try:
        with _serve_by_uuid(parent, uuid) as daemon:
            assert os.path.exists(os.path.join(parent, uuid, "d.sock"))
            with harness.Worker(_JOB, daemon.socket_path, current=1) as job:
                said = job.hear()
            assert said["pid"] == daemon.pid
            assert uuid in said["address"]
            daemon.socket_path = said["address"]
            assert f" {uuid} " in _control(daemon, "status").stdout
            assert f"cuda:1 ({uuid})" in _control(daemon, "doctor").stdout
    finally:
        subprocess.run(["rm", "-r", parent], check=True)
    with harness.Daemon(await_ready=False, devices=["GPU-7"]) as daemon:
        assert daemon.wait() == 1
        assert f"cuda:1 ({uuid})" in daemon.log()


def test_the_host_has_no_uuid():
    with harness.Daemon(await_ready=False, devices=["cpu"],
                        socket_path="/tmp/{gpu}/d.sock") as daemon:
        assert daemon.wait() == 1
        assert ("{gpu} stands for the UUID of the first device, and that is "
                "cpu") in daemon.log()


if __name__ == "__main__":
    harness.main(__file__)
