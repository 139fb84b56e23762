"""Orders that the job makes, against torch.utils.data.DataLoader with the same
samplers; subsets; random access."""

import itertools
import json
import os
import time

import datasetd
import numpy as np
import pytest
import torch
import torch.utils.data as tud
from datasetd import transforms as T

from tests.conformance import loader_harness as harness
from tests.conformance import loader_reference as reference
from tests.conformance.samplers import (
    N,
    RandomSizes,
    Samples,
    StatefulCount,
    distributed,
    generator,
    weights,
)

daemon = harness.daemon

SEED = 11


@pytest.fixture(scope="module")
def image():
    return harness.numbered_images(N, (8, 8, 3))


@pytest.fixture(scope="module")
def dataset(daemon, image, tmp_path_factory):
    path = harness.write_npy(
        tmp_path_factory.mktemp("sampling"),
        image=image,
        label=harness.labels(N),
    )
    return daemon.load(path)


class Backwards:
    """No length, NumPy integers, another order each epoch."""

    def __init__(self):
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter(np.roll(np.arange(N)[::-1], self.epoch))


SAMPLERS = {
    "sequential": lambda: tud.SequentialSampler(Samples()),
    "random": lambda: tud.RandomSampler(Samples(), generator=generator()),
    "replacement": lambda: tud.RandomSampler(
        Samples(), replacement=True, num_samples=520, generator=generator()
    ),
    "few": lambda: tud.RandomSampler(
        Samples(), replacement=True, num_samples=3, generator=generator()
    ),
    "subset": lambda: tud.SubsetRandomSampler(
        range(50, 150), generator=generator()
    ),
    "weighted": lambda: tud.WeightedRandomSampler(
        weights(), 420, generator=generator()
    ),
    "distributed": lambda: tud.DistributedSampler(
        Samples(), num_replicas=3, rank=2, shuffle=True, seed=4
    ),
    "backwards": Backwards,
    "list": lambda: [5, 5, 5, N - 1, 0] * 40,
    "tensor": lambda: torch.arange(N).flip(0)[:77],
    "empty": lambda: [],
}


def expect_no_feed(daemon):
    """A feed that was closed is gone within moments."""
    deadline = time.monotonic() + 30
    while daemon.client.list_feeds():
        assert time.monotonic() < deadline


def orders(loader, num_epochs=3):
    """Each epoch's batches of indices, checked against the pixels."""
    epochs = []
    for epoch in range(num_epochs):
        batches = harness.take_epoch(loader)
        for number, batch in enumerate(batches):
            assert (batch.epoch, batch.index) == (epoch, number)
            assert batch.num_padding == 0
            assert batch.num_samples == len(batch.indices)
            np.testing.assert_array_equal(
                harness.numbers_of(batch.fields[0]), batch.indices
            )
            np.testing.assert_array_equal(
                batch.fields[1], harness.labels(N)[batch.indices]
            )
        epochs.append([batch.indices.tolist() for batch in batches])
    return epochs


def torch_orders(num_epochs=3, **options):
    loader = tud.DataLoader(Samples(), **options)
    return [
        [batch.tolist() for batch in loader] for _ in range(num_epochs)
    ]


# By default each pair of a sampler, a size and drop_last.
BATCHES = [
    (name, batch_size, drop_last)
    for i, name in enumerate(sorted(SAMPLERS))
    for j, batch_size in enumerate([1, 7, 64])
    for drop_last in (False, True)
    if os.environ.get("DATASETD_TEST_FULL") == "1"
    or (i + j) % 2 == drop_last
]


@pytest.mark.parametrize("name, batch_size, drop_last", BATCHES)
def test_a_sampler_gives_torchs_batches(
    daemon, dataset, name, batch_size, drop_last
):
    options = {"batch_size": batch_size, "drop_last": drop_last}
    with daemon.loader(
        dataset, sampler=SAMPLERS[name](), **options
    ) as loader:
        ours = orders(loader)
        judge = tud.DataLoader(Samples(), sampler=SAMPLERS[name](), **options)
        assert ours == torch_orders(sampler=SAMPLERS[name](), **options)
        if name == "backwards":
            with pytest.raises(TypeError):
                len(loader)
        else:
            assert len(loader) == len(judge) == len(ours[0])


