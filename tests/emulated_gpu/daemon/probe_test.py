"""The self-test's probe of the driver, where an emulated GPU has answers."""

import json
import subprocess
import sys

import pytest

from tests.testing import daemon_harness as harness


def test_the_probe_answers():
    done = subprocess.run(
        [harness.runfile("tests/selftest/cuda_probe"), "machine", "release",
         "read_only_import"],
        stdout=subprocess.PIPE, timeout=harness.DEADLINE_SECONDS, check=False)
    assert done.returncode == 0, done.stdout
    answer = json.loads(done.stdout)
    assert sorted(answer) == ["machine", "read_only_import", "release"]
    assert answer["machine"]["driver_api_version"] == 13000
    assert answer["machine"]["total_bytes"] == 4096 << 20
    for release in ("stream_memory_operation", "host_function"):
        assert answer["release"][release]["latency_median_us"] > 0
    # The emulated GPU enforces what a mapping may be used for.
    assert answer["read_only_import"]["map"] == "OK"
    assert answer["read_only_import"]["read"] == "OK"
    assert "CUDA_ERROR" in answer["read_only_import"]["write"]


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
