"""The daemon dies at any moment and comes back: jobs go on with the exact next
batch, datasets come back, from the cache where it is whole.

The number of SIGKILLs is $DATASETD_NUM_KILLS, the seed of their moments
$DATASETD_KILL_SEED.
"""

import contextlib
import ctypes
import gc
import glob
import itertools
import json
import os
import random
import socket
import struct
import subprocess
import threading
import time
import types
import weakref

import datasetd
import numpy as np
import pytest
from datasetd._feed import reconnecting_feed, recovery

from tests.testing import daemon_harness as harness
from tests.testing.restart_world import World, flip

_IS_FULL = os.environ.get("DATASETD_TEST_FULL") == "1"
_NUM_JOBS = 4
_NUM_KILLS = int(os.environ.get("DATASETD_NUM_KILLS", "4"))
_SEED = int(os.environ.get("DATASETD_KILL_SEED", "1"))

# Runs whole epochs until it is told to stop (at least one), and counts its
# batches where the test sees them. Says what every batch was.
_JOB = """
import hashlib
number = ARGUMENTS["number"]
counts = np.memmap(ARGUMENTS["counts"], np.int64, mode="r+")
client = datasetd.connect(ADDRESS)
if number % 2 and ARGUMENTS["by_name"]:
    ds = client.get_dataset("d")
else:
    ds = load(client)
loader = datasetd.DataLoader(
    ds, batch_size=29 + 13 * number, shuffle=number in (0, 3), seed=number,
    weights=np.arange(len(ds)) % 7 if number == 1 else None,
    drop_last=number == 3, framework="numpy", prefetch=1 + number,
    reconnect=50,
    transforms=[T.RandomCrop(32, padding=4), T.RandomHorizontalFlip()])
stop = threading.Event()
threading.Thread(target=lambda: (hear(), stop.set()), daemon=True).start()
say(opened=True)
batches = []
epochs = ARGUMENTS["epochs"]
while len(batches) < 1 or (not stop.is_set() if epochs is None
                           else batches[-1][0] < epochs - 1):
    for batch in loader:
        digest = hashlib.blake2b(digest_size=16)
        digest.update(batch.indices.tobytes())
        digest.update(batch[0].tobytes())
        digest.update(batch[1].tobytes())
        batches.append((batch.epoch, batch.index, digest.hexdigest()))
        if number == 1 and batch.index % 30 == 2:
            loader.set_weights((np.arange(len(ds)) + len(batches)) % 7)
        counts[number] += 1
    if epochs is not None and batches[-1][0] >= epochs - 1:
        break
with open(ARGUMENTS["out"], "w") as out:
    json.dump(batches, out)
loader.close()
say(epochs=batches[-1][0] + 1)
"""


def _job(world, number, epochs, by_name):
    counts = os.path.join(world.directory, "counts")
    if not os.path.exists(counts):
        np.zeros(_NUM_JOBS, np.int64).tofile(counts)
    return harness.Worker(
        _JOB, world.daemon.socket_path, number=number, path=world.path,
        counts=counts, epochs=epochs, by_name=by_name,
        out=os.path.join(world.directory, f"job{number}"))


def _sequences(world):
    sequences = []
    for number in range(_NUM_JOBS):
        with open(os.path.join(world.directory, f"job{number}")) as file:
            sequences.append(file.read())
    return sequences


