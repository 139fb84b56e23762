"""Which share of an epoch a process gets, without rank= and world_size=."""

import json
import os
import subprocess
import sys
import types

import datasetd
import pytest
from conftest import NUM_SAMPLES, loader
from datasetd import _ranks

# Says one JSON line: what `take` returns.
_PRELUDE = """
import datetime, json, os, sys, warnings
import datasetd, torch
def begin():
    torch.distributed.init_process_group(
        "gloo", init_method="file://" + os.environ["MEETING"],
        rank=int(os.environ["AS_RANK"]), world_size=int(os.environ["AS_SIZE"]),
        timeout=datetime.timedelta(seconds=60))
def rows(batches):
    return [int(i) for batch in batches for i in batch.indices]
client = datasetd.connect(os.environ["ADDRESS"])
dataset = client.get_dataset("hundred")
"""


def run_ranks(daemon, tmp_path, source, size=2, **variables):
    """What each of `size` processes says."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _PRELUDE + source],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(
                os.environ,
                PYTHONPATH=os.pathsep.join(path for path in sys.path if path),
                ADDRESS=daemon.address,
                MEETING=str(tmp_path / "meeting"),
                AS_RANK=str(rank),
                AS_SIZE=str(size),
                **variables,
            ),
        )
        for rank in range(size)
    ]
    said = []
    for process in processes:
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        said.append((json.loads(output), errors))
    return said


def test_ranks_of_torch_distributed_have_disjoint_halves(
    daemon, dataset, tmp_path
):
    said = run_ranks(
        daemon,
        tmp_path,
        """
begin()
with datasetd.DataLoader(dataset, batch_size=8, shuffle=True) as loader:
    epochs = [rows(loader) for _ in range(2)]
    print(json.dumps([loader.rank, loader.world_size, loader.seed, epochs]))
""",
    )
    (rank0, _), (rank1, _) = said
    assert (rank0[:2], rank1[:2]) == ([0, 2], [1, 2])
    # Nobody gave a seed; both have that of rank 0.
    assert rank0[2] == rank1[2]
    for ours, theirs in zip(rank0[3], rank1[3]):
        # 103 samples and one that pads.
        assert len(ours) == len(theirs) == 52
        assert set(ours) | set(theirs) == set(range(NUM_SAMPLES))
        assert len(set(ours) & set(theirs)) <= 1
    assert rank0[3][0] != rank0[3][1]
    with loader(
        dataset, batch_size=NUM_SAMPLES, seed=rank0[2], prefetch=1
    ) as whole:
        order = next(iter(whole)).indices.tolist()
    assert rank0[3][0] == order[::2]


def test_world_size_1_means_all(daemon, dataset, tmp_path):
    said = run_ranks(
        daemon,
        tmp_path,
        """
begin()
if torch.distributed.get_rank() == 0:
    # Alone: nothing is agreed with the others.
    datasetd.DataLoader(dataset, shuffle=True, world_size=1).close()
with datasetd.DataLoader(dataset, batch_size=8, world_size=1) as loader:
    print(json.dumps(rows(loader)))
""",
    )
    assert [rows for rows, _ in said] == [list(range(NUM_SAMPLES))] * 2


def test_a_loader_made_before_init_process_group(daemon, dataset, tmp_path):
    said = run_ranks(
        daemon,
        tmp_path,
        """
torch.manual_seed(int(os.environ["AS_RANK"]))
loader = datasetd.DataLoader(dataset, batch_size=8, shuffle=True)
before = [len(loader), loader.seed]
begin()
if os.environ["AS_RANK"] == "1":
    len(loader), loader.state_dict()  # ask no other rank
print(json.dumps([before, len(loader), rows(loader), loader.seed]))
""",
    )
    (rank0, _), (rank1, _) = said
    assert rank0[0][1] != rank1[0][1]
    assert rank0[3] == rank1[3] == rank0[0][1]
    for said in (rank0, rank1):
        assert said[0][0] == 13 and said[1] == 7
    assert set(rank0[2]) | set(rank1[2]) == set(range(NUM_SAMPLES))


def test_ranks_stay_those_of_the_first_iter(daemon, dataset, tmp_path):
    said = run_ranks(
        daemon,
        tmp_path,
        """
loader = datasetd.DataLoader(dataset, batch_size=8)
rows(loader)
begin()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        again = rows(loader)
print(json.dumps([again, [str(w.message) for w in caught]]))
""",
    )
    for rows, warned in (answer for answer, _ in said):
        assert rows == list(range(NUM_SAMPLES))
        assert len(warned) == 1
        assert "of 2, but a loader keeps the ranks of its first" in warned[0]


@pytest.mark.parametrize(
    "variables, words",
    [
        (
            {"RANK": "1", "WORLD_SIZE": "4"},
            r"torchrun runs 4 processes ($RANK, $WORLD_SIZE)",
        ),
        (
            {"SLURM_PROCID": "1", "SLURM_NTASKS": "4"},
            "Slurm runs 4 processes",
        ),
        (
            {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"},
            "Open MPI runs 4 processes",
        ),
    ],
    ids=["torchrun", "slurm", "mpi"],
)
def test_a_launchers_environment_warns_once(
    daemon, dataset, tmp_path, variables, words
):
    ((rows, errors),) = run_ranks(
        daemon,
        tmp_path,
        """
first = rows(datasetd.DataLoader(dataset, batch_size=8))
rows(datasetd.DataLoader(dataset, batch_size=8))
print(json.dumps(first))
""",
        size=1,
        **variables,
    )
    # The environment alone divides nothing.
    assert rows == list(range(NUM_SAMPLES))
    assert errors.count("UserWarning") == 1
    assert words in errors
    assert "Pass rank=1, world_size=4" in errors


@pytest.mark.parametrize(
    "arguments",
    ["world_size=1", "rank=1, world_size=4"],
)
def test_who_names_ranks_is_not_warned(daemon, dataset, tmp_path, arguments):
    ((_, errors),) = run_ranks(
        daemon,
        tmp_path,
        f"""
rows(datasetd.DataLoader(dataset, batch_size=8, {arguments}))
print(0)
""",
        size=1,
        RANK="1",
        WORLD_SIZE="4",
    )
    assert errors == ""


def test_jax_processes_are_warned(dataset, monkeypatch):
    state = types.SimpleNamespace(client=None, process_id=2, num_processes=3)
    monkeypatch.setitem(
        sys.modules,
        "jax._src.distributed",
        types.SimpleNamespace(global_state=state),
    )
    monkeypatch.setattr("datasetd._warnings._said", set())
    _ranks.warn_if_launched()
    state.client = object()
    with loader(dataset) as batches:
        with pytest.warns(UserWarning, match="jax.distributed runs 3") as seen:
            next(iter(batches))
    assert "Pass rank=2, world_size=3" in str(seen[0].message)
    # The line is that of the user.
    assert seen[0].filename == __file__


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"rank": 1}, "rank=1 needs world_size="),
        ({"world_size": 2}, "world_size=2 needs rank="),
        ({"rank": "first"}, "rank='first'; expected an int, or 'auto'"),
        (
            {"rank": 1, "world_size": 2, "seed": None},
            "2 ranks share one order and need one seed",
        ),
    ],
)
def test_what_ranks_need(dataset, arguments, text):
    with pytest.raises(datasetd.InvalidArgument, match=text):
        loader(dataset, **arguments)
