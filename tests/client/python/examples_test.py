"""The examples run; the two on CIFAR-10 at once, on one resident copy."""

import itertools
import os
import re
import runpy
import subprocess
import sys

import datasetd
import numpy as np
import pytest
from conftest import poll_until

from tests.testing.ports import free_port

SAMPLES_PER_FILE = 2000


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


@pytest.fixture
def run_example(monkeypatch, capsys):
    """Runs an example with a daemon as the main program, in this process, which
    has torch; returns what it prints."""

    def run(name, daemon, *arguments):
        monkeypatch.setenv("DATASETD_ADDRESS", daemon.address)
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(os.environ[name], run_name="__main__")
        return capsys.readouterr().out

    return run


def test_both_at_once(cifar, run_example):
    with datasetd.start_local(device="cpu", data_roots=cifar) as daemon:
        reader = subprocess.Popen(
            [os.path.abspath(os.environ["READ_BATCHES"]), str(cifar)]
            + ["--seed=2", "--batch_size=250", "--epochs=2"],
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ, DATASETD_ADDRESS=daemon.address),
        )
        trained = run_example(
            "TRAIN_CIFAR", daemon, cifar, "--seed=1", "--batch_size=64",
            "--batches=5",
        )  # fmt: skip
        output, _ = reader.communicate(timeout=120)
        assert reader.returncode == 0
        line = r"seed=\d: \d+ samples/s, {} batches, waited \d+\.\d+ s of"
        assert re.search("read_batches " + line.format(80), output)
        assert re.search("train_cifar.py " + line.format(5), trained)
        # Resident once.
        (device,) = daemon.connect().status()["devices"]
        image_bytes = 5 * SAMPLES_PER_FILE * 3072
        assert image_bytes <= int(device["dataset_bytes"]) < 1.1 * image_bytes


def test_a_pth_file_is_pushed_once(tmp_path, run_example):
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
            printed = run_example(
                "PUSH_PTH", daemon, path, "--epochs=2", "--fields=image,label"
            )
            assert "push: 5 samples" in printed
            assert "epoch 1: 5 samples" in printed
            assert own.get_dataset("pth").fields[0].shape == (4, 4, 3)


class _Training:
    """A run of train_gpt.py, and the tokens that its ranks had."""

    def __init__(self, corpus, out_dir, num_ranks, max_iters):
        self.folder = out_dir / f"{num_ranks}-{max_iters}"
        self.folder.mkdir(parents=True)
        self.num_ranks = num_ranks
        self.arguments = [
            str(corpus), f"--out_dir={out_dir}", f"--trace={self.folder}",
            f"--max_iters={max_iters}", "--block_size=8", "--batch_size=4",
            "--checkpoint_interval=10",
        ]  # fmt: skip

    def start(self, daemon):
        """Starts a process for each rank."""
        program = os.path.abspath(os.environ["TRAIN_GPT"])
        port, num_ranks = free_port(), self.num_ranks
        self.ranks = [
            subprocess.Popen(
                [sys.executable, program, *self.arguments],
                stdout=subprocess.DEVNULL,
                env=dict(
                    os.environ, DATASETD_ADDRESS=daemon.address,
                    OMP_NUM_THREADS="1", RANK=str(rank), LOCAL_RANK=str(rank),
                    WORLD_SIZE=str(num_ranks), LOCAL_WORLD_SIZE=str(num_ranks),
                    MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                ),
            )
            for rank in range(num_ranks)
        ]  # fmt: skip

    def kill(self):
        for rank in self.ranks:
            rank.kill()
        for rank in self.ranks:
            rank.wait()

    def num_iters(self):
        return min(map(len, self._traces()))

    def tokens(self):
        """{iteration: the windows of all ranks, in their order}."""
        rows = {}
        for i, *lines in zip(itertools.count(), *self._traces()):
            numbers = {line[0] for line in lines}
            windows = np.array([line[1:] for line in lines])
            windows = windows.reshape(len(lines), -1, 8).swapaxes(0, 1)
            (iteration,) = numbers
            rows[iteration] = windows.reshape(-1, 8)
        return rows

    def _traces(self):
        paths = [self.folder / f"{r}.txt" for r in range(self.num_ranks)]
        if not all(path.exists() for path in paths):
            return [[]] * len(paths)
        # A killed process may leave a piece of a line.
        return [
            [list(map(int, line.split())) for line in path.read_text()
             .rpartition("\n")[0].splitlines()]
            for path in paths
        ]  # fmt: skip


