"""gRPC connections under attack: the attacker's connections are closed, other
users are served, and the daemon's memory stays what it was."""

import time
import zlib

import pytest

from tests.testing import arena, http2_wire, metrics_page, ports
from tests.testing import daemon_harness as harness

_MIB = 1 << 20
# One user's flood may take this much for a moment, and may keep that.
_MAX_PEAK_BYTES = 64 * _MIB
_MAX_LEFT_BYTES = 48 * _MIB
# "Served", on a busy machine, and not "stalled": attacks last longer.
_MAX_WAIT_SECONDS = 3.0
_SECONDS = 4.0
_UNIMPLEMENTED = 12
_STATUS = "/datasetd.v1.ServerService/GetStatus"


def _source(text):
    """An attacker's program, which speaks HTTP/2."""
    with open(harness.runfile("tests/testing/http2_wire.py")) as file:
        return file.read() + text


def _expect_unhurt(a, measure):
    assert measure.prober_errors == []
    assert measure.prober_rounds > 0
    assert measure.prober_wait_seconds < _MAX_WAIT_SECONDS
    assert measure.peak_bytes < _MAX_PEAK_BYTES
    a.expect_unhurt(measure, _MAX_WAIT_SECONDS, _MAX_LEFT_BYTES)


_RESETS = _source("""
import threading
results = []
def run():
    results.append(flood(
        lambda: Connection(ADDRESS),
        lambda stream: (headers(stream, ARGUMENTS["path"]) + message(stream)
                        + reset(stream)), ARGUMENTS["seconds"]))
threads = [threading.Thread(target=run) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
say(sent=sum(r[0] for r in results), closed=sum(r[1] for r in results))
hear()
""")


@arena.needs_users
@pytest.mark.parametrize("path", [_STATUS, "/nobody.Knows/This"])
def test_rapid_resets(path):
    with arena.Arena() as a:
        with a.attack() as measure, a.attacker(
                _RESETS, path=path, seconds=_SECONDS) as attacker:
            said = attacker.hear()
            assert said["closed"] > 0
        _expect_unhurt(a, measure)
        # Once for the user, however often.
        assert a.daemon.log().count("too many calls were given up") == 1


@arena.needs_users
def test_a_compressed_message_is_never_inflated():
    # 512 MiB in half a MiB.
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(_MIB)
    bomb = b"".join(compressor.compress(zeros) for _ in range(512))
    bomb += compressor.flush()
    assert len(bomb) < _MIB
    with arena.Arena() as a:
        with a.attack() as measure:
            for _ in range(4):
                with http2_wire.Connection(a.daemon.socket_path) as client:
                    client.send(
                        http2_wire.headers(1, _STATUS, grpc_encoding=b"gzip")
                        + http2_wire.message(1, bomb, compressed=True))
                    assert client.await_status(1) == _UNIMPLEMENTED
            harness.pause(1.0)
        _expect_unhurt(a, measure)


_HELLOS = """
held, refused = [], 0
for _ in range(ARGUMENTS["count"]):
    connection = attach_wire.connect(ADDRESS)
    connection.send(attach_wire.hello())
    packet, requests, _, _ = attach_wire.socket.recv_fds(connection, 512, 4)
    if packet.startswith(attach_wire.header(attach_wire.WELCOME)):
        held.append((connection, requests))
    else:
        code, text = attach_wire.parse_refused(packet)
        assert code == 8 and "user_limits.max_sessions" in text, text
        refused += 1
        connection.close()
say(held=len(held), refused=refused)
hear()
"""


@arena.needs_users
def test_thousands_of_sessions_keep_nobody_out():
    with arena.Arena(max_sessions=200) as a:
        with a.attack() as measure, a.attacker(_HELLOS,
                                               count=3000) as attacker:
            said = attacker.hear()
            assert (said["held"], said["refused"]) == (100, 2900)
        _expect_unhurt(a, measure)


_STREAMS = _source("""
connections = []
for _ in range(ARGUMENTS["connections"]):
    connection = Connection(ADDRESS, ARGUMENTS["settings"])
    for i in range(ARGUMENTS["streams"]):
        stream = 2 * i + 1
        connection.send(
            headers(stream, ARGUMENTS["path"])
            + bytes.fromhex(ARGUMENTS["body"]).replace(
                b"STRM", stream.to_bytes(4, "big")))
    connections.append(connection)
say(open=len(connections))
hear()
""")


def _body(payload=b"", flags=http2_wire.END_STREAM):
    text = http2_wire.message(0, payload, flags=flags)
    assert len(text) < 16384
    return (text[:5] + b"STRM" + text[9:]).hex()


