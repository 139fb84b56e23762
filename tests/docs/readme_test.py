"""README.md: its example of C++, run as it stands there, and its commands.
examples_test.py runs those of Python."""

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

    def test_cpp_example(self):
        done = subprocess.run(
            [runfile("client/ctl/datasetctl"), "run", "--daemon",
             runfile("server/datasetd"), "--device", "cpu", "--",
             runfile("tests/docs/readme_example"), self.data],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout, "1000 samples\n")

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
