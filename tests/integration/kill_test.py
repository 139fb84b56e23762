"""SIGKILL of a client, SIGKILL of the daemon, Ctrl-C in a waiting client."""

import os
import signal
import time

import numpy as np
import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402

_NUM_SAMPLES = 2000
# A wait for a process that died would last for a time-out of this, or for ever.
_TIMEOUT_SECONDS = 10.0

# Holds two batches, and says so.
_HOLDER = """
client = datasetd.connect(ADDRESS)
ds = load(client)
loader = datasetd.DataLoader(ds, batch_size=50, framework="numpy",
                             name="holder")
iterator = iter(loader)
kept = [next(iterator), next(iterator)]
copies = [b[0].copy() for b in kept]
say(holding=2)
hear()
"""
# Serves itself without end; says the longest time between two batches.
_RUNNER = """
client = datasetd.connect(ADDRESS)
ds = load(client)
loader = datasetd.DataLoader(ds, batch_size=50, shuffle=True, seed=7,
                             framework="numpy", name="runner")
stop = threading.Event()
threading.Thread(target=lambda: (hear(), stop.set()), daemon=True).start()
num, gap, last = 0, 0.0, time.monotonic()
while not stop.is_set():
    for images, labels in loader:
        now = time.monotonic()
        gap, last = max(gap, now - last), now
        num += 1
        if num == 1:
            say(started=True)
            last = time.monotonic()
say(num=num, gap=gap)
"""
_DAEMON_GONE = """
client = datasetd.connect(ADDRESS)
ds = load(client)
loader = datasetd.DataLoader(ds, batch_size=50, framework="numpy",
                             prefetch=2)
iterator = iter(loader)
kept = [next(iterator) for _ in range(ARGUMENTS["num_kept"])]
copies = [b[0].copy() for b in kept]
if ARGUMENTS["kind"] == "waiting":
    # Nobody publishes more: the daemon is stopped before it is killed.
    say(ready=True)
    hear()
    say(waiting=True)
else:
    say(ready=True)
    hear()
try:
    # Without end: the daemon dies while batches are asked for.
    while True:
        if next(iterator, None) is None:
            iterator = iter(loader)
except datasetd.Error as error:
    ended = time.clock_gettime(time.CLOCK_MONOTONIC)
    say(error=type(error).__name__, ended=ended, message=str(error))
same = all((b[0] == c).all() for b, c in zip(kept, copies))
try:
    client.status()
    again = "none"
except datasetd.Error as error:
    again = type(error).__name__
loader.close()
client.close()
same = same and all((b[0] == c).all() for b, c in zip(kept, copies))
say(same=bool(same), rpc=again)
"""


@pytest.fixture(name="daemon")
def _daemon():
    with harness.Daemon() as daemon:
        daemon.write_dataset(_NUM_SAMPLES)
        yield daemon


def _names(client):
    return [feed["name"] for feed in client.list_feeds()]


def test_sigkill_of_a_client_frees_all_and_disturbs_nobody(daemon):
    with daemon.connect() as client, harness.Worker(
            _RUNNER, daemon.socket_path, path=daemon.path) as runner:
        runner.hear()
        before = harness.Footprint(daemon, client)
        # gRPC keeps threads for a while after their first use.
        with harness.Worker(_HOLDER, daemon.socket_path,
                            path=daemon.path) as first:
            first.hear()
            first.kill()
            first.wait()
        harness.expect_footprint(daemon, client, before)
        threads = daemon.num_threads()

        for _ in range(3):
            with harness.Worker(_HOLDER, daemon.socket_path,
                                path=daemon.path) as holder:
                holder.hear()
                assert sorted(_names(client)) == ["holder", "runner"]
                assert harness.Footprint(daemon, client) != before
                holder.kill()
                holder.wait()
                harness.poll_until(lambda: _names(client) == ["runner"],
                                   "the feed's end", _TIMEOUT_SECONDS)
        harness.expect_footprint(daemon, client, before)
        assert daemon.num_threads() <= threads + 2
        runner.tell()
        result = runner.hear()
        assert result["num"] > 100
        assert result["gap"] < _TIMEOUT_SECONDS, result


def test_sigkill_while_a_client_opens_and_closes_feeds(daemon):
    """Dies at any point of opening and closing; nothing stays behind."""
    source = """
client = datasetd.connect(ADDRESS)
ds = load(client)
say(ready=True)
while True:
    with datasetd.DataLoader(ds, batch_size=10, framework="numpy",
                             prefetch=2) as loader:
        next(iter(loader))
"""
    with daemon.connect() as client:
        dataset = daemon.load(client)
        before = harness.Footprint(daemon, client)
        for round_number in range(6):
            with harness.Worker(source, daemon.socket_path,
                                path=daemon.path) as worker:
                worker.hear()
                # At another point each time.
                for _ in range(round_number):
                    client.status()
                worker.kill()
                worker.wait()
        # A feed that was never attached goes with its session.
        harness.expect_footprint(daemon, client, before)
        with datasetd.DataLoader(dataset, batch_size=10,
                                 framework="numpy") as loader:
            assert sum(1 for _ in loader) == len(loader)


@pytest.mark.parametrize("kind, num_kept", [
    ("running", 0), ("holding", 2), ("waiting", 3)])
