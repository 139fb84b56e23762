"""Jobs that keep batches, on epochs much longer than there is room for."""

import collections
import gc
import warnings

import datasetd
import numpy as np
import pytest
import torch
from conftest import NUM_SAMPLES, loader
from datasetd._batches import frameworks

# prefetch=4: room for 6 batches, of which 5 are handed out without a copy.
_ROOM = 6
_LABELS = np.arange(NUM_SAMPLES)

FRAMEWORKS = ["torch", "numpy"]


def batches_of(dataset, **arguments):
    arguments = {"batch_size": 2, "prefetch": _ROOM - 2, **arguments}
    return loader(dataset, shuffle=False, **arguments)


@pytest.fixture
def quiet():
    """No warning: what is kept keeps no images."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


# -- Fields that are copied ----------------------------------------------------


def test_a_list_of_targets(dataset, quiet):
    with batches_of(dataset, on_held="error") as batches:
        targets = [target for _, target in batches]
    assert torch.cat(targets).tolist() == _LABELS.tolist()


def test_targets_as_numpy(dataset, quiet):
    with batches_of(dataset, on_held="error") as batches:
        targets = [target.cpu().numpy() for _, target in batches]
    np.testing.assert_array_equal(np.concatenate(targets), _LABELS)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_slices_and_indices(dataset, framework, quiet):
    with batches_of(
        dataset, framework=framework, on_held="error"
    ) as batches:
        kept = [(b.label[:1], b.indices, b.epoch) for b in batches]
    np.testing.assert_array_equal(
        np.concatenate([np.asarray(label) for label, _, _ in kept]),
        _LABELS[::2],
    )
    np.testing.assert_array_equal(
        np.concatenate([np.asarray(indices) for _, indices, _ in kept]),
        _LABELS,
    )


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_which_fields_are_copies(client, framework):
    """No images, and at most 64 KiB in a full batch."""
    rows = 8
    at, over = (1 << 16) // rows // 4, (1 << 16) // rows // 4 + 1
    data = {
        "image": np.zeros((64, 4, 4, 3), np.uint8),
        "mask": np.zeros((64, 4, 4), np.uint8),
        "at": np.zeros((64, at), np.float32),
        "over": np.zeros((64, over), np.float32),
        "label": np.arange(64),
    }
    pushed = client.push_dataset("fields-to-copy", data)
    with batches_of(
        pushed, batch_size=rows, framework=framework
    ) as batches:
        iterator = iter(batches)
        first = next(iterator)

        def is_copy(name):
            """Whether the slot's memory is another one."""
            again = first._origin.framework.from_handle(
                first._handle,
                list(first.keys()).index(name),
                batches._newest._feed.fields[list(first.keys()).index(name)],
            )
            again[...] = 1
            return not bool((first[name] == 1).all())

        first.label[...] = 0
        assert {name: is_copy(name) for name in first.keys()} == {
            "image": False,
            "mask": False,
            "at": True,
            "over": False,
            "label": True,
        }


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_batches_of_small_fields_are_kept_at_will(dataset, framework, quiet):
    with batches_of(
        dataset, fields="label", framework=framework, on_held="error"
    ) as batches:
        kept = list(batches)
    labels = np.concatenate([np.asarray(batch.label) for batch in kept])
    assert labels.tolist() == _LABELS.tolist()
    assert [batch.index for batch in kept] == list(range(52))


# On a GPU a copy costs more. The host's daemon and frameworks stand in for it.
@pytest.fixture
def lent(monkeypatch):
    monkeypatch.setattr(frameworks.Framework, "lends_small", True)


def addresses_of(arrays):
    return [
        a.data_ptr() if hasattr(a, "data_ptr") else a.ctypes.data
        for a in arrays
    ]


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("fields", [None, "label"])
def test_labels_that_are_not_kept_are_not_copied(
    dataset, framework, fields, lent, quiet
):
    """A job gets them where the daemon wrote them: as many places as slots."""
    with batches_of(
        dataset, fields=fields, framework=framework
    ) as batches:
        labels, addresses, batch = [], set(), None
        for batch in batches:
            labels += batch.label.tolist()
            addresses.update(addresses_of([batch.label]))
    assert labels == _LABELS.tolist()
    assert len(addresses) <= _ROOM


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("fields", [None, "label"])
@pytest.mark.parametrize("prefetch", [1, 2, 4, 30])
def test_kept_labels_keep_some_slots_and_then_none(
    dataset, framework, fields, prefetch, lent, quiet
):
    """Half of those that make whole batches copies; so without a warning."""
    kept, held, batch = [], [], None
    with batches_of(
        dataset, fields=fields, framework=framework, prefetch=prefetch
    ) as batches:
        for batch in batches:
            kept.append(batch.label)
            held.append(getattr(batch._handle, "num_held", 0))
    assert max(held) <= (prefetch + 2) // 2 + 1
    labels = np.concatenate([np.asarray(label) for label in kept])
    assert labels.tolist() == _LABELS.tolist()


@pytest.mark.parametrize("on_held", ["copy", "error"])
def test_kept_labels_leave_room_for_batches(dataset, on_held, lent, quiet):
    with batches_of(dataset, on_held=on_held) as batches:
        targets = [target for _, target in batches]
    assert torch.cat(targets).tolist() == _LABELS.tolist()


