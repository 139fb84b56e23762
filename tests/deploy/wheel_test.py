"""The wheel: as pip wants it, and used where there is nothing but Python."""

import base64
import csv
import ctypes
import errno
import hashlib
import io
import json
import os
import pathlib
import pwd
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

from tests.deploy import package_harness as harness
from tests.testing import ports

# All that the bare root directory has of Debian: Python with venv and what it
# needs, and a shell.
_DEBIAN = [
    "dash", "libbz2-1.0", "libc6", "libcrypt1", "libexpat1", "libffi8",
    "liblzma5", "libpython3.11-minimal", "libpython3.11-stdlib", "libssl3",
    "libuuid1", "python3-pip-whl", "python3-setuptools-whl", "python3.11",
    "python3.11-minimal", "python3.11-venv", "zlib1g",
]
_NOBODY = 65534
_long = unittest.skipUnless(
    os.environ.get("DATASETD_TEST_FULL") == "1", "the long form has it")

# From nothing to the first batch, as a user does it; $1 is the wheel, $2 data.
_FIRST_BATCH = """
set -e
/usr/bin/python3.11 -m venv /home/venv
/home/venv/bin/pip install --quiet --no-index --disable-pip-version-check "$1"
exec /home/venv/bin/python -c "$3" "$2"
"""
_USE = """
import os, sys
import datasetd
from datasetd import transforms as T
train = datasetd.load("cifar10", sys.argv[1], split="test")
loader = datasetd.DataLoader(
    train, batch_size=30, shuffle=True, framework="dlpack",
    transforms=[T.RandomHorizontalFlip()])
batch = next(iter(loader))
print("first batch of", batch.num_samples, "as uid", os.getuid(), flush=True)
num_samples = sum(batch.num_samples for batch in loader)
print(num_samples, "samples on", train.device, "by", datasetd.__file__)
print("pid", train.client.status()["pid"])
for name in ("numpy", "torch"):
    try:
        __import__(name)
    except ImportError:
        print("no", name)
"""


def unpack(package, root):
    """Copies the files of an installed package."""
    for line in harness.run("dpkg-query", "-L", package).splitlines():
        source = pathlib.Path(line)
        if not os.path.lexists(source) or source.is_dir():
            continue  # also what dpkg was told to leave out
        folder = root / source.parent.resolve().relative_to("/")
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, folder / source.name, follow_symlinks=False)


def system_root(suite):
    """The root directory of another Debian, made once."""
    home = pwd.getpwuid(os.geteuid()).pw_dir
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", f"{home}/.cache"))
    root = cache / "datasetd-build/roots" / suite
    if not root.exists():
        root.parent.mkdir(parents=True, exist_ok=True)
        new = pathlib.Path(tempfile.mkdtemp(dir=root.parent))
        new.chmod(0o755)
        harness.run(
            "debootstrap", "--variant=minbase",
            "--include=python3,python3-numpy,python3-venv", suite, new,
            environment={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
        new.rename(root)
    return root


class _Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("true", ctypes.c_uint8),
                ("false", ctypes.c_uint8), ("k", ctypes.c_uint32)]


class _Program(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint16),
                ("instructions", ctypes.POINTER(_Instruction))]


def hide_system_calls(kept):
    """From here on this process gets ENOSYS from the calls that came after
    Linux 4.18, those from number 424 on, but for `kept`."""
    load, is_at_least, is_equal, end = 0x20, 0x35, 0x15, 0x06
    allow, refuse = 0x7fff0000, 0x00050000 | errno.ENOSYS
    program = [(load, 0, 0, 0),  # seccomp_data.nr
               (is_at_least, 0, len(kept) + 1, 424)]
    program += [(is_equal, len(kept) - i, 0, number)
                for i, number in enumerate(kept)]
    program += [(end, 0, 0, refuse), (end, 0, 0, allow)]
    instructions = (_Instruction * len(program))(*program)
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, set_seccomp, by_filter = 38, 22, 2
    assert libc.prctl(no_new_privileges, 1, 0, 0, 0) == 0
    assert libc.prctl(set_seccomp, by_filter, ctypes.byref(
        _Program(len(program), instructions)), 0, 0) == 0, ctypes.get_errno()


def make_bare_root(root):
    """A root directory on which nothing of datasetd's dependencies lies."""
    for path in ("dev", "proc", "tmp", "home", "usr/bin", "usr/lib",
                 "usr/lib64", "usr/sbin"):
        (root / path).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / name).symlink_to(f"usr/{name}")
    for package in _DEBIAN:
        unpack(package, root)
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/passwd").write_text(
        "nobody:x:65534:65534:nobody:/home:/bin/sh\n")
    (root / "etc/group").write_text("nogroup:x:65534:\n")
    (root / "tmp").chmod(0o1777)
    (root / "home").chmod(0o700)
    os.chown(root / "home", _NOBODY, _NOBODY)


