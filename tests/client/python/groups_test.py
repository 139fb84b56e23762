"""Groups: batches [B, K] of a batch_sampler, and groups of one class."""

import itertools
import warnings

import datasetd
import numpy as np
import pytest
import torch
from conftest import NUM_SAMPLES, loader
from datasetd import transforms as T

from tests.conformance.random_reference import Permutation, halves

# Classes of several sizes, and samples without class.
_CLASSES = (np.arange(NUM_SAMPLES) ** 2 + np.arange(NUM_SAMPLES) // 3) % 8 - 1


def sampled(dataset, batches, **arguments):
    return loader(
        dataset,
        **{
            "shuffle": False,
            "batch_sampler": batches,
            "batch_size": 1,
            **arguments,
        },
    )


def grouped(dataset, **arguments):
    return loader(
        dataset,
        **{
            "shuffle": False,
            "group_size": 3,
            "group_by": _CLASSES,
            "batch_size": 4,
            **arguments,
        },
    )


def rows(batches):
    """The groups of an epoch, as lists."""
    return [group for batch in batches for group in batch.indices.tolist()]


class Pairs:
    """Batches of 5, 5 and 2 pairs, drawn anew in each epoch."""

    def __init__(self, make=lambda pairs: pairs.tolist()):
        self._make = make
        self._epoch = 0
        self.given = []

    def set_epoch(self, epoch):
        self._epoch = epoch

    def __iter__(self):
        rng = np.random.default_rng(self._epoch)
        self.given = [
            rng.integers(0, NUM_SAMPLES, (size, 2)) for size in (5, 5, 2)
        ]
        return map(self._make, self.given)

    def __len__(self):
        return 3


# -- Batches of a sampler -------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda pairs: pairs.tolist(),
        lambda pairs: pairs,
        torch.tensor,
        lambda pairs: [torch.tensor(pair) for pair in pairs],
        lambda pairs: tuple(map(tuple, pairs)),
        lambda pairs: ([int(a), int(b)] for a, b in pairs),
    ],
    ids=["lists", "array", "tensor", "tensors", "tuples", "generator"],
)
@pytest.mark.parametrize("group_size", [None, 2])
def test_a_batch_samplers_groups(dataset, make, group_size):
    pairs = Pairs(make)
    with sampled(
        dataset, pairs, batch_size=5, group_size=group_size
    ) as batches:
        assert len(batches) == 3 and batches.batch_size == 5
        for epoch in range(2):
            batches.set_epoch(epoch)
            found = list(batches)
            assert [batch.num_samples for batch in found] == [10, 10, 4]
            for batch, expected in zip(found, pairs.given):
                assert batch.indices.tolist() == expected.tolist()
                assert batch.image.shape == (len(expected), 2, 3, 8, 10)
                # Every byte of sample i is i.
                assert torch.equal(
                    batch.image[:, :, 2, 7, 9].long(), batch.indices
                )
                assert torch.equal(batch.label % 10, batch.indices % 10)
                assert batch.valid.shape == (len(expected), 2)
                assert batch.valid.all() and batch.num_padding == 0


