"""Arrays of a feed's order in hostile hands: what is wrong is refused by name
and ends its feed, what is held is counted, and others are served."""

import contextlib
import errno
import fcntl
import mmap
import os
import signal
import socket
import struct
import time

import numpy as np
import pytest

from tests.testing import attach_wire as wire
from tests.testing import daemon_harness as harness
from tests.testing import hostile_world

_NUM_SAMPLES = 2000
# Status codes.
_INVALID_ARGUMENT, _NOT_FOUND, _RESOURCE_EXHAUSTED = 3, 5, 8
_OUT_OF_RANGE, _UNAUTHENTICATED = 11, 16
_MOST = 2**24
_WEIGHTED = {"weighted_order": {"num_samples": _NUM_SAMPLES}}
_LISTED = {"weighted_order": {"num_samples": 2, "lists_samples": True}}
_GROUPED = {"group_order": {"group_size": 5}}
_DOCUMENTS = {"window_order": {"length": "4", "documents": {}},
              "subset_size": 3, "field_names": ["label"],
              "weighted_order": None}
_PACKED = {**_DOCUMENTS, "window_order": {
    "length": "4", "documents": {"max_document": "3", "num_rows": "2"}}}


def _doubles(*numbers):
    return np.array(numbers, np.float64)


def _indices(*numbers):
    return np.array(numbers, np.int64)


class _World(hostile_world.World):
    """The good job draws by weights, too."""

    def __init__(self, daemon):
        super().__init__(daemon, _NUM_SAMPLES, shuffle=False,
                         weights=np.ones(_NUM_SAMPLES))

    def check_epoch(self, rows):
        assert len(rows) == _NUM_SAMPLES

    def refusal(self, feed_id, descriptors, token=None):
        """(code, text) of the answer to ATTACH_FEED. Closes descriptors."""
        connection, packet, got = wire.attach_feed(
            self.daemon.socket_path,
            self.session.token if token is None else token, int(feed_id),
            descriptors)
        with connection:
            for fd in set(descriptors):
                os.close(fd)
            assert not got
            return wire.parse_refused(packet)

    def expect_refused(self, options, descriptors, code, *words):
        """The feed of these options is refused, ends, and leaves nothing."""
        answer = self.refusal(self.open(**options)["feed_id"], descriptors)
        assert answer[0] == code, answer
        for word in words:
            assert word in answer[1]
        harness.expect_footprint(self.daemon, self.client, self.footprint)
        assert self.names() == ["good"]

    def names(self):
        return [feed["name"] for feed in self.client.list_feeds()]

    def scratch_bytes(self):
        return int(self.client.status()["devices"][0]["scratch_bytes"])


@contextlib.contextmanager
def _made():
    with harness.Daemon(
            log_level="error", memory_budget_mib=100
    ) as daemon, _World(daemon) as world:
        yield world


@pytest.fixture(name="world")
def _world():
    with _made() as world:
        yield world


@pytest.fixture(name="one", scope="module")
def _one():
    with _made() as world:
        yield world


@pytest.fixture(name="shared")
def _shared(one):
    """One for all rows of the tables, each of which leaves nothing."""
    harness.expect_footprint(one.daemon, one.client, one.footprint)
    return one


def test_honest_weights_are_drawn_by(world):
    weights = np.zeros(_NUM_SAMPLES)
    weights[1999] = 5
    fd = wire.memfd(weights)
    with world.attach(world.open(**_WEIGHTED)["feed_id"], [fd]) as feed:
        os.close(fd)
        harness.poll_until(lambda: len(feed.published()) == 4, "all slots")
        # Every row of the first slot is the one sample that has a weight.
        drawn = world.planes[1999].reshape(-1)
        slab = np.fromfile(f"/proc/self/fd/{feed.slab_fd}", np.uint8)
        rows = slab[:10 * drawn.size].reshape(10, drawn.size)
        assert (rows == drawn).all()


