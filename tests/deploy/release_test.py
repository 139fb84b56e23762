"""The release, unpacked into an empty directory and run with an empty
environment, as on a machine that has nothing of ours."""

import glob
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import unittest
import urllib.request

from tests.deploy import package_harness
from tests.testing import ports

# A third is programs of the self-test, each linked by itself.
MAX_BYTES = 48 << 20
MAX_GLIBC = (2, 28)
GLIBC = {"libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0",
         "ld-linux-x86-64.so.2"}
PYTHON = "/usr/bin/python3"
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}


def find_archive():
    pattern = os.path.join(
        os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"],
        "deploy/datasetd-*-linux-x86_64.tar.gz")
    (archive,) = glob.glob(pattern)
    return pathlib.Path(archive)


def run(*command, **options):
    options.setdefault("env", ENVIRONMENT)
    result = subprocess.run(
        [str(word) for word in command], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, universal_newlines=True, **options)
    assert result.returncode == 0, f"{command}: {result.stdout[-8000:]}"
    return result.stdout


def readelf(option, path):
    return run("readelf", "-W", option, path)


_CLIENT = """
import sys
{before}
import datasetd
from datasetd import transforms as T
{after}
client = datasetd.connect(sys.argv[1])
dataset = client.load_dataset("d", format="cifar10", split="test",
                              path=sys.argv[2])
with datasetd.DataLoader(dataset, batch_size=30, shuffle=True,
                         transforms=[T.RandomHorizontalFlip()]) as loader:
    assert sum(batch[0].shape[0] for batch in loader) == 100
maps = {{line.split()[-1] for line in open("/proc/self/maps")
         if ".so" in line}}
print("\\n".join(sorted(maps)))
try:
    client.get_dataset("none")
except datasetd.NotFound:
    print("NotFound")
"""


# Its symbols are everybody's.
_OTHERS = """import ctypes
for name in ("libgrpc++.so.1.51", "libprotobuf.so.32"):
    ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)"""
_ALL = f"import torch\ntorch.ones(9999).sum()\n{_OTHERS}"
# Both take from the fixed space for thread-local variables, too.
_PRELOADED = ("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2 "
              "/usr/lib/x86_64-linux-gnu/libgomp.so.1")

# As its user: the sandbox has no other.
_SHARING = """
import pathlib, sys, tempfile
import datasetd
import sharing_probe
with tempfile.TemporaryDirectory() as name:
    copy = pathlib.Path(name)
    environment = sharing_probe.copy_product(copy)
    with datasetd.start_local(
            device="cpu", memory_budget_mib=64,
            binary=str(copy / "bin" / "datasetd")) as daemon, \\
            daemon.connect() as client:
        client.load_dataset("probe", format="cifar10", split="test",
                            path=sys.argv[1])
        print(sharing_probe.take_batch((), daemon.address, environment))
"""


class ReleaseTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.archive = find_archive()
        directory = tempfile.TemporaryDirectory(prefix="dd", dir="/tmp")
        cls.addClassCleanup(directory.cleanup)
        cls.directory = pathlib.Path(directory.name).resolve()
        with tarfile.open(cls.archive) as archive:
            archive.extractall(cls.directory)
        (cls.root,) = cls.directory.iterdir()
        cls.path = cls.directory / "data"
        cls.path.mkdir()
        (cls.path / "test_batch.bin").write_bytes(
            b"".join(bytes([i % 10]) + bytes(3072) for i in range(100)))

    def elf_files(self):
        for path in sorted(self.root.rglob("*")):
            if path.is_file() and not path.is_symlink():
                with open(path, "rb") as file:
                    if file.read(4) == b"\x7fELF":
                        yield path

    def start_daemon(self, *arguments, **environment):
        address = self.directory / "d.sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
            notice_path = self.directory / "notify.sock"
            notice_path.unlink(missing_ok=True)
            notices.bind(str(notice_path))
            notices.settimeout(60)
            daemon = subprocess.Popen(
                [self.root / "bin/datasetd", f"--socket_path={address}",
                 "--device=cpu", f"--data_root={self.path}",
                 "--memory_budget_mib=64", *arguments],
                env={**ENVIRONMENT, "NOTIFY_SOCKET": str(notice_path),
                     **environment})
            self.addCleanup(daemon.wait)
            self.addCleanup(daemon.kill)
            while b"READY=1" not in notices.recv(4096):
                pass
        return daemon, address

    def test_size(self):
        self.assertLessEqual(self.archive.stat().st_size, MAX_BYTES)

    def test_it_names_the_licences_of_what_it_contains(self):
        package_harness.check_licences(self.root / "LICENCES")

    def test_the_links_of_its_pages(self):
        package_harness.check_links(self.root, "README.md", "overview.md",
                                    "formats.md", "readers.md",
                                    "transforms.md")

    def test_version(self):
        version = re.match(r"datasetd-(.*)-linux-x86_64$", self.root.name)[1]
        self.assertEqual(run(self.root / "bin/datasetd", "--version"),
                         f"datasetd {version}\n")

    def test_the_containers_dockerfile(self):
        """Its first stage leaves a daemon that runs, and the programs that
        probes call."""
        text = package_harness.runfile(
            "deploy/container/Dockerfile").read_text()
        stage = re.sub(r"\\\n", " ", text).split("\nFROM ")[1]
        version = re.search(r"^ARG VERSION=(.*)$", stage, re.M)[1]
        place = tempfile.TemporaryDirectory(prefix="dd", dir="/tmp")
        self.addCleanup(place.cleanup)
        added, folder = re.search(r"^ADD (\S+) (\S+)$", stage, re.M).groups()
        self.assertEqual(added.replace("${VERSION}", version),
                         self.archive.name)
        with tarfile.open(self.archive) as archive:
            archive.extractall(place.name + folder)
        script = re.search(r"^RUN (.*)$", stage, re.M)[1]
        for path in (folder, "/opt"):
            script = script.replace(f" {path}", f" {place.name}{path}")
        run("/bin/sh", "-ec", script,
            env={**ENVIRONMENT, "VERSION": version})
        (copied,) = re.findall(r"^COPY --from=release (\S+) (\S+)$", text,
                               re.M)
        self.assertEqual(copied[0], copied[1])
        image = pathlib.Path(place.name + copied[0])
        self.assertEqual(sorted(path.name for path in image.iterdir()),
                         ["COMMIT", "LICENCES", "README.md", "bin", "lib",
                          "python"])
        for program in ("datasetd", "datasetctl"):
            self.assertIn(version, run(image / "bin" / program, "--version"))
        self.root, whole = image, self.root
        try:
            _, address = self.start_daemon()
        finally:
            self.root = whole
        run(image / "bin/datasetctl", f"--address={address}", "status")

    def test_needs_nothing_but_glibc(self):
        names = set()
        for path in self.elf_files():
            dynamic = readelf("-d", path)
            self.assertLessEqual(
                set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)), GLIBC, path)
            self.assertNotRegex(dynamic, "RPATH|RUNPATH")
            for version in re.findall(r"Name: GLIBC_(\S+)",
                                      readelf("-V", path)):
                self.assertLessEqual(
                    tuple(map(int, version.split("."))), MAX_GLIBC, path)
            names.add(path.name)
        self.assertLessEqual({"datasetd", "datasetctl", "libdatasetd.so",
                              "augment_parity_test"}, names)

    def test_the_loader_has_room_for_the_library(self):
        """It may be opened late, beside others: its thread-local variables are
        not of those that take from a fixed space."""
        dynamic = readelf("-d", self.root / "lib/libdatasetd.so")
        self.assertNotIn("STATIC_TLS", dynamic)
        self.assertIn("[libdatasetd.so.1]", dynamic)
        self.assertEqual(os.readlink(self.root / "lib/libdatasetd.so.1"),
                         "libdatasetd.so")

    def test_library_exports_the_c_api_only(self):
        header = (self.root / "include/datasetd.h").read_text()
        declared = set(re.findall(r"DATASETD_API[^;(]*?(datasetd_\w+)\(",
                                  header))
        defined = set()
        for line in readelf("--dyn-syms",
                            self.root / "lib/libdatasetd.so").splitlines():
            fields = line.split()
            if len(fields) == 8 and fields[6] != "UND" and (
                    fields[4] in ("GLOBAL", "WEAK", "UNIQUE")):
                defined.add(fields[7].split("@")[0])
            elif len(fields) == 8 and fields[7].startswith("_Z"):
                self.fail(f"another library may define {fields[7]}")
        self.assertEqual(defined, declared)
        self.assertGreater(len(declared), 20)

    def test_the_configuration_is_this_versions(self):
        run(self.root / "bin/datasetd", "--check_config",
            f"--config={self.root / 'docs/datasetd.yaml'}")

    def test_daemon_and_datasetctl(self):
        daemon, address = self.start_daemon()
        ctl = [self.root / "bin/datasetctl", "--address", address, "--json"]
        status = json.loads(run(*ctl, "status"))
        self.assertEqual(status["pid"], daemon.pid)
        # A command of the package, which is found beside the program.
        failed = subprocess.run(
            [*ctl, "explain", "none", "--transforms", "flip"],
            env=ENVIRONMENT, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(json.loads(failed.stderr)["error"]["code"],
                         "NOT_FOUND")
        self.assertIn("'none'", failed.stderr)
        daemon.send_signal(signal.SIGTERM)
        self.assertEqual(daemon.wait(30), 0)

    def bindings(self, log):
        """(from, to, line) of every symbol bound, as LD_DEBUG_OUTPUT=`log`
        has it."""
        for path in self.directory.glob(f"{log.name}.*"):
            for line in path.read_text().splitlines():
                match = re.search(r"binding file (\S+) \[0\] to (\S+) \[0\]: "
                                  r"\S+ symbol `(\S+)'", line)
                if match:
                    yield (*map(os.path.realpath, match.groups()[:2]), line)
            path.unlink()

    def test_metrics(self):
        """As elsewhere, with no library but glibc."""
        port = ports.free_port()
        config = self.directory / "metrics.yaml"
        config.write_text(f"metrics_port: {port}\nsocket_group: \"\"\n")
        daemon, _ = self.start_daemon(f"--config={config}")
        page = urllib.request.urlopen(
            f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
        self.assertIn('datasetd_device_used_bytes{device="cpu"', page)
        run("promtool", "check", "metrics", input=page)

        maps = pathlib.Path(f"/proc/{daemon.pid}/maps").read_text()
        mapped = {line.split()[-1] for line in maps.splitlines()
                  if ".so" in line}
        self.assertLessEqual(set(map(os.path.basename, mapped)), GLIBC)
        daemon.send_signal(signal.SIGTERM)
        self.assertEqual(daemon.wait(30), 0)

    def test_a_taken_port_is_told(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            config = self.directory / "taken.yaml"
            config.write_text(f"metrics_port: {port}\nsocket_group: \"\"\n")
            done = subprocess.run(
                [self.root / "bin/datasetd", f"--config={config}",
                 "--device=cpu", f"--socket_path={self.directory / 't.sock'}"],
                env=ENVIRONMENT, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f"cannot listen on 127.0.0.1:{port}", done.stderr)

    def check_client(self, before="", after="", **environment):
        """The loader binds it to glibc's functions, and nothing to it."""
        _, address = self.start_daemon()
        log = self.directory / "bindings"
        text = run(
            PYTHON, "-c", _CLIENT.format(before=before, after=after), address,
            self.path, cwd=self.directory,
            env={**ENVIRONMENT, "PYTHONPATH": str(self.root / "python"),
                 "LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": str(log),
                 **environment})
        self.assertIn("NotFound", text)
        lib = str(self.root / "lib")
        mapped = {os.path.basename(line) for line in text.splitlines()
                  if os.path.realpath(line).startswith(lib)}
        self.assertEqual(mapped, {"libdatasetd.so"})
        num = 0
        for source, target, line in self.bindings(log):
            if source.startswith(lib):
                num += 1
                # Of a program, or of an allocator, in the place of glibc's too.
                self.assertTrue(target.startswith(lib) or "[GLIBC_" in line,
                                line)
            else:
                self.assertFalse(target.startswith(lib), line)
        self.assertGreater(num, 100)

    def test_python_client(self):
        self.check_client()

    def test_python_client_after_torch(self):
        self.check_client(before="import torch, torchvision")

    def test_python_client_before_torch(self):
        self.check_client(
            after="datasetd._connection.library.load()\nimport torch, torchvision")

    def test_python_client_loaded_by_a_thread(self):
        self.check_client(after=(
            "import threading\n"
            "thread = threading.Thread(\n"
            "    target=datasetd._connection.library.load)\n"
            "thread.start(); thread.join()\nimport torch"))

    def test_python_client_after_anothers_grpc_and_protobuf(self):
        self.check_client(before=_OTHERS)

    def test_python_client_before_anothers_grpc_and_protobuf(self):
        self.check_client(
            after=f"datasetd._connection.library.load()\n{_OTHERS}")

    def test_python_client_after_all_of_these(self):
        self.check_client(before=_ALL, LD_PRELOAD=_PRELOADED)

    def test_python_client_before_all_of_these(self):
        self.check_client(
            after=f"datasetd._connection.library.load()\n{_ALL}",
            LD_PRELOAD=_PRELOADED)

    def test_the_sharing_probes_copy_runs(self):
        text = run(
            PYTHON, "-c", _SHARING, self.path, cwd=self.directory,
            env={**ENVIRONMENT,
                 "DATASETD_DAEMON": str(self.root / "bin/datasetd"),
                 "PYTHONPATH": f"{self.root}/python:"
                               f"{self.root}/libexec/datasetd"})
        self.assertEqual(text.splitlines()[-1], "took a batch", text)

    def test_selftest(self):
        report_path = self.directory / "report.json"
        text = run(self.root / "bin/datasetd-selftest", "--only=tests",
                   f"--json={report_path}", cwd=self.directory)
        report = json.loads(report_path.read_text())
        self.assertEqual(report["result"], "ok", text)
        ran = {step["name"] for step in report["steps"]
               if step.get("num_run")}
        self.assertLessEqual(
            {"augment_parity_test", "host_backend_test", "system_test",
             "reference_test"}, ran)
        if report["no_gpu"]:
            self.assertIn(report["no_gpu"], text)
            self.assertNotEqual(subprocess.run(
                [self.root / "bin/datasetd-selftest", "--require_gpu"],
                env=ENVIRONMENT, cwd=self.directory,
                stderr=subprocess.DEVNULL).returncode, 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
