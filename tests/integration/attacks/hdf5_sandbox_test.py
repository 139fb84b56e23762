"""What code that a damaged HDF5 file smuggles in would find: no file, no other
process, no socket but the one to the daemon."""

import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile

from tests.testing import daemon_harness as harness

_OPEN, _NEED, _ERROR = 1, 2, 8


def _receive(end, size):
    data = b""
    while len(data) < size:
        part = end.recv(size - len(data))
        assert part, "the worker ended"
        data += part
    return data


def _frame(end):
    kind, size = struct.unpack("<QQ", _receive(end, 16))
    return kind, _receive(end, size)


def _status(pid):
    with open(f"/proc/{pid}/status") as status:
        return dict(line.rstrip("\n").split(":\t", 1) for line in status
                    if ":\t" in line)


class _Worker:
    """A worker that reads a file and waits for its first bytes."""

    def __init__(self):
        self.end, theirs = socket.socketpair()
        self.end.settimeout(harness.DEADLINE_SECONDS)
        # Where another user can run it.
        self.directory = tempfile.mkdtemp(prefix="hs", dir="/tmp")
        os.chmod(self.directory, 0o755)
        program = os.path.join(self.directory, "datasetd-hdf5")
        shutil.copy(harness.runfile("server/datasetd-hdf5"), program)
        os.chmod(program, 0o755)
        with theirs:
            self.process = subprocess.Popen(
                [program], stdin=theirs,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={},
                user=61001 if os.getuid() == 0 else None)
        payload = struct.pack("<Q", 1 << 20)
        self.end.sendall(struct.pack("<QQ", _OPEN, len(payload)) + payload)
        kind, data = _frame(self.end)
        assert kind == _NEED, (kind, data)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.end.close()
        shutil.rmtree(self.directory)


def test_the_worker_is_confined_before_it_sees_a_byte():
    with _Worker() as worker:
        pid = worker.process.pid
        status = _status(pid)
        assert status["Seccomp"] == "2"
        assert status["NoNewPrivs"] == "1"
        assert int(status["CapEff"], 16) == 0 or os.getuid() != 0
        # Not dumpable: what there is of it in /proc is root's.
        assert os.stat(f"/proc/{pid}/mem").st_uid == 0
        # It has the socket and nothing else.
        descriptors = harness.ProcessView(pid)
        if os.getuid() == 0:
            assert descriptors.descriptors() == [
                "/dev/null", "/dev/null", "socket:"]


def test_a_worker_that_is_given_nonsense_ends_alone():
    with _Worker() as worker:
        worker.end.sendall(struct.pack("<QQ", 99, 1 << 40))
        kind, data = _frame(worker.end)
        assert kind == _ERROR, (kind, data)
        worker.end.shutdown(socket.SHUT_RDWR)
        code = worker.process.wait(harness.DEADLINE_SECONDS)
        assert code in (0, 1), signal.strsignal(-code)


if __name__ == "__main__":
    harness.main(__file__)
