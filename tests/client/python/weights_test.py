"""weights=: epochs drawn by weight."""

import datasetd
import numpy as np
import pytest
import torch
from conftest import NUM_SAMPLES, indices_of, loader

_WEIGHTS = np.arange(NUM_SAMPLES, dtype=np.float64) % 5


def weighted(dataset, **arguments):
    return loader(
        dataset, **{"shuffle": False, "weights": _WEIGHTS, **arguments}
    )


def rows(batches):
    return indices_of(batches).tolist()


def test_samples_come_in_proportion(dataset):
    """Chi-squared of 200 epochs, and torch's WeightedRandomSampler as judge of
    the test itself."""
    counts = np.zeros(NUM_SAMPLES)
    with weighted(dataset, batch_size=NUM_SAMPLES) as batches:
        for _ in range(200):
            counts += np.bincount(rows(batches), minlength=NUM_SAMPLES)
    judge = torch.utils.data.WeightedRandomSampler(
        torch.as_tensor(_WEIGHTS),
        200 * NUM_SAMPLES,
        generator=torch.Generator().manual_seed(1),
    )
    for seen in (counts, np.bincount(list(judge), minlength=NUM_SAMPLES)):
        assert seen.sum() == 200 * NUM_SAMPLES
        assert (seen[_WEIGHTS == 0] == 0).all()
        expected = seen.sum() * _WEIGHTS / _WEIGHTS.sum()
        some = expected > 0
        chi2 = ((seen - expected)[some] ** 2 / expected[some]).sum()
        degrees = some.sum() - 1
        # Six standard deviations.
        assert abs(chi2 - degrees) < 6 * np.sqrt(2 * degrees)


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


@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_share_one_order(dataset, drop_last):
    per_rank = NUM_SAMPLES // 4 if drop_last else -(-NUM_SAMPLES // 4)
    ours = []
    for rank in range(4):
        with weighted(
            dataset, rank=rank, world_size=4, batch_size=4, drop_last=drop_last
        ) as batches:
            assert len(batches) == (6 if drop_last else 7)
            ours.append(rows(batches))
            states = batches.state_dict()
            # The same for all ranks.
            assert "order_hash" not in states and "row" not in states
    lengths = {len(share) for share in ours}
    assert lengths == {per_rank - per_rank % 4 if drop_last else per_rank}
    with weighted(dataset) as batches:
        whole = rows(batches)
    together = np.array(ours).T.reshape(-1).tolist()
    # Without drop_last there is one draw more than samples.
    assert together[:NUM_SAMPLES] == whole[: len(together)]


def test_resume(dataset):
    with weighted(dataset) as batches:
        iterator = iter(batches)
        for _ in range(4):
            next(iterator)
        state = batches.state_dict()
        rest = rows(iterator)
        following = rows(batches)
    with weighted(dataset, seed=None) as batches:
        batches.load_state_dict(state)
        assert batches.state_dict() == state
        assert rows(batches) == rest
        assert rows(batches) == following
    for other, key in (
        ({"weights": _WEIGHTS + 1}, "weights"),
        ({"weights": None, "shuffle": True}, "sampler"),
    ):
        with weighted(dataset, **other) as batches:
            with pytest.raises(
                datasetd.FailedPrecondition, match=f"{key} is"
            ):
                batches.load_state_dict(state)


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
        ({"weights": [-1.0] * NUM_SAMPLES}, "finite numbers from 0"),
        ({"weights": [float("nan")] * NUM_SAMPLES}, "finite numbers from 0"),
        ({"weights": [0] * NUM_SAMPLES}, "their sum is 0.0"),
        ({"weights": ["a"] * NUM_SAMPLES}, "weights: expected numbers"),
        ({"weights": "even"}, "weights='even'; expected"),
        ({"shuffle": True}, "weights= and shuffle= exclude"),
        ({"sampler": [1]}, "weights= and sampler= exclude"),
    ],
)
def test_bad_weights(dataset, arguments, text):
    with pytest.raises(datasetd.InvalidArgument, match=text):
        weighted(dataset, **arguments)


def test_balanced_needs_labels(client):
    pushed = client.push_dataset(
        "no-classes", {"a": np.arange(9), "b": np.arange(9)}
    )
    with pytest.raises(datasetd.InvalidArgument, match=r"are \['a', 'b'\]"):
        weighted(pushed, weights="balanced")