def test_a_socket_that_listens_for_a_daemon_that_is_not_there_yet():
    """As systemd's does, for as long as the daemon takes to start."""
    with World() as world:
        client = datasetd.connect(world.daemon.socket_path, timeout=0.5)
        with client, datasetd.DataLoader(
                world.load(client), batch_size=100, framework="numpy",
                prefetch=1, reconnect=100) as loader:
            expected = iter(loader)
            seen = next(expected).indices.tolist()
            world.daemon.kill()
            with socket.socket(socket.AF_UNIX,
                               socket.SOCK_SEQPACKET) as listener:
                if os.path.exists(world.daemon.socket_path):
                    os.unlink(world.daemon.socket_path)
                listener.bind(world.daemon.socket_path)
                listener.listen()
                listener.settimeout(60)
                rest, held = [], []
                job = threading.Thread(target=lambda: rest.extend(
                    i for b in expected for i in b.indices.tolist()))
                job.start()
                # It asks again when nobody has answered it.
                for _ in range(2):
                    held.append(listener.accept()[0])
            os.unlink(world.daemon.socket_path)
            world.daemon.start()
            job.join()
        assert sorted(seen + rest) == list(range(len(world.labels)))


@pytest.mark.parametrize(
    "is_graceful, is_before",
    itertools.product([False, True], repeat=2)
    if _IS_FULL
    else [(False, True), (True, False)],
)
def test_weights_that_were_set_come_back(is_graceful, is_before):
    """The rest of the epoch has the weights of its beginning, and the next one
    those that were set before the restart, or are after it."""
    with World() as world, world.daemon.connect() as client:
        ds = world.load(client)
        old, new = np.arange(len(ds)) % 7, np.arange(len(ds)) % 3

        def make(weights):
            return datasetd.DataLoader(
                ds, batch_size=100, seed=3, weights=weights, prefetch=2,
                framework="numpy", reconnect=50)

        def rows(batches):
            return [i for b in batches for i in b.indices.tolist()]

        expected = []
        for epoch, weights in enumerate((old, new, new)):
            with make(weights) as loader:
                loader.set_epoch(epoch)
                expected.append(rows(loader))
        with make(old) as loader:
            iterator = iter(loader)
            seen = rows(next(iterator) for _ in range(5))
            if is_before:
                loader.set_weights(new)
            world.restart(is_graceful)
            if not is_before:
                loader.set_weights(new)
            state = loader.state_dict()
            assert state["weights"] != state["next_weights"]
            assert [seen + rows(iterator), rows(loader)] == expected[:2]
            world.restart(is_graceful)
            assert rows(loader) == expected[2]


def test_the_rest_of_an_epoch_begins_at_its_place_after_sigkill():
    """A state of 2 ranks, resumed by 1; the daemon dies in that epoch."""
    def make(ds, rank, world_size, batch_size):
        return datasetd.DataLoader(
            ds, batch_size=batch_size, shuffle=True, seed=3, rank=rank,
            world_size=world_size, framework="numpy", reconnect=50)

    with World(has_cache=True, has_state=True) as world:
        with world.daemon.connect() as client:
            ds = world.load(client)
            indices = []
            for rank in range(2):
                with make(ds, rank, 2, 100) as loader:
                    iterator = iter(loader)
                    for _ in range(7):
                        indices.extend(next(iterator).indices.tolist())
                    state = loader.state_dict()
            with make(ds, 0, 1, 150) as loader:
                loader.load_state_dict(state)
                for number, batch in enumerate(loader):
                    assert (batch.epoch, batch.index) == (0, number)
                    indices.extend(batch.indices.tolist())
                    if number % 20 == 1:
                        world.restart()
        assert sorted(indices) == list(range(len(ds)))


