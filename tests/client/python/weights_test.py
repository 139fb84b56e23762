"""weights=: epochs drawn by weight."""

import hashlib
import os
import warnings

import datasetd
import numpy as np
import pytest
import torch
from conftest import NUM_SAMPLES, indices_of, loader
from datasetd import transforms as T

_WEIGHTS = np.arange(NUM_SAMPLES, dtype=np.float64) % 5


def weighted(dataset, **arguments):
    return loader(
        dataset, **{"shuffle": False, "weights": _WEIGHTS, **arguments}
    )


def rows(batches):
    return indices_of(batches).tolist()


def drawn_by_numpy(weights, seed, epoch, count):
    """The first `count` draws of an epoch; the judge of the daemon's."""
    cumulative = np.cumsum(np.asarray(weights, np.float64))
    key = np.array([seed, epoch], np.uint64)
    bits = np.random.Philox(key=key).random_raw(count) >> np.uint64(11)
    drawn = np.searchsorted(
        cumulative, bits * 2.0**-53 * cumulative[-1], side="right"
    )
    return np.minimum(drawn, np.flatnonzero(weights)[-1])


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("seed, epoch", [(0, 0), (5, 3), (2**64 - 1, 2**31)])
def test_the_daemon_draws_what_numpy_draws(dataset, seed, epoch, drop_last):
    """For all ranks, and beyond as many draws as samples."""
    weights = np.random.default_rng(seed % 97).random(NUM_SAMPLES) ** 3
    weights[[0, 50, -2, -1]] = 0
    whole = drawn_by_numpy(weights, seed, epoch, NUM_SAMPLES + 7)
    for size in (1, 2, 7):
        for rank in range(size):
            with weighted(
                dataset, weights=weights, seed=seed, batch_size=8,
                drop_last=drop_last, rank=rank, world_size=size,
            ) as batches:  # fmt: skip
                batches.set_epoch(epoch)
                expected = whole[rank::size][: -(-NUM_SAMPLES // size)]
                if drop_last:
                    expected = whole[rank:NUM_SAMPLES:size]
                    count = NUM_SAMPLES // size
                    expected = expected[: count - count % 8]
                assert len(batches) == -(-len(expected) // 8)
                seen = list(batches)
                assert rows(seen) == expected.tolist()
                assert all(batch.num_padding == 0 for batch in seen)


def test_a_repeated_sample_is_augmented_as_a_samplers(dataset):
    """Bit by bit as a sampler of the same draws: by the row's position."""
    rng = np.random.default_rng(3)
    arguments = {
        "shuffle": False,
        "batch_size": 8,
        "transforms": [
            T.RandomCrop(6),
            T.ColorJitter(brightness=0.5),
            T.ToDtype("float32"),
            T.RandomErasing(1.0),
        ],
    }
    weights = rng.random(NUM_SAMPLES) * (rng.random(NUM_SAMPLES) < 0.1)
    for rank in range(2):
        order = drawn_by_numpy(weights, 5, 0, NUM_SAMPLES + 1)[rank::2]
        assert len(set(order)) < 12
        ranks = {"rank": rank, "world_size": 2}
        with loader(
            dataset, weights=weights, **ranks, **arguments
        ) as ours, loader(
            dataset, sampler=order.tolist(), **ranks, **arguments
        ) as judge:
            assert len(ours) == len(judge)
            pixels = {}
            for got, expected in zip(ours, judge):
                assert torch.equal(got.indices, expected.indices)
                assert torch.equal(got.image, expected.image)
                for index, image in zip(got.indices.tolist(), got.image):
                    pixels.setdefault(index, set()).add(
                        image.numpy().tobytes()
                    )
        assert max(len(different) for different in pixels.values()) > 3


def test_more_samples_than_a_message_holds(client):
    """1.28 million, of which a subset of more than a million in any order;
    "balanced", whose labels are read through a feed."""
    rng = np.random.default_rng(0)
    count = 1_281_167
    labels = rng.integers(0, 1000, count) ** 2 // 1000
    pushed = client.push_dataset("million", {"label": labels})
    subset = rng.permutation(count)[:1_150_000]
    _, classes, counts = np.unique(
        labels[subset], return_inverse=True, return_counts=True
    )
    balanced = 1.0 / counts[classes]
    for arguments, weights, samples in (
        ({"weights": labels + 0.25}, labels + 0.25, np.arange(count)),
        ({"weights": "balanced", "subset": subset}, balanced, subset),
    ):
        with weighted(
            pushed, framework="numpy", batch_size=4096, **arguments
        ) as batches:
            assert len(batches) == -(-len(samples) // 4096)
            expected = samples[drawn_by_numpy(weights, 5, 0, len(samples))]
            for number, batch in enumerate(batches):
                at = slice(number * 4096, number * 4096 + len(batch.indices))
                np.testing.assert_array_equal(batch.indices, expected[at])
                np.testing.assert_array_equal(
                    batch.label, labels[expected[at]]
                )
            assert number == len(batches) - 1


def test_too_many_weights(client, tiny):
    weights = np.ones(2**24 + 1)
    is_full = os.environ.get("DATASETD_TEST_FULL") == "1"
    if is_full:
        pushed = client.push_dataset(
            "too-many", {"x": np.zeros(2**24 + 1, np.uint8)}
        )
        arguments = {"dataset": pushed, "fields": ["x"]}
    else:
        subset = np.zeros(len(weights), np.int64)
        arguments = {"dataset": tiny, "subset": subset}
    with pytest.raises(
        datasetd.InvalidArgument, match="1 to 16777216 weights.*sampler="
    ):
        weighted(weights=weights, **arguments)
    if not is_full:
        return  # 128 MiB of weights, and seconds to add them up
    with weighted(
        pushed, weights=weights[1:], subset=range(1, 2**24 + 1), fields=["x"]
    ) as batches:
        expected = drawn_by_numpy(weights[1:], 5, 0, 10) + 1
        assert batches.peek().indices.tolist() == expected.tolist()


def test_an_order_is_a_function_of_seed_and_epoch(dataset):
    with weighted(dataset) as batches:
        epochs = [rows(batches) for _ in range(3)]
        batches.set_epoch(1)
        assert rows(batches) == epochs[1]
    assert epochs[0] != epochs[1] != epochs[2]
    with weighted(dataset, batch_size=7, weights=_WEIGHTS.tolist()) as batches:
        assert [rows(batches) for _ in range(3)] == epochs
    with weighted(dataset, seed=6, weights=torch.tensor(_WEIGHTS)) as batches:
        assert rows(batches) != epochs[0]
    torch.manual_seed(3)
    with weighted(dataset, seed=None) as batches:
        first = rows(batches)
    torch.manual_seed(3)
    with weighted(dataset, seed=None) as batches:
        assert rows(batches) == first


def test_a_state_is_as_versions_wrote_it_that_drew_in_the_job(dataset):
    with weighted(dataset) as batches:
        next(iter(batches))
        state = batches.state_dict()
    assert set(state) == {
        "version", "content_hash", "seed", "batch_size", "drop_last",
        "sampler", "world_size", "transforms_hash", "weights", "epoch",
        "batch", "first_position", "next_weights",
    }  # fmt: skip
    assert state["next_weights"] == state["weights"]
    assert (state["sampler"], state["batch"]) == ("weighted", 1)
    assert state["weights"] == hashlib.blake2b(
        _WEIGHTS.astype("<f8").tobytes(), digest_size=16
    ).hexdigest()


def test_weights_of_torch(dataset):
    """NumPy 2 warns where it takes a tensor by itself."""
    weights = torch.arange(NUM_SAMPLES, dtype=torch.bfloat16)
    weights.requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with weighted(dataset, weights=weights) as batches:
            with weighted(dataset, weights=range(NUM_SAMPLES)) as same:
                assert rows(batches) == rows(same)


def test_weights_are_copied(dataset):
    weights = _WEIGHTS.copy()
    with weighted(dataset) as batches:
        expected = rows(batches)
    with weighted(dataset, weights=weights) as batches:
        weights[:] = 1
        first = iter(batches)
        seen = next(first).indices.tolist()
        # A second feed gets them, too.
        assert rows(batches) != expected
        batches.set_epoch(0)
        assert rows(batches) == expected
        assert seen + rows(first) == expected


def test_weights_of_a_subset(dataset):
    subset = [40, 7, 99]
    with weighted(
        dataset, subset=subset, weights=[0, 1, 3], batch_size=3
    ) as batches:
        assert len(batches) == 1
        seen = [row for _ in range(50) for row in rows(batches)]
    assert len(seen) == 150 and set(seen) == {7, 99}
    assert 90 < seen.count(99) < 135


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_balanced(client, framework):
    labels = np.repeat([0, 1, 7], [5, 80, 915])
    pushed = client.push_dataset(
        "unbalanced", {"x": np.zeros((1000, 2), np.float32), "label": labels}
    )
    with weighted(
        pushed,
        weights="balanced",
        framework=framework,
        fields=["x"],
        batch_size=100,
    ) as batches:
        seen = np.concatenate(
            [labels[rows(batches)] for _ in range(30)]
        )
    shares = [(seen == label).mean() for label in (0, 1, 7)]
    assert np.abs(np.array(shares) - 1 / 3).max() < 0.02


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"weights": [1.0]}, r"their shape is \(1,\); expected one for each"),
        (
            {"weights": [1.0] * (NUM_SAMPLES - 1) + [-1.0]},
            r"weights\[102\] is -1; expected a finite number from 0 \(sample "
            "102 of dataset 'hundred'",
        ),
        ({"weights": [float("nan")] * NUM_SAMPLES}, "is -?nan; expected"),
        ({"weights": [float("inf")] * NUM_SAMPLES}, "is inf; expected"),
        (
            {"weights": [1e308] * NUM_SAMPLES},
            r"weights\[1\] is 1e\+308, and the sum up to it is not finite",
        ),
        (
            {"subset": [7, 5], "weights": [1, -1]},
            r"weights\[1\] is -1; .*\(sample 5 of",
        ),
        ({"subset": [7, 500], "weights": [1, 1]}, r"samples\[1\] of the weights: 500"),
        ({"weights": [0] * NUM_SAMPLES}, "their sum is 0; expected"),
        ({"weights": ["a"] * NUM_SAMPLES}, "weights: expected numbers"),
        ({"weights": 1.0}, "expected numbers, one for each of 103 samples"),
        ({"weights": "even"}, "weights='even'; expected"),
        ({"shuffle": True}, "weights= and shuffle= exclude"),
        ({"sampler": [1]}, "weights= and sampler= exclude"),
    ],
)
def test_bad_weights(client, dataset, arguments, text):
    with pytest.raises(
        (datasetd.InvalidArgument, datasetd.OutOfRange), match=text
    ):
        weighted(dataset, **arguments)
    assert client.list_feeds() == []


