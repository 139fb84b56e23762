"""Bad input: a clear error that names the thing, nothing leaked, and the
daemon goes on."""

import gzip
import os
import socket
import struct

import numpy as np
import pytest

from tests.testing import attach_wire as wire
from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402
from datasetd import transforms as T  # noqa: E402

_BUDGET_MIB = 64
# absl::StatusCode.
_INVALID_ARGUMENT, _NOT_FOUND, _FAILED_PRECONDITION = 3, 5, 9
_UNIMPLEMENTED, _UNAVAILABLE, _UNAUTHENTICATED = 12, 14, 16


@pytest.fixture(name="world", scope="module")
def _world():
    """A daemon with a good dataset, and what it uses with that alone."""
    with harness.Daemon(memory_budget_mib=_BUDGET_MIB) as daemon:
        daemon.write_dataset(1000, "good")
        client = daemon.connect()
        daemon.dataset = daemon.load(client, "good")
        daemon.client = client
        with datasetd.DataLoader(daemon.dataset, batch_size=10,
                                 framework="numpy") as loader:
            assert sum(1 for _ in loader) == 100
        daemon.before = None
        yield daemon
        client.close()


@pytest.fixture(autouse=True)
def _nothing_leaks(world):
    if world.before is None:
        harness.poll_until(
            lambda: not world.client.list_feeds()
            and world.client.status()["devices"][0]["slab_bytes"] == "0",
            "the first feed's end")
        world.before = harness.Footprint(world, world.client)
    yield
    harness.expect_footprint(world, world.client, world.before)
    with datasetd.DataLoader(world.dataset, batch_size=500,
                             prefetch=1) as loader:
        assert sum(1 for _ in loader) == 2
    assert world.is_running()


def _load(world, directory, format="cifar10", split="test", name="bad",
          **more):
    return world.client.load_dataset(
        name, format=format, split=split,
        path=os.path.join(world.data_root, directory), **more)


def _write(world, directory, name, data):
    path = os.path.join(world.data_root, directory)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, name), "wb") as file:
        file.write(data)
    return os.path.join(path, name)


def _raises(kind, *texts):
    """Expects that very class, with all these in its message."""
    class Expectation:
        def __enter__(self):
            self.context = pytest.raises(datasetd.Error)
            self.info = self.context.__enter__()
            return self.info

        def __exit__(self, *error):
            result = self.context.__exit__(*error)
            assert type(self.info.value) is kind, repr(self.info.value)
            for text in texts:
                assert str(text) in str(self.info.value), self.info.value
            return result

    return Expectation()


# -- Sources -----------------------------------------------------------------


def test_missing_path(world):
    with _raises(datasetd.NotFound, "/nowhere: no such file or directory"):
        _load(world, "nowhere")
    with _raises(datasetd.NotFound, "data_batch_1.bin"):
        _load(world, "good", split="train")


def test_truncated_file(world):
    path = _write(world, "short", "test_batch.bin",
                  bytes(3 * harness.CIFAR_RECORD_BYTES - 1))
    with _raises(datasetd.DataLoss, path, "9218 bytes", "offset 6146"):
        _load(world, "short")


def test_file_that_shrinks_after_it_was_opened(world):
    # As many records as keep it loading for a moment.
    random = np.random.default_rng(0)
    data = random.integers(
        0, 10, size=8000 * harness.CIFAR_RECORD_BYTES, dtype=np.uint8)
    path = _write(world, "shrinks", "test_batch.bin", data.tobytes())
    seen = []

    def shrink(dataset):
        if not seen:
            seen.append(dataset)
            os.truncate(path, harness.CIFAR_RECORD_BYTES)

    try:
        _load(world, "shrinks", progress=shrink).close()
        world.client.unload_dataset("bad")  # it was read before that
    except datasetd.DataLoss as error:
        assert path in str(error) and "ends early" in str(error)
    except datasetd.FailedPrecondition as error:  # before it was opened again
        assert path + ": was changed after the load began" in str(error)


