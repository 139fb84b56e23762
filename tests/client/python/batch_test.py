"""Batches: their interface, and how long their memory lives."""

import collections.abc
import ctypes
import gc
import pickle
import sys
import types

import datasetd
import numpy as np
import pytest
import torch
from conftest import NUM_SAMPLES, load, loader, run_python
from datasetd import transforms as T
from datasetd._batches import frameworks


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


def test_batch_is_a_mapping_too(dataset):
    with loader(dataset) as batches:
        batch = next(iter(batches))
        assert batch["image"] is batch[0] is batch.image is batch[-2]
        assert batch[:1] == (batch.image,)
        assert batch.keys() == ("image", "label")
        # The tuple's: the arrays, not their names.
        assert len(batch) == 2 and list(batch)[1] is batch.label
        for made in (batch.as_dict(), dict(batch), dict(batch.items())):
            assert list(made) == ["image", "label"]
            assert made["label"] is batch.label
        assert (lambda image, label: label)(**batch) is batch.label
        assert batch.values()[1] is batch.get("label") is batch.label
        assert batch.get("mask", 3) == 3
        assert "label" in batch and "mask" not in batch
        assert batch.label in batch and torch.zeros(10) not in batch
        with pytest.raises(KeyError, match=r"mask.*\['image', 'label'\]"):
            batch["mask"]
        # torch and Lightning rebuild namedtuples and mappings in other ways.
        assert not isinstance(batch, collections.abc.Mapping)
        assert not hasattr(batch, "_fields")


def test_a_field_with_a_name_of_batch(client):
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    pushed = client.push_dataset(
        "odd-names", {"keys": values, "count": values + 1, "label": [1, 2, 3]}
    )
    with datasetd.DataLoader(
        pushed, batch_size=3, framework="numpy"
    ) as batches:
        batch = next(iter(batches))
    np.testing.assert_array_equal(batch["keys"], values)
    np.testing.assert_array_equal(batch.count, values + 1)
    assert batch.keys() == ("keys", "count", "label")


def test_fields_with_names_that_begin_with_an_underscore(client):
    names = ["_handle", "_origin", "_positions", "__bool__", "_x", "label"]
    columns = {name: np.arange(3) + i for i, name in enumerate(names)}
    pushed = client.push_dataset("hidden-names", columns)
    assert len(client.push_dataset("hidden-names", columns)) == 3
    with datasetd.DataLoader(
        pushed, batch_size=3, framework="numpy"
    ) as batches:
        batch = next(iter(batches))
    assert bool(batch) and batch.keys() == tuple(names)
    for i, name in enumerate(names):
        np.testing.assert_array_equal(batch[name], np.arange(3) + i)
    assert batch.label is batch["label"] and not hasattr(batch, "_x")
    np.testing.assert_array_equal(pushed.column("_handle"), np.arange(3))


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_clone(dataset, framework):
    with loader(dataset, framework=framework, layout="NHWC") as batches:
        iterator = iter(batches)
        batch = next(iterator)
        clone = batch.clone()
        expected = np.array(batch.image)
        batch.image[:] = 0
        np.testing.assert_array_equal(np.asarray(clone.image), expected)
        for name in ("epoch", "index", "num_samples", "num_padding"):
            assert getattr(clone, name) == getattr(batch, name)
        np.testing.assert_array_equal(clone.indices, clone.label)
        assert type(clone) is type(batch)
        if framework == "torch":
            assert clone.image.stride() == batch.image.stride()
        else:
            assert clone.image.strides == batch.image.strides
        clone.record_stream(0)
        # It is plain data.
        again = pickle.loads(pickle.dumps(clone))
        np.testing.assert_array_equal(np.asarray(again.image), expected)
        assert (again.keys(), again.index) == (clone.keys(), clone.index)
        np.testing.assert_array_equal(again.indices, clone.indices)


