"""Shared by the tests of clusters: the training job, and its record."""

import ast
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile

from tests.testing import daemon_harness as harness
from tests.testing import ports

harness.use_python_package()

NUM_SAMPLES = 192


def example(name):
    return harness.runfile("client/examples/clusters/" + name)


class Job:
    """A directory with data, a checkpoint, what ranks trained, and one
    directory per node for its sockets."""

    def __init__(self, nodes=2):
        self.directory = tempfile.mkdtemp(prefix="dd", dir="/tmp")
        self.data = os.path.join(self.directory, "data")
        harness.write_cifar10_test(self.data, NUM_SAMPLES)
        self.checkpoint = os.path.join(self.directory, "checkpoint")
        self.trained = os.path.join(self.directory, "trained")
        self.nodes = []
        for i in range(nodes):
            self.nodes.append(os.path.join(self.directory, f"n{i}"))
            os.mkdir(self.nodes[-1], 0o700)

    def lines(self, rank):
        """(epoch, batch, samples) in the order in which the rank trained."""
        try:
            with open(f"{self.trained}.{rank}") as file:
                text = file.read()
        except FileNotFoundError:
            return []
        lines = text[: text.rfind("\n") + 1].splitlines()
        return [
            (int(epoch), int(batch), ast.literal_eval(rows))
            for epoch, batch, rows in (line.split(" ", 2) for line in lines)
        ]

    def await_held(self, times):
        """Waits until each of the four ranks of a held job (Torchrun) has
        trained batch 4 of the second epoch so many times, and waits."""
        for rank in range(4):
            harness.poll_until(
                lambda rank=rank: times == [
                    line[:2] for line in self.lines(rank)].count((1, 4)),
                f"rank {rank} waits", 120)

    def let_go(self):
        """Ends the waiting of a held job."""
        with open(self.checkpoint + ".go", "w"):
            pass

    def check(self, ranks, epochs, repeats=False):
        """Every sample once an epoch over all ranks. Batches that were trained
        again after a restart had the same samples; `repeats` says whether there
        are any."""
        for epoch in range(epochs):
            rows = []
            for rank in range(ranks):
                batches = {}
                for of, batch, samples in self.lines(rank):
                    if of != epoch:
                        continue
                    assert batches.setdefault(batch, samples) == samples
                assert sorted(batches) == list(range(len(batches)))
                rows += sum(batches.values(), [])
            assert sorted(rows) == list(range(NUM_SAMPLES)), epoch
        numbers = [line[:2] for line in self.lines(0)]
        assert (len(numbers) > len(set(numbers))) == repeats

    def daemons(self, node):
        """Pids of the daemons whose sockets are the node's."""
        return harness.daemons_of(self.nodes[node])

    def await_no_daemons(self, timeout):
        for node in range(len(self.nodes)):
            harness.poll_until(
                lambda node=node: not self.daemons(node),
                f"the end of node {node}'s daemon", timeout)

    def close(self):
        for node in range(len(self.nodes)):
            for pid in self.daemons(node):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.directory)


class Torchrun:
    """torchrun's agent on each of `nodes`, with two ranks each. `held` jobs
    wait in the middle of the second epoch; see held_train.py."""

    def __init__(self, job, epochs, nodes=None, held=False,
                 script="train.py"):
        port = ports.free_port()
        self.agents = []
        self._nodes = nodes or job.nodes
        script = [example(script)]
        if held:
            script = [harness.runfile("tests/clusters/held_train.py"), *script]
        for i, node in enumerate(self._nodes):
            environment = dict(
                os.environ,
                # Debian's torch cannot read its own default of these under
                # Python 3.11.
                TORCHRUN=f"{sys.executable} -m torch.distributed.run "
                f"--redirects=1 --tee=1 --log_dir={node}",
                NODES=str(len(self._nodes)), RANKS="2", RESTARTS="2",
                HEAD=f"127.0.0.1:{port}", XDG_RUNTIME_DIR=node,
                TRAINED=job.trained, OMP_NUM_THREADS="1",
                PATH=os.path.dirname(sys.executable) + ":/usr/bin:/bin")
            environment.pop("DATASETD_ADDRESS", None)
            with open(os.path.join(node, "out"), "w") as out:
                self.agents.append(subprocess.Popen(
                    [example("torchrun.sh"), sys.executable,
                     *script, job.data, job.checkpoint, str(epochs)],
                    env=environment, stdout=out, stderr=out,
                    stdin=subprocess.DEVNULL))

    def wait(self):
        for agent, node in zip(self.agents, self._nodes):
            code = agent.wait(240)
            with open(os.path.join(node, "out")) as out:
                assert code == 0, out.read()[-4000:]

    def cancel(self):
        """Ends all ranks, as an engine that takes the nodes away."""
        for agent in self.agents:
            agent.terminate()
        for agent in self.agents:
            assert agent.wait(60) != 0

    def close(self):
        for agent in self.agents:
            if agent.poll() is None:
                agent.kill()
            agent.wait()


def rank_of(job, rank):
    """The pid of the process that trains as this rank."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                line = file.read().split(b"\0")
            with open(f"/proc/{name}/environ", "rb") as file:
                environment = file.read().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if (job.checkpoint.encode() in line and b"datasetd" not in line
                and b"torch.distributed.run" not in line
                and f"RANK={rank}".encode() in environment):
            return int(name)
    raise AssertionError(f"no process is rank {rank}")