def test_wrong_magic(world):
    path = _write(world, "idx", "t10k-images-idx3-ubyte",
                  struct.pack(">IIII", 0x805, 1, 28, 28) + bytes(784))
    _write(world, "idx", "t10k-labels-idx1-ubyte",
           struct.pack(">II", 0x801, 1) + bytes(1))
    with _raises(datasetd.InvalidArgument, path, "magic"):
        _load(world, "idx", format="mnist")


def test_damaged_gzip(world):
    whole = gzip.compress(struct.pack(">IIII", 0x803, 1, 28, 28) + bytes(784))
    path = _write(world, "gz", "t10k-images-idx3-ubyte.gz", whole[:-12])
    _write(world, "gz", "t10k-labels-idx1-ubyte.gz",
           gzip.compress(struct.pack(">II", 0x801, 1) + bytes(1)))
    with _raises(datasetd.DataLoss, path):
        _load(world, "gz", format="mnist")


def test_label_out_of_range(world):
    record = bytes([10]) + bytes(3072)
    path = _write(world, "label", "test_batch.bin",
                  bytes(harness.CIFAR_RECORD_BYTES) + record)
    with _raises(datasetd.InvalidArgument, path, "record 1", "label is 10",
                 "0 to 9"):
        _load(world, "label")
    assert _state(world, "bad") == "DATASET_STATE_FAILED"


def _state(world, name):
    return {d["name"]: d["state"] for d in world.client.list_datasets()}[name]


def test_zero_samples(world):
    path = _write(world, "empty", "test_batch.bin", b"")
    with _raises(datasetd.InvalidArgument, path, "zero samples"):
        _load(world, "empty")


def test_fifo_and_directory_in_the_place_of_a_file(world):
    os.makedirs(os.path.join(world.data_root, "fifo"), exist_ok=True)
    fifo = os.path.join(world.data_root, "fifo", "test_batch.bin")
    os.mkfifo(fifo)
    with _raises(datasetd.InvalidArgument, fifo, "FIFO"):
        _load(world, "fifo")
    os.makedirs(os.path.join(world.data_root, "dir", "test_batch.bin"))
    with _raises(datasetd.InvalidArgument, "a directory"):
        _load(world, "dir")


def test_npy_with_a_lying_header(world):
    def npy(shape, dtype="|u1", body=b""):
        text = ("{'descr': '%s', 'fortran_order': False, 'shape': %s, }"
                % (dtype, shape))
        text += " " * (-(10 + len(text) + 1) % 64) + "\n"
        return (b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text))
                + text.encode() + body)

    huge = _write(world, "npy", "image.npy", npy((2**40, 2**20, 2**10, 3)))
    with _raises(datasetd.InvalidArgument, huge):
        _load(world, "npy", format="npy", split=None)
    lying = _write(world, "npy", "image.npy", npy((10, 4, 4, 3), body=b"1234"))
    with _raises(datasetd.DataLoss, lying):
        _load(world, "npy", format="npy", split=None)
    _write(world, "npy", "image.npy", npy((0, 4, 4, 3)))
    with _raises(datasetd.InvalidArgument, "samples"):
        _load(world, "npy", format="npy", split=None)
    objects = _write(world, "npy", "image.npy", npy((2,), "|O"))
    with _raises(datasetd.InvalidArgument, objects):
        _load(world, "npy", format="npy", split=None)


# -- Paths -------------------------------------------------------------------


def test_paths_outside_the_roots(world):
    for path in ("/etc", "/", world.directory,
                 "/proc/self/root" + world.path):
        with _raises(datasetd.PermissionDenied, "data root",
                     "as seen by the daemon"):
            world.client.load_dataset("bad", format="cifar10", path=path)
    # Nothing is there for this process, either.
    with _raises(datasetd.NotFound, "no such file or directory"):
        _load(world, "../data-other")


