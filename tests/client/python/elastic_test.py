"""Resuming within an epoch with other ranks and batch sizes."""

import os

import datasetd
import numpy as np
import pytest
from datasetd import transforms as T

_IS_FULL = os.environ.get("DATASETD_TEST_FULL") == "1"
NUM_SAMPLES = 103
CROP = [T.RandomCrop(8, padding=2), T.ColorJitter(brightness=0.5),
        T.ToDtype("float32")]


@pytest.fixture(scope="module")
def images(daemon):
    """A dataset whose samples look different in every crop."""
    rng = np.random.default_rng(0)
    with daemon.connect() as client:
        yield client.push_dataset(
            "elastic",
            {
                "image": rng.integers(
                    0, 256, (NUM_SAMPLES, 8, 8, 3), dtype=np.uint8
                ),
                "label": np.arange(NUM_SAMPLES),
            },
        )


def make(images, ranks, batch_size, **arguments):
    """One loader for each rank."""
    return [
        datasetd.DataLoader(
            images, batch_size=batch_size, seed=7,
            transforms=CROP, framework="numpy", prefetch=1,
            rank=rank, world_size=ranks, **{"shuffle": True, **arguments})
        for rank in range(ranks)
    ]


class Seen:
    """The samples that all ranks have got of an epoch: pixels by sample."""

    def __init__(self):
        self.pixels = {}
        self.num_padding = 0

    def add(self, batch):
        count = len(batch.indices) - batch.num_padding
        for index, image in zip(batch.indices[:count], batch["image"]):
            assert int(index) not in self.pixels
            self.pixels[int(index)] = np.array(image)
        self.num_padding += batch.num_padding

    def take(self, loaders, count=None):
        """Takes `count` batches of each loader, or all of the epoch; returns
        their state."""
        for loader in loaders:
            for number, batch in enumerate(loader, 1):
                self.add(batch)
                if number == count:
                    break
        states = [loader.state_dict() for loader in loaders]
        assert all(state == states[0] for state in states)
        return states[0]

    def __eq__(self, other):
        return self.pixels.keys() == other.pixels.keys() and all(
            np.array_equal(image, other.pixels[index])
            for index, image in self.pixels.items())


@pytest.fixture(scope="module")
def whole(images):
    """Two epochs of one rank that nothing interrupts."""
    (loader,) = make(images, 1, 10)
    epochs = [Seen(), Seen()]
    with loader:
        for seen in epochs:
            seen.take([loader])
    assert len(epochs[0].pixels) == NUM_SAMPLES
    assert any(
        not np.array_equal(image, epochs[1].pixels[index])
        for index, image in epochs[0].pixels.items())
    return epochs


def test_the_rest_of_an_epoch_resumes_as_it_is(images, whole):
    seen = Seen()
    state = seen.take(make(images, 1, 10), 2)
    middle = make(images, 2, 3)
    for loader in middle:
        loader.load_state_dict(state)
    state = seen.take(middle, 4)
    again = make(images, 2, 3)
    for loader in again:
        loader.load_state_dict(state)
        assert loader.state_dict() == state
        iterator = iter(loader)
        first = next(iterator)
        assert (first.epoch, first.index) == (0, 4)
        seen.add(first)
        assert len(iterator) == 14 - 5  # 42 rows by 3
        # The length of a whole epoch.
        assert len(loader) == 18  # 52 rows by 3
        for batch in iterator:
            seen.add(batch)
    assert seen == whole[0]


def test_a_rest_without_a_whole_batch_is_an_empty_epoch(images, whole):
    seen = Seen()
    state = seen.take(make(images, 1, 10, drop_last=True), 9)
    (loader,) = make(images, 1, 50, drop_last=True)
    loader.load_state_dict(state)
    assert list(loader) == []
    later = Seen()
    later.take([loader])
    assert len(later.pixels) == 100


def test_peek_and_set_epoch(images, whole):
    seen = Seen()
    state = seen.take(make(images, 2, 5), 3)
    (loader,) = make(images, 1, 7)
    loader.load_state_dict(state)
    loader.set_epoch(0)  # the loaded one: kept
    first = loader.peek()
    assert (first.epoch, first.index) == (0, 0)
    seen.take([loader])
    assert seen == whole[0]
    # The same epoch on request is a whole one.
    loader.set_epoch(0)
    assert loader.state_dict()["first_position"] == 0
    again = Seen()
    again.take([loader])
    assert again == whole[0]


def test_an_iterator_of_the_rest_beside_one_of_the_next_epoch(images, whole):
    seen, later = Seen(), Seen()
    state = seen.take(make(images, 2, 5), 3)
    (loader,) = make(images, 1, 7)
    loader.load_state_dict(state)
    rest = iter(loader)
    seen.add(next(rest))
    for batch in iter(loader):
        later.add(batch)
    for batch in rest:
        seen.add(batch)
    assert seen == whole[0]
    assert later == whole[1]