# Some of what the tests of each table in tests/server/feed refuse.
@pytest.mark.parametrize("options, arrays, code, words", [
    (_WEIGHTED, [np.r_[1, -1, np.ones(1998)]], _INVALID_ARGUMENT,
     ["weights[1] is -1"]),
    *((_LISTED, [_doubles(1, 1), _indices(7, index)], _OUT_OF_RANGE,
       [f"samples[1] of the weights: {index}"])
      for index in (_NUM_SAMPLES, -2**63)),
    *(({"subset_size": 2}, [_indices(7, index)], _OUT_OF_RANGE,
       [f"subset[1]: {index}", "2000 samples"])
      for index in (_NUM_SAMPLES, -2**63)),
    ({"subset_size": 3}, [_indices(7, 8, 7)], _INVALID_ARGUMENT,
     ["subset[2]: 7 is there twice"]),
    (_GROUPED, [np.r_[np.zeros(1999), 2**31 - 1].astype(np.int32)],
     _INVALID_ARGUMENT, [f"classes[1999] is {2**31 - 1}", "below 2000"]),
    (_DOCUMENTS, [_indices(0, 7, _NUM_SAMPLES)], _OUT_OF_RANGE,
     [f"documents[2] begins at {_NUM_SAMPLES}", "0..1999"]),
    (_DOCUMENTS, [_indices(0, 7, 7)], _INVALID_ARGUMENT,
     ["must ascend from 0"]),
    (_PACKED, [_indices(0, 7, 900)], _INVALID_ARGUMENT,
     ["num_rows is 2", "make 3 rows of 4 steps"]),
])
def test_wrong_values(shared, options, arrays, code, words):
    shared.expect_refused(
        options, [wire.memfd(numbers) for numbers in arrays], code, *words)


_SUBSET = {"subset_size": 2}
_SOME = _indices(5, 6)


def _pipe():
    ends = os.pipe()
    os.close(ends[0])
    return ends[1]


def _opened(fd, flags):
    try:
        return os.open(f"/proc/self/fd/{fd}", flags)
    finally:
        os.close(fd)


# Some of what tests/server/order/order_arrays_test.cc refuses.
@pytest.mark.parametrize("options, make, words", [
    (_SUBSET, list, ["has 0 descriptors", "call for 1: subset"]),
    (_SUBSET, lambda: [wire.memfd(_SOME)] * 250, ["has 250 descriptors"]),
    ({}, lambda: [wire.memfd(_SOME)], ["has 1 descriptors", "call for 0"]),
    (_LISTED, lambda: [wire.memfd(_doubles(1, 1))],
     ["call for 2: weights, samples of the weights"]),
    (_SUBSET, lambda: [wire.memfd(_indices(5))],
     ["subset: its memfd has 8 bytes", "it has 16"]),
    (_GROUPED, lambda: [wire.memfd(np.zeros(2000))],
     ["classes: its memfd has 16000 bytes", "it has 8000"]),
    ({**_GROUPED, **_SUBSET}, lambda: [wire.memfd(_SOME)],
     ["call for 2: subset, classes"]),
    ({**_GROUPED, "client_order": {}}, lambda: [wire.memfd(_SOME)],
     ["call for 0"]),
    (_SUBSET, lambda: [wire.memfd(_SOME, wire.SEALS & ~fcntl.F_SEAL_SHRINK)],
     ["not of a memfd that has F_SEAL_SHRINK"]),
    (_SUBSET, lambda: [_pipe()], ["not of a memfd"]),
])
def test_what_is_no_array(shared, options, make, words):
    before = shared.daemon.descriptors()
    answer = shared.refusal(shared.open(**options)["feed_id"], make())
    assert answer[0] == _INVALID_ARGUMENT, answer
    for word in words:
        assert word in answer[1]
    assert shared.names() == ["good"]
    harness.poll_until(lambda: shared.daemon.descriptors() == before,
                       "the daemon's descriptors")


