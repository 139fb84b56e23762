"""The daemon, its client and torch as one, on one device.

    system_test.py DEVICE [unittest's arguments]

DEVICE is "cpu" or "cuda:0". Needs the package datasetd on PYTHONPATH, and
torch, with CUDA for a GPU; on "cpu" NumPy will do. Standard library otherwise.
"""

import json
import os
import pathlib
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import datasetd
from datasetd import transforms as T

DEVICE = "cpu"
NUM_SAMPLES = 3000
BATCH_SIZE = 100
GONE_SECONDS = 2.0
DEADLINE_SECONDS = 60.0
# About a tenth of a second and more of a GPU's time.
BUSY_CYCLES = 200_000_000

# Says "ready" with batches in hand, then serves itself until it is killed. On
# a GPU its stream is kept busy with them.
_RUNNER = """
import sys
import datasetd
address, path, device = sys.argv[1:]
client = datasetd.connect(address)
dataset = client.load_dataset("d", format="cifar10", split="test", path=path,
                              device=device)
loader = datasetd.DataLoader(dataset, batch_size=100, shuffle=True,
                             name="runner", timeout=60)
kept = []
num = 0
try:
    while True:
        for batch in loader:
            if device != "cpu":
                import torch
                torch.cuda._sleep(2_000_000)
                batch[0].float().sum()
            num += 1
            if num == 3:
                kept.append(batch)
                print("ready", flush=True)
except datasetd.DaemonGone:
    print("DaemonGone", flush=True)
"""


def pipeline(dtype):
    ops = [T.RandomCrop(32, padding=4), T.RandomHorizontalFlip()]
    if dtype != "uint8":
        ops += [T.ToDtype(dtype, scale=True),
                T.Normalize([0.4914, 0.4822, 0.4465],
                            [0.2470, 0.2435, 0.2616])]
    return ops


def write_cifar10_test(directory):
    engine = random.Random(1)
    directory.mkdir(parents=True)
    with open(directory / "test_batch.bin", "wb") as file:
        for i in range(NUM_SAMPLES):
            file.write(bytes([i % 10]))
            file.write(engine.getrandbits(3072 * 8).to_bytes(3072, "little"))


def to_bytes(array):
    """The elements of a batch's array, in its logical order."""
    if hasattr(array, "detach"):
        import torch

        array = array.detach().contiguous().cpu()
        return bytes(array.flatten().view(torch.uint8).numpy())
    return array.tobytes()


class SystemTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="dd")
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        self.path = self.directory / "data"
        write_cifar10_test(self.path)

    def daemon(self, device=None, **config):
        path = self.directory / f"config-{len(list(self.directory.iterdir()))}"
        path.write_text(json.dumps(config))
        daemon = datasetd.start_local(
            device=device or DEVICE, memory_budget_mib=1024,
            arguments=[f"--config={path}"])
        # Not the bare close: it holds no reference, and the workers go first.
        self.addCleanup(lambda: daemon.close())
        return daemon

    def load(self, client, device=None):
        return client.load_dataset("d", format="cifar10", split="test",
                                   path=self.path, device=device or DEVICE)

    def loader(self, dataset, dtype="float16", **options):
        options = dict(batch_size=BATCH_SIZE, shuffle=True, seed=17,
                       transforms=pipeline(dtype), timeout=60, **options)
        return datasetd.DataLoader(dataset, **options)

    def digest(self, daemon, device=None, dtypes=("float16",), epochs=2):
        """[(indices, pixels, labels) of each batch], as bytes."""
        rows = []
        with daemon.connect() as client:
            dataset = self.load(client, device)
            for dtype in dtypes:
                for layout in ("NCHW", "NHWC"):
                    with self.loader(dataset, dtype, layout=layout) as loader:
                        for _ in range(epochs):
                            for batch in loader:
                                rows.append((batch.index,
                                             to_bytes(batch[0]),
                                             to_bytes(batch[1])))
        return rows

    def worker(self, daemon):
        process = subprocess.Popen(
            [sys.executable, "-c", _RUNNER, daemon.address, str(self.path),
             DEVICE], stdout=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual(self.hear(process), "ready")
        return process

    def hear(self, process):
        ready, _, _ = select.select([process.stdout], [], [],
                                    DEADLINE_SECONDS)
        self.assertTrue(ready, "the worker said nothing")
        return process.stdout.readline().decode().strip()

    def poll_until(self, condition, what, timeout):
        deadline = time.monotonic() + timeout
        while not condition():
            self.assertLess(time.monotonic(), deadline,
                            f"not within {timeout} s: {what}")
            select.select([], [], [], 0.005)

    def require_gpu(self):
        if DEVICE == "cpu":
            self.skipTest("about CUDA streams: no GPU here")
        import torch

        self.assertTrue(torch.cuda.is_available(), "torch sees no GPU")
        return torch

    # -- Pixels -------------------------------------------------------------

    def test_pixels_equal_the_host_backends_bit_for_bit(self):
        dtypes = ("uint8", "float16", "float32")
        expected = self.digest(self.daemon("cpu", host_threads=1), "cpu",
                               dtypes)
        self.assertEqual(len(expected), 2 * 2 * len(dtypes) * 30)
        self.assertNotEqual(expected[0][1], expected[30][1])
        actual = self.digest(self.daemon(host_threads=3), None, dtypes)
        for number, pair in enumerate(zip(expected, actual)):
            self.assertEqual(*pair, f"batch {number}")
        self.assertEqual(len(actual), len(expected))

    def test_every_export_kind_gives_the_same_batches(self):
        kinds = (["auto"] if DEVICE == "cpu" else
                 ["auto", "cuda_ipc_handle", "cuda_vmm_fd"])
        expected = self.digest(self.daemon("cpu"), "cpu")
        for kind in kinds:
            with self.subTest(kind=kind):
                self.assertEqual(
                    self.digest(self.daemon(slab_export=kind)), expected)

    # -- Streams ------------------------------------------------------------

    def check_delayed_use(self, use):
        """Gives each batch to `use`, drops it, and goes on; the copies that
        `use` queued must hold what the batch held."""
        with self.daemon("cpu").connect() as client:
            with self.loader(self.load(client, "cpu")) as loader:
                expected = [to_bytes(batch[0]) for batch in loader]
        copies = []
        with self.daemon().connect() as client:
            with self.loader(self.load(client), prefetch=2) as loader:
                for batch in loader:
                    copies.append(use(batch))
                    del batch
                import torch

                torch.cuda.synchronize()
        self.assertEqual(len(copies), len(expected))
        for number, copy in enumerate(copies):
            self.assertEqual(to_bytes(copy), expected[number],
                             f"batch {number} was overwritten while in use")

    def test_release_waits_for_the_stream_that_took_the_batch(self):
        torch = self.require_gpu()

        def use(batch):
            torch.cuda._sleep(BUSY_CYCLES)
            return batch[0].clone()

        self.check_delayed_use(use)

    def test_release_waits_for_recorded_streams(self):
        torch = self.require_gpu()
        side = torch.cuda.Stream()

        def use(batch):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                torch.cuda._sleep(BUSY_CYCLES)
                copy = batch[0].clone()
            batch.record_stream(side)
            return copy

        self.check_delayed_use(use)

    def test_another_stream_waits_for_the_copied_labels(self):
        torch = self.require_gpu()
        with self.daemon("cpu").connect() as client:
            with self.loader(self.load(client, "cpu")) as loader:
                expected = [batch[1].tolist() for batch in loader]
        with self.daemon().connect() as client:
            with self.loader(self.load(client)) as loader:
                busy = torch.cuda.Stream()
                with torch.cuda.stream(busy):
                    torch.cuda._sleep(BUSY_CYCLES)
                    loader.peek()
                batches = iter(loader)
                self.assertEqual(next(batches)[1].tolist(), expected[0])
                with torch.cuda.stream(busy):
                    torch.cuda._sleep(BUSY_CYCLES)
                    batch = next(batches)
                batch.record_stream(torch.cuda.current_stream())
                self.assertEqual(batch[1].tolist(), expected[1])

    # -- Processes ----------------------------------------------------------

    def test_jobs_share_one_resident_dataset(self):
        daemon = self.daemon()
        with daemon.connect() as client:
            self.load(client)
            before = client.status()["devices"][0]["dataset_bytes"]
            self.worker(daemon)
            self.worker(daemon)
            self.assertEqual(len(client.list_feeds()), 2)
            after = client.status()["devices"][0]["dataset_bytes"]
            self.assertEqual(after, before)
            self.assertGreaterEqual(int(after), NUM_SAMPLES * 3072)

    def test_sigkill_of_a_client_frees_its_slab_and_disturbs_nobody(self):
        daemon = self.daemon()
        expected = self.digest(self.daemon("cpu"), "cpu")
        with daemon.connect() as client:
            self.load(client)
            before = client.status()["devices"][0]["slab_bytes"]
            for _ in range(3):
                worker = self.worker(daemon)
                self.assertNotEqual(
                    client.status()["devices"][0]["slab_bytes"], before)
                worker.kill()
                worker.wait()
                self.poll_until(lambda: not client.list_feeds(),
                                "the feed's end", GONE_SECONDS)
                self.poll_until(
                    lambda: client.status()["devices"][0]["slab_bytes"] ==
                    before, "the slab's end", GONE_SECONDS)
            self.assertEqual(self.digest(daemon), expected)

    def test_sigkill_of_the_daemon_is_daemon_gone(self):
        # slab_export "auto" and, on a GPU, each kind: what a client sees must
        # not depend on it.
        kinds = (["auto"] if DEVICE == "cpu" else
                 ["cuda_ipc_handle", "cuda_vmm_fd"])
        for kind in kinds:
            with self.subTest(kind=kind):
                daemon = self.daemon(slab_export=kind)
                worker = self.worker(daemon)
                os.kill(daemon.pid, signal.SIGKILL)
                start = time.monotonic()
                self.assertEqual(self.hear(worker), "DaemonGone")
                self.assertLess(time.monotonic() - start, GONE_SECONDS)
                self.assertEqual(worker.wait(DEADLINE_SECONDS), 0)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    DEVICE = sys.argv.pop(1)
    unittest.main(verbosity=2)
