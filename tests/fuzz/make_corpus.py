"""Writes the seeds of the fuzzers of ring and attach socket: make_corpus.py
tests/fuzz."""

import os
import struct
import sys


def write(out, folder, name, data):
    directory = os.path.join(out, folder, "corpus")
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, name), "wb") as file:
        file.write(data)


def main(out):
    # Commands of ring_fuzz: kind + 9 * argument.
    launch, complete, scan = b"\x06", b"\x07", b"\x04"
    fill = (launch + complete) * 3
    release = bytes([2, 2 + 9, 2 + 18]) + scan
    write(out, "ring", "serves", b"\x01" + (fill + release) * 6)
    write(out, "ring", "seeks",
          b"\x02" + (fill + b"\x03\x01\x05\x01" + scan + release) * 3 +
          b"\x03\x02\xff\x04" + scan + fill)
    write(out, "ring", "words",
          b"\x03" + fill + b"".join(
              b"\x00" + struct.pack(">H", offset) + struct.pack("<Q", word) +
              scan for offset, word in ((512, 1), (520, 2**64 - 1), (0, 7),
                                        (1024, 1), (4088, 2**63))) + fill)
    write(out, "ring", "near_releases",
          b"\x02" + fill + bytes([1, 3, 10, 2, 19, 5]) + scan + fill)
    block = b"\x08\x00\x00\x00\x02" + b"\x02\x07\x07" + b"\x01\x09"
    seek = b"\x08\x01\x02\x03\x01" + b"\x01\x04"
    bad = b"\x08\x00\x00\x02\x01" + b"\x02\x01\xff"
    write(out, "ring", "order",
          b"\x81" + block + fill + bad + release + seek + fill + release)

    # Commands of attach_fuzz: kind + 16 * connection.
    hello, lease, import_ok = b"\x03", b"\x15", b"\x18\x01\x00"
    write(out, "attach", "session", hello + b"\x0e")
    write(out, "attach", "lease", hello + lease + import_ok + b"\x1a")
    write(out, "attach", "closing",
          hello + lease + import_ok + b"\x19" + b"\x1d" + b"\x1a" + b"\x0e")
    write(out, "attach", "lost", hello + lease + b"\x0f" + import_ok + b"\x1e")
    write(out, "attach", "import_failed",
          hello + lease + b"\x18\x00\x05wrong" + b"\x1d")
    write(out, "attach", "guesses", hello + b"\x17\x03\x01\x01" +
          b"\x27\x00\x00\x02" + b"\x1d\x2d")
    write(out, "attach", "garbage", b"\x00\x20" + bytes(32) + b"\x12" +
          bytes(range(200)) + b"\x2b\x03\x00" + b"\x3c\x04")
    write(out, "attach", "twice", hello + hello + lease + lease + b"\x25")


if __name__ == "__main__":
    main(sys.argv[1])