# -- Batches that are copied ---------------------------------------------------


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_all_batches_kept(dataset, framework):
    with batches_of(dataset, framework=framework) as batches:
        with pytest.warns(UserWarning) as warned:
            kept = list(batches)
        # Once, with the number that is kept, at the user's line.
        assert len(warned) == 1
        message = str(warned[0].message)
        assert "5 batches of a loader of dataset 'hundred' are kept" in message
        assert "it has room for 6 (prefetch + 2)" in message
        assert warned[0].filename == __file__
    assert [(b.epoch, b.index, b.num_samples) for b in kept] == [
        (0, i, 2 if i < 51 else 1) for i in range(52)
    ]
    for batch in kept:
        rows = np.asarray(batch.indices)
        np.testing.assert_array_equal(np.asarray(batch.label), rows)
        image = np.asarray(batch.image)
        assert image.shape == (len(rows), 3, 8, 10)
        assert (image == rows[:, None, None, None]).all()
        assert batch.num_padding == 0
        batch.record_stream(0)
    # Copies hold no room, and look like the others.
    assert isinstance(kept[-1], datasetd.Batch)
    strides = [
        image.stride() if framework == "torch" else image.strides
        for image in (kept[0].image, kept[-2].image)
    ]
    assert strides[0] == strides[1]


def test_all_batches_kept_by_jax(dataset):
    pytest.importorskip("jax")
    with batches_of(dataset, framework="jax") as batches:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            labels = [batch.label for batch in batches]
        with pytest.warns(UserWarning, match="batches .* are kept"):
            kept = list(batches)
    assert np.concatenate(labels).tolist() == _LABELS.tolist()
    for batch in kept:
        rows = np.asarray(batch.indices)
        assert (np.asarray(batch.label) == rows).all()
        assert (np.asarray(batch.image) == rows[:, None, None, None]).all()
    clone = kept[0].clone()
    addresses = {
        batch.image.unsafe_buffer_pointer() for batch in (kept[0], clone)
    }
    assert len(addresses) == 2


def test_layout_of_copies(dataset):
    with batches_of(dataset, layout="NHWC") as batches:
        with pytest.warns(UserWarning, match="batches .* are kept"):
            kept = [images for images, _ in batches]
    for images in kept:
        assert images.is_contiguous(memory_format=torch.channels_last)
    assert torch.cat(kept)[:, 0, 0, 0].tolist() == _LABELS.tolist()


def test_a_deque(dataset):
    with batches_of(dataset) as batches:
        with pytest.warns(UserWarning, match="batches .* are kept"):
            recent = collections.deque(batches, maxlen=50)
    assert [b.index for b in recent] == list(range(2, 52))
    assert torch.cat([b.label for b in recent]).tolist() == list(
        range(4, NUM_SAMPLES)
    )


def test_a_job_that_keeps_nothing_gets_no_copy(dataset, quiet):
    """Nor one that keeps two, with as little room as there can be."""
    for prefetch in (1, 4):
        with batches_of(dataset, prefetch=prefetch) as batches:
            addresses = set()
            before = None
            for images, _ in batches:
                addresses.add(images.data_ptr())
                before, images = images, None  # noqa: F841
            # The slots, in turns.
            assert 2 <= len(addresses) <= prefetch + 2


def test_room_that_comes_back_is_used(dataset):
    with batches_of(dataset) as batches:
        iterator = iter(batches)
        with pytest.warns(UserWarning):
            kept = [next(iterator) for _ in range(10)]
        assert isinstance(kept[4]._handle, datasetd._batches.dlpack.Handle)
        assert not isinstance(kept[5]._handle, datasetd._batches.dlpack.Handle)
        del kept
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for batch in iterator:
                assert isinstance(batch._handle, datasetd._batches.dlpack.Handle)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_on_held_error(dataset, framework):
    with batches_of(
        dataset, framework=framework, on_held="error"
    ) as batches:
        iterator = iter(batches)
        kept = [next(iterator).image for _ in range(_ROOM)]
        gc.collect()
        with pytest.raises(
            datasetd.AllSlotsHeld, match=r"6 of 'image'.*\.clone\(\)"
        ):
            next(iterator)
        kept.pop()
        assert next(iterator).index == _ROOM


def test_dlpack_has_no_memory_for_copies(dataset):
    with batches_of(dataset, framework="dlpack") as batches:
        iterator = iter(batches)
        kept = [next(iterator) for _ in range(_ROOM)]
        with pytest.raises(datasetd.AllSlotsHeld):
            next(iterator)
        with pytest.raises(datasetd.FailedPrecondition, match="be copied"):
            kept[0].clone()


def test_a_warning_as_an_error_loses_no_batch(dataset):
    with batches_of(dataset) as batches:
        iterator = iter(batches)
        kept = [next(iterator) for _ in range(5)]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(UserWarning):
                next(iterator)
        kept.append(next(iterator))
        assert [batch.index for batch in kept] == list(range(6))


def test_bad_choice(dataset):
    with pytest.raises(datasetd.InvalidArgument, match="on_held='keep'"):
        batches_of(dataset, on_held="keep")
