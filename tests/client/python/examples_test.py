"""The examples run, both at once on one resident copy."""

import os
import re
import subprocess

import datasetd
import numpy as np
import pytest
from conftest import run_python

SAMPLES_PER_FILE = 10000


@pytest.fixture(scope="module")
def cifar(tmp_path_factory):
    directory = tmp_path_factory.mktemp("cifar-10-batches-bin")
    generator = np.random.default_rng(0)
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        rows = generator.integers(
            0, 256, (SAMPLES_PER_FILE, 3073), dtype=np.uint8
        )
        rows[:, 0] %= 10
        rows.tofile(directory / f"{name}.bin")
    return directory


def test_both_at_once(cifar):
    with datasetd.start_local(device="cpu", data_roots=cifar) as daemon:
        environment = dict(os.environ, DATASETD_ADDRESS=daemon.address)
        reader = subprocess.Popen(
            [os.path.abspath(os.environ["READ_BATCHES"]), str(cifar)]
            + ["--seed=2", "--batch_size=250", "--epochs=2"],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        trainer = run_python(
            os.environ["TRAIN_CIFAR"], cifar, "--seed=1", "--batch_size=64",
            "--batches=5", env=environment,
        )  # fmt: skip
        output, _ = reader.communicate(timeout=120)
        assert (reader.returncode, trainer.returncode) == (0, 0), (
            trainer.stderr)
        line = r"seed=\d: \d+ samples/s, {} batches, waited \d+\.\d+ s of"
        assert re.search("read_batches " + line.format(400), output)
        assert re.search(
            "train_cifar.py " + line.format(5), trainer.stdout
        )
        # Resident once.
        (device,) = daemon.connect().status()["devices"]
        image_bytes = 5 * SAMPLES_PER_FILE * 3072
        assert image_bytes <= int(device["dataset_bytes"]) < 1.1 * image_bytes


def test_a_pth_file_is_pushed_once(tmp_path):
    import torch

    path = tmp_path / "data.pth"
    torch.save(
        {
            "image": torch.arange(5 * 48, dtype=torch.uint8).view(5, 3, 4, 4),
            "label": torch.arange(5),
            "note": "no tensor",
        },
        path,
    )
    with datasetd.start_local(device="cpu") as daemon, daemon.connect() as own:
        for _ in range(2):
            result = run_python(
                os.environ["PUSH_PTH"], path, "--address", daemon.address,
                "--epochs=2", "--fields=image,label",
            )  # fmt: skip
            assert result.returncode == 0, result.stderr
            assert "push: 5 samples" in result.stdout
            assert "epoch 1: 5 samples" in result.stdout
            assert own.get_dataset("pth").fields[0].shape == (4, 4, 3)


def test_reader_says_what_is_wrong(cifar):
    with datasetd.start_local(device="cpu", data_roots=cifar) as daemon:
        result = subprocess.run(
            [os.path.abspath(os.environ["READ_BATCHES"]), str(cifar / "no")]
            + ["--address", daemon.address],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert result.returncode == 1
        assert "NOT_FOUND" in result.stderr and "no" in result.stderr