@pytest.mark.parametrize("path", [
    "/grpc.health.v1.Health/Check",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"])
def test_services_of_grpc_are_not_served(path):
    with harness.Daemon() as daemon:
        with http2_wire.Connection(daemon.socket_path) as client:
            client.send(http2_wire.headers(1, path) + http2_wire.message(1))
            assert client.await_status(1) == _UNIMPLEMENTED


def _load_request(name, path):
    def field(number, text):
        return bytes([number << 3 | 2, len(text)]) + text.encode()
    spec = (field(1, name) + field(2, "cifar10") + field(3, path)
            + field(4, "test"))
    return bytes([1 << 3 | 2, len(spec)]) + spec


def _read_request(name):
    """A serialized ReadSamplesRequest for sample 0, 300 times."""
    return (bytes([1 << 3 | 2, len(name)]) + name.encode()
            + bytes([2 << 3 | 2, 0xAC, 0x02]) + bytes(300))


@arena.needs_users
@pytest.mark.parametrize("method", [
    "DatasetService/LoadDataset", "DatasetService/ListDatasets",
    "FeedService/ReadSamples"])
def test_answers_that_are_not_read_hold_no_place(method):
    with arena.Arena(send_timeout="2s") as a:
        body = _body({
            "LoadDataset": _load_request("victim", a.path("data/victim")),
            "ReadSamples": _read_request("victim"),
        }.get(method.split("/")[1], b""))
        threads = a.daemon.num_threads()
        with a.attack() as measure, a.attacker(
                _STREAMS, connections=2, streams=30,
                settings=[[http2_wire.INITIAL_WINDOW_SIZE, 0]],
                path="/datasetd.v1." + method, body=body) as attacker:
            attacker.hear()
            harness.pause(_SECONDS)
            # The calls have ended by themselves; their threads go, or wait for
            # others' calls.
            harness.poll_until(
                lambda: a.daemon.num_threads() < threads + 16,
                "the threads are back")
        _expect_unhurt(a, measure)


@arena.needs_users
def test_half_requests_cost_their_maker_alone():
    with arena.Arena() as a:
        with a.attack() as measure, a.attacker(
                _STREAMS, connections=4, streams=30, settings=[],
                path=_STATUS, body="") as attacker:
            attacker.hear()
            harness.pause(_SECONDS)
        _expect_unhurt(a, measure)


@pytest.mark.parametrize("name,frames", [
    ("ping", http2_wire.frame(http2_wire.PING, payload=b"12345678")),
    ("settings", http2_wire.frame(http2_wire.SETTINGS)),
    ("window", http2_wire.frame(http2_wire.WINDOW_UPDATE,
                                payload=b"\0\0\0\1")),
    ("priority", http2_wire.frame(http2_wire.PRIORITY, stream=1,
                                  payload=b"\0\0\0\0\1")),
    ("empty data", http2_wire.frame(http2_wire.DATA, stream=1)),
    ("continuation", http2_wire.frame(http2_wire.CONTINUATION, stream=1)),
    ("unknown", http2_wire.frame(77, payload=b"abc")),
])
def test_frames_without_a_call_end_the_connection(name, frames):
    with harness.Daemon() as daemon, daemon.connect() as client:
        with http2_wire.Connection(daemon.socket_path) as attacker:
            flags = 0 if name == "continuation" else http2_wire.END_HEADERS
            attacker.send(http2_wire.headers(1, _STATUS, flags=flags))
            try:
                for _ in range(100):
                    attacker.send(frames * 100)
            except OSError:
                pass
            # gRPC may have ended it before, for another reason.
            attacker.await_end()
        assert client.status()["num_sessions"]


def test_whoever_is_closed_is_told_why():
    with harness.Daemon() as daemon:
        with http2_wire.Connection(daemon.socket_path) as attacker:
            ping = http2_wire.frame(http2_wire.PING, payload=b"12345678")
            try:
                for _ in range(20):
                    attacker.send(ping * 100)
            except OSError:
                pass
            assert attacker.await_end() == http2_wire.ENHANCE_YOUR_CALM
        assert "too many frames without a call" in daemon.log()


_METRICS = """
import socket
held = []
end = time.monotonic() + ARGUMENTS["seconds"]
say(begun=True)
while time.monotonic() < end:
    for _ in range(80):
        connection = socket.create_connection(
            ("127.0.0.1", ARGUMENTS["port"]))
        connection.sendall(ARGUMENTS["text"].encode())
        held.append(connection)
    while len(held) > 200:
        held.pop(0).close()
    time.sleep(0.1)
say(done=True)
hear()
"""


@pytest.mark.parametrize("text", [
    "GET /metrics HTTP/1.1\r\nHost: x", "", "GET /metrics HTTP/1.1\r\n\r\n"])
def test_metrics_are_served_beside_half_requests_and_slow_readers(text):
    port = ports.free_port()
    with arena.Arena(metrics_port=port) as a:
        with a.attack() as measure, a.attacker(
                _METRICS, port=port, text=text,
                seconds=_SECONDS) as attacker:
            attacker.hear()
            end = time.monotonic() + _SECONDS / 2
            longest = 0.0
            while time.monotonic() < end:
                begin = time.monotonic()
                page = metrics_page.MetricsPage(port)
                longest = max(longest, time.monotonic() - begin)
                assert page.sum("datasetd_sessions") >= 1
            attacker.hear()
        print(f"a scrape took at most {longest:.2f} s")
        assert longest < _MAX_WAIT_SECONDS
        assert measure.peak_bytes < _MAX_PEAK_BYTES
        a.expect_unhurt(measure, _MAX_WAIT_SECONDS, _MAX_LEFT_BYTES)


# Fills as many messages of 4 MiB as one user may have half sent: 23 calls of
# one connection, one less than max_calls, and 32 of another (RpcUser::exempt).
_HALF_MESSAGES = _source("""
size = (4 << 20) - 1
connections = [Connection(ADDRESS, timeout=30) for _ in range(2)]
initial = dict.fromkeys(connections, 65535)
def take_settings(connection, payload):
    for at in range(0, len(payload), 6):
        number, value = struct.unpack(">HI", payload[at:at + 6])
        if number == INITIAL_WINDOW_SIZE:
            initial[connection] = value
    connection.send(frame(SETTINGS, 1))
def open_calls(connection, count):
    connection.send(b"".join(headers(2 * i + 1, ARGUMENTS["path"])
                             for i in range(count)))
    connection.send(frame(PING, payload=b"12345678"))
    while True:
        kind, flags, stream, payload = connection.receive()
        if kind == PING and flags:
            return
        if kind == SETTINGS and not flags:
            take_settings(connection, payload)
for connection, count in zip(connections, (23, 32)):
    open_calls(connection, count)
sent = 0
for connection, count in zip(connections, (23, 32)):
    streams = [2 * i + 1 for i in range(count)]
    windows = {**dict.fromkeys(streams, initial[connection]), 0: 65535}
    left = dict.fromkeys(streams, size + 5)
    begun = set()
    while any(n > 1 for n in left.values()):
        moved = 0
        for stream in streams:
            n = min(16384, windows[0], windows[stream], left[stream] - 1)
            if n <= 0:
                continue
            data = bytes(n)
            if stream not in begun:
                begun.add(stream)
                data = (struct.pack(">BI", 0, size) + data)[:n]
            connection.send(frame(DATA, 0, stream, data))
            windows[0] -= n
            windows[stream] -= n
            left[stream] -= n
            moved += n
        sent += moved
        if not moved and not connection.is_readable(ARGUMENTS["seconds"]):
            break
        while connection.is_readable(0):
            kind, flags, stream, payload = connection.receive()
            if kind == WINDOW_UPDATE and stream in windows:
                windows[stream] += struct.unpack(">I", payload)[0]
            elif kind == PING and not flags:
                connection.send(frame(PING, 1, 0, payload))
            elif kind == SETTINGS and not flags:
                before = initial[connection]
                take_settings(connection, payload)
                for stream in streams:
                    windows[stream] += initial[connection] - before
            elif kind == RST_STREAM:
                left[stream] = 0
say(sent=sent)
hear()
""")


@arena.needs_users
def test_half_sent_messages_end_nobody_elses_call():
    with arena.Arena() as a, http2_wire.Connection(
            a.daemon.socket_path) as watcher:
        # A push whose header is to come.
        watcher.send(http2_wire.headers(
            1, "/datasetd.v1.DatasetService/PushDataset"))
        with a.attack(), a.attacker(_HALF_MESSAGES, path=_STATUS,
                                    seconds=30.0) as attacker:
            assert attacker.hear()["sent"] > 180 * _MIB
            # The call is still there: nothing but its answers came.
            watcher.socket.settimeout(_SECONDS)
            kinds = set()
            try:
                while True:
                    received = watcher.receive()
                    assert received is not None
                    kinds.add(received[0])
            except TimeoutError:
                pass
            assert not kinds & {http2_wire.RST_STREAM, http2_wire.GOAWAY}
        a.expect_well()


_UNKNOWN = _source("""
for i in range(20):
    with Connection(ADDRESS) as connection:
        for n in range(50):
            stream = 2 * n + 1
            connection.send(headers(stream, f"/a{i}.B/C{n}") + message(stream))
            is_answered = False
            while not is_answered:
                kind, flags, number, payload = connection.receive()
                is_answered = kind == HEADERS and flags & END_STREAM != 0
say(done=True)
hear()
""")


def test_methods_that_clients_make_up_are_one_in_the_metrics():
    port = ports.free_port()
    with arena.Arena(metrics_port=port) as a:
        with a.attack() as measure, a.attacker(_UNKNOWN) as attacker:
            attacker.hear()
        page = metrics_page.MetricsPage(port)
        assert page.sum("datasetd_requests_total", method="unknown",
                        code="UNIMPLEMENTED") == 1000
        assert page.sum("datasetd_requests_total", code="UNIMPLEMENTED") == 1000
        assert page.sum("datasetd_requests_total", method="Health/Check") == 0
        assert page.sum("datasetd_requests_total",
                        method="ServerService/GetStatus", code="OK") > 0
        a.expect_unhurt(measure, _MAX_WAIT_SECONDS, _MAX_LEFT_BYTES)


if __name__ == "__main__":
    harness.main(__file__)
