import gc
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch

import datasetd
from conftest import NUM_SAMPLES
from datasetd import transforms as T


def loader(dataset, **arguments):
    arguments.setdefault("batch_size", 10)
    arguments.setdefault("shuffle", True)
    arguments.setdefault("seed", 5)
    return datasetd.DataLoader(dataset, **arguments)


def indices_of(batches):
    return np.concatenate([np.asarray(batch.indices) for batch in batches])


# -- What a batch is -----------------------------------------------------------


def test_batch_is_a_tuple_with_names(dataset):
    with loader(dataset, layout="NHWC") as batches:
        batch = next(iter(batches))
        images, labels = batch
        assert images is batch.image and labels is batch.label
        assert isinstance(batch, datasetd.Batch)
        assert images.shape == (10, 3, 8, 10)
        assert images.stride() == (240, 1, 30, 3)
        assert labels.dtype == torch.int64
        assert torch.equal(batch.indices, labels)
        assert torch.equal(images[:, 0, 0, 0].long(), labels)
        assert (batch.epoch, batch.index, batch.num_padding) == (0, 0, 0)
        assert batch.num_samples == 10
        batch.record_stream(0)


def test_torch_tensors_are_the_slot_and_writable(dataset):
    with loader(dataset) as batches:
        batch = next(iter(batches))
        again = batch.indices
        again[0] = -7
        assert batch.indices[0] == -7
        assert batch.indices.data_ptr() == again.data_ptr()


def test_numpy_arrays_are_views(dataset):
    with loader(dataset, framework="numpy", layout="NHWC") as batches:
        images, labels = next(iter(batches))
        assert images.flags.writeable and not images.flags.owndata
        assert images.shape == (10, 3, 8, 10) and images.dtype == np.uint8
        assert images.strides == (240, 1, 30, 3)
        np.testing.assert_array_equal(images[:, 2, 7, 9], labels)
        images[:] = 0


def test_dlpack_objects(dataset):
    with loader(dataset, framework="dlpack") as batches:
        images, labels = next(iter(batches))
        assert images.shape == (10, 3, 8, 10) and labels.dtype == "int64"
        tensor = torch.from_dlpack(images)
        array = np.from_dlpack(labels)
        np.testing.assert_array_equal(tensor[:, 0, 0, 0].numpy(), array)
        # A capsule that nobody takes gives its hold back.
        capsule = images.__dlpack__()
        del capsule, images, labels, tensor, array
        gc.collect()
        for _ in batches:
            pass


def test_dtypes_and_normalize(dataset):
    for name in ("float16", "bfloat16", "float32"):
        ops = [T.ToDtype(name, scale=True), T.Normalize([0.0] * 3, [0.5] * 3)]
        with loader(dataset, transforms=ops) as batches:
            batch = next(iter(batches))
            assert batch.image.dtype == getattr(torch, name)
            expected = batch.label.double() / 255 / 0.5
            difference = batch.image[:, 0, 0, 0].double() - expected
            assert difference.abs().max() < 0.01


def test_bfloat16_is_not_numpys(dataset):
    try:
        import ml_dtypes  # noqa: F401
    except ImportError:
        with pytest.raises(datasetd.InvalidArgument, match="bfloat16"):
            loader(
                dataset,
                framework="numpy",
                transforms=[T.ToDtype("bfloat16", scale=True)],
            )


def test_tensors_outlive_batch_loader_and_client(daemon, data_root):
    client = daemon.connect()
    dataset = client.load_dataset(
        "hundred", format="npy", path=data_root / "hundred"
    )
    batches = loader(dataset)
    images, labels = next(iter(batches))
    batches.close()
    dataset.close()
    client.close()
    del batches, dataset, client
    gc.collect()
    assert torch.equal(images[:, 0, 0, 0].long(), labels)


def test_kept_batch_is_never_overwritten(dataset):
    with loader(dataset, prefetch=2) as batches:
        kept = next(iter(batches))
        before = kept.image.clone()
        for _ in range(3):
            for batch in batches:
                del batch
        assert torch.equal(kept.image, before)


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_keeping_all_is_an_error_that_names_the_fields(dataset, framework):
    with loader(dataset, prefetch=2, framework=framework) as batches:
        iterator = iter(batches)
        kept = [next(iterator).label for _ in range(4)]
        gc.collect()
        with pytest.raises(datasetd.AllSlotsHeld, match="4 of 'label'") as e:
            next(iterator)
        assert ".clone()" in str(e.value)
        kept.pop()
        assert next(iterator).index == 4


