"""A daemon with a small dataset "cifar10" for the examples of
docs/frameworks.md."""

import os

import numpy as np
import pytest

# Bazel names them relative to the working directory.
for name in ("DATASETD_LIBRARY", "DATASETD_DAEMON", "FRAMEWORKS_PAGE"):
    os.environ[name] = os.path.abspath(os.environ[name])

# Odd, so that one of two ranks repeats a sample.
NUM_SAMPLES = 403


@pytest.fixture(scope="session")
def daemon():
    import datasetd

    random = np.random.default_rng(3)
    columns = {
        "image": random.integers(0, 256, (NUM_SAMPLES, 32, 32, 3), np.uint8),
        "label": np.arange(NUM_SAMPLES) % 10,
    }
    with datasetd.start_local(device="cpu") as local:
        with local.connect() as client:
            with client.push_dataset("cifar10", columns):
                yield local


@pytest.fixture
def page(daemon, tmp_path):
    from examples import Page

    return Page(daemon.address, tmp_path)


@pytest.fixture
def dataset(daemon):
    with daemon.connect() as client:
        yield client.get_dataset("cifar10")
