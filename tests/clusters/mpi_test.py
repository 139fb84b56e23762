"""Ranks that have MPI alone: they are compared, share parts, and hold nobody up
for ever. Installs mpi4py and an MPI into an environment of its own."""

import json
import os
import shutil
import subprocess
import sys
import tempfile

import pytest

from tests.testing import daemon_harness as harness

_PACKAGES = ("mpi4py==4.1.2", "mpich==5.0.2")
_NUM_RANKS = 4


@pytest.fixture(scope="module")
def programs():
    """The folder with mpiexec, and a Python that has mpi4py."""
    directory = tempfile.mkdtemp(prefix="dd", dir="/tmp")
    subprocess.run(
        [sys.executable, "-m", "venv", "--system-site-packages", directory],
        check=True)
    programs = os.path.join(directory, "bin")
    installed = subprocess.run(
        [os.path.join(programs, "python"), "-m", "pip", "install", "--quiet",
         *_PACKAGES], capture_output=True, text=True)
    if installed.returncode != 0:
        shutil.rmtree(directory)
        pytest.fail(f"MPI cannot be installed: {installed.stderr[-500:]}")
    yield programs
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def run(programs):
    """Runs a case; returns what came of it by rank, and the warnings."""
    harness.use_python_package()

    def run_case(case, num_ranks=_NUM_RANKS):
        with harness.Daemon() as daemon:
            done = subprocess.run(
                [os.path.join(programs, "mpiexec"), "-n", str(num_ranks),
                 os.path.join(programs, "python"),
                 harness.runfile("tests/clusters/mpi_ranks.py"),
                 daemon.socket_path, case],
                capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr[-4000:]
        found = dict(json.loads(line) for line in done.stdout.splitlines())
        assert sorted(found) == list(range(num_ranks))
        return [found[rank] for rank in range(num_ranks)], done.stderr

    return run_case


def test_equal_ranks_share_an_epoch(run):
    found, warnings = run("equal")
    for epoch in range(3):
        rows = sum((rank[epoch] for rank in found), [])
        assert sorted(rows) == list(range(40))
    assert "not compared" not in warnings


def test_a_difference_is_an_error_on_every_rank(run):
    found, _ = run("differ")
    for message in found:
        assert message.startswith(
            "FailedPrecondition: ranks 0 and 1 of 4 do not agree on dataset "
            "'whole': seed is 1 on rank 0 and 7 on rank 1")


def test_weights_that_one_rank_does_not_change(run):
    found, warnings = run("weights")
    assert "not compared" not in warnings
    for *lengths, message in found:
        assert lengths == [10, 10]
        assert message.startswith("ranks 0 and 2 of 4 do not agree on")
        assert "weights is '" in message


def test_a_rank_that_waits_for_another_first(run):
    found, warnings = run("barrier")
    assert found == [[4, 10]] * _NUM_RANKS
    assert "not all ranks of MPI have come" in warnings
    assert "do not agree" not in warnings


def test_parts(run):
    found, _ = run("partition")
    # 40 and 30 samples, over two ranks each: 20 rows for every rank.
    assert [rank[:2] for rank in found] == [[70, 5]] * _NUM_RANKS
    for node, size in ((0, 40), (1, 30)):
        rows = found[2 * node][2] + found[2 * node + 1][2]
        assert len(rows) == 40
        assert sorted(set(rows)) == list(range(size))


def test_a_rank_without_partition(run):
    found, _ = run("one_without_partition", num_ranks=2)
    for message in found:
        assert "partition is" in message and "FailedPrecondition" in message


if __name__ == "__main__":
    harness.main(__file__)