# -- Iterating -----------------------------------------------------------------


@pytest.mark.parametrize("drop_last, count", [(True, 10), (False, 11)])
def test_len_and_every_index_once(dataset, drop_last, count):
    with loader(dataset, drop_last=drop_last) as batches:
        assert len(batches) == count
        for _ in range(3):
            order = indices_of(list(map(_copy, batches)))
            expected = NUM_SAMPLES if not drop_last else 100
            assert len(order) == expected == len(set(order))


class _copy:
    def __init__(self, batch):
        self.indices = batch.indices.clone()


def test_epochs_follow_each_other(dataset):
    with loader(dataset) as batches:
        assert {batch.epoch for batch in map(_position, batches)} == {0}
        for batch in batches:
            assert (batch.epoch, batch.index) == (1, 0)
            break
        # Broken off; the next one is the next epoch.
        first = next(iter(batches))
        assert (first.epoch, first.index) == (2, 0)


class _position:
    def __init__(self, batch):
        self.epoch, self.index = batch.epoch, batch.index


def test_set_epoch(dataset):
    with loader(dataset) as batches:
        batches.set_epoch(7)
        assert batches.state_dict()["epoch"] == 7
        assert next(iter(batches)).epoch == 7
        assert next(iter(batches)).epoch == 8
        with pytest.raises(datasetd.InvalidArgument, match="epoch=-1"):
            batches.set_epoch(-1)


def test_asking_for_what_comes_anyway_is_no_seek(dataset, client):
    with loader(dataset, name="no-seek") as batches:
        for epoch in range(3):
            batches.set_epoch(epoch)
            for _ in batches:
                pass
        # A seek would have been ignored or answered; the daemon made nothing
        # twice.
        (feed,) = [f for f in client.list_feeds() if f["name"] == "no-seek"]
        made = int(feed["num_batches"])
        assert 33 <= made <= 33 + batches.prefetch + 2


def test_newer_iterator_invalidates_the_older(dataset):
    with loader(dataset) as batches:
        older = iter(batches)
        next(older)
        newer = iter(batches)
        assert next(newer).epoch == 1
        with pytest.raises(datasetd.Error, match="newer iterator"):
            next(older)
        assert next(newer).index == 1


def test_finished_iterator_stays_finished(dataset):
    with loader(dataset) as batches:
        iterator = iter(batches)
        assert len(iterator) == len(batches)
        for _ in iterator:
            pass
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(iterator)


def test_epoch_without_batches(tiny):
    with loader(tiny, batch_size=5, drop_last=True) as batches:
        assert len(batches) == 0
        for _ in range(3):
            assert list(batches) == []
        assert batches.state_dict()["epoch"] == 2
    with loader(tiny, batch_size=5) as batches:
        (batch,) = list(map(_copy, batches))
        assert sorted(batch.indices.tolist()) == [0, 1, 2]


def test_ranks_share_one_order(dataset):
    orders = []
    for rank in range(3):
        with loader(
            dataset, rank=rank, world_size=3, batch_size=4
        ) as batches:
            assert len(batches) == 9
            copies = [(_copy(b), b.num_padding) for b in batches]
            padding = sum(p for _, p in copies)
            rows = indices_of([c for c, _ in copies])
            orders.append(rows[: len(rows) - padding])
    together = np.concatenate(orders)
    assert sorted(together) == list(range(NUM_SAMPLES))


def test_same_pixels_for_the_same_seed(dataset):
    ops = [T.RandomCrop(8, padding=3), T.RandomHorizontalFlip()]
    with loader(dataset, transforms=ops) as one:
        with loader(dataset, transforms=ops, batch_size=7) as other:
            for epoch in range(2):
                images = [
                    torch.cat([b.image.clone() for b in batches])
                    for batches in (one, other)
                ]
                assert torch.equal(*images)


# -- State ---------------------------------------------------------------------