def test_to(dataset):
    with loader(dataset) as batches:
        batch = next(iter(batches))
        assert batch.to("cpu") is batch is batch.to(torch.device("cpu"))
        elsewhere = batch.to("meta")
        assert {value.device.type for value in elsewhere} == {"meta"}
        assert elsewhere.image.shape == batch.image.shape
        assert (elsewhere.epoch, elsewhere.index) == (0, 0)
    with loader(dataset, framework="numpy") as batches:
        batch = next(iter(batches))
        assert batch.to("cpu") is batch
        with pytest.raises(datasetd.InvalidArgument, match="to\\('cuda'\\)"):
            batch.to("cuda")


def test_batch_is_a_pytree_of_torch(dataset):
    from torch.utils import _pytree

    with loader(dataset) as batches:
        batch = next(iter(batches))
        doubled = _pytree.tree_map(lambda value: value.double(), batch)
        assert type(doubled) is type(batch)
        assert doubled.image.dtype == torch.float64
        assert torch.equal(doubled["label"].long(), batch.label)
        leaves, spec = _pytree.tree_flatten({"b": batch})
        assert len(leaves) == 2 and leaves[0] is batch.image
        again = _pytree.tree_unflatten(leaves, spec)["b"]
        assert again.label is batch.label


def test_batch_is_a_pytree_of_jax(dataset):
    jax = pytest.importorskip("jax")
    with loader(dataset, framework="jax") as batches:
        batch = next(iter(batches))
        mean = jax.jit(lambda b: b.image.mean() + b["label"].sum())(batch)
        expected = np.asarray(batch.image).mean() + sum(batch.label.tolist())
        assert abs(float(mean) - expected) < 1e-3
        doubled = jax.tree_util.tree_map(lambda value: value * 2, batch)
        assert type(doubled) is type(batch)
        assert jax.device_put(batch).label.shape == (10,)


def test_torch_tensors_are_the_slot_and_writable(dataset):
    with loader(dataset) as batches:
        batch = next(iter(batches))
        again = torch.from_dlpack(
            batch._origin.framework.from_handle(
                batch._handle, 0, batches._newest._feed.fields[0]
            )
        )
        again[0] = 7
        assert (batch.image[0] == 7).all()
        assert batch.image.data_ptr() == again.data_ptr()


def test_numpy_arrays_are_views(dataset):
    with loader(dataset, framework="numpy", layout="NHWC") as batches:
        images, labels = next(iter(batches))
        assert images.flags.writeable and not images.flags.owndata
        assert images.shape == (10, 3, 8, 10) and images.dtype == np.uint8
        assert images.strides == (240, 1, 30, 3)
        np.testing.assert_array_equal(images[:, 2, 7, 9], labels)
        images[:] = 0


def test_dlpack_objects(dataset):
    with loader(
        dataset, framework="dlpack", prefetch=1, on_held="error"
    ) as batches:
        images, labels = next(iter(batches))
        assert images.shape == (10, 3, 8, 10) and labels.dtype == "int64"
        tensor = torch.from_dlpack(images)
        array = np.from_dlpack(labels)
        np.testing.assert_array_equal(tensor[:, 0, 0, 0].numpy(), array)
        del images, labels, tensor, array
        # A capsule that nobody takes gives its hold back.
        for batch in batches:
            batch.image.__dlpack__()


def test_a_tensor_that_is_refused_gives_its_hold_back(dataset):
    """NumPy drops it with its error raised."""
    with loader(
        dataset,
        framework="dlpack",
        prefetch=1,
        on_held="error",
        transforms=[T.ToDtype("bfloat16", scale=True)],
    ) as batches:
        for batch in batches:
            with pytest.raises(RuntimeError, match="Unsupported dtype"):
                np.from_dlpack(batch[0])


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
    dataset = load(client, data_root)
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


# -- In others' hands ----------------------------------------------------------


def test_what_a_wrapper_makes_of_a_batch(dataset):
    """Wrappers that move batches to a device build the tuple's class anew."""
    with loader(dataset) as batches:
        batch = next(iter(batches))
        moved = type(batch)(value.double() for value in batch)
        assert moved.image.dtype == moved[0].dtype == torch.float64
        assert torch.equal(moved.label.long(), batch.label)
        # Attributes from the daemon go with the daemon's memory.
        for name in ("epoch", "index", "num_samples", "num_padding", "indices"):
            assert not hasattr(moved, name)
            assert hasattr(batch, name)
        with pytest.raises(AttributeError, match="made of other values"):
            moved.record_stream(0)


