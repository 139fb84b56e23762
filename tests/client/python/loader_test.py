"""Arguments, epochs, order and life of a DataLoader."""

import copy
import gc
import pickle

import datasetd
import numpy as np
import pytest
import torch
from conftest import NUM_SAMPLES, loader, poll_until
from datasetd import transforms as T


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": 2.5}, "batch_size=2.5"),
        ({"seed": -1}, "seed=-1"),
        ({"rank": 2, "world_size": 2}, "rank=2"),
        ({"prefetch": 0}, "prefetch=0"),
        ({"prefetch": 63}, "prefetch=63"),
        ({"layout": "CHW"}, "layout='CHW'"),
        ({"layout": {"label": "NHWC"}}, "layout\\['label'\\]"),
        ({"transforms": {"mask": [T.Pad(1)]}}, "no field 'mask'"),
        ({"transforms": [lambda x: x]}, "not of a datasetd.transforms class"),
        ({"framework": "mxnet"}, "framework='mxnet'"),
        ({"timeout": "5"}, "timeout='5'; expected seconds"),
        ({"timeout": -1}, "timeout=-1"),
        ({"timeout": float("inf")}, "timeout=inf"),
        ({"reconnect": "yes"}, "reconnect='yes'; expected seconds"),
        ({"reconnect": -5}, "reconnect=-5"),
        ({"name": 5}, "name=5; expected a str"),
        ({"subset": []}, "subset: there are no indices"),
        ({"subset": [4, 1, 4]}, r"subset\[2\]: 4 is there twice; .*sampler="),
        (
            {"transforms": [T.MixUp(num_classes=3, labels="image")]},
            "labels='image'; expected .*'label'",
        ),
        (
            {
                "transforms": {
                    "image": [T.CutMix(num_classes=3)],
                    "label": [T.ToDtype("float32")],
                }
            },
            "changes 'label' itself",
        ),
    ],
)
def test_bad_arguments_are_named(dataset, arguments, text):
    with pytest.raises(datasetd.InvalidArgument, match=text):
        loader(dataset, **arguments)


def test_the_daemon_names_bad_transforms(dataset):
    with pytest.raises(datasetd.InvalidArgument, match="(?i)crop"):
        loader(dataset, transforms=[T.RandomCrop(100)])


def test_its_state_is_in_its_order_its_position_and_its_feeds(dataset):
    """And what it was asked for is a value: see docs/design.md."""
    with loader(dataset) as batches:
        own = {
            type(value).__name__
            for value in vars(batches).values()
            if type(value).__module__.startswith("datasetd._loader")
            or type(value).__module__.startswith("datasetd._feed")
        }
        assert own == {"Feeds", "Order", "Position"}
        assert isinstance(batches._feeds.options, tuple)


def test_closed_loader(dataset):
    batches = loader(dataset)
    iterator = iter(batches)
    next(iterator)
    batches.close()
    batches.close()
    with pytest.raises(datasetd.Closed):
        next(iterator)
    with pytest.raises(datasetd.Closed):
        iter(batches)
    assert batches.waited_seconds >= 0


@pytest.mark.parametrize("order", ["random", "sampler"])
def test_feeds_end_with_their_loader(client, dataset, order):
    """At once, though the loader was iterated: nothing refers in a circle."""
    gc.disable()
    try:
        batches = (
            loader(dataset, name="ends")
            if order == "random"
            else loader(dataset, name="ends", shuffle=False, sampler=range(99))
        )
        iterator = iter(batches)
        batch = next(iterator)
        assert any(f["name"] == "ends" for f in client.list_feeds())
        del batch, iterator, batches
        poll_until(
            lambda: not any(
                f["name"] == "ends" for f in client.list_feeds()
            ),
            "the feeds' end",
            timeout=5,
        )
    finally:
        gc.enable()


def test_what_wrappers_look_for(dataset):
    """Lightning tells `sampler` the epoch; others read the rest."""
    sampler = torch.utils.data.RandomSampler(range(NUM_SAMPLES))
    with loader(dataset, shuffle=False, sampler=sampler) as batches:
        assert batches.sampler is sampler
        assert batches.batch_sampler.sampler is sampler
        assert batches.dataset is dataset and len(batches.dataset) == 103
        assert (batches.batch_size, batches.drop_last) == (10, False)
        assert batches.timeout == 0
        batches.timeout = 2
        assert batches.timeout == 2.0
        with pytest.raises(datasetd.InvalidArgument, match="timeout='x'"):
            batches.timeout = "x"
        torchs = torch.utils.data.DataLoader(range(3))
        for name in (
            "num_workers", "pin_memory", "pin_memory_device",
            "persistent_workers", "generator", "worker_init_fn",
            "multiprocessing_context",
        ):  # fmt: skip
            assert getattr(batches, name) == getattr(torchs, name), name
        assert batches.prefetch_factor is None  # before torch 2.0 it was 2
        assert callable(batches.collate_fn)
    by_batch = torch.utils.data.BatchSampler(sampler, 7, False)
    with datasetd.DataLoader(dataset, batch_sampler=by_batch) as batches:
        assert batches.batch_sampler is by_batch
        assert batches.sampler is sampler and batches.batch_size == 7
        # A DataLoader that is made of the parts would lose the transforms.
        wrapped = torch.utils.data.DataLoader(
            batches.dataset,
            batch_sampler=batches.batch_sampler,
            collate_fn=getattr(batches, "collate_fn", None),
        )
        with pytest.raises(
            datasetd.InvalidArgument, match=r"pass loader\.as_torch\(\) to"
        ):
            next(iter(wrapped))


