"""Slurm with two nodes on one machine, and mpirun: recipes of
docs/clusters.md. Installs Debian's packages into an overlay of the root file
system, which goes with the test."""

import os
import re
import shutil
import subprocess

import pytest

from tests.clusters import cluster_harness
from tests.testing import daemon_harness as harness


@pytest.fixture(scope="module")
def world():
    """The directory in which the jobs left their outcome."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to make an overlay of the root file system")
    job = cluster_harness.Job(nodes=0)
    # The sandbox of the build is not in the overlay: copy what is used.
    copies = os.path.join(job.directory, "copies")
    shutil.copytree(harness.runfile("client/python"),
                    os.path.join(copies, "python"))
    for name in ("client/c_api/libdatasetd.so", "client/ctl/datasetctl",
                 "server/datasetd"):
        shutil.copy(harness.runfile(name), copies)
    examples = os.path.join(job.directory, "examples")
    shutil.copytree(os.path.dirname(cluster_harness.example("train.py")),
                    examples)
    for name in ("prolog", "task_prolog", "epilog"):
        with open(os.path.join(examples, f"slurm_{name}.sh")) as file:
            text = file.read()
        # Prolog has a bare environment.
        if name == "prolog":
            text = text.replace("#!/bin/sh\n", "#!/bin/sh\nDATASETD_DAEMON="
                                f"{copies}/datasetd\n", 1)
        path = os.path.join(job.directory, f"{name}.sh")
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o755)
    environment = dict(
        PATH="/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", HOME="/root",
        PYTHONPATH=os.path.join(copies, "python"), OMP_NUM_THREADS="1",
        DATASETD_LIBRARY=os.path.join(copies, "libdatasetd.so"),
        DATASETD_DAEMON=os.path.join(copies, "datasetd"),
        SLURM_TEST_PORT=str(20000 + os.getpid() % 10000))
    for name in ("slurm_jobs.sh", "held_train.py"):
        shutil.copy(harness.runfile("tests/clusters/" + name), job.directory)
    jobs = os.path.join(job.directory, "slurm_jobs.sh")
    log = os.path.join(job.directory, "log")
    with open(log, "w") as file:
        code = subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child",
             harness.runfile("tests/clusters/slurm_world.sh"), job.directory,
             jobs, examples, job.data],
            env=environment, stdin=subprocess.DEVNULL, stdout=file,
            stderr=file, timeout=840).returncode
    if code == 77:
        end = "".join(read(job, name)[-500:] for name in ("log", "apt.log")
                      if os.path.exists(os.path.join(job.directory, name)))
        job.close()
        pytest.fail(f"Slurm cannot be installed into an overlay: {end}")
    yield job, code
    job.close()


def read(job, name):
    with open(os.path.join(job.directory, name)) as file:
        return file.read()


def test_all_jobs_ran(world):
    job, code = world
    logs = [name for name in ("log", "requeued/out")
            if os.path.exists(os.path.join(job.directory, name))]
    assert code == 0, "\n".join(read(job, name)[-3000:] for name in logs)


def test_a_job_that_is_requeued_and_goes_on_with_fewer_nodes(world):
    job, _ = world
    assert read(job, "requeued/daemons").split() == ["2"]  # one per node
    assert "Restarts=1" in read(job, "requeued/state")
    assert "JobState=COMPLETED" in read(job, "requeued/state")
    assert read(job, "requeued/last_state") == "JobState=COMPLETED\n"
    job.trained = os.path.join(job.directory, "requeued/trained")
    before = int(read(job, "requeued/before"))
    batches = [line[:2] for line in job.lines(0)]
    # The checkpoint is of after batch 3 of the second epoch.
    assert (before, batches[before - 1]) == (11, (1, 4))
    assert batches[before] == (1, 4)
    for epoch, ranks in ((0, 4), (1, 4), (2, 2)):
        rows = []
        for rank in range(4):
            found = {}
            for of, batch, samples in job.lines(rank):
                if of == epoch:
                    assert found.setdefault(batch, samples) == samples
            assert bool(found) == (rank < ranks)
            rows += sum(found.values(), [])
        assert sorted(rows) == list(range(cluster_harness.NUM_SAMPLES))


def test_prolog_and_epilog(world):
    job, _ = world
    lines = sorted(set(read(job, "prolog").splitlines()))
    assert len(lines) == 2  # two tasks of a node said the same
    for line, node in zip(lines, ("n0", "n1")):
        assert re.fullmatch(
            rf"{node} \d+ /run/datasetd-jobs/\d+-{node}/sockets/datasetd.sock",
            line)
    assert read(job, "epilog") == ""


def test_mpirun(world):
    job, _ = world
    lines = read(job, "mpi").splitlines()
    assert len(lines) == 3 and len(set(lines)) == 1
    assert read(job, "mpi_daemons") == "0\n"


if __name__ == "__main__":
    harness.main(__file__)
