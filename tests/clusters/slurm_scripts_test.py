"""Slurm's Prolog and Epilog, run as root for a job of nobody, without Slurm."""

import os
import pwd
import shutil
import subprocess
import tempfile

import pytest

from tests.clusters import cluster_harness
from tests.testing import daemon_harness as harness

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root, as Prolog and Epilog")

_USER = pwd.getpwnam("nobody")
_DAEMON = """#!/bin/sh
grep -E "^(Uid|Gid|Groups|NoNewPrivs)" /proc/self/status
exec sleep 1000
"""


class Node:
    """A node whose directory of jobs is a temporary one."""

    def __init__(self, directory):
        self.jobs = os.path.join(directory, "jobs")
        self.job = os.path.join(self.jobs, "7-n0")
        self.sockets = os.path.join(self.job, "sockets")
        self.pid = os.path.join(self.job, "pid")
        self.log = os.path.join(self.job, "log")
        daemon = os.path.join(directory, "daemon")
        with open(daemon, "w") as file:
            file.write(_DAEMON)
        os.chmod(daemon, 0o755)
        self.environment = dict(
            PATH=os.environ["PATH"], SLURM_JOB_ID="7", SLURMD_NODENAME="n0",
            SLURM_JOB_UID=str(_USER.pw_uid), DATASETD_DAEMON=daemon)

    def run(self, name):
        with open(cluster_harness.example(f"slurm_{name}.sh")) as file:
            text = file.read().replace("/run/datasetd-jobs", self.jobs)
        return subprocess.run(["/bin/sh", "-c", text], env=self.environment,
                              stdin=subprocess.DEVNULL, timeout=60).returncode

    def daemon(self):
        """Returns the number of the daemon, which runs."""
        with open(self.pid) as file:
            pid = int(file.read().split()[0])
        assert harness.is_running(pid)
        return pid


@pytest.fixture
def node():
    # Nobody may go there.
    directory = tempfile.mkdtemp()
    os.chmod(directory, 0o755)
    node = Node(directory)
    yield node
    node.run("epilog")
    shutil.rmtree(directory)


def test_the_daemon_has_the_users_rights(node):
    assert node.run("prolog") == 0
    with open(f"/proc/{node.daemon()}/status") as file:
        status = dict(line.split(":", 1) for line in file)
    assert status["Uid"].split() == [str(_USER.pw_uid)] * 4
    assert status["Gid"].split() == [str(_USER.pw_gid)] * 4
    assert "0" not in status["Groups"].split()
    assert status["NoNewPrivs"].strip() == "1"


def test_the_user_can_put_no_link_where_root_writes(node, tmp_path):
    assert node.run("prolog") == 0
    victim = tmp_path / "victim"
    victim.write_text("root's")
    for path in (node.log, node.pid, os.path.join(node.sockets, "log"),
                 os.path.join(node.sockets, "pid")):
        subprocess.run(
            ["setpriv", f"--reuid={_USER.pw_uid}", f"--regid={_USER.pw_gid}",
             "--clear-groups", "ln", "-sf", victim, path],
            stderr=subprocess.DEVNULL)
    assert not os.path.islink(node.log) and not os.path.islink(node.pid)
    assert os.path.islink(os.path.join(node.sockets, "log"))
    # The job is requeued on this node; the first Epilog has not run.
    daemon = node.daemon()
    assert node.run("prolog") == 0
    assert victim.read_text() == "root's"
    assert os.listdir(node.sockets) == []
    os.kill(daemon, 9)


@pytest.mark.parametrize("content", [None, "", "\n", "1/ 2\n", "1 2\n"])
def test_epilog_ends_well_whatever_it_finds(node, content):
    assert node.run("prolog") == 0
    daemon = node.daemon()
    os.remove(node.pid)
    if content is not None:
        with open(node.pid, "w") as file:
            file.write(content)
    assert node.run("epilog") == 0
    assert os.listdir(node.jobs) == []
    os.kill(daemon, 9)


def test_epilog_ends_the_daemon(node):
    assert node.run("prolog") == 0
    daemon = node.daemon()
    assert node.run("epilog") == 0
    assert not harness.is_running(daemon)
    assert os.listdir(node.jobs) == []
    # One that has ended by itself.
    assert node.run("prolog") == 0
    os.kill(node.daemon(), 9)
    assert node.run("epilog") == 0
    assert os.listdir(node.jobs) == []


if __name__ == "__main__":
    harness.main(__file__)