@pytest.mark.parametrize("prefetch", [1, 8])
def test_a_batch_sampler_gives_torchs_batches(daemon, dataset, prefetch):
    def batch_sampler():
        return tud.BatchSampler(SAMPLERS["weighted"](), 24, drop_last=True)

    with daemon.loader(
        dataset, batch_sampler=batch_sampler(), prefetch=prefetch
    ) as loader:
        assert orders(loader) == torch_orders(batch_sampler=batch_sampler())
        assert loader.batch_size == 24
        assert len(loader) == len(batch_sampler())


def test_batches_of_any_size(daemon, dataset):
    with daemon.loader(dataset, batch_sampler=RandomSizes()) as loader:
        ours = orders(loader)
        assert ours == torch_orders(batch_sampler=RandomSizes())
        assert len({len(batch) for batch in ours[0]}) > 10
    lists = [[1, 2, 3], [N - 1], [4, 4]]
    with daemon.loader(dataset, batch_sampler=lists) as loader:
        assert loader.batch_size == 3
        assert orders(loader) == torch_orders(batch_sampler=lists)
    # A generator ends with its epoch, as it does for torch.
    with daemon.loader(
        dataset, batch_sampler=iter(lists), batch_size=16
    ) as loader:
        assert orders(loader) == [lists, [], []]


def test_set_epoch_reaches_the_sampler(daemon, dataset):
    sampler = SAMPLERS["distributed"]()
    judge = SAMPLERS["distributed"]()
    with daemon.loader(dataset, sampler=sampler, batch_size=50) as loader:
        for epoch in (7, 2, 2):
            loader.set_epoch(epoch)
            judge.set_epoch(epoch)
            batches = harness.take_epoch(loader)
            assert {batch.epoch for batch in batches} == {epoch}
            assert [b.indices.tolist() for b in batches] == torch_orders(
                1, sampler=judge, batch_size=50
            )[0]


def test_an_epoch_broken_off(daemon, dataset):
    """The next one begins with a new run of the sampler."""

    class Permutations:
        runs = 0

        def __iter__(self):
            self.runs += 1
            return iter(np.random.default_rng(self.runs).permutation(N))

    with daemon.loader(
        dataset, sampler=Permutations(), batch_size=10, prefetch=2
    ) as loader:
        judge = Permutations()
        for taken in (3, 1, 100):
            ours = [
                (b.epoch, harness.array(b.indices).tolist())
                for b in itertools.islice(loader, taken)
            ]
            expected = list(judge)[: 10 * taken]
            assert [i for _, batch in ours for i in batch] == expected
            assert len({epoch for epoch, _ in ours}) <= 1
        assert not list(itertools.islice(loader, 0))  # begins nothing
        old = iter(loader)
        new = iter(loader)
        runs = [list(judge), list(judge)]
        # An epoch begins with its first batch.
        for iterator, expected in ((new, runs[0]), (old, runs[1])):
            batches = list(map(harness.Taken, iterator))
            assert [b.index for b in batches] == list(range(22))
            ours = np.concatenate([b.indices for b in batches])
            assert ours.tolist() == expected


# -- Random transforms --------------------------------------------------------

OPS = [T.RandomCrop(8, padding=3), T.RandomHorizontalFlip()]


def check_augmented(batches, image, draw_of):
    """draw_of(batch, row): what the row must have drawn by."""
    compared = 0
    for batch in batches:
        for row, pixels in enumerate(batch.fields[0]):
            draws = reference.Draws(SEED, batch.epoch, draw_of(batch, row))
            expected = reference.apply(
                OPS, image[batch.indices[row]], draws
            ).transpose(2, 0, 1)
            np.testing.assert_array_equal(pixels, expected)
            compared += 1
    return compared


