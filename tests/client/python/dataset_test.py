"""Dataset and Subset as a torch user handles them: indexing, columns, splits,
and loaders of subsets."""

import copy
import itertools
import os
import pickle
import signal

import datasetd
import numpy as np
import pytest
import torch
from conftest import await_end, run_python
from datasetd import transforms as T

_NUMBERS = itertools.count()
_N = 97
_RANDOM = np.random.default_rng(7)
_IMAGES = _RANDOM.integers(0, 256, (_N, 4, 5, 3), np.uint8)
_LABELS = np.arange(_N) % 3
_PLANES = _IMAGES.transpose(0, 3, 1, 2)


@pytest.fixture
def dataset(client):
    with client.push_dataset(
        f"dataset-{next(_NUMBERS)}",
        (_IMAGES, _LABELS),
        class_names=["ant", "bee", "cat"],
    ) as pushed:
        yield pushed


def _indices(loader):
    return [i for batch in loader for i in batch.indices.tolist()]


def test_a_sample_is_a_tuple_of_its_fields(dataset):
    image, label = dataset[3]
    assert isinstance(image, torch.Tensor) and image.shape == (3, 4, 5)
    np.testing.assert_array_equal(image, _PLANES[3])
    assert label.shape == () and dataset.classes[label] == "ant"
    for i in (-1, np.int64(96), torch.tensor(96)):
        np.testing.assert_array_equal(dataset[i].image, _PLANES[96])
        assert int(dataset[i].label) == _LABELS[96]


@pytest.mark.parametrize(
    "key",
    [
        [3, 1, 3],
        (5, -1),
        slice(10, 2, -3),
        slice(None),
        np.array([7]),
        np.array([0, 96], np.uint8),
        torch.tensor([2, 4]),
        _LABELS == 1,
        torch.from_numpy(_LABELS == 2),
        range(4, 9),
    ],
)
def test_several_samples_are_a_batch(dataset, key):
    if isinstance(key, (range, tuple)):
        rows = list(key)
    else:
        rows = np.asarray(key) if isinstance(key, torch.Tensor) else key
    batch = dataset[key]
    np.testing.assert_array_equal(batch.image, _PLANES[rows])
    np.testing.assert_array_equal(batch[1], _LABELS[rows])


def test_samples_are_copies(client, dataset):
    image, _ = dataset[0]
    batch = dataset[[0, 1]]
    client.unload_dataset(dataset.name)
    image.zero_()
    np.testing.assert_array_equal(batch.image, _PLANES[:2])


@pytest.mark.parametrize(
    "key, error, words",
    [
        (97, IndexError, "index 97, and there are 97 samples"),
        (-98, datasetd.OutOfRange, "index -98"),
        ([0, 200], IndexError, "index 200"),
        ("label", datasetd.InvalidArgument, r"column\('label'\) has"),
        (1.5, datasetd.InvalidArgument, "1.5: expected indices"),
        ([1.5], datasetd.InvalidArgument, "float64.*expected indices"),
        ([[1]], datasetd.InvalidArgument, r"\(1, 1\): expected indices"),
        ([True], datasetd.InvalidArgument, r"mask \(97,\)"),
        (True, datasetd.InvalidArgument, "True: expected indices"),
        (None, datasetd.InvalidArgument, "None: expected indices"),
        ([], datasetd.InvalidArgument, "there are 0; expected 1"),
    ],
)
def test_what_is_no_index(dataset, key, error, words):
    with pytest.raises(error, match=words):
        dataset[key]


def test_iterating_yields_every_sample(dataset):
    samples = list(dataset)
    assert len(samples) == len(dataset) == _N
    for i, (image, label) in enumerate(samples):
        np.testing.assert_array_equal(image, _PLANES[i])
        assert label == _LABELS[i]
    subset = dataset.select([5, 2])
    assert [int(label) for _, label in subset] == [2, 2]