def test_resume_goes_on_at_the_exact_batch(dataset):
    with loader(dataset) as batches:
        whole = [indices_of(list(map(_copy, batches))) for _ in range(2)]
    with loader(dataset) as batches:
        iterator = iter(batches)
        for _ in range(4):
            next(iterator)
        state = batches.state_dict()
    assert (state["epoch"], state["batch"]) == (0, 4)
    assert "rank" not in state
    with loader(dataset) as batches:
        batches.load_state_dict(state)
        assert batches.state_dict() == state
        rest = indices_of(list(map(_copy, batches)))
        np.testing.assert_array_equal(rest, whole[0][40:])
        np.testing.assert_array_equal(
            indices_of(list(map(_copy, batches))), whole[1]
        )


def test_state_at_the_end_of_an_epoch(dataset):
    with loader(dataset) as batches:
        for _ in batches:
            pass
        state = batches.state_dict()
        assert (state["epoch"], state["batch"]) == (1, 0)


def test_set_epoch_to_the_loaded_epoch_keeps_the_position(dataset):
    with loader(dataset) as batches:
        state = dict(batches.state_dict(), epoch=3, batch=2)
        batches.load_state_dict(state)
        batches.set_epoch(3)
        first = next(iter(batches))
        assert (first.epoch, first.index) == (3, 2)


@pytest.mark.parametrize(
    "key, value",
    [
        ("content_hash", "other"),
        ("seed", 6),
        ("batch_size", 11),
        ("drop_last", True),
        ("sampler", "sequential"),
        ("world_size", 2),
        ("transforms_hash", "other"),
    ],
)
def test_state_of_another_job_is_refused(dataset, key, value):
    with loader(dataset) as batches:
        state = dict(batches.state_dict(), epoch=1, batch=3)
        state[key] = value
        with pytest.raises(datasetd.FailedPrecondition, match=key):
            batches.load_state_dict(state)
        # At an epoch's beginning, two of them may change.
        state["batch"] = 0
        if key in ("batch_size", "world_size"):
            batches.load_state_dict(state)
        else:
            with pytest.raises(datasetd.FailedPrecondition, match=key):
                batches.load_state_dict(state)


def test_malformed_states(dataset):
    with loader(dataset) as batches:
        state = batches.state_dict()
        with pytest.raises(datasetd.FailedPrecondition, match="version"):
            batches.load_state_dict(dict(state, version=2))
        with pytest.raises(datasetd.InvalidArgument, match="batch"):
            batches.load_state_dict(dict(state, batch=11))
        with pytest.raises(datasetd.InvalidArgument, match="seed"):
            batches.load_state_dict({k: state[k] for k in state if k != "seed"})


# -- Arguments and errors --------------------------------------------------------


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
        ({"transforms": [lambda x: x]}, "no datasetd.transforms"),
        ({"framework": "mxnet"}, "framework='mxnet'"),
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


def test_datasets(client, dataset, data_root):
    assert dataset.num_samples == len(dataset) == NUM_SAMPLES
    assert [f.name for f in dataset.fields] == ["image", "label"]
    assert dataset.fields[0].shape == (8, 10, 3)
    assert dataset.fields[0].is_image and dataset.fields[0].dtype == "uint8"
    again = client.get_dataset("hundred")
    assert again.content_hash == dataset.content_hash
    assert "hundred" in [d["name"] for d in client.list_datasets()]
    with pytest.raises(datasetd.NotFound, match="nothing"):
        client.get_dataset("nothing")
    with pytest.raises(datasetd.NotFound, match="missing"):
        client.load_dataset("x", format="npy", path=data_root / "missing")
    with pytest.raises(datasetd.AlreadyExists, match="hundred"):
        client.load_dataset("hundred", format="npy", path=data_root / "three")
    with pytest.raises(datasetd.InvalidArgument, match="tape"):
        client.load_dataset("x", format="tape", path=data_root)
    with pytest.raises(datasetd.PermissionDenied):
        client.load_dataset("x", format="npy", path="/etc")


def test_progress_function_and_its_exception(client, data_root):
    seen = []
    client.load_dataset(
        "hundred",
        format="npy",
        path=data_root / "hundred",
        progress=seen.append,
    )
    assert seen and seen[-1]["name"] == "hundred"

    def fail(message):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.load_dataset(
            "hundred",
            format="npy",
            path=data_root / "hundred",
            progress=fail,
        )


