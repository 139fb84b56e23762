"""The wheel: as pip wants it, and used from an environment that has nothing
else."""

import base64
import csv
import hashlib
import io
import pathlib
import sys
import tarfile
import tempfile
import unittest
import zipfile

from tests.deploy import package_harness as harness

_USE = """
import sys
import datasetd
from datasetd import transforms as T
with datasetd.start_local(device="cpu") as daemon:
    client = daemon.connect()
    dataset = client.load_dataset("d", format="cifar10", split="test",
                                  path=sys.argv[1])
    with datasetd.DataLoader(dataset, batch_size=30, framework="dlpack",
                             shuffle=True,
                             transforms=[T.RandomHorizontalFlip()]) as loader:
        print(sum(batch.num_samples for batch in loader), "samples")
try:
    import numpy
except ImportError:
    print("no numpy")
print(datasetd.__file__)
"""


class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.wheel = harness.runfile("deploy/datasetd-*.whl")
        directory = tempfile.TemporaryDirectory(prefix="dd", dir="/tmp")
        cls.addClassCleanup(directory.cleanup)
        cls.directory = pathlib.Path(directory.name).resolve()
        cls.data = harness.write_data(cls.directory / "data")

    def test_its_record_is_true(self):
        with zipfile.ZipFile(self.wheel) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        (record,) = [name for name in files if name.endswith("/RECORD")]
        rows = {row[0]: row[1:] for row in
                csv.reader(io.StringIO(files[record].decode()))}
        self.assertEqual(rows.pop(record), ["", ""])
        self.assertEqual(set(rows), set(files) - {record})
        for name, (digest, size) in rows.items():
            algorithm, text = digest.split("=", 1)
            self.assertEqual(algorithm, "sha256")
            self.assertEqual(
                base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)),
                hashlib.sha256(files[name]).digest(), name)
            self.assertEqual(int(size), len(files[name]))
        self.assertIn("Tag: py3-none-manylinux_2_36_x86_64\n",
                      files[record.replace("RECORD", "WHEEL")].decode())

    def test_the_same_files_give_the_same_bytes(self):
        _, version, tag = self.wheel.stem.split("-", 2)
        unpacked = self.directory / "unpacked"
        with zipfile.ZipFile(self.wheel) as archive:
            archive.extractall(unpacked)
            names = [name for name in archive.namelist()
                     if ".dist-info/" not in name]
        again = self.directory / "again.whl"
        harness.run(
            harness.PYTHON, "-I", harness.runfile("deploy/make_wheel.py"),
            again, version, tag,
            unpacked / f"datasetd-{version}.dist-info/METADATA",
            *[f"{name}={unpacked / name}" for name in reversed(names)])
        self.assertEqual(again.read_bytes(), self.wheel.read_bytes())

    def test_installed_by_pip_and_used(self):
        venv = self.directory / "venv"
        harness.run(harness.PYTHON, "-m", "venv", venv)
        harness.run(venv / "bin/python", "-m", "pip", "install", "--no-index",
                    "--no-deps", "--disable-pip-version-check", self.wheel,
                    environment={"HOME": str(self.directory)})
        # The daemon is the release's, by $DATASETD_DAEMON and by PATH.
        release = harness.runfile("deploy/datasetd-*-linux-x86_64.tar.gz")
        with tarfile.open(release) as archive:
            archive.extractall(self.directory)
        name = release.name[:-len(".tar.gz")]
        daemon = self.directory / name / "bin/datasetd"
        for environment in ({"DATASETD_DAEMON": str(daemon)},
                            {"PATH": f"{daemon.parent}:/usr/bin:/bin"}):
            text = harness.run(venv / "bin/python", "-c", _USE, self.data,
                               cwd=self.directory, environment=environment)
            self.assertIn("100 samples\nno numpy\n", text)
            self.assertIn(str(venv), text)
        harness.run(venv / "bin/python", "-m", "pip", "check",
                    environment={"HOME": str(self.directory)})
        harness.run(venv / "bin/python", "-m", "pip", "uninstall", "-y",
                    "datasetd", environment={"HOME": str(self.directory)})
        self.assertEqual(list(venv.rglob("*datasetd*")), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
