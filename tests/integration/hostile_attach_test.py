"""The attach socket in hostile hands."""

import array
import contextlib
import os
import socket
import struct
import time

import pytest

from tests.testing import attach_wire as wire
from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402


@pytest.fixture(name="daemon")
def _daemon():
    with harness.Daemon(log_level="error") as daemon:
        daemon.write_dataset(500)
        yield daemon
        assert daemon.is_running(), daemon.log()


def _serves(daemon):
    """A good client is served; returns the seconds that it took."""
    began = time.monotonic()
    with daemon.connect() as client:
        dataset = daemon.load(client)
        with datasetd.DataLoader(dataset, batch_size=100, prefetch=2,
                                 framework="numpy", timeout=20) as loader:
            for batch in loader:
                assert (batch[0] == daemon.planes[batch.indices]).all()
    return time.monotonic() - began


def _settled_descriptors(daemon):
    """Returns the descriptors that are open after a client was served: gRPC
    keeps some from the first call on. REQUIRES: nobody was connected before."""
    num_sockets = daemon.descriptors().count("socket:")
    num_processes = daemon.descriptors().count("anon_inode:[pidfd]")
    _serves(daemon)
    return harness.poll_until(
        lambda: (lambda all: all.count("socket:") == num_sockets
                 and all.count("anon_inode:[pidfd]") == num_processes
                 # A feed's pages go after its connection.
                 and not any("memfd:" in name for name in all)
                 and all)(daemon.descriptors()), "the client's end")


def _expect_closed(connection):
    """Expects no answer, and the end of the connection."""
    try:
        assert connection.recv(512) == b""
    except ConnectionResetError:
        pass  # with what it had not read


_BAD_MESSAGES = {
    "empty type": wire.header(0),
    "one byte": b"\0",
    "short": wire.header(wire.HELLO)[:-1],
    "long hello": wire.hello() + b"\0",
    "hello without a process": wire.header(wire.HELLO),
    "very long": wire.hello() + bytes(100000),
    "garbage": bytes(range(256)),
    "wrong magic": wire.header(wire.HELLO, magic=wire.MAGIC + 1),
    "unknown type": wire.header(77),
    "largest type": wire.header(2**32 - 1),
    "the daemon's own": wire.header(wire.WELCOME) + bytes(16),
    "detached too early": wire.header(wire.DETACHED),
    "import too early": wire.header(wire.IMPORT_RESULT) + bytes(244),
    "half an attach": (wire.header(wire.ATTACH_FEED) + bytes(28))[:30],
}


@pytest.mark.parametrize("name", sorted(_BAD_MESSAGES))
def test_bad_first_message_ends_the_connection(daemon, name):
    before = _settled_descriptors(daemon)
    with wire.connect(daemon.socket_path) as connection:
        connection.send(_BAD_MESSAGES[name])
        _expect_closed(connection)
    _serves(daemon)
    harness.poll_until(lambda: daemon.descriptors() == before, "descriptors")


def test_messages_out_of_order_end_a_session(daemon):
    for message in (wire.hello(), wire.header(wire.DETACHED),
                    wire.header(wire.ATTACH_FEED) + bytes(28), b"x" * 300):
        with wire.Session(daemon.socket_path) as session:
            session.connection.send(message)
            _expect_closed(session.connection)
            session.requests.settimeout(30)
            assert session.requests.recv(1) == b""


@pytest.mark.parametrize("end", ["connection", "requests"])
@pytest.mark.parametrize("is_half", [False, True])
def test_the_end_of_either_connection_ends_a_session(daemon, end, is_half):
    """The daemon closes the other one."""
    before = _settled_descriptors(daemon)
    with wire.Session(daemon.socket_path) as session:
        ended = getattr(session, end)
        other = session.requests if end == "connection" else session.connection
        other.settimeout(30)
        if is_half:
            ended.shutdown(socket.SHUT_WR)
        else:
            ended.close()
        assert other.recv(512) == b""
        harness.poll_until(lambda: daemon.descriptors() == before,
                           "descriptors")


def test_the_end_of_a_session_ends_a_call_that_waits(daemon):
    path = os.path.join(daemon.data_root, "slow")
    harness.write_slow_images(path)
    with daemon.connect() as client, harness.Session(
            daemon.socket_path) as session:
        session.begin("DatasetService.LoadDataset", spec={
            "name": "slow", "format": "image_folder", "path": path})
        harness.poll_until(client.list_datasets, "the load")
        # The process that calls keeps the gRPC connection.
        session.connection.close()
        assert session.end()["code"] == 14
        harness.poll_until(lambda: not client.list_datasets(),
                           "the end of the load")


