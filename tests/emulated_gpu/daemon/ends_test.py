"""SIGKILL of a client and of the daemon, and tensors that outlive their loader,
on the emulated GPU. The log of the driver shows nothing forbidden."""

import os

import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402

from tests.conformance import loader_harness as loaders  # noqa: E402

_NUM_SAMPLES = 120
_EXPORTS = ("cuda_vmm_fd", "cuda_ipc_handle")

_HOLDER = """
client = datasetd.connect(ADDRESS)
loader = datasetd.DataLoader(client.get_dataset("d"), batch_size=20,
                             framework="dlpack", name="holder")
iterator = iter(loader)
kept = [next(iterator), next(iterator)]
say(holding=2)
hear()
"""
# Says how the loader ends when the daemon is gone.
_SURVIVOR = """
client = datasetd.connect(ADDRESS)
loader = datasetd.DataLoader(client.get_dataset("d"), batch_size=20,
                             framework="dlpack", prefetch=2)
iterator = iter(loader)
kept = next(iterator)
say(ready=True)
hear()
try:
    while True:
        next(iterator)
except datasetd.Error as error:
    say(error=type(error).__name__)
del kept
loader.close()
client.close()
say(closed=True)
"""
# Counts what comes from the daemon and from the one that follows it.
_RECONNECTOR = """
client = datasetd.connect(ADDRESS)
loader = datasetd.DataLoader(client.get_dataset("d"), batch_size=20,
                             framework="dlpack", prefetch=2, reconnect=50)
seen = []
for batch in loader:
    seen.append(batch.index)
    if len(seen) == 2:
        say(ready=True)
        hear()
say(seen=seen)
"""


@pytest.fixture(name="daemon", params=_EXPORTS)
def _daemon(request, tmp_path):
    log = tmp_path / "driver.log"
    with harness.Daemon(
            devices=["cuda:0"], slab_export=request.param,
            environment={"DATASETD_EMULATED_GPU_LOG": str(log)}) as daemon:
        daemon.write_dataset(_NUM_SAMPLES)
        daemon.export = request.param
        with daemon.connect() as client:
            daemon.load(client)
        yield daemon
        assert "finding" not in log.read_text()


def _slab_bytes(client):
    return int(client.status()["devices"][0]["slab_bytes"])


def test_sigkill_of_a_client_frees_its_slab(daemon):
    with daemon.connect() as client:
        before = _slab_bytes(client)
        for _ in range(3):
            with harness.Worker(_HOLDER, daemon.socket_path) as holder:
                holder.hear()
                assert _slab_bytes(client) > before
                holder.kill()
                holder.wait()
            harness.poll_until(
                lambda: not client.list_feeds()
                and _slab_bytes(client) == before, "the slab's end")
        assert daemon.is_running()


def test_sigkill_of_the_daemon_ends_the_loader(daemon):
    with harness.Worker(_SURVIVOR, daemon.socket_path) as survivor:
        survivor.hear()
        daemon.kill()
        survivor.tell()
        assert survivor.hear()["error"] == "DaemonGone"
        assert survivor.hear() == {"closed": True}
        assert survivor.wait() == 0


def test_a_loader_goes_on_with_the_next_daemon(daemon):
    with harness.Worker(_RECONNECTOR, daemon.socket_path) as worker:
        worker.hear()
        daemon.kill()
        daemon.start()
        with daemon.connect() as client:
            client.load_dataset("d", format="cifar10", split="test",
                                path=os.path.join(daemon.data_root, "d"))
        worker.tell()
        assert worker.hear()["seen"] == list(range(6))


def test_a_tensor_outlives_its_loader(daemon):
    with daemon.connect() as client:
        loader = datasetd.DataLoader(client.get_dataset("d"), batch_size=20,
                                     framework="dlpack")
        kept = next(iter(loader))[0]
        loader.close()
        harness.poll_until(lambda: not client.list_feeds(), "the feed's end")
        assert _slab_bytes(client) > 0
        assert (loaders.array(kept) == daemon.planes[:20]).all()
        del kept
        harness.poll_until(lambda: _slab_bytes(client) == 0, "the slab's end")


def test_a_daemon_that_is_told_to_end_does(daemon):
    with harness.Worker(_HOLDER, daemon.socket_path) as holder:
        holder.hear()
        daemon.terminate()
        assert daemon.wait() == 0, daemon.log()


if __name__ == "__main__":
    harness.main(__file__)
