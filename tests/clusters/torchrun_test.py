"""torchrun on two nodes, which are directories for sockets here: one daemon per
node, elastic restart after a rank, a daemon or both are killed."""

import os
import signal

import pytest

from tests.clusters import cluster_harness
from tests.testing import daemon_harness as harness


@pytest.fixture
def job():
    made = cluster_harness.Job()
    yield made
    made.close()


@pytest.fixture
def launch(job):
    launched = []

    def start(epochs, **options):
        launched.append(cluster_harness.Torchrun(job, epochs, **options))
        return launched[-1]

    yield start
    for torchrun in launched:
        torchrun.close()


def test_two_nodes(job, launch):
    torchrun = launch(1)
    harness.poll_until(lambda: job.lines(0), "the first batch", 120)
    for node in range(2):
        assert len(job.daemons(node)) == 1
    torchrun.wait()
    job.check(ranks=4, epochs=1)
    for node in range(2):
        assert job.daemons(node) == []


def test_elastic_restart_after_a_rank_was_killed(job, launch):
    torchrun = launch(3, held=True)
    job.await_held(times=1)
    daemons = [job.daemons(node) for node in range(2)]
    os.kill(cluster_harness.rank_of(job, 3), signal.SIGKILL)
    job.await_held(times=2)
    # The restarted ranks found the daemons that were there.
    assert [job.daemons(node) for node in range(2)] == daemons
    job.let_go()
    torchrun.wait()
    job.check(ranks=4, epochs=3, repeats=True)
    assert not job.daemons(0) and not job.daemons(1)


def test_a_job_goes_on_within_an_epoch_with_fewer_ranks(job, launch):
    """4 ranks on two nodes, then 2 on one: each sample of the epoch once."""
    held = launch(2, held=True)
    job.await_held(times=1)
    held.cancel()
    # The checkpoint is of after batch 3.
    before = [row for rank in range(4) for epoch, batch, rows in job.lines(rank)
              if epoch == 1 and batch < 4 for row in rows]
    assert len(before) == 4 * 4 * 8
    job.trained += "-again"
    launch(3, nodes=job.nodes[:1]).wait()
    after = [row for rank in range(2) for epoch, _, rows in job.lines(rank)
             if epoch == 1 for row in rows]
    assert sorted(before + after) == list(range(cluster_harness.NUM_SAMPLES))
    whole = [row for rank in range(2) for epoch, _, rows in job.lines(rank)
             if epoch == 2 for row in rows]
    assert sorted(whole) == list(range(cluster_harness.NUM_SAMPLES))


def test_a_nodes_daemon_is_killed(job, launch):
    torchrun = launch(3, held=True)
    job.await_held(times=1)
    (pid,) = job.daemons(1)
    os.kill(pid, signal.SIGKILL)
    job.let_go()
    torchrun.wait()
    # No rank was restarted: each waited for the next daemon.
    job.check(ranks=4, epochs=3)
    with open(os.path.join(job.nodes[1], "out")) as out:
        assert "the daemon has ended" in out.read()
    assert not job.daemons(0) and not job.daemons(1)


if __name__ == "__main__":
    harness.main(__file__)
