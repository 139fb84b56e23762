"""Behaviour that users of torch.utils.data.DataLoader expect."""

import inspect
import itertools
import sys
import types
import warnings

import datasetd
import numpy as np
import pytest
import torch
import torch.utils.data as tud
from conftest import NUM_SAMPLES, copies, indices_of, loader
from datasetd import transforms as T


def test_positional_arguments_are_torchs(dataset):
    sampler = [5, 3, 8]
    with datasetd.DataLoader(dataset, 2, False, sampler) as batches:
        assert indices_of(copies(batches)).tolist() == sampler
    with datasetd.DataLoader(dataset, 2, None, None, [[1], [2, 3]]) as batches:
        assert [b.indices.tolist() for b in copies(batches)] == [[1], [2, 3]]
    with pytest.raises(TypeError, match="positional"):
        datasetd.DataLoader(dataset, 2, False, None, None, 4)


def test_arguments_that_have_no_use_are_one_warning(dataset):
    with pytest.warns(UserWarning) as warned:
        batches = loader(
            dataset,
            num_workers=4,
            persistent_workers=True,
            prefetch_factor=4,
            pin_memory=True,
            pin_memory_device="cuda",
            multiprocessing_context="spawn",
        )
    batches.close()
    assert len(warned) == 1 and warned[0].filename.endswith("conftest.py")
    message = str(warned[0].message)
    assert "without worker processes or pinned memory" in message
    for text in ("num_workers=4", "pin_memory=True", "prefetch_factor=4"):
        assert text in message