def test_pages_cannot_change_after_the_check(world):
    """F_SEAL_WRITE is not given while a mapping can write, and after it none
    can: the daemon need not read the numbers twice."""
    weights = np.zeros(_NUM_SAMPLES)
    weights[7] = 1
    fd = wire.memfd(weights, seals=0)
    page = mmap.mmap(fd, 0)
    with pytest.raises(OSError) as raised:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, wire.SEALS)
    assert raised.value.errno == errno.EBUSY
    world.expect_refused(_WEIGHTED, [os.dup(fd)], _INVALID_ARGUMENT,
                         "no longer mapped for writing")
    page.close()
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, wire.SEALS)
    with pytest.raises(PermissionError):
        mmap.mmap(fd, 0)
    with pytest.raises(PermissionError):
        os.pwrite(fd, bytes(8), 56)
    with pytest.raises(PermissionError):
        os.ftruncate(fd, 0)
    world.attach(world.open(**_WEIGHTED)["feed_id"], [fd]).close()
    os.close(fd)


def test_descriptors_whose_close_does_not_return(world):
    """Who closes a socket that lingers waits for its peer."""
    def lingering():
        with socket.create_server(("127.0.0.1", 0)) as listener:
            one = socket.create_connection(listener.getsockname())
            peer = listener.accept()[0]
        one.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                one.send(bytes(65536))
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                       struct.pack("ii", 1, 600))
        return one, peer

    calm = world.run_good_job()
    attach = (wire.header(wire.ATTACH_FEED) + world.session.token
              + struct.pack("<IQ", 0, int(world.open(**_SUBSET)["feed_id"])))
    peers = []
    # The last one is unread behind a message that ends the connection.
    for messages in ([wire.hello()], [b"garbage"], [b""], [attach],
                     [b"garbage", wire.hello()], [b"garbage", b""]):
        one, peer = lingering()
        peers.append(peer)
        # So that the daemon's descriptor is the last one.
        world.daemon.stop()
        try:
            with wire.connect(world.daemon.socket_path) as connection:
                for message in messages[:-1]:
                    connection.send(message)
                socket.send_fds(connection, messages[-1:], [one.fileno()])
            one.close()
        finally:
            os.kill(world.daemon.pid, signal.SIGCONT)
        began = time.monotonic()
        wire.Session(world.daemon.socket_path).close()
        assert time.monotonic() - began < 5
    assert world.run_good_job() < 20 * calm + 1
    for peer in peers:
        peer.close()