def test_torchs_record_stream_of_a_batch_is_an_error_if_asked(
    dataset, monkeypatch
):
    """It would do nothing: that memory is not of torch's allocator."""

    def what(call):
        with pytest.raises(Exception) as raised:
            call()
        return str(raised.value)

    with loader(dataset) as batches:
        batch = next(iter(batches))
        assert "no effect" not in what(lambda: batch[0].record_stream(None))
    monkeypatch.setenv("DATASETD_CHECK_STREAMS", "1")
    with loader(dataset) as batches:
        batch = next(iter(batches))
        for tensor in (batch[0], batch[0][2:]):
            with pytest.raises(datasetd.FailedPrecondition,
                               match=r"call batch\.record_stream"):
                tensor.record_stream(None)
        batch.record_stream(0)
        # torch's own memory is torch's matter: copies, as small fields are.
        for own in (batch[0].clone(), batch[1], batch.indices):
            with pytest.raises(Exception) as raised:
                own.record_stream(None)
            assert "no effect" not in str(raised.value)


def test_a_streams_number_is_of_the_batchs_gpu_for_torch(monkeypatch):
    monkeypatch.setattr(torch.cuda, "ExternalStream",
                        lambda number, device: ("external", number, device))
    monkeypatch.setattr(torch.cuda, "default_stream",
                        lambda device: ("default", device))
    stream = frameworks._torch_stream
    assert stream(0, 1) == stream(1, 1) == ("default", 1)
    assert stream(0xA0, 1) == ("external", 0xA0, 1)
    # As CuPy's and Numba's, whose handle is a c_void_p.
    assert stream(types.SimpleNamespace(ptr=0xA0, device_id=2),
                  1) == ("external", 0xA0, 2)
    assert stream(types.SimpleNamespace(ptr=0, device_id=-1),
                  1) == ("default", 1)
    for handle, expected in ((0xA0, ("external", 0xA0, 1)),
                             (None, ("default", 1))):
        numba = types.SimpleNamespace(handle=ctypes.c_void_p(handle))
        assert stream(numba, 1) == expected


def test_dlpack_copies_nothing_and_says_so(dataset):
    with loader(dataset, framework="dlpack") as batches:
        image = next(iter(batches)).image
        assert image.__dlpack_device__() == (1, 0)
        with pytest.raises(BufferError, match="a copy: import it"):
            image.__dlpack__(copy=True)
        with pytest.raises(BufferError, match=r"\(1, 0\), requested on \(2, 0"):
            image.__dlpack__(dl_device=(2, 0))
        tensor = torch.from_dlpack(image)
        for arguments in (
            {"max_version": (1, 0), "dl_device": (1, 0), "copy": False},
            {"stream": None, "copy": None},
        ):
            assert "dltensor" in repr(image.__dlpack__(**arguments))
        tensor[:] = 7
        assert np.from_dlpack(image).min() == 7


@pytest.mark.parametrize("framework", ["torch", "numpy", "dlpack"])
def test_the_interpreter_ends_with_batches_in_hand(
    daemon, data_root, framework
):
    script = f"""
import datasetd
client = datasetd.connect({daemon.address!r})
dataset = client.load_dataset(
    "hundred", format="npy", path={str(data_root / "hundred")!r})
loader = datasetd.DataLoader(dataset, batch_size=10, framework={framework!r})
iterator = iter(loader)
batch = next(iterator)
class Kept:
    circle, held, capsule = None, next(iterator), None
Kept.circle = Kept
if {framework!r} == "dlpack":
    Kept.capsule = batch.image.__dlpack__()
print(batch.index, Kept.held.index)
"""
    result = run_python("-c", script)
    assert (result.stdout, result.stderr) == ("0 1\n", "")
    assert result.returncode == 0


