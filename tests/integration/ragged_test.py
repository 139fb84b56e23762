"""Images of several sizes, resident as they are, end to end: batches against
torchvision's functional forms, restarts, pushes, pairs and refusals."""

import glob
import io
import json
import os
import subprocess
import tarfile

import numpy as np
import pytest
from PIL import Image

from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402
from datasetd import transforms as T  # noqa: E402

_COUNT = 30
_BOUND = 1.0 + 255e-5


def _size(i):
    return 20 + i * 7 % 41, 24 + i * 11 % 53


def _pixels(i):
    """[H, W, 3]"""
    height, width = _size(i)
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 60 * np.sin(x / (4 + c) + i) + 60 * np.cos(y / 5 + c)
              for c in range(3)]
    return np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)


@pytest.fixture(name="world", scope="module")
def _world(tmp_path_factory):
    cache = str(tmp_path_factory.mktemp("ragged") / "cache")
    state = str(tmp_path_factory.mktemp("ragged") / "state")
    with harness.Daemon(cache={"directory": cache, "limit_mib": 256},
                        state_directory=state) as daemon:
        daemon.folder = os.path.join(daemon.data_root, "folder")
        for i in range(_COUNT):
            below = os.path.join(daemon.folder, "ab"[i % 2])
            os.makedirs(below, exist_ok=True)
            Image.fromarray(_pixels(i)).save(
                os.path.join(below, f"{i:03}.png"))
        daemon.cache = cache
        yield daemon


@pytest.fixture(name="client")
def _client(world):
    with world.connect() as client:
        yield client
        for dataset in client.list_datasets():
            client.unload_dataset(dataset["name"])
    assert world.is_running()


# The folder's order is by class, then by name.
_ORDER = [i for i in range(_COUNT) if i % 2 == 0] + [
    i for i in range(_COUNT) if i % 2 == 1]


def _load(world, client, name="a", **arguments):
    return client.load_dataset(name, "image_folder", world.folder, **arguments)


def _batches(dataset, transforms, seed=0, **arguments):
    """{sample: array} of the first epoch, and the loader's rest."""
    images = {}
    with datasetd.DataLoader(dataset, batch_size=7, shuffle=True, seed=seed,
                             transforms=transforms, framework="numpy",
                             **arguments) as loader:
        for batch in loader:
            for index, image in zip(np.array(batch.indices),
                                    np.array(batch[0])):
                images[int(index)] = image
    return images


def _tensor(i):
    import torch

    return torch.from_numpy(_pixels(i)).permute(2, 0, 1).float()


# -- What is resident ----------------------------------------------------------


