"""state_dict, load_state_dict, set_epoch, and iterators that are broken off."""

import json

import datasetd
import pytest
from datasetd import transforms as T

from tests.conformance import loader_harness as harness

daemon = harness.daemon

N = 103
OPTIONS = {
    "batch_size": 10,  # 11 batches, the last of 3
    "shuffle": True,
    "seed": 7,
    "transforms": [T.RandomCrop(8, padding=2), T.RandomHorizontalFlip()],
}
NUM_BATCHES = 11


@pytest.fixture(scope="module")
def dataset(daemon, tmp_path_factory):
    return daemon.load(
        harness.write_npy(
            tmp_path_factory.mktemp("data"),
            image=harness.images(N, (8, 8, 3)),
            label=harness.labels(N),
        )
    )


@pytest.fixture
def open_loader(daemon, dataset):
    opened = []

    def open_one(**options):
        opened.append(daemon.loader(dataset, **{**OPTIONS, **options}))
        return opened[-1]

    yield open_one
    for loader in opened:
        loader.close()


@pytest.fixture(scope="module")
def golden(daemon, dataset):
    """All batches of epochs 0 to 2."""
    with daemon.loader(dataset, **OPTIONS) as loader:
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


@pytest.mark.parametrize("prefetch", [1, 8, 40])
@pytest.mark.parametrize("taken", [0, 1, 5, NUM_BATCHES - 1, NUM_BATCHES])
def test_goes_on_at_the_exact_next_batch(open_loader, golden, taken, prefetch):
    first = open_loader(prefetch=prefetch)
    take(iter(first), taken)
    state = json.loads(json.dumps(first.state_dict()))
    if taken < NUM_BATCHES:
        assert (state["epoch"], state["batch"]) == (0, taken)
    else:
        assert (state["epoch"], state["batch"]) == (1, 0)
    # Batches that were made ahead do not count.
    first.close()

    second = open_loader(prefetch=prefetch)
    second.load_state_dict(state)
    assert second.state_dict() == state
    flat = [batch for epoch in golden for batch in epoch]
    left = NUM_BATCHES - taken or NUM_BATCHES
    assert_same(harness.take_epoch(second), flat[taken : taken + left])
    assert_same(harness.take_epoch(second), flat[taken + left :][:NUM_BATCHES])


def test_state_is_plain_readable_and_of_no_rank(open_loader, dataset):
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
    assert state["content_hash"] == dataset.content_hash
    assert state["seed"] == 7
    assert state["batch_size"] == 10


def test_load_on_a_loader_that_is_iterating(open_loader, golden):
    loader = open_loader(prefetch=8)
    iterator = iter(loader)
    take(iterator, 3)
    state = loader.state_dict()
    take(iterator, 4)
    loader.load_state_dict(state)
    assert_same(harness.take_epoch(loader), golden[0][3:])


def test_another_daemon_goes_on(daemon, dataset, open_loader, golden):
    loader = open_loader()
    take(iter(loader), 4)
    state = loader.state_dict()
    with harness.Daemon(daemon.device) as other:
        again = other.load(dataset.path, name="again")
        with other.loader(again, **OPTIONS) as second:
            second.load_state_dict(state)
            assert_same(harness.take_epoch(second), golden[0][4:])


def test_at_batch_0_batch_size_and_world_size_may_change(open_loader, golden):
    loader = open_loader()
    harness.take_epoch(loader)
    state = loader.state_dict()
    assert (state["epoch"], state["batch"]) == (1, 0)
    rows = {}
    for rank in range(3):
        other = open_loader(batch_size=16, world_size=3, rank=rank)
        other.load_state_dict(state)
        batches = harness.take_epoch(other)
        assert {batch.epoch for batch in batches} == {1}
        rows.update(harness.by_sample(batches))
    assert rows == harness.by_sample(golden[1])


def test_inside_an_epoch_they_may_change_too(open_loader, golden):
    loader = open_loader()
    rows = harness.by_sample(take(iter(loader), 4))
    state = loader.state_dict()
    for rank in range(3):
        other = open_loader(batch_size=16, world_size=3, rank=rank)
        other.load_state_dict(state)
        rows.update(harness.by_sample(harness.take_epoch(other)))
        assert_same(
            harness.take_epoch(other),
            harness.take_epoch(
                _at_epoch(open_loader(batch_size=16, world_size=3, rank=rank))
            ),
        )
    assert rows == harness.by_sample(golden[0])