# On a system of its own, by an unprivileged user: $1 is the wheel. The
# environment has the system's NumPy.
_INSTALL = """
set -e
/usr/bin/python3 -m venv --system-site-packages "$2"
"$2"/bin/pip install --quiet --no-index --disable-pip-version-check "$1"
shift 2
exec "$@"
"""
# The daemon's whole life, of which it prints what must not depend on the system.
_LIFE = """
import hashlib, os, pathlib, signal, subprocess, sys, tempfile
import urllib.request
import datasetd
from datasetd import transforms as T

bin = pathlib.Path(sys.prefix) / "bin"
with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    address = str(folder / "d.sock")
    config = folder / "datasetd.yaml"
    flags = [bin / "datasetd", "--config", config, "--socket_path", address,
             "--data_root", sys.argv[1], "--device", "cpu"]

    # yaml-cpp throws, and the daemon catches.
    config.write_text("metrics_port: [")
    done = subprocess.run(flags, stderr=subprocess.PIPE, text=True)
    print("a broken configuration:", done.returncode, "end of" in done.stderr)

    config.write_text(f"metrics_port: {sys.argv[2]}\\nsocket_group: ''\\n")
    daemon = subprocess.Popen(flags)
    with datasetd.connect(address, timeout=60) as client:
        train = client.load_dataset("train", format="cifar10", split="test",
                                    path=sys.argv[1])
        loader = datasetd.DataLoader(
            train, batch_size=100, shuffle=True, seed=7, framework="numpy",
            transforms=[T.RandomCrop(32, padding=4), T.RandomHorizontalFlip(),
                        T.ColorJitter(0.4, 0.4, 0.4, 0.1),
                        T.ToDtype("float32", scale=True),
                        T.Normalize((0.49, 0.48, 0.45), (0.25, 0.24, 0.26))])
        digest = hashlib.sha256()
        with loader:
            for images, labels in loader:
                digest.update(images.tobytes() + labels.tobytes())
        print("digest:", digest.hexdigest())
        try:
            client.get_dataset("none")
        except datasetd.NotFound:
            print("an error of the daemon")
    page = urllib.request.urlopen(
        f"http://127.0.0.1:{sys.argv[2]}/metrics", timeout=30).read().decode()
    print("families:", page.count("# TYPE"))
    ctl = [str(bin / "datasetctl"), "--address", address]
    print("exit codes:", [subprocess.run(ctl + command, capture_output=True)
                          .returncode for command in (
        ["status"], ["unload", "none"], ["no such"],
        ["doctor", "--no_sharing"])])
    daemon.send_signal(signal.SIGTERM)
    print("drained:", daemon.wait(60))
    print("no daemon:", subprocess.run(ctl + ["status"], capture_output=True)
          .returncode)
print("glibc", os.confstr("CS_GNU_LIBC_VERSION").split()[-1], file=sys.stderr)
"""


