"""state_dict, load_state_dict, set_epoch, and iterators that are broken off.

What a resumed loader gives is one matrix: kind of order x where the job stops x
what changes before it goes on.
"""

import itertools
import json

import datasetd
import numpy as np
import pytest
import torch.utils.data as tud
from datasetd import transforms as T

from tests.conformance import loader_harness as harness
from tests.conformance import samplers

daemon = harness.daemon

N = 103
CROP = [T.RandomCrop(8, padding=2), T.RandomHorizontalFlip()]
OPTIONS = {
    "batch_size": 10,  # 11 batches, the last of 3
    "shuffle": True,
    "seed": 7,
    "transforms": CROP,
}
NUM_BATCHES = 11
GIVEN = {"batch_size": 16, "shuffle": False}  # 13 batches of a sampler
BATCHES = {"batch_size": 32, "shuffle": False}
CLASSES = np.arange(N) ** 2 % 7 - 1
SUBSET = list(range(0, N, 2))


def weighted_by_torch():
    return tud.WeightedRandomSampler(
        samplers.weights(), 200, generator=samplers.generator()
    )


# Kind of order -> what its loader has beside OPTIONS; "dataset" names a fixture.
ORDERS = {
    "shuffled": lambda: {},
    "in order": lambda: {"shuffle": False},
    "without the end": lambda: {"drop_last": True},
    "of a rank": lambda: {"rank": 1, "world_size": 2},
    "unpadded": lambda: {"rank": 1, "world_size": 2, "pad": False},
    "subset": lambda: {"subset": SUBSET},
    "split": lambda: {"dataset": "split"},
    "weights": lambda: {"shuffle": False, "weights": np.arange(N) % 4},
    "groups": lambda: {
        "shuffle": False,
        "group_size": 3,
        "group_by": CLASSES,
        "batch_size": 4,
    },
    "mixture": lambda: {"dataset": "mixture"},
    "fixed mixture": lambda: {"dataset": "fixed mixture"},
    "views": lambda: {
        "transforms": None, "views": {"a": CROP, "b": CROP}
    },  # fmt: skip
    "mixed images": lambda: {
        "transforms": [T.ToDtype("float32"), T.CutMix(num_classes=1009)]
    },
    # Orders that the job makes, of a larger dataset.
    "weighted by torch": lambda: {"sampler": weighted_by_torch(), **GIVEN},
    "distributed": lambda: {"sampler": samplers.distributed(2, 1), **GIVEN},
    "sizes": lambda: {"batch_sampler": samplers.RandomSizes(), **BATCHES},
    "pairs": lambda: {
        "batch_sampler": np.arange(120).reshape(12, 5, 2).tolist(),
        **BATCHES,
    },
    "stateful": lambda: {"sampler": samplers.Stateful(8), **GIVEN},
    "stateful count": lambda: {"sampler": samplers.StatefulCount(), **GIVEN},
    "stateful count of batches": lambda: {
        "batch_sampler": samplers.StatefulCount(16), **BATCHES
    },
    "stateful iterator": lambda: {
        "sampler": samplers.StatefulIterator(), **GIVEN
    },  # fmt: skip
}
# They go on with other ranks and batches: their order is of all ranks.
ELASTIC = [
    "shuffled", "in order", "without the end", "subset", "weights", "groups",
    "mixture",
]  # fmt: skip


def load(daemon, directory, count, seed=0):
    return daemon.load(
        harness.write_npy(
            directory,
            image=harness.images(count, (8, 8, 3), seed),
            label=harness.labels(count),
        )
    )


@pytest.fixture(scope="module")
def datasets(daemon, tmp_path_factory):
    path = tmp_path_factory.mktemp("data")
    small = load(daemon, path / "small", N)
    other = load(daemon, path / "other", 40, seed=1)
    return {
        "small": small,
        "large": load(daemon, path / "large", samplers.N),
        "split": small.split(0.8)[0],
        "mixture": datasetd.mixture({small: 0.5, other: 0.5}, num_rows=90),
        "fixed mixture": datasetd.mixture(
            {small: 0.7, other: 0.3}, num_rows=90, fixed_per_batch=True
        ),
    }


@pytest.fixture
def open_loader(daemon, datasets):
    opened = []

    def open_one(kind="shuffled", **options):
        options = {**OPTIONS, **ORDERS[kind](), **options}
        is_given = "sampler" in options or "batch_sampler" in options
        name = options.pop("dataset", "large" if is_given else "small")
        opened.append(daemon.loader(datasets[name], **options))
        return opened[-1]

    yield open_one
    for loader in opened:
        loader.close()


