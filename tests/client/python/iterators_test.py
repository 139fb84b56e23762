"""Several iterators of one loader, and peek()."""

import os
import signal
import warnings

import datasetd
import numpy as np
import pytest
import torch
from conftest import (
    NUM_SAMPLES,
    await_end,
    copies,
    indices_of,
    load,
    loader,
    poll_until,
)
from datasetd import transforms as T

N = 11  # batches of an epoch


@pytest.fixture
def epochs(dataset):
    """The rows of epochs 0 to 4."""
    with loader(dataset) as batches:
        return [indices_of(copies(batches)).tolist() for _ in range(5)]


def rows(batches):
    return indices_of(copies(batches)).tolist()


class Counting:
    """A sampler that tells how often it was run."""

    def __init__(self):
        self.runs = 0

    def __len__(self):
        return NUM_SAMPLES

    def __iter__(self):
        self.runs += 1
        order = np.random.default_rng(self.runs).permutation(NUM_SAMPLES)
        return iter(order.tolist())


def expected_of_sampler(run):
    return np.random.default_rng(run).permutation(NUM_SAMPLES).tolist()


# -- Several iterators ---------------------------------------------------------


def test_a_look_inside_the_loop_does_not_end_it(dataset, epochs):
    with loader(dataset) as batches:
        seen = []
        for batch in batches:
            seen += batch.indices.tolist()
            if batch.index % 4 == 0:
                look = next(iter(batches))
                assert (look.epoch, look.index) == (1 + batch.index // 4, 0)
        assert seen == epochs[0]
        # Epochs 1 to 3 were begun by the looks.
        assert rows(batches) == epochs[4]


def test_all_iterators_complete(dataset, epochs):
    with loader(dataset) as batches:
        iterators = [iter(batches) for _ in range(3)]
        seen = [[], [], []]
        for together in zip(*iterators):
            for i, batch in enumerate(together):
                seen[i] += batch.indices.tolist()
        assert seen == epochs[:3]
        # The last ones end, too.
        assert [len(list(it)) for it in iterators] == [0, 0, 0]


@pytest.mark.parametrize("has_sampler", [False, True])
def test_an_epoch_begins_with_its_first_batch(dataset, has_sampler):
    sampler = Counting()
    options = {"shuffle": False, "sampler": sampler} if has_sampler else {}
    with loader(dataset, **options) as batches:
        state = batches.state_dict()
        early, late, unused = (iter(batches) for _ in range(3))
        assert (len(early), sampler.runs) == (N, 0)
        assert batches.state_dict() == state
        peeked = batches.peek()
        assert next(late) is peeked and peeked.epoch == 0
        assert batches.state_dict()["batch"] == 1
        assert [b.epoch for b in copies(early)] == [1] * N
        # What is said after iter() holds, too.
        batches.set_epoch(7)
        assert batches.state_dict()["epoch"] == 7
        assert [b.epoch for b in copies(unused)] == [7] * N
        assert [b.epoch for b in copies(batches)] == [8] * N
        assert len(copies(late)) == N - 1


def test_a_position_that_is_loaded_after_iter(dataset, epochs):
    with loader(dataset) as batches:
        iterators = [iter(batches), iter(batches)]
        batches.load_state_dict({**batches.state_dict(), "epoch": 2, "batch": 4})
        assert len(iterators[1]) == N - 4
        batches.set_epoch(2)  # keeps it
        assert rows(iterators[1]) == epochs[2][40:]
        assert rows(iterators[0]) == epochs[3]


class Late(Counting):
    """Gives nothing once, for which its loader waits in vain."""

    def __iter__(self):
        if not self.runs:
            self.runs += 1
            raise KeyboardInterrupt
        return super().__iter__()


@pytest.mark.parametrize("begins", [next, list])
def test_a_first_batch_that_fails_leaves_the_loader_where_it_was(
    dataset, begins
):
    with loader(dataset, shuffle=False, sampler=Late()) as batches:
        batches.load_state_dict({**batches.state_dict(), "epoch": 3})
        iterator = iter(batches)
        with pytest.raises(KeyboardInterrupt):
            begins(iterator)
        assert batches.state_dict()["epoch"] == 3
        assert {b.epoch for b in copies(iterator)} == {3}


def test_an_epoch_that_a_lost_daemon_kept_from_beginning(data_root):
    with datasetd.start_local(device="cpu", data_roots=data_root) as local:
        batches = loader(load(local.connect(), data_root))
        iterator = iter(batches)
        for _ in range(3):
            next(iterator)
        del iterator
        state = batches.state_dict()
        os.kill(local.pid, signal.SIGKILL)
        await_end(local.pid)
        with pytest.raises(datasetd.DaemonGone):
            next(iter(batches))
        assert batches.state_dict() == state
        batches.close()


class Failing(Counting):
    """Raises an error after 40 indices, once, while its loader draws ahead."""

    is_armed = True

    def __iter__(self):
        for number, index in enumerate(super().__iter__()):
            if number == 40 and self.is_armed:
                self.is_armed = False
                raise OSError("the disk")
            yield index


def test_an_error_of_a_sampler_tells_where_it_was_raised(dataset):
    with loader(dataset, shuffle=False, sampler=Failing()) as batches:
        iterator = iter(batches)
        for _ in range(4):
            next(iterator)
        with pytest.raises(OSError, match="the disk") as caught:
            next(iterator)
    assert 'raise OSError("the disk")' in str(caught.value.__cause__)


@pytest.fixture
def unsaid(monkeypatch):
    """Every warning is the first one."""
    from datasetd import _warnings

    monkeypatch.setattr(_warnings, "_said", set())


def _next_of_iter(batches):
    next(iter(batches))


def _broken_loop(batches):
    for _ in batches:
        break


def _held_until_the_next(batches):
    batches._held = iter(batches)
    next(batches._held)


@pytest.mark.parametrize("has_sampler", [False, True])
@pytest.mark.parametrize(
    "look", [_next_of_iter, _broken_loop, _held_until_the_next]
)
def test_looks_that_begin_epochs_are_said_once(
    dataset, unsaid, look, has_sampler
):
    options = {"shuffle": False, "sampler": Counting()} if has_sampler else {}
    with loader(dataset, **options) as batches:
        with pytest.warns(UserWarning, match=r"loader\.peek\(\)") as caught:
            for _ in range(3):
                look(batches)
                assert len(copies(batches)) == N
        assert len(caught) == 1
        assert "the iterator of epoch 0 was dropped" in str(caught[0].message)


def test_a_look_that_the_job_knows_of_is_not_said(dataset, tiny, unsaid):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with loader(dataset) as batches:
            for epoch in range(2):
                batches.peek()
                next(iter(batches))
                batches.set_epoch(epoch)
                next(zip(batches))  # as limit_train_batches=1
                batches.sampler.set_epoch(epoch + 1)
                state = batches.state_dict()
                next(iter(batches))
                batches.load_state_dict(state)
                outer = iter(batches)
                assert len(rows(batches)) and next(outer).index == 0
                for _ in range(2):
                    next(outer)
        with loader(tiny) as batches:  # the whole epoch is one batch
            for _ in range(3):
                next(iter(batches))


def test_iterators_of_a_sampler(dataset):
    sampler = Counting()
    with loader(dataset, shuffle=False, sampler=sampler) as batches:
        first, second = iter(batches), iter(batches)
        pairs = list(zip(copies(first), copies(second)))
        assert len(pairs) == N
        for i, run in ((0, 1), (1, 2)):
            assert (
                indices_of([pair[i] for pair in pairs]).tolist()
                == expected_of_sampler(run)
            )


def test_iterators_one_after_another_share_their_buffers(client, dataset):
    with loader(dataset, name="one-feed") as batches:

        def count():
            return sum(f["name"] == "one-feed" for f in client.list_feeds())

        for _ in range(3):
            for batch in batches:
                if batch.index == 5:
                    break
            next(iter(batches))
        assert count() == 1
        older, newer = iter(batches), iter(batches)
        assert count() == 1
        next(older), next(newer)
        assert count() == 2
        del older, newer, batch
        poll_until(lambda: count() == 1, "one feed", timeout=10)


def test_a_framework_that_counts_epochs_moves_the_loader_forward(
    dataset, epochs
):
    """Fabric counts from the start of the process, the Trainer of Lightning
    goes on after a checkpoint; both tell `sampler`."""
    with loader(dataset) as batches:
        for count in range(2):
            batches.sampler.set_epoch(count)
            assert rows(batches) == epochs[count]
        state = {**batches.state_dict(), "epoch": 3, "batch": 2}
        batches.load_state_dict(state)
        batches.sampler.set_epoch(0)
        assert rows(batches) == epochs[3][20:]
        batches.sampler.set_epoch(1)
        assert rows(batches) == epochs[4]
    for as_torch in (False, True):
        with loader(dataset) as batches:
            given = batches.as_torch() if as_torch else batches
            unused = iter(given)
            given.sampler.set_epoch(2)
            assert rows(given) == epochs[2]
            given.sampler.set_epoch(3)
            assert rows(given) == epochs[3]
            del unused
    sampler = Counting()
    with loader(dataset, shuffle=False, sampler=sampler) as batches:
        assert batches.sampler is sampler


def test_state_is_that_of_the_batch_returned_last(dataset, epochs):
    with loader(dataset) as batches:

        def place():
            state = batches.state_dict()
            return state["epoch"], state["batch"]

        older = iter(batches)
        next(older)
        newer = iter(batches)
        assert place() == (0, 1)
        next(newer)
        assert place() == (1, 1)
        next(older)
        assert place() == (0, 2)
        # One that ends leaves its end, whoever else is under way.
        assert len(list(newer)) == N - 1
        assert place() == (2, 0)
        next(older)
        assert place() == (0, 3)
        state = batches.state_dict()
    with loader(dataset) as resumed:
        resumed.load_state_dict(state)
        assert rows(resumed) == epochs[0][30:]


def test_close_ends_every_iterator(dataset):
    batches = loader(dataset)
    iterators = [iter(batches), iter(batches)]
    for iterator in iterators:
        next(iterator)
    batches.close()
    for iterator in iterators:
        with pytest.raises(datasetd.Closed):
            next(iterator)


# -- peek ----------------------------------------------------------------------


def test_peek_moves_nothing(dataset, epochs):
    with loader(dataset) as batches:
        state = batches.state_dict()
        first = batches.peek()
        assert (first.epoch, first.index) == (0, 0)
        assert batches.peek() is first
        assert batches.state_dict() == state
        # It is not made twice.
        iterator = iter(batches)
        assert next(iterator) is first
        assert batches.state_dict()["batch"] == 1
        del iterator, first
        assert rows(batches) == epochs[1]


def test_peek_inside_the_loop(dataset, epochs):
    with loader(dataset) as batches:
        seen = []
        for batch in batches:
            seen += batch.indices.tolist()
            if batch.index in (4, 7):
                state = batches.state_dict()
                peeked = batches.peek()
                assert (peeked.epoch, peeked.index) == (1, 0)
                assert peeked.indices.tolist() == epochs[1][:10]
                assert batches.state_dict() == state
        assert seen == epochs[0]
        assert batches.state_dict()["epoch"] == 1
        assert rows(batches) == epochs[1]


def test_peek_after_a_broken_loop(dataset, epochs):
    with loader(dataset) as batches:
        for batch in batches:
            if batch.index == 2:
                break
        state = batches.state_dict()
        assert (state["epoch"], state["batch"]) == (0, 3)
        assert batches.peek().indices.tolist() == epochs[1][:10]
        assert batches.state_dict() == state
        assert rows(batches) == epochs[1]


@pytest.mark.parametrize("ask", ["set_epoch", "load_state_dict"])
def test_peek_shows_what_was_asked_for(dataset, epochs, ask):
    with loader(dataset) as batches:
        batches.peek()
        state = dict(batches.state_dict(), epoch=3, batch=2)
        if ask == "set_epoch":
            batches.set_epoch(3)
            expected = epochs[3]
        else:
            batches.load_state_dict(state)
            expected = epochs[3][20:]
        assert batches.peek().indices.tolist() == expected[:10]
        assert batches.state_dict()["epoch"] == 3
        assert rows(batches) == expected
        # Another choice after the look.
        batches.peek()
        batches.set_epoch(0)
        assert rows(batches) == epochs[0]


def test_peek_of_a_sampler(dataset):
    sampler = Counting()
    with loader(dataset, shuffle=False, sampler=sampler) as batches:
        state = batches.state_dict()
        for run in (1, 2):
            peeked = batches.peek()
            assert peeked.indices.tolist() == expected_of_sampler(run)[:10]
            assert batches.peek() is peeked
            assert rows(batches) == expected_of_sampler(run)
            assert sampler.runs == run
        assert state["epoch"] == 0 and batches.state_dict()["epoch"] == 2


def test_peek_of_a_sampler_without_a_length(dataset):
    class Endless:
        def __iter__(self):
            return iter(range(25))

    with loader(dataset, shuffle=False, sampler=Endless()) as batches:
        first = batches.peek()
        assert next(iter(batches)) is first
        del first
        batches.peek()
        assert rows(batches) == list(range(25))


def test_peek_keeps_the_random_draws(dataset):
    ops = [T.RandomCrop(8, padding=3)]
    with loader(dataset, transforms=ops) as batches:
        expected = [batch.image.clone() for batch in batches]
    with loader(dataset, transforms=ops) as batches:
        assert torch.equal(batches.peek().image, expected[0])
        for batch, image in zip(batches, expected):
            assert torch.equal(batch.image, image)


class Stateful(Counting):
    def state_dict(self):
        return {"runs": self.runs}

    def load_state_dict(self, state):
        self.runs = state["runs"]


def test_a_stateful_sampler_goes_on_after_an_error(dataset):
    """The iterator that was dropped is not under way."""

    class Both(Failing, Stateful):
        pass

    with loader(dataset, shuffle=False, sampler=Both()) as batches:
        next(iter(batches))
        assert rows(batches) == expected_of_sampler(2)


def test_peek_beside_an_iterator_of_a_stateful_sampler(dataset):
    with loader(dataset, shuffle=False, sampler=Stateful()) as batches:
        iterator = iter(batches)
        seen = next(iterator).indices.tolist()
        for look in (batches.peek, iter(batches).__next__):
            with pytest.raises(
                datasetd.FailedPrecondition, match="state of one iteration"
            ):
                look()
        assert seen + rows(iterator) == expected_of_sampler(1)
        assert batches.peek().indices.tolist() == expected_of_sampler(2)[:10]
        assert rows(batches) == expected_of_sampler(2)


def test_an_error_of_a_sampler_that_peek_meets_comes_again(dataset):
    given = [[0, 1], [2, NUM_SAMPLES]]
    with datasetd.DataLoader(dataset, batch_sampler=given) as batches:
        for _ in range(2):
            with pytest.raises(datasetd.OutOfRange):
                batches.peek()
        with pytest.raises(datasetd.OutOfRange):
            list(batches)


def test_peek_at_nothing(tiny, dataset):
    with loader(tiny, batch_size=5, drop_last=True) as batches:
        with pytest.raises(datasetd.OutOfRange, match="no batches"):
            batches.peek()
    with loader(dataset, shuffle=False, sampler=[]) as batches:
        with pytest.raises(datasetd.OutOfRange, match="no batches"):
            batches.peek()
        assert list(batches) == []
    with pytest.raises(datasetd.Closed):
        batches.peek()


def test_what_was_peeked_ends_with_the_loader(dataset):
    batches = loader(dataset)
    batches.peek()
    iterator = iter(batches)
    batches.close()
    with pytest.raises(datasetd.Closed):
        next(iterator)
