"""Residency "mapped": datasets that are served from their file in the cache."""

import contextlib
import itertools
import os

import numpy as np
import pytest
from PIL import Image

from tests.testing import daemon_harness as harness
from tests.testing.memory_cgroup import MemoryCgroup
from tests.testing.restart_world import NUM_SAMPLES, World

harness.use_python_package()

import datasetd  # noqa: E402
from datasetd import transforms as T  # noqa: E402

SAMPLE_BYTES = 3 * 32 * 32


def _batches(dataset, **arguments):
    """Every batch of two epochs as copies."""
    found = []
    with datasetd.DataLoader(dataset, framework="numpy", **arguments) as loader:
        for _ in range(2):
            found += [
                [np.array(values) for values in (batch.indices, *batch)]
                for batch in loader
            ]
    return found


def _expect_equal(ours, theirs, **arguments):
    arguments = {"batch_size": 64, "shuffle": True, "seed": 5, **arguments}
    ours, theirs = (_batches(d, **arguments) for d in (ours, theirs))
    assert len(ours) == len(theirs) > 0
    for ours_values, theirs_values in zip(ours, theirs):
        for a, b in zip(ours_values, theirs_values):
            np.testing.assert_array_equal(a, b)


def _held_bytes(client):
    (device,) = client.status()["devices"]
    return int(device.get("dataset_bytes", 0))


def _augment():
    return {"image": [T.RandomCrop(32, padding=4), T.RandomHorizontalFlip(),
                      T.ToDtype("float32", scale=True)]}


def test_the_same_batches_as_from_memory_and_after_a_restart():
    with World() as world:
        with world.daemon.connect() as client:
            mapped = world.load(client, residency="mapped")
            assert _held_bytes(client) == 0
            entry = world.datasets(client)["d"]
            assert entry["residency"] == "RESIDENCY_MAPPED"
            (place,) = entry["placements"]
            assert place["device"] == "cpu"
            assert int(place["host_bytes"]) >= NUM_SAMPLES * SAMPLE_BYTES
            assert int(place.get("device_bytes", 0)) == 0
            with World() as other, other.daemon.connect() as client_of_other:
                memory = other.load(client_of_other)
                assert mapped.content_hash == memory.content_hash
                _expect_equal(mapped, memory, transforms=_augment())
                _expect_equal(mapped, memory, batch_size=7)
        (file,) = world.entries()
        written = os.stat(file).st_mtime_ns, os.stat(file).st_ino
        for is_graceful in (False, True):
            world.restart(is_graceful)
            with world.daemon.connect() as client:
                world.await_state(client, "READY")
                world.check_samples_of(client.get_dataset("d"))
        assert os.stat(file).st_ino == written[1]
        assert ": used" in world.daemon.log()


def test_pushed_datasets_of_one_size_and_of_several():
    random = np.random.default_rng(3)
    images = random.integers(0, 256, (300, 9, 7, 3), np.uint8)
    sizes = random.integers(5, 40, (50, 2))
    sound = [{"sound": random.standard_normal(n).astype(np.float32)}
             for n in (0, *random.integers(0, 9000, 40), 0)]
    ragged = [{"image": random.integers(0, 256, (h, w, 3), np.uint8),
               "label": i} for i, (h, w) in enumerate(sizes)]
    crop = {"image": [T.Resize((16, 16))]}
    cut = datasetd.crops(500, "random", fill=2)
    with World() as world:
        with world.daemon.connect() as client:
            for residency in ("device", "mapped"):
                client.push_dataset(f"even-{residency}", {"image": images},
                                    residency=residency)
                client.push_dataset(f"sound-{residency}", sound, ragged=True,
                                    residency=residency)
                client.push_dataset(f"ragged-{residency}", ragged, ragged=True,
                                    residency=residency)
            _expect_equal(client.get_dataset("even-mapped"),
                          client.get_dataset("even-device"))
            _expect_equal(client.get_dataset("ragged-mapped"),
                          client.get_dataset("ragged-device"), batch_size=9,
                          transforms=crop)
            _expect_equal(client.get_dataset("sound-mapped"),
                          client.get_dataset("sound-device"), batch_size=9,
                          windows=cut)
            world.await_stored(6)
        world.restart()
        with world.daemon.connect() as client:
            for name in ("even-mapped", "even-device", "ragged-mapped",
                         "ragged-device", "sound-mapped", "sound-device"):
                world.await_state(client, "READY", name)
            _expect_equal(client.get_dataset("ragged-mapped"),
                          client.get_dataset("ragged-device"), batch_size=9,
                          transforms=crop)
            _expect_equal(client.get_dataset("sound-mapped"),
                          client.get_dataset("sound-device"), batch_size=9,
                          windows=cut)


def _write_folder(world, bad=()):
    random = np.random.default_rng(4)
    root = os.path.join(world.daemon.data_root, "folder")
    for i in range(40):
        directory = os.path.join(root, f"class{i % 3}")
        os.makedirs(directory, exist_ok=True)
        path = os.path.join(directory, f"{i:03}.png")
        if i in bad:
            with open(path, "wb") as file:
                file.write(b"no image")
        else:
            height, width = random.integers(8, 30, 2)
            Image.fromarray(random.integers(
                0, 256, (height, width, 3), np.uint8)).save(path)
    return root


