"""Whole workloads from files of other programs: FER-2013's CSV over two ranks,
faces beside audio features, and what readers of other kinds give to a loader."""

import gzip
import io
import os
import tarfile

import h5py
import numpy as np
import pytest
from PIL import Image

from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402
from datasetd import transforms as T  # noqa: E402

_EXTENT = 48
_USAGES = {"train": "Training", "public_test": "PublicTest",
           "private_test": "PrivateTest"}


@pytest.fixture(name="daemon", scope="module")
def _daemon():
    with harness.Daemon() as daemon:
        yield daemon


def _write_fer2013(path, counts):
    """A CSV of FER-2013's form; {split: (pixels [N, 48, 48], labels)}."""
    random = np.random.default_rng(2013)
    usages = np.repeat(list(counts), list(counts.values()))
    random.shuffle(usages)
    pixels = random.integers(0, 256, (len(usages), _EXTENT, _EXTENT), np.uint8)
    labels = random.integers(0, 7, len(usages))
    with open(path, "w") as file:
        file.write("emotion,pixels,Usage\n")
        for usage, image, label in zip(usages, pixels, labels):
            text = " ".join(map(str, image.ravel()))
            file.write(f"{label},{text},{_USAGES[usage]}\n")
    return {
        split: (pixels[usages == split], labels[usages == split])
        for split in counts
    }


def test_fer2013_over_two_ranks(daemon):
    """48x48 grey from CSV, batch 256, an epoch sharded over two ranks."""
    path = os.path.join(daemon.data_root, "fer2013.csv")
    expected = _write_fer2013(
        path, {"train": 701, "public_test": 130, "private_test": 70})
    with daemon.connect() as client:
        for split, (pixels, labels) in expected.items():
            with client.load_dataset(
                f"fer-{split}", format="csv_pixels", path=path, split=split
            ) as dataset:
                assert len(dataset) == len(pixels)
                assert [tuple(field)[:4] for field in dataset.fields] == [
                    ("image", "uint8", (_EXTENT, _EXTENT, 1), True),
                    ("label", "int64", (), False),
                ]
                _check_two_ranks(dataset, pixels, labels)