def test_more_than_a_block(client):
    rows = np.arange(3 << 20, dtype=np.int32).reshape(6, -1)
    with client.push_dataset("large", {"x": rows}) as dataset:
        np.testing.assert_array_equal(dataset[:].x, rows)
        np.testing.assert_array_equal(dataset.column("x"), rows)
        for i, (row,) in enumerate(dataset):
            assert row[0] == rows[i, 0] and row[-1] == rows[i, -1]


def test_a_look_at_a_sample_needs_little_memory():
    """Of samples of 4 MiB, where the budget has room for 12 more."""
    with datasetd.start_local(
        device="cpu", memory_budget_mib=64
    ) as local, local.connect() as client:
        rows = np.arange(4 << 20, dtype=np.int32).reshape(4, -1)
        dataset = client.push_dataset("large", {"x": rows})
        np.testing.assert_array_equal(dataset[2].x, rows[2])
        np.testing.assert_array_equal(dataset[[3, 1]].x, rows[[3, 1]])
        np.testing.assert_array_equal(dataset.column("x"), rows)
        assert [int(x[0]) for (x,) in dataset] == rows[:, 0].tolist()
        with datasetd.DataLoader(dataset, prefetch=4) as loader:
            np.testing.assert_array_equal(loader.fetch([1]).x, rows[[1]])


def test_columns_are_arrays(client, dataset):
    labels = dataset.column("label")
    assert isinstance(labels, np.ndarray) and labels.dtype == np.int64
    np.testing.assert_array_equal(labels, _LABELS)
    np.testing.assert_array_equal(np.bincount(labels), [33, 32, 32])
    np.testing.assert_array_equal(dataset.column("image"), _PLANES)
    with pytest.raises(datasetd.InvalidArgument, match="no field 'target'"):
        dataset.column("target")
    x = torch.arange(8).reshape(4, 2).to(torch.bfloat16)
    with client.push_dataset("halves", {"x": x, "y": x.float()}) as halves:
        assert halves.column("x").dtype == np.float32
        np.testing.assert_array_equal(halves.column("x"), x.float())
        np.testing.assert_array_equal(halves.column("y"), x.float())


def test_classes(dataset):
    assert dataset.classes == dataset.class_names == ["ant", "bee", "cat"]
    assert dataset.class_to_idx == {"ant": 0, "bee": 1, "cat": 2}
    part = dataset.select([1])
    assert part.classes == dataset.classes
    assert part.class_to_idx == dataset.class_to_idx


def test_select(dataset):
    even = dataset.select(range(0, _N, 2))
    assert len(even) == 49 and even.dataset is dataset
    np.testing.assert_array_equal(even.indices, np.arange(0, _N, 2))
    np.testing.assert_array_equal(even[1].image, _PLANES[2])
    np.testing.assert_array_equal(even[[-1, 0]].label, _LABELS[[96, 0]])
    bees = even.select(even.column("label") == 1)
    assert bees.dataset is dataset
    np.testing.assert_array_equal(bees.indices, np.arange(4, _N, 6))
    assert "16 samples of datasetd.Dataset('dataset-" in repr(bees)
    with pytest.raises(IndexError, match="index 49, and there are 49"):
        even[49]
    with pytest.raises(datasetd.InvalidArgument, match="select: 5 is.*twice"):
        dataset.select([1, 5, -92])
    with pytest.raises(datasetd.InvalidArgument, match="no indices"):
        dataset.select(_LABELS == 9)