def test_dots_that_lead_out_of_the_root(world):
    # As no client library would send it.
    with harness.Session(world.socket_path) as session:
        for path in (f"{world.data_root}/../../etc",
                     f"{world.data_root}/good/../../d.sock"):
            answer = session.call(
                "DatasetService.LoadDataset",
                spec={"name": "bad", "format": "cifar10", "path": path})
            assert answer["code"] == 7, answer
            assert world.data_root in answer["message"]
        for path in ("relative", ""):
            answer = session.call(
                "DatasetService.LoadDataset",
                spec={"name": "bad", "format": "cifar10", "path": path})
            assert answer["code"] == _INVALID_ARGUMENT, answer
        answer = session.call(
            "DatasetService.LoadDataset",
            spec={"name": "bad", "format": "cifar10",
                  "path": world.path + "\0/../../x"})
        assert answer["code"] == _INVALID_ARGUMENT, answer
        assert "NUL" in answer["message"]


def test_links_that_lead_out_of_the_root(world):
    outside = os.path.join(world.directory, "outside")
    harness.write_cifar10_test(outside, 10)
    link = os.path.join(world.data_root, "link")
    os.symlink(outside, link)
    with _raises(datasetd.PermissionDenied, link, "leads out"):
        _load(world, "link")
    linked = os.path.join(world.data_root, "linked")
    os.makedirs(linked)
    os.symlink(os.path.join(outside, "test_batch.bin"),
               os.path.join(linked, "test_batch.bin"))
    with _raises(datasetd.PermissionDenied, "leads out"):
        _load(world, "linked")


# -- Specs -------------------------------------------------------------------


def test_unknown_format_option_split_and_name(world):
    with _raises(datasetd.InvalidArgument, "cifar11", "cifar10"):
        _load(world, "good", format="cifar11")
    with _raises(datasetd.InvalidArgument, "colour"):
        _load(world, "good", options={"colour": "red"})
    with _raises(datasetd.InvalidArgument, "valid"):
        _load(world, "good", split="valid")
    for name in ("", "../x", "a b", "-a", "x" * 129, "\u00e9"):
        with _raises(datasetd.InvalidArgument, "name"):
            _load(world, "good", name=name)


def test_unknown_device(world):
    for device in ("cuda:0", "tpu:0"):
        with _raises(datasetd.InvalidArgument, device, "cpu"):
            _load(world, "good", device=device)


def test_unknown_dataset(world):
    with _raises(datasetd.NotFound, "'other'", "good"):
        world.client.get_dataset("other")
    with _raises(datasetd.NotFound, "'other'"):
        world.client.unload_dataset("other")
    with harness.Session(world.socket_path) as session:
        answer = session.call("FeedService.OpenFeed",
                              options={"dataset": "other", "batch_size": 1})
        assert answer["code"] == _NOT_FOUND, answer
        assert "'other'" in answer["message"]


def test_a_name_used_twice_with_another_spec(world):
    harness.write_cifar10_test(os.path.join(world.data_root, "good2"), 10)
    with _raises(datasetd.AlreadyExists, "'good'", world.path):
        _load(world, "good2", name="good")
    with _raises(datasetd.AlreadyExists, "'good'"):
        _load(world, "good", name="good",
              pretransforms=[T.CenterCrop(16)])


def test_random_op_as_pretransform_and_unknown_field(world):
    with _raises(datasetd.InvalidArgument, "random"):
        _load(world, "good", pretransforms=[T.RandomHorizontalFlip()])
    with _raises(datasetd.InvalidArgument, "'depth'"):
        _load(world, "good", pretransforms={"depth": [T.CenterCrop(8)]})


def test_over_budget_names_both_numbers(world):
    num_samples = 30000
    harness.write_cifar10_test(os.path.join(world.data_root, "big"),
                               num_samples)
    with _raises(datasetd.ResourceExhausted, "'bad'",
                 num_samples * harness.CIFAR_RECORD_BYTES,
                 _BUDGET_MIB << 20):
        _load(world, "big")


# -- Feeds -------------------------------------------------------------------


def test_batch_size_zero(world):
    with _raises(datasetd.InvalidArgument, "batch_size=0"):
        datasetd.DataLoader(world.dataset, batch_size=0)
    _expect_open_error(world, _INVALID_ARGUMENT, "batch_size", batch_size=0)