def test_balanced_needs_labels(client):
    pushed = client.push_dataset(
        "no-classes", {"a": np.arange(9), "b": np.arange(9)}
    )
    with pytest.raises(datasetd.InvalidArgument, match=r"are \['a', 'b'\]"):
        weighted(pushed, weights="balanced")


@pytest.mark.parametrize("name", ["label", "class_of"])
def test_balanced_leaves_out_what_has_no_class(client, name):
    labels = np.repeat([-1, 0, 1, -100], [80, 9, 1, 10])
    with client.push_dataset(f"half-labelled-{name}", {name: labels}) as pushed:
        with pytest.warns(
            UserWarning, match=f"90 of 100 samples have a '{name}' below 0"
        ):
            batches = weighted(pushed, weights="balanced")
        with batches:
            seen = np.concatenate([labels[rows(batches)] for _ in range(30)])
        assert set(seen.tolist()) == {0, 1}
        assert abs((seen == 1).mean() - 0.5) < 0.05
        unlabelled = pushed.select(range(50))
        with pytest.raises(
            datasetd.InvalidArgument, match=f"all 50 values of '{name}' are"
        ):
            weighted(unlabelled, weights="balanced")


# -- set_weights() ------------------------------------------------------------


def some_weights(rng):
    """Some are 0, and the sum is not."""
    weights = rng.random(NUM_SAMPLES) * (rng.random(NUM_SAMPLES) < 0.6)
    weights[rng.integers(NUM_SAMPLES)] = 1
    return weights