@pytest.mark.parametrize(
    "parts, sizes",
    [
        (0.8, [78, 19]),
        (70, [70, 27]),
        ([0.5, 0.25, 0.25], [48, 25, 24]),
        ([90, 7], [90, 7]),
        ([1 / 3] * 3, [32, 33, 32]),
    ],
)
def test_split(dataset, parts, sizes):
    found = dataset.split(parts, seed=3)
    assert [len(part) for part in found] == sizes
    for part in found:
        assert (np.diff(part.indices) > 0).all()
    together = np.concatenate([part.indices for part in found])
    np.testing.assert_array_equal(np.sort(together), np.arange(_N))
    # A random split, the same for the same seed.
    assert (np.diff(found[0].indices) > 1).any()
    for part, same in zip(found, dataset.split(parts, seed=3)):
        np.testing.assert_array_equal(part.indices, same.indices)
    other = dataset.split(parts, seed=4)[0]
    assert other.indices.tolist() != found[0].indices.tolist()
    inner = found[0].split(0.5)[0]
    assert set(inner.indices) < set(found[0].indices)


def test_a_split_is_the_same_on_every_machine(dataset):
    assert dataset.split(5, seed=0)[0].indices.tolist() == [2, 26, 55, 68, 84]


@pytest.mark.parametrize(
    "parts", [0, 97, 0.0, 1.0, 1.5, -1, [0.5, 0.4], [97, 0], [50, 48], []]
)
def test_no_split(dataset, parts):
    with pytest.raises(datasetd.InvalidArgument, match="split: .* of 97"):
        dataset.split(parts)
    for wrong in ("a", True, [0.5, None]):
        with pytest.raises(datasetd.InvalidArgument, match="split: "):
            dataset.split(wrong)


def test_a_loader_of_a_subset_knows_nothing_else(dataset):
    train, test = dataset.split(0.8, seed=1)
    for part in (train, test):
        with datasetd.DataLoader(part, batch_size=10) as loader:
            assert len(loader.dataset) == len(part) == loader.num_samples
            assert _indices(loader) == part.indices.tolist()
    with datasetd.DataLoader(
        train, batch_size=10, shuffle=True, seed=5, transforms=[T.CenterCrop(2)]
    ) as loader:
        order = _indices(loader)
        assert order != train.indices.tolist()
        assert sorted(order) == train.indices.tolist()
        with datasetd.DataLoader(
            dataset, batch_size=10, shuffle=True, seed=5,
            subset=train.indices,
        ) as same:
            assert _indices(same) == order
        # Those of a batch are the dataset's, as fetch() takes them.
        batch = next(iter(loader))
        again = loader.fetch(batch.indices)
        assert torch.equal(batch.image, again.image)


def test_a_sampler_counts_the_samples_of_the_subset(dataset):
    part = dataset.select([90, 5, 40, 7])
    for arguments, want in (
        ({"sampler": [3, 0, 0, 2]}, [7, 90, 90, 40]),
        ({"batch_sampler": [[1], [3, 2]], "batch_size": 2}, [5, 7, 40]),
    ):
        with datasetd.DataLoader(part, **arguments) as loader:
            assert _indices(loader) == want
    weights = (part.column("label") == 1).astype(float)
    sampler = torch.utils.data.WeightedRandomSampler(weights, 50)
    with datasetd.DataLoader(part, 10, sampler=sampler) as loader:
        drawn = _indices(loader)
    assert len(drawn) == 50 and set(drawn) == {40, 7}
    for wrong in (4, -1):
        with datasetd.DataLoader(part, sampler=[wrong]) as loader:
            with pytest.raises(datasetd.OutOfRange, match="Subset of 4"):
                list(loader)


