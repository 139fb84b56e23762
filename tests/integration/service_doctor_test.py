"""datasetctl doctor says the right line about what is wrong."""

import json
import os
import shutil
import socket
import subprocess
import tempfile

import pytest

from tests.testing import daemon_harness as harness

_CTL = harness.runfile("client/ctl/datasetctl")
_NOBODY = 65534


def _has_gpu():
    return os.path.exists("/dev/nvidiactl")


class _Doctor:
    """One run: its exit code, and its findings by check."""

    def __init__(self, address, *arguments, user=None, environment=None,
                 prefix=()):
        program = _CTL
        directory = None
        if user is not None:
            # Where another user may read it.
            directory = tempfile.mkdtemp(dir="/tmp")
            os.chmod(directory, 0o755)
            program = shutil.copy(_CTL, directory)
            os.chmod(program, 0o755)
        variables = dict(os.environ, **(environment or {}))
        variables.pop("CUDA_MPS_PIPE_DIRECTORY", None)
        variables.update(environment or {})
        try:
            done = subprocess.run(
                [*prefix, program, "--address", address, "--json", "doctor",
                 *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True, timeout=120, user=user, group=user,
                extra_groups=None if user is None else [], cwd="/",
                env=variables)
        finally:
            if directory is not None:
                shutil.rmtree(directory)
        self.code = done.returncode
        assert done.stdout, done.stderr
        self.findings = json.loads(done.stdout)["findings"]

    def one(self, check):
        found = [f for f in self.findings if f["check"] == check]
        assert len(found) == 1, self.findings
        return found[0]

    def severity(self, check):
        return self.one(check)["severity"]


@pytest.fixture(name="daemon")
def _daemon():
    with harness.Daemon() as daemon:
        yield daemon


def test_all_is_well(daemon):
    doctor = _Doctor(daemon.socket_path)
    for check in ("socket", "daemon", "namespaces"):
        assert doctor.severity(check) == "ok", doctor.findings
    assert str(daemon.pid) in doctor.one("daemon")["text"]
    assert doctor.severity("memlock") == "ok"
    assert doctor.severity("CUDA toolkit") == "ok"
    assert len([f for f in doctor.findings if f["check"] == "WSL"]) == 1
    memfd = [f for f in doctor.findings if "cpu by memfd" in f["text"]]
    assert [f["severity"] for f in memfd] == ["ok"]
    assert [f for f in doctor.findings if f["severity"] == "fault"] == []
    assert doctor.code == 0
    # Every finding that is not "ok" has a fix.
    assert all(f["fix"] for f in doctor.findings if f["severity"] != "ok")


def test_the_toolkit_has_its_version(daemon, tmp_path):
    for name, text in (("bin/nvcc", ""),
                       ("include/cuda.h", "#define CUDA_VERSION 12080\n")):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text(text)
    doctor = _Doctor(daemon.socket_path, "--no_sharing",
                     environment={"CUDA_HOME": str(tmp_path)})
    assert doctor.one("CUDA toolkit")["text"] == f"12.8, in {tmp_path}"


@pytest.mark.skipif(_has_gpu(), reason="this machine has a GPU")
def test_without_a_gpu_it_says_what_that_means(daemon):
    doctor = _Doctor(daemon.socket_path)
    finding = doctor.one("GPU driver")
    assert finding["severity"] == "warning"
    assert "host memory only" in finding["text"]
    assert "devices: [cpu]" in finding["fix"]
    # No fault: the daemon serves from host memory.
    assert doctor.code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces")
def test_another_namespace_is_named(daemon):
    doctor = _Doctor(daemon.socket_path, "--no_sharing",
                     prefix=["unshare", "--ipc"])
    finding = doctor.one("namespaces")
    assert finding["severity"] == "warning"
    assert "differ in: ipc;" in finding["text"]
    assert "slab_export: cuda_vmm_fd" in finding["fix"]
    doctor = _Doctor(daemon.socket_path, "--no_sharing", prefix=[
        "unshare", "--pid", "--fork", "--mount-proc"])
    finding = doctor.one("namespaces")
    assert finding["severity"] == "warning"
    assert "another PID namespace" in finding["text"]
    assert "--pid=host" in finding["fix"]
    assert doctor.code == 0


def test_the_daemon_is_down(tmp_path):
    path = str(tmp_path / "datasetd.sock")
    doctor = _Doctor(path, "--no_sharing")
    assert doctor.code == 1
    finding = doctor.one("socket")
    assert finding["severity"] == "fault"
    assert f"{path}: No such file or directory" == finding["text"]
    assert "systemctl start datasetd" in finding["fix"]


def test_a_socket_that_nobody_serves():
    directory = tempfile.mkdtemp(dir="/tmp")
    try:
        path = os.path.join(directory, "d.sock")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stale:
            stale.bind(path)
        os.chmod(path, 0o660)
        doctor = _Doctor(path, "--no_sharing")
        assert doctor.code == 1
        assert doctor.severity("socket") == "ok"
        assert doctor.severity("daemon") == "fault"
        assert "journalctl" in doctor.one("daemon")["fix"]
    finally:
        shutil.rmtree(directory)


def test_a_socket_that_all_may_use_is_a_warning():
    with harness.Daemon(socket_mode="0666") as daemon:
        doctor = _Doctor(daemon.socket_path, "--no_sharing")
        finding = doctor.one("socket")
        assert finding["severity"] == "warning"
        assert "every user" in finding["text"]
        assert "0660" in finding["fix"]
        assert doctor.severity("socket") == "warning"
        assert doctor.code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be another user")
def test_a_stranger_is_told_which_group_he_lacks(daemon):
    os.chmod(daemon.directory, 0o755)
    doctor = _Doctor(daemon.socket_path, "--no_sharing", user=_NOBODY)
    assert doctor.code == 1
    finding = doctor.one("socket")
    assert finding["severity"] == "fault"
    assert "may not connect" in finding["text"]
    assert "usermod --append --groups root nobody" in finding["fix"]
    assert doctor.severity("group") == "warning"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be another user")
def test_a_mode_that_shuts_out_the_group_is_what_is_wrong():
    with harness.Daemon(socket_mode="0600") as daemon:
        os.chmod(daemon.directory, 0o755)
        doctor = _Doctor(daemon.socket_path, "--no_sharing", user=_NOBODY)
        finding = doctor.one("socket")
        assert finding["severity"] == "fault"
        assert "0600" in finding["text"]
        assert "SocketMode=0660" in finding["fix"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be another user")
def test_a_directory_that_one_may_not_enter_is_named(daemon):
    os.chmod(daemon.directory, 0o700)
    doctor = _Doctor(daemon.socket_path, "--no_sharing", user=_NOBODY)
    assert "may not enter" in doctor.one("socket")["text"]


def test_a_variable_for_mps_without_a_server_is_seen(daemon, tmp_path):
    doctor = _Doctor(daemon.socket_path, "--no_sharing", environment={
        "CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)})
    if _has_gpu():
        assert doctor.severity("MPS") == "fault"
    else:
        # MPS does not matter without a GPU.
        assert not any(f["check"] == "MPS" for f in doctor.findings)


def test_the_disk_of_the_cache(daemon, tmp_path):
    address = daemon.socket_path
    free = os.statvfs(tmp_path)
    doctor = _Doctor(address, "--no_sharing", "--cache_directory",
                     str(tmp_path))
    finding = doctor.one("cache disk")
    assert finding["severity"] == (
        "ok" if free.f_bavail * free.f_frsize >= 1 << 30 else "warning")
    assert finding["text"].startswith(f"{tmp_path}: ")
    assert " free of " in finding["text"]

    # A file system without any room.
    doctor = _Doctor(address, "--no_sharing", "--cache_directory", "/proc")
    finding = doctor.one("cache disk")
    assert finding["severity"] == "warning"
    assert finding["text"].startswith("/proc: 0 B free")
    assert "make room" in finding["fix"]
    assert doctor.code == 0

    for path, text in ((tmp_path / "none", "No such file or directory"),
                       (__file__, "is no directory")):
        doctor = _Doctor(address, "--no_sharing", "--cache_directory",
                         str(path))
        finding = doctor.one("cache disk")
        assert finding["severity"] == "fault"
        assert text in finding["text"]
        assert "CacheDirectory=datasetd" in finding["fix"]
        assert doctor.code == 1


@pytest.mark.skipif(os.path.exists("/var/cache/datasetd"),
                    reason="this machine has a cache of the system's daemon")
def test_a_daemon_without_a_cache_needs_no_disk(daemon):
    doctor = _Doctor(daemon.socket_path, "--no_sharing")
    assert not any(f["check"] == "cache disk" for f in doctor.findings)


def test_the_lines_for_people(daemon):
    done = subprocess.run(
        [_CTL, "--address", daemon.socket_path, "doctor", "--no_sharing"],
        stdout=subprocess.PIPE, text=True, timeout=60)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("ok       system         Linux ")
    assert lines[1].startswith("ok       socket")
    assert all(line.split()[0] in ("ok", "warning", "fault") for line in lines)


if __name__ == "__main__":
    harness.main(__file__)