@pytest.mark.parametrize("is_warm", [True, False], ids=["warm", "cold"])
def test_sigkill_during_epochs_changes_no_batch(is_warm):
    print(f"seed {_SEED}, {_NUM_KILLS} kills")
    moments = random.Random(_SEED + is_warm)
    # How many batches a job takes until then. All jobs do, without a pause.
    counts_between = [0, 1, 7, 50, 200] if _IS_FULL else [0, 1, 7, 30]
    with World(has_cache=is_warm, has_state=is_warm) as world:
        if not _IS_FULL:
            world.write_dataset(1000)
        with world.daemon.connect() as client:
            world.load(client)
        if is_warm:
            world.await_stored()
        with contextlib.ExitStack() as stack:
            jobs = [stack.enter_context(
                _job(world, number, epochs=None, by_name=is_warm))
                for number in range(_NUM_JOBS)]
            for job in jobs:
                assert job.hear() == {"opened": True}
            counts = np.memmap(os.path.join(world.directory, "counts"),
                               np.int64, mode="r")
            for _ in range(_NUM_KILLS):
                job = moments.randrange(_NUM_JOBS)
                # Also at once: while they reconnect, or the dataset loads.
                wanted = counts[job] + moments.choice(counts_between)
                harness.poll_until(lambda: counts[job] >= wanted,
                                   f"job {job} goes on")
                world.restart()
            for job in jobs:
                job.tell(stop=True)
            epochs = [job.hear()["epochs"] for job in jobs]
        disturbed = _sequences(world)
        with contextlib.ExitStack() as stack:
            jobs = [stack.enter_context(
                _job(world, number, epochs=epochs[number], by_name=False))
                for number in range(_NUM_JOBS)]
            for job in jobs:
                job.hear()
            assert [job.hear()["epochs"] for job in jobs] == epochs
        assert _sequences(world) == disturbed
        log = world.daemon.log()
        if is_warm:
            # The source was read once; every later load found the cache.
            assert log.count(": stored") == 1
            assert ": used" in log
        assert "damaged" not in log


def test_datasets_of_clients_come_back():
    with World() as world:
        with world.daemon.connect() as client:
            world.load(client, "keep")
            world.load(client, "gone")
            client.unload_dataset("gone")
            spec_id = world.datasets(client)["keep"]["spec_id"]
        for _ in range(2):
            world.restart()
            with world.daemon.connect() as client:
                world.await_state(client, "READY", "keep")
                datasets = world.datasets(client)
                assert list(datasets) == ["keep"]
                assert datasets["keep"]["spec_id"] == spec_id
                assert datasets["keep"]["owner_uid"] == os.getuid()
                assert datasets["keep"]["num_holders"] == 0
        with world.daemon.connect() as client:
            world.load(client, "keep")
            client.unload_dataset("keep")
        world.restart()
        with world.daemon.connect() as client:
            assert world.datasets(client) == {}


def test_a_clean_stop_stores_what_was_pushed():
    values = np.arange(16 << 20, dtype=np.int32).reshape(-1, 1 << 10)
    with World(drain_timeout="60s") as world:
        with world.daemon.connect() as client:
            client.push_dataset("p", {"x": values})
        world.restart(is_graceful=True)
        with world.daemon.connect() as client:
            world.await_state(client, "READY", "p")
            with datasetd.DataLoader(
                    client.get_dataset("p"), batch_size=1024, shuffle=False,
                    framework="numpy") as loader:
                np.testing.assert_array_equal(
                    np.concatenate([batch[0].copy() for batch in loader]),
                    values)


def test_what_cannot_come_back_is_failed_until_it_is_unloaded():
    with World(has_cache=False) as world:
        with world.daemon.connect() as client:
            world.load(client)
        hidden = world.path + ".hidden"
        os.rename(world.path, hidden)
        world.restart()
        with world.daemon.connect() as client:
            world.await_state(client, "FAILED")
            assert "no such file" in world.datasets(client)["d"]["error"]
            with pytest.raises(datasetd.FailedPrecondition,
                               match="dataset 'd' is not there.*no such file"):
                client.get_dataset("d")
        # It is not forgotten: the disk may be mounted later.
        os.rename(hidden, world.path)
        world.restart()
        with world.daemon.connect() as client:
            world.await_state(client, "READY")
        os.rename(world.path, hidden)
        world.restart()
        with world.daemon.connect() as client:
            world.await_state(client, "FAILED")
            client.unload_dataset("d")
        os.rename(hidden, world.path)
        world.restart()
        with world.daemon.connect() as client:
            assert world.datasets(client) == {}


