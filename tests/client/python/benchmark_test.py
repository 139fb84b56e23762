"""datasetd.benchmark, and what a program does under `datasetctl bench`."""

import json
import os
import subprocess
import sys

import datasetd
import numpy as np
import pytest


def loader(dataset, **arguments):
    arguments.setdefault("batch_size", 10)
    return datasetd.DataLoader(dataset, **arguments)


def test_rounds_take_turns_on_real_and_constant_batches(dataset):
    seen = []
    with loader(dataset, shuffle=True) as batches:
        result = datasetd.benchmark(
            batches,
            lambda batch: seen.append(batch.indices.clone().numpy()),
            steps=4,
            rounds=2,
        )
    assert len(seen) == 4 * 2 * 3  # with the pair that warms up
    rounds = [seen[i : i + 4] for i in range(0, len(seen), 4)]
    first = seen[0]
    for i, steps in enumerate(rounds):
        if i % 2:
            assert all(np.array_equal(first, step) for step in steps)
    # The loader's are one order, nothing left out.
    real = np.concatenate(
        [step for steps in rounds[::2] for step in steps][:10]
    )
    assert len(set(real.tolist())) == len(real) == 100
    assert (result.steps, len(result.loader_rounds)) == (4, 2)
    assert len(result.constant_rounds) == 2
    assert result.loader_seconds > 0 and result.constant_seconds > 0
    assert result.data_share == pytest.approx(
        1 - result.constant_seconds / result.loader_seconds
    )
    assert "of it is data" in str(result)


def test_time_in_the_step_is_no_data(dataset):
    """A step that waits for something else costs the same on both."""
    waits = []
    with loader(dataset) as batches:
        result = datasetd.benchmark(
            batches,
            lambda batch: waits.append(
                subprocess.run([sys.executable, "-S", "-c", ""], check=True)
            ),
            steps=2,
            rounds=1,
        )
    assert len(waits) == 8
    assert result.constant_seconds > 0.001


def test_constant_batch_is_a_copy_with_the_names(dataset):
    kept = []

    def step(batch):
        kept.append((batch, batch.image, batch.label, len(batch)))
        batch.record_stream(0)
        batch.image[:] = 0  # of the loader's own slot, or of the copy

    with loader(dataset, framework="numpy", prefetch=8) as batches:
        datasetd.benchmark(batches, step, steps=1, rounds=1)
    real, constant = kept[0], kept[1]
    assert isinstance(real[0], datasetd.Batch)
    assert constant[1] is constant[0][0] and constant[2] is constant[0][1]
    assert constant[0].num_samples == 10 and constant[0].epoch == 0
    assert not np.shares_memory(real[1], constant[1])
    with pytest.raises(AttributeError, match="mask"):
        constant[0].mask


@pytest.mark.parametrize("name", ["steps", "rounds"])
def test_counts_must_be_positive(dataset, name):
    with loader(dataset) as batches:
        with pytest.raises(datasetd.InvalidArgument, match=f"{name}=0"):
            datasetd.benchmark(batches, lambda batch: None, **{name: 0})


def test_batches_that_cannot_be_copied_are_refused(dataset):
    with loader(dataset, framework="dlpack") as batches:
        with pytest.raises(datasetd.FailedPrecondition, match="copied"):
            datasetd.benchmark(batches, lambda batch: None)


class WithoutLength:
    """A sampler."""

    def __init__(self, num_samples):
        self.num_samples = num_samples

    def __iter__(self):
        return iter(range(self.num_samples))


def test_a_sampler_without_length(dataset):
    with loader(dataset, sampler=WithoutLength(50)) as batches:
        result = datasetd.benchmark(batches, lambda batch: None, 4, 2)
    assert len(result.loader_rounds) == 2


@pytest.mark.parametrize("sampler", [[], WithoutLength(0)])
def test_a_loader_without_batches_is_refused(dataset, sampler):
    with loader(dataset, sampler=sampler) as batches:
        with pytest.raises(datasetd.InvalidArgument, match="no batches"):
            datasetd.benchmark(batches, lambda batch: None)


PROGRAM = """
import sys
import datasetd
client = datasetd.connect(sys.argv[1])
loader = datasetd.DataLoader(client.get_dataset("hundred"), batch_size=10,
                             framework="numpy", shuffle=True)
steps = 0
try:
    for epoch in range(1000):
        for images, labels in loader:
            steps += 1
finally:
    print(steps)
"""


def run_watched(daemon, directory, program=PROGRAM, **variables):
    return subprocess.run(
        [sys.executable, "-c", program, daemon.address],
        env=dict(
            os.environ,
            DATASETD_BENCH_DIRECTORY=str(directory),
            **variables,
        ),
        stdout=subprocess.PIPE,
        timeout=60,
        check=True,
    )


def test_the_packages_own_loaders_are_not_watched(
    client, tmp_path, monkeypatch
):
    """They read labels, and what a push is compared with."""
    monkeypatch.setenv("DATASETD_BENCH_DIRECTORY", str(tmp_path))
    samples = {
        "label": np.arange(20_000) % 3,
        "x": np.random.default_rng(1).random((20_000, 200), np.float32),
    }
    for _ in range(2):
        dataset = client.push_dataset("benched", samples)
    with loader(dataset, weights="balanced", framework="numpy") as batches:
        assert len(batches) == 2_000
    dataset.close()
    client.unload_dataset("benched")


def test_watched_program_ends_with_a_report(daemon, dataset, tmp_path):
    done = run_watched(
        daemon, tmp_path, DATASETD_BENCH_STEPS="3", DATASETD_BENCH_ROUNDS="2"
    )
    (path,) = tmp_path.iterdir()
    report = json.loads(path.read_text())
    assert report["dataset"] == "hundred" and report["batch_size"] == 10
    assert report["steps"] == 3
    assert len(report["loader_rounds"]) == len(report["constant_rounds"]) == 2
    # A round that an epoch cuts short is begun anew.
    assert int(done.stdout) >= 3 * 2 * 3


def test_a_watched_program_with_a_sampler_without_length(
    daemon, dataset, tmp_path
):
    program = PROGRAM.replace("shuffle=True", "sampler=Sampler()").replace(
        "client =",
        """
class Sampler:
    def __iter__(self):
        return iter(range(103))
client =""",
    )
    run_watched(
        daemon,
        tmp_path,
        program,
        DATASETD_BENCH_STEPS="3",
        DATASETD_BENCH_ROUNDS="2",
    )
    (path,) = tmp_path.iterdir()
    report = json.loads(path.read_text())
    assert report["steps"] == 3 and len(report["loader_rounds"]) == 2


def test_rounds_of_a_watched_program_fit_its_epochs(daemon, dataset, tmp_path):
    run_watched(daemon, tmp_path, DATASETD_BENCH_ROUNDS="1")
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text())["steps"] == 5