def test_batch_size_larger_than_memory(world):
    with _raises(datasetd.ResourceExhausted, _BUDGET_MIB << 20):
        datasetd.DataLoader(world.dataset, batch_size=10**6)
    for batch_size in (2**31, 2**32 - 1):
        with pytest.raises((datasetd.ResourceExhausted,
                            datasetd.InvalidArgument)) as raised:
            datasetd.DataLoader(world.dataset, batch_size=batch_size)
        assert str(batch_size) in str(raised.value) or str(
            _BUDGET_MIB << 20) in str(raised.value)


def _expect_open_error(world, code, *texts, **options):
    with harness.Session(world.socket_path) as session:
        answer = session.call(
            "FeedService.OpenFeed",
            options={"dataset": "good", "batch_size": 10, **options})
    assert answer["code"] == code, answer
    for text in texts:
        assert text in answer["message"], answer


def test_bad_feed_options(world):
    expect = _expect_open_error
    expect(world, _INVALID_ARGUMENT, "rank", rank=3, world_size=3)
    expect(world, _INVALID_ARGUMENT, "prefetch", prefetch=0)
    expect(world, _INVALID_ARGUMENT, "prefetch", prefetch=63)
    expect(world, _INVALID_ARGUMENT, "name", name="x" * 129)
    expect(world, _INVALID_ARGUMENT, "cuda:0", "cpu", device="cuda:0")
    expect(world, _INVALID_ARGUMENT, "start",
           start={"epoch": 0, "batch": 101})
    expect(world, _INVALID_ARGUMENT, "start",
           start={"epoch": str(2**32), "batch": 0})
    expect(world, _INVALID_ARGUMENT, "depth", "image", "label",
           fields={"depth": {"layout": "LAYOUT_NHWC"}})
    expect(world, _INVALID_ARGUMENT, "layout",
           fields={"image": {"layout": 17}})


def test_unknown_transform_and_key(world):
    with pytest.raises(AttributeError, match="NoSuchOp"):
        T.NoSuchOp()
    with pytest.raises(TypeError, match="colour"):
        T.RandomCrop(32, colour=3)
    with _raises(datasetd.InvalidArgument, "transforms"):
        datasetd.DataLoader(world.dataset, batch_size=4,
                            transforms=["flip"])
    # A transform that a newer client knows is an empty one here.
    _expect_open_error(world, _INVALID_ARGUMENT, "unknown transform",
                       "transforms[1]",
                       fields={"image": {"transforms": [
                           {"alternating_flip": {}}, {}]}})
    _expect_open_error(world, _INVALID_ARGUMENT, "padding_mode",
                       fields={"image": {"transforms": [
                           {"pad": {"padding_mode": 9}}]}})


def test_transforms_that_do_not_fit(world):
    for bad, texts in (
            ([T.RandomCrop(33)], ("33", "32")),
            ([T.RandomCrop(32, padding=40, padding_mode="reflect")], ("32",)),
            ([T.Normalize([0.5], [0.5])], ("Normalize",)),
            ([T.ToDtype("float32"), T.Normalize([0.5] * 2, [0.5] * 2)],
             ("Normalize",))):
        with _raises(datasetd.InvalidArgument, *texts):
            datasetd.DataLoader(world.dataset, batch_size=4, transforms=bad)


def test_normalize_by_zero(world):
    with _raises(datasetd.InvalidArgument, "Normalize: std"):
        T.Normalize([0.5] * 3, [0.0] * 3)
    _expect_open_error(
        world, _INVALID_ARGUMENT, "Normalize",
        fields={"image": {"transforms": [
            {"to_dtype": {"dtype": "DTYPE_FLOAT32"}},
            {"normalize": {"mean": [0, 0, 0], "std": [1, 1, 0]}}]}})


