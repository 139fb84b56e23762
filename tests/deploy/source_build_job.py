"""Prints the SHA-256 of the batches of 2,000 augmented samples, by the daemon in
$DATASETD_DAEMON on the host."""

import hashlib
import pathlib
import random
import tempfile

import datasetd
from datasetd import transforms as T


def write(folder):
    """Makes the samples: files of CIFAR-10 in `folder`."""
    pixels = random.Random(1)
    pathlib.Path(folder, "test_batch.bin").write_bytes(b"".join(
        bytes([i % 10]) + pixels.randbytes(3072) for i in range(2000)))


def loader(client, folder, device, batch_size=100, **options):
    """A loader of the augmented samples, resident on `device`."""
    samples = client.load_dataset(
        "samples-on-" + device.replace(":", ""), format="cifar10",
        split="test", path=str(folder), device=device)
    return datasetd.DataLoader(
        samples, batch_size, shuffle=True, seed=7,
        transforms=[T.RandomCrop(32, padding=4), T.RandomHorizontalFlip(),
                    T.ColorJitter(0.4, 0.4, 0.4, 0.1),
                    T.ToDtype("float32", scale=True),
                    T.Normalize((0.49, 0.48, 0.45), (0.25, 0.24, 0.26))],
        **options)


def digest(batches):
    """The SHA-256 of (images, labels), which are arrays."""
    sha256 = hashlib.sha256()
    for images, labels in batches:
        sha256.update(images.tobytes() + labels.tobytes())
    return sha256.hexdigest()


def main():
    with tempfile.TemporaryDirectory() as folder:
        write(folder)
        with datasetd.start_local(device="cpu", data_roots=[folder]) as daemon:
            with datasetd.connect(daemon.address) as client:
                print(digest(loader(client, folder, "cpu", framework="numpy")))


if __name__ == "__main__":
    main()