def test_unload_with_open_feeds(client, data_root):
    dataset = client.load_dataset(
        "unloaded", format="npy", path=data_root / "hundred"
    )
    with loader(dataset, prefetch=1) as batches:
        iterator = iter(batches)
        batch = next(iterator)
        with pytest.raises(datasetd.FailedPrecondition, match="unloaded"):
            client.unload_dataset("unloaded")
        client.unload_dataset("unloaded", force=True)
        with pytest.raises(datasetd.DatasetUnloaded):
            for batch in iterator:
                pass
        assert batch.image.shape[1:] == (3, 8, 10)


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


def test_feeds_end_with_their_loader(client, dataset):
    batches = loader(dataset, name="ends")
    assert any(f["name"] == "ends" for f in client.list_feeds())
    del batches
    gc.collect()
    deadline = time.monotonic() + 5
    while any(f["name"] == "ends" for f in client.list_feeds()):
        assert time.monotonic() < deadline


def test_no_daemon(tmp_path):
    with pytest.raises(datasetd.DaemonGone, match="no daemon listens"):
        datasetd.connect(str(tmp_path / "datasetd.sock"))
    with pytest.raises(datasetd.InvalidArgument, match="tcp://"):
        datasetd.connect("tcp://127.0.0.1:80")


# -- Processes -------------------------------------------------------------------


def test_daemon_killed_while_clients_wait(data_root):
    with datasetd.start_local(device="cpu", data_roots=data_root) as daemon:
        client = daemon.connect()
        dataset = client.load_dataset(
            "hundred", format="npy", path=data_root / "hundred"
        )
        batches = loader(dataset, prefetch=1)
        iterator = iter(batches)
        kept = next(iterator)
        os.kill(daemon.pid, signal.SIGKILL)
        start = time.monotonic()
        with pytest.raises(datasetd.DaemonGone):
            while True:
                for _ in iterator:
                    pass
                iterator = iter(batches)
        assert time.monotonic() - start < 1
        with pytest.raises(datasetd.DaemonGone):
            client.list_datasets()
        assert kept.image.shape == (10, 3, 8, 10)


def test_daemon_that_drains(data_root):
    with datasetd.start_local(device="cpu", data_roots=data_root) as daemon:
        dataset = daemon.connect().load_dataset(
            "hundred", format="npy", path=data_root / "hundred"
        )
        with loader(dataset, prefetch=1) as batches:
            iterator = iter(batches)
            next(iterator)
            os.kill(daemon.pid, signal.SIGTERM)
            with pytest.raises(datasetd.DaemonDraining):
                while True:
                    for _ in iterator:
                        pass
                    iterator = iter(batches)


def test_reconnect_goes_on_at_the_exact_next_batch(data_root, tmp_path):
    import datasetd._local as local

    with datasetd.start_local(device="cpu", data_roots=data_root) as daemon:
        dataset = daemon.connect().load_dataset(
            "hundred", format="npy", path=data_root / "hundred"
        )
        with loader(dataset) as batches:
            expected = indices_of(list(map(_copy, batches)))
        with loader(dataset, prefetch=1, reconnect=30) as batches:
            iterator = iter(batches)
            rows = [next(iterator).indices.clone() for _ in range(4)]
            os.kill(daemon.pid, signal.SIGKILL)
            daemon._process.wait()
            second = subprocess.Popen(
                [
                    local._find_daemon(None),
                    f"--socket_path={daemon.address}",
                    "--device=cpu",
                    f"--data_root={data_root}",
                    "--exit_with_parent",
                ],
                stderr=subprocess.DEVNULL,
            )
            try:
                rows += [batch.indices.clone() for batch in iterator]
            finally:
                second.terminate()
                second.wait()
        np.testing.assert_array_equal(np.concatenate(rows), expected)


# A stopped daemon makes no batch, and its connections stay.
WAIT_SCRIPT = """
import datasetd, os, signal
client = datasetd.connect({address!r})
dataset = client.load_dataset("hundred", format="npy", path={path!r})
loader = datasetd.DataLoader(dataset, batch_size=10, prefetch=1)
os.kill({pid}, signal.SIGSTOP)
try:
    while True:
        for batch in loader:
            print("batch", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
os._exit(0)
"""


def test_interrupt_while_waiting(data_root):
    with datasetd.start_local(device="cpu", data_roots=data_root) as daemon:
        script = WAIT_SCRIPT.format(
            address=daemon.address,
            path=str(data_root / "hundred"),
            pid=daemon.pid,
        )
        process = subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
        )
        try:
            # At most prefetch + 2 were ready; after the last it waits.
            assert process.stdout.readline() == b"batch\n"
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1)
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=20)
            assert output.endswith(b"interrupted\n")
        finally:
            os.kill(daemon.pid, signal.SIGCONT)
            process.kill()
            process.wait()