def test_images_of_files_with_bad_ones_left_out():
    with World() as world:
        root = _write_folder(world, bad=(0, 17, 39))
        with world.daemon.connect() as client:
            one, two = (
                client.load_dataset(f"folder-{residency}",
                                    format="image_folder", path=root,
                                    bad_samples="skip", residency=residency)
                for residency in ("mapped", "device"))
            assert len(one) == len(two) == 37
            assert one.bad_samples == two.bad_samples != []
            _expect_equal(one, two, batch_size=8,
                          transforms={"image": [T.CenterCrop(8)]})
            world.await_stored(2)
        world.restart()
        with world.daemon.connect() as client:
            for name in ("folder-mapped", "folder-device"):
                world.await_state(client, "READY", name)
            one, two = (client.get_dataset(f"folder-{residency}")
                        for residency in ("mapped", "device"))
            assert one.bad_samples == two.bad_samples != []
            _expect_equal(one, two, batch_size=8,
                          transforms={"image": [T.CenterCrop(8)]})


def test_what_was_skipped_comes_back_when_its_cause_has_gone():
    """A sample above a limit that is raised: no change of its file."""
    with World(max_sample_memory_mib=1) as world:
        root = _write_folder(world, bad=(17,))
        large = np.random.default_rng(5).integers(
            0, 256, (700, 700, 3), np.uint8)
        Image.fromarray(large).save(os.path.join(root, "class0", "large.png"))
        residencies = ("mapped", "device")
        with world.daemon.connect() as client:
            for residency in residencies:
                dataset = client.load_dataset(
                    residency, format="image_folder", path=root,
                    bad_samples="skip", residency=residency)
                assert len(dataset) == 39
        harness.poll_until(
            lambda: "1 of its bad samples may be good when they are read again"
            in world.daemon.log(), "the log says why it is not stored")
        assert len(world.entries()) == 1
        del world.daemon.config["max_sample_memory_mib"]
        world.daemon.kill()
        world.daemon.write_config()
        world.daemon.start()
        with world.daemon.connect() as client:
            for residency in residencies:
                world.await_state(client, "READY", residency)
                dataset = client.get_dataset(residency)
                assert len(dataset) == 40
                (bad,) = dataset.bad_samples
                assert os.path.basename(bad.path) == "017.png"
            # The damaged file stays left out, and both are stored now.
            world.await_stored(2)


def test_pretransforms():
    ops = {"image": [T.Resize((24, 24))]}
    with World() as world, world.daemon.connect() as client:
        _expect_equal(world.load(client, "m", pretransforms=ops,
                                 residency="mapped"),
                      world.load(client, "d", pretransforms=ops))


def test_a_mixture_with_a_mapped_dataset():
    with World() as world, world.daemon.connect() as client:
        mapped = world.load(client, "m", residency="mapped")
        world.await_stored()
        (file,) = world.entries()
        memory = world.load(client)
        ours = datasetd.concat([mapped, memory])
        _expect_equal(ours, datasetd.concat([memory, memory]),
                      transforms=_augment())
        with datasetd.DataLoader(ours, batch_size=50, prefetch=1) as loader:
            os.truncate(file, 8192)
            with pytest.raises(datasetd.FeedFailed,
                               match="cannot be read any more"):
                for _ in range(2):
                    list(loader)


def test_a_file_that_is_cut_ends_its_feeds_alone():
    with World() as world, world.daemon.connect() as client:
        mapped = world.load(client, "m", residency="mapped")
        world.await_stored()
        (file,) = world.entries()
        other = world.load(client)
        with datasetd.DataLoader(mapped, batch_size=50, prefetch=1,
                                 framework="numpy") as loader, \
                datasetd.DataLoader(other, batch_size=50,
                                    framework="numpy") as loader_of_other:
            os.truncate(file, 8192)
            seen = 0
            with pytest.raises(datasetd.FeedFailed, match=(
                    f"{os.path.basename(file)}: cannot be read any more")):
                for _ in range(2):
                    for batch in loader:
                        # Batches that were published before are unchanged.
                        rows = batch.indices
                        assert (batch[0] == world.planes[rows]).all()
                        seen += len(rows)
            assert seen < NUM_SAMPLES
            for batch in loader_of_other:
                rows = batch.indices
                assert (batch[0] == world.planes[rows]).all()
        with pytest.raises(datasetd.DataLoss,
                           match="'m'.*unload it, and load it again"):
            datasetd.DataLoader(mapped, batch_size=50)
        client.unload_dataset("m", force=True)
        again = world.load(client, "m", residency="mapped")
        _expect_equal(again, other)