def test_subsets_of_torch(dataset):
    first, second = torch.utils.data.random_split(
        dataset, [60, 37], torch.Generator().manual_seed(1)
    )
    with datasetd.DataLoader(first, batch_size=7) as loader:
        assert len(loader.dataset) == 60
        assert _indices(loader) == list(first.indices)
    inner = torch.utils.data.Subset(second, [3, 1])
    with datasetd.DataLoader(inner) as loader:
        assert _indices(loader) == [second.indices[3], second.indices[1]]
    for wrong in (37, -38):
        outer = torch.utils.data.Subset(inner.dataset, [-37, wrong])
        with pytest.raises(
            datasetd.OutOfRange,
            match=f"dataset.indices: {wrong} is out .* Subset of 37 samples",
        ):
            datasetd.DataLoader(outer)
    last = torch.utils.data.Subset(dataset, [-1, 0, -2])
    with datasetd.DataLoader(last) as loader:
        assert _indices(loader) == [len(dataset) - 1, 0, len(dataset) - 2]
    with pytest.raises(
        datasetd.OutOfRange, match=f"-{len(dataset) + 1} is out of range"
    ):
        datasetd.DataLoader(
            torch.utils.data.Subset(dataset, [0, -len(dataset) - 1])
        )
    # And torch's loader takes ours, from torch 2.0 on by whole batches.
    samples = dataset.__getitems__([4, 2])
    assert [int(label) for _, label in samples] == _LABELS[[4, 2]].tolist()
    np.testing.assert_array_equal(samples[1].image, _PLANES[2])
    batches = list(torch.utils.data.DataLoader(inner, batch_size=2))
    np.testing.assert_array_equal(
        batches[0][0], _PLANES[[second.indices[3], second.indices[1]]]
    )


def test_what_a_loader_of_a_subset_refuses(dataset):
    part = dataset.select(range(9))
    with pytest.raises(datasetd.InvalidArgument, match=r"use select\("):
        datasetd.DataLoader(part, subset=[1])
    with pytest.raises(datasetd.InvalidArgument, match="a Subset of it"):
        datasetd.DataLoader(torch.utils.data.Subset([1, 2], [0]))
    with pytest.raises(
        datasetd.InvalidArgument, match=r"^dataset=ndarray; .*push_dataset\("
    ):
        datasetd.DataLoader(np.zeros(3))

    class Doubled(torch.utils.data.Subset):
        def __getitem__(self, index):
            return 2 * super().__getitem__(index)

    with pytest.raises(
        datasetd.InvalidArgument, match="Doubled: its own __getitem__.*transf"
    ):
        datasetd.DataLoader(Doubled(dataset, [0]))
    mask = np.arange(len(dataset)) < 3
    for given in (mask, torch.from_numpy(mask), mask.tolist(), list(mask)):
        with pytest.raises(datasetd.InvalidArgument, match="a boolean mask"):
            datasetd.DataLoader(dataset, subset=given)
        with pytest.raises(datasetd.InvalidArgument, match="a boolean mask"):
            datasetd.DataLoader(torch.utils.data.Subset(dataset, given))


def test_a_large_subset(client):
    """Once there could be a million samples."""
    values = np.arange(1_000_002) % 251
    with client.push_dataset("many", {"x": values.astype(np.uint8)}) as many:
        part = many.select(np.arange(1, 1_000_002))
        for arguments in ({"dataset": part}, {"subset": part.indices}):
            with datasetd.DataLoader(
                **{"dataset": many, "batch_size": 2**17, **arguments}
            ) as loader:
                assert _indices(loader) == list(range(1, 1_000_002))
        with datasetd.DataLoader(part, sampler=[1_000_000]) as loader:
            assert _indices(loader) == [1_000_001]
        np.testing.assert_array_equal(part.column("x"), values[1:])


