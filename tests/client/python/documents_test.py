"""Rows of documents. A naive packing, written out with torch, is the judge."""

import os

import datasetd
import numpy as np
import pytest
import torch
from conftest import loader
from datasetd import transforms as T
from datasetd.errors import FailedPrecondition, InvalidArgument, OutOfRange

_IS_FULL = os.environ.get("DATASETD_TEST_FULL") == "1"
_END = 7
# 40 documents of 1 to 60 steps, each of which ends with 7. No other number
# comes twice.
_LENGTHS = np.random.default_rng(2).integers(1, 61, 40)
_LENGTHS[[3, 9, 10]] = 1, 60, 1
_STARTS = np.cumsum(_LENGTHS) - _LENGTHS
_TOKENS = (np.arange(_LENGTHS.sum()) + 100).astype(np.uint16)
_TOKENS[np.cumsum(_LENGTHS) - 1] = _END


@pytest.fixture
def tokens(client):
    data = {"tokens": _TOKENS, "step": np.arange(len(_TOKENS))}
    return client.push_dataset("documents", data, if_exists="same")


def packed(dataset, length, **arguments):
    arguments = {"shuffle": False, "batch_size": 5, **arguments}
    return loader(dataset, **arguments)


def documents(length, **arguments):
    return datasetd.documents(length, **{"ends": _END, **arguments})


def naive(order, length, ignore_ends=False, ignore_index=-100):
    """Rows of (tokens, targets, position_ids, cu_seqlens), of the documents in
    this order."""
    stream, positions = [], []
    for document in order:
        size = int(_LENGTHS[document])
        begin = int(_STARTS[document])
        stream += _TOKENS[begin : begin + size].tolist()
        positions += range(size)
    targets = [
        ignore_index if ignore_ends and positions[i + 1] == 0 else stream[i + 1]
        for i in range(len(stream) - 1)
    ] + [ignore_index]
    rows = []
    for first in range(0, len(stream), length):
        size = len(stream[first : first + length])
        rest = length - size
        begins = [
            i for i in range(size) if i == 0 or positions[first + i] == 0
        ]
        rows.append(
            (
                torch.tensor(stream[first : first + size] + [0] * rest),
                torch.tensor(
                    targets[first : first + size] + [ignore_index] * rest
                ),
                torch.tensor(positions[first : first + size] + [0] * rest),
                torch.tensor(
                    begins + [size] * (length + 1 - len(begins)),
                    dtype=torch.int32,
                ),
            )
        )
    return rows


_NAMES = ("tokens", "targets", "position_ids", "cu_seqlens")


def rows_of(batches):
    return [
        tuple(getattr(batch, name)[i].clone() for name in _NAMES)
        for batch in batches
        for i in range(batch.num_samples)
    ]


def order_of(rows):
    """The documents of an epoch's rows, by the steps at which they begin."""
    order = []
    for row, _, positions, cu_seqlens in rows:
        for i in range(int(cu_seqlens[-1])):
            if positions[i] == 0:
                order.append(int(row[i]))
    # 7 for documents of one step, of which three are alike.
    firsts = _TOKENS[_STARTS].tolist()
    ones = [d for d, first in enumerate(firsts) if first == _END]
    return [ones.pop(0) if f == _END else firsts.index(f) for f in order]


def expect_equal(rows, want):
    assert len(rows) == len(want)
    for row, wanted in zip(rows, want):
        for values, expected in zip(row, wanted):
            assert values.dtype == expected.dtype
            assert torch.equal(values, expected)


