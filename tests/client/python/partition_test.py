"""Loaders of nodes that hold a part of the samples each.

Ranks are threads here, and their store is a dict; ranks that are processes of
torch.distributed are in tests/clusters/partition_test.py.
"""

import hashlib
import itertools
import json
import threading
import types

import datasetd
import numpy as np
import pytest
from datasetd import transforms as T
from datasetd._order import partition
from datasetd._ranks import agreement

SEED = 7


class Store:
    """The store that the ranks of a job share, with a time limit."""

    def __init__(self, size, limit=60):
        self.size = size
        self._limit = limit
        self._values = {}
        self._changed = threading.Condition()
        self.counts = {}

    def _count(self):
        name = threading.current_thread().name
        self.counts[name] = self.counts.get(name, 0) + 1

    def put(self, key, value):
        self._count()
        with self._changed:
            if value:
                self._values.setdefault(key, value)
            self._changed.notify_all()
            return self._values.get(key, "")

    def get(self, key):
        return self.put(key, "")

    def wait(self, key):
        self._count()
        with self._changed:
            if not self._changed.wait_for(
                lambda: key in self._values, self._limit
            ):
                raise RuntimeError("Socket Timeout")
            return self._values[key]


class Numbers(threading.local):
    """`_numbers` of each rank."""

    def __init__(self):
        self._counters = {}

    def setdefault(self, key, value):
        return self._counters.setdefault(key, value)