def test_sigkill_of_the_daemon_is_daemon_gone(daemon, kind, num_kept):
    with harness.Worker(_DAEMON_GONE, daemon.socket_path, path=daemon.path,
                        kind=kind, num_kept=num_kept) as worker:
        worker.hear()
        if kind == "waiting":
            # The ring runs dry and the client waits on the futex.
            daemon.stop()
            worker.tell()
            worker.hear()
            harness.poll_until(
                lambda: _waits_for_a_batch(worker.pid), "the wait")
        else:
            worker.tell()
        killed = time.clock_gettime(time.CLOCK_MONOTONIC)
        daemon.kill()
        result = worker.hear()
        assert result["error"] == "DaemonGone", result
        assert result["ended"] - killed < _TIMEOUT_SECONDS
        assert daemon.socket_path.rsplit("/", 1)[0] in result["message"]
        last = worker.hear()
        assert last == {"same": True, "rpc": "DaemonGone"}


def _waits_for_a_batch(pid):
    """Its main thread is in a system call on a word of the daemon's page: the
    ring's futex (docs/ring.md)."""
    with open(f"/proc/{pid}/syscall") as file:
        words = file.read().split()
    if len(words) < 2:
        return False  # it runs
    address = int(words[1], 16)
    with open(f"/proc/{pid}/maps") as maps:
        pages = [line.split()[0].split("-") for line in maps
                 if "/memfd:datasetd-daemon-page" in line]
    return any(int(begin, 16) <= address < int(end, 16)
               for begin, end in pages)


def test_a_new_daemon_takes_over_the_sockets_of_a_killed_one(daemon):
    daemon.kill()
    assert os.path.exists(daemon.socket_path)
    daemon.start()
    with daemon.connect() as client:
        dataset = daemon.load(client)
        with datasetd.DataLoader(dataset, batch_size=500,
                                 framework="numpy") as loader:
            assert sum(1 for _ in loader) == 4


def test_reconnect_goes_on_at_the_exact_next_batch(daemon):
    with daemon.connect() as client:
        dataset = daemon.load(client)
        loader = datasetd.DataLoader(
            dataset, batch_size=100, shuffle=True, seed=5, framework="numpy",
            prefetch=2, reconnect=60)
        orders = []
        for epoch in range(2):
            rows = []
            for batch in loader:
                rows += batch.indices.tolist()
                if epoch == 1 and batch.index == 7:
                    daemon.kill()
                    daemon.start()
            orders.append(rows)
        assert all(sorted(rows) == list(range(_NUM_SAMPLES))
                   for rows in orders)
        loader.close()
    with daemon.connect() as client:
        dataset = client.get_dataset("d")
        with datasetd.DataLoader(dataset, batch_size=100, shuffle=True,
                                 seed=5, framework="numpy") as loader:
            for rows in orders:
                assert [i for b in loader
                        for i in b.indices.tolist()] == rows


def test_reconnect_sends_a_samplers_order_again(daemon):
    """The sampler is not run anew: nobody could say where it was."""
    class Sampler:
        runs = 0

        def __iter__(self):
            self.runs += 1
            random = np.random.default_rng(self.runs)
            for _ in range(1000):
                yield int(random.integers(_NUM_SAMPLES))

    sampler, judge = Sampler(), Sampler()
    with daemon.connect() as client:
        dataset = daemon.load(client)
        with datasetd.DataLoader(
                dataset, batch_size=7, sampler=sampler, framework="numpy",
                prefetch=2, reconnect=60) as loader:
            for _ in range(2):
                rows = []
                for batch in loader:
                    rows += batch.indices.tolist()
                    if batch.index in (0, 60, 141):
                        daemon.kill()
                        daemon.start()
                assert rows == list(judge)
    assert sampler.runs == judge.runs == 2


def test_ctrl_c_in_a_waiting_client(daemon):
    source = """
client = datasetd.connect(ADDRESS)
ds = load(client)
loader = datasetd.DataLoader(ds, batch_size=50, framework="numpy",
                             prefetch=2)
iterator = iter(loader)
taken = []
say(ready=True)
hear()
try:
    while True:
        taken.append(next(iterator).index)
        if len(taken) == 4:
            say(dry=True)
except KeyboardInterrupt:
    say(interrupted=time.clock_gettime(time.CLOCK_MONOTONIC))
hear()
rest = [b.index for b in iterator]
say(indices=taken + rest, epoch=next(iter(loader)).epoch)
loader.close()
client.close()
say(closed=True)
"""
    with harness.Worker(source, daemon.socket_path,
                        path=daemon.path) as worker:
        worker.hear()
        # Stopped, it publishes no more than is there: at most 4 batches.
        _await_full(daemon)
        daemon.stop()
        worker.tell()
        worker.hear()
        harness.poll_until(lambda: _waits_for_a_batch(worker.pid), "the wait")
        sent = time.clock_gettime(time.CLOCK_MONOTONIC)
        worker.kill(signal.SIGINT)
        assert worker.hear()["interrupted"] - sent < _TIMEOUT_SECONDS
        daemon.terminate(signal.SIGCONT)
        worker.tell()
        result = worker.hear()
        assert result == {"indices": list(range(40)), "epoch": 1}
        worker.hear()
        assert worker.wait() == 0


def _await_full(daemon):
    with daemon.connect() as client:
        harness.poll_until(
            lambda: [f["num_slots_held"] for f in client.list_feeds()] == [4],
            "four published batches")


if __name__ == "__main__":
    harness.main(__file__)
