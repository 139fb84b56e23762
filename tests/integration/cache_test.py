"""The cache of loaded datasets on disk: used where it is whole, and never
trusted, waited for or needed."""

import contextlib
import os
import resource
import shutil
import subprocess
import tempfile
import urllib.request

import pytest

from tests.testing import daemon_harness as harness
from tests.testing import ports
from tests.testing.restart_world import World, flip


def _metrics(port):
    """The cache's metrics, by name without prefix."""
    url = f"http://127.0.0.1:{port}/metrics"
    with urllib.request.urlopen(url, timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    prefix = "datasetd_cache_"
    return {line.split()[0][len(prefix):]: float(line.split()[1])
            for line in lines if line.startswith(prefix)}


def test_the_metrics_tell_hits_misses_and_bytes():
    port = ports.free_port()
    with World(has_state=False, metrics_port=port) as world:
        with world.daemon.connect() as client:
            world.load(client)
            world.await_stored()
            size = os.path.getsize(world.entries()[0])
            harness.poll_until(
                lambda: _metrics(port)["written_bytes_total"] == size,
                "the metric of the write")
            assert _metrics(port) == {
                "limit_bytes": 1 << 30, "used_bytes": size, "entries": 1,
                "hits_total": 0, "misses_total": 1, "read_bytes_total": 0,
                "written_bytes_total": size, "evictions_total": 0,
                "errors_total": 0}
        world.restart()
        with world.daemon.connect() as client:
            world.load(client)
            assert _metrics(port) == {
                "limit_bytes": 1 << 30, "used_bytes": size, "entries": 1,
                "hits_total": 1, "misses_total": 0, "read_bytes_total": size,
                "written_bytes_total": 0, "evictions_total": 0,
                "errors_total": 0}


def test_a_crash_amid_a_cache_write():
    with World() as world:
        world.write_dataset(60_000)
        source = """
client = datasetd.connect(ADDRESS)
load(client)
say(ready=True)
hear()
"""
        with harness.Worker(source, world.daemon.socket_path,
                            path=world.path) as worker:
            harness.poll_until(
                lambda: any(os.path.getsize(file) > 0
                            for file in world.entries(".cache.tmp")),
                "the write begins")
            world.daemon.kill()
            worker.kill()
        assert len(world.entries(".cache.tmp")) == 1
        assert world.entries() == []
        world.daemon.start()
        assert world.entries(".tmp") == []
        with world.daemon.connect() as client:
            world.check_samples(client)
        assert "leftover removed" in world.daemon.log()
        assert ": used" not in world.daemon.log()
        world.await_stored()
        world.restart()
        with world.daemon.connect() as client:
            world.check_samples(client)
        assert ": used" in world.daemon.log()


def test_a_cache_damaged_at_every_sixteenth():
    with World(has_state=False) as world:
        with world.daemon.connect() as client:
            world.check_samples(client)
        for part in range(16):
            world.await_stored()
            world.daemon.kill()
            (entry,) = world.entries()
            assert os.stat(entry).st_mode & 0o777 == 0o600
            flip(entry, os.path.getsize(entry) * part // 16)
            world.daemon.start()
            with world.daemon.connect() as client:
                world.check_samples(client)
            assert world.daemon.log().count("damaged, removed") == part + 1
        assert ": used" not in world.daemon.log()


def test_a_full_disk_costs_the_entry_and_no_load():
    with World() as world:
        # No file may have as much as the dataset has; a slab has less.
        limit = 4 << 20
        resource.prlimit(world.daemon.pid, resource.RLIMIT_FSIZE,
                         (limit, limit))
        with world.daemon.connect() as client:
            world.check_samples(client)
            harness.poll_until(lambda: "not stored" in world.daemon.log(),
                               "the write fails")
            world.check_samples(client)
        assert world.entries("") == [os.path.join(world.cache, "lock")]
        world.restart()
        with world.daemon.connect() as client:
            world.check_samples(client)
        world.await_stored()


@contextlib.contextmanager
def _small_tmpfs(path, size):
    os.makedirs(path)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700",
         "tmpfs", path], capture_output=True)
    if done.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted: {done.stderr.decode()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def test_a_disk_that_is_full():
    directory = tempfile.mkdtemp(prefix="rt", dir="/tmp")
    cache = os.path.join(directory, "small")
    try:
        with _small_tmpfs(cache, 6 << 20), \
                World(has_cache=False, cache={"directory": cache,
                                              "limit_mib": 1000}) as world:
            with world.daemon.connect() as client:
                world.check_samples(client)
                harness.poll_until(lambda: "not stored" in world.daemon.log(),
                                   "the write fails")
                world.check_samples(client)
            assert "No space left on device" in world.daemon.log()
            assert os.listdir(cache) == ["lock"]
            world.daemon.kill()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    harness.main(__file__)