class Job:
    """The ranks of a job, by node: `sizes` are the numbers of ranks."""

    def __init__(self, monkeypatch, sizes, limit=60):
        self.nodes = [
            (rank, node)
            for rank, node in enumerate(
                node for node, size in enumerate(sizes) for _ in range(size)
            )
        ]
        self.num_nodes = len(sizes)
        self.store = Store(len(self.nodes), limit)
        kept = agreement._Store(
            self.store.put, self.store.get, self.store.put, self.store.wait
        )
        monkeypatch.setattr(
            agreement,
            "_store_of",
            lambda ranks: kept
            if ranks.world_size == len(self.nodes) > 1
            else None,
        )
        monkeypatch.setattr(agreement, "_numbers", Numbers())

    def run(self, work):
        """Returns what work(rank, node, arguments of its loaders) returns, or
        the datasetd.Error that it raises, of each rank."""
        results = [None] * len(self.nodes)

        def run(rank, node):
            arguments = {
                "rank": rank,
                "world_size": len(self.nodes),
                "partition": (node, self.num_nodes),
                "framework": "numpy",
                "prefetch": 2,
                "seed": SEED,
            }
            try:
                results[rank] = work(rank, node, arguments)
            except Exception as error:
                results[rank] = error

        threads = [
            threading.Thread(target=run, args=pair, name=f"rank {pair[0]}")
            for pair in self.nodes
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in results:
            if isinstance(result, Exception) and not isinstance(
                result, datasetd.Error
            ):
                raise result
        return results


@pytest.fixture
def parts(daemon):
    """parts(sizes, ...) pushes a part of each size, as a node has it, or a
    whole: sample `id` is unique over all nodes. All are in one daemon."""
    with daemon.connect() as client:

        def push(sizes, name="parts", image=False):
            ends = list(itertools.accumulate(sizes))
            found = []
            for node, (size, end) in enumerate(zip(sizes, ends)):
                data = {"id": np.arange(end - size, end)}
                if image:
                    name = "images"
                    data["image"] = np.arange(192, dtype=np.uint8).reshape(
                        1, 8, 8, 3
                    ).repeat(size, 0)
                whole = name + "-".join(map(str, sizes))
                part = f".{node}of{len(sizes)}" if len(sizes) > 1 else ""
                found.append(client.push_dataset(whole + part, data))
            return found

        yield push


def ids_of(batch):
    return np.array(batch.id).tolist()


def epoch_of(loader):
    """[(ids, number of rows that pad)] of each batch of the next epoch."""
    return [(ids_of(batch), batch.num_padding) for batch in loader]


@pytest.mark.parametrize("size", [1, 101])
@pytest.mark.parametrize("shuffle", [True, False])
def test_one_node_is_a_loader_without_partition(client, size, shuffle):
    dataset = client.push_dataset(
        f"whole{size}", {"x": np.zeros(size, np.uint8)}
    )
    options = dict(
        batch_size=max(1, size // 5), shuffle=shuffle, seed=2**63 + 5,
        framework="numpy", prefetch=1, rank=0, world_size=1,
    )  # fmt: skip
    with datasetd.DataLoader(dataset, **options) as plain, datasetd.DataLoader(
        dataset, partition=(0, 1), **options
    ) as divided:
        assert len(divided) == len(plain)
        for loader in (plain, divided):
            loader.set_epoch(3)
        for _ in range(2):
            for ours, theirs in itertools.zip_longest(divided, plain):
                assert ours.indices.tolist() == theirs.indices.tolist()
                assert (ours.epoch, ours.index) == (theirs.epoch, theirs.index)
                assert ours.num_padding == 0


@pytest.mark.parametrize("ranks", [[1, 1], [2, 2], [1, 1, 1, 1], [3, 3, 3]])
def test_parts_that_are_equal(monkeypatch, parts, ranks):
    """Each sample once an epoch over all nodes; a node's order is the daemon's
    for its seed and its ranks."""
    per_node = 36
    datasets = parts([per_node] * len(ranks))

    def work(rank, node, arguments):
        with datasetd.DataLoader(
            datasets[node], batch_size=5, shuffle=True, **arguments
        ) as loader:
            assert len(loader) == -(-per_node // ranks[0] // 5)
            epochs = [epoch_of(loader) for _ in range(3)]
            assert loader.num_samples == per_node * len(ranks)
        local = rank - sum(ranks[:node])
        with datasetd.DataLoader(
            datasets[node], batch_size=5, shuffle=True, framework="numpy",
            seed=partition.seed_of(SEED, node), rank=local,
            world_size=ranks[node],
        ) as plain:  # fmt: skip
            # The framework's ranks are the job's: these are not compared.
            assert epochs == [epoch_of(plain) for _ in range(3)]
        return epochs

    results = Job(monkeypatch, ranks).run(work)
    for epoch in range(3):
        seen = [i for of in results for ids, _ in of[epoch] for i in ids]
        assert sorted(seen) == list(range(per_node * len(ranks)))
    assert results[0][0] != results[0][1]


def test_seeds_of_nodes():
    """As docs/randomness.md states them."""
    assert [partition.seed_of(5, node) for node in range(3)] == [
        5, 3137727415170620344, 17501246210870913030,
    ]  # fmt: skip
    assert partition.seed_of(2**64 - 1, 0) == 2**64 - 1


@pytest.mark.parametrize(
    "sizes, ranks",
    [
        ([40, 23], [2, 1]),
        ([40, 23], [1, 2]),
        ([7, 1, 30], [1, 1, 2]),
        ([1, 1, 64], [3, 1, 2]),  # more ranks than samples
    ],
)
@pytest.mark.parametrize("drop_last", [False, True])
def test_parts_that_are_not_equal(
    monkeypatch, parts, sizes, ranks, drop_last
):
    datasets = parts(sizes)

    def work(rank, node, arguments):
        with datasetd.DataLoader(
            datasets[node], batch_size=4, shuffle=True, drop_last=drop_last,
            **arguments,
        ) as loader:  # fmt: skip
            epochs = [epoch_of(loader) for _ in range(8)]
            assert {len(epoch) for epoch in epochs} == {len(loader)}
            return epochs, loader._num_padding()

    results = Job(monkeypatch, ranks).run(work)
    rows = (
        min(n // w for n, w in zip(sizes, ranks)) // 4 * 4
        if drop_last
        else max(-(-n // w) for n, w in zip(sizes, ranks))
    )
    everything = set(range(sum(sizes)))
    left_out = set()
    for epoch in range(8):
        seen = []
        num_padding = 0
        for epochs, _ in results:
            batches = epochs[epoch]
            # Batches of the same sizes on all ranks.
            assert [len(ids) for ids, _ in batches] == [
                min(4, rows - first) for first in range(0, rows, 4)
            ]
            for ids, padding in batches:
                seen += ids[: len(ids) - padding]
                num_padding += padding
        assert len(seen) == len(set(seen))
        if drop_last:
            assert num_padding == 0
            left_out.add(frozenset(everything - set(seen)))
        else:
            assert set(seen) == everything
            assert num_padding == rows * sum(ranks) - sum(sizes)
            assert {of for _, of in results} == {num_padding}
    if drop_last and rows:
        # Other samples in other epochs.
        assert len(left_out) > 1


def test_padding_repeats_the_beginning_of_the_nodes_order(
    monkeypatch, parts
):
    datasets = parts([3, 8], image=True)
    transforms = [T.RandomCrop(8, padding=2)]

    def work(rank, node, arguments):
        with datasetd.DataLoader(
            datasets[node], batch_size=3, shuffle=True,
            transforms=transforms, **arguments,
        ) as loader:  # fmt: skip
            epoch = [
                (ids_of(batch), np.array(batch.image), batch.num_padding)
                for batch in loader
            ]
            # Padding has the same pixels as the samples that it repeats.
            fetched = loader.fetch(epoch[0][0] if node == 0 else [0], 0)
            return epoch, np.array(fetched.image)

    (few, fetched), (many, _) = Job(monkeypatch, [1, 1]).run(work)
    first = few[0]
    assert [ids for ids, _, _ in few] == [first[0], first[0], first[0][:2]]
    assert [padding for *_, padding in few] == [0, 3, 2]
    np.testing.assert_array_equal(few[1][1], first[1])
    np.testing.assert_array_equal(few[2][1], first[1][:2])
    np.testing.assert_array_equal(fetched, first[1])
    assert sorted(sum((ids for ids, *_ in many), [])) == list(range(3, 11))


def test_nodes_draw_other_augmentations(monkeypatch, parts):
    """All images are equal, so that equal draws would give equal pixels."""
    datasets = parts([50, 50], image=True)

    def work(rank, node, arguments):
        with datasetd.DataLoader(
            datasets[node], batch_size=50,
            transforms=[T.RandomCrop(8, padding=4)], **arguments,
        ) as loader:  # fmt: skip
            return np.array(next(iter(loader)).image)

    ours, theirs = Job(monkeypatch, [1, 1]).run(work)
    equal = sum(map(np.array_equal, ours, theirs))
    assert equal < 10  # 81 places


def test_a_subset_of_each_node(monkeypatch, parts):
    datasets = parts([30, 20])

    def work(rank, node, arguments):
        chosen = datasets[node].select(range(0, len(datasets[node]), 2 + node))
        with datasetd.DataLoader(
            chosen, batch_size=4, shuffle=True, **arguments
        ) as loader:
            batches = epoch_of(loader)
            return batches, loader.state_dict()["subset"]

    results = Job(monkeypatch, [1, 1]).run(work)
    seen = [
        i
        for batches, _ in results
        for ids, padding in batches
        for i in ids[: len(ids) - padding]
    ]
    assert sorted(seen) == [*range(0, 30, 2), *range(30, 50, 3)]
    assert results[0][1] == results[1][1]


def test_weights_of_each_node(monkeypatch, parts):
    datasets = parts([30, 10])

    def work(rank, node, arguments):
        weights = np.zeros(len(datasets[node]))
        weights[3 + node] = 1
        with datasetd.DataLoader(
            datasets[node], batch_size=4, weights=weights, **arguments
        ) as loader:
            assert len(loader) == 4
            return epoch_of(loader)

    first, second, third = Job(monkeypatch, [2, 1]).run(work)
    assert first == second == [([3] * n, 0) for n in (4, 4, 4, 3)]
    assert third == [([34] * n, 0) for n in (4, 4, 4, 3)]


@pytest.mark.parametrize("sizes", [[30, 10], [30, 1]])
def test_weights_with_drop_last(monkeypatch, parts, sizes):
    """As many draws as the rank with the fewest samples, which may be none."""
    datasets = parts(sizes)
    num_rows = sizes[1] // 2
    num_rows -= num_rows % 2

    def work(rank, node, arguments):
        with datasetd.DataLoader(
            datasets[node],
            batch_size=2,
            drop_last=True,
            weights=np.arange(len(datasets[node])) + 1,
            **arguments,
        ) as loader:
            assert len(loader) == num_rows // 2
            epochs = [epoch_of(loader), epoch_of(loader)]
            state = loader.state_dict()
            assert (state["epoch"], state["batch"]) == (2, 0) or not num_rows
            return epochs

    for first, second in Job(monkeypatch, [2, 2]).run(work):
        assert sum(len(ids) for ids, _ in first) == num_rows
        assert first != second or not num_rows


def test_weights_resume_on_the_same_ranks_alone(monkeypatch, parts):
    datasets = parts([30, 10])

    def work(rank, node, arguments):
        arguments["weights"] = np.arange(len(datasets[node])) + 1
        with datasetd.DataLoader(
            datasets[node], batch_size=2, **arguments
        ) as loader:
            iterator = iter(loader)
            for _ in range(3):
                next(iterator)
            state = loader.state_dict()
            rest = epoch_of(iterator)
            following = epoch_of(loader)
        with datasetd.DataLoader(
            datasets[node], batch_size=2, **arguments
        ) as loader:
            loader.load_state_dict(state)
            assert loader.state_dict() == state
            assert (epoch_of(loader), epoch_of(loader)) == (rest, following)
        with datasetd.DataLoader(
            datasets[node], batch_size=3, **arguments
        ) as loader:
            with pytest.raises(
                datasetd.FailedPrecondition, match="batch_size is 2"
            ):
                loader.load_state_dict(state)
        return len(rest)

    assert Job(monkeypatch, [2, 1]).run(work) == [5, 5, 5]


def test_len_peek_and_state_before_iter(monkeypatch, parts):
    """Each is the first that needs the other nodes."""
    datasets = parts([9, 4])

    def work(rank, node, arguments):
        answers = []
        for ask in (
            len,
            lambda loader: ids_of(loader.peek()),
            lambda loader: loader.state_dict(),
        ):
            with datasetd.DataLoader(
                datasets[node], batch_size=2, shuffle=True, **arguments
            ) as loader:
                answers.append(ask(loader))
                assert len(epoch_of(loader)) == 5
        return answers

    ours, theirs = Job(monkeypatch, [1, 1]).run(work)
    assert ours[0] == theirs[0] == 5
    assert ours[1] != theirs[1]
    assert ours[2] == theirs[2]
    assert ours[2]["partition"] == {
        "num_samples": 13, "ranks_of_nodes": [1, 1],
    }  # fmt: skip
    json.dumps(ours[2])


def test_operations_of_the_store(monkeypatch, parts):
    """Three for each rank, and one more for each record on rank 0; none per
    batch; one at the first iter() and one at the second."""
    datasets = parts([20, 20])
    job = Job(monkeypatch, [2, 2])

    def work(rank, node, arguments):
        name = threading.current_thread().name
        counts = []
        with datasetd.DataLoader(
            datasets[node], batch_size=2, **arguments
        ) as loader:
            len(loader)
            counts.append(job.store.counts[name])
            for _ in range(3):
                list(loader)
                counts.append(job.store.counts[name])
        return counts

    results = job.run(work)
    assert results == [[7, 8, 9, 9]] + [[3, 4, 5, 5]] * 3


# -- Ranks that do not fit together ---------------------------------------------


def errors_of(results, kind):
    assert [type(result) for result in results] == [kind] * len(results)
    return [str(result) for result in results]


def test_ranks_that_count_nodes_differently(monkeypatch, parts):
    (dataset,) = parts([8])

    def work(rank, node, arguments):
        arguments["partition"] = (node, 2 + rank)
        with datasetd.DataLoader(dataset, **arguments) as loader:
            return len(loader)

    for error in errors_of(
        Job(monkeypatch, [1, 1]).run(work), datasetd.FailedPrecondition
    ):
        assert "rank 0 of 2 says that there are 2 nodes, and rank 1 that" in error
        assert "start all ranks by one launcher" in error


def test_a_node_without_ranks(monkeypatch, parts):
    (dataset,) = parts([8])

    def work(rank, node, arguments):
        arguments["partition"] = (node, 3)
        with datasetd.DataLoader(dataset, **arguments) as loader:
            return len(loader)

    for error in errors_of(
        Job(monkeypatch, [1, 1]).run(work), datasetd.FailedPrecondition
    ):
        assert "none of the 2 ranks is of node 2 of 3" in error


@pytest.mark.parametrize(
    "what, words",
    [
        ("content", "content_hash is '"),
        ("subset", "subset is '"),
        ("weights", "weights is '"),
    ],
)
def test_ranks_of_a_node_that_hold_something_else(
    monkeypatch, client, parts, what, words
):
    datasets = parts([8, 8])
    # Stands for a part of the same name, with other content, on another daemon.
    other = client.push_dataset("parts8-8", {"id": np.arange(8) + 1})

    def work(rank, node, arguments):
        dataset = datasets[node]
        if what == "content" and rank == 1:
            dataset = other
        if what == "subset":
            arguments["subset"] = [1, 2, 3 + (rank == 1)]
        if what == "weights":
            arguments["weights"] = [1] * 7 + [1 + (rank == 1)]
        with datasetd.DataLoader(dataset, **arguments) as loader:
            return len(loader)

    for error in errors_of(
        Job(monkeypatch, [2, 1]).run(work), datasetd.FailedPrecondition
    ):
        assert "ranks 0 and 1 are of node 0 of 2, and " + words in error
        assert "on all ranks of a node" in error or "of a node the" in error


@pytest.mark.parametrize("plain", [0, 1])
@pytest.mark.parametrize("comes_first", [False, True])
def test_a_rank_without_partition(monkeypatch, parts, plain, comes_first):
    datasets = parts([8, 8])
    first = threading.Event()
    barrier = threading.Barrier(2)
    job = Job(monkeypatch, [1, 1])
    put = job.store.put

    def put_and_tell(key, value):
        found = put(key, value)
        # The mark that there is a partition, or a plain loader's identity.
        first.set()
        return found

    monkeypatch.setattr(
        agreement,
        "_store_of",
        lambda ranks: agreement._Store(
            put_and_tell, job.store.get, put_and_tell, job.store.wait
        ),
    )

    def work(rank, node, arguments):
        is_plain = rank == plain
        if is_plain:
            del arguments["partition"]
        if is_plain != comes_first:
            assert first.wait(60)
        with datasetd.DataLoader(datasets[node], **arguments) as loader:
            answers = []
            for _ in range(2):
                try:
                    answers.append(len(epoch_of(loader)))
                except datasetd.FailedPrecondition as error:
                    answers.append(str(error))
                barrier.wait(60)
            return answers

    results = job.run(work)
    divided = results[1 - plain]
    assert divided[0] == divided[1]
    # A plain loader that comes first learns it at its second epoch.
    assert results[plain][1] == divided[0]
    assert ("ranks 0 and 1 of 2 do not agree on dataset 'parts8-8': "
            "partition is ") in divided[0]
    assert f"None on rank {plain}" in divided[0]
    assert "'node' on rank" in divided[0]
    assert "give all ranks the same partition=" in divided[0]


@pytest.mark.parametrize("late", [0, 2])
def test_a_rank_that_does_not_come(monkeypatch, parts, late):
    datasets = parts([8, 8])

    def work(rank, node, arguments):
        with datasetd.DataLoader(datasets[node], **arguments) as loader:
            if rank == late:
                return None
            for _ in range(2):
                with pytest.raises(
                    (datasetd.DeadlineExceeded, datasetd.FailedPrecondition)
                ) as raised:
                    len(loader)
            return str(raised.value)

    results = Job(monkeypatch, [2, 1], limit=0.5).run(work)
    for rank, result in enumerate(results):
        if rank != late:
            assert f"1 rank(s) have not come ({late}): every rank must" in result
            assert "('parts8-8')" in result


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"seed": "rank"}, "seed is 0 on rank 0 and 1 on rank 1"),
        ({"transforms": "rank"}, "transforms_hash is "),
        ({"shuffle": "rank"}, "sampler is 'sequential' on rank 0"),
        ({"drop_last": "rank"}, "drop_last is False on rank 0 and True on "),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_ranks_that_differ(monkeypatch, parts, arguments, words):
    datasets = parts([8, 8], image=True)
    (name,) = arguments

    def work(rank, node, own):
        own[name] = {
            "transforms": [T.RandomCrop(4 + rank)],
            "seed": rank,
        }.get(name, bool(rank))
        with datasetd.DataLoader(datasets[node], **own) as loader:
            answers = []
            for _ in range(2):
                try:
                    answers.append(sum(1 for _ in loader))
                except datasetd.FailedPrecondition as error:
                    answers.append(str(error))
                barrier.wait(60)
            return answers

    barrier = threading.Barrier(2)
    results = Job(monkeypatch, [1, 1]).run(work)
    assert results[0][1] == results[1][1]
    assert words in results[0][1]


def test_ranks_without_a_store(client, dataset):
    for arguments, words in (
        ({"partition": (0, 2)}, "this is node 0 of 2, and the loader has world"),
        (
            {"partition": (0, 2), "rank": 1, "world_size": 2},
            "none of them has this loader's ranks .1 of 2.: call init_process",
        ),
    ):
        with datasetd.DataLoader(dataset, seed=1, **arguments) as loader:
            with pytest.raises(datasetd.FailedPrecondition, match=words):
                len(loader)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"partition": "nodes"}, "partition='nodes'; expected 'node', or"),
        ({"partition": (2, 2)}, r"partition\[0\]=2; expected 0 to 1"),
        ({"partition": (0, 0)}, r"partition\[1\]=0"),
        ({"partition": (0,)}, "expected 'node', or the node's index and the"),
        ({"partition": 3}, "partition=3; expected 'node', or"),
        ({"partition": {0, 2}}, "partition={0, 2}; expected 'node', or"),
        ({"partition": "node"}, "no launcher says which node this is"),
        ({"partition": (0, 2), "sampler": [1]}, "exclude each other"),
        ({"partition": (0, 2), "batch_sampler": [[1]]}, "exclude each other"),
    ],
)
def test_arguments_that_are_wrong(dataset, arguments, words, monkeypatch):
    for name in ("GROUP_RANK", "SLURM_NODEID", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(datasetd.InvalidArgument, match=words):
        datasetd.DataLoader(dataset, seed=1, **arguments)


@pytest.mark.parametrize("given", [(1, 2), (0, 3), (2, 3)])
def test_the_part_of_another_node(parts, given):
    dataset, _ = parts([8, 8])
    with pytest.raises(
        datasetd.InvalidArgument,
        match="dataset 'parts8-8.0of2' is the part of node 0 of 2, and this "
        f"is node {given[0]} of {given[1]}: load the part of this node",
    ):
        datasetd.DataLoader(dataset, seed=1, partition=given)


# -- States ---------------------------------------------------------------------


def run_job(monkeypatch, datasets, ranks, state=None, take=None, **options):
    """Returns for each rank, from `state` on, its rows of `take` batches, or of
    the epoch, and the state after that."""
    options.setdefault("batch_size", 3)

    def work(rank, node, arguments):
        rows = []
        with datasetd.DataLoader(
            datasets[node], shuffle=True, **{**arguments, **options}
        ) as loader:
            if state is not None:
                loader.load_state_dict(state)
                assert loader.state_dict() == state or state["batch"] == 0
            for number, batch in enumerate(loader, 1):
                ids = ids_of(batch)
                rows += ids[: len(ids) - batch.num_padding]
                if number == take:
                    break
            return rows, loader.state_dict()

    results = Job(monkeypatch, ranks).run(work)
    for result in results:
        if isinstance(result, Exception):
            raise result
    assert all(of == results[0][1] for _, of in results)
    return [row for rows, _ in results for row in rows], results[0][1]


@pytest.mark.parametrize("drop_last", [False, True])
def test_an_epoch_that_is_interrupted(monkeypatch, parts, drop_last):
    datasets = parts([20, 31])
    options = {"drop_last": drop_last}
    whole, _ = run_job(monkeypatch, datasets, [1, 2], **options)
    before, state = run_job(
        monkeypatch, datasets, [1, 2], take=2, **options
    )
    after, end = run_job(monkeypatch, datasets, [1, 2], state, **options)
    assert sorted(before + after) == sorted(whole)
    assert (state["epoch"], state["batch"]) == (0, 2)
    assert (end["epoch"], end["batch"]) == (1, 0)


def test_a_seed_of_the_state(monkeypatch, parts):
    datasets = parts([20, 31])
    whole, _ = run_job(monkeypatch, datasets, [1, 1], seed=99)
    before, state = run_job(monkeypatch, datasets, [1, 1], take=1, seed=99)
    state = json.loads(json.dumps(state))
    monkeypatch.setattr("datasetd._ranks.seeds.agreed", lambda seed, _: 3)
    after, _ = run_job(monkeypatch, datasets, [1, 1], state, seed=None)
    assert sorted(before + after) == sorted(whole)


def test_other_nodes_go_on_at_the_next_epoch_only(monkeypatch, parts):
    """51 samples on two nodes, then on three."""
    two, three = parts([20, 31]), parts([17, 17, 17], "other")
    _, state = run_job(monkeypatch, two, [1, 1], take=2)
    with pytest.raises(
        datasetd.FailedPrecondition,
        match=r"taken at batch 2 of epoch 0 with 2 node.s. of 1, 1 rank.s., "
        r"and there are 3 node.s. of 1, 1, 1 rank.s. now.*"
        r"load_state_dict\(dict\(state, epoch=1, batch=0\)\)",
    ):
        run_job(monkeypatch, three, [1, 1, 1], state)
    rows, end = run_job(
        monkeypatch, three, [1, 1, 1], dict(state, epoch=1, batch=0)
    )
    assert sorted(rows) == list(range(51))
    assert (end["epoch"], end["batch"]) == (2, 0)
    assert end["partition"]["ranks_of_nodes"] == [1, 1, 1]


def test_states_that_do_not_fit(monkeypatch, parts):
    datasets = parts([20, 31])
    _, state = run_job(monkeypatch, datasets, [1, 1], take=2)
    for change, words in (
        ({"ranks": [2, 2]}, "with 2 node.s. of 1, 1 rank.s."),
        ({"datasets": parts([31, 20])}, "or nodes hold other samples"),
        ({"datasets": parts([20, 32])}, "held 51 samples altogether, and hold 52"),
        ({"batch_size": 4}, "batch_size is 3, this loader has 4 .at batch 2"),
    ):
        given = {"datasets": datasets, "ranks": [1, 1], **change}
        with pytest.raises(datasetd.FailedPrecondition, match=words):
            run_job(monkeypatch, state=state, **given)
    with datasetd.DataLoader(
        datasets[0], batch_size=3, shuffle=True, seed=SEED, rank=0,
        world_size=1,
    ) as loader:  # fmt: skip
        with pytest.raises(
            datasetd.FailedPrecondition,
            match="partition is {'num_samples': 51, .*this loader has None",
        ):
            loader.load_state_dict(dict(state, batch=0))
    plain = {key: state[key] for key in state if key != "partition"}
    with pytest.raises(
        datasetd.FailedPrecondition, match="partition is None, this loader has"
    ):
        run_job(
            monkeypatch, datasets, [1, 1], dict(plain, batch=0)
        )


# -- Which node this is ---------------------------------------------------------

_TORCHRUN = {"GROUP_RANK": "1", "GROUP_WORLD_SIZE": "3"}
_SLURM = {"SLURM_NODEID": "2", "SLURM_NNODES": "8"}
_PLACED = {"RANK": "11", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "4"}


@pytest.mark.parametrize(
    "variables, expected",
    [
        (_TORCHRUN, (1, 3)),
        ({**_TORCHRUN, **_SLURM}, (1, 3)),  # torchrun inside of Slurm
        (_SLURM, (2, 8)),
        ({**_SLURM, "SLURM_STEP_NUM_NODES": "4"}, (2, 4)),
        (_PLACED, (2, 4)),
        ({**_PLACED, "WORLD_SIZE": "15"}, "nodes have different numbers of"),
        ({**_SLURM, "SLURM_NNODES": "two"}, "SLURM_NNODES is 'two'; expected"),
        ({**_SLURM, "SLURM_NNODES": "2"}, "Slurm says node 2 of 2: pass"),
        ({"SLURM_NODEID": "0"}, "no launcher says which node this is"),
        ({}, r"pass part=\(index, count\), which is \(0, 1\) for a single"),
    ],
)
def test_the_node_of_a_launcher(monkeypatch, variables, expected):
    for name in (*_TORCHRUN, *_SLURM, *_PLACED, "SLURM_STEP_NUM_NODES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if isinstance(expected, tuple):
        assert datasetd._ranks.nodes.resolve("part", "node") == expected
        return
    with pytest.raises(datasetd.InvalidArgument, match=expected):
        datasetd._ranks.nodes.resolve("part", "node")


def test_nodes_that_all_hold_everything(monkeypatch, parts):
    """A warning, since two parts may be equal; with subsets they are not."""
    (dataset,) = parts([8])
    monkeypatch.setattr("datasetd._warnings._said", set())

    def work(rank, node, arguments):
        with datasetd.DataLoader(
            dataset, subset=subsets[node], **arguments
        ) as loader:
            return len(loader)

    subsets = [range(0, 8, 2), range(1, 8, 2)]
    assert Job(monkeypatch, [1, 1]).run(work) == [4, 4]
    subsets = [None, None]
    with pytest.warns(UserWarning, match="all 2 nodes hold the same samples"):
        assert Job(monkeypatch, [1, 1]).run(work) == [8, 8]


def test_ops_that_mix_a_batch(client):
    """They draw as without partition, where there is one node."""
    dataset = client.push_dataset(
        "mixed",
        {
            "image": np.random.default_rng(1).integers(
                0, 256, (40, 8, 8, 3), dtype=np.uint8
            ),
            "label": np.arange(40) % 10,
        },
    )
    options = dict(
        batch_size=7, shuffle=True, seed=5, framework="numpy", rank=0,
        world_size=1,
        transforms=[T.ToDtype("float32", scale=True), T.MixUp(num_classes=10)],
    )  # fmt: skip
    with datasetd.DataLoader(dataset, **options) as plain, datasetd.DataLoader(
        dataset, partition=(0, 1), **options
    ) as divided:
        for ours, theirs in itertools.zip_longest(divided, plain):
            np.testing.assert_array_equal(ours.image, theirs.image)
            np.testing.assert_array_equal(ours.label, theirs.label)


def test_accelerate_keeps_all_rows(monkeypatch, parts):
    """Padding is not at the end of the gathered rows."""
    from datasetd._loader import accelerate

    datasets = parts([8, 7])

    def work(rank, node, arguments):
        with datasetd.DataLoader(
            datasets[node], batch_size=4, **arguments
        ) as loader:
            len(loader)
            return accelerate._Epoch(loader).remainder

    monkeypatch.setattr("datasetd._warnings._said", set())
    with pytest.warns(UserWarning, match="counts 1 samples twice"):
        assert Job(monkeypatch, [1, 1]).run(work) == [-1, -1]


def test_a_store_that_fails(monkeypatch, parts):
    datasets = parts([8, 8])
    job = Job(monkeypatch, [1, 1])

    def put(key, value):
        raise RuntimeError("Connection reset by peer")

    job.store.put = put
    monkeypatch.setattr(
        agreement,
        "_store_of",
        lambda ranks: agreement._Store(put, put, put, put),
    )

    def work(rank, node, arguments):
        with datasetd.DataLoader(datasets[node], **arguments) as loader:
            return len(loader)

    for error in errors_of(job.run(work), datasetd.FailedPrecondition):
        assert "the ranks' store has failed: Connection reset by peer" in error


def test_the_store_of_jax(monkeypatch):
    class Client:
        def blocking_key_value_get(self, key, milliseconds):
            assert milliseconds == 300_000
            return f"of {key}"

    monkeypatch.setitem(
        __import__("sys").modules,
        "jax._src.distributed",
        types.SimpleNamespace(
            global_state=types.SimpleNamespace(
                client=Client(), process_id=0, num_processes=2
            )
        ),
    )
    assert agreement._store_of_jax().wait("x") == "of x"


# -- What never changes -------------------------------------------------------

# Hashes of everything that a job of each kind gives, as the version that sent
# its rows to the daemon gave it.
GOLDEN = {
    "shuffled": "eed9b13070037aa1",
    "drop_last": "6123866e6d4199eb",
    "in order, several rounds": "dec6e3c4bb4c84dd",
    "computed orders": "b69547092ab15c7c",
    "subset": "13fc84d9d35fb410",
    "weights": "3d9d1a4773f160e8",
    "one node": "2db477109c188e76",
    "no rows on some": "2e27577395aeb4c8",
}

JOBS = {
    "shuffled": ([50, 31], [2, 1], {"shuffle": True}),
    "drop_last": ([50, 31], [1, 2], {"shuffle": True, "drop_last": True}),
    "in order, several rounds": ([40, 3], [2, 2], {}),
    "computed orders": ([70_000, 66_000], [1, 2], {"shuffle": True}),
    "subset": ([50, 31], [1, 2], {"shuffle": True}),
    "weights": ([50, 31], [2, 1], {}),
    "one node": ([53], [3], {"shuffle": True}),
    "no rows on some": ([9, 1], [1, 2], {"drop_last": True}),
}


@pytest.mark.parametrize("kind", JOBS)
def test_orders_draws_and_states_stay(monkeypatch, client, kind):
    sizes, ranks, options = JOBS[kind]
    rng = np.random.default_rng(3)
    is_large = sizes[0] > 10_000
    datasets = [
        client.push_dataset(
            kind.replace(" ", "_").replace(",", "")
            + (f".{node}of{len(sizes)}" if len(sizes) > 1 else ""),
            {
                "label": np.arange(size) % 10,
                "image": rng.integers(0, 256, (size, 4, 4, 3), np.uint8),
            },
        )
        for node, size in enumerate(sizes)
    ]
    options = dict(
        options,
        batch_size=4096 if is_large else 7,
        transforms=[
            T.RandomCrop(4, padding=1),
            T.ToDtype("float32", scale=True),
            T.MixUp(num_classes=10),
        ],
    )

    def work(rank, node, arguments):
        dataset = datasets[node]
        own = dict(options, **arguments)
        if kind == "subset":
            own["subset"] = range(len(dataset) - 1, 2, -2)
        if kind == "weights":
            own["weights"] = np.arange(len(dataset)) % 5
        told = hashlib.sha256()

        def tell(*values):
            for value in values:
                array = np.ascontiguousarray(value)
                told.update(f"{array.dtype.name}{array.shape}".encode())
                told.update(array.tobytes())

        def take(loader, count=None):
            for number, batch in enumerate(loader, 1):
                tell(
                    batch.epoch, batch.index, batch.indices,
                    batch.num_padding, batch.valid, batch.image, batch.label,
                )  # fmt: skip
                if number == count:
                    break
            state = loader.state_dict()
            told.update(json.dumps(state, sort_keys=True).encode())
            return state

        with datasetd.DataLoader(dataset, **own) as loader:
            tell(len(loader), loader.num_samples, list(loader.sampler))
            take(loader)
            state = take(loader, 2)
        with datasetd.DataLoader(dataset, **own) as loader:
            loader.load_state_dict(state)
            take(loader)
            loader.set_epoch(2**32 - 2)
            state = take(loader, 1)
        with datasetd.DataLoader(dataset, **own) as loader:
            loader.load_state_dict(dict(state, epoch=9, batch=0))
            take(loader, 1)
        return told.hexdigest()

    results = Job(monkeypatch, ranks).run(work)
    assert not any(isinstance(result, Exception) for result in results), results
    told = hashlib.sha256("".join(results).encode()).hexdigest()[:16]
    assert told == GOLDEN[kind]