@pytest.mark.parametrize("options, code, words", [
    ({"weighted_order": {"num_samples": _NUM_SAMPLES - 1}},
     _INVALID_ARGUMENT, ["1999", "2000"]),
    ({"weighted_order": {}}, _INVALID_ARGUMENT, ["num_samples is 0"]),
    ({"weighted_order": {"num_samples": _MOST + 1, "lists_samples": True}},
     _INVALID_ARGUMENT, [str(_MOST)]),
    ({"weighted_order": {"num_samples": 2**64 - 1, "lists_samples": True}},
     _INVALID_ARGUMENT, [str(_MOST)]),
    ({"weighted_order": {"num_samples": _NUM_SAMPLES,
                         "num_draws": 2**64 - 1}},
     _INVALID_ARGUMENT, ["num_draws is " + str(2**64 - 1)]),
    ({"shuffle": True}, _INVALID_ARGUMENT, ["shuffle"]),
    ({"subset_size": 1}, _INVALID_ARGUMENT, ["subset_size"]),
    ({"subset_size": _NUM_SAMPLES + 1, "weighted_order": None},
     _INVALID_ARGUMENT, ["subset_size is 2001", "2000 samples"]),
    ({"subset_size": 2**64 - 1, "weighted_order": None}, _INVALID_ARGUMENT,
     [str(2**64 - 1)]),
    ({"subset_size": 2, "client_order": {}, "weighted_order": None},
     _INVALID_ARGUMENT, ["client_order"]),
    ({"client_order": {}}, _INVALID_ARGUMENT, ["client_order"]),
    ({"first_position": _NUM_SAMPLES}, _INVALID_ARGUMENT, ["first_position"]),
    ({**_GROUPED, "shuffle": True, "weighted_order": None}, _INVALID_ARGUMENT,
     ["group_order", "shuffle"]),
    (_GROUPED, _INVALID_ARGUMENT, ["group_order", "weighted_order"]),
    *(({**_GROUPED, "weighted_order": None, **more}, _INVALID_ARGUMENT, words)
      for more, words in (
          ({"mixture": {}}, ["mixture"]),
          ({"rows_per_epoch": 7}, ["rows_per_epoch"]),
          ({"first_position": 400}, ["first_position is 400", "400 groups"]),
          ({"client_order": {}, "first_position": 1}, ["client_order"]),
      )),
    *(({"weighted_order": None, "group_order": order, **more},
       _INVALID_ARGUMENT, words)
      for order, more, words in (
          ({}, {}, ["group_size is 0"]),
          ({"group_size": 3}, {}, ["group_size is 3", "divide", "10 rows"]),
          ({"group_size": 2**32 - 1}, {}, ["group_size is 4294967295"]),
          ({"group_size": 5, "num_groups": 0}, {}, ["num_groups is 0"]),
          ({"group_size": 5, "num_groups": 2**64 - 1}, {},
           ["num_groups is 18446744073709551615"]),
          ({"group_size": 5, "num_groups": 858993459}, {},
           ["num_groups is 858993459", "1..858993458"]),
          ({"group_size": 5, "num_groups": 2}, {"client_order": {}},
           ["num_groups"]),
      )),
    # 216 MiB of the budget's 100.
    ({"weighted_order": {"num_samples": _MOST, "lists_samples": True}},
     _RESOURCE_EXHAUSTED, ["memory"]),
])
def test_wrong_options(shared, options, code, words):
    answer = shared.try_open(**{**_WEIGHTED, **options})
    assert answer["code"] == code, answer
    for word in words:
        assert word in answer["message"]
    assert shared.names() == ["good"]


def test_what_is_held_is_counted_from_the_first_on(world):
    before = world.scratch_bytes()
    order = {"num_samples": 10**6, "lists_samples": True}
    feed_id = world.open(weighted_order=order)["feed_id"]
    held = world.scratch_bytes() - before
    assert 12 * 10**6 < held < 15 * 10**6
    arrays = [wire.memfd(np.ones(10**6)), wire.memfd(np.full(10**6, 3))]
    with world.attach(feed_id, arrays):
        assert world.scratch_bytes() - before == held
    for fd in arrays:
        os.close(fd)
    harness.poll_until(lambda: world.scratch_bytes() == before, "the memory")
    # Nobody attaches this one.
    world.open(weighted_order=order)
    world.session.close()
    harness.poll_until(lambda: world.scratch_bytes() == before, "the memory")
    world.session = harness.Session(world.daemon.socket_path)


def test_other_peoples_feeds_and_tokens(world):
    feed_id = int(world.open(**_SUBSET)["feed_id"])
    with wire.Session(world.daemon.socket_path) as other:
        for number in (feed_id, feed_id + 1, 0, 2**64 - 1):
            answer = world.refusal(number, [wire.memfd(_SOME)], other.token)
            assert answer[0] == _NOT_FOUND, answer
    for token in (bytes(16), os.urandom(16)):
        answer = world.refusal(feed_id, [wire.memfd(_SOME)], token)
        assert answer[0] == _UNAUTHENTICATED, answer
    # None of it ended the feed.
    fd = wire.memfd(_SOME)
    world.attach(feed_id, [fd]).close()
    os.close(fd)


