"""The shared pages of a feed in hostile hands: the daemon goes on, counts what
it ignores, and others are served right and in time."""

import ctypes
import errno
import fcntl
import mmap
import os
import struct
import time

import numpy as np
import pytest

from tests.testing import attach_wire as wire
from tests.testing import daemon_harness as harness
from tests.testing import hostile_world

harness.use_python_package()

from tests.conformance import loader_harness as loaders  # noqa: E402

# An emulated GPU is slow.
_NUM_SAMPLES = {"cpu": 2000, "cuda:0": 200}
_ATTACK_SECONDS = 1.0
# How much longer another job's epochs may take under attack: the attacker
# takes a core, the daemon's share of another.
_MAX_SLOWDOWN = 40.0
# CPU over a second, while a pending release is polled for, every 500 us.
_POLLING_CPU_SECONDS = 0.4
_FALLOC_FL_KEEP_SIZE, _FALLOC_FL_PUNCH_HOLE = 1, 2

_libc = ctypes.CDLL(None, use_errno=True)


def _fallocate(fd, mode, offset, length):
    """0 or an errno."""
    result = _libc.fallocate(fd, mode, ctypes.c_long(offset),
                             ctypes.c_long(length))
    return ctypes.get_errno() if result else 0


class _World(hostile_world.World):
    """The other client has an attached feed."""

    def __init__(self, daemon, device):
        super().__init__(daemon, _NUM_SAMPLES[device],
                         framework="numpy" if device == "cpu" else "dlpack")
        self.is_host = device == "cpu"
        self.feed = self.open_and_attach(prefetch=6, shuffle=True)

    def close(self):
        self.feed.close()
        super().close()

    def attack(self, steps):
        """Runs steps(i) for a while."""
        end = time.monotonic() + _ATTACK_SECONDS
        i = 0
        while time.monotonic() < end:
            for _ in range(50):
                steps(i)
                i += 1
        return i


@pytest.fixture(name="world", params=loaders.DEVICES)
def _world(request):
    loaders.require_device(request.param)
    with harness.Daemon(
            devices=[request.param], log_level="error") as daemon, _World(
                daemon, request.param) as world:
        yield world


def test_an_honest_release_is_taken(world):
    """The test's own hands do it right: the rest is not for want of that."""
    for _ in range(5):
        slot, sequence = min(world.feed.published().items(),
                             key=lambda item: item[1])
        world.feed.release(slot, sequence)
        world.feed.wake()
        harness.poll_until(
            lambda: max(world.feed.published().values()) == sequence + 8,
            "the next batch")
    assert world.info()["num_ignored_releases"] == "0"


def test_releases_of_other_sequences_are_ignored_and_counted(world):
    published = world.feed.published()
    for slot, sequence in published.items():
        for wrong in (0, sequence + 1, sequence - 1, sequence + 2**32,
                      2**64 - 1, 2**63):
            if wrong in published.values() or wrong == 0:
                continue
            world.feed.write_word(wire.RELEASE_DONE_OFFSET + 8 * slot, wrong)
            world.feed.wake()
    harness.poll_until(
        lambda: int(world.info()["num_ignored_releases"]) >= 8, "the count")
    assert world.feed.published() == published
    assert world.info()["num_slots_held"] == 8
    world.run_good_job(3)
    # It may still release them rightly.
    for slot, sequence in published.items():
        world.feed.release(slot, sequence)
    world.feed.wake()
    harness.poll_until(
        lambda: min(world.feed.published().values())
        > max(published.values()), "new batches")


