"""Nodes that hold a part of the samples each: daemons, ranks and a store of
torch.distributed that are processes of their own."""

import io
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tarfile

import numpy as np
import pytest
from PIL import Image

from tests.clusters import cluster_harness
from tests.testing import daemon_harness as harness
from tests.testing import ports

# Samples of each shard, 192 altogether. Two nodes never have equally many.
_SIZES = (31, 5, 40, 17, 29, 8, 62)


def write_shards(directory):
    """Returns the pattern of shards whose samples have an `id` each."""
    os.makedirs(directory, exist_ok=True)
    assert sum(_SIZES) == cluster_harness.NUM_SAMPLES
    random = np.random.default_rng(1)
    number = 0
    for shard, size in enumerate(_SIZES):
        with tarfile.open(
            f"{directory}/s-{shard}.tar", "w", format=tarfile.USTAR_FORMAT
        ) as file:
            for _ in range(size):
                image = io.BytesIO()
                Image.fromarray(
                    random.integers(0, 256, (8, 8, 3), dtype=np.uint8)
                ).save(image, "png")
                for ending, data in (
                    ("png", image.getvalue()),
                    ("cls", str(number % 10).encode()),
                    ("id", str(number).encode()),
                ):
                    info = tarfile.TarInfo(f"{number:06d}.{ending}")
                    info.size = len(data)
                    file.addfile(info, io.BytesIO(data))
                number += 1
    return f"{directory}/s-{{0..{len(_SIZES) - 1}}}.tar"


@pytest.fixture
def job():
    made = cluster_harness.Job()
    made.data = write_shards(made.data)
    yield made
    made.close()


@pytest.fixture(scope="module")
def daemons():
    """The daemons of four nodes."""
    started = [harness.Daemon() for _ in range(4)]
    yield started
    for daemon in started:
        daemon.__exit__(None, None, None)


def nodes_of(job, epoch):
    """The samples that the ranks of each of two nodes trained in an epoch."""
    return [
        {row for rank in ranks for of, _, rows in job.lines(rank)
         if of == epoch for row in rows}
        for ranks in ((0, 1), (2, 3))
    ]


def test_a_rank_and_a_daemon_are_killed(job):
    """The example train_shards.py on two nodes: each sample once an epoch, on
    one node, and not on the same one in every epoch."""
    torchrun = cluster_harness.Torchrun(
        job, 2, held=True, script="train_shards.py")
    try:
        job.await_held(times=1)
        daemons = [job.daemons(node) for node in range(2)]
        os.kill(cluster_harness.rank_of(job, 3), signal.SIGKILL)
        job.await_held(times=2)
        assert [job.daemons(node) for node in range(2)] == daemons
        (pid,) = daemons[1]
        os.kill(pid, signal.SIGKILL)
        harness.poll_until(
            lambda: "another one is started" in open(
                os.path.join(job.nodes[1], "out")).read(),
            "the end of the daemon is noticed", 120)
        job.let_go()
        torchrun.wait()
    finally:
        torchrun.close()
    job.check(ranks=4, epochs=2, repeats=True)
    divisions = []
    for epoch in range(2):
        first, second = nodes_of(job, epoch)
        assert not first & second
        divisions.append(first)
        counts = {
            len({batch for of, batch, _ in job.lines(rank) if of == epoch})
            for rank in range(4)}
        assert len(counts) == 1
    assert divisions[0] != divisions[1]


def test_the_example_of_the_page(daemons, tmp_path):
    """On two nodes of two ranks."""
    with open(harness.runfile("docs/clusters.md"), encoding="utf-8") as file:
        (example,) = re.findall(
            r"^## Parts.*?^```python\n(.*?)^```$", file.read(),
            re.MULTILINE | re.DOTALL)
    np.save(tmp_path / "images.npy", np.zeros((101, 8, 8, 3), np.uint8))
    np.save(tmp_path / "labels.npy", np.arange(101) % 10)
    port = ports.free_port()
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", example], cwd=tmp_path,
            stdout=subprocess.PIPE, text=True,
            env=dict(
                os.environ, RANK=str(rank), WORLD_SIZE="4",
                LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port), OMP_NUM_THREADS="1",
                DATASETD_ADDRESS=daemons[rank // 2].socket_path))
        for rank in range(4)]
    said = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * 4
    assert said == ["train.0of2 50 101 4\n"] * 2 + [
        "train.1of2 51 101 4\n"] * 2


