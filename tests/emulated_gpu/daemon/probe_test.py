"""The self-test's probe of the driver, where an emulated GPU has answers."""

import json
import subprocess

from tests.testing import daemon_harness as harness


def test_the_probe_answers():
    done = subprocess.run(
        [harness.runfile("tests/selftest/cuda_probe"), "machine", "release",
         "free"],
        stdout=subprocess.PIPE, timeout=harness.DEADLINE_SECONDS, check=False)
    assert done.returncode == 0, done.stdout
    answer = json.loads(done.stdout)
    assert sorted(answer) == ["free", "machine", "release", "start"]
    assert answer["start"]["seconds"] > 0
    # The kernels' stacks.
    assert answer["start"]["bytes"] > 0
    for kind in ("device", "cuda_ipc_handle", "cuda_vmm_fd"):
        assert answer["free"][kind]["free_us"] > 0
    assert answer["machine"]["driver_api_version"] == 13000
    assert answer["machine"]["total_bytes"] == 4096 << 20
    for release in ("stream_memory_operation", "host_function"):
        assert answer["release"][release]["latency_median_us"] > 0


if __name__ == "__main__":
    harness.main(__file__)
