"""Which share of an epoch a process gets, without rank= and world_size=."""

import json
import os
import subprocess
import sys
import types

import datasetd
import pytest
from conftest import NUM_SAMPLES, loader
from datasetd._ranks import ranks

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
    """Runs `source` in `size` processes; returns what each says."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _PRELUDE + source],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(
                os.environ,
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
    ranks.warn_if_launched()
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


# A rank says the error of each of its iter()s, or the number of rows.
_EPOCHS = """
def said(loader, count=2):
    answers = []
    for _ in range(count):
        try:
            answers.append(len(rows(loader)))
        except datasetd.FailedPrecondition as error:
            answers.append(str(error))
    return answers
begin()
rank = torch.distributed.get_rank()
"""
_SAY = """
print(json.dumps(said(loader)))
"""


@pytest.mark.parametrize(
    "arguments, words",
    [
        (
            "shuffle=True, seed=7 + rank",
            ("seed is {0} on rank {0} and {1} on rank {1}", "the same seed"),
        ),
        (
            "seed=1, transforms=[T.RandomCrop(4 + rank)]",
            ("transforms_hash is ", "the same transforms"),
        ),
        ("seed=1, shuffle=bool(rank)", ("sampler is ", "the same sampler")),
        ("subset=[1, 2, 3, rank + 4]", ("subset is ", "the same subset")),
        ("seed=1, weights=[1] * 102 + [rank]", ("weights is ", "weights")),
        ("drop_last=bool(rank)", ("drop_last is ", "the same drop_last")),
    ],
    ids=["seed", "transforms", "shuffle", "subset", "weights", "drop_last"],
)
def test_ranks_that_differ(daemon, dataset, tmp_path, arguments, words):
    said = run_ranks(
        daemon,
        tmp_path,
        "from datasetd import transforms as T\n"
        + _EPOCHS
        + f"loader = datasetd.DataLoader(dataset, {arguments})"
        # Rank 1 comes second; rank 0 begins its second epoch after it.
        + """
store = torch.distributed.distributed_c10d._get_default_store()
if rank == 1:
    store.get("rank 0 has iterated")
answers = said(loader, 1)
store.set(f"rank {rank} has iterated", "")
if rank == 0:
    store.get("rank 1 has iterated")
print(json.dumps(answers + said(loader, 1) + said(loader, 1)))
""",
    )
    (rank0, _), (rank1, _) = said
    error = rank1[0]
    assert error.startswith("ranks 0 and 1 of 2 do not agree on dataset")
    for text in words:
        if "{0}" in text:
            text = "seed is 7 on rank 0 and 8 on rank 1"
        assert text in error
    assert isinstance(rank0[0], int)
    assert rank0[1:] == rank1[1:] == [error, error]


@pytest.mark.parametrize(
    "change",
    [
        "loader.set_weights([2] * 102 + [rank])",
        "if rank == 0: loader.set_weights([2] * 103)",
        "if rank == 1: loader.set_weights([2] * 103)",
    ],
    ids=["other", "one did not", "the other did not"],
)
def test_weights_that_ranks_set_differently(
    daemon, dataset, tmp_path, change
):
    """In the second epoch: the rank that comes to it second is told, and the
    other one at its next epoch."""
    (rank0, _), (rank1, _) = run_ranks(
        daemon,
        tmp_path,
        _EPOCHS
        + f"""
loader = datasetd.DataLoader(dataset, seed=1, weights=[1] * 103)
answers = said(loader, 1)
{change}
store = torch.distributed.distributed_c10d._get_default_store()
if rank == 1:
    store.get("rank 0 has iterated")
answers += said(loader, 1)
store.set(f"rank {{rank}} has iterated", "")
if rank == 0:
    store.get("rank 1 has iterated")
print(json.dumps(answers + said(loader, 1)))
""",
    )
    assert rank0[:2] == [52, 52] and rank1[0] == 52
    assert rank1[1:] == [rank0[2], rank0[2]]
    assert rank0[2].startswith("ranks 0 and 1 of 2 do not agree on dataset")
    assert "weights is '" in rank0[2]
    assert "(weights=, set_weights)" in rank0[2]


def test_weights_that_ranks_set_alike(daemon, dataset, tmp_path):
    """At other batches, more often, and with an epoch that comes twice."""
    for answer, _ in run_ranks(
        daemon,
        tmp_path,
        _EPOCHS
        + """