@pytest.mark.parametrize("rank, world_size", [(0, 1), (2, 5)])
def test_a_sampler_draws_by_position(daemon, dataset, image, rank, world_size):
    """A sample that comes twice is augmented in two ways."""
    with daemon.loader(
        dataset,
        batch_sampler=RandomSizes(),
        transforms=OPS,
        seed=SEED,
        rank=rank,
        world_size=world_size,
    ) as loader:
        for _ in range(2):
            batches = harness.take_epoch(loader)
            first_rows = np.cumsum([0] + [b.num_samples for b in batches])
            assert 700 == check_augmented(
                batches,
                image,
                lambda batch, row: rank
                + world_size * int(first_rows[batch.index] + row),
            )
    with daemon.loader(
        dataset, sampler=[9] * 64, batch_size=64, transforms=OPS
    ) as loader:
        (batch,) = harness.take_epoch(loader)
        assert len({row.tobytes() for row in batch.bits()}) > 30


# -- Resume -------------------------------------------------------------------


class LongCount(StatefulCount):
    """One that is not drawn to its end by the first batches."""

    length = 16 * 1000


def test_resume_at_the_beginning_of_an_epoch(daemon, dataset):
    """The sampler has drawn ahead in an epoch that is not the state's."""

    def make():
        return daemon.loader(
            dataset, sampler=LongCount(), batch_size=16, prefetch=1
        )

    with make() as loader:
        iterator = iter(loader)
        next(iterator)
        del iterator
        loader.set_epoch(1)
        state = loader.state_dict()
        expected = [harness.contents(batch) for batch in loader]
    assert state["batch"] == 0 and len(expected) == 1000
    with make() as loader:
        loader.load_state_dict(state)
        assert [harness.contents(batch) for batch in loader] == expected


class Plain:
    """Another order each epoch, which it does not show."""

    def __init__(self):
        self._shift = 7

    def set_epoch(self, epoch):
        self._shift = epoch

    def __len__(self):
        return N

    def __iter__(self):
        return iter(np.roll(np.arange(N), self._shift).tolist())


@pytest.mark.parametrize("stop", [0, 5])
@pytest.mark.parametrize("make_sampler", [distributed, Plain])
@pytest.mark.parametrize("told", ["never", "once", "each", "the sampler"])
def test_resume_tells_a_sampler_what_it_was_told(
    daemon, dataset, make_sampler, told, stop
):
    """A loop that makes the same calls gets the same batches; set_epoch of the
    loop comes after load_state_dict."""

    def epochs(sampler, loader, first):
        for epoch in range(first, 4):
            if told == "each" or (told == "once" and epoch == 1):
                loader.set_epoch(epoch)
            if told == "the sampler":
                sampler.set_epoch(epoch)
            yield epoch

    def make():
        sampler = make_sampler()
        return sampler, daemon.loader(dataset, sampler=sampler, batch_size=20)

    sampler, loader = make()
    rows, state = [], {}
    with loader:
        for epoch in epochs(sampler, loader, 0):
            for batch in loader:
                if epoch < 2 or (epoch == 2 and batch.index < stop):
                    place = loader.state_dict()
                else:
                    rows.append(harness.Taken(batch).indices.tolist())
                if (place["epoch"], place["batch"]) == (2, stop):
                    state = state or place
    sampler, loader = make()
    with loader:
        loader.load_state_dict(json.loads(json.dumps(state)))
        assert loader.state_dict() == state
        resumed = []
        for _ in epochs(sampler, loader, 2):
            taken = map(harness.Taken, loader)
            resumed += [batch.indices.tolist() for batch in taken]
    assert resumed == rows


def test_a_state_without_what_the_sampler_was_told(daemon, dataset):
    """Of a version before: the sampler is told the epoch."""
    sampler = distributed()
    with daemon.loader(dataset, sampler=sampler, batch_size=20) as loader:
        state = dict(loader.state_dict(), epoch=2)
        assert state.pop("sampler_epoch") == 0
        loader.load_state_dict(state)
        assert sampler.epoch == 2
        with pytest.raises(datasetd.InvalidArgument, match="sampler_epoch"):
            loader.load_state_dict({**state, "sampler_epoch": "2"})


