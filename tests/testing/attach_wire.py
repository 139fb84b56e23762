"""The attach protocol and the ring, spoken by hand.

Written from proto/attach_protocol.h and proto/feed_ring.h; shares no code with
the client, so that a test can say what no client would.
"""

import array
import fcntl
import mmap
import os
import socket
import struct

MAGIC = 0x31544144
VERSION = 3
HELLO, WELCOME, ATTACH_FEED, ATTACHED, IMPORT_RESULT = 1, 2, 3, 4, 5
DETACHED, GOODBYE, REFUSED, CLOSING = 6, 7, 8, 9
SET_WEIGHTS, WEIGHTS_ANSWER = 10, 11
TOKEN_BYTES = 16
# Of arrays.
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE

NUM_SLOTS_MAX = 64
# The layout of the daemon page.
DAEMON_PAGE_BYTES = 8192
PUBLISHED_OFFSET = 256
# The layout of the client page.
CLIENT_PAGE_BYTES = 4096
RELEASE_REQUESTED_OFFSET = 0
RELEASE_DONE_OFFSET = 512
SEEK_GENERATION_OFFSET = 1024
SEEK_EPOCH_OFFSET = 1032
SEEK_BATCH_OFFSET = 1040
SEEK_BEGUN_OFFSET = 1048


def header(kind, magic=MAGIC, version=VERSION):
    return struct.pack("<III", magic, version, kind)


def hello(pid=None):
    return header(HELLO) + struct.pack(
        "<i", os.getpid() if pid is None else pid)


def connect(path, timeout=30.0):
    connection = socket.socket(
        socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    # Blocking, so that a full backlog is waited for.
    connection.connect(path)
    connection.settimeout(timeout)
    return connection


def parse_refused(packet, expected=REFUSED):
    """(absl code, text) of a REFUSED, or of a WEIGHTS_ANSWER."""
    kind, code = struct.unpack_from("<II", packet, 8)
    assert kind == expected, f"message {kind}"
    return code, packet[16:].split(b"\0", 1)[0].decode()


def send_set_weights(connection, arrays):
    connection.sendmsg(
        [header(SET_WEIGHTS)],
        [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", arrays))]
        if arrays else [])


def set_weights(connection, arrays):
    """(absl code, text) of the answer; 0 is success."""
    send_set_weights(connection, arrays)
    return parse_refused(connection.recv(512), WEIGHTS_ANSWER)


class Session:
    """A session: its connection, its token, and `requests`, its gRPC
    connection."""

    def __init__(self, path, pid=None):
        self.path = path
        self.connection = connect(path)
        self.connection.send(hello(pid))
        packet, descriptors, _, _ = socket.recv_fds(self.connection, 512, 4)
        assert packet[:12] == header(WELCOME), packet
        assert len(descriptors) == 1, descriptors
        self.token = packet[12:12 + TOKEN_BYTES]
        self.requests = socket.socket(fileno=descriptors[0])

    def close(self):
        self.connection.close()
        self.requests.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def attach_feed(path, token, feed_id, arrays=()):
    """(connection, packet, descriptors): ATTACHED or REFUSED. `arrays` are
    descriptors to send along."""
    connection = connect(path)
    connection.sendmsg(
        [header(ATTACH_FEED) + token + struct.pack("<IQ", 0, feed_id)],
        [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", arrays))]
        if arrays else [])
    descriptors = array.array("i")
    packet, control, _, _ = connection.recvmsg(
        512, socket.CMSG_SPACE(4 * descriptors.itemsize))
    for _, _, data in control:
        descriptors.frombytes(
            data[:len(data) - len(data) % descriptors.itemsize])
    return connection, packet, list(descriptors)


def memfd(data, seals=SEALS, flags=os.MFD_ALLOW_SEALING):
    """A descriptor of memory that holds `data`, with these seals."""
    fd = os.memfd_create("array", flags)
    view = memoryview(data).cast("B")
    while view:
        view = view[os.write(fd, view):]
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


class RawFeed:
    """An attached feed whose shared pages a test may scribble over."""

    def __init__(self, path, token, feed_id, arrays=()):
        self.feed_id = feed_id
        self.connection, packet, descriptors = attach_feed(
            path, token, feed_id, arrays)
        kind = struct.unpack_from("<I", packet, 8)[0]
        assert kind == ATTACHED, parse_refused(packet)
        (self.daemon_fd, self.client_fd, self.event_fd,
         self.slab_fd) = descriptors
        self.daemon_page = mmap.mmap(
            self.daemon_fd, DAEMON_PAGE_BYTES, mmap.MAP_SHARED,
            mmap.PROT_READ)
        self.client_page = mmap.mmap(
            self.client_fd, CLIENT_PAGE_BYTES, mmap.MAP_SHARED,
            mmap.PROT_READ | mmap.PROT_WRITE)
        # As a client that imported the slab.
        self.connection.send(
            header(IMPORT_RESULT) + struct.pack("<I240s", 1, b""))

    def num_slots(self):
        return struct.unpack_from("<I", self.daemon_page, 8)[0]

    def published(self):
        """{slot: sequence} of what was published last in each."""
        slots = {}
        for i in range(self.num_slots()):
            word = struct.unpack_from(
                "<Q", self.daemon_page, PUBLISHED_OFFSET + 8 * i)[0]
            if word:
                slot = word & 0xFF
                slots[slot] = max(slots.get(slot, 0), word >> 8)
        return slots

    def published_slot(self, sequence):
        """The slot of a batch that was published lately; None if it was not."""
        word = struct.unpack_from(
            "<Q", self.daemon_page,
            PUBLISHED_OFFSET + 8 * (sequence % self.num_slots()))[0]
        return word & 0xFF if word >> 8 == sequence else None

    def write_word(self, offset, value):
        struct.pack_into("<Q", self.client_page, offset, value % 2**64)

    def release(self, slot, sequence):
        self.write_word(RELEASE_DONE_OFFSET + 8 * slot, sequence)
        self.write_word(RELEASE_REQUESTED_OFFSET + 8 * slot, sequence)

    def seek(self, generation, epoch, batch):
        self.write_word(SEEK_BEGUN_OFFSET, generation)
        self.write_word(SEEK_EPOCH_OFFSET, epoch)
        self.write_word(SEEK_BATCH_OFFSET, batch)
        self.write_word(SEEK_GENERATION_OFFSET, generation)

    def wake(self):
        os.write(self.event_fd, struct.pack("<Q", 1))

    def close(self):
        """Ends the lease without a DETACHED, as a crash would."""
        self.connection.close()
        self.daemon_page.close()
        self.client_page.close()
        for descriptor in (self.daemon_fd, self.client_fd, self.event_fd,
                           self.slab_fd):
            os.close(descriptor)

    def detach(self):
        self.connection.send(header(DETACHED))
        self.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
