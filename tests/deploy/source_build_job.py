"""Prints the SHA-256 of the batches of 2,000 augmented samples, by the daemon in
$DATASETD_DAEMON on the host."""

import hashlib
import pathlib
import random
import tempfile

import datasetd
from datasetd import transforms as T

with tempfile.TemporaryDirectory() as folder:
    pixels = random.Random(1)
    pathlib.Path(folder, "test_batch.bin").write_bytes(b"".join(
        bytes([i % 10]) + pixels.randbytes(3072) for i in range(2000)))
    with datasetd.start_local(device="cpu", data_roots=[folder]) as daemon:
        with datasetd.connect(daemon.address) as client:
            train = client.load_dataset("train", format="cifar10",
                                        split="test", path=folder)
            loader = datasetd.DataLoader(
                train, batch_size=100, shuffle=True, seed=7, framework="numpy",
                transforms=[T.RandomCrop(32, padding=4),
                            T.RandomHorizontalFlip(),
                            T.ColorJitter(0.4, 0.4, 0.4, 0.1),
                            T.ToDtype("float32", scale=True),
                            T.Normalize((0.49, 0.48, 0.45),
                                        (0.25, 0.24, 0.26))])
            digest = hashlib.sha256()
            for images, labels in loader:
                digest.update(images.tobytes() + labels.tobytes())
            print(digest.hexdigest())