loader = datasetd.DataLoader(dataset, batch_size=8, seed=1, weights=[1] * 103)
answers = []
for turn in range(4):
    iterator = iter(loader)
    for _ in range(2 + rank):
        next(iterator)
    if rank:
        loader.set_weights([9] * 103)
    loader.set_weights(range(turn, turn + 103))
    answers.append(2 + rank + len(list(iterator)))
    loader.set_epoch(turn % 2)
print(json.dumps(answers + said(loader)))
""",
    ):
        assert answer == [7, 7, 7, 7, 52, 52]


def test_samples_that_differ(daemon, dataset, tmp_path):
    """Each node has a daemon, and one has loaded something else."""
    ((rank0, _), (rank1, _)) = run_ranks(
        daemon,
        tmp_path,
        _EPOCHS
        + """
if rank == 1:
    client = datasetd.start_local(device="cpu").connect()
    dataset = client.push_dataset("hundred", {"x": torch.arange(103)})
loader = datasetd.DataLoader(dataset, batch_size=8, seed=1)
answers = said(loader, 1)
torch.distributed.barrier()
print(json.dumps(answers + said(loader, 1)))
""",
    )
    # The rank that came second gets the error; both do at the second epoch.
    assert {type(rank0[0]), type(rank1[0])} == {int, str}
    assert rank0[1] == rank1[1]
    assert "content_hash is '" in rank0[1]
    assert "load the same samples on every node" in rank0[1]


def test_ranks_that_agree_and_ranks_that_need_not(daemon, dataset, tmp_path):
    for answer, errors in run_ranks(
        daemon,
        tmp_path,
        _EPOCHS
        + """
answers = [
    said(datasetd.DataLoader(dataset, **arguments))
    for arguments in (
        dict(shuffle=True),
        dict(shuffle=True, seed=5),
        dict(shuffle=True, seed=rank, world_size=1),
        dict(shuffle=True, seed=rank, rank=rank, world_size=3),
        dict(shuffle=True, seed=rank, name=f"of rank {rank}"),
        dict(sampler=[rank, 2], seed=rank),
        dict(batch_size=4 + 4 * rank, seed=1, world_size="auto"),
    )
]
print(json.dumps(answers))
""",
    ):
        assert errors == ""
        assert answer == [
            [52, 52], [52, 52], [103, 103], [35, 35], [52, 52], [2, 2],
            [52, 52],
        ]  # fmt: skip


def test_a_rank_that_never_iterates_keeps_nobody_waiting(
    daemon, dataset, tmp_path
):
    (rank0, _), (rank1, _) = run_ranks(
        daemon,
        tmp_path,
        _EPOCHS
        + """
loader = datasetd.DataLoader(dataset, batch_size=8, seed=1)
print(json.dumps(said(loader, 3) if rank else None))
""",
    )
    assert rank0 is None and rank1 == [52, 52, 52]


def test_comparing_costs_nothing_per_batch(daemon, dataset, tmp_path):
    for (answer, _) in run_ranks(
        daemon,
        tmp_path,
        _EPOCHS
        + """
c10d = torch.distributed.distributed_c10d
class Counting:
    calls = 0
    def compare_set(self, *arguments):
        Counting.calls += 1
        return store.compare_set(*arguments)
store = c10d._get_default_store()
c10d._get_default_store = Counting
loader = datasetd.DataLoader(dataset, seed=1)
counts = [Counting.calls]
for _ in range(4):
    iterator = iter(loader)
    next(iterator)
    counts.append(Counting.calls)
    for batch in iterator:
        pass
    counts.append(Counting.calls)
print(json.dumps(counts))
""",
    ):
        assert answer == [0, 1, 1, 2, 2, 2, 2, 2, 2]


def test_a_store_that_is_gone(daemon, dataset, tmp_path):
    """The ranks are not compared, and this is said."""
    for answer, errors in run_ranks(
        daemon,
        tmp_path,
        _EPOCHS
        + """
class Gone:
    def compare_set(self, *_):
        raise RuntimeError("Connection reset by peer")