@pytest.fixture(scope="module")
def golden(daemon, datasets):
    """All batches of epochs 0 to 2."""
    with daemon.loader(datasets["small"], **OPTIONS) as loader:
        return [harness.take_epoch(loader) for _ in range(3)]


def assert_same(batches, expected):
    assert [(b.epoch, b.index) for b in batches] == [
        (b.epoch, b.index) for b in expected
    ]
    for got, want in zip(batches, expected):
        assert got.indices.tolist() == want.indices.tolist()
        assert (got.bits(0) == want.bits(0)).all()
        assert (got.bits(1) == want.bits(1)).all()


def take(iterator, count):
    return [harness.Taken(next(iterator)) for _ in range(count)]


# -- Resume -----------------------------------------------------------------


def read_into(fresh, saved):
    """The state that torch.distributed.checkpoint loads: the saved values of
    the keys that a new loader's state has."""
    return {
        key: read_into(value, saved[key])
        if isinstance(value, dict)
        else saved[key]
        for key, value in fresh.items()
    }


@pytest.mark.parametrize("stop", [0, 1, 5, -1, "end", "epoch 2"])
@pytest.mark.parametrize("kind", ORDERS)
def test_goes_on_at_the_exact_next_batch(open_loader, kind, stop):
    """The rest of the epoch, and all of the next, pixels too."""
    is_stateful = "stateful" in kind
    is_of_one_run = kind == "weighted by torch"
    prefetch, count = {0: 1, 1: 8, 5: 40}.get(stop, 4), 0
    loader = open_loader(kind, prefetch=prefetch)
    first, stopped = [harness.contents(b) for b in loader], open_loader(kind)
    if stop == "epoch 2":
        for _ in range(2):
            harness.take_epoch(stopped)
    elif stop != 0:
        count = {-1: len(first) - 1, "end": len(first)}.get(stop, stop)
        iterator = iter(stopped)
        assert [harness.contents(next(iterator)) for _ in range(count)] == first[:count]
    # Batches that were made ahead do not count.
    state = stopped.state_dict()
    place = {0: (0, 0), "end": (1, 0), "epoch 2": (2, 0)}
    assert (state["epoch"], state["batch"]) == place.get(stop, (0, count))
    if is_of_one_run and state["epoch"]:
        return
    if stop == "end":
        assert list(iterator) == []
    rest = [harness.contents(b) for b in (iterator if state["batch"] else stopped)]
    assert len(rest) == len(first) - state["batch"]
    if not is_stateful:
        state = json.loads(json.dumps(state))
    resumed = open_loader(kind, prefetch=prefetch)
    resumed.load_state_dict(state)
    if not is_stateful:
        assert resumed.state_dict() == state
    assert [harness.contents(b) for b in resumed] == rest
    if not is_of_one_run:
        following = [harness.contents(b) for b in stopped]
        assert [harness.contents(b) for b in resumed] == following
    if kind != "stateful iterator":  # a new loader has no iterator's state yet
        fresh = open_loader(kind)
        fresh.load_state_dict(read_into(fresh.state_dict(), state))
        assert [harness.contents(b) for b in fresh] == rest


def by_position(loaders, count=None):
    """Takes `count` batches of each rank's loader, or all of the epoch; returns
    what each position of the global order has, from where the epoch begins, and
    the state."""
    drawn = {}
    for rank, loader in enumerate(loaders):
        row = 0
        for batch in itertools.islice(loader, count):
            taken = harness.Taken(batch)
            for i in range(len(taken.indices) - taken.num_padding):
                drawn[rank + row * len(loaders)] = (
                    taken.indices[i].tolist(),
                    *(taken.bits(field)[i].tobytes() for field in range(2)),
                )
                row += 1
    states = [loader.state_dict() for loader in loaders]
    assert all(state == states[0] for state in states)
    assert sorted(drawn) == list(range(len(drawn)))
    return [drawn[place] for place in range(len(drawn))], states[0]