# Before the source of a rank, which has a main().
_PRELUDE = """
import datetime, json, os, signal
import numpy as np
import torch, torch.distributed as dist
import datasetd
from datasetd import transforms as T
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
local_size = int(os.environ["LOCAL_WORLD_SIZE"])
dist.init_process_group(
    "gloo", init_method="tcp://127.0.0.1:" + os.environ["PORT"], rank=rank,
    world_size=size, timeout=datetime.timedelta(
        seconds=int(os.environ.get("LIMIT", 60))))
client = datasetd.connect()
ids = np.arange(int(os.environ["SAMPLES"]))
dataset = client.push_dataset(f"ids{len(ids)}", {"id": ids}, part="node")
def make(**arguments):
    return datasetd.DataLoader(
        dataset, **{"batch_size": 5, "shuffle": True, "partition": "node",
                    **arguments})
def epoch_of(loader):
    return [[b.id.tolist(), b.num_padding, b.epoch] for b in loader]
"""


def run_rank(source, variables, pipe):
    """Says what main() returns, or the error, and ends when all have: the
    store is rank 0's."""
    os.environ.update(variables)
    names = {"say": pipe.send}
    try:
        exec(_PRELUDE + source, names)
        pipe.send(names["main"]())
    except names["datasetd"].Error as error:
        pipe.send([type(error).__name__, str(error)])
    pipe.recv()


# The server imports torch once, and forks the ranks.
_RANKS = multiprocessing.get_context("forkserver")
_RANKS.set_forkserver_preload(
    ["__main__", "numpy", "torch", "torch.distributed", "datasetd"])
os.environ["OMP_NUM_THREADS"] = "1"