def _at_epoch(loader):
    loader.set_epoch(1)
    return loader


ALWAYS = [
    ("seed", {"seed": 8}),
    ("drop_last", {"drop_last": True}),
    ("sampler", {"shuffle": False}),
    ("transforms_hash", {"transforms": [T.RandomHorizontalFlip()]}),
    (
        "transforms_hash",
        {
            "transforms": [
                T.RandomCrop(8, padding=3),
                T.RandomHorizontalFlip(),
            ]
        },
    ),
]


@pytest.mark.parametrize("name, options", ALWAYS, ids=str)
def test_inside_an_epoch_the_rest_must_match(open_loader, name, options):
    loader = open_loader()
    take(iter(loader), 2)
    state = loader.state_dict()
    other = open_loader(**options)
    before = other.state_dict()
    with pytest.raises(datasetd.FailedPrecondition, match=f"{name} is"):
        other.load_state_dict(state)
    assert other.state_dict() == before


@pytest.mark.parametrize("name, options", ALWAYS, ids=str)
def test_at_batch_0_the_rest_must_match(open_loader, name, options):
    state = open_loader().state_dict()
    with pytest.raises(datasetd.FailedPrecondition, match=f"{name} is"):
        open_loader(**options).load_state_dict(state)


def test_other_samples_are_another_job(
    daemon, open_loader, tmp_path_factory
):
    image = harness.images(N, (8, 8, 3))
    image[0, 0, 0, 0] ^= 1
    changed = daemon.load(
        harness.write_npy(
            tmp_path_factory.mktemp("changed"),
            image=image,
            label=harness.labels(N),
        )
    )
    with daemon.loader(changed, **OPTIONS) as other:
        with pytest.raises(
            datasetd.FailedPrecondition, match="content_hash is"
        ):
            other.load_state_dict(open_loader().state_dict())


def test_broken_states_are_named(open_loader):
    loader = open_loader()
    state = loader.state_dict()
    with pytest.raises(datasetd.InvalidArgument, match="'seed'"):
        loader.load_state_dict({k: v for k, v in state.items() if k != "seed"})
    with pytest.raises(datasetd.FailedPrecondition, match="version is 2"):
        loader.load_state_dict({**state, "version": 2})
    with pytest.raises(datasetd.InvalidArgument, match="batch is 11"):
        loader.load_state_dict({**state, "batch": NUM_BATCHES})
    with pytest.raises(datasetd.InvalidArgument, match="epoch=-1"):
        loader.load_state_dict({**state, "epoch": -1})


# -- Iterating --------------------------------------------------------------


def test_epochs_follow_each_other(open_loader, golden):
    loader = open_loader()
    for epoch in range(3):
        assert_same(harness.take_epoch(loader), golden[epoch])


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


def test_set_epoch_keeps_a_loaded_place_in_that_epoch(open_loader, golden):
    """A training loop calls set_epoch(e) first thing after resuming in e."""
    loader = open_loader()
    take(iter(loader), 6)
    state = loader.state_dict()
    resumed = open_loader()
    resumed.load_state_dict(state)
    resumed.set_epoch(0)
    assert_same(harness.take_epoch(resumed), golden[0][6:])
    resumed.load_state_dict(state)
    resumed.set_epoch(2)
    assert_same(harness.take_epoch(resumed), golden[2])


def test_a_newer_iterator_leaves_the_older_alone(open_loader, golden):
    loader = open_loader()
    older = iter(loader)
    assert_same(take(older, 2), golden[0][:2])
    newer = iter(loader)
    assert_same(take(newer, NUM_BATCHES), golden[1])
    assert_same(take(older, NUM_BATCHES - 2), golden[0][2:])
    for iterator in (older, newer):
        with pytest.raises(StopIteration):
            next(iterator)


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


def test_keeping_all_is_the_stated_error(open_loader):
    loader = open_loader(prefetch=2, on_held="error")
    kept = []
    with pytest.raises(datasetd.AllSlotsHeld, match=r"clone\(\)"):
        for batch in loader:
            kept.append(batch)
    assert len(kept) == 4
    # Dropping one is enough.
    del batch, kept[0]
    iter_again = iter(loader)
    kept.append(next(iter_again))
    assert kept[-1].epoch == 1


if __name__ == "__main__":
    harness.main(__file__)
