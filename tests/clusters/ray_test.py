"""Ray with two nodes on one machine: a task finds its node's daemon, which
outlives the worker that started it and ends after the job."""

import json
import os
import shutil
import subprocess
import sys
import tempfile

import pytest

from tests.clusters import cluster_harness
from tests.testing import daemon_harness as harness

_RAY = "ray==2.60.0"


@pytest.fixture(scope="module")
def python():
    """A Python that has Ray."""
    directory = tempfile.mkdtemp(prefix="dd", dir="/tmp")
    subprocess.run(
        [sys.executable, "-m", "venv", "--system-site-packages", directory],
        check=True)
    made = os.path.join(directory, "bin", "python")
    installed = subprocess.run(
        [made, "-m", "pip", "install", "--quiet", _RAY],
        capture_output=True, text=True)
    if installed.returncode != 0:
        shutil.rmtree(directory)
        pytest.fail(f"{_RAY} cannot be installed: {installed.stderr[-500:]}")
    yield made
    shutil.rmtree(directory)


@pytest.fixture
def job():
    made = cluster_harness.Job()
    yield made
    made.close()


def test_two_nodes(python, job):
    environment = dict(
        os.environ,
        RAY_USAGE_STATS_ENABLED="0",
        RAY_TMPDIR=job.directory,
        # More than the second workers need to start on a busy machine.
        DATASETD_IDLE_SECONDS="60",
        # Workers get the package, not the sandbox's other folders.
        PYTHONPATH=harness.runfile("client/python"))
    environment.pop("DATASETD_ADDRESS", None)
    run = subprocess.run(
        [python, harness.runfile("tests/clusters/ray_driver.py"),
         os.path.dirname(cluster_harness.example("ray_job.py")), job.data,
         *job.nodes],
        env=environment, capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stderr[-4000:]
    first, second = json.loads(run.stdout.splitlines()[-1])
    # One daemon per node, in the node's directory.
    daemons = {}
    for result in first:
        daemons.setdefault(result["address"], set()).add(result["daemon"])
    assert sorted(os.path.dirname(os.path.dirname(path)) for path in daemons
                  ) == job.nodes
    assert all(len(pids) == 1 for pids in daemons.values())
    for results in (first, second):
        rows = sum((result["rows"] for result in results), [])
        assert sorted(rows) == list(range(cluster_harness.NUM_SAMPLES))
    # The workers were killed, and their daemons were not.
    assert not ({result["worker"] for result in first}
                & {result["worker"] for result in second})
    assert {result["daemon"] for result in second} == {
        result["daemon"] for result in first}
    job.await_no_daemons(timeout=120)


if __name__ == "__main__":
    harness.main(__file__)
