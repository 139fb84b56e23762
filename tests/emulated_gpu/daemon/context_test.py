"""A client whose CUDA context fails: its loader ends with an error of its own,
and the daemon and other clients go on."""

from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402

_NUM_SAMPLES = 100
_LOST = """
client = datasetd.connect(ADDRESS)
loader = datasetd.DataLoader(client.get_dataset("d"), batch_size=10,
                             framework="dlpack", prefetch=2, timeout=30)
seen = 0
try:
    while True:
        for batch in loader:
            seen += 1
except datasetd.Error as error:
    say(seen=seen, error=type(error).__name__, text=str(error))
# Closing waits for nothing that does not come.
del batch
loader.close()
client.close()
say(closed=True)
hear()
"""


def test_a_lost_context_ends_the_loader_and_nothing_else(monkeypatch):
    with harness.Daemon(devices=["cuda:0"]) as daemon:
        daemon.write_dataset(_NUM_SAMPLES)
        with daemon.connect() as client:
            dataset = daemon.load(client)
            # The third release meets what a kernel of the job did.
            monkeypatch.setenv("DATASETD_EMULATED_GPU_FAULTS",
                               "cuStreamWriteValue64_v2@3=719")
            with harness.Worker(_LOST, daemon.socket_path) as worker:
                said = worker.hear()
                assert said["error"] == "ContextFailed", said
                assert "CUDA_ERROR_LAUNCH_FAILED" in said["text"]
                assert 3 <= said["seen"] < 10
                assert worker.hear() == {"closed": True}
                # Not told, the daemon cannot know that the slab is unused.
                harness.poll_until(lambda: not client.list_feeds(),
                                   "the feed's end")
                assert int(
                    client.status()["devices"][0]["slab_bytes"]) > 0
                worker.tell()
                assert worker.wait() == 0
            harness.poll_until(
                lambda: int(client.status()["devices"][0]["slab_bytes"]) == 0,
                "the slab's end")
            monkeypatch.delenv("DATASETD_EMULATED_GPU_FAULTS")
            with datasetd.DataLoader(dataset, batch_size=10,
                                     framework="dlpack") as loader:
                assert len(list(loader)) == 10


if __name__ == "__main__":
    harness.main(__file__)
