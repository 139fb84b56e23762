"""The self-test's probe of the driver, where an emulated GPU has answers."""

import json
import subprocess

from tests.testing import daemon_harness as harness


def test_the_probe_answers():
    done = subprocess.run(
        [harness.runfile("tests/selftest/cuda_probe"), "machine", "release",
         "read_only_import", "sizes", "capture", "free"],
        stdout=subprocess.PIPE, timeout=harness.DEADLINE_SECONDS, check=False)
    assert done.returncode == 0, done.stdout
    answer = json.loads(done.stdout)
    assert sorted(answer) == ["capture", "free", "machine", "read_only_import",
                              "release", "sizes", "start"]
    assert answer["start"]["seconds"] > 0
    # The kernels' stacks.
    assert answer["start"]["bytes"] > 0
    for kind in ("device", "host", "cuda_ipc_handle", "cuda_vmm_fd"):
        assert answer["sizes"][kind].startswith("RESOURCE_EXHAUSTED"), kind
        assert kind == "host" or answer["free"][kind]["free_us"] > 0
    # No call that the client makes invalidates a capture.
    for call, outcome in answer["capture"].items():
        assert outcome["is_capture_valid"] == (call != "cuCtxSynchronize")
        assert (outcome["result"] == "OK") == (call != "cuCtxSynchronize")
    assert len(answer["capture"]) == 7
    assert answer["machine"]["driver_api_version"] == 13000
    assert answer["machine"]["total_bytes"] == 4096 << 20
    for release in ("stream_memory_operation", "host_function"):
        assert answer["release"][release]["latency_median_us"] > 0
    # The emulated GPU enforces what a mapping may be used for.
    assert answer["read_only_import"]["map"] == "OK"
    assert answer["read_only_import"]["read"] == "OK"
    assert "CUDA_ERROR" in answer["read_only_import"]["write"]


if __name__ == "__main__":
    harness.main(__file__)
