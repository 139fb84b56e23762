"""A daemon with a cache and a state directory, on data of its own, that a test
kills and starts again."""

import glob
import os
import shutil
import tempfile

from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402

NUM_SAMPLES = 3000


class World:
    """A data directory, a cache, a state directory, and a daemon on them."""

    def __init__(self, has_cache=True, has_state=True, **config):
        self.directory = tempfile.mkdtemp(prefix="rs", dir="/tmp")
        self.cache = os.path.join(self.directory, "cache")
        self.state = os.path.join(self.directory, "state")
        if has_cache:
            config["cache"] = {"directory": self.cache, "limit_mib": 1024}
        if has_state:
            config["state_directory"] = self.state
        self.daemon = harness.Daemon(directory=self.directory, **config)
        self.path = os.path.join(self.daemon.data_root, "c10")
        self.write_dataset(NUM_SAMPLES)

    def write_dataset(self, num_samples):
        self.planes, self.labels = harness.write_cifar10_test(
            self.path, num_samples)

    def load(self, client, name="d", **arguments):
        return client.load_dataset(name, format="cifar10", split="test",
                                   path=self.path, **arguments)

    def entries(self, suffix=".cache"):
        return glob.glob(os.path.join(self.cache, "*" + suffix))

    def await_stored(self, count=1):
        harness.poll_until(
            lambda: len(self.entries()) == count and not self.entries(".tmp"),
            f"{count} entries: {self.daemon.log()}")

    def restart(self, is_graceful=False):
        """SIGKILL, or SIGTERM and an orderly end; and a new daemon."""
        if is_graceful:
            self.daemon.terminate()
            code = self.daemon.wait()
            assert code == 0, f"it ended with {code}: {self.daemon.log()}"
        self.daemon.kill()
        self.daemon.start()

    def datasets(self, client):
        return {d["name"]: d for d in client.list_datasets()}

    def await_state(self, client, state, name="d"):
        harness.poll_until(
            lambda: self.datasets(client)[name]["state"] ==
            "DATASET_STATE_" + state,
            f"{name} {state}: {self.daemon.log()}")

    def check_samples(self, client):
        """Every sample is that of the source."""
        self.check_samples_of(self.load(client))

    def check_samples_of(self, dataset, **arguments):
        with datasetd.DataLoader(dataset, batch_size=100, prefetch=1,
                                 framework="numpy", **arguments) as loader:
            for batch in loader:
                rows = batch.indices
                assert (batch[0] == self.planes[rows]).all()
                assert (batch[1] == self.labels[rows]).all()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.daemon.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


def flip(file, offset):
    """Changes a bit of a file."""
    with open(file, "r+b") as stream:
        stream.seek(offset)
        byte = stream.read(1)[0]
        stream.seek(offset)
        stream.write(bytes([byte ^ 4]))