def test_torchs_defaults_are_silent(dataset):
    """All that torch's DataLoader has by default."""
    given = {
        name: parameter.default
        for name, parameter in inspect.signature(
            tud.DataLoader
        ).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    assert "num_workers" in given and "collate_fn" in given
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with datasetd.DataLoader(dataset, **given) as batches:
            assert len(batches) == NUM_SAMPLES
            assert batches.timeout == 0


@pytest.mark.parametrize(
    "argument, words",
    [
        ("collate_fn", "convert a batch in the loop"),
        ("worker_init_fn", "no worker processes; seed= determines"),
    ],
)
def test_functions_are_refused_with_a_way(dataset, argument, words):
    with pytest.raises(datasetd.InvalidArgument, match=words):
        loader(dataset, **{argument: len})


def test_workers_of_torchs_own_loader(dataset):
    own = torch.utils.data.DataLoader(
        dataset, num_workers=1, multiprocessing_context="fork"
    )
    with pytest.raises(
        datasetd.UsedAfterFork, match="the dataset to datasetd.DataLoader"
    ):
        next(iter(own))


@pytest.mark.parametrize(
    "argument, words",
    [
        ("transform", r"'transform': did you mean transforms=\?"),
        ("num_worker", r"did you mean num_workers=\?"),
        ("lr", "unexpected keyword argument 'lr'$"),
    ],
)
def test_unknown_arguments_are_type_errors(dataset, argument, words):
    with pytest.raises(TypeError, match=words):
        loader(dataset, **{argument: 1})


# -- transforms= ---------------------------------------------------------------


def _pipelines():
    v1 = pytest.importorskip("torchvision.transforms")
    ops = [v1.RandomCrop(8, padding=2), v1.RandomHorizontalFlip()]
    return {
        "compose": v1.Compose(ops),
        "list": ops,
        "sequential": torch.nn.Sequential(*ops),
        "dict": {"image": v1.Compose(ops)},
    }


@pytest.mark.parametrize("kind", ["compose", "list", "sequential", "dict"])
def test_a_compose_of_torchvision(dataset, kind):
    ours = [T.RandomCrop(8, padding=2), T.RandomHorizontalFlip()]
    with loader(dataset, transforms=ours) as expected:
        with loader(dataset, transforms=_pipelines()[kind]) as batches:
            assert batches.transforms_hash == expected.transforms_hash
            for one, other in zip(batches, expected):
                assert torch.equal(one.image, other.image)


def test_an_op_that_the_daemon_has_not(dataset):
    transforms = pytest.importorskip("torchvision.transforms")
    pipeline = transforms.Compose([transforms.Lambda(lambda image: image)])
    with pytest.raises(datasetd.InvalidArgument, match="Lambda"):
        loader(dataset, transforms=pipeline)


def test_a_list_is_for_the_only_image(client):
    images = np.arange(6 * 4 * 4 * 3, dtype=np.uint8).reshape(6, 4, 4, 3)
    pushed = client.push_dataset(
        "img", {"img": images, "y": np.arange(6)}
    )
    flip = T.RandomHorizontalFlip(p=1.0)
    with datasetd.DataLoader(
        pushed, batch_size=6, framework="numpy", transforms=[flip]
    ) as batches:
        np.testing.assert_array_equal(
            next(iter(batches)).img, images[:, :, ::-1].transpose(0, 3, 1, 2)
        )
    assert client.explain(pushed, [flip])[0][0].field == "img"
    two = client.push_dataset("two-img", {"left": images, "right": images})
    with pytest.raises(
        datasetd.InvalidArgument, match=r"no field 'image'.*name the field"
    ):
        datasetd.DataLoader(two, transforms=[flip])


@pytest.mark.parametrize("device", [torch.device("cpu"), "cpu"])
def test_a_device_of_torch(client, data_root, device):
    loaded = client.load_dataset(
        "by-device", format="npy", path=data_root / "three", device=device
    )
    assert loaded.device == "cpu"
    loaded.close()


def test_cuda_is_cuda_0(client, data_root):
    for device in ("cuda", torch.device("cuda")):
        with pytest.raises(datasetd.Error, match="cuda:0"):
            client.load_dataset(
                "no-gpu", format="npy", path=data_root / "three",
                device=device,
            )
    with pytest.raises(datasetd.InvalidArgument, match="device=0; expected"):
        client.load_dataset(
            "no-gpu", format="npy", path=data_root / "three", device=0
        )


# -- as_torch ------------------------------------------------------------------


def test_as_torch_is_a_dataloader_of_torch(dataset):
    with loader(dataset, rank=1, world_size=2) as batches:
        expected = [indices_of(copies(batches)).tolist() for _ in range(3)]
    with loader(dataset, rank=1, world_size=2) as batches:
        as_torch = batches.as_torch()
        assert isinstance(as_torch, tud.DataLoader)
        # Lightning and Ray do not divide a DistributedSampler again.
        assert isinstance(as_torch.sampler, tud.DistributedSampler)
        assert len(as_torch.dataset) == NUM_SAMPLES
        assert (as_torch.batch_size, as_torch.num_workers) == (None, 0)
        assert len(as_torch) == len(batches) == 6
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            iterator = iter(as_torch)
            taken = [next(iterator)]
            assert isinstance(taken[0], datasetd.Batch)
            assert taken[0].indices.tolist() == expected[0][:10]
            for epoch in (1, 2):
                seen = [b.indices for b in as_torch]
                assert torch.cat(seen).tolist() == expected[epoch]
            as_torch.set_epoch(0)
            seen = [b.indices for b in as_torch]
            assert torch.cat(seen).tolist() == expected[0]


def test_as_torch_has_the_loaders_state(dataset):
    with loader(dataset) as batches:
        as_torch = batches.as_torch()
        iterator = iter(as_torch)
        for _ in range(4):
            next(iterator)
        state = as_torch.state_dict()
        assert (state["epoch"], state["batch"]) == (0, 4)
        rest = [b.indices.tolist() for b in iterator]
    with loader(dataset) as batches:
        as_torch = batches.as_torch()
        as_torch.load_state_dict(state)
        assert [b.indices.tolist() for b in as_torch] == rest


def test_what_is_skipped_is_not_made(dataset):
    """As Accelerate's skip_first_batches does it."""

    def skipped(loader, count):
        sampler = list(itertools.islice(loader.batch_sampler, count, None))
        return tud.DataLoader(
            loader.dataset,
            batch_sampler=sampler,
            collate_fn=loader.collate_fn,
        )

    with loader(dataset) as batches:
        expected = [copies(batches) for _ in range(3)]
    with loader(dataset) as batches:
        as_torch = batches.as_torch()
        for epoch, count in ((0, 4), (1, 10), (2, 0)):
            rest = copies(skipped(as_torch, count))
            assert [b.indices.tolist() for b in rest] == [
                b.indices.tolist() for b in expected[epoch][count:]
            ]
        state = batches.state_dict()
        assert list(skipped(as_torch, 11)) == []
        # More than is left of an epoch.
        batches.load_state_dict({**state, "epoch": 0, "batch": 5})
        assert list(skipped(as_torch, 6)) == []
        # The state is that of what comes next.
        state = as_torch.state_dict()
        assert (state["epoch"], state["batch"]) == (1, 0)
        assert next(iter(as_torch)).epoch == 1
    with loader(dataset, shuffle=False, sampler=range(50)) as batches:
        rest = skipped(batches.as_torch(), 3)
        assert indices_of(copies(rest)).tolist() == list(range(30, 50))


def test_no_batches_are_skipped_from_a_sampler_s_loaded_place(dataset):
    with loader(dataset, shuffle=False, sampler=range(50)) as batches:
        next(iter(batches))
        state = batches.state_dict()
    with loader(dataset, shuffle=False, sampler=range(50)) as batches:
        as_torch = batches.as_torch()
        as_torch.load_state_dict(state)
        sampler = list(itertools.islice(as_torch.batch_sampler, 2, None))
        rest = tud.DataLoader(
            as_torch.dataset,
            batch_sampler=sampler,
            collate_fn=as_torch.collate_fn,
        )
        with pytest.raises(
            datasetd.FailedPrecondition, match="no batches can be skipped"
        ):
            next(iter(rest))


def test_iterators_of_as_torch_are_independent(dataset):
    with loader(dataset) as batches:
        expected = [copies(batches) for _ in range(2)]
    with loader(dataset) as batches:
        as_torch = batches.as_torch()
        for pair, *both in zip(zip(as_torch, as_torch), *expected):
            for batch, other in zip(pair, both):
                assert batch.indices.tolist() == other.indices.tolist()


# -- Accelerate; tests/frameworks has the real one ------------------------------


class GradientState:
    def __init__(self):
        self.loaders = []

    def _add_dataloader(self, loader):
        self.loaders.append(loader)

    def _remove_dataloader(self, loader):
        self.loaders.remove(loader)


@pytest.fixture
def accelerate(monkeypatch):
    state = GradientState()
    module = types.SimpleNamespace(GradientState=lambda: state)
    monkeypatch.setitem(sys.modules, "accelerate.state", module)
    return state


def told(state, batches):
    """Returns what Accelerate is told at each batch."""
    return [
        (batch.index, *(loader.end_of_dataloader for loader in state.loaders))
        for batch in batches
    ]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("world_size", [1, 2])
def test_accelerate_is_told_of_the_end(
    dataset, accelerate, drop_last, world_size
):
    with loader(
        dataset, rank=0, world_size=world_size, drop_last=drop_last
    ) as batches:
        expected = [(i, i == len(batches) - 1) for i in range(len(batches))]
        for _ in range(2):
            assert told(accelerate, batches) == expected
        assert accelerate.loaders == []
        for batch in batches:
            if batch.index == len(batches) - 1:
                # 103 samples: the last row of rank 1 repeats one.
                rows = world_size * batch.num_samples
                is_padded = world_size == 2 and not drop_last
                assert accelerate.loaders[0].remainder == (
                    rows - 1 if is_padded else 0
                )
        # An iterator that is not used up.
        iterator = iter(batches)
        next(iterator)
        assert len(accelerate.loaders) == 1
        del iterator
        assert accelerate.loaders == []


def test_padding_that_accelerate_cannot_drop(
    dataset, accelerate, monkeypatch
):
    monkeypatch.setattr("datasetd._warnings._said", set())
    with loader(dataset, rank=0, world_size=5) as batches:
        for _ in batches:
            pass
        iterator = iter(batches)
        for _ in range(len(batches)):
            next(iterator)
        with pytest.warns(UserWarning, match=r"counts 2 samples twice"):
            assert accelerate.loaders[0].remainder == -1


def test_padding_of_an_epoch_that_was_cut_anew(dataset, accelerate):
    """103 samples are no multiple of two ranks, the 88 that are left are."""
    with loader(dataset, batch_size=5) as batches:
        iterator = iter(batches)
        for _ in range(3):
            next(iterator)
        state = batches.state_dict()
    with loader(dataset, batch_size=5, rank=0, world_size=2) as batches:
        batches.load_state_dict(state)
        remainders = [accelerate.loaders[0].remainder for _ in batches]
        assert remainders == 9 * [0]


def test_accelerate_and_tensors_of_dlpack(dataset, accelerate):
    with loader(dataset, framework="dlpack") as batches:
        assert len(list(told(accelerate, batches))) == len(batches)


def test_accelerate_and_a_sampler(dataset, accelerate):
    with loader(dataset, shuffle=False, sampler=range(20)) as batches:
        assert told(accelerate, batches) == [(0, False), (1, True)]
    unsized = iter(range(20))
    with loader(dataset, shuffle=False, sampler=unsized) as batches:
        assert told(accelerate, batches) == [(0, False), (1, False)]