def _replace_in_list(state, old, new):
    """Writes the list of datasets as version 1, with bytes replaced by as many
    others."""
    (path,) = glob.glob(os.path.join(state, "*.manifest"))
    with open(path, "rb") as file:
        data = file.read()
    (count,) = struct.unpack_from("<I", data, 12)
    begin, message = 24 + 16 * count, b""
    for i in range(count):
        (size,) = struct.unpack_from("<Q", data, 24 + 16 * i)
        message += b"\n" + _varint(size) + data[begin : begin + size]
        begin += size
    assert message.count(old) == 1
    message = message.replace(old, new)
    checksum = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
    checksum.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    checksum.restype = ctypes.c_uint64
    with open(path, "wb") as file:
        file.write(
            b"dsdmanif"
            + struct.pack("<II", 1, len(message))
            + struct.pack("<Q", checksum(message, len(message)))
            + message
        )


def _varint(number):
    if number < 128:
        return bytes([number])
    return bytes([number & 127 | 128]) + _varint(number >> 7)


def test_a_format_that_an_older_daemon_read_comes_back_failed():
    with World() as world:
        arrays = os.path.join(world.daemon.data_root, "arrays")
        os.mkdir(arrays)
        np.save(os.path.join(arrays, "x"), np.arange(20))
        with world.daemon.connect() as client:
            world.load(client)
            client.load_dataset("old", format="npy", path=arrays)
        world.await_stored(2)
        world.daemon.kill()
        _replace_in_list(world.state, b"\x03npy", b"\x03npz")
        world.daemon.start()
        with world.daemon.connect() as client:
            world.await_state(client, "READY")
            world.await_state(client, "FAILED", "old")
            error = world.datasets(client)["old"]["error"]
            assert 'format "npz" is read by the job: python -m' in error
            client.unload_dataset("old")
            with client.push_dataset("old", {"x": np.arange(20)}) as dataset:
                assert len(dataset) == 20
        world.restart()
        with world.daemon.connect() as client:
            world.await_state(client, "READY")


def test_a_loader_waits_for_a_dataset_that_is_loading():
    # Enough for the load to take longer than the start.
    with World(has_cache=False) as world:
        world.write_dataset(100_000)
        with world.daemon.connect() as client:
            world.load(client)
        with world.daemon.connect() as client:
            dataset = client.get_dataset("d")
            loader = datasetd.DataLoader(
                dataset, batch_size=1000, framework="numpy", prefetch=1,
                reconnect=50)
            rows = []
            for batch in loader:
                rows += batch.indices.tolist()
                if batch.index == 3:
                    world.restart()
            assert rows == list(range(100_000))
            # And at the beginning of an epoch.
            world.restart()
            assert next(iter(loader)).epoch == 1
            loader.close()


def test_a_loader_that_is_opened_after_another_one_has_reconnected():
    """The daemon that is there then may not have its dataset yet."""
    def make(dataset):
        return datasetd.DataLoader(
            dataset, batch_size=100, framework="numpy", prefetch=1,
            reconnect=50)

    def count(loader):
        return sum(1 for _ in loader)

    with World(has_cache=False, has_state=False) as world:
        with world.daemon.connect() as client:
            train = world.load(client, "train")
            test = world.load(client, "test")
            with make(train) as loader, make(test) as old:
                old.set_epoch(3)
                assert next(iter(old)).epoch == 3
                world.restart()
                assert count(loader) == 30
                assert list(world.datasets(client)) == ["train"]
                # Opens another feed of the old loader.
                old.load_state_dict({**old.state_dict(), "seed": 7})
                assert count(old) == 29
                client.unload_dataset("test", force=True)
                harness.poll_until(
                    lambda: list(world.datasets(client)) == ["train"],
                    "the end of the old loader's feed")
                with pytest.raises(datasetd.NotFound, match="'test'"):
                    make(test)
                world.restart()
                assert count(loader) == 30
                with make(test) as new:
                    assert count(new) == 30


