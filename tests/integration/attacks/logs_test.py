"""Attacks on the log: floods, and names that drive a terminal."""

import os
import re

from tests.testing import arena
from tests.testing import daemon_harness as harness

_IS_FULL = os.environ.get("DATASETD_TEST_FULL") == "1"
_NUM_CONNECTIONS = 500000 if _IS_FULL else 50000
_FLOOD_TIMEOUT_SECONDS = 240
# The limit of one user's log: a burst, and what is granted meanwhile.
_MAX_LOG_BYTES = 1 << 20
_MAX_WAIT_SECONDS = 5.0

_FLOODER = """
import socket
count = 0
while count < ARGUMENTS["count"]:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.setblocking(False)
    try:
        connection.connect(ADDRESS)
        connection.send(b"x" * 40)
        count += 1
    except OSError:
        pass
    connection.close()
say(done=True)
"""

# PNGs of 8x8, of which one has a damaged picture, and a name of which every
# part drives a terminal or a reader of the log.
_EVIL_NAME = (b"\x1b[31m\x1b]0;owned\x07\n2026-01-01T00:00:00.000Z info "
              b"[server] forged\xc2\x9b2J\xe2\x80\xa8\xe2\x80\xae\xe2\x81\xa6"
              b"\xe2\x80\x8b\xef\xbb\xbf\xff.png")
_NAMER = r"""
import struct, zlib
def png(pixels):
    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))
    return (b"\x89PNG\r\n\x1a\n"
            + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", pixels) + chunk(b"IEND", b""))
root = os.path.join(ARGUMENTS["path"], "evil").encode()
os.makedirs(root + b"/class")
good = png(zlib.compress(b"\0" * (8 * 25)))
with open(root + b"/class/good.png", "wb") as file:
    file.write(good)
with open(root + b"/class/" + bytes.fromhex(ARGUMENTS["name"]), "wb") as file:
    file.write(png(b"no deflate at all"))
client = datasetd.connect(ADDRESS)
errors = []
for arguments in (
        dict(format="image_folder", path=os.fsdecode(root)),
        dict(format="image_folder", path=os.fsdecode(root),
             split="a\x1b[2J\u202e"),
        dict(format="npy\x1b[2J\n\u2028", path="/"),
        dict(format="npy", path=os.fsdecode(root) + "/\x1b[2J\u202e\n")):
    try:
        client.load_dataset("evil", **arguments)
        errors.append("loaded")
    except datasetd.Error as error:
        errors.append(str(error))
say(errors=errors)
"""


def test_connection_flood():
    with arena.Arena() as a:
        size_before = os.path.getsize(a.daemon.log_path)
        with a.attack() as measure, a.attacker(
                _FLOODER, count=_NUM_CONNECTIONS) as worker:
            worker.hear(_FLOOD_TIMEOUT_SECONDS)
        a.expect_unhurt(measure, _MAX_WAIT_SECONDS)
        with open(a.daemon.log_path, errors="replace") as log:
            log.seek(size_before)
            lines = [line for line in log
                     if f"uid={arena.ATTACKER_UID}" in line]
        num_bytes = sum(map(len, lines))
        print(f"{len(lines)} lines, {num_bytes} bytes")
        assert num_bytes < _MAX_LOG_BYTES
        assert len(lines) < 5000
        assert measure.prober_wait_seconds < _MAX_WAIT_SECONDS

        def is_told():
            return re.search(
                rf"uid={arena.ATTACKER_UID}.* (\d+ more lines like|"
                r"\(\d+ more like it)", a.daemon.log())

        # Also when the flood is over.
        harness.poll_until(is_told, "how much was left out")


def test_log_injection():
    with arena.Arena() as a:
        with a.attack() as measure, a.attacker(
                _NAMER, path=a.data_root, name=_EVIL_NAME.hex()) as worker:
            errors = worker.hear()["errors"]
        for error in errors:
            print(error)
            assert error != "loaded"
            assert error.isprintable(), ascii(error)
        assert r"\x1b[31m" in errors[0]
        with open(a.daemon.log_path, "rb") as file:
            log = file.read().decode()  # it is UTF-8
        assert r"\x1b[31m" in log
        for line in log.split("\n"):
            assert line.isprintable(), ascii(line)
            assert not line.startswith("2026-01-01T00:00:00.000Z"), line
        a.expect_unhurt(measure)


if __name__ == "__main__":
    harness.main(__file__)