def test_explain_and_fetch_count_the_samples_of_the_subset(client, dataset):
    part = dataset.select([90, 5])
    crop = [T.RandomCrop(2)]
    assert client.explain(part, crop, indices=[1, 0, 1]) == client.explain(
        dataset, crop, indices=[5, 90, 5]
    )
    batch = client.fetch(part, [1, 0])
    np.testing.assert_array_equal(batch.image, _PLANES[[5, 90]])


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_samples_that_differ_in_size(client, dtype):
    images = [
        np.random.default_rng(i).integers(0, 9, (3 + i, 4, 3)).astype(dtype)
        for i in range(5)
    ]
    planes = [image.transpose(2, 0, 1) for image in images]
    samples = [(image, i) for i, image in enumerate(images)]
    with client.push_dataset(
        f"sizes-{np.dtype(dtype)}", samples, ragged=True
    ) as dataset:
        image, label = dataset[-1]
        np.testing.assert_array_equal(image, planes[4])
        assert isinstance(image, torch.Tensor) and int(label) == 4
        batch = dataset[[3, 0, 3]]
        assert isinstance(batch.image, list)
        for given, i in zip(batch.image, (3, 0, 3)):
            np.testing.assert_array_equal(given, planes[i])
        column = dataset.column("image")
        assert column.dtype == object and column.shape == (5,)
        for i, (image, label) in enumerate(dataset):
            np.testing.assert_array_equal(image, planes[i])
            np.testing.assert_array_equal(column[i], planes[i])
        train, _ = dataset.split(3)
        batch = client.fetch(train, [2, 0], framework="numpy")
        for given, i in zip(batch.image, train.indices[[2, 0]]):
            np.testing.assert_array_equal(given, planes[i])
        cut = client.fetch(train, [2, 0], transforms=[T.CenterCrop(2)])
        assert cut.image.shape == (2, 3, 2, 2)


_READ_PIPELINES = {
    "moves": [T.RandomCrop(3), T.RandomHorizontalFlip()],
    "chain": [
        T.RandomResizedCrop(6),
        T.ColorJitter(0.4, 0.4, 0.4),
        T.ToDtype("float32", scale=True),
        T.Normalize([0.5] * 3, [0.2] * 3),
    ],
    "mixed": [
        T.ToDtype("float32", scale=True),
        T.MixUp(alpha=0.3, num_classes=3),
    ],
}


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("name", _READ_PIPELINES)
def test_fetched_samples_equal_a_loaders_bit_for_bit(
    client, dataset, name, layout
):
    arguments = {
        "transforms": _READ_PIPELINES[name], "seed": 11, "layout": layout,
    }
    with datasetd.DataLoader(
        dataset, batch_size=13, framework="numpy", **arguments
    ) as loader:
        for epoch in range(2):
            want = next(iter(loader)).clone()
            got = client.fetch(
                dataset, want.indices, epoch=epoch, framework="numpy",
                **arguments,
            )
            assert got.epoch == epoch and got.num_samples == 13
            np.testing.assert_array_equal(got.indices, want.indices)
            for name, array in want.items():
                assert got[name].dtype == array.dtype
                assert got[name].strides == array.strides
                np.testing.assert_array_equal(got[name], array)


def test_what_fetch_refuses(client, dataset):
    for indices, error, words in (
        ([-1], datasetd.OutOfRange, r"indices\[0\]: -1 is out of range"),
        ([3, _N], datasetd.OutOfRange, r"indices\[1\]: 97 .* has 97 samples"),
        ([2**63 - 1], datasetd.OutOfRange, "9223372036854775807 is out of"),
        ([2**63], datasetd.InvalidArgument, "indices: expected sample indices"),
        ([0] * 262_145, datasetd.InvalidArgument, "262145; expected 1 to 26214"),
    ):
        with pytest.raises(error, match=words):
            client.fetch(dataset, indices)
    for arguments, words in (
        ({"epoch": 2**32}, "epoch: 4294967296; at most 4294967295"),
        ({"epoch": -1}, "epoch=-1; expected 0"),
        ({"seed": 2**64}, "seed=18446744073709551616; expected 0"),
        ({"transforms": {"label": [T.CenterCrop(2)]}}, "label"),
        ({"fields": "target"}, "no field 'target'"),
    ):
        with pytest.raises(datasetd.InvalidArgument, match=words):
            client.fetch(dataset, [0], **arguments)


def test_closing_after_an_unload(client):
    with client.push_dataset("unloaded", [1, 2, 3]) as dataset:
        assert [int(x) for (x,) in dataset] == [1, 2, 3]
        client.unload_dataset("unloaded")
    dataset.close()
    with pytest.raises(datasetd.NotFound, match="unloaded"):
        dataset[0]