def test_a_sampler_that_gives_something_else_is_refused(daemon, dataset):
    def make(seed):
        return daemon.loader(
            dataset, batch_sampler=RandomSizes(seed), prefetch=2
        )

    with make(3) as loader:
        for _ in itertools.islice(loader, 6):
            pass
        state = loader.state_dict()
    assert state["sampler"] == "given" and state["batch"] == 6
    with make(4) as loader:
        loader.load_state_dict(state)
        with pytest.raises(datasetd.FailedPrecondition, match="its seed"):
            next(iter(loader))
    with make(3) as loader:
        loader.load_state_dict({**state, "batch": 10_000, "row": 10_000})
        with pytest.raises(datasetd.FailedPrecondition, match="only"):
            next(iter(loader))
        with pytest.raises(datasetd.InvalidArgument, match="'row'"):
            loader.load_state_dict(
                {k: v for k, v in state.items() if k != "row"}
            )
        with pytest.raises(datasetd.InvalidArgument, match="'row'"):
            loader.load_state_dict({**state, "row": None})
        with pytest.raises(datasetd.InvalidArgument, match="order_hash"):
            loader.load_state_dict({**state, "order_hash": "xyz"})
        loader.load_state_dict(state)
        assert next(iter(loader)).index == 6
    with daemon.loader(dataset, batch_size=32) as loader:
        with pytest.raises(datasetd.FailedPrecondition, match="sampler"):
            loader.load_state_dict(state)


# -- What is refused ----------------------------------------------------------


@pytest.mark.parametrize(
    "options, words",
    [
        ({"sampler": [1], "shuffle": True}, ["sampler", "shuffle"]),
        ({"batch_sampler": [[1]], "shuffle": True}, ["shuffle"]),
        ({"batch_sampler": [[1]], "sampler": [1]}, ["sampler"]),
        ({"batch_sampler": [[1]], "drop_last": True}, ["drop_last"]),
        ({"batch_sampler": [[1]], "subset": [1]}, ["subset"]),
        ({"sampler": [1], "subset": [1]}, ["subset"]),
        ({"batch_sampler": iter([[1]])}, ["batch_size"]),
        ({"sampler": [1], "batch_size": 1 << 19}, ["batch_size"]),
        ({"subset": [1, 2, 1]}, ["subset[2]", "twice"]),
        ({"subset": []}, ["subset"]),
        ({"subset": ["a"]}, ["subset"]),
        ({"subset": [1.5]}, ["subset"]),
        ({"subset": [1 << 70]}, ["subset"]),
    ],
    ids=str,
)
def test_options_that_exclude_each_other(daemon, dataset, options, words):
    with pytest.raises(datasetd.InvalidArgument) as raised:
        daemon.loader(dataset, **options)
    for word in words:
        assert word in str(raised.value)
    expect_no_feed(daemon)


@pytest.mark.parametrize("index", [-1, N, 2**40, -(2**63)])
def test_an_index_out_of_range(daemon, dataset, index):
    """The error comes in its place, and the loader goes on afterwards."""
    sampler = list(range(100)) + [index] + list(range(100))
    with daemon.loader(
        dataset, sampler=sampler, batch_size=1, prefetch=1
    ) as loader:
        iterator = iter(loader)
        with pytest.raises(datasetd.OutOfRange) as raised:
            for _ in iterator:
                pass
        assert str(index) in str(raised.value) and str(N) in str(raised.value)
        state = loader.state_dict()
        assert state["epoch"] == 0 and 80 < state["batch"] <= 100
        sampler[100] = 7
        assert len(harness.take_epoch(loader)) == 201
    with pytest.raises(datasetd.OutOfRange):
        daemon.loader(dataset, subset=[0, index])


def test_an_error_of_the_samplers(daemon, dataset):
    def failing():
        yield from range(25)
        raise RuntimeError("no more")

    class Sampler:
        def __iter__(self):
            return failing()

    with daemon.loader(dataset, sampler=Sampler(), batch_size=10) as loader:
        for _ in range(2):
            iterator = iter(loader)
            assert [next(iterator).index for _ in range(2)] == [0, 1]
            with pytest.raises(RuntimeError, match="no more"):
                next(iterator)
            with pytest.raises(StopIteration):
                next(iterator)
    for bad in (["a"], [[1, 2]], [None], [2**63]):
        with daemon.loader(dataset, sampler=bad) as loader:
            with pytest.raises(datasetd.InvalidArgument, match="sampler"):
                next(iter(loader))
    mask = np.arange(N) < 2
    for bad in (mask, torch.from_numpy(mask), mask.tolist(),
                tud.SubsetRandomSampler(mask)):
        with daemon.loader(dataset, sampler=bad) as loader:
            with pytest.raises(datasetd.InvalidArgument, match="boolean mask"):
                next(iter(loader))
    for bad in ([[]], [[1] * 17]):
        with daemon.loader(
            dataset, batch_sampler=bad, batch_size=16
        ) as loader:
            with pytest.raises(datasetd.InvalidArgument, match="batch"):
                next(iter(loader))