def test_timeout(data_root):
    with datasetd.start_local(device="cpu", data_roots=data_root) as daemon:
        dataset = daemon.connect().load_dataset(
            "hundred", format="npy", path=data_root / "hundred"
        )
        with loader(dataset, prefetch=1, timeout=0.3) as batches:
            stop(daemon)
            try:
                with pytest.raises(datasetd.DeadlineExceeded, match="0.3 s"):
                    for _ in batches:
                        pass
            finally:
                os.kill(daemon.pid, signal.SIGCONT)
            # The daemon goes on, and so does the loader.
            batches.set_epoch(4)
            assert next(iter(batches)).epoch == 4


def stop(process):
    """SIGSTOP to a child, and its effect: no thread of it runs any more."""
    os.kill(process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)


def test_timeout_of_a_samplers_indices(data_root):
    order = list(range(99, -1, -1))
    with datasetd.start_local(device="cpu", data_roots=data_root) as daemon:
        dataset = daemon.connect().load_dataset(
            "hundred", format="npy", path=data_root / "hundred"
        )
        with loader(
            dataset, sampler=order, shuffle=False, timeout=0.3
        ) as batches:
            stop(daemon)
            try:
                with pytest.raises(
                    datasetd.DeadlineExceeded,
                    match=r"sampler's indices within 0.3 s \(timeout=\)",
                ):
                    for _ in batches:
                        pass
            finally:
                os.kill(daemon.pid, signal.SIGCONT)
            # Whether the daemon took them then or not: each comes once.
            seen = [i for b in batches for i in b.indices.tolist()]
            assert seen == order


_WAITS = """
import os, signal, sys
import datasetd
def stop(process):
    os.kill(process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
with datasetd.start_local(device="cpu", data_roots=sys.argv[1]) as daemon:
    dataset = daemon.connect().load_dataset(
        "hundred", format="npy", path=sys.argv[1] + "/hundred")
    client = daemon.connect()
    loader = datasetd.DataLoader(dataset, batch_size=1, framework="numpy",
                                 sampler=list(range(100)))
    iterator = iter(loader)
    waits = {
        "indices": lambda: next(iterator),
        "load": lambda: client.load_dataset(
            "other", format="npy", path=sys.argv[1] + "/hundred"),
        "push": lambda: client.push_dataset("pushed", [(1, 2)] * 3),
    }
    stop(daemon)
    try:
        print("waiting", flush=True)
        waits[sys.argv[2]]()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    if sys.argv[2] == "indices":
        try:
            for batch in iterator:
                del batch
            raise AssertionError("the rest of the order was not lost")
        except datasetd.FailedPrecondition as error:
            assert "interrupted" in str(error), error
    else:
        # It was broken off, or the daemon had done it.
        client.status()
    seen = [i for batch in loader for i in batch.indices.tolist()]
    assert seen == list(range(100)), seen
    print("went on", flush=True)
"""


@pytest.mark.parametrize("wait", ["indices", "load", "push"])
def test_ctrl_c_while_the_daemon_does_not_answer(data_root, wait):
    process = subprocess.Popen(
        [sys.executable, "-c", _WAITS, str(data_root), wait],
        stdout=subprocess.PIPE,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
    )
    try:
        assert process.stdout.readline() == b"waiting\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)
        assert output == b"interrupted\nwent on\n"
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


def test_fork_while_holding_a_batch(dataset):
    with loader(dataset) as batches:
        iterator = iter(batches)
        batch = next(iterator)
        before = batch.image.clone()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                try:
                    next(iterator)
                except datasetd.UsedAfterFork:
                    code = 0
                del batch, iterator
                gc.collect()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert torch.equal(batch.image, before)
        assert next(iterator).index == 1


def test_tensors_are_freed_on_any_thread(dataset):
    with loader(dataset, prefetch=2) as batches:
        boxes = []

        def free():
            while boxes:
                boxes.pop()

        for _ in range(3):
            for batch in batches:
                boxes.append(batch.image)
                del batch
                thread = threading.Thread(target=free)
                thread.start()
                thread.join()
