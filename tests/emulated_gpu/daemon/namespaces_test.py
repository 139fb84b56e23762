"""Daemon and client in PID namespaces of their own, as in two containers: the
descriptor works, and a handle that cannot work is not tried."""

import contextlib
import os
import shutil
import subprocess

import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()

_OWN = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
_NUM_SAMPLES = 40
_TAKE = """
say(pid=os.getpid())
client = datasetd.connect(ADDRESS)
try:
    with datasetd.DataLoader(client.get_dataset("d"), batch_size=10,
                             framework="dlpack", timeout=60) as loader:
        say(num_batches=len(list(loader)))
except datasetd.Error as error:
    say(error=type(error).__name__, text=str(error))
"""


def _can_unshare():
    return shutil.which("unshare") is not None and subprocess.run(
        [*_OWN, "true"], check=False, stderr=subprocess.DEVNULL
    ).returncode == 0


pytestmark = pytest.mark.skipif(
    not _can_unshare(), reason="this user may make no PID namespace")


@contextlib.contextmanager
def _daemon(is_contained=True, **options):
    """Its process is the first one of a namespace, if it is contained."""
    with contextlib.ExitStack() as stack:
        program = None
        if is_contained:
            directory = stack.enter_context(
                harness.tempfile.TemporaryDirectory(prefix="dd", dir="/tmp"))
            program = os.path.join(directory, "contained")
            with open(program, "w") as file:
                file.write("#!/bin/sh\nexec " + " ".join(_OWN)
                           + f' "{harness.daemon_program()}" "$@"\n')
            os.chmod(program, 0o755)
        daemon = stack.enter_context(harness.Daemon(
            devices=["cuda:0"], program=program, **options))
        daemon.write_dataset(_NUM_SAMPLES)
        client = stack.enter_context(daemon.connect())
        daemon.load(client)
        yield daemon


def _take(daemon):
    """(PID as it sees itself, what it says) of a contained client."""
    with harness.Worker(_TAKE, daemon.socket_path, prefix=_OWN) as worker:
        return worker.hear()["pid"], worker.hear()


@pytest.mark.parametrize("is_contained", [True, False])
def test_the_descriptor_comes_first_and_works(is_contained):
    with _daemon(is_contained) as daemon:
        assert _take(daemon) == (1, {"num_batches": 4})


@pytest.mark.parametrize("options", [
    {"slab_export": "cuda_ipc_handle"},
    # A driver without virtual memory management.
    {"environment": {"DATASETD_EMULATED_GPU_ATTRIBUTES": "102=0"}},
])
def test_equal_numbers_get_no_handle(options, tmp_path, monkeypatch):
    log = tmp_path / "client.log"
    with _daemon(**options) as daemon:
        monkeypatch.setenv("DATASETD_EMULATED_GPU_LOG", str(log))
        pid, said = _take(daemon)
    assert pid == 1
    assert said["error"] == "Unimplemented", said
    assert ("cuda_ipc_handle (daemon and client have the same process number"
            in said["text"])
    # It has not even called the driver.
    assert not log.exists() or "cuIpcOpenMemHandle" not in log.read_text()


def test_a_handle_in_another_namespace_is_refused_by_the_driver():
    with _daemon(False, slab_export="cuda_ipc_handle") as daemon:
        _, said = _take(daemon)
    assert said["error"] == "Unimplemented", said
    assert "CUDA_ERROR_INVALID_CONTEXT" in said["text"]


if __name__ == "__main__":
    harness.main(__file__)
