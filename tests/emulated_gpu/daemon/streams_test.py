"""Streams of a batch, from Python."""

import contextlib
import os

import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402

_NUM_SAMPLES = 120
_PER_THREAD = 2  # CU_STREAM_PER_THREAD


@contextlib.contextmanager
def _loader(device="cuda:0", **options):
    """(loader, planes of the images)."""
    with harness.Daemon(devices=[device]) as daemon:
        path = os.path.join(daemon.data_root, "d")
        planes, _ = harness.write_cifar10_test(path, _NUM_SAMPLES)
        with daemon.connect() as client:
            dataset = client.load_dataset("d", format="cifar10", split="test",
                                          path=path)
            with datasetd.DataLoader(dataset, **{
                    "batch_size": 10, "framework": "dlpack", "timeout": 60,
                    **options}) as loader:
                yield loader, planes


def test_the_stream_per_thread_is_refused():
    """The thread that frees the batch has another."""
    with _loader() as (loader, _):
        batch = next(iter(loader))
        for call in (lambda: batch.record_stream(_PER_THREAD),
                     lambda: batch.image.__dlpack__(stream=_PER_THREAD)):
            with pytest.raises(ValueError, match="pass a real stream") as error:
                call()
            assert isinstance(error.value, datasetd.InvalidArgument)
        batch.record_stream(1)
        batch.image.__dlpack__(stream=1)


def test_on_the_host_streams_mean_nothing():
    with _loader(device="cpu") as (loader, _):
        batch = next(iter(loader))
        batch.record_stream(_PER_THREAD)
        batch.image.__dlpack__(stream=_PER_THREAD)


if __name__ == "__main__":
    harness.main(__file__)
