"""Shared by the tests of packages: files of the build, a daemon, data."""

import glob
import os
import pathlib
import socket
import subprocess
import time

PYTHON = "/usr/bin/python3"
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1",
               "LC_ALL": "C.UTF-8"}
NUM_SAMPLES = 100


def runfile(pattern):
    """The one file of the repository, or built in it, of that pattern."""
    (path,) = glob.glob(os.path.join(
        os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"], pattern))
    return pathlib.Path(path)


def run(*command, code=0, environment=None, **options):
    """Returns what the command prints; it must end with `code`."""
    result = subprocess.run(
        [str(word) for word in command], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
        env={**ENVIRONMENT, **(environment or {})}, **options)
    assert result.returncode == code, (
        f"{command}: {result.returncode}: {result.stdout[-8000:]}")
    return result.stdout


def write_data(directory):
    """CIFAR-10's test split: sample i has label i % 10 and pixels i."""
    directory.mkdir()
    (directory / "test_batch.bin").write_bytes(b"".join(
        bytes([i % 10]) + bytes([i]) * 3072 for i in range(NUM_SAMPLES)))
    return directory


def check_links(folder, *pages):
    """The pages below the folder are there and link to what is there."""
    names = {path.name for path in folder.rglob("*.md")}
    assert set(pages) <= names, names
    run(PYTHON, "-I", runfile("tests/docs/links.py"), os.devnull, folder)


def check_licences(path):
    """The file has the licences of what release and wheel contain."""
    text = path.read_text()
    for package in ("libabsl-dev", "libarchive-dev", "libgrpc-dev",
                    "libhwy-dev", "libpng-dev", "libprotobuf-dev", "libstdc++6",
                    "prometheus-cpp-dev", "zlib1g-dev"):
        assert f"\n{package}\n====" in text, package


class Daemon:
    """Runs `program` until the end of the block; `directory` is short."""

    def __init__(self, program, directory, *arguments, preexec_fn=None):
        self.address = directory / "datasetd.sock"
        notice_path = directory / "notify.sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
            notices.bind(str(notice_path))
            self.process = subprocess.Popen(
                [str(program), f"--socket_path={self.address}",
                 "--device=cpu", "--memory_budget_mib=64",
                 *(str(argument) for argument in arguments)],
                env={**ENVIRONMENT, "NOTIFY_SOCKET": str(notice_path)},
                preexec_fn=preexec_fn)
            try:
                self._await_ready(notices)
            except BaseException:
                self.__exit__()
                raise
        notice_path.unlink()

    def _await_ready(self, notices):
        deadline = time.monotonic() + 60
        notices.settimeout(0.2)
        while True:
            try:
                if b"READY=1" in notices.recv(4096):
                    return
            except socket.timeout:
                pass
            assert self.process.poll() is None, (
                f"the daemon ended with {self.process.returncode}")
            assert time.monotonic() < deadline, "the daemon is not ready"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