def test_numpy_where_there_is_no_torch(dataset, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with loader(dataset) as batches:
        assert isinstance(next(iter(batches)).image, np.ndarray)
    with pytest.raises(datasetd.InvalidArgument, match="is not installed"):
        loader(dataset, framework="torch")


def test_jax_where_there_is_none(dataset, monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(datasetd.InvalidArgument, match="is not installed"):
        loader(dataset, framework="jax")


# -- What it is ----------------------------------------------------------------


@pytest.mark.parametrize("framework", ["torch", "numpy", "dlpack"])
def test_a_batch_says_what_it_is(dataset, framework):
    with loader(
        dataset, framework=framework, rank=1, world_size=2, batch_size=26
    ) as batches:
        first, last = batches
        text = repr(first)
        assert text == (
            "datasetd.Batch(epoch 0, index 0, image: uint8 [26, 3, 8, 10], "
            "label: int64 [26], on cpu)"
        )
        assert f"{last}".startswith(
            "datasetd.Batch(epoch 0, index 1, 1 of 26 padding, image: "
        )
    # What others make of it has no epoch.
    made = type(first)(["some", None])
    assert repr(made) == "datasetd.Batch(image: str, label: NoneType)"


def test_a_field_that_is_not_there(dataset):
    with loader(dataset) as batches:
        batch = next(iter(batches))
        for name in ("labels", "images", "idx"):
            with pytest.raises(
                AttributeError, match=rf"{name}'.* \['image', 'label'\]"
            ):
                getattr(batch, name)


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_a_batch_that_is_saved_is_a_copy(dataset, framework, tmp_path):
    path = tmp_path / "batch.pt"
    options = {"weights_only": False} if hasattr(torch, "compile") else {}
    with loader(dataset, framework=framework) as batches:
        batch = next(iter(batches))
        torch.save(batch, path)
        again = torch.load(path, **options)
        np.testing.assert_array_equal(
            np.asarray(again.image), np.asarray(batch.image)
        )
        assert (again.epoch, again.index) == (0, 0)
        assert np.asarray(again.indices).tolist() == batch.indices.tolist()


# -- Padding -------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_valid_is_false_for_padding(dataset, framework):
    seen = []
    for rank in range(4):
        with loader(
            dataset, framework=framework, rank=rank, world_size=4
        ) as batches, loader(
            dataset, framework=framework, rank=rank, world_size=4,
            with_valid=True,
        ) as with_valid:
            for batch, other in zip(batches, with_valid):
                rows = batch.num_samples - batch.num_padding
                expected = [i < rows for i in range(batch.num_samples)]
                image, label, valid = other
                assert other.keys() == ("image", "label", "valid")
                assert str(valid.dtype).endswith("bool")
                for mask in (batch.valid, valid, other.valid, other["valid"],
                             other.clone().valid, batch.clone().valid):
                    assert mask.tolist() == expected
                # Another batch's is another one.
                valid[:] = False
                assert batch.valid.tolist() == expected
                seen += label[np.asarray(batch.valid).tolist()].tolist()
                assert other.indices.tolist() == batch.indices.tolist()
    assert sorted(seen) == list(range(NUM_SAMPLES))


def test_valid_of_copies_and_of_a_partition(dataset, client):
    with loader(dataset, with_valid=True, prefetch=1) as batches:
        with pytest.warns(UserWarning, match="are kept"):
            kept = list(batches)
        for batch in kept:
            assert batch.valid.tolist() == [True] * batch.num_samples
            batch.record_stream(0)
    with loader(dataset, framework="dlpack") as batches:
        with pytest.raises(datasetd.FailedPrecondition, match="num_padding"):
            next(iter(batches)).valid


def test_a_field_of_the_name_valid_stays(client):
    columns = {"valid": np.arange(6), "x": np.zeros(6)}
    with client.push_dataset("validities", columns) as dataset:
        with loader(dataset, shuffle=False) as batches:
            assert next(iter(batches)).valid.tolist() == list(range(6))
        with pytest.raises(datasetd.InvalidArgument, match="a field 'valid'"):
            loader(dataset, with_valid=True)
        with loader(dataset, fields=["x"], with_valid=True) as batches:
            assert next(iter(batches)).valid.tolist() == [True] * 6
