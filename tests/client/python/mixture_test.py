"""datasetd.mixture and concat: one loader over several datasets."""

import itertools
import os
import pickle
import re

import datasetd
import numpy as np
import pytest
import torch
from datasetd import transforms as T
from mixture_reference import MixtureOrder, rows_of_parts

_IS_FULL = os.environ.get("DATASETD_TEST_FULL") == "1"

_SIZES = (7, 60, 33)
_RATIOS = (0.5, 0.3, 0.2)
_CROP = [T.RandomCrop(8, padding=2), T.ColorJitter(brightness=0.5),
         T.ToDtype("float32")]  # fmt: skip
_NUMBERS = itertools.count()


def push(client, images, labels, **options):
    return client.push_dataset(
        f"mixed-{next(_NUMBERS)}", {"image": images, "label": labels},
        **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(1).integers(
        0, 256, (sum(_SIZES), 8, 8, 3), np.uint8
    )


@pytest.fixture(scope="module")
def parts(daemon, images):
    """Datasets whose labels count through all of them."""
    with daemon.connect() as client:
        ends = np.cumsum(_SIZES)
        yield [
            push(client, images[end - size : end], np.arange(end - size, end))
            for size, end in zip(_SIZES, ends)
        ]


def mixed(parts, **arguments):
    return datasetd.mixture(dict(zip(parts, _RATIOS)), **arguments)


def make(data, **arguments):
    return datasetd.DataLoader(
        data,
        **{"batch_size": 4, "seed": 5, "framework": "numpy", "prefetch": 2,
           **arguments},
    )  # fmt: skip


def places(batch):
    return list(zip(batch.dataset_index.tolist(), batch.indices.tolist()))


def unpadded(batch):
    return places(batch)[: batch.num_samples - batch.num_padding]


# ---- concat: datasets one after another -------------------------------------


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_concat_gives_what_its_copy_gives(daemon, parts, shuffle):
    """Order and augmentation, bit by bit; and names each sample."""
    with daemon.connect() as client:
        joined = datasetd.concat(parts)
        copy = client.push_dataset("mixed-copy", joined)
        arguments = {"shuffle": shuffle, "transforms": _CROP}
        with make(joined, **arguments) as a, make(copy, **arguments) as b:
            assert len(a) == len(b) and a.num_samples == 100
            assert a.transforms_hash == b.transforms_hash
            starts = np.cumsum((0, *_SIZES))
            for _ in range(2):
                for ours, theirs in zip(a, b):
                    np.testing.assert_array_equal(ours.image, theirs.image)
                    np.testing.assert_array_equal(ours.label, theirs.label)
                    assert ours.indices.dtype == np.int64
                    np.testing.assert_array_equal(
                        starts[ours.dataset_index] + ours.indices,
                        theirs.indices,
                    )
        client.unload_dataset(copy.name, force=True)


def test_nothing_is_copied(daemon, parts):
    with daemon.connect() as client:
        before = {d["name"] for d in client.list_datasets()}
        with make(datasetd.concat(parts)) as batches:
            next(iter(batches))
            assert {d["name"] for d in client.list_datasets()} == before


def test_torchs_concatenation_is_one(parts):
    joined = torch.utils.data.ConcatDataset(parts)
    with make(joined, batch_size=50) as batches:
        assert [b.label.tolist() for b in batches] == [
            list(range(50)), list(range(50, 100))]  # fmt: skip


def test_a_dataset_may_be_there_twice(parts):
    with make(datasetd.concat([parts[0], parts[0]]), batch_size=14) as batches:
        (batch,) = batches
        assert batch.label.tolist() == [*range(7), *range(7)]
        assert batch.dataset_index.tolist() == [0] * 7 + [1] * 7


# ---- Ratios ------------------------------------------------------------------


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("num_rows", [None, 83])
def test_the_order_is_that_of_the_page(parts, shuffle, fixed, num_rows):
    """For all ranks, epochs, and the rest of an epoch."""
    mix = mixed(parts, num_rows=num_rows, fixed_per_batch=fixed)
    count = num_rows or 100
    rows = rows_of_parts(_RATIOS, count)
    assert sum(rows) == count
    order = MixtureOrder(_SIZES, rows, shuffle, fixed, seed=5)
    for world_size in (1, 2, 8) if _IS_FULL else (1, 3):
        expected = [order.positions(e, 4 * world_size) for e in range(3)]
        for rank in range(world_size):
            with make(
                mix, shuffle=shuffle, rank=rank, world_size=world_size
            ) as batches:
                num_rows = -(-count // world_size)
                assert len(batches) == -(-num_rows // 4)
                for epoch in range(3):
                    seen = [place for b in batches for place in unpadded(b)]
                    assert seen == expected[epoch][rank::world_size]
    # The rest of epoch 1, after two batches of two ranks.
    loaders = [
        make(mix, shuffle=shuffle, rank=rank, world_size=2)
        for rank in range(2)
    ]
    for one in loaders:
        one.set_epoch(1)
        iterator = iter(one)
        next(iterator), next(iterator)
    state = loaders[0].state_dict()
    seen = []
    for rank in range(3):
        with make(mix, shuffle=shuffle, batch_size=5, rank=rank,
                  world_size=3) as rest:  # fmt: skip
            rest.load_state_dict(state)
            seen.append([p for batch in rest for p in unpadded(batch)])
    expected = order.positions(1, 15, first=16)
    assert seen == [expected[rank::3] for rank in range(3)]


def test_an_epoch_has_the_samples_labels_and_pixels(parts, images):
    with make(mixed(parts), shuffle=True, drop_last=True) as batches:
        starts = np.cumsum((0, *_SIZES))
        for batch in batches:
            at = starts[batch.dataset_index] + batch.indices
            np.testing.assert_array_equal(batch.label, at)
            np.testing.assert_array_equal(
                batch.image, images[at].transpose(0, 3, 1, 2)
            )


def test_shares_of_a_batch(parts):
    with make(
        mixed(parts, fixed_per_batch=True), batch_size=10, shuffle=True
    ) as batches:
        for batch in itertools.chain(batches, batches):
            counts = np.bincount(batch.dataset_index, minlength=3)
            assert np.abs(counts - [5, 3, 2]).max() <= 1


def test_a_repeated_sample_is_augmented_anew(parts):
    with make(mixed(parts), shuffle=True, transforms=_CROP) as batches:
        pictures = {}
        for batch in batches:
            for place, image in zip(places(batch), batch.image):
                pictures.setdefault(place, set()).add(image.tobytes())
        repeated = {d: p for d, p in pictures.items() if d[0] == 0}
        # 50 rows of 7 samples.
        assert sum(map(len, repeated.values())) > 45


def test_a_state_is_of_its_mixture(parts):
    with make(mixed(parts)) as batches:
        state = batches.state_dict()
    equal = datasetd.mixture(dict(zip(parts, (5, 3, 2))), num_rows=100)
    with make(equal) as batches:
        batches.load_state_dict(state)
    others = [
        datasetd.mixture(dict(zip(parts, (4, 4, 2)))),
        mixed(parts, num_rows=99),
        mixed(parts, fixed_per_batch=True),
        datasetd.mixture(dict(zip(parts[::-1], _RATIOS[::-1]))),
        datasetd.concat(parts),
    ]
    for other in others:
        with make(other) as batches:
            with pytest.raises(
                datasetd.FailedPrecondition, match="content_hash is"
            ):
                batches.load_state_dict(state)


def test_evaluation_over_ranks_has_each_row_once(parts):
    mix = mixed(parts, num_rows=83)
    rows = []
    for rank in range(3):
        with make(mix, rank=rank, world_size=3, pad=False) as batches:
            ours = [place for batch in batches for place in places(batch)]
            assert len(batches) == -(-len(ours) // 4)
            rows += ours
    with make(mix) as batches:
        assert sorted(rows) == sorted(p for b in batches for p in places(b))


def test_padding_is_marked(parts):
    for fixed in (False, True):
        mix = mixed(parts, num_rows=83, fixed_per_batch=fixed)
        num_valid = 0
        for rank in range(8):
            with make(mix, rank=rank, world_size=8, shuffle=True) as batches:
                num_valid += sum(int(batch.valid.sum()) for batch in batches)
        assert num_valid == 83


# ---- Frameworks and copies ---------------------------------------------------


def test_places_of_torch_and_of_copies(parts):
    with make(mixed(parts), framework="torch", with_valid=True) as batches:
        kept = list(batches)  # copies where the job holds many
        again = list(batches)
        for batch in kept + again:
            assert batch.dataset_index.dtype == torch.int64
            clone = pickle.loads(pickle.dumps(batch.clone()))
            assert places(clone) == places(batch)
            assert clone.to("cpu").dataset_index.tolist() == (
                batch.dataset_index.tolist()
            )


def test_places_of_dlpack(parts):
    with make(mixed(parts), framework="dlpack") as batches, make(
        mixed(parts)
    ) as others:
        batch = next(iter(batches))
        packed = np.from_dlpack(batch.indices)
        other = next(iter(others))
        np.testing.assert_array_equal(packed >> 32, other.dataset_index)
        np.testing.assert_array_equal(packed & 0xFFFFFFFF, other.indices)
        with pytest.raises(datasetd.FailedPrecondition, match="upper 32 bits"):
            batch.dataset_index


def test_a_batch_of_one_dataset_has_no_dataset_index(parts):
    with make(parts[1]) as batches:
        batch = next(iter(batches))
        with pytest.raises(AttributeError, match="not of a mixture"):
            batch.dataset_index
    with pytest.raises(AttributeError, match="not of a mixture"):
        parts[1][[0, 1]].dataset_index


def test_a_field_that_is_called_dataset_index(daemon):
    with daemon.connect() as client:
        data = client.push_dataset(
            "mixed-named", {"dataset_index": np.arange(3)}
        )
        with make(data) as batches:
            assert next(iter(batches)).dataset_index.tolist() == [0, 1, 2]


# ---- What it is --------------------------------------------------------------


def test_a_mixture_tells_what_it_is(daemon, parts):
    mix = mixed(parts, num_rows=50)
    assert len(mix) == 100 and mix.num_rows == 50
    assert mix.parts == parts and mix.ratios == list(_RATIOS)
    assert mix.fields == parts[0].fields and mix.classes == []
    assert re.match(r"datasetd.mixture\(\{'mixed-.*: 0.5.*num_rows=50\)",
                    repr(mix))  # fmt: skip
    with pytest.raises(AttributeError, match=r"parts\[0\]\[i\]"):
        mix.column("label")
    with make(mix, shuffle=True, name="of three") as batches:
        assert batches.dataset is mix
        assert "' + '" not in repr(batches) and " + " in repr(batches)
        assert list(itertools.chain(*batches.batch_sampler))
        expected = [
            sum(_SIZES[:d]) + i
            for batch in batches
            for d, i in places(batch)
        ]
        batches.set_epoch(0)
        assert list(batches.sampler) == expected
        with pytest.raises(datasetd.InvalidArgument, match=r"parts\[d\]\[i\]"):
            batches.fetch([0])
        with daemon.connect() as client:
            (feed,) = [
                feed
                for feed in client.list_feeds()
                if feed["name"] == "of three"
            ]
            assert feed["dataset"] == " + ".join(part.name for part in parts)
            for part in client.list_datasets():
                if part["name"] in [p.name for p in parts]:
                    assert part["num_feeds"] == 1


def test_names_are_looked_up_by_a_client(daemon, parts):
    ratios = {part.name: 1 for part in parts}
    with daemon.connect() as client:
        mix = datasetd.mixture(ratios, client=client)
        with make(mix) as batches:
            assert len(list(batches)) == 25
        with pytest.raises(datasetd.NotFound, match="nosuch"):
            datasetd.mixture({"nosuch": 1}, client=client)
    with pytest.raises(datasetd.InvalidArgument, match="give client="):
        datasetd.mixture(ratios)


def test_a_part_in_use_stays(daemon, images):
    with daemon.connect() as client:
        a, b = (push(client, images[:9], np.arange(9)) for _ in range(2))
        batches = make(datasetd.concat([a, b]))
        iterator = iter(batches)
        next(iterator)
        a.close(), b.close()
        for part in (a, b):
            with pytest.raises(datasetd.FailedPrecondition, match="feed"):
                client.unload_dataset(part.name)
        client.unload_dataset(b.name, force=True)
        with pytest.raises(datasetd.DatasetUnloaded):
            for _ in range(100):
                next(iterator)
        batches.close()
        client.unload_dataset(a.name, force=True)


# ---- Transforms by dataset ---------------------------------------------------


def test_each_part_has_its_transforms(parts):
    """Bit by bit as a loader of the same order with one list for all."""
    ops = [
        [T.RandomHorizontalFlip(), T.ToDtype("float32")],
        [T.RandomCrop(8, padding=2), T.ToDtype("float32")],
        [T.ColorJitter(brightness=0.5), T.ToDtype("float32")],
    ]
    arguments = {"shuffle": True, "batch_size": 8, "layout": "NHWC"}
    for mix in (mixed(parts), datasetd.concat(parts)):
        with make(
            mix, transforms=dict(zip(parts, ops)), **arguments
        ) as batches:
            single = [make(mix, transforms=one, **arguments) for one in ops]
            for batch, *others in zip(batches, *single):
                for row, d in enumerate(batch.dataset_index):
                    np.testing.assert_array_equal(
                        batch.image[row], others[d].image[row]
                    )
                np.testing.assert_array_equal(batch.label, others[0].label)
                assert places(batch) == places(others[0])
    names = [part.name for part in parts]
    with make(mixed(parts), transforms=dict(zip(names, ops))) as batches:
        assert next(iter(batches)).image.dtype == np.float32


def test_transforms_of_parts_that_do_not_fit(parts):
    a, b, c = parts
    floats = [T.ToDtype("float32")]

    def error(transforms, kind=datasetd.InvalidArgument):
        with pytest.raises(kind) as raised:
            make(mixed(parts), transforms=transforms)
        return str(raised.value)

    assert f"none for dataset '{c.name}'" in error({a: floats, b: floats})
    assert "'nosuch' is not a dataset" in error(
        {a: [], b: [], c: [], "nosuch": []}
    )
    shapes = error({a: floats, b: floats, c: [*floats, T.Resize(4)]})
    assert a.name in shapes and c.name in shapes and "image" in shapes
    assert "(4, 3, 4, 4)" in shapes and "(4, 3, 8, 8)" in shapes
    assert "float32" in error({a: floats, b: floats, c: []})
    mixup = [*floats, T.MixUp(num_classes=100)]
    assert "give all datasets the same" in error(
        {a: floats, b: mixup, c: floats}
    )
    crop = error({a: floats, b: [T.RandomCrop(99)], c: floats})
    assert f"transforms of dataset '{b.name}': field 'image'" in crop
    # The same for all may mix rows of several.
    with make(mixed(parts), transforms=mixup, shuffle=True) as batches:
        assert next(iter(batches)).label.shape == (4, 100)


# ---- What is refused ---------------------------------------------------------


@pytest.mark.parametrize("ratio", [0, -1, float("nan"), float("inf"), "1",
                                   True, None])  # fmt: skip
def test_ratios_that_are_none(parts, ratio):
    with pytest.raises(datasetd.InvalidArgument, match="finite number above 0"):
        datasetd.mixture({parts[0]: 1, parts[1]: ratio})


def test_what_does_not_go_with_a_mixture(parts):
    mix = mixed(parts)
    for argument in (
        {"weights": np.ones(100)}, {"subset": [1]}, {"sampler": range(9)},
        {"batch_sampler": [[1]]}, {"partition": "node"},
    ):  # fmt: skip
        with pytest.raises(
            datasetd.InvalidArgument, match="and a mixture exclude each other"
        ):
            datasetd.DataLoader(mix, **argument)
    with pytest.raises(datasetd.InvalidArgument, match="push it as one"):
        make(datasetd.concat([parts[0], parts[1].select([1, 2])]))
    for call in (mix.parts[0].client.fetch, mix.parts[0].client.explain):
        with pytest.raises(datasetd.InvalidArgument, match=r"parts\[0\]"):
            call(mix, [0])
    with pytest.raises(datasetd.InvalidArgument, match="at most 64"):
        make(datasetd.concat([parts[0]] * 65))
    with pytest.raises(datasetd.InvalidArgument, match="has no end"):
        parts[0].client.push_dataset("never", mix)
    with pytest.raises(datasetd.InvalidArgument, match="num_rows"):
        mixed(parts, num_rows=0)
    with pytest.raises(
        datasetd.InvalidArgument,
        match=f"'{parts[2].name}' would have none of the 2 rows",
    ):
        make(mixed(parts, num_rows=2))
    with pytest.raises(datasetd.InvalidArgument, match="num_rows is 42949672"):
        make(mixed(parts, num_rows=2**32 - 1))


def test_parts_of_two_clients(daemon, parts):
    with daemon.connect() as client:
        other = client.get_dataset(parts[1].name)
        with pytest.raises(datasetd.InvalidArgument, match="two Clients"):
            make(datasetd.concat([parts[0], other]))


# ---- Ragged images -----------------------------------------------------------


def test_images_of_several_sizes(daemon):
    rng = np.random.default_rng(2)
    pictures = [
        rng.integers(0, 256, (4 + i % 5, 6 + i % 3, 3), np.uint8)
        for i in range(40)
    ]
    ops = [T.RandomResizedCrop(8), T.RandomHorizontalFlip(),
           T.ToDtype("float32")]  # fmt: skip
    with daemon.connect() as client:
        ragged = [
            client.push_dataset(
                f"mixed-{next(_NUMBERS)}", [(p,) for p in some], ragged=True
            )
            for some in (pictures[:13], pictures[13:], pictures)
        ]
        whole = ragged.pop()
        arguments = {"shuffle": True, "transforms": ops}
        joined = datasetd.concat(ragged)
        with make(joined, **arguments) as a, make(whole, **arguments) as b:
            for ours, theirs in zip(a, b):
                np.testing.assert_array_equal(ours[0], theirs[0])
        with pytest.raises(datasetd.FailedPrecondition, match="cannot be push"):
            client.push_dataset("never", joined)