stores = [None, Gone()]
torch.distributed.distributed_c10d._get_default_store = lambda: stores[rank]
print(json.dumps(said(datasetd.DataLoader(dataset, batch_size=8, seed=rank))))
""",
    ):
        assert answer == [52, 52]
        assert errors.count("the ranks are not compared: ") == 1
        assert (
            "Connection reset by peer" in errors
            or "no store with backend 'gloo'" in errors
        )


class _JaxClient:
    """The key-value service of jax.distributed, as jaxlib has it."""

    def __init__(self):
        self.values = {}

    def key_value_set(self, key, value):
        if key in self.values:
            raise RuntimeError(f"ALREADY_EXISTS: key {key} already exists.")
        self.values[key] = value

    def key_value_dir_get(self, prefix):
        return [
            (key, value)
            for key, value in self.values.items()
            if key.startswith(prefix)
        ]


@pytest.mark.parametrize("seed", [5, 6])
def test_processes_of_jax(dataset, monkeypatch, seed):
    """Two processes, played by one."""
    state = types.SimpleNamespace(
        client=_JaxClient(), process_id=0, num_processes=2
    )
    monkeypatch.setitem(
        sys.modules,
        "jax._src.distributed",
        types.SimpleNamespace(global_state=state),
    )
    with loader(dataset, rank=0, world_size=2, seed=5) as first, loader(
        dataset, rank=1, world_size=2, seed=seed
    ) as second:
        for rank, batches in enumerate((first, second, first)):
            state.process_id = rank % 2
            monkeypatch.setattr("datasetd._ranks.agreement._numbers", {})
            if seed == 5 or rank == 0:
                assert sum(batch.num_samples for batch in batches) == 52
                continue
            with pytest.raises(
                datasetd.FailedPrecondition,
                match="seed is 5 on rank 0 and 6 on rank 1",
            ):
                next(iter(batches))


# -- Shares that the user did not ask for --------------------------------------

_SAID = """
begin()
rank = torch.distributed.get_rank()
def told(**arguments):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with datasetd.DataLoader(dataset, 8, **arguments) as loader:
            sizes = [len(rows(loader)) for _ in range(2)]
    return sizes[0], [str(warning.message) for warning in caught]
def told_first(**arguments):
    from datasetd import _warnings
    _warnings._said.clear()
    return told(**arguments)
"""


def test_a_share_that_nobody_asked_for_is_said_once(daemon, dataset, tmp_path):
    """A loop that evaluates on one rank, or on each, would see a half."""
    for rank, (answer, _) in enumerate(
        run_ranks(
            daemon,
            tmp_path,
            _SAID
            + """
print(json.dumps([
    told(), told(), told_first(drop_last=True),
    told_first(subset=range(9)),
    told_first(world_size=1), told_first(world_size="auto"),
    told_first(rank="auto"), told_first(rank=rank, world_size=2),
    told_first(shuffle=True), told_first(weights=[1] * 103),
    told_first(pad=False), told_first(partition=(0, 1)),
    told_first(sampler=range(rank, 103, 2)),
]))
""",
        )
    ):
        (size, (said,)), again, (dropped, (said_too,)), *rest = answer
        assert size == 52 and again == [52, []] and dropped == 48
        assert said.startswith(
            f"dataset 'hundred': 52 of 103 samples on this rank, {rank} of 2"
        )
        assert "pass world_size=1; world_size='auto'" in said
        assert "51 of 103 samples" in said_too
        (size, (said,)), *rest = rest
        assert size == 5 and "5 of 9 samples" in said
        assert rest == [
            [103, []], [52, []], [52, []], [52, []], [52, []], [52, []],
            [52 - rank, []], [52, []], [52 - rank, []],
        ]  # fmt: skip


def test_a_share_that_came_after_the_loader_is_said(daemon, dataset, tmp_path):
    for answer, errors in run_ranks(
        daemon,
        tmp_path,
        """
loader = datasetd.DataLoader(dataset, batch_size=8)
begin()
print(json.dumps(len(rows(loader))))
""",
    ):
        assert answer == 52
        assert "<string>" in errors and "52 of 103 samples" in errors


_SAMPLERS = """
class Own:
    def __init__(self, order): self.order = order
    def __iter__(self): return iter(self.order)