@pytest.mark.parametrize("framework", ["torch", "numpy", "dlpack"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_fields_are_views_of_the_slot(dataset, framework, layout):
    """Of grouped batches and of flat ones the values are the same; the memory
    is the slot's, in which groups follow each other."""
    order = np.arange(12).reshape(3, 2, 2)
    with sampled(
        dataset, order.tolist(), framework=framework, layout=layout
    ) as groups, sampled(
        dataset, order.reshape(3, 4).tolist(), framework=framework,
        layout=layout,
    ) as flat:  # fmt: skip
        for one, other in zip(groups, flat):
            for name in ("image", "label"):
                a, b = (np.from_dlpack(batch[name]) for batch in (one, other))
                assert a.shape == (2, 2, *b.shape[1:])
                assert (a == b.reshape(a.shape)).all()
            a, b = (np.from_dlpack(batch.image) for batch in (one, other))
            assert a.strides == (2 * b.strides[0], *b.strides)
            assert not a.flags.owndata
            assert np.from_dlpack(one.indices).shape == (2, 2)


def test_copies_and_clones_have_groups(dataset):
    order = [[[i, i + 1], [i + 2, i + 3]] for i in range(40)]
    with sampled(dataset, order, prefetch=2, with_valid=True) as batches:
        with pytest.warns(UserWarning, match="are kept"):
            kept = list(itertools.islice(batches, 30))
        for batch, expected in zip(kept, order):
            for one in (batch, batch.clone()):
                assert one.indices.tolist() == expected
                assert one.image.shape == (2, 2, 3, 8, 10)
                assert one["valid"].shape == (2, 2)
        del batch, one, kept


def test_ranks_draw_by_the_row(dataset):
    """Grouped or not, a sampler's rows are augmented alike."""
    order = np.arange(24).reshape(3, 4, 2) % 5
    transforms = [T.RandomCrop(6), T.ColorJitter(brightness=0.5)]
    for rank in range(2):
        arguments = {"rank": rank, "world_size": 2, "transforms": transforms}
        with sampled(dataset, order.tolist(), **arguments) as groups, sampled(
            dataset, order.reshape(3, 8).tolist(), **arguments
        ) as flat:
            for one, other in zip(groups, flat):
                assert torch.equal(one.image.flatten(0, 1), other.image)


@pytest.mark.parametrize(
    "batches, arguments, words",
    [
        (
            [[[0, 1]], [[2, 3], [4]]],
            {},
            "batch 1: group 1 has 1 samples, and group 0 has 2",
        ),
        (
            [[[0, 1]], [[2, 3, 4]]],
            {},
            "batch 1 has groups of 3, and the loader has groups of 2",
        ),
        (
            [[[0, 1]], [2, 3]],
            {},
            "batch 1 has no groups, and the loader has groups of 2",
        ),
        ([[0, 1], [[2, 3]]], {}, "batch 1 has groups of 2, .* has no groups"),
        (
            iter([[[0, 1, 2]]]),
            {"group_size": 2, "batch_size": 2},
            "batch 0 has groups of 3, and the loader has groups of 2",
        ),
        ([[[[0]]]], {}, "expected sample indices, ints"),
        (
            iter([[[0, 1]] * 3]),
            {"batch_size": 2},
            "a batch of 3 groups; expected 1 to 2",
        ),
        (
            [[[True, False]]],
            {},
            "a boolean mask",
        ),
    ],
)
def test_groups_that_are_wrong(dataset, batches, arguments, words):
    with pytest.raises(datasetd.InvalidArgument, match=words), sampled(
        dataset, batches, **arguments
    ) as opened:
        list(opened)


def test_an_index_out_of_range_in_a_group(dataset):
    with pytest.raises(datasetd.OutOfRange, match="103 is out of range"), sampled(
        dataset, [[[0, NUM_SAMPLES]]]
    ) as batches:
        list(batches)


# -- Groups of one class --------------------------------------------------------


def test_groups_of_one_class(dataset):
    counts = np.bincount(_CLASSES[_CLASSES >= 0])
    num_groups = np.maximum(1, counts // 3).sum()
    with grouped(dataset) as batches:
        assert len(batches) == -(-num_groups // 4)
        assert batches.batch_size == 4 and batches.num_samples == NUM_SAMPLES
        assert "groups of 3" in repr(batches)
        for _ in range(3):
            found = list(batches)
            groups = rows(found)
            assert len(groups) == num_groups
            classes = [set(_CLASSES[group].tolist()) for group in groups]
            assert all(len(of_group) == 1 for of_group in classes)
            drawn = set().union(*classes)
            assert drawn == set(range(len(counts)))
            assert all(len(set(group)) == 3 for group in groups)
            for batch in found:
                assert batch.image.shape[1:] == (3, 3, 8, 10)
                assert torch.equal(
                    batch.image[:, :, 0, 0, 0].long(), batch.indices
                )
                assert batch.valid.all() and batch.num_padding == 0
            # 7 classes: 6 consecutive groups have distinct ones.
            for i in range(len(classes) - 5):
                assert len(set().union(*classes[i : i + 6])) == 6


def test_the_labels_are_the_classes_by_default(dataset):
    labels = dataset.column("label")
    for group_by in (None, "label", labels, torch.tensor(labels)):
        with grouped(dataset, group_by=group_by) as batches:
            found = [
                (batch.indices.tolist(), batch.label.tolist())
                for batch in batches
            ]
        assert all(len(set(group)) == 1 for _, of in found for group in of)
        if group_by is None:
            first = found
        assert found == first


# The order of docs/randomness.md.


def _keys(seed, op, draw, number):
    return [int(half) for half in halves(seed, op, number, draw)]


def _order(key, number, size):
    return Permutation(key, number, size)(np.arange(size)).tolist()


def expected_groups(classes, size, seed, epoch, count):
    samples = [
        np.flatnonzero(classes == c).tolist()
        for c in np.unique(classes[classes >= 0])
    ]
    first, second = _keys(seed, 0xFFFF0003, 0, epoch)
    order = _order(first, 0, len(samples))
    groups = []
    for at in itertools.count():
        for part in range(4):
            begin, end = (
                (part + i) * len(samples) // 4 for i in range(2)
            )
            if begin == end:
                continue
            for place in _order(second, 4 * at + part, end - begin):
                number = order[begin + place]
                own = samples[number]
                per_pass = max(1, len(own) // size)
                key = _keys(seed, 0xFFFF0004, number, epoch)[0]
                of_pass = _order(key, at // per_pass, len(own))
                first_place = at % per_pass * size
                groups.append(
                    [
                        own[of_pass[(first_place + i) % len(own)]]
                        for i in range(size)
                    ]
                )
                if len(groups) == count:
                    return groups


@pytest.mark.parametrize("seed, epoch", [(0, 0), (5, 3), (2**64 - 1, 2**31)])
@pytest.mark.parametrize("group_size", [1, 4, 25])
def test_the_order_is_that_of_the_docs(dataset, seed, epoch, group_size):
    with grouped(dataset, group_size=group_size, seed=seed) as batches:
        batches.set_epoch(epoch)
        found = rows(batches)
    assert found == expected_groups(
        _CLASSES, group_size, seed, epoch, len(found)
    )


def test_unpadded_ranks_share_the_groups_exactly(dataset):
    with grouped(dataset, batch_size=1) as batches:
        whole = rows(batches)
    shares = []
    for rank in range(3):
        with grouped(dataset, pad=False, rank=rank, world_size=3) as batches:
            shares.append(rows(batches))
            assert len(batches.sampler) == 3 * len(shares[-1])
    assert sum(map(len, shares)) == len(whole)
    for rank, share in enumerate(shares):
        assert share == whole[rank::3]


def test_groups_of_a_subset(dataset):
    subset = np.arange(10, 90, 3)
    classes = np.arange(len(subset)) % 4
    by_sample = dict(zip(subset.tolist(), classes.tolist()))
    for arguments in (
        {"subset": subset},
        {"dataset": dataset.select(subset)},
    ):
        with grouped(
            **{"dataset": dataset, **arguments}, group_by=classes
        ) as batches:
            groups = rows(batches)
            assert batches.num_samples == len(subset)
        assert len(groups) == 8
        for group in groups:
            assert len({by_sample[index] for index in group}) == 1
    with grouped(dataset, subset=subset, group_by="label") as batches:
        labels = dataset.column("label")
        for group in rows(batches):
            assert set(group) <= set(subset.tolist())
            assert len(set(labels[group].tolist())) == 1


def test_what_a_loader_of_groups_says(dataset):
    with grouped(dataset, batch_size=5) as batches:
        planned = list(batches.batch_sampler)
        flat = list(batches.sampler)
        assert flat == [i for b in planned for g in b for i in g]
        assert len(batches.sampler) == len(flat)
        assert batches.peek().indices.tolist() == planned[0]
        assert [b.indices.tolist() for b in batches] == planned
    with sampled(dataset, planned) as again:
        assert [b.indices.tolist() for b in again] == planned


def test_classes_that_come_twice_are_said_once(dataset, monkeypatch):
    monkeypatch.setattr("datasetd._warnings._said", set())
    classes = np.arange(NUM_SAMPLES) % 9
    with pytest.warns(
        UserWarning, match="8 groups on 1 rank.* have a class twice.* up to 7"
    ), grouped(dataset, group_by=classes, batch_size=8):
        pass
    monkeypatch.setattr("datasetd._warnings._said", set())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # A pass over the classes is a batch.
        for size in (7, 9):
            with grouped(dataset, group_by=classes, batch_size=size):
                pass


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"shuffle": True}, "group_size= and shuffle= exclude each other"),
        ({"weights": "balanced"}, "group_size= and weights= exclude"),
        ({"sampler": [0, 1]}, "group_size= and sampler= exclude each other"),
        ({"partition": (0, 1)}, "group_size= and partition= exclude"),
        ({"group_size": None}, "group_by= needs group_size="),
        ({"group_size": 0}, "group_size=0; expected 1 to"),
        ({"group_by": "mask"}, "has no field 'mask'"),
        ({"group_by": "image"}, "uint8 .*; expected integers, one for each"),
        ({"group_by": [0, 1]}, "expected integers, one for each of 103"),
        ({"group_by": np.ones(NUM_SAMPLES)}, "are float64"),
        ({"group_by": np.full(NUM_SAMPLES, -1)}, "all 103 classes are below"),
        (
            {"batch_sampler": [[[0]]], "batch_size": 1},
            "group_by= and batch_sampler= exclude",
        ),
        (
            {"transforms": [T.ToDtype("float32"), T.MixUp(num_classes=200)]},
            "group_order: the ops of field 'image' mix the samples",
        ),
        (
            {"batch_size": 2**20, "group_size": 2**11},
            r"batch_size \* group_size=2147483648; expected 1 to",
        ),
        ({"batch_size": 2**20, "group_size": 2**10}, "memory budget"),
    ],
)
def test_arguments_that_are_wrong(dataset, arguments, words):
    with pytest.raises(
        (datasetd.InvalidArgument, datasetd.ResourceExhausted), match=words
    ), grouped(dataset, **arguments):
        pass