class Pairs(torch.utils.data.BatchSampler):
    """Its batch_size counts pairs."""

    def __iter__(self):
        for batch in super().__iter__():
            yield [2 * i + j for i in batch for j in range(2)]


def test_batch_size_beside_a_batch_sampler_is_the_largest_batch(dataset):
    pairs = Pairs(range(20), 7, False)
    for batch_size in (14, 30):
        with datasetd.DataLoader(
            dataset, batch_size, batch_sampler=pairs
        ) as batches:
            assert batches.batch_size == batch_size
            assert [b.num_samples for b in copies_of(batches)] == [14, 14, 12]
    for batch_size, largest in ((1, 7), (13, 13)):
        with datasetd.DataLoader(
            dataset, batch_size, batch_sampler=pairs
        ) as batches:
            with pytest.raises(
                datasetd.InvalidArgument, match=f"expected 1 to {largest} "
            ):
                next(iter(batches))


def copies_of(batches):
    return [batch.clone() for batch in batches]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"drop_last": True},
        {"subset": range(90, 20, -3)},
        {"rank": 1, "world_size": 3},
        {"rank": 2, "world_size": 3, "drop_last": True},
        {"rank": 2, "world_size": 3, "pad": False},
        {"shuffle": False, "weights": np.arange(NUM_SAMPLES)},
        {"shuffle": False, "framework": "dlpack"},
        {"partition": (0, 1)},
        {"shuffle": False, "sampler": range(95, 1, -4)},
        {"transforms": [T.RandomCrop(4)]},
    ],
)
def test_the_sampler_is_the_order_of_the_next_epoch(dataset, arguments):
    with loader(dataset, **arguments) as batches:

        def expected():
            return [
                np.from_dlpack(b.indices).tolist()
                if arguments.get("framework")
                else b.indices.tolist()
                for b in batches
            ]

        for epoch in range(2):
            state = batches.state_dict()
            order = list(batches.sampler)
            by_batch = list(batches.batch_sampler)
            assert batches.state_dict() == state
            assert len(by_batch) == len(batches.batch_sampler) == len(batches)
            epoch = expected()
            assert by_batch == epoch
            dropped = batches.drop_last * (len(batches.sampler) % 10)
            assert order == sum(epoch, [])
            assert len(order) + dropped == len(batches.sampler)
        if not arguments.get("sampler"):
            assert batches.sampler.num_samples == len(batches.sampler)
        batches.set_epoch(4)
        next(iter(batches))
        state = batches.state_dict()
        batches.load_state_dict(state)
        rest = list(batches.batch_sampler)
        assert rest == expected() and len(rest) == len(batches) - 1


@pytest.mark.parametrize(
    "name",
    [
        "batch_size", "sampler", "batch_sampler", "transforms", "shuffle",
        "drop_last", "dataset", "num_workers", "collate_fn", "pin_memory",
        "weights", "seed", "views", "rank", "generator", "pad",
    ],
)  # fmt: skip
def test_an_attribute_that_would_change_nothing(dataset, name):
    with loader(dataset) as batches:
        with pytest.raises(
            AttributeError,
            match=rf"{name} of a datasetd.DataLoader cannot be set: .*make "
            rf"another DataLoader\({name}=...\)",
        ):
            setattr(batches, name, 7)
        # As torch's own does, under another name.
        assert batches.batch_size == 10


def test_an_attribute_that_nobody_reads(dataset):
    with loader(dataset) as batches:
        for name in ("transform", "batchsize", "current_epoch"):
            with pytest.raises(AttributeError, match="nothing would read it"):
                setattr(batches, name, 7)
        batches._of_a_wrapper = 7

    class Own(datasetd.DataLoader):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.own = 7

    with Own(dataset) as batches:
        assert batches.own == 7
        with pytest.raises(AttributeError, match="another DataLoader"):
            batches.batch_size = 7


def test_each_process_makes_its_own(daemon, client, dataset):
    """Nothing here can be sent to another process, and the error says what to
    do there."""
    with loader(dataset, framework="dlpack") as batches:
        iterator = iter(batches)
        batch = next(iterator)
        for thing, words in (
            (batches, "make one in the other process, and pass state_dict"),
            (iterator, "belongs to its process"),
            (client, rf"datasetd.connect\('{daemon.address}'\)"),
            (daemon, "connect to its address"),
            (batch, "convert its fields to arrays"),
            (batch.image, "copy it to an array"),
        ):
            for send in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(TypeError, match=words):
                    send(thing)
        # Their descriptions can be pickled.
        assert pickle.loads(pickle.dumps(dataset.fields)) == dataset.fields
        state = batches.state_dict()
        assert pickle.loads(pickle.dumps(state)) == state
