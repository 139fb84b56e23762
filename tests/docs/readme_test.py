"""The examples of README.md, run as they stand there."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from tests.testing import daemon_harness
from tests.testing.daemon_harness import runfile


class ReadmeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        daemon_harness.use_python_package()
        with open(runfile("README.md"), encoding="utf-8") as file:
            cls.text = file.read()
        cls.directory = tempfile.mkdtemp(dir="/tmp")
        cls.data = os.path.join(cls.directory, "data")
        # 1000 samples to train on.
        subprocess.run(
            [sys.executable, runfile("deploy/make_cifar10.py"), cls.data,
             "--samples_per_file", "200"], check=True, timeout=60)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.directory)

    def test_first_example(self):
        """As a new user runs it, who has a home directory and no daemon."""
        block, = re.findall(r"^```py\n(.*?)^```$", self.text,
                            re.MULTILINE | re.DOTALL)
        home = os.path.join(self.directory, "home")
        os.makedirs(os.path.join(home, "data"))
        os.chmod(home, 0o700)
        os.symlink(self.data, os.path.join(home, "data/cifar-10-batches-bin"))
        environment = dict(
            os.environ, HOME=home, XDG_RUNTIME_DIR=home,
            DATASETD_IDLE_SECONDS="1")
        environment.pop("DATASETD_ADDRESS", None)
        done = subprocess.run(
            [sys.executable, "-c", block], env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(
            done.stdout.splitlines(),
            ["torch.Size([128, 3, 32, 32]) torch.Size([128])"] * 7
            + ["torch.Size([104, 3, 32, 32]) torch.Size([104])"])

    def run_example(self, *command):
        done = subprocess.run(
            [runfile("client/ctl/datasetctl"), "run", "--daemon",
             runfile("server/datasetd"), "--device", "cpu", "--", *command,
             self.data],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_python_example(self):
        block, = re.findall(r"^```python\n(.*?)^```$", self.text,
                            re.MULTILINE | re.DOTALL)
        path = os.path.join(self.directory, "example.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(block)
        self.assertEqual(
            self.run_example(sys.executable, path),
            "epoch 0: 7 batches of (128, 3, 32, 32)\n"
            "epoch 1: 7 batches of (128, 3, 32, 32)\n")

    def test_cpp_example(self):
        self.assertEqual(
            self.run_example(runfile("tests/docs/readme_example")),
            "1000 samples\n")

    def test_commands_are_those_that_there_are(self):
        named = set(re.findall(r"^datasetctl ([a-z]+)", self.text,
                               re.MULTILINE))
        usage = subprocess.run(
            [runfile("client/ctl/datasetctl"), "--help"], check=True,
            stdout=subprocess.PIPE, text=True).stdout
        known = set(re.findall(r"^  ([a-z]+)  ", usage, re.MULTILINE))
        self.assertEqual(named | {"run"}, known)


if __name__ == "__main__":
    unittest.main()