def test_closing_after_the_daemon_was_killed():
    """As at the end of a job whose last batches were there already."""
    with datasetd.start_local(device="cpu") as local, local.connect() as client:
        dataset = client.push_dataset("held", [1, 2, 3])
        os.kill(client.status()["pid"], signal.SIGKILL)
        dataset.close()
        with pytest.raises(datasetd.DaemonGone):
            client.get_dataset("held")


def test_closing_after_the_daemon_was_stopped():
    with datasetd.start_local(device="cpu") as local, local.connect() as client:
        with client.push_dataset("held", [1, 2, 3]):
            pid = client.status()["pid"]
            os.kill(pid, signal.SIGTERM)
            await_end(pid)
        with pytest.raises((datasetd.DaemonGone, datasetd.DaemonDraining)):
            client.get_dataset("held")


def test_closing_while_the_daemon_does_not_answer(client, monkeypatch):
    """The error of the `with` itself is the one to see."""

    def call(*_, **__):
        raise datasetd.DeadlineExceeded("Deadline Exceeded")

    with pytest.raises(datasetd.DeadlineExceeded, match="no batch came"):
        with client.push_dataset("held", [1, 2, 3]):
            monkeypatch.setattr(client._session, "call", call)
            raise datasetd.DeadlineExceeded("no batch came")


# -- Attributes of others' datasets --------------------------------------------


@pytest.fixture(params=["dataset", "subset", "of torch's subset"])
def samples(request, dataset):
    """Each way by which scripts come to a dataset."""
    if request.param == "dataset":
        return dataset
    if request.param == "subset":
        return dataset.select(range(10))
    return torch.utils.data.Subset(dataset, range(10)).dataset


@pytest.mark.parametrize(
    "name, words",
    [
        ("transform", "transforms= of datasetd.DataLoader"),
        ("transforms", "transforms= of datasetd.DataLoader"),
        ("target_transform", "transforms= of datasetd.DataLoader"),
        ("targets", r"push_dataset\(name, data\)"),
        ("label", r"push_dataset\(name, data\)"),
        ("samples", r"select\(indices\)"),
        ("imgs", r"select\(indices\)"),
        ("data", r"push_dataset\(name, data\)"),
        ("classes", "class_names= of push_dataset"),
        ("class_to_idx", "class_names= of push_dataset"),
        ("anything", "nothing would read it"),
        ("name", "cannot be set"),
    ],
)
def test_what_cannot_be_set(samples, name, words):
    before = len(samples), samples.classes, samples.name
    with pytest.raises(
        AttributeError, match=f"{name} of a datasetd.*cannot be set.*{words}"
        if words != "cannot be set" else words
    ):
        setattr(samples, name, [1, 2])
    assert (len(samples), samples.classes, samples.name) == before


@pytest.mark.parametrize(
    "name, words",
    [
        ("targets", r"column\('label'\)"),
        ("labels", r"column\('label'\)"),
        ("label", r"column\('label'\)"),
        ("image", r"column\('image'\)"),
        ("imgs", r"column\('image'\)"),
        ("samples", r"column\('image'\)"),
        ("data", r"column\('image'\)"),
        ("transform", "transforms= of datasetd.DataLoader"),
        ("shuffle", r"DataLoader\(shuffle=True\)"),
        ("train_test_split", r"dataset\.split\(0\.8\)"),
        ("filter", r"select\(dataset.column\('label'\) == 3\)"),
        ("map", "transforms= of datasetd.DataLoader"),
        ("anything", "no attribute 'anything'$"),
    ],
)
def test_what_is_called_otherwise(samples, name, words):
    with pytest.raises(AttributeError, match=words):
        getattr(samples, name)
    assert not hasattr(samples, name)


def test_the_labels_may_have_another_name(client):
    columns = {"x": np.zeros((4, 2), np.float32), "kind": np.arange(4)}
    with client.push_dataset("kinds", columns) as kinds:
        with pytest.raises(AttributeError, match=r"column\('kind'\)"):
            kinds.targets