# (ranks, batch_size, batches that each takes), one job after the other.
CHANGES = {
    "batches": [(1, 4, 3), (1, 9, None)],
    "ranks": [(2, 2, 3), (3, 2, 1), (1, 4, None)],
    "more ranks": [(1, 4, 3), (4, 2, None)],
    "nothing, the second time": [(2, 2, 3), (3, 2, 2), (3, 2, None)],
    "before the first batch": [(1, 4, 0), (3, 5, None)],
    "between epochs": [(2, 4, None), (3, 5, None)],
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", ELASTIC)
def test_goes_on_with_other_ranks_and_batches(open_loader, kind, change):
    """Each row once, with the pixels of the job that was not interrupted, and
    then a whole epoch."""

    def make(ranks, batch_size):
        return [
            open_loader(kind, batch_size=batch_size, rank=rank, world_size=ranks)
            for rank in range(ranks)
        ]

    def check(drawn, whole, ranks, batch_size):
        # Draws go on beyond the end where ranks share it; drop_last ends early.
        assert drawn[: len(whole)] == whole[: len(drawn)]
        dropped = ranks * batch_size if kind == "without the end" else 0
        assert len(whole) - dropped <= len(drawn) < len(whole) + ranks

    one = make(1, 1)
    epochs = [by_position(one)[0] for _ in range(3)]
    assert epochs[0] != epochs[1]
    state, epoch, drawn = None, 0, []
    for ranks, batch_size, count in CHANGES[change]:
        loaders = make(ranks, batch_size)
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(state)
        rows, state = by_position(loaders, count)
        drawn += rows
        if state["epoch"] == epoch:
            first = state["first_position"]
            rows = state["batch"] * batch_size * ranks
            assert first + rows == len(drawn)
        else:
            check(drawn, epochs[epoch], ranks, batch_size)
            epoch, drawn = epoch + 1, []
            assert (state["epoch"], state["batch"]) == (epoch, 0)
            assert state["first_position"] == 0
    check(by_position(loaders)[0], epochs[epoch], ranks, batch_size)


def test_a_state_without_a_first_position_is_of_a_whole_epoch(
    open_loader, golden
):
    loader = open_loader()
    take(iter(loader), 2)
    state = loader.state_dict()
    del state["first_position"]
    other = open_loader(batch_size=7)
    other.load_state_dict(state)
    rows = harness.by_sample(golden[0][2:])
    assert harness.by_sample(harness.take_epoch(other)) == rows


def test_state_is_plain_readable_and_of_no_rank(open_loader, datasets):
    loader = open_loader(rank=1, world_size=2)
    state = loader.state_dict()
    other = open_loader(rank=0, world_size=2).state_dict()
    assert state == other
    assert set(state) == {
        "version",
        "content_hash",
        "seed",
        "epoch",
        "batch",
        "first_position",
        "batch_size",
        "drop_last",
        "sampler",
        "world_size",
        "transforms_hash",
    }
    assert state["content_hash"] == datasets["small"].content_hash
    assert state["seed"] == 7
    assert state["batch_size"] == 10


def test_set_epoch_keeps_a_loaded_place_in_that_epoch(open_loader, golden):
    loader = open_loader(prefetch=8)
    iterator = iter(loader)
    take(iterator, 3)
    state = loader.state_dict()
    take(iterator, 4)
    for epoch, expected in ((0, golden[0][3:]), (2, golden[2])):
        loader.load_state_dict(state)
        # As a training loop does first thing after it resumed.
        loader.set_epoch(epoch)
        assert_same(harness.take_epoch(loader), expected)


def test_another_daemon_goes_on(daemon, datasets, open_loader, golden):
    loader = open_loader()
    take(iter(loader), 4)
    state = loader.state_dict()
    with harness.Daemon(daemon.device) as other:
        again = other.load(datasets["small"].path, name="again")
        with other.loader(again, **OPTIONS) as second:
            second.load_state_dict(state)
            assert_same(harness.take_epoch(second), golden[0][4:])


@pytest.mark.parametrize("stop", [0, 2])
@pytest.mark.parametrize(
    "kind, key, other, options",
    [
        ("shuffled", "seed", "shuffled", {"seed": 8}),
        ("shuffled", "drop_last", "without the end", {}),
        ("shuffled", "sampler", "in order", {}),
        ("shuffled", "transforms_hash", "shuffled", {"transforms": CROP[1:]}),
        (
            "shuffled",
            "transforms_hash",
            "shuffled",
            {"transforms": [T.RandomCrop(8, padding=3), CROP[1]]},
        ),
        ("shuffled", "content_hash", "mixture", {}),
        ("subset", "subset", "subset", {"subset": SUBSET[::-1]}),
        ("subset", "subset", "shuffled", {}),
        ("weights", "weights", "weights", {"weights": np.arange(N) % 4 + 1}),
        ("weights", "sampler", "shuffled", {}),
        ("groups", "group_size", "groups", {"group_size": 2}),
        ("groups", "classes", "groups", {"group_by": CLASSES[::-1]}),
        ("groups", "sampler", "shuffled", {}),
        ("mixture", "content_hash", "fixed mixture", {}),
        ("views", "transforms_hash", "views", {"views": {"a": [], "c": []}}),
        ("distributed", "sampler", "distributed", {"sampler": None}),
        ("distributed", "batch_size", "distributed", {"batch_size": 5}),
    ],
)
def test_the_rest_must_match(open_loader, kind, key, other, options, stop):
    loader = open_loader(kind)
    take(iter(loader), stop)
    state = loader.state_dict()
    if key == "batch_size" and not stop:
        return  # nothing is drawn yet
    wrong = open_loader(other, **options)
    before = wrong.state_dict()
    with pytest.raises(datasetd.FailedPrecondition, match=f"{key} is"):
        wrong.load_state_dict(state)
    assert wrong.state_dict() == before


@pytest.mark.parametrize(
    "change, error, words",
    [
        ({"seed": None}, datasetd.InvalidArgument, "'seed'"),
        ({"version": 2}, datasetd.FailedPrecondition, "version is 2"),
        ({"batch": NUM_BATCHES}, datasetd.InvalidArgument, "batch is 11, an ep"),
        ({"epoch": -1}, datasetd.InvalidArgument, "epoch=-1"),
        ({"first_position": N}, datasetd.InvalidArgument, "first_position"),
        ({"first_position": -1}, datasetd.InvalidArgument, "first_position"),
        (
            {"first_position": 100, "batch": 1},
            datasetd.InvalidArgument,
            "batch is 1, an epoch has 1",
        ),
        ({"world_size": 0}, datasetd.InvalidArgument, "world_size"),
        ({"batch_size": "10"}, datasetd.InvalidArgument, "batch_size"),
    ],
)
def test_broken_states_are_named(open_loader, change, error, words):
    loader = open_loader(batch_size=7)
    state = {**open_loader().state_dict(), **change}
    broken = {k: v for k, v in state.items() if v is not None}
    with pytest.raises(error, match=words):
        loader.load_state_dict(broken)
    with pytest.raises(datasetd.InvalidArgument, match="NoneType; expe"):
        loader.load_state_dict(None)


# -- Iterating --------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [1, 4, 30])
def test_early_break_then_the_next_epoch(open_loader, golden, prefetch):
    loader = open_loader(prefetch=prefetch)
    for i, batch in enumerate(loader):
        if i == 2:
            break
    del batch
    assert_same(harness.take_epoch(loader), golden[1])
    assert_same(harness.take_epoch(loader), golden[2])


def test_set_epoch_repeats_and_skips(open_loader, golden):
    loader = open_loader(prefetch=8)
    for epoch in (1, 1, 0, 2, 0):
        loader.set_epoch(epoch)
        assert_same(harness.take_epoch(loader), golden[epoch])
    # Then it goes on after the last one.
    assert_same(harness.take_epoch(loader), golden[1])
    with pytest.raises(datasetd.InvalidArgument, match="epoch=-1"):
        loader.set_epoch(-1)


def test_a_finished_iterator_stays_finished(open_loader):
    loader = open_loader()
    finished = iter(loader)
    take(finished, NUM_BATCHES)
    take(iter(loader), 1)
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(finished)


def test_prefetch_deeper_than_an_epoch(open_loader, golden):
    """Forty batches ahead are four epochs; a seek skips what is stale."""
    loader = open_loader(prefetch=40)
    assert_same(harness.take_epoch(loader), golden[0])
    assert_same(harness.take_epoch(loader), golden[1])
    loader.set_epoch(0)
    assert_same(harness.take_epoch(loader), golden[0])


def test_roll_over_asks_for_nothing(daemon, open_loader, golden):
    """The next epoch is ready before it is asked for: no seek reaches the
    daemon, so the feed's batches are those that were taken or made ahead."""
    loader = open_loader(prefetch=4, name="roll-over")
    for epoch in range(3):
        assert_same(harness.take_epoch(loader), golden[epoch])
    (feed,) = [
        feed
        for feed in daemon.client.list_feeds()
        if feed["name"] == "roll-over"
    ]
    published = int(feed["num_batches"])
    assert 3 * NUM_BATCHES <= published <= 3 * NUM_BATCHES + 6
    assert int(feed["num_ignored_seeks"]) == 0
    assert int(feed["num_ignored_releases"]) == 0


def test_batches_kept_stay_as_they_are(open_loader, golden):
    loader = open_loader(prefetch=4)
    kept = []
    for i, batch in enumerate(loader):
        if i in (0, 3, 7):
            kept.append((i, batch))
    del batch
    harness.take_epoch(loader)
    loader.close()
    assert_same(
        [harness.Taken(batch) for _, batch in kept],
        [golden[0][i] for i, _ in kept],
    )


if __name__ == "__main__":
    harness.main(__file__)