def test_holes_cost_the_daemon_no_memory(world):
    """A file that is all hole: its pages would be the daemon's if it mapped
    them."""
    fd = os.memfd_create("hole", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 8 * _NUM_SAMPLES)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, wire.SEALS)
    world.expect_refused(_WEIGHTED, [os.dup(fd)], _INVALID_ARGUMENT,
                         "their sum is 0")
    assert os.fstat(fd).st_blocks == 0
    os.close(fd)


def test_many_attaches_in_a_row(world):
    before = world.daemon.descriptors()
    for number in range(300):
        fd = wire.memfd(_indices(number, number + 1 - number % 2))
        feed_id = int(world.open(**_SUBSET)["feed_id"])
        connection, packet, descriptors = wire.attach_feed(
            world.daemon.socket_path, world.session.token, feed_id, [fd])
        if descriptors:
            connection.send(wire.header(wire.DETACHED))
        connection.close()
        for got in (fd, *descriptors):
            os.close(got)
        assert bool(descriptors) == (number % 2 == 0)
        if number % 2:
            assert "twice" in wire.parse_refused(packet)[1]
    harness.poll_until(lambda: world.daemon.descriptors() == before,
                       "the daemon's descriptors")
    world.run_good_job()


def test_clients_that_go_while_their_arrays_are_read(world):
    numbers = np.zeros(10**6)
    fd = wire.memfd(numbers)
    samples = wire.memfd(numbers.astype(np.int64))
    order = {"num_samples": 10**6, "lists_samples": True}
    before = world.daemon.descriptors()
    for number in range(20):
        session = harness.Session(world.daemon.socket_path)
        world.session, mine = session, world.session
        feed_id = int(world.open(weighted_order=order)["feed_id"])
        with wire.connect(world.daemon.socket_path) as connection:
            socket.send_fds(
                connection,
                [wire.header(wire.ATTACH_FEED) + session.token
                 + struct.pack("<IQ", 0, feed_id)], [fd, samples])
            if number % 2:
                session.close()
        session.close()
        world.session = mine
    os.close(fd)
    os.close(samples)
    harness.poll_until(lambda: world.daemon.descriptors() == before,
                       "the daemon's descriptors")
    harness.expect_footprint(world.daemon, world.client, world.footprint)


# -- SET_WEIGHTS --------------------------------------------------------------

_NONE, _FAILED_PRECONDITION = 0, 9


def _one_hot(index):
    weights = np.zeros(_NUM_SAMPLES)
    weights[index] = 5
    return weights


def _set(feed, descriptors):
    """(code, text) of the answer. Closes descriptors."""
    answer = wire.set_weights(feed.connection, descriptors)
    for fd in set(descriptors):
        os.close(fd)
    return answer


@contextlib.contextmanager
def _weighted_feed(world, index=1999):
    fd = wire.memfd(_one_hot(index))
    opened = world.open(**_WEIGHTED)
    with world.attach(opened["feed_id"], [fd]) as feed:
        os.close(fd)
        feed.stride = int(opened["layout"]["slot_stride_bytes"])
        harness.poll_until(lambda: len(feed.published()) == 4, "all slots")
        yield feed


def _rows(feed, size):
    """The images of all slots."""
    slab = np.fromfile(f"/proc/self/fd/{feed.slab_fd}", np.uint8)
    slots = slab[:4 * feed.stride].reshape(4, feed.stride)
    return slots[:, :10 * size].reshape(40, size)


def _expect_drawn(world, feed, index, generation):
    """After this seek, every row of the slots is that sample."""
    for slot, sequence in feed.published().items():
        feed.release(slot, sequence)
    feed.seek(generation, 0, 0)
    feed.wake()
    drawn = world.planes[index].reshape(-1)
    harness.poll_until(
        lambda: (_rows(feed, drawn.size) == drawn).all(), f"sample {index}")