# -- Other processes -----------------------------------------------------------


def test_a_pickle_is_a_hold_of_its_own(client, daemon):
    pushed = client.push_dataset("sent", {"x": np.arange(50)})
    part = pushed.select([7, 3, 5])
    again = pickle.loads(pickle.dumps(pushed))
    assert (again.name, again.content_hash, len(again)) == (
        "sent", pushed.content_hash, 50,
    )  # fmt: skip
    subset, other = pickle.loads(pickle.dumps([part, pushed]))
    assert subset.column("x").tolist() == [7, 3, 5]
    assert subset.client is other.client is again.client is not client
    assert copy.deepcopy(pushed)[9].x == 9
    sent = pickle.dumps(part)
    pushed.close()
    # It is there as long as somebody has it.
    assert pickle.loads(sent).indices.tolist() == [7, 3, 5]
    again.client.close()
    assert pickle.loads(sent).indices.tolist() == [7, 3, 5]


def test_a_pickle_of_what_is_not_there_any_more(client):
    pushed = client.push_dataset("gone", {"x": np.arange(50)})
    sent = pickle.dumps(pushed)
    client.unload_dataset("gone")
    with pytest.raises(
        datasetd.NotFound, match="'gone', which another process sent, does"
    ):
        pickle.loads(sent)
    client.push_dataset("gone", {"x": np.arange(51)})
    with pytest.raises(
        datasetd.FailedPrecondition, match="'gone'.* has other samples here"
    ):
        pickle.loads(sent)
    with datasetd.start_local(device="cpu") as local:
        pushed = local.connect().push_dataset("ended", {"x": np.arange(5)})
        sent = pickle.dumps(pushed)
    with pytest.raises(datasetd.DaemonGone):
        pickle.loads(sent)


_HOGWILD = """
import datasetd, multiprocessing as mp, numpy as np, sys

def train(rank, datasets, results):
    for dataset in datasets:
        with datasetd.DataLoader(
            dataset, 8, shuffle=True, seed=rank, framework="numpy"
        ) as loader:
            seen = sorted(i for b in loader for i in b.x.tolist())
        results.put((len(dataset), seen))

if __name__ == "__main__":
    with datasetd.start_local(device="cpu") as local:
        data = {"x": np.arange(40)}
        dataset = local.connect().push_dataset("d", data)
        context = mp.get_context(sys.argv[1])
        results = context.SimpleQueue()
        sent = [dataset, dataset.select(range(30))]
        processes = [
            context.Process(target=train, args=(rank, sent, results))
            for rank in range(2)
        ]
        for process in processes:
            process.start()
        for _ in range(4):
            size, seen = results.get()
            assert seen == list(range(size)), seen
        for process in processes:
            process.join()
            assert process.exitcode == 0
        # torch's own loader, over what is left over.
        from torch.utils import data
        left = data.ConcatDataset([
            dataset.select(range(32, 36)),
            data.Subset(dataset, range(36, 40))])
        batches = data.DataLoader(
            left, batch_size=3, num_workers=1,
            multiprocessing_context=sys.argv[1])
        seen = [i for x, in batches for i in x.tolist()]
        assert seen == list(range(32, 40)), seen
    print("done")
"""


def test_processes_that_are_given_a_dataset(tmp_path):
    script = tmp_path / "hogwild.py"
    script.write_text(_HOGWILD)
    done = run_python(script, "spawn")
    assert done.stdout == "done\n", done.stderr


def test_forked_workers_of_torch_are_refused_with_a_way(dataset):
    batches = torch.utils.data.DataLoader(
        dataset.select(range(4)), num_workers=1,
        multiprocessing_context="fork",
    )
    with pytest.raises(
        datasetd.UsedAfterFork,
        match="(?s)num_workers=0, or multiprocessing_context='spawn'",
    ):
        next(iter(batches))