@pytest.mark.parametrize("length", [1, 2, 16, 17, 100, 5000])
@pytest.mark.parametrize("ignore_ends", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_rows_are_those_of_a_naive_packing(
    tokens, length, ignore_ends, shuffle
):
    windows = documents(length, ignore_ends=ignore_ends, ignore_index=-1)
    # An epoch of rows of one step is long.
    num_epochs = 3 if length > 1 or _IS_FULL else 1
    with packed(tokens, length, windows=windows, shuffle=shuffle) as job:
        assert job.num_samples == -(-len(_TOKENS) // length)
        orders = []
        for _ in range(num_epochs):
            rows = rows_of(job)
            order = order_of(rows)
            assert sorted(order) == list(range(40))
            expect_equal(rows, naive(order, length, ignore_ends, -1))
            orders.append(order)
    if shuffle:
        assert len(set(map(tuple, orders))) == num_epochs
    else:
        assert orders == [sorted(orders[0])] * num_epochs


@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
def test_ranks_have_each_step_once(tokens, world_size):
    steps = []
    for rank in range(world_size):
        with packed(
            tokens, 16, windows=documents(16), shuffle=True, rank=rank,
            world_size=world_size, pad=False,
        ) as job:  # fmt: skip
            for batch in job:
                for row, ends in zip(batch.step, batch.cu_seqlens):
                    steps += row[: ends[-1]].tolist()
    assert sorted(steps) == list(range(len(_TOKENS)))


@pytest.mark.parametrize("seed", range(6))
def test_ranks_and_batch_size_may_change_within_an_epoch(tokens, seed):
    generator = np.random.default_rng(seed)
    length = int(generator.choice([3, 16, 30]))
    arguments = {"windows": documents(length), "shuffle": True, "seed": seed}
    with packed(tokens, length, **arguments) as job:
        job.set_epoch(2)
        whole = rows_of(job)
    done, state = [], None
    for world_size in generator.choice([1, 2, 4, 8], 3, replace=False):
        batch_size = int(generator.integers(1, 5))
        taken = []
        for rank in range(world_size):
            with packed(
                tokens, length, **arguments, pad=False, rank=rank,
                world_size=int(world_size), batch_size=batch_size,
            ) as job:  # fmt: skip
                if state is None:
                    job.set_epoch(2)
                else:
                    job.load_state_dict(state)
                batches = (b for _, b in zip(range(2), job))
                taken.append(rows_of(batches))
                if rank == 0:
                    next_state = job.state_dict()
        rows = max(map(len, taken))
        done += [t[i] for i in range(rows) for t in taken if i < len(t)]
        if len(done) >= len(whole):
            break
        state = next_state
    expect_equal(done, whole[: len(done)])


def test_an_order_is_a_function_of_seed_and_epoch(tokens):
    def order(seed, epoch, length=16):
        windows = documents(length)
        with packed(
            tokens, length, windows=windows, shuffle=True, seed=seed
        ) as job:
            job.set_epoch(epoch)
            return order_of(rows_of(job))

    first = order(1, 0)
    assert first == order(1, 0, length=33)
    assert first != order(2, 0) and first != order(1, 1)


def test_documents_by_their_first_steps(tokens):
    with packed(tokens, 16, windows=documents(16)) as job:
        want = rows_of(job)
        state = job.state_dict()
    with packed(
        tokens, 16, windows=datasetd.documents(16, starts=_STARTS)
    ) as job:
        expect_equal(rows_of(job), want)
        job.load_state_dict(state)
    with packed(
        tokens, 16, windows=datasetd.documents(16, starts=[0, 9])
    ) as job, pytest.raises(FailedPrecondition, match="subset"):
        job.load_state_dict(state)


def test_fields_and_targets_are_chosen(tokens):
    with packed(
        tokens, 16, windows=documents(16), fields=["cu_seqlens", "tokens"],
    ) as job:  # fmt: skip
        assert list(job.peek().keys()) == ["cu_seqlens", "tokens"]
    with packed(tokens, 16, windows=documents(16, targets="")) as job:
        names = list(job.peek().keys())
        assert names == ["tokens", "position_ids", "cu_seqlens", "step"]
    with packed(
        tokens, 16, windows=documents(16, targets="step"),
        transforms={"tokens": [T.ToDtype("float32")]},
    ) as job:  # fmt: skip
        batch = job.peek()
        assert batch.tokens.dtype == torch.float32
        assert batch.targets[0].tolist() == list(range(1, 17))


def test_a_step_has_several_channels(client):
    signal = np.random.default_rng(1).standard_normal((200, 3)).astype("f4")
    with client.push_dataset("channels", {"signal": signal}) as dataset:
        windows = datasetd.documents(64, starts=[0, 50, 60])
        with packed(dataset, 64, windows=windows) as job:
            rows = np.concatenate([batch.signal for batch in job])
        flat = rows.reshape(-1, 3)
        np.testing.assert_array_equal(flat[:200], signal)
        assert not flat[200:].any()


@pytest.mark.parametrize("make, words", [
    (lambda: datasetd.documents(16), "either ends=.*or starts="),
    (lambda: datasetd.documents(16, 1, starts=[0]), "either ends=.*or starts="),
    (lambda: documents(0), "length=0"),
    (lambda: documents(8, ends=2**64), "ends"),
    (lambda: documents(8, ignore_index=2**64), "ignore_index"),
], ids=str)  # fmt: skip
def test_wrong_documents_are_named(make, words):
    with pytest.raises(InvalidArgument, match=words):
        make()


@pytest.mark.parametrize("arguments, words", [
    ({"windows": datasetd.documents(8, starts=[5, 9])}, "must ascend from 0"),
    ({"windows": datasetd.documents(8, starts=[0, 9, 9])}, "must ascend from 0"),
    ({"windows": datasetd.documents(8, starts=[0, 10**6])}, "begins at 1000000"),
    ({"windows": datasetd.documents(8, starts=[])}, "no indices|starts is"),
    ({"windows": datasetd.documents(8, starts=[0.5])}, "starts is float64"),
    ({"windows": documents(8, field="x")}, "'x'"),
    ({"windows": documents(8), "sampler": [1]}, "is a length"),
    ({"windows": documents(8), "subset": [1]}, "windows= and subset="),
    ({"windows": documents(2**40)}, "length is 1099511627776"),
    ({"windows": documents(8, targets="step"),
      "transforms": {"targets": [T.ToDtype("float32")]}}, "delivered as int64"),
    ({"windows": documents(8),
      "transforms": {"position_ids": [T.ToDtype("float32")]}}, "position_ids"),
], ids=str)  # fmt: skip
def test_a_loader_names_what_does_not_fit_its_documents(
    tokens, arguments, words
):
    with pytest.raises((InvalidArgument, OutOfRange), match=words):
        with packed(tokens, 8, **arguments) as job:
            job.peek()


def test_fetch_gives_plain_windows(tokens):
    with packed(tokens, 8, windows=documents(8)) as job:
        batch = job.fetch([3, 0])
        assert set(batch.keys()) == {"tokens", "step", "targets"}
        for row, first in enumerate((3, 0)):
            steps = _TOKENS[first : first + 9].astype(np.int64)
            assert batch.tokens[row].tolist() == steps[:-1].tolist()
            assert batch.targets[row].tolist() == steps[1:].tolist()


# -- Rows of whole documents ------------------------------------------------------


def whole(length, most):
    """Rows of whole documents, cut after `most` steps, written out."""
    rows, row = [], []
    for begin, size in zip(_STARTS.tolist(), _LENGTHS.tolist()):
        document = [(begin + i, i) for i in range(min(size, most))]
        if row and len(row) + len(document) > length:
            rows.append(row)
            row = []
        row += document
    return [*rows, row]


@pytest.mark.parametrize("length, most", [(60, 60), (64, 16), (7, 1), (5000, 9)])
@pytest.mark.parametrize("ignore_ends", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_rows_begin_at_documents_that_are_cut(
    tokens, length, most, ignore_ends, shuffle
):
    windows = documents(length, max_document=most, ignore_ends=ignore_ends)
    want = whole(length, most)
    orders = []
    with packed(tokens, length, windows=windows, shuffle=shuffle) as job:
        assert job.num_samples == len(want)
        for _ in range(3):
            rows = [
                (*values, batch.step[i].clone(), int(batch.indices[i]))
                for batch in job
                for i, values in enumerate(rows_of([batch]))
            ]
            orders.append([row[5] for row in rows])
            assert sorted(orders[-1]) == [row[0][0] for row in want]
            for got, targets, positions, cu_seqlens, steps, first in rows:
                (row,) = [r for r in want if r[0][0] == first]
                size = len(row)
                at = [step for step, _ in row]
                assert steps.tolist() == at + [0] * (length - size)
                assert got.tolist() == [
                    *_TOKENS[at].tolist(), *[0] * (length - size)
                ]  # fmt: skip
                assert positions[:size].tolist() == [p for _, p in row]
                begins = [i for i, (_, p) in enumerate(row) if p == 0]
                assert cu_seqlens.tolist() == begins + [size] * (
                    length + 1 - len(begins)
                )
                after = [
                    -100 if ignore_ends and p == 0 else int(_TOKENS[step])
                    for step, p in row[1:]
                ]
                assert targets.tolist() == after + [-100] * (
                    length - len(after)
                )
    assert (orders[0] != orders[1]) == (shuffle and len(want) > 1)


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_share_rows_of_whole_documents(tokens, ranks):
    windows = documents(64, max_document=16)
    with packed(tokens, 64, windows=windows, shuffle=True) as job:
        batches = iter(job)
        seen = next(batches).indices.tolist()
        state = job.state_dict()
    for rank in range(ranks):
        with packed(
            tokens, 64, windows=windows, shuffle=True, batch_size=2,
            rank=rank, world_size=ranks, pad=False,
        ) as job:  # fmt: skip
            job.load_state_dict(state)
            seen += [i for batch in job for i in batch.indices.tolist()]
    assert sorted(seen) == [row[0][0] for row in whole(64, 16)]


@pytest.mark.parametrize("most", [0, 65, True])
def test_a_document_fits_a_row(most):
    with pytest.raises(InvalidArgument, match="max_document"):
        documents(64, max_document=most)