def test_killed_ranks_continue_as_one_with_the_same_tokens(
    tmp_path, run_example
):
    corpus = tmp_path / "train.bin"
    tokens = np.random.default_rng(5).integers(0, 65, 20_000, np.uint16)
    tokens.tofile(corpus)
    with datasetd.start_local(device="cpu", data_roots=tmp_path) as daemon:
        whole = _Training(corpus, tmp_path / "whole", 1, 60)
        printed = run_example("TRAIN_GPT", daemon, *whole.arguments)
        loss = float(printed.split()[-1])
        killed = _Training(corpus, tmp_path / "killed", 2, 10**6)
        killed.start(daemon)
        try:
            poll_until(lambda: killed.num_iters() >= 34, "34 iterations", 240)
        finally:
            killed.kill()
        resumed = _Training(corpus, tmp_path / "killed", 1, 60)
        printed = run_example("TRAIN_GPT", daemon, *resumed.arguments)
        assert float(printed.split()[-1]) == pytest.approx(loss, rel=1e-3)
    want, before, after = (run.tokens() for run in (whole, killed, resumed))
    assert sorted(want) == list(range(60))
    # It began where a checkpoint is, and ended with the others.
    first = min(after)
    assert first % 10 == 0 and 30 <= first <= len(before) + 1
    assert sorted(after) == list(range(first, 60))
    for iteration, windows in want.items():
        for run in (before, after):
            if iteration in run:
                np.testing.assert_array_equal(run[iteration], windows)
    starts = {bytes(row) for rows in want.values() for row in rows}
    assert len(starts) > 200
    # The windows are the corpus'.
    slices = np.lib.stride_tricks.sliding_window_view(tokens, 8)
    assert all(
        (slices == row).all(1).any() for row in want[0].astype(np.uint16)
    )


def test_words_are_told_apart(tmp_path, run_example):
    """Of 35 classes, each of another pitch, of clips of up to a second."""
    soundfile = pytest.importorskip("soundfile")
    random = np.random.default_rng(4)
    names = [f"word{k:02}/{i}_nohash_0.wav" for k in range(35) for i in range(10)]
    for name in names:
        steps = np.arange(random.integers(9000, 16001))
        tone = np.sin(2 * np.pi * (200 + 200 * int(name[4:6])) * steps / 16000)
        tone += 0.05 * random.standard_normal(len(steps))
        (tmp_path / name).parent.mkdir(exist_ok=True)
        soundfile.write(tmp_path / name, 0.3 * tone, 16000)
    for place, split in ((8, "validation"), (9, "testing")):
        listed = "\n".join(names[place::10])
        (tmp_path / f"{split}_list.txt").write_text(listed)
    # No word, and of another rate.
    (tmp_path / "_background_noise_").mkdir()
    noise = tmp_path / "_background_noise_" / "white.wav"
    soundfile.write(noise, random.random(50_000), 44100)
    with datasetd.start_local(device="cpu", data_roots=tmp_path) as daemon:
        printed = run_example(
            "KEYWORD_SPOTTING", daemon, tmp_path, "--batch_size=35",
            "--epochs=8",
        )  # fmt: skip
    found = re.findall(r"(\w+): (\d+) of 35 words", printed)
    assert [split for split, _ in found] == ["validation", "testing"]
    assert all(int(right) >= 30 for _, right in found), printed


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
