"""Runs the examples of docs/frameworks.md as they stand there."""

import collections
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys

from conftest import NUM_SAMPLES

_HERE = os.path.dirname(os.path.abspath(__file__))


def _blocks():
    """Returns {heading: its blocks of Python}."""
    with open(os.environ["FRAMEWORKS_PAGE"], encoding="utf-8") as file:
        sections = re.split(r"^## ", file.read(), flags=re.MULTILINE)
    return {
        section.partition("\n")[0]: re.findall(
            r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL
        )
        for section in sections
    }


class Batches(list):
    """The batches of each rank's loader: dicts, in the order of each rank."""

    def of(self, rank):
        """Returns (epoch, index, hash of the arrays) of each batch."""
        return [
            (b["epoch"], b["index"], b["hash"])
            for b in self
            if b["rank"] == rank
        ]

    def by_loader(self):
        """Returns Batches of each loader."""
        loaders = collections.defaultdict(Batches)
        for batch in self:
            loaders[batch["loader"]].append(batch)
        return list(loaders.values())

    def expect_each_sample_once(self, num_epochs, world_size):
        """Over all ranks, in each epoch; apart from what is padding."""
        assert {b["world_size"] for b in self} == {world_size}
        seen = collections.defaultdict(list)
        num_padding = 0
        for batch in self:
            rows = len(batch["indices"]) - batch["num_padding"]
            seen[batch["epoch"]] += batch["indices"][:rows]
            num_padding += batch["num_padding"]
        assert sorted(seen) == list(range(num_epochs))
        for indices in seen.values():
            assert sorted(indices) == list(range(NUM_SAMPLES))
        assert num_padding == num_epochs * (-NUM_SAMPLES % world_size)
        orders = {tuple(indices) for indices in seen.values()}
        assert len(orders) == num_epochs


class Page:
    """The examples, and a daemon for them."""

    def __init__(self, address, directory):
        self._address = address
        self._directory = directory
        self._num_runs = 0

    def run(
        self,
        heading,
        ranks=1,
        folder="run",
        kill=None,
        changes=(),
        around=None,
    ):
        """Runs the example below `heading` in `folder`, in as many processes
        as there are ranks, with `changes` (old, new) to its text.

        With `kill`, (epoch, index) of a batch, every rank dies in place of
        that batch. `around` makes a context of the environment, which gives
        that of the processes. Returns what was printed, and Batches.
        """
        blocks = _blocks()
        (common,), (example,) = blocks["The common part"], blocks[heading]
        cwd = self._directory / folder
        cwd.mkdir(exist_ok=True)
        (cwd / "common.py").write_text(common)
        for old, new in changes:
            assert old in example
            example = example.replace(old, new)
        (cwd / "train.py").write_text(example)
        self._num_runs += 1
        records = self._directory / f"records-{self._num_runs}"
        records.mkdir()
        environment = dict(
            os.environ,
            PYTHONPATH=os.pathsep.join(
                [os.path.join(_HERE, "recorder"), str(cwd)]
                + [os.path.abspath(path) for path in sys.path if path]
            ),
            DATASETD_ADDRESS=self._address,
            RECORD_DIRECTORY=str(records),
            OMP_NUM_THREADS="1",
        )
        if kill is not None:
            environment["RECORD_KILL"] = "%d,%d" % kill
        with (around or contextlib.nullcontext)(environment) as changed:
            # The workers of a cluster die, and not the program.
            is_killed = kill is not None and around is None
            printed = run_ranks(ranks, cwd, changed, is_killed)
        if kill is not None:
            assert (records / "killed-0").exists(), printed
        return printed, _read(records)

    def expect_exact_resume(self, heading, checkpoint, kill, **arguments):
        """Runs an example that saves its state, undisturbed; and again with
        SIGKILL at batch `kill`, and once more to its end, which must go on at
        batch `checkpoint` and give what the undisturbed run gave.

        Returns the undisturbed run.
        """
        whole = self.run(heading, folder="whole", **arguments)
        self.run(heading, folder="killed", kill=kill, **arguments)
        printed, rest = self.run(heading, folder="killed", **arguments)
        for rank in range(arguments.get("ranks", 1)):
            batches = whole[1].of(rank)
            (first,) = [i for i, b in enumerate(batches) if b[:2] == checkpoint]
            assert rest.of(rank) == batches[first:]
        # The model, too, is that of the undisturbed run.
        assert losses(printed) == losses(whole[0]) != []
        return whole


def run_ranks(ranks, cwd, environment, is_killed):
    """Runs train.py with the environment that torchrun gives each rank;
    torch 1.13's own does not run on Python 3.11. Returns what they print."""
    # Bound, so that nobody else is given the port; rank 0 listens there.
    with socket.socket() as port:
        port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port.bind(("127.0.0.1", 0))
        launched = {}
        if ranks > 1:
            launched = {
                "WORLD_SIZE": str(ranks),
                "LOCAL_WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port.getsockname()[1]),
            }
        processes = []
        for rank in range(ranks):
            if ranks > 1:
                launched.update(RANK=str(rank), LOCAL_RANK=str(rank))
            with open(cwd / f"printed-{rank}", "w") as file:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, "train.py"],
                        cwd=cwd,
                        env={**environment, **launched},
                        stdout=file,
                        stderr=subprocess.STDOUT,
                    )
                )
        try:
            codes = [process.wait(timeout=240) for process in processes]
        finally:
            for process in processes:
                process.kill()
    printed = "".join(
        (cwd / f"printed-{rank}").read_text() for rank in range(ranks)
    )
    if is_killed:
        # A rank may learn of another's death before it has its own.
        assert -signal.SIGKILL in codes and 0 not in codes, printed
    else:
        assert not any(codes), printed
    return printed


def losses(printed):
    return re.findall(r"^loss .*$", printed, re.MULTILINE)


def _read(records):
    """Each process has a file, and one after another wrote in a rank."""
    paths = sorted(records.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    return Batches(
        json.loads(line)
        for path in paths
        for line in path.read_text().splitlines()
    )