class Sized(Own):
    def __len__(self): return len(self.order)
tud = torch.utils.data
torch.manual_seed(rank)
half = range(rank, 103, 2)
part = dataset.select(range(50))
own_part = dataset.select(list(half))
def alike():
    torch.manual_seed(1)
    return tud.RandomSampler(range(50))
def batches(sampler):
    return tud.BatchSampler(sampler, 8, False)
"""


def test_samplers_that_give_all_ranks_the_same(daemon, dataset, tmp_path):
    (rank0, _), (rank1, _) = run_ranks(
        daemon,
        tmp_path,
        _SAID + _SAMPLERS
        + """
def said_of(**arguments):
    given = arguments.pop("dataset", dataset)
    global told
    from datasetd import _warnings
    _warnings._said.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with datasetd.DataLoader(given, 8, **arguments) as loader:
            rows(loader)
    torch.distributed.barrier()
    return [str(warning.message) for warning in caught]
# Whoever has as many indices as there are samples is told without the others.
alone = [
    said_of(sampler=tud.RandomSampler(range(103))),
    said_of(sampler=tud.SequentialSampler(range(103))),
    said_of(sampler=Sized(range(102, -1, -1))),
    said_of(sampler=tud.WeightedRandomSampler([1.0] * 103, 103)),
    said_of(batch_sampler=batches(tud.RandomSampler(range(103)))),
    said_of(batch_sampler=[[i, i + 1] for i in range(0, 102, 1)]),
]
# The second rank that comes sees what the first took.
together = [
    said_of(sampler=Own(range(103))),
    said_of(sampler=range(20)),
    said_of(dataset=part, sampler=alike()),
    said_of(dataset=part, sampler=tud.RandomSampler(part)),
    said_of(sampler=tud.DistributedSampler(range(103), 2, 0)),
]
silent = [
    said_of(sampler=tud.DistributedSampler(range(103))),
    said_of(batch_sampler=batches(tud.DistributedSampler(range(103)))),
    said_of(sampler=list(half)),
    said_of(sampler=Own(half)),
    said_of(sampler=tud.SubsetRandomSampler(list(half))),
    said_of(dataset=own_part, sampler=tud.RandomSampler(own_part)),
    said_of(sampler=range(103), world_size="auto"),
    said_of(sampler=range(103), rank=rank, world_size=2),
    said_of(sampler=range(103), world_size=1),
    said_of(),
][:-1]
print(json.dumps([alone, together, silent]))
""",
    )
    for rank in (rank0, rank1):
        for (said,) in rank[0]:
            assert said.startswith(
                "dataset 'hundred': each rank takes all samples, because"
            )
            assert "pass torch.utils.data.DistributedSampler(dataset), or" in said
            assert "rank=, world_size=" in said
        assert rank[2] == [[]] * 9
    for first, second in zip(rank0[1], rank1[1]):
        (said,) = first + second
        assert "take the same samples" in said


def test_a_rank_that_shuffles_alone_is_told_why(daemon, dataset, tmp_path):
    """The other one is in another collective, has none, or has ended."""
    for other in ("torch.distributed.barrier()", "pass"):
        (_, _), (answer, _) = run_ranks(
            daemon,
            tmp_path,
            """
torch.distributed.init_process_group(
    "gloo", init_method="file://" + os.environ["MEETING"],
    rank=int(os.environ["AS_RANK"]), world_size=2,
    timeout=datetime.timedelta(seconds=3))
answer = None
if torch.distributed.get_rank():
    try:
        datasetd.DataLoader(dataset, shuffle=True)
    except datasetd.FailedPrecondition as error:
        answer = str(error)
    # The cures.
    for arguments in (dict(world_size=1), dict(seed=1)):
        datasetd.DataLoader(dataset, shuffle=True, **arguments)
else:
    try:
        OTHER
    except RuntimeError:
        pass
print(json.dumps(answer), flush=True)
os._exit(0)
""".replace("OTHER", other),
        )
        (tmp_path / "meeting").unlink()
        assert "rank 1 of 2 made a loader that shuffles" in answer
        assert "Make it on every rank" in answer and "world_size=1" in answer
        assert "gloo" not in answer and "seed=" in answer