def test_senseless_seeks_are_ignored_and_counted(world):
    published = world.feed.published()
    for generation, epoch, batch in (
            (1, 2**32, 0), (2, 0, world.num_samples // 10 + 1),
            (3, 2**64 - 1, 0), (4, 0, 2**64 - 1), (5, 2**63, 2**63)):
        world.feed.seek(generation, epoch, batch)
        world.feed.wake()
        harness.poll_until(
            lambda: int(world.info()["num_ignored_seeks"]) == generation,
            "the count")
    assert world.feed.published() == published
    # A last one that is right is taken, though it comes late.
    world.feed.seek(2**63, 7, 3)
    for slot, sequence in published.items():
        world.feed.release(slot, sequence)
    world.feed.wake()
    harness.poll_until(
        lambda: world.info()["position"]["epoch"] == "7", "the seek")
    world.run_good_job(3)


def test_random_words_in_a_loop(world):
    calm = world.run_good_job(3)
    random = np.random.default_rng(5)
    noise = [random.integers(0, 256, wire.CLIENT_PAGE_BYTES, np.uint8)
             .tobytes() for _ in range(8)]

    def scribble(i):
        world.feed.client_page[:] = noise[i % 8]
        world.feed.wake()

    world.attack(scribble)
    assert int(world.info()["num_ignored_releases"]) > 0
    assert world.run_good_job(3) < _MAX_SLOWDOWN * calm + 1.0
    world.daemon.expect_idle()


def test_seeks_in_a_loop(world):
    calm = world.run_good_job(3)

    def seek(i):
        world.feed.seek(i + 1, i % 2, i % 5)
        for slot, sequence in world.feed.published().items():
            world.feed.release(slot, sequence)
        world.feed.wake()

    count = world.attack(seek)
    assert count > 100
    assert world.run_good_job(3) < _MAX_SLOWDOWN * calm + 1.0
    world.daemon.expect_idle()


@pytest.mark.parametrize("pending", [False, True])
def test_eventfd_flood(world, pending):
    """Also while a release is requested and never done."""
    if pending:
        for slot, sequence in world.feed.published().items():
            world.feed.write_word(
                wire.RELEASE_REQUESTED_OFFSET + 8 * slot, sequence)
        world.feed.wake()
    calm = world.run_good_job(3)
    began, before = time.monotonic(), world.daemon.cpu_seconds()
    world.attack(lambda i: world.feed.wake())
    share = ((world.daemon.cpu_seconds() - before)
             / (time.monotonic() - began))
    # 100 wakes in 10 ms, and no more.
    assert share < 0.6, share
    assert world.run_good_job(3) < _MAX_SLOWDOWN * calm + 1.0
    world.daemon.expect_idle(
        _POLLING_CPU_SECONDS if pending else harness.IDLE_CPU_SECONDS)


def test_eventfd_made_blocking_and_full(world):
    flags = fcntl.fcntl(world.feed.event_fd, fcntl.F_GETFL)
    os.write(world.feed.event_fd, struct.pack("<Q", 2**64 - 2 - 1))
    fcntl.fcntl(world.feed.event_fd, fcntl.F_SETFL,
                flags & ~os.O_NONBLOCK)
    world.run_good_job(3)
    # Emptied behind the daemon's back, and used again.
    os.read(world.feed.event_fd, 8)
    published = world.feed.published()
    for slot, sequence in published.items():
        world.feed.release(slot, sequence)
    world.feed.wake()
    harness.poll_until(
        lambda: min(world.feed.published().values())
        > max(published.values()), "new batches")
    world.daemon.expect_idle()


def test_holes_punched_into_page_and_slab(world):
    slab_bytes = os.fstat(world.feed.slab_fd).st_size
    mode = _FALLOC_FL_PUNCH_HOLE | _FALLOC_FL_KEEP_SIZE

    def punch(_):
        assert _fallocate(world.feed.client_fd, mode, 0, 4096) == 0
        assert _fallocate(world.feed.slab_fd, mode, 0, slab_bytes) == 0
        for slot, sequence in world.feed.published().items():
            world.feed.release(slot, sequence)
        world.feed.wake()

    world.attack(punch)
    world.run_good_job(3)
    # The slab holds right pixels again in the batches made after it.
    published = world.feed.published()
    for slot, sequence in published.items():
        world.feed.release(slot, sequence)
    world.feed.wake()
    harness.poll_until(
        lambda: max(world.feed.published().values())
        > max(published.values()), "new batches")
    world.daemon.expect_idle()


def test_no_descriptor_can_be_resized(world):
    descriptors = [world.feed.daemon_fd, world.feed.client_fd]
    # A GPU's memory is the driver's.
    if world.is_host:
        descriptors.append(world.feed.slab_fd)
    for fd in descriptors:
        size = os.fstat(fd).st_size
        for wanted in (0, size - 4096, size + 4096):
            with pytest.raises(PermissionError):
                os.ftruncate(fd, wanted)
        assert _fallocate(fd, 0, size, 4096) == errno.EPERM
        with pytest.raises(PermissionError):
            fcntl.fcntl(fd, 1033, 1)  # F_ADD_SEALS, F_SEAL_SEAL


def test_the_daemon_page_cannot_be_written(world):
    fd = world.feed.daemon_fd
    size = wire.DAEMON_PAGE_BYTES
    writable = mmap.PROT_READ | mmap.PROT_WRITE
    with pytest.raises(PermissionError):
        mmap.mmap(fd, size, mmap.MAP_SHARED, writable)
    with pytest.raises(PermissionError):
        os.pwrite(fd, b"x", 0)
    mode = _FALLOC_FL_PUNCH_HOLE | _FALLOC_FL_KEEP_SIZE
    assert _fallocate(fd, mode, 0, size) == errno.EPERM
    # A read-only mapping stays one.
    page = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ)
    with pytest.raises(TypeError):
        page[0] = 1
    _libc.mmap.restype = ctypes.c_void_p
    address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd,
                         ctypes.c_long(0))
    assert _libc.mprotect(ctypes.c_void_p(address), size, writable) != 0
    assert ctypes.get_errno() == errno.EACCES
    # Opened anew, it is the same file with the same seals.
    again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
    try:
        with pytest.raises(PermissionError):
            mmap.mmap(again, size, mmap.MAP_SHARED, writable)
        with pytest.raises(PermissionError):
            os.pwrite(again, b"x", 0)
        with pytest.raises(PermissionError):
            os.ftruncate(again, 0)
    finally:
        os.close(again)
    # A private copy is its own.
    private = mmap.mmap(fd, size, mmap.MAP_PRIVATE, writable)
    private[:4] = b"evil"
    assert world.feed.daemon_page[:4] != b"evil"


def test_one_feed_sees_nothing_of_another(world):
    """The slab has whole pages of zeros or its own batches, no more."""
    slab = np.frombuffer(mmap.mmap(
        world.feed.slab_fd, os.fstat(world.feed.slab_fd).st_size,
        mmap.MAP_SHARED, mmap.PROT_READ), np.uint8)
    stride = 10 * harness.CIFAR_RECORD_BYTES
    assert slab[9 * 2 * stride:].max(initial=0) == 0


if __name__ == "__main__":
    harness.main(__file__)