@pytest.mark.parametrize("has_state", [False, True])
@pytest.mark.parametrize("is_by_name", [False, True])
def test_noise_comes_back(is_by_name, has_state):
    """Loaded again by the Dataset, or waited for where the daemon restores
    it."""
    if is_by_name and not has_state:
        return
    random = np.random.default_rng(1)
    with World(has_state=has_state) as world, world.daemon.connect() as client:
        loaded = {}
        for name, shape in (("clips", (300, 50)), ("street", (4, 900))):
            path = os.path.join(world.daemon.data_root, name)
            os.makedirs(path)
            audio = random.standard_normal(shape).astype(np.float32)
            np.save(os.path.join(path, "audio.npy"), audio)
            loaded[name] = client.load_dataset(name, "npy", path)
        noise = "street" if is_by_name else loaded["street"]
        with datasetd.DataLoader(
                loaded["clips"], batch_size=10, prefetch=1, framework="numpy",
                transforms={"audio": [datasetd.transforms.AddNoise(noise)]},
                reconnect=50) as loader:
            expected = [batch.audio.copy() for batch in loader]
            loader.set_epoch(0)
            iterator = iter(loader)
            found = [next(iterator).audio.copy() for _ in range(5)]
            world.restart()
            found += [batch.audio.copy() for batch in iterator]
            assert all(map(np.array_equal, found, expected))
            assert len(found) == len(expected) == 30
            # With other noise the loader does not go on.
            path = os.path.join(world.daemon.data_root, "street", "audio.npy")
            np.save(path, np.ones((4, 900), np.float32))
            iterator = iter(loader)
            next(iterator)
            world.restart()
            with pytest.raises(datasetd.FailedPrecondition,
                               match="'street' .*other samples"):
                for _ in iterator:
                    pass


def test_a_loader_that_reconnects_holds_all_datasets_of_its_client():
    """Else the new daemon might evict those of the others."""
    with World() as world, world.daemon.connect() as client:
        test = world.load(client, "test")
        with datasetd.DataLoader(
                world.load(client, "train"), batch_size=100, framework="numpy",
                prefetch=1, reconnect=50) as loader:
            iterator = iter(loader)
            next(iterator)
            world.restart()
            assert sum(1 for _ in iterator) == 29
            datasets = world.datasets(client)
            assert datasets["train"]["num_holders"] == 1
            assert datasets["test"]["num_holders"] == 1
        test.close()
        assert world.datasets(client)["test"]["num_holders"] == 0


def test_a_feed_that_was_refused_reconnects(monkeypatch):
    """The daemon is lost after it had no memory to open the feed anew."""
    def refuse(*_):
        raise datasetd.ResourceExhausted("no memory")

    with World() as world, world.daemon.connect() as client:
        loader = datasetd.DataLoader(
            world.load(client), batch_size=100, framework="numpy", prefetch=1,
            reconnect=50)
        loader.load_state_dict({**loader.state_dict(), "seed": 7})
        with monkeypatch.context() as patch:
            patch.setattr(reconnecting_feed, "Feed", refuse)
            for _ in range(2):
                with pytest.raises(datasetd.ResourceExhausted,
                                   match="no memory .to open the loader's"):
                    next(iter(loader))
        world.restart()
        assert sum(1 for _ in loader) == 30


def test_close_ends_the_wait_for_a_daemon(monkeypatch):
    with World() as world, world.daemon.connect() as client:
        is_waiting = threading.Event()

        def pause(seconds):
            is_waiting.set()
            time.sleep(seconds)

        monkeypatch.setattr(recovery, "time", types.SimpleNamespace(
            monotonic=time.monotonic, sleep=pause))
        loader = datasetd.DataLoader(
            world.load(client), batch_size=100, framework="numpy", prefetch=1,
            reconnect=50)
        iterator = iter(loader)
        next(iterator)
        world.daemon.kill()
        errors = []

        def take():
            try:
                for _ in iterator:
                    pass
            except datasetd.Error as error:
                errors.append(error)

        thread = threading.Thread(target=take)
        thread.start()
        assert is_waiting.wait(harness.DEADLINE_SECONDS)
        loader.close()
        thread.join()
        assert [str(error) for error in errors] == ["the loader is closed"]
        assert isinstance(errors[0], datasetd.Closed)


