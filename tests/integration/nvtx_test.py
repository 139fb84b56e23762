"""The NVTX ranges of daemon and client, as a profiler is told them."""

import os
import subprocess
import sys
import tempfile
import unittest

from tests.testing import daemon_harness
from tests.testing.daemon_harness import runfile

PROGRAM = """
import os
import signal
import sys
import datasetd
with datasetd.connect(sys.argv[1]) as client:
    dataset = client.load_dataset("d", format="cifar10", path=sys.argv[2],
                                  split="test")
    with datasetd.DataLoader(dataset, batch_size=10, framework="numpy",
                             timeout=0.05) as batches:
        # A daemon that stands still is waited for.
        os.kill(int(sys.argv[3]), signal.SIGSTOP)
        try:
            while True:
                for images, labels in batches:
                    del images, labels
        except datasetd.DeadlineExceeded:
            print("waited", flush=True)
        finally:
            os.kill(int(sys.argv[3]), signal.SIGCONT)
        while True:
            try:
                for _ in range(20):
                    for images, labels in batches:
                        del images, labels
                break
            except datasetd.DeadlineExceeded:
                pass
"""


class NvtxTest(unittest.TestCase):
    def ranges(self, directory, pid):
        with open(os.path.join(directory, str(pid))) as file:
            return {name: int(count)
                    for name, count in (line.split() for line in file)}

    def test_ranges_of_both_sides_have_names_and_ends(self):
        daemon_harness.use_python_package()
        with tempfile.TemporaryDirectory(dir="/tmp") as directory:
            os.environ["NVTX_INJECTION64_PATH"] = runfile(
                "tests/testing/libnvtx_recorder.so")
            os.environ["NVTX_RECORDER_DIRECTORY"] = directory
            self.addCleanup(os.environ.pop, "NVTX_INJECTION64_PATH")
            self.addCleanup(os.environ.pop, "NVTX_RECORDER_DIRECTORY")
            with daemon_harness.Daemon() as daemon:
                data = os.path.join(daemon.data_root, "cifar")
                daemon_harness.write_cifar10_test(data, 100)
                job = subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, daemon.socket_path, data,
                     str(daemon.pid)], stdout=subprocess.PIPE)
                out, _ = job.communicate(timeout=60)
                self.assertEqual((job.returncode, out), (0, b"waited\n"))
                pid = daemon.pid
                daemon.terminate()
                self.assertEqual(daemon.wait(), 0)
            served, client = (self.ranges(directory, p) for p in (pid, job.pid))
        self.assertEqual(sorted(served), ["load", "produce"])
        self.assertEqual(served["load"], 1)
        # A range is a launch, of at most 8 batches.
        self.assertGreaterEqual(served["produce"], 200 // 8)
        self.assertGreaterEqual(client["release"], 200)
        self.assertGreaterEqual(client["wait"], 1)
        self.assertNotIn("unbalanced", client)


if __name__ == "__main__":
    unittest.main()
