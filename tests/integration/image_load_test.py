"""Folders and lists of images, end to end: the samples of torchvision's
ImageFolder, bad samples as asked, dry runs, progress, and loads given up."""

import io
import json
import os
import shutil
import subprocess
import threading

import numpy as np
import pytest
from PIL import Image

from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402
from datasetd import transforms as T  # noqa: E402

_IS_FULL = os.environ.get("DATASETD_TEST_FULL") == "1"
_BUDGET_MIB = 256
_CLASSES = ("Zebra", "ant", "bee")


def _picture(height, width, seed):
    """Smooth, so that JPEG keeps something of it."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 60 * np.sin(x / (9 + c) + seed) + 60 * np.cos(y / 7 + c)
              for c in range(3)]
    return Image.fromarray(
        np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8))


def _write_folder(root, count, size):
    """`count` images of each class; size(i) is (height, width)."""
    i = 0
    for name in _CLASSES:
        os.makedirs(os.path.join(root, name, "more"))
        for k in range(count):
            image = _picture(*size(i), seed=i)
            below = "more" if k % 5 == 4 else ""
            kind = ("jpg", "png", "JPEG", "bmp")[k % 4]
            path = os.path.join(root, name, below, f"{k}.{kind}")
            if kind == "png" and k % 8 == 1:
                image = image.convert("L")
            image.save(path)
            i += 1


def _sizes(i):
    return 40 + i % 13, 41 + i % 17


@pytest.fixture(name="world", scope="module")
def _world():
    with harness.Daemon(memory_budget_mib=_BUDGET_MIB) as daemon:
        daemon.folder = os.path.join(daemon.data_root, "ragged")
        _write_folder(daemon.folder, 12, _sizes)
        daemon.same = os.path.join(daemon.data_root, "same")
        _write_folder(daemon.same, 10, lambda i: (40, 48))
        daemon.client = daemon.connect()
        yield daemon
        daemon.client.close()


@pytest.fixture(autouse=True)
def _nothing_stays(world):
    yield
    for dataset in world.client.list_datasets():
        world.client.unload_dataset(dataset["name"])
    harness.poll_until(
        lambda: world.client.status()["devices"][0]["dataset_bytes"] == "0",
        "the memory of datasets")
    assert world.is_running()


def _copy(world, source, name):
    target = os.path.join(world.data_root, name)
    subprocess.run(["cp", "-r", source, target], check=True)
    return target


def _samples(dataset, batch_size=7, transforms=()):
    """All images [N, C, H, W] and labels [N], in order."""
    images, labels = [], []
    with datasetd.DataLoader(dataset, batch_size=batch_size,
                             transforms=transforms,
                             framework="numpy") as loader:
        for image, label in loader:
            images.append(np.array(image))
            labels.append(np.array(label))
    return np.concatenate(images), np.concatenate(labels)


def _torchvision(root, crop=None):
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import functional

    folder = ImageFolder(root)
    images = []
    for image, _ in folder:
        if crop:
            image = functional.center_crop(image, crop)
        images.append(np.asarray(image).transpose(2, 0, 1))
    return np.stack(images), np.array(folder.targets), folder.classes


# -- Samples -------------------------------------------------------------------


def test_images_of_one_size_are_those_of_image_folder(world):
    images, labels, classes = _torchvision(world.same)
    with world.client.load_dataset("a", "image_folder", world.same) as dataset:
        assert dataset.class_names == classes
        assert dataset.fields[0].shape == (40, 48, 3)
        assert dataset.num_bad_samples == 0 and dataset.bad_samples == []
        got, got_labels = _samples(dataset)
    np.testing.assert_array_equal(got_labels, labels)
    np.testing.assert_array_equal(got, images)


def test_images_of_any_size_become_one_by_a_pretransform(world):
    images, labels, _ = _torchvision(world.folder, crop=[36, 38])
    with world.client.load_dataset(
            "a", "image_folder", world.folder,
            pretransforms=[T.CenterCrop((36, 38))]) as dataset:
        assert dataset.fields[0].shape == (36, 38, 3)
        got, got_labels = _samples(dataset)
    np.testing.assert_array_equal(got_labels, labels)
    np.testing.assert_array_equal(got, images)


def test_images_are_resized_while_they_are_loaded(world):
    import torch
    from torchvision.transforms import functional

    folder = _image_folder(world.folder)
    expected = np.stack([
        functional.resize(
            torch.from_numpy(np.array(image)).permute(2, 0, 1).float(),
            [24, 28], antialias=True).numpy()
        for image, _ in folder])
    with world.client.load_dataset(
            "a", "image_folder", world.folder,
            pretransforms=[T.Resize((24, 28))]) as dataset:
        assert dataset.fields[0].shape == (24, 28, 3)
        got, _ = _samples(dataset)
    # Rounded once, to uint8.
    assert np.abs(got.astype(np.float32) - expected).max() < 0.51


def test_fast_decode_is_near_and_makes_the_same_size(world):
    root = os.path.join(world.data_root, "photos")
    os.makedirs(os.path.join(root, "one"))
    for i in range(5):
        _picture(300 + i, 400 - i, i).save(
            os.path.join(root, "one", f"{i}.jpg"))
    got = []
    for options in ({}, {"fast_decode": True}):
        with world.client.load_dataset(
                "a", "image_folder", root, options=options,
                pretransforms=[T.Resize((64, 80))]) as dataset:
            got.append(_samples(dataset)[0].astype(int))
        world.client.unload_dataset("a")
    difference = np.abs(got[0] - got[1])
    # A quarter of 301 rows is decoded as 76: images are stretched by 1 %.
    assert 0 < difference.mean() < 8
    assert difference[0].mean() < 2  # 300 x 400


def test_without_one_they_keep_their_sizes(world):
    images, labels, _ = _torchvision(world.folder, crop=[36, 38])
    with world.client.load_dataset("a", "image_folder",
                                   world.folder) as dataset:
        assert dataset.fields[0].shape == (-1, -1, 3)
        got, got_labels = _samples(dataset,
                                   transforms=[T.CenterCrop((36, 38))])
    np.testing.assert_array_equal(got_labels, labels)
    np.testing.assert_array_equal(got, images)


def test_a_split_is_a_directory_and_options_are_the_readers(world):
    with world.client.load_dataset(
            "a", "image_folder", world.data_root, split="same",
            options={"channels": 1, "apply_exif": True}) as dataset:
        assert dataset.fields[0].shape == (40, 48, 1)
    with pytest.raises(datasetd.InvalidArgument, match="option channels"):
        world.client.load_dataset("b", "image_folder", world.same,
                                  options={"channels": 7})


def test_a_list_of_files_and_labels(world):
    path = os.path.join(world.data_root, "list.csv")
    with open(path, "w") as file:
        file.write("path,label\nsame/bee/0.jpg,dog\nsame/ant/1.png,cat\n"
                   "same/ant/3.bmp,dog\n")
    with world.client.load_dataset("a", "image_csv", path) as dataset:
        assert dataset.class_names == ["cat", "dog"]
        images, labels = _samples(dataset)
    np.testing.assert_array_equal(labels, [1, 0, 1])
    expected = np.asarray(Image.open(f"{world.same}/bee/0.jpg"))
    np.testing.assert_array_equal(images[0], expected.transpose(2, 0, 1))


# -- Bad samples ---------------------------------------------------------------


def _spoil(root):
    """Spoils five of the images, and tells their paths in order."""
    jpeg = os.path.join(root, "Zebra", "0.jpg")
    with open(jpeg, "r+b") as file:
        file.truncate(os.path.getsize(jpeg) - 20)
    png = os.path.join(root, "Zebra", "1.png")
    with open(png, "r+b") as file:
        file.seek(60)
        file.write(b"\xff" * 40)
    text = os.path.join(root, "ant", "2.JPEG")
    with open(text, "w") as file:
        file.write("not an image")
    link = os.path.join(root, "ant", "3.bmp")
    os.unlink(link)
    os.symlink("/etc/hostname", link)
    huge = os.path.join(root, "bee", "0.jpg")
    with open(huge, "r+b") as file:
        data = file.read()
        frame = data.index(b"\xff\xc0")
        file.seek(frame + 5)
        file.write(b"\xea\x60\xea\x60")
    return [jpeg, png, text, link, huge]


@pytest.fixture(name="spoilt", scope="module")
def _spoilt(world):
    root = _copy(world, world.same, "spoilt")
    return root, _spoil(root)


def test_a_bad_sample_fails_the_load_and_is_named(world, spoilt):
    root, paths = spoilt
    with pytest.raises(datasetd.DataLoss) as error:
        world.client.load_dataset("a", "image_folder", root)
    assert paths[0] in str(error.value)
    assert "damaged JPEG" in str(error.value)
    assert "set bad_samples to skip" in str(error.value)


def test_bad_samples_are_left_out_and_reported(world, spoilt):
    root, paths = spoilt
    images, labels, _ = _torchvision(world.same)
    files = [path for path, _ in _image_folder(world.same).samples]
    bad = [files.index(path.replace(root, world.same)) for path in paths]
    with world.client.load_dataset("a", "image_folder", root,
                                   bad_samples="skip") as dataset:
        assert len(dataset) == len(labels) - 5
        assert dataset.num_bad_samples == 5
        assert [s.path for s in dataset.bad_samples] == paths
        assert [s.index for s in dataset.bad_samples] == bad
        reasons = [s.reason for s in dataset.bad_samples]
        for reason, words in zip(reasons, (
                "damaged JPEG", "damaged PNG", "expected a JPEG",
                "as seen by the daemon", "60000x60000")):
            assert words in reason
        got, got_labels = _samples(dataset)
        again = world.client.get_dataset("a")
        assert again.bad_samples == dataset.bad_samples
        again.close()
    kept = [i for i in range(len(labels)) if i not in bad]
    np.testing.assert_array_equal(got_labels, labels[kept])
    np.testing.assert_array_equal(got, images[kept])


def _image_folder(root):
    from torchvision.datasets import ImageFolder

    return ImageFolder(root)


def test_bad_samples_are_replaced_by_the_good_one_before(world, spoilt):
    root, paths = spoilt
    images, labels, _ = _torchvision(world.same)
    files = [path for path, _ in _image_folder(world.same).samples]
    bad = {files.index(path.replace(root, world.same)) for path in paths}
    source = []
    for i in range(len(labels)):
        source.append(i if i not in bad else
                      source[-1] if source else None)
    first = next(i for i in source if i is not None)
    source = [first if i is None else i for i in source]
    with world.client.load_dataset("a", "image_folder", root,
                                   bad_samples="replace") as dataset:
        assert len(dataset) == len(labels)
        assert dataset.num_bad_samples == 5
        got, got_labels = _samples(dataset)
    np.testing.assert_array_equal(got_labels, labels[source])
    np.testing.assert_array_equal(got, images[source])


def test_above_the_limit_the_load_fails(world, spoilt):
    root, paths = spoilt
    with pytest.raises(datasetd.Error) as error:
        world.client.load_dataset("a", "image_folder", root,
                                  bad_samples="skip", max_bad_samples=3)
    assert "4 bad samples, and max_bad_samples is 3" in str(error.value)
    assert paths[3] in str(error.value)
    with pytest.raises(datasetd.InvalidArgument, match="bad_samples"):
        world.client.load_dataset("a", "image_folder", root,
                                  bad_samples="ignore")


def test_bad_samples_on_the_command_line(world, spoilt):
    root, paths = spoilt
    ctl = harness.runfile("client/ctl/datasetctl")

    def run(*arguments, code=0):
        done = subprocess.run(
            [ctl, "--address", world.socket_path, *arguments],
            capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    load = ("load", "a", "--format", "image_folder", "--path", root)
    assert paths[0] in run(*load, code=1)
    assert "5 " in run(*load, "--bad_samples", "skip")
    text = run("datasets", "a")
    for path in paths:
        assert path in text
    assert "damaged PNG" in text
    listed = json.loads(run("--json", "datasets"))["datasets"][0]
    assert listed["num_bad_samples"] == "5" and listed["bad_samples"] == []


# -- Dry run -------------------------------------------------------------------


def test_a_dry_run_tells_what_the_load_then_takes(world):
    arguments = dict(format="image_folder", path=world.folder,
                     pretransforms=[T.CenterCrop(32)])
    estimate = world.client.load_dataset("a", dry_run=True, **arguments)
    assert world.client.list_datasets() == []
    assert estimate.problem == ""
    assert estimate.smallest == (40, 41)
    assert estimate.largest == (52, 57)
    assert estimate.num_classes == 3
    size = sum(os.path.getsize(path)
               for path, _ in _image_folder(world.folder).samples)
    assert estimate.source_bytes == size
    assert estimate.free_bytes == _BUDGET_MIB << 20
    assert 0 < estimate.host_bytes < 1 << 30
    with world.client.load_dataset("a", **arguments) as dataset:
        assert estimate.num_samples == len(dataset)
        assert estimate.fields == dataset.fields
        assert estimate.resident_bytes == dataset.resident_bytes
        used = int(world.client.status()["devices"][0]["dataset_bytes"])
        assert used == estimate.resident_bytes


def test_a_dry_run_tells_why_a_load_would_fail(world, spoilt):
    root, paths = spoilt
    estimate = world.client.load_dataset(
        "a", "image_folder", root, dry_run=True)
    # Damage that headers do not show is found by the load only.
    assert estimate.num_bad_samples == 3
    assert [s.path for s in estimate.bad_samples] == paths[2:]
    assert paths[2] in estimate.problem
    estimate = world.client.load_dataset(
        "a", "image_folder", root, dry_run=True, bad_samples="skip")
    assert estimate.problem == ""
    with pytest.raises(datasetd.NotFound):
        world.client.load_dataset("a", "image_folder",
                                  world.data_root + "/none", dry_run=True)


def test_a_dry_run_of_a_plain_format(world):
    path = os.path.join(world.data_root, "cifar")
    harness.write_cifar10_test(path, 50)
    estimate = world.client.load_dataset("a", "cifar10", path, split="test",
                                         dry_run=True)
    assert (estimate.num_samples, estimate.resident_bytes) == (50, 50 * 3073)
    assert estimate.smallest is None and estimate.problem == ""
    text = subprocess.run(
        [harness.runfile("client/ctl/datasetctl"), "--address",
         world.socket_path, "load", "a", "--format", "cifar10", "--path", path,
         "--split", "test", "--dry_run"],
        capture_output=True, text=True, timeout=60, check=True).stdout
    assert "nothing was loaded" in text and "image uint8 [32, 32, 3]" in text
    assert world.client.list_datasets() == []


# -- Progress and cancelling ----------------------------------------------------


@pytest.fixture(name="large", scope="module")
def _large(world):
    """As many images as keep the daemon at work for a while."""
    root = os.path.join(world.data_root, "large")
    _links(root, 3000)
    return root


def _links(root, count):
    """Makes a folder of links to one image."""
    os.makedirs(os.path.join(root, "one"))
    first = os.path.join(root, "one", "00000.jpg")
    _picture(600, 800, 1).save(first, quality=95)
    for i in range(1, count):
        os.link(first, os.path.join(root, "one", f"{i:05}.jpg"))


_CROP = [T.CenterCrop(16)]


def test_progress_tells_samples_rate_and_time_left(world, large):
    seen = []

    class Enough(Exception):
        pass

    def watch(dataset):
        progress = dataset.get("progress")
        if progress and int(progress["num_samples_loaded"]) > 0:
            seen.append((dataset, world.client.list_datasets()))
            raise Enough

    with pytest.raises(Enough):
        world.client.load_dataset("a", "image_folder", large,
                                  pretransforms=_CROP, progress=watch)
    dataset, listed = seen[0]
    progress = dataset["progress"]
    assert dataset["state"] == "DATASET_STATE_LOADING"
    assert int(progress["num_samples"]) == 3000
    rate = (int(progress["num_samples_loaded"]) /
            float(progress["elapsed_seconds"]))
    assert float(progress["samples_per_second"]) == pytest.approx(rate)
    left = 3000 - int(progress["num_samples_loaded"])
    assert float(progress["eta_seconds"]) == pytest.approx(left / rate)
    assert [d["state"] for d in listed] == ["DATASET_STATE_LOADING"]


def test_status_shows_what_is_being_loaded(world, large):
    started, stop = threading.Event(), threading.Event()

    def watch(dataset):
        if int((dataset.get("progress") or {}).get("num_samples", 0)):
            started.set()
        if stop.is_set():
            raise KeyboardInterrupt

    def load():
        with pytest.raises(KeyboardInterrupt):
            world.client.load_dataset("a", "image_folder", large,
                                      pretransforms=_CROP, progress=watch)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        assert started.wait(60)
        text = subprocess.run(
            [harness.runfile("client/ctl/datasetctl"), "--address",
             world.socket_path, "status"],
            capture_output=True, text=True, timeout=60, check=True).stdout
    finally:
        stop.set()
        thread.join()
    assert "loading a " in text and "/3000 samples" in text


@pytest.fixture(name="endless", scope="module")
def _endless(world):
    return harness.write_slow_shards(os.path.join(world.data_root, "endless"))


def test_a_scan_tells_how_far_it_is_and_can_be_given_up(world, endless):
    before = harness.Footprint(world, world.client)
    threads = world.num_threads()
    for dry_run in (False, True):
        seen = []

        def give_up(message):
            counts = message if dry_run else message.get("progress") or {}
            # 0 while the daemon was silent.
            if int(counts.get("num_entries_scanned", 0)) <= 1500:
                return
            seen.append(message)
            if not dry_run:
                seen.append(world.client.list_datasets())
                text = subprocess.run(
                    [harness.runfile("client/ctl/datasetctl"), "--address",
                     world.socket_path, "status"], capture_output=True,
                    text=True, timeout=60, check=True).stdout
                assert "loading a  scanning, " in text
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            world.client.load_dataset("a", "webdataset", endless,
                                      progress=give_up, dry_run=dry_run)
        if dry_run:
            assert int(seen[0]["num_samples"]) == 0
        else:
            for dataset in (seen[0], seen[1][0]):
                assert dataset["name"] == "a"
                assert dataset["state"] == "DATASET_STATE_LOADING"
                assert dataset["progress"]["is_scanning"]
                assert int(dataset["progress"]["num_entries_scanned"]) > 1500
        harness.poll_until(lambda: world.client.list_datasets() == [],
                           "the scan to end")
        harness.poll_until(lambda: world.num_threads() <= threads + 2,
                           "the thread that scans to end")
    harness.expect_footprint(world, world.client, before)


def _begin_scan(world, path, ended):
    """A thread that loads and appends what it meets; returns when its source
    is being scanned."""
    scanning = threading.Event()

    def load():
        try:
            with world.connect() as client:
                client.load_dataset("a", "webdataset", path,
                                    progress=lambda _: scanning.set())
        except datasetd.Error as error:
            ended.append(error)

    thread = threading.Thread(target=load)
    thread.start()
    assert scanning.wait(60)
    return thread


def test_a_load_is_a_dataset_while_its_source_is_scanned(world, endless):
    ended = []
    thread = _begin_scan(world, endless, ended)
    try:
        with world.connect() as other:
            dataset, = other.list_datasets()
            assert dataset["name"] == "a"
            assert dataset["progress"]["is_scanning"]
            # The name is taken from the first moment.
            with pytest.raises(datasetd.AlreadyExists, match="another spec"):
                other.load_dataset("a", "image_folder", world.folder,
                                   pretransforms=_CROP)
            other.unload_dataset("a")
    finally:
        thread.join()
    error, = ended
    assert "the load was cancelled" in str(error)
    harness.poll_until(lambda: world.client.list_datasets() == [],
                       "the scan to end")


def test_a_path_that_is_not_there_is_told_and_leaves_nothing(world):
    with pytest.raises(datasetd.NotFound, match="no such file or directory"):
        world.client.load_dataset(
            "a", "image_folder", os.path.join(world.data_root, "nowhere"))
    assert world.client.list_datasets() == []


def test_the_daemon_ends_while_a_source_is_scanned(world, endless):
    with harness.Daemon() as daemon:
        # Below its own root, of the same files.
        root = os.path.join(daemon.data_root, "endless")
        shutil.copytree(os.path.dirname(endless), root,
                        copy_function=os.link)
        ended = []
        thread = _begin_scan(
            daemon, os.path.join(root, os.path.basename(endless)), ended)
        daemon.terminate()
        assert daemon.wait() == 0
        thread.join()
        error, = ended
        assert "shutting down" in str(error)


def test_a_client_that_is_killed_while_its_source_is_scanned(world, endless):
    before = harness.Footprint(world, world.client)
    with harness.Worker(
            """
