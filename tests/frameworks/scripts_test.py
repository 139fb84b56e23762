"""Training scripts in the shape in which people publish them, ported by their
loaders alone: they end with the numbers that a right loader gives."""

import gzip
import json
import os
import socket
import struct
import subprocess
import sys

import numpy as np
import pytest

_SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scripts")
_NUM_TRAIN, _NUM_TEST = 1280, 203

_long = pytest.mark.skipif(
    os.environ.get("DATASETD_TEST_FULL") != "1",
    reason="the long form has it",
)


def _digits(num_samples, seed):
    """Noise and a bright row for the label: one linear layer learns it."""
    random = np.random.default_rng(seed)
    labels = (np.arange(num_samples) % 10).astype(np.uint8)
    images = random.integers(0, 60, (num_samples, 28, 28)).astype(np.uint8)
    images[np.arange(num_samples), 4 + 2 * labels.astype(int)] = 255
    return images, labels


@pytest.fixture(scope="module")
def mnist(tmp_path_factory):
    """The four files of MNIST."""
    folder = tmp_path_factory.mktemp("mnist")
    for split, num_samples in (("train", _NUM_TRAIN), ("t10k", _NUM_TEST)):
        images, labels = _digits(num_samples, num_samples)
        for kind, magic, array in (
            ("images-idx3", 0x803, images),
            ("labels-idx1", 0x801, labels),
        ):
            header = struct.pack(f">{1 + array.ndim}I", magic, *array.shape)
            with gzip.open(folder / f"{split}-{kind}-ubyte.gz", "wb") as file:
                file.write(header + array.tobytes())
    return folder


@pytest.fixture(scope="module")
def cifar(tmp_path_factory):
    """The binary version of CIFAR-10: a coloured square for each class."""
    folder = tmp_path_factory.mktemp("cifar")
    random = np.random.default_rng(7)
    colours = random.integers(0, 256, (10, 3, 4, 4))
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    for name in names:
        labels = np.arange(10000) % 10
        images = colours[labels].repeat(8, 2).repeat(8, 3)
        rows = np.concatenate([labels[:, None], images.reshape(10000, -1)], 1)
        rows.astype(np.uint8).tofile(folder / name)
    (folder / "batches.meta.txt").write_text(
        "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n"
    )
    return folder


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """train and val of images of several sizes; in val an odd number, so that
    two ranks leave one over."""
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(5)
    for split, num_images in (("train", 96), ("val", 33)):
        for i in range(num_images):
            label = i % 3
            height, width = random.integers(40, 70, 2)
            pixels = random.integers(0, 60, (height, width, 3), np.uint8)
            pixels[..., label] += 180
            path = folder / split / f"class{label}" / f"{i:04}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            image.fromarray(pixels).save(path)
    return folder


