"""HTTP/2 and gRPC, spoken by hand: what no client would say.

Written from RFC 9113 and RFC 7541, by the parts that need no tables. Attackers
run its text (tests/testing/arena.py).
"""

import select
import struct
import time

try:
    import attach_wire
except ImportError:
    from tests.testing import attach_wire

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = 0, 1, 2, 3, 4
PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 6, 7, 8, 9
END_STREAM, END_HEADERS = 0x1, 0x4
INITIAL_WINDOW_SIZE = 4
CANCEL, ENHANCE_YOUR_CALM = 8, 11


def frame(kind, flags=0, stream=0, payload=b""):
    return (struct.pack(">I", len(payload))[1:]
            + struct.pack(">BBI", kind, flags, stream) + payload)


def _string(text):
    assert len(text) < 127
    return bytes([len(text)]) + text


def _literal(name, value):
    return b"\0" + _string(name) + _string(value)


def headers(stream, path, flags=END_HEADERS, **metadata):
    """The request of a call; `path` as "/package.Service/Method"."""
    block = (b"\x83\x86" + _literal(b":path", path.encode())
             + _literal(b":authority", b"localhost")
             + _literal(b"te", b"trailers")
             + _literal(b"content-type", b"application/grpc"))
    for name, value in metadata.items():
        block += _literal(name.replace("_", "-").encode(), value)
    return frame(HEADERS, flags, stream, block)


def message(stream, payload=b"", compressed=False, flags=END_STREAM):
    """One gRPC message, in frames that any peer takes."""
    rest = struct.pack(">BI", compressed, len(payload)) + payload
    frames = b""
    while len(rest) > 16384:
        frames += frame(DATA, 0, stream, rest[:16384])
        rest = rest[16384:]
    return frames + frame(DATA, flags, stream, rest)


def reset(stream):
    return frame(RST_STREAM, 0, stream, struct.pack(">I", CANCEL))


class Connection:
    """The gRPC connection of a session of its own; `settings` are (number,
    value) pairs."""

    def __init__(self, path, settings=(), timeout=30.0):
        self.session = attach_wire.Session(path)
        self.socket = self.session.requests
        self.socket.settimeout(timeout)
        self._received = b""
        self.socket.sendall(PREFACE + frame(SETTINGS, payload=b"".join(
            struct.pack(">HI", *pair) for pair in settings)))

    def send(self, data):
        self.socket.sendall(data)

    def receive(self):
        """The next frame as (kind, flags, stream, payload); None at the
        end."""
        try:
            while not self._has_frame():
                data = self.socket.recv(65536)
                if not data:
                    return None
                self._received += data
        except ConnectionError:
            return None
        size = int.from_bytes(self._received[:3], "big")
        kind, flags, stream = struct.unpack(">BBI", self._received[3:9])
        payload = self._received[9:9 + size]
        self._received = self._received[9 + size:]
        return kind, flags, stream, payload

    def is_readable(self, timeout):
        """Whether a frame, a part of one or the end is there, or comes within
        `timeout` seconds."""
        return self._has_frame() or bool(
            select.select([self.socket], [], [], timeout)[0])

    def _has_frame(self):
        return len(self._received) >= 9 and len(self._received) >= (
            9 + int.from_bytes(self._received[:3], "big"))

    def await_status(self, stream):
        """The gRPC status of a call, by its trailers; None if there is none."""
        while True:
            received = self.receive()
            if received is None:
                return None
            kind, flags, number, payload = received
            if number == stream and kind == RST_STREAM:
                return None
            if number == stream and kind == HEADERS and flags & END_STREAM:
                at = payload.index(b"grpc-status") + len(b"grpc-status")
                size = payload[at]
                return int(payload[at + 1:at + 1 + size])

    def await_end(self):
        """The error of the GOAWAY before the end; None without one."""
        error = None
        while True:
            received = self.receive()
            if received is None:
                return error
            if received[0] == GOAWAY:
                error = struct.unpack(">I", received[3][4:8])[0]

    def close(self):
        self.session.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def flood(connect, make_frames, seconds):
    """Sends make_frames(stream) again and again; connects anew when closed.
    Returns how many frames were sent and how often it was closed."""
    end = time.monotonic() + seconds
    num_sent, num_closed, connection, stream = 0, 0, None, 1
    while time.monotonic() < end:
        try:
            if connection is None:
                connection, stream = connect(), 1
            frames = b""
            for _ in range(200):
                frames += make_frames(stream)
                stream += 2
            connection.send(frames)
            num_sent += 200
        except OSError:
            num_closed += 1
            if connection is not None:
                connection.close()
            connection = None
    if connection is not None:
        connection.close()
    return num_sent, num_closed