def _check_two_ranks(dataset, pixels, labels):
    seen = []
    loaders = [
        datasetd.DataLoader(
            dataset, batch_size=256, shuffle=True, seed=7, rank=rank,
            world_size=2, framework="numpy",
            transforms=[T.ToDtype("float32", scale=True),
                        T.Normalize((0.5,), (0.25,))])
        for rank in range(2)
    ]
    of_a_rank = -(-len(pixels) // 2)
    assert [len(loader) for loader in loaders] == [-(-of_a_rank // 256)] * 2
    for loader in loaders:
        with loader:
            for batch in loader:
                kept = len(batch.indices) - batch.num_padding
                indices = np.array(batch.indices)
                want = (pixels[indices][:, None] / 255.0 - 0.5) / 0.25
                np.testing.assert_allclose(batch.image, want, atol=1e-5)
                np.testing.assert_array_equal(batch.label, labels[indices])
                seen += indices[:kept].tolist()
    assert sorted(seen) == list(range(len(pixels)))


def _photos(count, seed):
    """Images of sizes of their own, at least 32 x 32, and their middles."""
    random = np.random.default_rng(seed)
    images = [
        random.integers(0, 256, (32 + 2 * (i % 5), 36 - 2 * (i % 3), 3),
                        np.uint8)
        for i in range(count)
    ]
    middles = []
    for image in images:
        top, left = (image.shape[0] - 32) // 2, (image.shape[1] - 32) // 2
        middles.append(image[top:top + 32, left:left + 32].transpose(2, 0, 1))
    return images, np.stack(middles)


def _png(image):
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


def _resized(images, size):
    """By torchvision, not rounded: float32 [N, 3, size, size]."""
    import torch
    from torchvision.transforms import functional

    return np.stack([
        functional.resize(
            torch.from_numpy(image).permute(2, 0, 1).float(), [size, size],
            antialias=True).numpy()
        for image in images])


# As of RAVDESS: workload W4 of docs/performance.md.
_SIDE = 160
_FACES = [
    T.RandomHorizontalFlip(),
    T.RandomVerticalFlip(),
    T.RandomRotation(10),
    T.ColorJitter(0.05, 0.05, 0.05, 0.05),
]


def test_faces_and_audio_of_one_sample(daemon):
    """Images of a folder, of any size, beside vectors of arrays."""
    root = os.path.join(daemon.data_root, "ravdess")
    random = np.random.default_rng(4)
    count = 48
    images = [
        random.integers(0, 256, (150 + 7 * (i % 9), 240 - 5 * (i % 7), 3),
                        np.uint8)
        for i in range(count)
    ]
    expected = _resized(images, _SIDE)
    labels = np.sort(np.arange(count) % 3)
    audio = random.standard_normal((count, 40)).astype("f4")
    for i, (image, label) in enumerate(zip(images, labels)):
        folder = os.path.join(root, "faces", f"emotion{label}")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"{i:04d}.png"), "wb") as file:
            file.write(_png(image))
    os.makedirs(os.path.join(root, "audio"))
    np.save(os.path.join(root, "audio", "audio.npy"), audio)

    def epoch(dataset, transforms):
        """Every sample's image, checked to stand by its label and audio."""
        faces = np.zeros((count, 3, _SIDE, _SIDE), np.uint8)
        seen = []
        with datasetd.DataLoader(
            dataset, batch_size=16, shuffle=True, seed=3,
            transforms=transforms, framework="numpy",
        ) as loader:
            for batch in loader:
                indices = np.array(batch.indices)
                np.testing.assert_array_equal(batch.label, labels[indices])
                np.testing.assert_array_equal(batch.audio, audio[indices])
                faces[indices] = batch.image
                seen += indices.tolist()
        assert sorted(seen) == list(range(count))
        return faces.astype(np.float32)

    with daemon.connect() as client:
        with client.load_dataset(
            "ravdess", format="join", path=root,
            options={"parts": "image_folder:faces,npy:audio"},
            pretransforms=[T.Resize((_SIDE, _SIDE))],
        ) as dataset:
            assert dataset.class_names == ["emotion0", "emotion1", "emotion2"]
            assert [field.name for field in dataset.fields] == [
                "image", "label", "audio"]
            assert dataset.fields[0].shape == (_SIDE, _SIDE, 3)
            # Rounded once, to uint8.
            assert np.abs(epoch(dataset, []) - expected).max() < 0.51
            drawn = epoch(dataset, _FACES)
            np.testing.assert_array_equal(drawn, epoch(dataset, _FACES))
            # Augmented: none is as it was, and each is of its own image. Where
            # only the colours moved they moved by a few steps.
            assert all(np.abs(drawn[i] - expected[i]).max() > 1
                       for i in range(count))
            means = drawn.mean((1, 2, 3)) / expected.mean((1, 2, 3))
            assert (0.7 < means).all() and (means < 1.15).all()


def test_shards_of_a_webdataset(daemon):
    images, middles = _photos(30, 9)
    for shard in range(3):
        path = os.path.join(daemon.data_root, f"train-{shard:03d}.tar")
        with tarfile.open(path, "w") as archive:
            for i in range(10 * shard, 10 * shard + 10):
                for name, data in ((f"{i:05d}.cls", b"%d" % i),
                                   (f"{i:05d}.png", _png(images[i]))):
                    info = tarfile.TarInfo(name)
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
    with daemon.connect() as client:
        with client.load_dataset(
            "shards", format="webdataset",
            path=os.path.join(daemon.data_root, "train-{000..002}.tar"),
            pretransforms=[T.CenterCrop(32)],
        ) as dataset, datasetd.DataLoader(
            dataset, batch_size=30, framework="numpy"
        ) as loader:
            (batch,) = loader
            np.testing.assert_array_equal(batch.image, middles)
            np.testing.assert_array_equal(batch.label, range(30))


def test_hdf5(daemon):
    path = os.path.join(daemon.data_root, "set.h5")
    random = np.random.default_rng(5)
    images = random.integers(0, 256, (300, 16, 16, 3), np.uint8)
    with h5py.File(path, "w") as file:
        file.create_dataset("train/x", data=images, chunks=(64, 16, 16, 3),
                            compression="gzip")
        file["train/y"] = np.arange(300)
    with daemon.connect() as client:
        with client.load_dataset(
            "hdf5", format="hdf5", path=path,
            options={"fields": "image:train/x,label:train/y"},
        ) as dataset, datasetd.DataLoader(
            dataset, batch_size=300, framework="numpy"
        ) as loader:
            (batch,) = loader
            np.testing.assert_array_equal(
                batch.image, images.transpose(0, 3, 1, 2))
            np.testing.assert_array_equal(batch.label, range(300))


def test_npz_and_raw(daemon):
    root = daemon.data_root
    random = np.random.default_rng(1)
    images = random.integers(0, 256, (50, 6, 5, 3), np.uint8)
    labels = random.integers(0, 9, 50)
    np.savez_compressed(os.path.join(root, "set.npz"), x_train=images,
                        y_train=labels)
    images.tofile(os.path.join(root, "set.bin"))
    with daemon.connect() as client:
        with client.load_dataset(
            "npz", format="npz", path=os.path.join(root, "set.npz"),
            options={"fields": "image:x_train,label:y_train"},
        ) as dataset, datasetd.DataLoader(
            dataset, batch_size=50, framework="numpy"
        ) as loader:
            (batch,) = loader
            np.testing.assert_array_equal(
                batch.image, images.transpose(0, 3, 1, 2))
            np.testing.assert_array_equal(batch.label, labels)
        with client.load_dataset(
            "raw", format="raw", path=os.path.join(root, "set.bin"),
            options={"shape": "6x5x3"},
        ) as dataset, datasetd.DataLoader(
            dataset, batch_size=50, framework="numpy"
        ) as loader:
            (batch,) = loader
            np.testing.assert_array_equal(
                batch.image, images.transpose(0, 3, 1, 2))


def test_bad_sources_are_named_and_the_daemon_goes_on(daemon):
    root = daemon.data_root
    path = os.path.join(root, "evil.tar")
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo("../../etc/passwd.cls")
        info.size = 1
        archive.addfile(info, io.BytesIO(b"1"))
    outside = os.path.join(root, "outside.csv")
    os.symlink("/etc/hostname", outside)
    bomb = os.path.join(root, "bomb.tgz")
    with gzip.open(bomb, "w") as file:
        for _ in range(65):
            file.write(bytes(1 << 20))
    cut = os.path.join(root, "cut.csv")
    with open(cut, "w") as file:
        file.write("emotion,pixels,Usage\n1,1 2 3 4,Training\n1,1 2,Training\n")
    with daemon.connect() as client:
        for name, path, error, words in (
            ("webdataset", path, datasetd.InvalidArgument, "leads out"),
            ("webdataset", bomb, datasetd.InvalidArgument,
             "max_inflated_bytes"),
            ("image_csv", outside, datasetd.PermissionDenied,
             "seen by the daemon"),
            ("csv_pixels", cut, datasetd.InvalidArgument, "line 3"),
        ):
            with pytest.raises(error) as caught:
                client.load_dataset(name, format=name, path=path)
            assert words in str(caught.value)
        assert daemon.is_running()


if __name__ == "__main__":
    harness.main(__file__)