def test_descriptors_sent_along_are_refused_and_closed(daemon):
    before = _settled_descriptors(daemon)
    for count, message in ((1, wire.hello()), (4, wire.hello()),
                           (253, wire.hello()), (2, b"")):
        read_end, write_end = os.pipe()
        with wire.connect(daemon.socket_path) as connection:
            connection.sendmsg(
                [message],
                [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                  array.array("i", [write_end] * count))])
            os.close(write_end)
            _expect_closed(connection)
        # The daemon kept none: the last writer is gone.
        assert os.read(read_end, 1) == b""
        os.close(read_end)
    harness.poll_until(lambda: daemon.descriptors() == before, "descriptors")


def test_silent_connections_do_not_keep_others_out(daemon):
    silent = [wire.connect(daemon.socket_path) for _ in range(200)]
    try:
        # Each of them may be silent for 5 s.
        assert _serves(daemon) < 10.0
        # Silent connections are dropped when their time is over.
        for connection in silent:
            connection.settimeout(15.0)
            data = connection.recv(512)
            assert data == b"" or wire.parse_refused(data)[0] == 8
    finally:
        for connection in silent:
            connection.close()
    _serves(daemon)
    daemon.expect_idle()


def test_a_client_that_reads_nothing_hurts_nobody(daemon):
    """Answers to it are dropped, not waited for."""
    with wire.connect(daemon.socket_path) as connection:
        for _ in range(1000):
            try:
                connection.send(wire.header(wire.HELLO, version=9))
            except (BrokenPipeError, ConnectionResetError):
                break
        _serves(daemon)


def test_connections_that_come_and_go(daemon):
    before = _settled_descriptors(daemon)
    for _ in range(300):
        wire.connect(daemon.socket_path).close()
        with wire.connect(daemon.socket_path) as connection:
            connection.send(wire.hello())
    _serves(daemon)
    harness.poll_until(lambda: daemon.descriptors() == before, "descriptors")


def test_lease_messages_out_of_order_end_the_lease(daemon):
    with daemon.connect() as client:
        daemon.load(client)
        for message in (wire.hello(), wire.header(wire.GOODBYE),
                        wire.header(wire.DETACHED) + b"x",
                        wire.header(wire.ATTACH_FEED) + bytes(28), b"x"):
            with harness.Session(daemon.socket_path) as session:
                opened = session.call(
                    "FeedService.OpenFeed",
                    options={"dataset": "d", "batch_size": 10, "prefetch": 2})
                feed_id = int(opened["responses"][0]["feed_id"])
                with wire.RawFeed(daemon.socket_path, session.token,
                                  feed_id) as feed:
                    feed.connection.send(message)
                    _expect_closed(feed.connection)
                    harness.poll_until(lambda: not client.list_feeds(),
                                       "the feed's end", 5.0)
        _serves(daemon)


def test_a_failed_import_frees_the_slab(daemon):
    with daemon.connect() as client, harness.Session(
            daemon.socket_path) as session:
        daemon.load(client)
        session.call("FeedService.ListFeeds")
        before = harness.Footprint(daemon, client)
        opened = session.call(
            "FeedService.OpenFeed",
            options={"dataset": "d", "batch_size": 10, "prefetch": 2})
        feed_id = int(opened["responses"][0]["feed_id"])
        connection, _, descriptors = wire.attach_feed(
            daemon.socket_path, session.token, feed_id)
        for descriptor in descriptors:
            os.close(descriptor)
        # A reason without its end.
        connection.send(wire.header(wire.IMPORT_RESULT)
                        + struct.pack("<I", 0) + b"\xff" * 240)
        _expect_closed(connection)
        connection.close()
        harness.expect_footprint(daemon, client, before)


def test_guessed_tokens(daemon):
    for feed_id in (0, 1, 2**64 - 1):
        for token in (bytes(16), os.urandom(16)):
            connection, packet, descriptors = wire.attach_feed(
                daemon.socket_path, token, feed_id)
            connection.close()
            assert wire.parse_refused(packet)[0] == 16 and not descriptors


def test_no_descriptor_left_neither_spins_nor_crashes(daemon):
    _serves(daemon)
    num_open = len(os.listdir(f"/proc/{daemon.pid}/fd"))
    harness.limit_descriptors(daemon.pid, num_open + 4)
    held = [wire.connect(daemon.socket_path) for _ in range(30)]
    try:
        for connection in held:
            # One whose process the daemon has no descriptor to watch is
            # closed at once.
            with contextlib.suppress(BrokenPipeError):
                connection.send(wire.hello())
        daemon.expect_idle()
    finally:
        for connection in held:
            connection.close()
    harness.limit_descriptors(daemon.pid, 1024)
    _serves(daemon)


if __name__ == "__main__":
    harness.main(__file__)