client = datasetd.connect(ADDRESS)
def tell(dataset):
    if dataset.get("progress"):
        say(scanning=dataset["progress"]["is_scanning"])
client.load_dataset("a", "webdataset", ARGUMENTS["path"], progress=tell)
""", world.socket_path, path=endless) as worker:
        assert worker.hear()["scanning"]
        worker.kill()
        worker.wait()
    harness.expect_footprint(world, world.client, before)
    harness.poll_until(lambda: world.client.list_datasets() == [],
                       "the scan to end")


def test_a_load_that_is_given_up_leaves_nothing(world, large):
    before = harness.Footprint(world, world.client)
    threads = world.num_threads()

    def give_up(dataset):
        progress = dataset.get("progress") or {}
        if int(progress.get("num_samples_loaded", 0)) > 0:
            raise KeyboardInterrupt

    for _ in range(3 if _IS_FULL else 1):
        with pytest.raises(KeyboardInterrupt):
            world.client.load_dataset("a", "image_folder", large,
                                      pretransforms=_CROP, progress=give_up)
        harness.expect_footprint(world, world.client, before)
        harness.poll_until(lambda: world.client.list_datasets() == [],
                           "the dataset to go")
    harness.poll_until(lambda: world.num_threads() <= threads + 2,
                       "the threads that decode to end")


def test_a_client_that_is_killed_while_it_loads(world, large):
    before = harness.Footprint(world, world.client)
    with harness.Worker(
            """
