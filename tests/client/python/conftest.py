"""A private daemon on the host backend, and small datasets for it."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from tests.testing.processes import (  # noqa: F401
    await_end,
    is_running,
    poll_until,
    stop,
)

# Bazel names them relative to the working directory.
for name in ("DATASETD_LIBRARY", "DATASETD_DAEMON"):
    if name in os.environ:
        os.environ[name] = os.path.abspath(os.environ[name])
# So that Python processes of the tests find what the tests do.
os.environ["PYTHONPATH"] = os.pathsep.join(
    os.path.abspath(path) for path in sys.path if path
)

NUM_SAMPLES = 103


def make_images(count=NUM_SAMPLES):
    """[N, 8, 10, 3]: every byte of sample i is i."""
    values = np.arange(count, dtype=np.uint8).reshape(-1, 1, 1, 1)
    return np.ascontiguousarray(
        np.broadcast_to(values, (count, 8, 10, 3))
    )


def load(client, data_root, name="hundred", **options):
    """Loads a dataset of the data root."""
    return client.load_dataset(
        name, format="npy", path=data_root / name, **options
    )


def loader(dataset, **arguments):
    """A small shuffled job."""
    import datasetd

    arguments.setdefault("batch_size", 10)
    arguments.setdefault("shuffle", True)
    arguments.setdefault("seed", 5)
    return datasetd.DataLoader(dataset, **arguments)


class SlowSamples:
    """5,000 samples, of which the one at 4,000 waits for `go_on`."""

    def __init__(self):
        self.is_begun, self.go_on = threading.Event(), threading.Event()

    def __len__(self):
        return 5000

    def __getitem__(self, i):
        if i == 4000:
            self.is_begun.set()
            assert self.go_on.wait(60)
        return np.full(500, i)


class Copy:
    """Copies what a batch says, so that its memory can go back."""

    def __init__(self, batch):
        self.indices = batch.indices.clone()
        self.epoch, self.index = batch.epoch, batch.index
        self.num_padding = batch.num_padding


def copies(batches):
    return list(map(Copy, batches))


def indices_of(batches):
    return np.concatenate([np.asarray(batch.indices) for batch in batches])


def run_python(*arguments, **options):
    """A process of Python that has ended, with what it wrote."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        **options,
    )


@pytest.fixture
def run_command(capfd):
    """Runs `python -m datasetd` with these arguments, but in this process, which
    has imported it; returns what run_python does."""
    from datasetd.__main__ import main

    def run(*arguments):
        before = signal.getsignal(signal.SIGPIPE)
        capfd.readouterr()
        try:
            code = main(list(map(str, arguments)))
        finally:
            signal.signal(signal.SIGPIPE, before)
        return subprocess.CompletedProcess(
            arguments, code, *capfd.readouterr()
        )

    return run


@pytest.fixture(scope="session")
def data_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    for name, count in (("hundred", NUM_SAMPLES), ("three", 3)):
        directory = root / name
        directory.mkdir()
        np.save(directory / "image.npy", make_images(count))
        np.save(directory / "label.npy", np.arange(count, dtype=np.int64))
    return pathlib.Path(root)


@pytest.fixture(scope="session")
def daemon(data_root):
    import datasetd

    with datasetd.start_local(device="cpu", data_roots=data_root) as local:
        _running.append(local)
        yield local
        _running.clear()


_running = []


@pytest.fixture(scope="module", autouse=True)
def _unload():
    """Unloads what a file of tests has loaded: what lists datasets takes longer
    with hundreds of them."""
    yield
    if not _running:
        return
    import datasetd

    with _running[0].connect() as client:
        for dataset in client.list_datasets():
            # That of another file may still be held.
            with contextlib.suppress(datasetd.Error):
                client.unload_dataset(dataset["name"])


@pytest.fixture
def client(daemon):
    with daemon.connect() as connected:
        yield connected


@pytest.fixture
def dataset(client, data_root):
    return load(client, data_root)


@pytest.fixture
def tiny(client, data_root):
    return load(client, data_root, "three")
