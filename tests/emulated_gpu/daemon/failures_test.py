"""Errors of the driver while a daemon serves. One that ends the context ends
the daemon, whoever met it; any other is that of one feed or one load."""

import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402

from tests.conformance import loader_harness as loaders  # noqa: E402

_NUM_SAMPLES = 100
# The kernels are launched once each when the daemon starts.
_FIRST_LAUNCH = 5


def _daemon(faults):
    daemon = harness.Daemon(
        devices=["cuda:0"], slab_export="cuda_vmm_fd",
        environment={"DATASETD_EMULATED_GPU_FAULTS": faults})
    daemon.write_dataset(_NUM_SAMPLES)
    return daemon


def _open(dataset, **options):
    return datasetd.DataLoader(dataset, **{
        "batch_size": 10, "framework": "dlpack", "timeout": 60, **options})


def _await_end(daemon):
    assert daemon.wait() == 1
    return daemon.log()


@pytest.mark.parametrize("error", [
    "2",    # out of memory, as for a larger stack
    "701",  # too many resources
])
def test_a_launch_that_is_refused_ends_its_feed_only(error):
    with _daemon(f"cuLaunchKernel@{_FIRST_LAUNCH}={error}") as daemon:
        with daemon.connect() as client:
            dataset = daemon.load(client)
            with _open(dataset, name="refused") as loader:
                with pytest.raises(
                        datasetd.FeedFailed,
                        match="stopped this feed: cuLaunchKernel: CUDA_ERROR"):
                    next(iter(loader))
            assert daemon.is_running()
            assert "is stopped: cuLaunchKernel: CUDA_ERROR" in daemon.log()
            harness.poll_until(lambda: not client.list_feeds(),
                               "the feed's end")
            with _open(dataset, name="next") as loader:
                batches = loaders.take_epoch(loader)
            assert sum(len(b.indices) for b in batches) == _NUM_SAMPLES


def test_a_kernel_that_fails_ends_the_daemon_and_names_the_feeds():
    with _daemon(f"kernel@{_FIRST_LAUNCH}=700") as daemon:
        with daemon.connect() as client:
            dataset = daemon.load(client)
            # Perhaps before the loader has been opened.
            with pytest.raises(datasetd.DaemonGone):
                with _open(dataset) as loader:
                    list(loader)
        log = _await_end(daemon)
        assert "the device failed, exiting" in log
        assert "CUDA_ERROR_ILLEGAL_ADDRESS" in log
        assert "feeds with launches in flight: 1" in log


def test_a_device_that_fails_while_a_dataset_is_loaded_ends_the_daemon():
    # An uncorrectable error of memory.
    with _daemon("cuMemcpyHtoDAsync_v2@1=214") as daemon:
        with daemon.connect() as client:
            with pytest.raises(datasetd.Error):
                daemon.load(client)
        log = _await_end(daemon)
        assert "the device failed, exiting" in log
        assert "CUDA_ERROR_ECC_UNCORRECTABLE" in log


def test_an_unknown_error_of_a_device_that_works_fails_one_load():
    with _daemon("cuMemcpyHtoDAsync_v2@1=999") as daemon:
        with daemon.connect() as client:
            with pytest.raises(datasetd.Error, match="CUDA_ERROR_UNKNOWN"):
                daemon.load(client)
            assert len(list(_open(daemon.load(client)))) == 10


def test_an_unknown_error_of_a_device_that_does_nothing_ends_the_daemon():
    with _daemon("cuMemcpyHtoDAsync_v2@1=999,cuEventRecord@1+=999") as daemon:
        with daemon.connect() as client:
            with pytest.raises(datasetd.Error):
                daemon.load(client)
        log = _await_end(daemon)
        assert "the device failed, exiting" in log
        assert "cuMemcpyHtoDAsync: CUDA_ERROR_UNKNOWN" in log


def test_a_load_that_gets_no_memory_fails_alone():
    with _daemon("cuMemAlloc_v2@1=2") as daemon:
        with daemon.connect() as client:
            with pytest.raises(datasetd.ResourceExhausted):
                daemon.load(client)
            assert len(list(_open(daemon.load(client)))) == 10


if __name__ == "__main__":
    harness.main(__file__)