def test_weights_that_are_set_are_drawn_by_after_a_seek(world):
    with _weighted_feed(world) as feed:
        assert _set(feed, [wire.memfd(_one_hot(3))]) == (_NONE, "")
        # Without one, as before.
        before = world.scratch_bytes()
        newest = max(feed.published().values())
        for slot, sequence in feed.published().items():
            feed.release(slot, sequence)
        feed.wake()
        harness.poll_until(
            lambda: min(feed.published().values()) > newest, "more")
        drawn = world.planes[1999].reshape(-1)
        assert (_rows(feed, drawn.size) == drawn).all()
        _expect_drawn(world, feed, 3, 1)
        # The first ones are freed.
        size = 8 * _NUM_SAMPLES
        harness.poll_until(
            lambda: before - world.scratch_bytes() > size, "their memory")
        # The last of several counts.
        for index in (7, 8, 9):
            assert _set(feed, [wire.memfd(_one_hot(index))])[0] == _NONE
        _expect_drawn(world, feed, 9, 2)


@pytest.mark.parametrize("make, code, words", [
    (lambda: [wire.memfd(np.r_[1, -1, np.ones(1998)])], _INVALID_ARGUMENT,
     ["weights[1] is -1"]),
    (lambda: [wire.memfd(np.r_[np.nan, np.ones(1999)])], _INVALID_ARGUMENT,
     ["weights[0]", "nan"]),
    (lambda: [wire.memfd(np.r_[np.ones(1999), np.inf])], _INVALID_ARGUMENT,
     ["weights[1999] is inf"]),
    (lambda: [wire.memfd(np.full(2000, 1e308))], _INVALID_ARGUMENT, ["sum"]),
    (lambda: [wire.memfd(np.zeros(2000))], _INVALID_ARGUMENT,
     ["their sum is 0"]),
    (list, _INVALID_ARGUMENT, ["has 0 descriptors", "call for 1: weights"]),
    (lambda: [wire.memfd(np.ones(2000))] * 2, _INVALID_ARGUMENT,
     ["has 2 descriptors"]),
    (lambda: [wire.memfd(np.ones(2000))] * 250, _INVALID_ARGUMENT,
     ["has 250 descriptors"]),
    *((lambda size=size: [wire.memfd(np.ones(size))], _INVALID_ARGUMENT,
       [f"weights: its memfd has {8 * size} bytes", "16000"])
      for size in (0, 1999, 2001)),
    *((lambda seal=seal: [wire.memfd(np.ones(2000), wire.SEALS & ~seal)],
       _INVALID_ARGUMENT, ["not of a memfd that has F_SEAL_SHRINK"])
      for seal in (fcntl.F_SEAL_SHRINK, fcntl.F_SEAL_GROW,
                   fcntl.F_SEAL_WRITE, wire.SEALS)),
    (lambda: [_pipe()], _INVALID_ARGUMENT, ["not of a memfd"]),
    (lambda: [_opened(wire.memfd(np.ones(2000)), os.O_WRONLY)],
     _INVALID_ARGUMENT, ["cannot be read"]),
])
def test_wrong_weights_leave_those_before(world, make, code, words):
    with _weighted_feed(world) as feed:
        before = world.daemon.descriptors()
        scratch = world.scratch_bytes()
        answer = _set(feed, make())
        assert answer[0] == code, answer
        for word in words:
            assert word in answer[1]
        _expect_drawn(world, feed, 1999, 1)
        harness.poll_until(
            lambda: (world.daemon.descriptors(), world.scratch_bytes())
            == (before, scratch), "what it held")
    world.run_good_job()


def test_weights_of_a_feed_that_has_none(world):
    for options, arrays in (({}, []), (_SUBSET, [_SOME]),
                            (_GROUPED, [np.zeros(2000, np.int32)])):
        sent = [wire.memfd(numbers) for numbers in arrays]
        with world.attach(world.open(**options)["feed_id"], sent) as feed:
            code, text = _set(feed, [wire.memfd(np.ones(2000))])
            assert code == _FAILED_PRECONDITION
            assert "does not draw by weights" in text
        for fd in sent:
            os.close(fd)