def run_ranks(daemons, nodes, per_node, samples, source, seconds=120,
              is_killed=False, **variables):
    """Returns what each rank says first; if `is_killed`, it is then killed."""
    port = ports.free_port()
    size = nodes * per_node
    processes, pipes = [], []
    try:
        for rank in range(size):
            pipe, other = _RANKS.Pipe()
            pipes.append(pipe)
            processes.append(_RANKS.Process(target=run_rank, args=(source, {
                "RANK": str(rank), "WORLD_SIZE": str(size),
                "LOCAL_WORLD_SIZE": str(per_node), "PORT": str(port),
                "SAMPLES": str(samples),
                "DATASETD_ADDRESS": daemons[rank // per_node].socket_path,
                **variables}, other)))
            processes[-1].start()
            other.close()  # so that the end of the rank is one of the pipe
        said = [pipe.recv() for pipe in pipes]
        for process, pipe in zip(processes, pipes):
            if is_killed:
                process.kill()
            else:
                pipe.send("all have spoken")
        for process in processes:
            process.join(seconds)
            assert process.exitcode == (-signal.SIGKILL if is_killed else 0)
    finally:
        for process in processes:
            process.kill()
            process.join()
    return said


@pytest.mark.parametrize("nodes, per_node", [(2, 2), (4, 1)])
def test_parts_that_are_equal(daemons, nodes, per_node):
    """Every sample once an epoch; nobody gave a seed."""
    results = run_ranks(daemons, nodes, per_node, 120, """
def main():
    with make() as loader:
        return [loader.seed, len(loader), [epoch_of(loader) for _ in range(2)]]
""")
    assert len({seed for seed, *_ in results}) == 1
    assert {count for _, count, _ in results} == {6}
    for epoch in range(2):
        batches = [batch for *_, epochs in results for batch in epochs[epoch]]
        assert sorted(sum((rows for rows, *_ in batches), [])) == list(
            range(120))
        assert {(len(rows), padding, of) for rows, padding, of in batches} == {
            (5, 0, epoch)}


@pytest.mark.parametrize("drop_last", [False, True])
def test_parts_that_are_not_equal(daemons, drop_last):
    """Nodes of 30 and 31 samples, which two ranks each divide."""
    results = run_ranks(daemons, 2, 2, 61, f"""
def main():
    with make(seed=3, drop_last={drop_last}) as loader:
        return [len(loader), [epoch_of(loader) for _ in range(4)]]
""")
    rows = 15 if drop_last else 16
    assert {count for count, _ in results} == {-(-rows // 5)}
    left_out = []
    for epoch in range(4):
        seen, padded = [], 0
        for _, epochs in results:
            assert [len(ids) for ids, *_ in epochs[epoch]] == [
                min(5, rows - first) for first in range(0, rows, 5)]
            for ids, padding, _ in epochs[epoch]:
                seen += ids[: len(ids) - padding]
                padded += padding
        assert len(seen) == len(set(seen)) == (60 if drop_last else 61)
        assert padded == (0 if drop_last else 3)
        left_out.append(set(range(61)) - set(seen))
    if drop_last:
        assert len(set(map(frozenset, left_out))) > 1


def test_a_rank_without_partition(daemons):
    results = run_ranks(daemons, 2, 1, 40, """
def main():
    with make(seed=3, **({"partition": None} if rank else {})) as loader:
        answers = []
        for _ in range(2):
            try:
                answers.append(len(epoch_of(loader)))
            except datasetd.FailedPrecondition as error:
                answers.append(str(error))
            dist.barrier()
        return answers
""")
    divided, plain = results
    assert divided[0] == divided[1] == plain[1]
    assert plain[0] in (2, divided[0])  # the first to come cannot know
    assert ("ranks 0 and 1 of 2 do not agree on dataset 'ids40': partition is "
            "'node' on rank 0 and None on rank 1") in divided[0]


@pytest.mark.parametrize("late", [0, 3])
def test_a_rank_that_does_not_come(daemons, late):
    results = run_ranks(daemons, 2, 2, 40, f"""
def main():
    with make(seed=3) as loader:
        if rank == {late}:
            return None
        return len(loader)
""", LIMIT="5")
    for rank, result in enumerate(results):
        if rank == late:
            assert result is None
            continue
        kind, message = result
        assert kind in ("DeadlineExceeded", "FailedPrecondition")
        assert f"1 rank(s) have not come ({late}): every rank must" in message


def test_a_state_goes_on_in_other_processes(daemons):
    """Ranks are killed after three batches. Four nodes cannot go on with the
    rest, but can begin the next epoch."""
    results = run_ranks(daemons, 2, 2, 120, """
def main():
    loader = make(seed=3)
    rows = [batch.id.tolist() for _, batch in zip(range(3), loader)]
    say([rows, loader.state_dict()])
    signal.pause()
""", is_killed=True)
    before = sum((rows for batches, _ in results for rows in batches), [])
    state = results[0][1]
    assert all(of == state for _, of in results)
    source = f"""
def main():
    state = json.loads({json.dumps(state)!r})
    with make() as loader:
        loader.load_state_dict(state)
        return [epoch_of(loader), loader.state_dict()]
"""
    results = run_ranks(daemons, 2, 2, 120, source)
    after = [row for batches, _ in results for rows, *_ in batches
             for row in rows]
    assert sorted(before + after) == list(range(120))
    refused = run_ranks(daemons, 4, 1, 120, source)
    for kind, message in refused:
        assert kind == "FailedPrecondition"
        assert ("taken at batch 3 of epoch 0 with 2 node(s) of 2, 2 rank(s), "
                "and there are 4 node(s) of 1, 1, 1, 1 rank(s) now") in message
    results = run_ranks(
        daemons, 4, 1, 120,
        source.replace("load_state_dict(state)",
                       "load_state_dict(dict(state, epoch=1, batch=0))"))
    rows = [row for batches, _ in results for rows, *_ in batches
            for row in rows]
    assert sorted(rows) == list(range(120))
    assert results[0][1]["epoch"] == 2


if __name__ == "__main__":
    harness.main(__file__)