def _run(daemon, cwd, script, *arguments, ranks=1):
    """Runs the script in as many processes as there are ranks; returns the
    JSON of their last lines, and all that they printed."""
    with socket.socket() as port:
        port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port.bind(("127.0.0.1", 0))
        processes = []
        for rank in range(ranks):
            environment = dict(
                os.environ,
                DATASETD_ADDRESS=daemon.address,
                OMP_NUM_THREADS="1",
                PYTHONPATH=os.pathsep.join(
                    os.path.abspath(path) for path in sys.path if path
                ),
            )
            if ranks > 1 or script == "ddp_tutorial":
                environment.update(
                    RANK=str(rank),
                    LOCAL_RANK=str(rank),
                    WORLD_SIZE=str(ranks),
                    LOCAL_WORLD_SIZE=str(ranks),
                    MASTER_ADDR="127.0.0.1",
                    MASTER_PORT=str(port.getsockname()[1]),
                )
            processes.append(
                subprocess.Popen(
                    [
                        sys.executable,
                        os.path.join(_SCRIPTS, f"{script}.py"),
                        *map(str, arguments),
                    ],
                    cwd=cwd,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        try:
            printed = [process.communicate(timeout=240) for process in processes]
        finally:
            for process in processes:
                process.kill()
    for process, (out, error) in zip(processes, printed):
        assert process.returncode == 0, out + error
    results = [
        json.loads(out.splitlines()[-1])
        for out, _ in printed
        if out.splitlines()[-1].startswith("{")
    ]
    return results, "".join(out + error for out, error in printed)


def _warnings(printed):
    return [line for line in printed.splitlines() if "datasetd" in line.lower()]


def test_mnist(daemon, mnist, tmp_path):
    (result,), printed = _run(daemon, tmp_path, "mnist", mnist)
    assert result == {"seen": _NUM_TRAIN, "accuracy": 1.0}
    assert f"[640/{_NUM_TRAIN} (50%)]" in printed
    assert _warnings(printed) == []


@_long
def test_pytorch_cifar(daemon, cifar, tmp_path):
    (result,), printed = _run(daemon, tmp_path, "cifar", cifar)
    assert result["trained"] == 50000 and result["tested"] == 10000
    assert result["accuracy"] == 100.0
    assert result["classes"][:2] == ["airplane", "automobile"]
    assert _warnings(printed) == []


@_long
def test_imagenet_counts_each_image_once_over_two_ranks(
    daemon, images, tmp_path
):
    results, printed = _run(daemon, tmp_path, "imagenet", images, ranks=2)
    assert [result["count"] for result in results] == [33, 33]
    assert [result["acc1"] for result in results] == [100.0, 100.0]
    assert _warnings(printed) == []


@_long
def test_ddp_tutorial_goes_on_from_its_snapshot(daemon, tmp_path):
    folders = [tmp_path / "whole", tmp_path / "resumed"]
    for folder in folders:
        folder.mkdir()
    (whole,), printed = _run(daemon, folders[0], "ddp_tutorial", 4, ranks=2)
    assert "Epoch 0 | Batchsize: 32 | Steps: 8" in printed
    assert len(whole["losses"]) == 4 * 8
    (first,), _ = _run(daemon, folders[1], "ddp_tutorial", 2, ranks=2)
    (rest,), _ = _run(daemon, folders[1], "ddp_tutorial", 4, ranks=2)
    assert first["losses"] + rest["losses"] == whole["losses"]


@_long
def test_ddp_tutorial_alone(daemon, tmp_path):
    (result,), printed = _run(daemon, tmp_path, "ddp_tutorial", 2)
    assert "Epoch 1 | Batchsize: 32 | Steps: 16" in printed
    assert len(result["losses"]) == 2 * 16


@_long
def test_hogwild_hands_its_dataset_to_processes(daemon, mnist, tmp_path):
    (result,), printed = _run(daemon, tmp_path, "hogwild", mnist)
    assert result == {"codes": [0, 0], "losses": 2, "accuracy": 1.0}
    assert _warnings(printed) == []


@_long
def test_siamese_pairs_by_a_batch_sampler(daemon, mnist, tmp_path):
    (result,), printed = _run(daemon, tmp_path, "siamese", mnist)
    assert result["steps"] == _NUM_TRAIN // 32
    assert result["pairs"] == 4 * result["steps"] * 32
    assert result["accuracy"] > 0.9
    assert _warnings(printed) == []


@_long
def test_mingpt_learns_the_next_character(daemon, tmp_path):
    text = tmp_path / "input.txt"
    text.write_text("to be, or not to be: that is the question. " * 200)
    (result,), printed = _run(daemon, tmp_path, "mingpt", text)
    assert result["iterations"] == 300
    assert result["first"] > 2.5 and result["last"] < 1.0
    # The targets are the next characters.
    assert result["completion"] in text.read_text()
    assert _warnings(printed) == []


@_long
def test_an_evaluation_that_is_cut_to_a_share_warns(daemon, mnist, tmp_path):
    results, printed = _run(daemon, tmp_path, "evaluation", mnist, ranks=2)
    for result in results:
        assert result == {"whole": _NUM_TEST, "exact": _NUM_TEST, "share": 102}
    assert printed.count(f"102 of {_NUM_TEST} samples on this rank") == 2
    assert "world_size=1" in printed and "world_size='auto'" in printed