def test_weights_are_set_on_a_lease_only(world):
    """On another connection, with another size, and while others are read."""
    fd = wire.memfd(np.ones(_NUM_SAMPLES))

    def expect_end(connection):
        with connection:
            assert connection.recv(512) == b""

    connection = wire.connect(world.daemon.socket_path)
    wire.send_set_weights(connection, [fd])
    expect_end(connection)
    session = wire.Session(world.daemon.socket_path)
    wire.send_set_weights(session.connection, [fd])
    expect_end(session.connection)
    with _weighted_feed(world) as feed:
        feed.connection.send(wire.header(wire.SET_WEIGHTS) + b"more")
        assert feed.connection.recv(512) == b""
    with _weighted_feed(world) as feed:
        world.daemon.stop()
        for _ in range(2):
            wire.send_set_weights(feed.connection, [fd])
        os.kill(world.daemon.pid, signal.SIGCONT)
        received = feed.connection.recv(512)
        if received:  # the answer to the first one
            received = feed.connection.recv(512)
        assert received == b""
    # A lease that has ended takes them and does nothing.
    with _weighted_feed(world) as feed:
        feed.connection.send(wire.header(wire.CLOSING))
        wire.send_set_weights(feed.connection, [fd])
        feed.connection.send(wire.header(wire.DETACHED))
        assert feed.connection.recv(512) == b""
    os.close(fd)
    world.run_good_job()


def test_thousands_of_weights(world):
    """One after another, with seeks between them or not; others are served, and
    memory and descriptors stay."""
    with _weighted_feed(world) as feed:
        calm = world.run_good_job()
        before = world.daemon.descriptors(), world.scratch_bytes()
        arrays = [wire.memfd(_one_hot(index)) for index in range(3)]
        for number in range(3000):
            answer = wire.set_weights(feed.connection, [arrays[number % 3]])
            assert answer == (_NONE, "")
            if number % 7 == 0:
                feed.seek(number + 1, number, 0)
        assert world.run_good_job() < 20 * calm + 1
        _expect_drawn(world, feed, 2, 3001)
        harness.poll_until(
            lambda: (world.daemon.descriptors(), world.scratch_bytes())
            == before, "what it held")
        for fd in arrays:
            os.close(fd)


def test_the_budget_limits_weights_that_are_set(world):
    """A table of 1.9 million weights has 24 MB, of the 100 MiB that others
    fill up; a client that goes while weights are read leaves nothing."""
    order = {"num_samples": 1_900_000, "lists_samples": True}
    arrays = [wire.memfd(np.ones(1_900_000)),
              wire.memfd(np.full(1_900_000, 3))]
    before = world.scratch_bytes()
    with world.attach(world.open(weighted_order=order)["feed_id"],
                      arrays) as feed:
        size = world.scratch_bytes() - before
        assert wire.set_weights(feed.connection, arrays[:1]) == (_NONE, "")
        assert world.scratch_bytes() - before > size + 22 * 10**6
        opened = []
        while "feed_id" in (more := world.try_open(weighted_order=order)):
            opened.append(more["feed_id"])
        code, text = wire.set_weights(feed.connection, arrays[:1])
        assert code == _RESOURCE_EXHAUSTED
        assert "other weights of feed" in text
        world.session.close()
        world.session = harness.Session(world.daemon.socket_path)
        harness.poll_until(
            lambda: world.scratch_bytes() - before <= 2 * size, "the memory")
        wire.send_set_weights(feed.connection, arrays[:1])
    for fd in arrays:
        os.close(fd)
    harness.poll_until(lambda: world.scratch_bytes() == before, "the memory")


if __name__ == "__main__":
    harness.main(__file__)