def glibc_needed(path):
    """The newest version of glibc's symbols that an ELF file imports."""
    text = harness.run("objdump", "-T", path)
    return max(((int(major), int(minor)) for major, minor in re.findall(
        r"\*UND\*.*GLIBC_(\d+)\.(\d+)", text)), default=(0, 0))


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
        self.assertIn("Tag: py3-none-manylinux_2_28_x86_64\n",
                      files[record.replace("RECORD", "WHEEL")].decode())

    @_long
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
            unpacked / f"datasetd-{version}.dist-info/entry_points.txt",
            *[f"{name}={unpacked / name}" for name in reversed(names)])
        self.assertEqual(again.read_bytes(), self.wheel.read_bytes())

    def install(self):
        """An environment of its own with the wheel."""
        venv = self.directory / self.id().rpartition(".")[2]
        harness.run(harness.PYTHON, "-m", "venv", venv)
        harness.run(venv / "bin/python", "-m", "pip", "install", "--no-index",
                    "--no-deps", "--disable-pip-version-check", self.wheel,
                    environment={"HOME": str(self.directory)})
        return venv

    @_long
    @unittest.skipUnless(os.geteuid() == 0, "chroot is root's")
    def test_nobody_gets_a_first_batch_from_nothing(self):
        """With Python, glibc and a shell alone; the time is printed."""
        root = self.directory / "root"
        root.mkdir()
        make_bare_root(root)
        harness.run("cp", "-r", self.data, root / "tmp/data")
        shutil.copy(self.wheel, root / "tmp")
        # A mount namespace, for /proc and /dev of the root directory.
        program = (
            f"mount -t proc proc {root}/proc && "
            f"mount --rbind /dev {root}/dev && "
            f'exec chroot --userspec=nobody:nogroup {root} /bin/sh -c "$@"')
        start = time.monotonic()
        process = subprocess.Popen(
            ["unshare", "--mount", "/bin/sh", "-c", program, "sh",
             _FIRST_BATCH, "sh", f"/tmp/{self.wheel.name}", "/tmp/data", _USE],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={"PATH": "/usr/bin:/usr/sbin", "HOME": "/home",
                 "LC_ALL": "C.UTF-8", "DATASETD_IDLE_SECONDS": "1"})
        self.addCleanup(process.kill)
        lines = []
        with process.stdout:
            for line in process.stdout:
                lines.append(line)
                if line.startswith("first batch"):
                    seconds = time.monotonic() - start
                    print(f"from nothing to the first batch: {seconds:.1f} s")
        text = "".join(lines)
        self.assertEqual(process.wait(), 0, text)
        self.assertIn(f"first batch of 30 as uid {_NOBODY}\n", text)
        self.assertIn("100 samples on cpu by /home/venv/lib", text)
        self.assertIn("no numpy\nno torch\n", text)
        # The daemon that it started ends by itself.
        pid = re.search(r"^pid (\d+)$", text, re.MULTILINE)[1]
        end = time.monotonic() + 60
        while (pathlib.Path("/proc") / pid / "exe").exists():
            self.assertLess(time.monotonic(), end, "the daemon stays")
            time.sleep(0.05)

    def life(self, command, name):
        """What _LIFE prints where `command` runs a shell, as nobody."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="dd", dir="/tmp"))
        self.addCleanup(shutil.rmtree, folder)
        folder.chmod(0o777)
        done = subprocess.run(
            [*command(folder), _INSTALL, "sh", f"{folder}/{self.wheel.name}",
             f"{folder}/venv", f"{folder}/venv/bin/python", "-c", _LIFE,
             f"{folder}/data", str(ports.free_port())],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            check=False, env={"PATH": "/usr/bin:/usr/sbin:/bin:/sbin",
                              "HOME": str(folder), "LC_ALL": "C.UTF-8"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        print(f"{name}: {done.stderr.splitlines()[-1]}")
        return done.stdout

    @_long
    @unittest.skipUnless(os.geteuid() == 0, "chroot is root's")
    def test_other_systems_give_the_same_samples(self):
        data = self.directory / "random"
        data.mkdir()
        pixels = random.Random(1)
        (data / "test_batch.bin").write_bytes(b"".join(
            bytes([i % 10]) + pixels.randbytes(3072) for i in range(2000)))

        def prepare(folder):
            shutil.copytree(data, folder / "data")
            shutil.copy(self.wheel, folder)

        def here(folder):
            prepare(folder)
            return ["setpriv", "--reuid=nobody", "--regid=nogroup",
                    "--clear-groups", "/bin/sh", "-c"]

        expected = self.life(here, "here")
        self.assertRegex(expected, "digest: [0-9a-f]{64}\n")
        self.assertIn("a broken configuration: 2 True\n", expected)
        self.assertIn("an error of the daemon\n", expected)
        self.assertIn("exit codes: [0, 1, 2, 0]\ndrained: 0\nno daemon: 3\n",
                      expected)
        for suite in ("bullseye", "trixie"):
            root = system_root(suite)

            def there(folder, root=root):
                inside = pathlib.Path(f"{root}{folder}")
                inside.mkdir()
                inside.chmod(0o777)
                self.addCleanup(shutil.rmtree, inside)
                prepare(inside)
                return ["unshare", "--mount", "/bin/sh", "-c",
                        f"mount -t proc proc {root}/proc && "
                        f"mount --rbind /dev {root}/dev && "
                        "exec chroot --userspec=nobody:nogroup "
                        f'{root} /bin/sh -c "$@"', "sh"]

            with self.subTest(suite):
                start = time.monotonic()
                self.assertEqual(self.life(there, suite), expected)
                print(f"{suite}: {time.monotonic() - start:.1f} s")

    def test_a_kernel_without_new_calls(self):
        """Linux 5.6 has pidfd_open (434) and openat2 (437)."""
        unpacked = self.directory / "kernel"
        with zipfile.ZipFile(self.wheel) as archive:
            archive.extractall(unpacked)
        program = unpacked / "datasetd/bin/datasetd"
        program.chmod(0o755)
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.directory))
        with harness.Daemon(
                program, folder, f"--data_root={self.data}",
                preexec_fn=lambda: hide_system_calls([434, 437])) as daemon:
            ctl = unpacked / "datasetd/bin/datasetctl"
            ctl.chmod(0o755)
            self.assertIn("ready", harness.run(
                ctl, "--address", daemon.address, "load", "d", "--format",
                "cifar10", "--path", self.data, "--split", "test"))
        text = harness.run(
            program, f"--socket_path={folder}/d.sock", "--device=cpu",
            f"--data_root={self.data}", code=1,
            preexec_fn=lambda: hide_system_calls([434]))
        self.assertIn("openat2: Function not implemented", text)
        self.assertIn("datasetd needs Linux 5.6", text)
        text = harness.run(
            ctl, "--address", f"{folder}/none.sock", "doctor", "--no_sharing",
            code=1, preexec_fn=lambda: hide_system_calls([434]))
        self.assertRegex(text, "fault +system +Linux .*openat2: Function not")
        self.assertIn("update the kernel to Linux 5.6", text)

    def test_its_commands(self):
        venv = self.install()
        ran = {"HOME": str(self.directory)}
        version = self.wheel.name.split("-")[1]
        for name in ("datasetd", "datasetctl"):
            self.assertEqual(
                harness.run(venv / "bin" / name, "--version", environment=ran),
                f"{name} {version}\n")
        # The daemon is found beside it, on no PATH.
        status = json.loads(harness.run(
            venv / "bin/datasetctl", "run", "--device", "cpu", "--",
            venv / "bin/datasetctl", "--json", "status", environment=ran))
        self.assertIn("webdataset", status["formats"])
        # A command of the package, by the environment's Python.
        failed = subprocess.run(
            [venv / "bin/datasetctl", "bench", "--", "true"],
            env={**harness.ENVIRONMENT, **ran}, stderr=subprocess.PIPE,
            text=True, timeout=60)
        self.assertIn("datasetctl: true ended with code 0 before anything was "
                      "measured", failed.stderr)
        self.assertIn("python -m datasetd", harness.run(
            venv / "bin/python", "-m", "datasetd", "--help", environment=ran))
        text = harness.run(
            venv / "bin/python", "-c",
            "import datasetd\n"
            "with datasetd.start_local(device='cpu') as daemon:\n"
            "    path = f'/proc/{daemon.pid}/exe'\n"
            "    import os\n"
            "    print(os.readlink(path))\n", environment=ran,
            cwd=self.directory)
        self.assertIn(str(venv), text)
        self.assertTrue(text.endswith("/datasetd/bin/datasetd\n"), text)
        harness.run(venv / "bin/python", "-m", "pip", "check", environment=ran)
        harness.run(venv / "bin/python", "-m", "pip", "uninstall", "-y",
                    "datasetd", environment=ran)
        self.assertEqual(list(venv.rglob("*datasetd*")), [])

    def test_the_tag_is_what_its_files_need(self):
        unpacked = self.directory / "elf"
        with zipfile.ZipFile(self.wheel) as archive:
            archive.extractall(unpacked)
        needed = {}
        for path in unpacked.rglob("*"):
            if path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
                needed[path.name] = glibc_needed(path)
        self.assertLessEqual({"datasetd", "datasetctl", "libdatasetd.so"},
                             set(needed))
        self.assertIn("-manylinux_2_28_x86_64.whl", self.wheel.name)
        self.assertLessEqual(max(needed.values()), (2, 28), needed)

    def refusal(self, program, tag):
        """What make_wheel.py says of a wheel with `program`."""
        metadata = self.directory / "METADATA"
        metadata.write_text("Name: datasetd\n")
        return harness.run(
            harness.PYTHON, "-I", harness.runfile("deploy/make_wheel.py"),
            self.directory / "x.whl", "0", tag, metadata, metadata,
            f"datasetd/bin/program={program}", code=1)

    def test_a_tag_that_promises_too_much_is_refused(self):
        tag = "py3-none-manylinux_2_5_x86_64"
        self.assertIn(f"newer than {tag}", self.refusal("/bin/true", tag))

    def test_names_of_another_library_are_refused(self):
        """Of a gRPC, say, that the process has, too."""
        source = self.directory / "weak.cc"
        source.write_text("extern thread_local int other;\n"
                          "int Other() { return other; }\n")
        library = self.directory / "libweak.so"
        harness.run("g++", "-shared", "-fPIC", "-o", library, source)
        self.assertIn(
            "libweak.so takes _ZTH5other from another library",
            self.refusal(library, "py3-none-manylinux_2_36_x86_64"))

    def test_its_pages_and_licences(self):
        unpacked = self.directory / "pages"
        with zipfile.ZipFile(self.wheel) as archive:
            archive.extractall(unpacked)
        harness.check_licences(unpacked / "datasetd/LICENCES")
        harness.check_links(unpacked, "packages.md", "overview.md",
                            "transforms.md")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