client = datasetd.connect(ADDRESS)
def tell(dataset):
    if int((dataset.get("progress") or {}).get("num_samples_loaded", 0)):
        say(loading=True)
client.load_dataset("a", "image_folder", ARGUMENTS["path"],
                    pretransforms=[T.CenterCrop(16)], progress=tell)
""", world.socket_path, path=large) as worker:
        worker.hear()
        worker.kill()
        worker.wait()
    harness.expect_footprint(world, world.client, before)
    harness.poll_until(lambda: world.client.list_datasets() == [],
                       "the dataset to go")


def _peak_bytes(world):
    """The most memory that the daemon ever had since _forget_peak."""
    with open(f"/proc/{world.pid}/status") as file:
        line = next(line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


def _forget_peak(world):
    with open(f"/proc/{world.pid}/clear_refs", "w") as file:
        file.write("5")


def test_the_peak_of_memory_is_within_what_a_dry_run_states(world):
    root = os.path.join(world.data_root, "many")
    _links(root, 150)
    arguments = dict(format="image_folder", path=root,
                     pretransforms=[T.Resize((96, 96))])
    estimate = world.client.load_dataset("a", dry_run=True, **arguments)
    # Staging, and for each processor a picture and its file: not 150 of them.
    assert estimate.host_bytes < (32 + 4 * os.cpu_count()) << 20
    with world.client.load_dataset("a", **arguments):  # threads and arenas
        pass
    world.client.unload_dataset("a")
    _forget_peak(world)
    before = _peak_bytes(world)
    with world.client.load_dataset("a", **arguments) as dataset:
        assert len(dataset) == 150
    grown = _peak_bytes(world) - before
    # On the host backend the device's memory is the daemon's, too.
    assert estimate.resident_bytes < grown
    assert grown <= estimate.resident_bytes + estimate.host_bytes


def test_memory_is_bounded_whatever_images_declare(world):
    """PNGs of 6000 x 6000 black pixels: 108 MB each when decoded."""
    root = os.path.join(world.data_root, "black")
    os.makedirs(os.path.join(root, "one"))
    buffer = io.BytesIO()
    Image.new("RGB", (6000, 6000)).save(buffer, "PNG", compress_level=1)
    num_images = 10 if _IS_FULL else 4
    for i in range(num_images):
        with open(os.path.join(root, "one", f"{i}.png"), "wb") as file:
            file.write(buffer.getvalue())
    estimate = world.client.load_dataset(
        "a", "image_folder", root, pretransforms=[T.CenterCrop(16)],
        dry_run=True)
    peak = []

    def watch(_):
        peak.append(world.pss_bytes("Pss_Anon"))

    before = world.pss_bytes("Pss_Anon")
    with world.client.load_dataset(
            "a", "image_folder", root, pretransforms=[T.CenterCrop(16)],
            progress=watch) as dataset:
        assert len(dataset) == num_images
    # Beside what is stated: allocators, and a thread's stack.
    assert max(peak) - before < estimate.host_bytes + (128 << 20)
    with pytest.raises(datasetd.InvalidArgument, match="max_pixels"):
        world.client.load_dataset(
            "b", "image_folder", root, pretransforms=[T.CenterCrop(16)],
            options={"max_pixels": 1000000})


if __name__ == "__main__":
    harness.main(__file__)
