"""The doctor on a machine with an emulated GPU: it describes it, and tries each
way to share its memory with a daemon of its own."""

import json
import os
import subprocess

import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()


def _findings(check, **environment):
    """Of that check; each a severity and a text."""
    with harness.Daemon() as daemon:
        done = subprocess.run(
            [harness.runfile("client/ctl/datasetctl"), "--address",
             daemon.socket_path, "--json", "doctor"],
            stdout=subprocess.PIPE, check=False,
            timeout=harness.DEADLINE_SECONDS,
            env=dict(os.environ, CUDA_MPS_PIPE_DIRECTORY="", **environment))
    findings = json.loads(done.stdout)["findings"]
    return [(f["severity"], f["text"]) for f in findings
            if f["check"] == check]


def test_it_describes_the_gpu():
    [(severity, text)] = _findings("GPU driver")
    assert severity == "ok"
    assert text.startswith("CUDA 13.0, 1 GPU")


def test_both_ways_to_share_work():
    assert _findings("sharing")[1:] == [
        ("ok", "cuda:0 by cuda_ipc_handle: two processes read the same memory"),
        ("ok", "cuda:0 by cuda_vmm_fd: two processes read the same memory")]


@pytest.mark.parametrize("function, refused", [
    ("cuIpcGetMemHandle", "cuda_ipc_handle"),
    ("cuMemExportToShareableHandle", "cuda_vmm_fd"),
])
def test_a_way_that_is_refused_is_named(function, refused):
    ways = _findings(
        "sharing", DATASETD_EMULATED_GPU_FAULTS=f"{function}@1+=800")[1:]
    assert len(ways) == 2
    for severity, text in ways:
        if f"by {refused}:" in text:
            assert severity == "warning"
            assert "CUDA_ERROR_NOT_PERMITTED" in text
        else:
            assert severity == "ok"


if __name__ == "__main__":
    harness.main(__file__)
