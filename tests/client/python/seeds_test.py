"""The sources of a loader's seed."""

import sys

import datasetd
import numpy as np
import pytest
import torch
from conftest import copies, indices_of, loader
from datasetd import transforms as T


def order(dataset, **arguments):
    """(seed, the rows of two epochs)."""
    with loader(dataset, **{"seed": None, **arguments}) as batches:
        rows = [indices_of(copies(batches)).tolist() for _ in range(2)]
        return batches.seed, rows


def test_torchs_seed_governs(dataset):
    torch.manual_seed(4)
    first, second = order(dataset), order(dataset)
    assert first != second
    torch.manual_seed(4)
    assert (order(dataset), order(dataset)) == (first, second)
    # The seed says it all.
    assert order(dataset, seed=first[0]) == first


def test_a_mistake_draws_nothing(dataset):
    torch.manual_seed(4)
    expected = order(dataset)
    torch.manual_seed(4)
    with pytest.raises(datasetd.InvalidArgument, match="prefetch=0"):
        loader(dataset, seed=None, prefetch=0)
    assert order(dataset) == expected


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.Generator().manual_seed(3),
        lambda: np.random.default_rng(3),
    ],
    ids=["torch", "numpy"],
)
def test_a_generator_draws_the_seed(dataset, make):
    state = torch.get_rng_state()
    generator = make()
    first, second = (order(dataset, generator=generator) for _ in range(2))
    assert first[0] != second[0]
    assert order(dataset, generator=make()) == first
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(datasetd.InvalidArgument, match="exclude each other"):
        loader(dataset, seed=1, generator=generator)


def test_no_generator(dataset):
    with pytest.raises(datasetd.InvalidArgument, match="generator=7; expected"):
        loader(dataset, seed=None, generator=7)


def test_without_torch_each_loader_has_its_own(dataset, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    seeds = set()
    for _ in range(4):
        with loader(dataset, seed=None, framework="numpy") as batches:
            seeds.add(batches.seed)
    assert len(seeds) == 4


def test_the_loader_says_it(dataset):
    with loader(dataset, seed=None) as batches:
        assert f"seed={batches.seed}," in repr(batches)
        assert batches.state_dict()["seed"] == batches.seed


def test_an_order_that_is_not_shuffled_draws_no_seed(dataset):
    state = torch.get_rng_state()
    for arguments in ({}, {"sampler": [1, 2]}):
        with loader(
            dataset, shuffle=False, seed=None, **arguments
        ) as batches:
            assert batches.seed == 0
    assert torch.equal(torch.get_rng_state(), state)


def test_a_state_brings_its_seed(dataset):
    ops = [T.RandomCrop(8, padding=3)]
    arguments = {"seed": None, "transforms": ops, "framework": "numpy"}
    with loader(dataset, **arguments) as batches:
        seed = batches.seed
        iterator = iter(batches)
        for _ in range(4):
            next(iterator)
        state = batches.state_dict()
        rest = [(b.indices, b.image.copy()) for b in iterator]
        fetched = batches.fetch([3]).image.copy()
    with loader(dataset, **arguments) as batches:
        assert batches.seed != seed
        batches.fetch([3])
        batches.load_state_dict(state)
        assert batches.seed == seed
        assert batches.state_dict() == state
        again = [(b.indices, b.image.copy()) for b in batches]
        for (ours, pixels), (theirs, expected) in zip(again, rest):
            np.testing.assert_array_equal(ours, theirs)
            np.testing.assert_array_equal(pixels, expected)
        assert len(again) == len(rest)
        np.testing.assert_array_equal(
            batches.fetch([3], epoch=0).image, fetched
        )
    with loader(dataset, **{**arguments, "seed": 1}) as batches:
        with pytest.raises(datasetd.FailedPrecondition, match="seed is"):
            batches.load_state_dict(state)
    with loader(dataset, **arguments) as batches:
        with pytest.raises(datasetd.InvalidArgument, match="seed='x'"):
            batches.load_state_dict({**state, "seed": "x"})
