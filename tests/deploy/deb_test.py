"""The Debian package: what it holds, and its content unpacked into an empty
directory, run, and built against. tests/deploy/debootstrap.sh installs it."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import urllib.request

from tests.deploy import package_harness as harness
from tests.testing import ports

LIB = "usr/lib/x86_64-linux-gnu"
PYTHON_PACKAGES = "usr/lib/python3/dist-packages"
DOC = "usr/share/doc/datasetd"
# The packages that Depends names. The loader may need no others.
PACKAGES = {"libc6", "systemd"}

_COUNT = """
import datasetd
from datasetd import transforms as T
client = datasetd.connect()
dataset = client.load_dataset("d", format="cifar10", split="test",
                              path={path!r})
with datasetd.DataLoader(dataset, batch_size=30, shuffle=True,
                         framework="numpy",
                         transforms=[T.RandomHorizontalFlip()]) as loader:
    labels = sorted(int(i) for batch in loader for i in batch[1])
assert labels == sorted(i % 10 for i in range(100)), labels
print(client.status()["version"], datasetd.__file__)
"""


class DebTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deb = harness.runfile("deploy/datasetd_*_amd64.deb")
        directory = tempfile.TemporaryDirectory(prefix="dd", dir="/tmp")
        cls.addClassCleanup(directory.cleanup)
        cls.directory = pathlib.Path(directory.name).resolve()
        cls.root = cls.directory / "root"
        cls.control = cls.directory / "control"
        harness.run("dpkg-deb", "-x", cls.deb, cls.root)
        harness.run("dpkg-deb", "-e", cls.deb, cls.control)
        cls.data = harness.write_data(cls.directory / "data")

    def field(self, name):
        return harness.run("dpkg-deb", "-f", self.deb, name).strip()

    def start_daemon(self, *arguments):
        directory = pathlib.Path(tempfile.mkdtemp(dir=self.directory))
        return harness.Daemon(self.root / "usr/bin/datasetd", directory,
                              f"--data_root={self.data}", *arguments)

    def test_lintian_finds_no_error(self):
        harness.run("lintian", "--allow-root", "--fail-on=error", self.deb)

    def test_its_version_is_the_programs(self):
        version = self.field("Version").split("-")[0]
        self.assertEqual(
            harness.run(self.root / "usr/bin/datasetd", "--version"),
            f"datasetd {version}\n")
        self.assertIn(f"Version: {version}\n", (
            self.root / PYTHON_PACKAGES / f"datasetd-{version}.dist-info"
            / "METADATA").read_text())
        (abi,) = re.findall(
            r"^#define DATASETD_ABI_VERSION (\d+)$",
            (self.root / "usr/include/datasetd.h").read_text(), re.MULTILINE)
        self.assertIn(
            f"[libdatasetd.so.{abi}]", harness.run(
                "readelf", "-d", self.root / LIB / f"libdatasetd.so.{abi}"))
        self.assertEqual((self.control / "shlibs").read_text(),
                         f"libdatasetd {abi} datasetd\n")

    def test_depends_on_little(self):
        self.assertEqual(
            {re.match(r"\S+", word)[0]
             for word in self.field("Depends").split(", ")}, PACKAGES)

    def test_whatever_the_loader_needs_is_there(self):
        owners = {}
        for path in [*(self.root / "usr/bin").iterdir(),
                     self.root / LIB / "libdatasetd.so.1"]:
            for soname in re.findall(r"\(NEEDED\).*\[(.*)\]",
                                     harness.run("readelf", "-d", path)):
                owners.setdefault(soname, path)
        for soname in owners:
            found = harness.run("dpkg-query", "-S", f"*/{soname}")
            self.assertTrue(
                {line.split(":")[0] for line in found.splitlines()} & PACKAGES,
                f"{owners[soname]} needs {soname}: {found}")

    def test_what_is_in_etc_is_configuration(self):
        conffiles = (self.control / "conffiles").read_text().split()
        self.assertEqual(conffiles, ["/etc/datasetd/datasetd.yaml"])
        harness.run(self.root / "usr/bin/datasetd", "--check_config",
                    f"--config={self.root / conffiles[0][1:]}")

    def test_it_names_the_licences_of_what_it_holds(self):
        text = (self.root / DOC / "copyright").read_text()
        for package in ("libabsl-dev", "libarchive-dev", "libgrpc-dev",
                        "libpng-dev", "libprotobuf-dev", "libstdc++6",
                        "zlib1g-dev"):
            self.assertIn(f"\n{package}\n====", text)

    def test_the_scripts_are_shell(self):
        for name in ("preinst", "postinst", "prerm", "postrm"):
            harness.run("dash", "-n", self.control / name)

    def test_the_sums_are_those_of_the_files(self):
        harness.run("md5sum", "--quiet", "-c", self.control / "md5sums",
                    cwd=self.root)

    def test_everything_belongs_to_root(self):
        for line in harness.run("dpkg-deb", "-c", self.deb).splitlines():
            mode, owner = line.split()[:2]
            self.assertEqual(owner, "root/root", line)
            self.assertIn(mode, ("drwxr-xr-x", "-rwxr-xr-x", "-rw-r--r--",
                                 "lrwxrwxrwx"), line)

    def test_the_pages_are_pages_and_complete(self):
        texts = {}
        for section, name in ((1, "datasetctl"), (5, "datasetd.yaml"),
                              (8, "datasetd")):
            page = self.root / f"usr/share/man/man{section}/{name}.{section}.gz"
            self.assertEqual(harness.run(
                "man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page,
                stdin=subprocess.DEVNULL).count("warning"), 0)
            text = harness.run(
                "man", "-l", "-Tascii", "--nh", "--nj", page,
                environment={"MANWIDTH": "200", "LC_ALL": "C"})
            # A letter struck twice is bold.
            texts[name] = " ".join(re.sub(".\x08", "", text).split())
        self.assertIn("EXIT STATUS 0 success 1 the request was refused",
                      texts["datasetctl"])
        self.assertIn("drain_timeout", texts["datasetd.yaml"])
        for program in ("datasetctl", "datasetd"):
            path = self.root / "usr/bin" / program
            text = harness.run(path, "--help")
            for command in self.commands() if program == "datasetctl" else []:
                text += harness.run(path, command, "--help")
            flags = set(re.findall(r"(--[a-z_]+)", text)) - {"--help"}
            self.assertGreater(len(flags), 8)
            for flag in flags:
                self.assertIn(flag, texts[program])

    def commands(self):
        text = harness.run(self.root / "usr/bin/datasetctl", "--help")
        names = re.findall(r"^  ([a-z]+) ", text.split("Subcommands:")[1],
                           re.MULTILINE)
        self.assertIn("doctor", names)
        return names

    def test_the_links_of_its_pages(self):
        harness.check_links(self.root, "README.md", "SECURITY.md",
                            "loading.md", "operations.md", "overview.md",
                            "packages.md", "release.md")

    def complete(self, *words):
        script = (
            "source " + str(
                self.root / "usr/share/bash-completion/completions/datasetctl")
            + "; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _datasetctl; "
            "printf '%s\\n' \"${COMPREPLY[@]}\"")
        return harness.run("bash", "-c", script, "-", "datasetctl",
                           *words).split()

    def test_completion(self):
        self.assertEqual(sorted(self.complete("")), sorted(self.commands()))
        self.assertEqual(self.complete("un"), ["unload"])
        self.assertEqual(self.complete("--j"), ["--json"])
        self.assertEqual(self.complete("--json", "unload", "--f"), ["--force"])
        self.assertIn("--address", self.complete("load", "--"))
        # File names are left to the shell.
        self.assertEqual(self.complete("load", "/tm"), [])
        self.assertEqual(self.complete("run", "--", "--"), [])

    def test_systemd_knows_the_units(self):
        units = self.root / "lib/systemd/system"
        self.assertEqual({path.name for path in units.iterdir()},
                         {"datasetd.service", "datasetd.socket",
                          "datasetd-gpu.service", "datasetd-mps.service"})
        self.assertIn("/usr/bin/datasetd --config=/etc/datasetd/datasetd.yaml",
                      (units / "datasetd.service").read_text())
        users = self.directory / "users"
        users.mkdir()
        harness.run("systemd-sysusers", "--dry-run", f"--root={users}",
                    self.root / "usr/lib/sysusers.d/datasetd.conf")

    def test_daemon_with_metrics_and_python_package(self):
        port = ports.free_port()
        config = self.directory / "metrics.yaml"
        config.write_text(f"metrics_port: {port}\nsocket_group: \"\"\n")
        with self.start_daemon(f"--config={config}") as daemon:
            text = harness.run(
                harness.PYTHON, "-c", _COUNT.format(path=str(self.data)),
                cwd=self.directory, environment={
                    "PYTHONPATH": str(self.root / PYTHON_PACKAGES),
                    "DATASETD_ADDRESS": str(daemon.address)})
            self.assertIn(str(self.root), text)
            page = urllib.request.urlopen(
                f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
            self.assertIn('datasetd_batches_total{device="cpu"}', page)
            harness.run("promtool", "check", "metrics", input=page)
            status = json.loads(harness.run(
                self.root / "usr/bin/datasetctl", "--address", daemon.address,
                "--json", "status"))
            self.assertEqual(status["pid"], daemon.process.pid)

    def check_count_labels(self, program, **environment):
        with self.start_daemon() as daemon:
            self.assertEqual(
                harness.run(program, self.data, "test", environment={
                    "DATASETD_ADDRESS": str(daemon.address), **environment}),
                "100 samples\nlabels" + " 10" * 10 + "\nmean 49.5000\n")
            self.assertIn("data/d: no such file or directory", harness.run(
                program, self.data / "d", code=1, environment={
                    "DATASETD_ADDRESS": str(daemon.address), **environment}))

    def copy_example(self, name):
        target = self.directory / name
        harness.run("cp", "-r", self.root / DOC / "examples", target)
        return target

    def test_a_program_finds_it_by_cmake(self):
        source = self.copy_example("by_cmake")
        harness.run("cmake", "-S", source, "-B", source / "build",
                    f"-DCMAKE_PREFIX_PATH={self.root / 'usr'}")
        harness.run("cmake", "--build", source / "build")
        self.check_count_labels(source / "build/count_labels")

    def test_cmake_refuses_another_version(self):
        source = self.copy_example("by_cmake_newer")
        for wanted, code in (("0.1.0", 0), ("0.2", 1), ("1", 1),
                             ("0.1.99", 1)):
            lists = (self.root / DOC / "examples/CMakeLists.txt").read_text()
            (source / "CMakeLists.txt").write_text(
                lists.replace("datasetd 0.1 ", f"datasetd {wanted} "))
            harness.run("cmake", "-S", source, "-B", source / wanted,
                        f"-DCMAKE_PREFIX_PATH={self.root / 'usr'}", code=code)

    def test_a_program_finds_it_by_pkg_config(self):
        source = self.copy_example("by_pkg_config")
        harness.run("make", "-C", source, environment={
            "PKG_CONFIG_SYSROOT_DIR": str(self.root),
            "PKG_CONFIG_LIBDIR": str(self.root / LIB / "pkgconfig")})
        self.check_count_labels(source / "count_labels",
                                LD_LIBRARY_PATH=str(self.root / LIB))

    def test_the_training_script_trains(self):
        data = self.directory / "train"
        data.mkdir()
        for i in range(1, 6):
            (data / f"data_batch_{i}.bin").write_bytes(
                (self.data / "test_batch.bin").read_bytes())
        with self.start_daemon(f"--data_root={data}") as daemon:
            text = harness.run(
                harness.PYTHON, self.root / DOC / "examples/train_cifar.py",
                data, "--batch_size=50", "--epochs=2", cwd=self.directory,
                environment={"PYTHONPATH": str(self.root / PYTHON_PACKAGES),
                             "DATASETD_ADDRESS": str(daemon.address)})
        self.assertIn("20 batches", text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
