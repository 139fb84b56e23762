"""Several augmentations of one field of a sample."""

import datasetd
import numpy as np
import pytest
import torch
from datasetd import transforms as T

NUM_SAMPLES = 40
STRONG = [
    T.RandomResizedCrop(8), T.RandomHorizontalFlip(), T.ColorJitter(0.4),
    T.ToDtype("float32", scale=True)]
WEAK = [T.CenterCrop(12), T.ToDtype("float32", scale=True)]


@pytest.fixture(scope="module")
def images(daemon):
    rng = np.random.default_rng(0)
    with daemon.connect() as client:
        yield client.push_dataset(
            "views",
            {
                "image": rng.integers(
                    0, 256, (NUM_SAMPLES, 16, 16, 3), dtype=np.uint8
                ),
                "label": np.arange(NUM_SAMPLES),
            },
        )


def make(images, **arguments):
    return datasetd.DataLoader(
        images, batch_size=8, shuffle=True, seed=3, **arguments)


def rows(loader, *fields):
    """{sample: its fields}, of an epoch."""
    seen = {}
    with loader:
        for batch in loader:
            values = [batch[field].clone() for field in fields]
            for i, index in enumerate(batch.indices.tolist()):
                seen[index] = [value[i] for value in values]
    return seen


def test_views_stand_in_the_place_of_the_image(images):
    with make(images, views={"a": STRONG, "b": WEAK}) as loader:
        batch = next(iter(loader))
        assert batch.keys() == ("a", "b", "label")
        a, b, label = batch
        assert a.shape == (8, 3, 8, 8)
        assert b.shape == (8, 3, 12, 12)
        assert torch.equal(label, batch.indices)
        assert batch.a is a and batch["b"] is b


def test_a_view_is_what_a_loader_of_its_own_gives(images):
    """The first draws as a loader without views; the others by themselves."""
    seen = rows(make(images, views={"a": STRONG, "b": WEAK, "c": STRONG}),
                "a", "b", "c")
    strong = rows(make(images, transforms=STRONG), "image")
    weak = rows(make(images, transforms=WEAK), "image")
    assert len(seen) == NUM_SAMPLES
    num_equal = 0
    for index, (a, b, c) in seen.items():
        assert torch.equal(a, strong[index][0])
        assert torch.equal(b, weak[index][0])
        num_equal += torch.equal(a, c)
    assert num_equal == 0
    # Whatever else the batch has.
    alone = rows(make(images, views={"x": WEAK, "y": WEAK, "c": STRONG}), "c")
    for index, (c,) in alone.items():
        assert torch.equal(c, seen[index][2])


def test_draws_of_views_are_independent(images):
    """Flips of two views agree as often as those of two coins."""
    flip = [T.RandomHorizontalFlip()]
    agreed, total = 0, 0
    with make(images, views={"a": flip, "b": flip}) as loader:
        for _ in range(25):
            for batch in loader:
                agreed += int((batch.a == batch.b).flatten(1).all(1).sum())
                total += batch.num_samples
    # 1,000 coins: five standard deviations.
    assert total == 1000
    assert abs(agreed - 500) < 80


def test_fields_choose_views_too(images):
    with make(images, views={"a": STRONG, "b": WEAK},
              fields=["label", "b", "a"]) as loader:
        assert next(iter(loader)).keys() == ("label", "b", "a")


def test_fetch_has_the_views(images):
    with make(images, views={"a": STRONG, "b": STRONG}) as loader:
        for batch in loader:
            fetched = loader.fetch(batch.indices.tolist(), epoch=0)
            assert torch.equal(fetched.a, batch.a)
            assert torch.equal(fetched.b, batch.b)


def test_layout_by_view(images):
    with make(images, views={"a": WEAK, "b": WEAK},
              layout={"b": "NHWC"}) as loader:
        batch = next(iter(loader))
        assert batch.a.is_contiguous()
        assert batch.b.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(batch.a, batch.b)


@pytest.mark.parametrize("arguments, message", [
    ({"views": {}}, "views={}; expected a dict of lists"),
    ({"views": [WEAK]}, "expected a dict of lists"),
    ({"views": {"label": WEAK}}, "'label'; expected a name other than"),
    ({"views": {"": WEAK}}, "''; expected a name"),
    ({"views": {3: WEAK}}, "3; expected a name"),
    ({"views": {"a": WEAK}, "transforms": WEAK},
     "'image' has views: set their transforms in views="),
    ({"views": {"a": WEAK}, "fields": ["image"]},
     r"the views replace 'image': name some of \['a', 'label'\]"),
    ({"views": {"a": WEAK}, "fields": ["images"]}, "has no field 'images'"),
    ({"fields": [None]}, "has no field None"),
    ({"views": {"a": [1]}}, r"views\['a'\]: 1 is not of a datasetd.transforms"),
    ({"views": {f"v{i}": [] for i in range(8)}},
     "9 fields; a feed carries at most 8"),
    ({"views": {"a" * 129: []}}, "a name of 129 bytes"),
])
def test_wrong_views_are_named(images, arguments, message):
    with pytest.raises(datasetd.InvalidArgument, match=message):
        make(images, **arguments)