def test_a_feed_that_is_opened_while_its_loader_closes_is_closed(monkeypatch):
    class ClosingFeed(reconnecting_feed.Feed):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            loader.close()

    with World() as world, world.daemon.connect() as client:
        loader = datasetd.DataLoader(
            world.load(client), batch_size=100, framework="numpy", prefetch=1,
            reconnect=50)
        iterator = iter(loader)
        next(iterator)
        monkeypatch.setattr(reconnecting_feed, "Feed", ClosingFeed)
        world.restart()
        with pytest.raises(datasetd.Closed, match="the loader is closed"):
            for _ in iterator:
                pass
        harness.poll_until(lambda: client.list_feeds() == [],
                           "the end of the feed")


def test_no_batch_is_kept_after_a_reconnection(monkeypatch):
    """Not by the errors of the attempts, either, which name their frames."""
    with World() as world, world.daemon.connect() as client:

        def pause(seconds):
            if not world.daemon.is_running():
                world.daemon.start()  # the first attempt has failed
            else:
                time.sleep(seconds)

        monkeypatch.setattr(recovery, "time", types.SimpleNamespace(
            monotonic=time.monotonic, sleep=pause))
        loader = datasetd.DataLoader(
            world.load(client), batch_size=100, framework="numpy", prefetch=1,
            reconnect=50)
        images = []
        gc.disable()
        try:
            for batch in loader:
                images.append(weakref.ref(batch[0]))
                alive = [i for i, image in enumerate(images)
                         if image() is not None]
                assert alive == [batch.index]
                if batch.index == 3:
                    world.daemon.kill()
        finally:
            gc.enable()
        assert len(images) == 30
        assert world.daemon.is_running()


def test_reconnect_ends_at_its_time():
    with World() as world, world.daemon.connect() as client:
        loader = datasetd.DataLoader(
            world.load(client), batch_size=100, framework="numpy", prefetch=1,
            reconnect=0.5)
        iterator = iter(loader)
        next(iterator)
        world.daemon.kill()
        with pytest.raises(datasetd.DaemonGone):
            for _ in iterator:
                pass


def test_a_damaged_entry_of_the_list_costs_that_dataset():
    with World() as world:
        with world.daemon.connect() as client:
            world.load(client)
            world.load(client, "other")
        world.daemon.kill()
        (file,) = glob.glob(os.path.join(world.state, "*.manifest"))
        assert os.stat(file).st_mode & 0o777 == 0o600
        with open(file, "rb") as stream:
            flip(file, stream.read().index(world.path.encode()))  # that of "d"
        world.daemon.start()
        with world.daemon.connect() as client:
            assert list(world.datasets(client)) == ["other"]
        assert os.path.exists(file + ".damaged")
        assert "damaged in part" in world.daemon.log()
        world.restart()
        with world.daemon.connect() as client:
            world.await_state(client, "READY", "other")


def test_directories_that_cannot_be_used_end_the_start():
    with World() as world:
        path = os.path.join(world.directory, "second.yaml")
        for key, value, words in [
                ("cache", {"directory": world.cache}, "another datasetd"),
                ("state_directory", world.state, "another datasetd"),
                ("state_directory", "/proc/none", "cannot be made")]:
            with open(path, "w") as file:
                json.dump({"socket_path": world.directory + "/e.sock",
                           "devices": ["cpu"], key: value}, file)
            done = subprocess.run(
                [harness.runfile("server/datasetd"), f"--config={path}"],
                capture_output=True, text=True, timeout=60)
            assert done.returncode == 1, done.stderr
            assert words in done.stderr


if __name__ == "__main__":
    harness.main(__file__)