# -- Subsets ------------------------------------------------------------------


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("world_size", [1, 3])
def test_a_subset_is_a_dataset_of_its_own(
    daemon, dataset, world_size, drop_last
):
    subset = np.random.default_rng(2).permutation(N)[:101]
    for rank in range(world_size):
        with daemon.loader(
            dataset,
            batch_size=8,
            subset=subset,
            rank=rank,
            world_size=world_size,
            drop_last=drop_last,
        ) as loader:
            batches = harness.take_epoch(loader)
            expected = reference.batches_of_rank(
                list(subset), rank, world_size, 8, drop_last
            )
            assert [
                (b.indices.tolist(), b.num_padding) for b in batches
            ] == [(list(map(int, i)), p) for i, p in expected]
            assert len(loader) == len(expected)
            assert loader.num_samples == 101


def test_a_shuffled_subset(daemon, dataset, image):
    """Its order is new every epoch, and samples are augmented as they are
    without it."""
    subset = list(range(0, N, 2))
    with daemon.loader(
        dataset, batch_size=50, subset=subset, shuffle=True, seed=SEED,
        transforms=OPS,
    ) as loader:
        seen = []
        for _ in range(3):
            batches = harness.take_epoch(loader)
            order = [i for b in batches for i in b.indices.tolist()]
            assert sorted(order) == subset
            seen.append(order)
            check_augmented(
                batches, image, lambda batch, row: int(batch.indices[row])
            )
        assert len(set(map(tuple, seen))) == 3


# -- Random access ------------------------------------------------------------


def test_fetch_gives_just_these(daemon, dataset, image):
    with daemon.loader(
        dataset, batch_size=10, shuffle=True, seed=SEED, transforms=OPS
    ) as loader:
        iterator = iter(loader)
        before = next(iterator)
        rows_of_loader = harness.Taken(before)
        # The same rows as the loader gave.
        same = harness.Taken(loader.fetch(rows_of_loader.indices))
        np.testing.assert_array_equal(same.bits(), rows_of_loader.bits())
        for wanted in ([4], [3, 3, 3], range(40), torch.arange(100)):
            batch = harness.Taken(loader.fetch(wanted, epoch=6))
            assert batch.indices.tolist() == [int(i) for i in wanted]
            assert batch.epoch == 6
            check_augmented(
                [batch], image, lambda batch, row: int(batch.indices[row])
            )
        # The loader is where it was.
        assert next(iterator).index == 1
        # Kept ones stay what they are.
        kept = [loader.fetch([i, i + 1]) for i in range(12)]
        for i, batch in enumerate(kept):
            assert harness.array(batch.indices).tolist() == [i, i + 1]
        with pytest.raises(datasetd.OutOfRange):
            loader.fetch([0, N])
        assert harness.array(loader.fetch([2]).indices).tolist() == [2]
        with pytest.raises(datasetd.InvalidArgument):
            loader.fetch([])
        del kept, batch, before
    with pytest.raises(datasetd.Closed):
        loader.fetch([1])
    expect_no_feed(daemon)


def test_fetch_of_the_client(daemon, dataset, image):
    options = {} if daemon.device == "cpu" else {"framework": "dlpack"}
    batch = daemon.client.fetch(dataset, [7, 0, 7], **options)
    taken = harness.Taken(batch)
    assert taken.indices.tolist() == [7, 0, 7]
    np.testing.assert_array_equal(
        taken.fields[0], image[[7, 0, 7]].transpose(0, 3, 1, 2)
    )
    del batch
    expect_no_feed(daemon)


if __name__ == "__main__":
    harness.main(__file__)