def test_the_next_epoch_begins_once_its_memory_is_free():
    """It needs another feed, while the last batch of the rest keeps the memory
    of the one before."""
    arguments = {
        "seed": 7,
        "shuffle": True,
        "transforms": [T.ToDtype("float32")],
        "framework": "numpy",
        "prefetch": 16,  # 8 MiB with batches of 8
    }
    with datasetd.start_local(
        device="cpu", memory_budget_mib=16
    ) as daemon, daemon.connect() as client:
        dataset = client.push_dataset(
            "large", {"image": np.zeros((64, 64, 64, 3), np.uint8)}
        )
        with datasetd.DataLoader(dataset, batch_size=4, **arguments) as loader:
            next(iter(loader))
            state = loader.state_dict()
        with datasetd.DataLoader(dataset, batch_size=8, **arguments) as loader:
            loader.load_state_dict(state)
            for batch in loader:
                pass
            for _ in range(2):
                with pytest.raises(
                    datasetd.ResourceExhausted,
                    match="budget of 16.0 MiB .*batches of the previous feed",
                ):
                    next(iter(loader))
            del batch
            assert [batch.epoch for batch in loader] == [1] * 8


# -- Without padding -----------------------------------------------------------


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
@pytest.mark.parametrize(
    "order",
    [
        {},
        {"shuffle": True},
        {"shuffle": True, "subset": range(90, 3, -2)},
        {"weights": np.arange(1, 104), "expected": 103},
    ],
    ids=["in order", "shuffled", "subset", "weights"],
)
def test_pad_false_gives_each_sample_once_over_all_ranks(
    dataset, world_size, order
):
    """At random points the job goes on with other ranks."""
    order = dict(order)
    wanted = sorted(order.get("subset", range(103)))
    is_drawn = order.pop("expected", None)

    def make(rank, size, batch_size):
        return datasetd.DataLoader(
            dataset, batch_size, rank=rank, world_size=size, pad=False, seed=4,
            framework="numpy", **order,
        )  # fmt: skip

    def rows(loaders, first):
        sizes = []
        for loader in loaders:
            expected, seen = len(iter(loader)), []
            for batch in loader:
                assert batch.num_padding == 0 and batch.valid.all()
                seen.append(batch.indices.tolist())
            assert len(seen) == expected
            sizes.append(sum(map(len, seen)))
            first += sum(seen, [])
        assert max(sizes) - min(sizes) <= 1 and sizes == sorted(sizes)[::-1]
        return first

    random = np.random.default_rng(world_size)
    for size in {world_size, 3}:
        loaders = [make(rank, size, 5) for rank in range(size)]
        whole = rows(loaders, [])
        if not is_drawn:
            assert sorted(whole) == wanted
        assert len(whole) == len(wanted)
        # The ranks stop together after some batches, and rank 0's state holds.
        first, common = [], min(map(len, loaders))
        stop = int(random.integers(0, common + 1)) if common else 0
        for loader in loaders:
            loader.set_epoch(0)
            batches = iter(loader)
            for _ in range(stop):
                first += next(batches).indices.tolist()
        state = loaders[0].state_dict()
        for loader in loaders:
            loader.close()
        if state["epoch"] or not stop:
            continue
        changes = [(size, 5), (world_size, 5), (2, 7), (8, 1)]
        # A short run has two of them for each number of ranks.
        for ranks, batch_size in (
            changes if _IS_FULL else changes[world_size % 2 :: 2]
        ):
            loaders = [make(rank, ranks, batch_size) for rank in range(ranks)]
            for loader in loaders:
                loader.load_state_dict(state)
            seen = rows(loaders, list(first))
            assert sorted(seen) == sorted(whole)
            # And the epoch after it is a whole one.
            after = rows(loaders, [])
            assert len(after) == len(whole)
            assert {loader.state_dict()["epoch"] for loader in loaders[:1]} == {2}
            for loader in loaders:
                loader.close()


def test_ranks_with_fewer_batches_end_before(dataset):
    loaders = [
        datasetd.DataLoader(
            dataset, 5, subset=range(11), rank=rank, world_size=2, pad=False
        )
        for rank in range(2)
    ]
    assert [len(loader) for loader in loaders] == [2, 1]
    assert [len(loader.sampler) for loader in loaders] == [6, 5]
    next(iter(loaders[0]))
    state = loaders[0].state_dict()
    for loader, expected in zip(loaders, ([10], [])):
        loader.load_state_dict(state)
        assert [b.indices.tolist() for b in loader] == [[i] for i in expected]
        loader.close()
    # More ranks than samples.
    loaders = [
        datasetd.DataLoader(
            dataset, 5, subset=range(3), rank=rank, world_size=5, pad=False
        )
        for rank in range(5)
    ]
    for _ in range(2):
        assert [[b.indices.tolist() for b in loader] for loader in loaders] == [
            [[0]], [[1]], [[2]], [], [],
        ]  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        {"drop_last": True},
        {"sampler": range(4)},
        {"batch_sampler": [[1, 2]]},
        {"partition": (0, 1)},
    ],
)
def test_pad_false_excludes(dataset, arguments):
    (other,) = arguments
    with pytest.raises(
        datasetd.InvalidArgument, match=f"pad=False and {other}= exclude"
    ):
        datasetd.DataLoader(dataset, pad=False, **arguments)