def test_a_clients_order_does_not_wait_for_a_file_that_was_cut():
    is_told = pytest.raises(datasetd.FeedFailed,
                            match="cannot be read any more")
    with World() as world, world.daemon.connect() as client:
        mapped = world.load(client, residency="mapped")
        world.await_stored()
        (file,) = world.entries()
        options = {"batch_size": 50, "prefetch": 1, "framework": "numpy",
                   "timeout": 60}
        with datasetd.DataLoader(mapped, **options) as loader, \
                datasetd.DataLoader(mapped, sampler=range(200),
                                    **options) as loader_of_all:
            (images, _) = loader.fetch([2999, 1])
            assert (images == world.planes[[2999, 1]]).all()
            os.truncate(file, 8192)
            with pytest.raises(datasetd.DataLoss, match="unload it, and load"):
                loader.fetch([5, 2000])
            with is_told:
                for _ in loader_of_all:
                    pass


def test_what_mapped_needs():
    with World(has_cache=False) as world, world.daemon.connect() as client:
        with pytest.raises(datasetd.FailedPrecondition,
                           match="'mapped' needs the cache.*cache.directory"):
            world.load(client, residency="mapped")
        with pytest.raises(datasetd.InvalidArgument, match="residency"):
            world.load(client, residency="disk")
    with World() as world:
        world.daemon.kill()
        world.daemon.config["cache"]["limit_mib"] = 4
        world.daemon.write_config()
        world.daemon.start()
        with world.daemon.connect() as client:
            with pytest.raises(datasetd.ResourceExhausted,
                               match="raise cache.limit_mib"):
                world.load(client, residency="mapped")
            assert world.entries("") == [os.path.join(world.cache, "lock")]


def test_a_load_that_is_killed_leaves_nothing():
    with World() as world:
        world.write_dataset(60_000)
        source = """
client = datasetd.connect(ADDRESS)
say(ready=True)
load(client, residency="mapped")
say(ready=True)
hear()
"""
        with harness.Worker(source, world.daemon.socket_path,
                            path=world.path) as worker:
            harness.poll_until(lambda: world.entries(".cache.tmp"),
                               "the load begins")
            worker.kill()
            harness.poll_until(lambda: world.entries("") ==
                               [os.path.join(world.cache, "lock")],
                               f"its file goes: {world.daemon.log()}")
        with harness.Worker(source, world.daemon.socket_path,
                            path=world.path) as worker:
            harness.poll_until(lambda: world.entries(".cache.tmp"),
                               "the load begins again")
            world.daemon.kill()
            worker.kill()
        world.daemon.start()
        assert world.entries(".cache.tmp") == []
        with world.daemon.connect() as client:
            world.check_samples_of(world.load(client, residency="mapped"))


@contextlib.contextmanager
def _cgroup(limit_bytes):
    try:
        group = MemoryCgroup(limit_bytes)
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    with group:
        yield group


def test_a_set_of_three_times_the_memory():
    limit = 48 << 20
    with _cgroup(limit) as group, World(memory_budget_mib=32) as world:
        world.write_dataset(3 * limit // SAMPLE_BYTES)
        group.add(world.daemon.pid)
        with world.daemon.connect() as client:
            dataset = world.load(client, residency="mapped")
            assert len(dataset) * SAMPLE_BYTES >= 3 * limit - SAMPLE_BYTES
            world.check_samples_of(dataset)
            # Each of these waits for the disk.
            with datasetd.DataLoader(
                    dataset, batch_size=50, shuffle=True, seed=3, prefetch=1,
                    framework="numpy") as loader:
                for batch in itertools.islice(loader, 20):
                    rows = batch.indices
                    assert (batch[0] == world.planes[rows]).all()
        assert group.peak_bytes() <= limit
        world.daemon.kill()


@pytest.mark.parametrize("budget_mib", [0, 2048])
def test_a_load_beyond_the_control_group(tmp_path, budget_mib):
    """Is refused, by a derived budget or by what is free; the daemon lives."""
    limit_mib = 400
    with _cgroup(limit_mib << 20) as group:
        program = tmp_path / "datasetd-in-group"
        program.write_text(
            f"#!/bin/sh\necho $$ > {group.path}/cgroup.procs\n"
            f'exec {harness.daemon_program()} "$@"\n')
        program.chmod(0o755)
        with harness.Daemon(program=str(program),
                            memory_budget_mib=budget_mib) as daemon:
            path = os.path.join(daemon.data_root, "big")
            os.makedirs(path)
            np.lib.format.open_memmap(  # a file with holes
                os.path.join(path, "x.npy"), "w+", np.uint8, (600, 1 << 20))
            with daemon.connect() as client:
                budget = int(client.status()["devices"][0]["memory_budget_bytes"])
                for _ in range(2):
                    with pytest.raises(datasetd.ResourceExhausted):
                        client.load_dataset("big", format="npy", path=path,
                                            residency="device")
                assert client.status()["num_sessions"] == 1
            words = (f"memory_budget_mib is {budget_mib} MiB, and the control "
                     f"group of this process allows {limit_mib} MiB")
            assert (words in daemon.log()) == (budget_mib > 0)
            assert budget_mib > 0 or budget <= limit_mib << 20


if __name__ == "__main__":
    harness.main(__file__)