def test_a_folder_of_many_sizes_stays_as_it_is(world, client):
    sizes = [_size(i) for i in range(_COUNT)]
    packed = sum(-(-h * w * 3 // 16) * 16 for h, w in sizes)
    estimate = _load(world, client, dry_run=True)
    assert estimate.problem == ""
    dataset = _load(world, client)
    image, label = dataset.fields
    assert image.shape == (-1, -1, 3)
    assert image.smallest == tuple(np.min(sizes, axis=0))
    assert image.largest == tuple(np.max(sizes, axis=0))
    assert label.shape == () and label.smallest is None
    # Samples, and of each its place, its size and its label.
    assert dataset.resident_bytes == packed + _COUNT * (16 + 8)
    assert estimate.resident_bytes == dataset.resident_bytes
    assert estimate.fields == dataset.fields
    assert (int(client.status()["devices"][0]["dataset_bytes"])
            == dataset.resident_bytes)


def test_center_crops_are_torchvisions_to_the_bit(world, client):
    from torchvision.transforms import functional

    dataset = _load(world, client)
    got = _batches(dataset, [T.CenterCrop((31, 40))])
    assert len(got) == _COUNT
    for index, image in got.items():
        expected = functional.center_crop(_tensor(_ORDER[index]), [31, 40])
        np.testing.assert_array_equal(image, expected.numpy())


def test_resizes_are_torchvisions(world, client):
    from torchvision.transforms import functional

    dataset = _load(world, client)
    got = _batches(dataset, [T.Resize((24, 30)), T.ToDtype("float32")])
    for index, image in got.items():
        expected = functional.resize(_tensor(_ORDER[index]), [24, 30],
                                     antialias=True).numpy()
        assert np.abs(image - expected).max() <= _BOUND
    # The usual evaluation.
    got = _batches(dataset, [T.Resize(36), T.CenterCrop(32),
                             T.ToDtype("float32")])
    for index, image in got.items():
        expected = functional.center_crop(
            functional.resize(_tensor(_ORDER[index]), 36, antialias=True),
            [32, 32]).numpy()
        assert np.abs(image - expected).max() <= _BOUND


def test_random_resized_crops_are_torchvisions_for_what_explain_tells(
        world, client):
    from torchvision.transforms import functional

    dataset = _load(world, client)
    transforms = [T.RandomHorizontalFlip(), T.RandomResizedCrop(28),
                  T.ToDtype("float32")]
    got = _batches(dataset, transforms, seed=9)
    explained = client.explain(dataset, transforms, seed=9,
                               indices=range(_COUNT))
    num_flipped = 0
    for index, image in got.items():
        source = _tensor(_ORDER[index])
        for op in explained[index]:
            if not op.is_applied:
                continue
            if op.name == "HorizontalFlip":
                source = functional.hflip(source)
                num_flipped += 1
            elif op.name == "Resize":
                window = {name: int(op.parameters[name][0])
                          for name in ("top", "left", "height", "width")}
                height, width = _size(_ORDER[index])
                assert window["top"] + window["height"] <= height
                assert window["left"] + window["width"] <= width
                source = functional.resized_crop(
                    source, size=[28, 28], antialias=True, **window)
        assert np.abs(image - source.numpy()).max() <= _BOUND
    assert 0 < num_flipped < _COUNT


def test_random_crops_pad_what_is_too_small(world, client):
    dataset = _load(world, client)
    transforms = [T.RandomCrop((40, 50), pad_if_needed=True, fill=7)]
    got = _batches(dataset, transforms, seed=3)
    explained = client.explain(dataset, transforms, seed=3,
                               indices=range(_COUNT))
    for index, image in got.items():
        source = _pixels(_ORDER[index])
        for op in explained[index]:
            values = {k: [int(x) for x in v] for k, v in op.parameters.items()}
            if op.name == "Pad":
                left, top, right, bottom = values["padding"]
                height, width = source.shape[:2]
                # The whole lack on both sides, as torchvision pads.
                assert top == bottom == max(40 - height, 0)
                assert left == right == max(50 - width, 0)
                source = np.pad(source, ((top, bottom), (left, right), (0, 0)),
                                constant_values=7)
            else:
                top, left = values["top"][0], values["left"][0]
                source = source[top:top + 40, left:left + 50]
        np.testing.assert_array_equal(image, source.transpose(2, 0, 1))


def test_images_that_a_job_does_not_use_need_no_op(world, client):
    dataset = _load(world, client)
    with datasetd.DataLoader(dataset, batch_size=7, framework="numpy",
                             fields=["label"]) as loader:
        labels = {int(i): int(label) for batch in loader
                  for i, label in zip(np.array(batch.indices),
                                      np.array(batch.label))}
    assert labels == {i: int(_ORDER[i] % 2) for i in range(_COUNT)}


# -- Refusals ------------------------------------------------------------------


def test_a_loader_must_begin_with_one_size(world, client):
    dataset = _load(world, client)
    for transforms in ([], [T.RandomHorizontalFlip()], [T.Resize(32)]):
        with pytest.raises(datasetd.InvalidArgument,
                           match="must begin with an op that gives it, such "
                           "as RandomResizedCrop"):
            datasetd.DataLoader(dataset, batch_size=2, transforms=transforms)
    with pytest.raises(datasetd.InvalidArgument,
                       match=r"transforms\[0\] RandomRotation: it needs images "
                       "of one size"):
        datasetd.DataLoader(
            dataset, batch_size=2,
            transforms=[T.RandomRotation(5), T.CenterCrop(20)])
    with pytest.raises(datasetd.InvalidArgument,
                       match="larger than a sample's image.*pad_if_needed"):
        datasetd.DataLoader(dataset, batch_size=2,
                            transforms=[T.RandomCrop(30)])


# -- Restarts ------------------------------------------------------------------


def test_the_cache_brings_them_back_after_a_crash(world):
    transforms = [T.RandomResizedCrop(20), T.RandomHorizontalFlip()]
    client = world.connect()
    dataset = _load(world, client)
    before = _batches(dataset, transforms)
    harness.poll_until(
        lambda: glob.glob(os.path.join(world.cache, "*.cache"))
        and not glob.glob(os.path.join(world.cache, "*.tmp")), "the entry")
    world.kill()
    world.start()
    # From the list of what was loaded, without its files.
    with world.connect() as again:
        harness.poll_until(
            lambda: again.list_datasets()[0]["state"] == "DATASET_STATE_READY",
            f"ready: {world.log()}")
        restored = again.get_dataset("a")
        assert restored.content_hash == dataset.content_hash
        assert restored.fields == dataset.fields
        assert restored.resident_bytes == dataset.resident_bytes
        after = _batches(restored, transforms)
        assert before.keys() == after.keys()
        for index, image in before.items():
            np.testing.assert_array_equal(after[index], image)
        again.unload_dataset("a")
    client.close()


def _sequences():
    random = np.random.default_rng(5)
    return [{"audio": random.standard_normal((n, 2)).astype(np.float16),
             "tokens": random.integers(0, 2**16, n, np.uint16), "label": n}
            for n in (0, 700, 3, 0, 0, 90, 1, 0)]


def test_the_cache_brings_sequences_back_after_a_crash(world):
    def entries():
        return set(glob.glob(os.path.join(world.cache, "*.cache")))

    data = _sequences()
    before = entries()
    client = world.connect()
    dataset = client.push_dataset("s", data, ragged=True)
    num_steps = sum(sample["label"] for sample in data)
    # As much as the samples may be padded by; of each two places, and a label.
    most = sum(-(-(num_steps * size + 15 * len(data)) // 16) * 16
               for size in (4, 2))
    assert dataset.resident_bytes == most + len(data) * (2 * 16 + 8)
    assert (int(client.status()["devices"][0]["dataset_bytes"])
            == dataset.resident_bytes)
    harness.poll_until(
        lambda: entries() - before
        and not glob.glob(os.path.join(world.cache, "*.tmp")), "the entry")
    world.kill()
    world.start()
    with world.connect() as again:
        harness.poll_until(
            lambda: again.list_datasets()[0]["state"] == "DATASET_STATE_READY",
            f"ready: {world.log()}")
        restored = again.get_dataset("s")
        assert restored.content_hash == dataset.content_hash
        assert restored.fields == dataset.fields
        padded = sum(-(-size * sample["label"] // 16) * 16
                     for sample in data for size in (4, 2))
        assert restored.resident_bytes == padded + len(data) * (2 * 16 + 8)
        for name in ("audio", "tokens"):
            for got, sample in zip(restored.column(name), data):
                np.testing.assert_array_equal(got, sample[name])
        again.unload_dataset("s")
    client.close()


# -- Pushes and pairs ----------------------------------------------------------


class _Pairs:
    def __len__(self):
        return _COUNT

    def __getitem__(self, i):
        if i >= _COUNT:
            raise IndexError(i)
        image = _pixels(i)
        return {"image": image, "mask": image[:, :, 0], "label": i}


def test_pushed_samples_differ_in_size_if_told(world, client):
    with pytest.raises(datasetd.InvalidArgument, match="ragged=True"):
        client.push_dataset("p", _Pairs())
    dataset = client.push_dataset("p", _Pairs(), ragged=True)
    image, mask, label = dataset.fields
    assert image.shape == (-1, -1, 3) and mask.shape == (-1, -1, 1)
    assert mask.is_mask and label.shape == ()
    assert image.largest == mask.largest
    assert image.smallest == tuple(
        np.min([_size(i) for i in range(_COUNT)], axis=0))
    both = ["image", "mask"]
    transforms = [
        T.RandomCrop((30, 40), pad_if_needed=True, fields=both),
        T.RandomHorizontalFlip(fields=both),
    ]
    with datasetd.DataLoader(dataset, batch_size=4, shuffle=True,
                             transforms=transforms,
                             framework="numpy") as loader:
        for images, masks, labels in loader:
            # Mask and image are cut and turned alike.
            np.testing.assert_array_equal(np.array(images)[:, 0],
                                          np.array(masks)[:, 0])
    whole = {"image": [T.Crop(0, 0, 59, 76)], "mask": [T.CenterCrop(1)]}
    with datasetd.DataLoader(dataset, batch_size=3, transforms=whole,
                             framework="numpy") as loader:
        for batch in loader:
            for index, row in zip(np.array(batch.indices), np.array(batch[0])):
                expected = _pixels(int(index))
                height, width = expected.shape[:2]
                np.testing.assert_array_equal(
                    row[:, :height, :width], expected.transpose(2, 0, 1))
                assert not row[:, height:].any()
                assert not row[:, :, width:].any()


def test_a_shared_crop_needs_pairs_of_one_size(client):
    samples = [{"image": np.zeros((20 + i, 30, 3), np.uint8),
                "mask": np.zeros((20 + i // 4, 30), np.uint8)}
               for i in range(8)]
    dataset = client.push_dataset("p", samples, ragged=True)
    both = ["image", "mask"]
    with pytest.raises(datasetd.InvalidArgument,
                       match="'image' and 'mask' share an op that draws by the "
                       "image's size, but sample 1 of dataset 'p' is 21x30 in "
                       "the one and 20x30 in the other"):
        datasetd.DataLoader(
            dataset, batch_size=2,
            transforms=[T.RandomResizedCrop(8, fields=both)])
    datasetd.DataLoader(
        dataset, batch_size=2, framework="numpy",
        transforms=[T.Resize((16, 16), fields=both),
                    T.RandomResizedCrop(8, fields=both)]).close()


@pytest.mark.parametrize("op", [
    lambda fields: T.RandomCrop(8, fields=fields),
    lambda fields: T.RandomResizedCrop(8, fields=fields),
    lambda fields: T.RandomPerspective(p=1, fields=fields),
    lambda fields: T.RandomAffine(0, translate=(0.1, 0.1), fields=fields)],
    ids=["RandomCrop", "RandomResizedCrop", "RandomPerspective",
         "RandomAffine"])
@pytest.mark.parametrize("first", [[], [T.Grayscale(3, fields=["image"])]],
                         ids=["alone", "behind another"])
def test_a_shared_draw_needs_fields_of_one_size(client, op, first):
    dataset = client.push_dataset("p", {
        "image": np.zeros((3, 32, 32, 3), np.uint8),
        "mask": np.zeros((3, 16, 16), np.uint8)})
    with pytest.raises(datasetd.InvalidArgument,
                       match="'image' and 'mask' share an op that draws by the "
                       "image's size, but the image is 32x32 in the one and "
                       "16x16 in the other"):
        datasetd.DataLoader(dataset, batch_size=1,
                            transforms=first + [op(["image", "mask"])])


def test_a_shared_crop_of_a_field_of_one_size_needs_samples_of_it(client):
    dataset = client.push_dataset(
        "p", [{"image": np.zeros((16, 16 + i, 3), np.uint8),
               "mask": np.zeros((16, 16), np.uint8)} for i in range(3)],
        ragged=True)
    with pytest.raises(datasetd.InvalidArgument,
                       match="sample 1 of dataset 'p' is 16x17 in the one and 16x16"):
        datasetd.DataLoader(
            dataset, batch_size=1,
            transforms=[T.RandomCrop(8, fields=["image", "mask"])])


def test_pushed_samples_of_one_size_are_stored_as_ever(client):
    dataset = client.push_dataset(
        "p", (np.full((5, 6, 3), i, np.uint8) for i in range(9)), ragged=True)
    assert dataset.fields[0].shape == (5, 6, 3)
    assert len(dataset) == 9


def test_pretransforms_of_pushed_sizes_are_refused(client):
    with pytest.raises(datasetd.InvalidArgument,
                       match="pretransforms: samples of the dataset differ in "
                       "size; make them one size before they are sent, or give "
                       "the ops to the loader's transforms"):
        client.push_dataset("p", _Pairs(), ragged=True,
                            pretransforms=[T.CenterCrop(10)])


def _add(archive, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def _png(pixels):
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "PNG")
    return data.getvalue()


def test_images_and_masks_of_shards(world, client):
    path = os.path.join(world.data_root, "pairs.tar")
    with tarfile.open(path, "w") as archive:
        for i in range(_COUNT):
            _add(archive, f"{i:03}.cls", b"%d" % i)
            _add(archive, f"{i:03}.png", _png(_pixels(i)))
            # Not as large as its image, but for the first half.
            mask = _pixels(i)[:, :, 0]
            _add(archive, f"{i:03}.seg.png",
                 _png(mask if i < 15 else mask[:-1]))
    dataset = client.load_dataset("w", "webdataset", path)
    assert [f.name for f in dataset.fields] == ["image", "seg", "label"]
    assert dataset.fields[1].shape[:2] == (-1, -1)
    transforms = {"image": [T.CenterCrop((18, 20))],
                  "seg": [T.CenterCrop((18, 20))]}
    with datasetd.DataLoader(dataset, batch_size=5, transforms=transforms,
                             framework="numpy") as loader:
        for batch in loader:
            labels = np.array(batch.label)
            for k in np.flatnonzero(labels < 15):
                np.testing.assert_array_equal(
                    np.array(batch.image)[k, 0], np.array(batch.seg)[k, 0])


def test_a_join_keeps_sizes_beside_other_fields(world, client):
    arrays = os.path.join(world.data_root, "arrays")
    os.makedirs(arrays)
    np.save(os.path.join(arrays, "number.npy"),
            np.arange(_COUNT, dtype=np.float32) / 2)
    dataset = client.load_dataset(
        "j", "join", world.data_root,
        options={"parts": "image_folder:folder,npy:arrays"})
    with datasetd.DataLoader(dataset, batch_size=4, shuffle=True,
                             transforms=[T.CenterCrop(20)],
                             framework="numpy") as loader:
        for batch in loader:
            rows = np.array(batch.indices)
            np.testing.assert_array_equal(np.array(batch.number), rows / 2)
            for row, image in zip(rows, np.array(batch.image)):
                source = _pixels(_ORDER[int(row)])
                top = round((source.shape[0] - 20) / 2)
                left = round((source.shape[1] - 20) / 2)
                np.testing.assert_array_equal(
                    image.transpose(1, 2, 0),
                    source[top:top + 20, left:left + 20])


# -- The command line ----------------------------------------------------------


def _ctl(world, *arguments, code=0):
    done = subprocess.run(
        [harness.runfile("client/ctl/datasetctl"), "--address",
         world.socket_path, *arguments],
        capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def test_the_command_line_shows_sizes_and_samples(world, client, tmp_path):
    client.push_dataset("p", _Pairs(), ragged=True)
    assert "[-1, -1, 3] from 20x24 to 59x76" in _ctl(world, "datasets", "p")
    client.push_dataset("s", _sequences(), ragged=True)
    text = _ctl(world, "datasets", "s")
    assert "audio float16 [-1, 2] from 0 to 700 steps" in text
    assert "s.png: " in _ctl(world, "preview", "s", "--output",
                             str(tmp_path / "s.png"))
    assert "has sequences of 0 to 700 steps" in _ctl(
        world, "explain", "s", "--field", "audio", "--transforms", "none",
        code=1)
    fields = json.loads(_ctl(world, "--json", "datasets", "p"))["fields"]
    assert fields[0]["largest"] == {"height": "59", "width": "76"}
    ops = json.dumps([{"center_crop": {"height": 30, "width": 30}}])
    text = _ctl(world, "explain", "p", "--transforms", ops, "--samples", "3")
    assert "Crop" in text
    sheet = str(tmp_path / "sheet.png")
    _ctl(world, "preview", "p", "--transforms", ops, "--output", sheet,
         "--samples", "2", "--first", "5", "--columns", "1", "--zoom", "1")
    pixels = np.asarray(Image.open(sheet).convert("RGB"))
    height, width = _size(5)
    # The original stands in the middle of its row, as it is.
    top = 4 + (max(height, 30) - height) // 2
    np.testing.assert_array_equal(
        pixels[top:top + height, 4:4 + width], _pixels(5))
    message = _ctl(world, "preview", "p", "--transforms", "flip", "--output",
                   sheet, code=1)
    assert "must begin with an op that gives it" in message


if __name__ == "__main__":
    harness.main(__file__)
