"""A daemon that dies, drains or comes back; fork() and threads."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import types

import datasetd
import numpy as np
import pytest
import torch
from conftest import (
    SlowSamples,
    await_end,
    copies,
    indices_of,
    load,
    loader,
    stop,
)
from datasetd._daemon.start import start_daemon
from datasetd._feed import recovery


def test_daemon_killed_while_clients_wait(data_root):
    with datasetd.start_local(device="cpu", data_roots=data_root) as daemon:
        client = daemon.connect()
        dataset = load(client, data_root)
        batches = loader(dataset, prefetch=1)
        iterator = iter(batches)
        kept = next(iterator)
        os.kill(daemon.pid, signal.SIGKILL)
        start = time.monotonic()
        with pytest.raises(datasetd.DaemonGone):
            while True:
                for _ in iterator:
                    pass
                iterator = iter(batches)
        assert time.monotonic() - start < 5  # no timeout of a call
        with pytest.raises(datasetd.DaemonGone):
            client.list_datasets()
        assert kept.image.shape == (10, 3, 8, 10)


def test_daemon_that_drains(data_root):
    with datasetd.start_local(device="cpu", data_roots=data_root) as daemon:
        dataset = load(daemon.connect(), data_root)
        with loader(dataset, prefetch=1) as batches:
            iterator = iter(batches)
            next(iterator)
            os.kill(daemon.pid, signal.SIGTERM)
            with pytest.raises(datasetd.DaemonDraining):
                while True:
                    for _ in iterator:
                        pass
                    iterator = iter(batches)


def test_reconnect_goes_on_at_the_exact_next_batch(data_root, tmp_path):
    with datasetd.start_local(device="cpu", data_roots=data_root) as daemon:
        dataset = load(daemon.connect(), data_root)
        with loader(dataset) as batches:
            expected = indices_of(copies(batches))
        with loader(dataset, prefetch=1, reconnect=30) as batches:
            iterator = iter(batches)
            rows = [next(iterator).indices.clone() for _ in range(4)]
            os.kill(daemon.pid, signal.SIGKILL)
            await_end(daemon.pid)
            with successor(daemon, data_root):
                rows += [batch.indices.clone() for batch in iterator]
        np.testing.assert_array_equal(np.concatenate(rows), expected)


def test_a_mixture_reconnects_once_all_of_it_is_back(data_root):
    with datasetd.start_local(device="cpu", data_roots=data_root) as daemon:
        client = daemon.connect()
        first = load(client, data_root)
        second = client.load_dataset(
            "again", format="npy", path=data_root / "hundred"
        )
        mix = datasetd.mixture({first: 0.4, second: 0.6})

        def rows_of(batch):
            return list(zip(batch.dataset_index.tolist(), batch.indices))

        with loader(mix) as batches:
            expected = [row for batch in batches for row in rows_of(batch)]
        with loader(mix, prefetch=1, reconnect=30) as batches:
            iterator = iter(batches)
            rows = [row for _ in range(4) for row in rows_of(next(iterator))]
            os.kill(daemon.pid, signal.SIGKILL)
            await_end(daemon.pid)
            with successor(daemon, data_root):
                rows += [row for batch in iterator for row in rows_of(batch)]
        assert rows == expected


def test_a_state_with_another_seed_while_the_daemon_is_gone(data_root):
    """The feed has to be opened anew for that seed."""
    with datasetd.start_local(device="cpu", data_roots=data_root) as daemon:
        dataset = load(daemon.connect(), data_root)
        with loader(dataset) as batches:
            expected = indices_of(copies(batches))
            state = dict(batches.state_dict(), epoch=0, batch=3)
        with loader(dataset, seed=None, reconnect=30) as batches:
            assert batches.seed != state["seed"]
            os.kill(daemon.pid, signal.SIGKILL)
            await_end(daemon.pid)
            with successor(daemon, data_root):
                batches.load_state_dict(state)
                rows = indices_of(copies(batches))
        np.testing.assert_array_equal(rows, expected[30:])


@pytest.mark.parametrize("look", ["loader", "peek", "fetch"])
def test_a_dataset_that_still_loads_when_another_loader_is_back(
    data_root, monkeypatch, look
):
    """Its push to the new daemon is under way."""
    slow = SlowSamples()
    slow.go_on.set()
    with datasetd.start_local(device="cpu", data_roots=data_root) as daemon:
        client = daemon.connect()
        hundred = load(client, data_root)
        pushed = client.push_dataset("pushed", slow)
        batches = datasetd.DataLoader(pushed, reconnect=30)
        under_way = iter(batches)
        next(under_way)
        os.kill(daemon.pid, signal.SIGKILL)
        await_end(daemon.pid)
        slow = SlowSamples()

        def sleep(seconds):
            slow.go_on.set()
            time.sleep(seconds)

        with successor(daemon, data_root), loader(hundred, reconnect=30):
            other = datasetd.connect(daemon.address)
            thread = threading.Thread(
                target=other.push_dataset, args=("pushed", slow)
            )
            thread.start()
            assert slow.is_begun.wait(60)
            monkeypatch.setattr(
                recovery,
                "time",
                types.SimpleNamespace(monotonic=time.monotonic, sleep=sleep),
            )
            try:
                batch = {
                    "loader": lambda: list(
                        datasetd.DataLoader(pushed, 5000, reconnect=30)
                    )[0],
                    "peek": batches.peek,
                    "fetch": lambda: batches.fetch([0]),
                }[look]()
                assert not batch[0][0].any()
            finally:
                slow.go_on.set()
                thread.join()
            batches.close()


@contextlib.contextmanager
def successor(daemon, data_root):
    """Another daemon in the place of one that was killed."""
    pid = start_daemon(
        os.path.dirname(daemon.address),
        [
            "--device=cpu",
            f"--data_root={data_root}",
            f"--exit_with_parent={os.getpid()}",
        ],
    )
    try:
        yield
    finally:
        os.kill(pid, signal.SIGTERM)
        await_end(pid)


@pytest.mark.parametrize("order", ["random", "sampler"])
def test_a_daemon_that_comes_back_too_late(data_root, order):
    """The error is the daemon's, not that the loader is closed; the next use
    looks again, and goes on at the exact next batch."""
    with datasetd.start_local(device="cpu", data_roots=data_root) as daemon:
        dataset = load(daemon.connect(), data_root)
        arguments = (
            {}
            if order == "random"
            else {"shuffle": False, "sampler": range(102, -1, -1)}
        )
        with loader(dataset, **arguments) as batches:
            expected = indices_of(copies(batches))
        with loader(
            dataset, prefetch=1, reconnect=0.3, **arguments
        ) as batches:
            iterator = iter(batches)
            rows = [next(iterator).indices.clone() for _ in range(4)]
            os.kill(daemon.pid, signal.SIGKILL)
            await_end(daemon.pid)
            for _ in range(2):
                with pytest.raises(datasetd.DaemonGone):
                    for batch in iterator:
                        rows.append(batch.indices.clone())
            with successor(daemon, data_root):
                # Until the new one listens.
                deadline = time.monotonic() + 30
                while True:
                    try:
                        for batch in iterator:
                            rows.append(batch.indices.clone())
                        break
                    except (datasetd.DaemonGone, datasetd.DeadlineExceeded):
                        # It does not listen, or still loads.
                        assert time.monotonic() < deadline
        np.testing.assert_array_equal(np.concatenate(rows), expected)


def test_fork_while_holding_a_batch(dataset):
    with loader(dataset) as batches:
        iterator = iter(batches)
        batch = next(iterator)
        before = batch.image.clone()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                try:
                    next(iterator)
                except datasetd.UsedAfterFork:
                    code = 0
                del batch, iterator
                gc.collect()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert torch.equal(batch.image, before)
        assert next(iterator).index == 1


def test_tensors_are_freed_on_any_thread(dataset):
    with loader(dataset, prefetch=2, on_held="error") as batches:
        boxes = []

        def free():
            while boxes:
                boxes.pop()

        for _ in range(3):
            for batch in batches:
                boxes.append(batch.image)
                del batch
                thread = threading.Thread(target=free)
                thread.start()
                thread.join()


_ENDS_WITH_THREADS = """
import sys, threading
import datasetd
address, path = sys.argv[1:]
client = datasetd.connect(address)
dataset = client.load_dataset("hundred", format="npy", path=path)
loader = datasetd.DataLoader(
    dataset, batch_size=10, prefetch=1, framework="numpy", timeout=1e-3)
iterator = iter(loader)
print("ready", flush=True)
sys.stdin.readline()
try:
    for batch in iterator:
        del batch
except datasetd.DeadlineExceeded:
    loader.timeout = None
threads = [threading.Thread(target=call, daemon=True)
           for call in (iterator.__next__, client.status)]
for thread in threads:
    thread.start()
feed, connection = loader._newest._feed, client._session.connection()
while not (feed.is_used() and connection.is_used()):
    assert all(thread.is_alive() for thread in threads)
print("ends")
"""


def test_the_interpreter_ends_while_threads_wait(data_root):
    """As those of a prefetcher do; nothing is freed under them."""
    with datasetd.start_local(device="cpu", data_roots=data_root) as daemon:
        for _ in range(3):
            process = subprocess.Popen(
                [sys.executable, "-c", _ENDS_WITH_THREADS]
                + [daemon.address, str(data_root / "hundred")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            try:
                assert process.stdout.readline() == "ready\n"
                stop(daemon)
                output = process.communicate("stopped\n", timeout=60)
            finally:
                os.kill(daemon.pid, signal.SIGCONT)
                process.kill()
                process.wait()
            assert output == ("ends\n", "")
            assert process.returncode == 0