def test_seek_beyond_the_last_epoch_is_an_error_and_no_hang(world):
    with datasetd.DataLoader(world.dataset, batch_size=500, prefetch=1,
                             timeout=30) as loader:
        loader.set_epoch(2**32)
        with _raises(datasetd.InvalidArgument, "epoch 4294967296"):
            next(iter(loader))
        loader.set_epoch(2**32 - 1)
        assert sum(1 for _ in loader) == 2
        with _raises(datasetd.InvalidArgument, "epoch 4294967296"):
            next(iter(loader))
        loader.set_epoch(0)
        assert sum(1 for _ in loader) == 2


def test_long_texts_are_refused(world):
    with _raises(datasetd.InvalidArgument, "expected at most 4096"):
        _load(world, "x" * 30000)
    with _raises(datasetd.InvalidArgument, "format: has 100000 bytes"):
        _load(world, "good", format="x" * 100000)


# -- Sessions and versions ---------------------------------------------------


def test_calls_end_with_their_session(world):
    requests = {
        "ServerService.GetStatus": {},
        "FeedService.ListFeeds": {},
        "FeedService.OpenFeed": {
            "options": {"dataset": "good", "batch_size": 1}},
        "DatasetService.ListDatasets": {},
        "DatasetService.GetDataset": {"name": "good"},
        "DatasetService.LoadDataset": {
            "spec": {"name": "bad", "format": "cifar10", "path": world.path}},
        "DatasetService.UnloadDataset": {"name": "good", "force": True},
        "DatasetService.ReleaseDataset": {"name": "good"},
    }
    with harness.Session(world.socket_path) as session:
        assert session.call("ServerService.GetStatus")["code"] == 0
        assert session.call("FeedService.CloseFeed")["code"] == _UNIMPLEMENTED
        session.connection.close()
        harness.poll_until(
            lambda: session.call("ServerService.GetStatus")["code"]
            == _UNAVAILABLE, "the session's end")
        for method, request in requests.items():
            answer = session.call(method, **request)
            assert answer["code"] == _UNAVAILABLE, (method, answer)


def test_the_feed_of_another_session(world):
    with harness.Session(world.socket_path) as owner, wire.Session(
            world.socket_path) as other:
        opened = owner.call(
            "FeedService.OpenFeed",
            options={"dataset": "good", "batch_size": 10, "prefetch": 2})
        feed_id = int(opened["responses"][0]["feed_id"])
        for token, expected in ((other.token, _NOT_FOUND),
                                (bytes(16), _UNAUTHENTICATED)):
            connection, packet, descriptors = wire.attach_feed(
                world.socket_path, token, feed_id)
            with connection:
                code, _ = wire.parse_refused(packet)
                assert code == expected and not descriptors
        with wire.RawFeed(world.socket_path, owner.token, feed_id) as feed:
            # Attached once is attached for good.
            connection, packet, descriptors = wire.attach_feed(
                world.socket_path, owner.token, feed_id)
            with connection:
                assert wire.parse_refused(packet)[0] == _NOT_FOUND
                assert not descriptors
            assert feed.num_slots() == 4
            feed.connection.send(wire.header(wire.DETACHED))


def test_a_client_of_another_protocol_version(world):
    # Clients up to version 2 look for a socket of this name.
    link = os.path.join(world.directory, "attach.sock")
    for version in (0, 1, 2, 4, 2**32 - 1):
        for kind in (wire.HELLO, wire.ATTACH_FEED):
            with wire.connect(link) as connection:
                connection.send(wire.header(kind, version=version))
                code, text = wire.parse_refused(connection.recv(512))
                assert code == _FAILED_PRECONDITION
                assert f"protocol {version}," in text and "speaks 3" in text
                assert "install the same version of both" in text
                assert connection.recv(1) == b""


def test_a_daemon_of_an_earlier_version(tmp_path):
    path = str(tmp_path / "datasetd.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        with _raises(datasetd.VersionMismatch, path, "earlier protocol",
                     "install the client that came with the daemon"):
            datasetd.connect(path, timeout=0)


if __name__ == "__main__":
    harness.main(__file__)