@pytest.mark.parametrize("prefetch", [1, 32])
@pytest.mark.parametrize("size", [1, 2, 8])
def test_weights_change_with_the_next_epoch(dataset, size, prefetch):
    """At random points, the first and the last among them, while the daemon is
    far into the next epoch or not."""
    for rank in range(size):
        rng = np.random.default_rng(size)
        weights = some_weights(rng)
        with weighted(
            dataset, weights=weights, batch_size=3, prefetch=prefetch,
            rank=rank, world_size=size,
        ) as batches:  # fmt: skip
            ends = [0, len(batches), *rng.integers(0, len(batches), 6)]
            for epoch, point in enumerate(ends):
                running, weights = weights, some_weights(rng)
                iterator, seen = iter(batches), []
                for number in range(len(batches) + 1):
                    if number == point:
                        # The last call counts.
                        batches.set_weights(some_weights(rng))
                        batches.set_weights(weights)
                        if number == 0:
                            running = weights
                    if number < len(batches):
                        batch = next(iterator)
                        assert batch.epoch == epoch
                        seen += batch.indices.tolist()
                assert next(iterator, None) is None
                whole = drawn_by_numpy(running, 5, epoch, NUM_SAMPLES + size)
                assert seen == whole[rank::size][: len(seen)].tolist()
                assert len(seen) == -(-NUM_SAMPLES // size)


def test_an_epoch_of_new_weights_is_that_of_a_new_loader(dataset):
    """Bit by bit, also of an epoch that has been before, of a subset, and after
    weights that were refused."""
    rng = np.random.default_rng(1)
    subset = rng.permutation(NUM_SAMPLES)[:50].tolist()
    arguments = {
        "batch_size": 8,
        "subset": subset,
        "transforms": [T.RandomCrop(6), T.ToDtype("float32")],
    }
    weights = rng.random(50)
    with weighted(dataset, weights=range(50), **arguments) as batches:
        list(batches)
        next(iter(batches))
        batches.set_weights(weights)
        for refused, text in (
            ([1] * 49 + [-1], r"weights\[49\] is -1; .*sample"),
            ([0] * 50, "their sum is 0"),
            ([float("nan")] + [1] * 49, r"weights\[0\] is"),
            ([1] * 51, r"their shape is \(51,\)"),
            ("even", "weights='even'"),
        ):
            with pytest.raises(datasetd.InvalidArgument, match=text):
                batches.set_weights(refused)
        for epoch in (0, 7, 1):
            batches.set_epoch(epoch)
            with weighted(dataset, weights=weights, **arguments) as judge:
                judge.set_epoch(epoch)
                for got, expected in zip(batches, judge):
                    assert torch.equal(got.indices, expected.indices)
                    assert torch.equal(got.image, expected.image)
        assert rows(batches) == [
            subset[i] for i in drawn_by_numpy(weights, 5, 2, 50)
        ]


def test_set_weights_of_torch_and_balanced(client):
    labels = np.repeat([0, 1], [90, 10])
    pushed = client.push_dataset("unbalanced2", {"label": labels})
    with weighted(pushed, weights=torch.ones(100), batch_size=100) as batches:
        next(iter(batches))
        weights = torch.arange(100, dtype=torch.float16, requires_grad=True)
        batches.set_weights(weights)
        expected = drawn_by_numpy(np.arange(100), 5, 1, 100)
        assert rows(batches) == expected.tolist()
        batches.set_weights("balanced")
        expected = drawn_by_numpy(np.repeat([1 / 90, 0.1], [90, 10]), 5, 2, 100)
        assert rows(batches) == expected.tolist()


def test_weights_change_while_iterators_run_and_after_peek(dataset):
    rng = np.random.default_rng(2)
    old, new = some_weights(rng), some_weights(rng)

    def expected(weights, epoch):
        return drawn_by_numpy(weights, 5, epoch, NUM_SAMPLES).tolist()

    with weighted(dataset, weights=old) as batches:
        first = batches.peek()
        batches.set_weights(new)
        assert batches.peek().indices.tolist() != first.indices.tolist()
        batches.set_weights(old)
        running = iter(batches)
        seen = next(running).indices.tolist()
        beside = batches.peek().indices.tolist()
        assert beside == expected(old, 1)[:10]
        batches.set_weights(new)
        # Of the next epoch, though one with the old weights is under way.
        assert batches.peek().indices.tolist() == expected(new, 1)[:10]
        assert sum(batches.batch_sampler, []) == expected(new, 1)
        assert rows(batches) == expected(new, 1)
        batches.set_weights(old)
        assert seen + rows(running) == expected(old, 0)
        assert rows(batches) == expected(old, 2)


def test_a_state_knows_the_weights_of_its_epoch_and_the_next(dataset):
    """Taken at random points before and after weights change."""
    rng = np.random.default_rng(4)
    old, new = some_weights(rng), some_weights(rng)
    with weighted(dataset, weights=old) as batches:
        hashes = [batches.state_dict()["weights"]]
    with weighted(dataset, weights=new) as batches:
        hashes.append(batches.state_dict()["weights"])
    for point, change in ((3, 1), (3, 3), (9, 2), (11, 11), (11, 4), (4, None)):
        with weighted(dataset, weights=old) as batches:
            iterator = iter(batches)
            for number in range(point + 1):
                if number == change:
                    batches.set_weights(new)
                if number < point:
                    next(iterator)
            state = batches.state_dict()
            rest = rows(iterator) if point < 11 else []
            expected = rest, rows(batches), rows(batches)
        is_mid, is_new = point < 11, change is not None
        assert state["weights"] == hashes[is_new and not is_mid]
        assert state["next_weights"] == hashes[is_new]
        with weighted(dataset, weights=old, batch_size=10) as batches:
            if is_new:
                batches.set_weights(new)
            batches.load_state_dict(state)
            assert batches.state_dict() == state
            # The rest that was loaded keeps its weights; the next one has
            # those that were set last.
            assert sum(batches.batch_sampler, []) == (
                expected[0] if is_mid else expected[1]
            )
            if not is_new:
                batches.set_weights(new)
                assert batches.state_dict()["weights"] == hashes[0]
                assert batches.state_dict()["next_weights"] == hashes[1]
                batches.set_weights(old)
            again = [rows(batches) for _ in range(3)]
        assert again[:2] == list(expected)[0 if is_mid else 1 :][:2]


def test_states_of_other_weights_and_of_versions_before(dataset):
    rng = np.random.default_rng(5)
    old, new = some_weights(rng), some_weights(rng)
    with weighted(dataset, weights=old) as batches:
        iterator = iter(batches)
        next(iterator)
        before = batches.state_dict()
        batches.set_weights(new)
        state = batches.state_dict()
        rest = rows(iterator)
    del before["next_weights"]
    for weights, then, loaded, text in (
        (old, None, state, "next_weights is '.*for the next epoch the loader"),
        (new, None, state, "weights is '.*the loader has other weights than"),
        (new, old, state, "next_weights is '"),
        (old, new, before, "next_weights is '"),
    ):
        with weighted(dataset, weights=weights) as batches:
            if then is not None:
                batches.set_weights(then)
            with pytest.raises(
                datasetd.FailedPrecondition,
                match=text + r".*set_weights\(\) before load_state_dict\(\)",
            ):
                batches.load_state_dict(loaded)
    with weighted(dataset, weights=old) as batches:
        batches.load_state_dict(before)
        assert rows(batches) == rest
        assert rows(batches) == drawn_by_numpy(
            old, 5, 1, NUM_SAMPLES
        ).tolist()
    # In the same loader, back to before the change.
    with weighted(dataset, weights=old) as batches:
        rows(batches)
        batches.set_weights(new)
        assert rows(batches) == drawn_by_numpy(
            new, 5, 1, NUM_SAMPLES
        ).tolist()
        batches.load_state_dict(state)
        assert rows(batches) == rest


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({}, "does not draw by weights: pass weights="),
        ({"shuffle": True}, "does not draw by weights"),
        ({"sampler": range(9)}, "does not draw by weights"),
        ({"group_size": 2}, "does not draw by weights"),
        ({"weights": _WEIGHTS, "partition": (0, 1)}, "with partition="),
    ],
)
def test_loaders_whose_weights_cannot_change(dataset, arguments, text):
    with weighted(
        dataset, **{"weights": None, "world_size": 1, **arguments}
    ) as batches:
        with pytest.raises(datasetd.FailedPrecondition, match=text):
            batches.set_weights(_WEIGHTS)
        assert next(iter(batches)).epoch == 0
    with pytest.raises(datasetd.Closed):
        batches.set_weights(_WEIGHTS)
