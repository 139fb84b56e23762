"""datasetd.concat: datasets of a daemon, pushed as one."""

import itertools

import datasetd
import numpy as np
import pytest
import torch

_NUMBERS = itertools.count()
_RANDOM = np.random.default_rng(3)
_IMAGES = _RANDOM.integers(0, 256, (60, 6, 5, 3), np.uint8)
_LABELS = np.arange(60) % 3


def _push(client, data, **options):
    return client.push_dataset(f"part-{next(_NUMBERS)}", data, **options)


@pytest.fixture
def parts(client):
    with _push(client, (_IMAGES[:40], _LABELS[:40])) as first:
        with _push(client, (_IMAGES[40:], _LABELS[40:])) as second:
            yield first, second


def test_parts_follow_each_other(client, parts):
    with _push(client, datasetd.concat(parts)) as both:
        assert both.num_samples == 60
        assert both.fields == parts[0].fields
        np.testing.assert_array_equal(
            both.column("image"), _IMAGES.transpose(0, 3, 1, 2)
        )
        np.testing.assert_array_equal(both.column("label"), _LABELS)


def test_the_copy_is_what_a_push_of_all_is(client, parts):
    with _push(client, (_IMAGES, _LABELS)) as whole:
        with _push(client, datasetd.concat(parts)) as both:
            assert both.content_hash == whole.content_hash
        # Attaches, since the content is the same.
        with client.push_dataset(whole.name, datasetd.concat(parts)) as same:
            assert same.spec_id == whole.spec_id
        with pytest.raises(datasetd.AlreadyExists, match="other samples"):
            client.push_dataset(whole.name, datasetd.concat(parts[::-1]))


def test_subsets_and_repeated_parts(client, parts):
    first, second = parts
    chosen = first.select([7, 3])
    with _push(client, datasetd.concat([chosen, second, chosen])) as made:
        np.testing.assert_array_equal(
            made.column("label"),
            _LABELS[[7, 3, *range(40, 60), 7, 3]],
        )


def test_a_part_may_be_closed_and_unloaded(client):
    part = _push(client, (_IMAGES, _LABELS))
    with _push(client, datasetd.concat([part])) as copy:
        part.close()
        client.unload_dataset(part.name)
        np.testing.assert_array_equal(copy.column("label"), _LABELS)


def test_a_dataset_and_torchs_concatenation(client, parts):
    with _push(client, parts[0]) as copy:
        assert copy.content_hash == parts[0].content_hash
    with _push(client, parts[0].select(range(5))) as some:
        np.testing.assert_array_equal(some.column("label"), _LABELS[:5])
    joined = torch.utils.data.ConcatDataset(parts)
    with _push(client, joined) as both:
        np.testing.assert_array_equal(both.column("label"), _LABELS)


def test_masks_and_dtypes_stay(client):
    data = {
        "image": _IMAGES,
        "mask": _IMAGES[..., :1],
        "plane": torch.arange(60 * 4).reshape(60, 4).to(torch.bfloat16),
        "number": np.linspace(0, 1, 60),
    }
    kinds = {"image": "image", "mask": "mask", "plane": "array",
             "number": "array"}  # fmt: skip
    with _push(client, data, fields=kinds) as part:
        with _push(client, datasetd.concat([part, part])) as twice:
            assert twice.fields == part.fields
            assert [f.is_mask for f in twice.fields] == [False, True, False,
                                                         False]  # fmt: skip
            for name in kinds:
                ours = part.column(name)
                np.testing.assert_array_equal(
                    twice.column(name), np.concatenate([ours, ours])
                )
        chosen = {"mask": "auto", "image": "image"}
        with _push(client, datasetd.concat([part]), fields=chosen) as two:
            assert [f.name for f in two.fields] == ["mask", "image"]
        with pytest.raises(datasetd.InvalidArgument, match="holds it as 'mask'"):
            _push(client, part, fields={"mask": "array"})


def test_several_reads_of_a_field(client):
    # More than is read at once.
    rows = np.arange(3 << 20, dtype=np.int64).reshape(-1, 2)
    with _push(client, {"x": rows[:5]}) as small:
        with _push(client, {"x": rows}) as large:
            parts = datasetd.concat([small, large, small])
            with _push(client, parts) as made:
                np.testing.assert_array_equal(
                    made.column("x"),
                    np.concatenate([rows[:5], rows, rows[:5]]),
                )


def test_class_names(client, parts):
    names = ["ant", "bee", "cat"]
    with _push(client, (_IMAGES, _LABELS), class_names=names) as named:
        # Those of the part that has any.
        with _push(client, datasetd.concat([parts[0], named])) as both:
            assert both.classes == names
        other = ["ant", "cat", "bee"]
        with _push(client, (_IMAGES, _LABELS), class_names=other) as strange:
            with pytest.raises(
                datasetd.InvalidArgument, match="does not mean the same"
            ):
                datasetd.concat([named, strange])


def test_what_does_not_fit_is_refused(client, parts):
    first = parts[0]
    with pytest.raises(datasetd.InvalidArgument, match="no dataset$"):
        datasetd.concat([])
    with pytest.raises(datasetd.InvalidArgument, match="ndarray is no dataset"):
        datasetd.concat([first, _IMAGES])
    with _push(client, (_IMAGES[:, :4], _LABELS)) as smaller:
        with pytest.raises(
            datasetd.InvalidArgument,
            match=r"'image' is image of uint8 \(6, 5, 3\) .* \(4, 5, 3\)",
        ):
            datasetd.concat([first, smaller])
    with _push(client, {"image": _IMAGES}) as unlabelled:
        for order in ([first, unlabelled], [unlabelled, first]):
            with pytest.raises(
                datasetd.InvalidArgument, match="'label' is .*not there"
            ):
                datasetd.concat(order)
    with pytest.raises(datasetd.InvalidArgument, match="replace itself"):
        client.push_dataset(
            first.name, datasetd.concat(parts), if_exists="replace"
        )
    assert len(first.column("label")) == 40


def test_sizes_that_differ_are_refused(client):
    images = [np.zeros((size, 4, 3), np.uint8) for size in (4, 6)]
    with _push(client, [(image,) for image in images], ragged=True) as part:
        with pytest.raises(
            datasetd.FailedPrecondition, match="differ in size: load"
        ):
            datasetd.concat([part, part])
