"""Waits for a daemon that does not answer: time-outs and Ctrl-C."""

import os
import signal
import subprocess
import sys
import threading

import datasetd
import pytest
from conftest import load, loader, poll_until, run_python, stop

# A stopped daemon makes no batch, and its connections stay.
WAIT_SCRIPT = """
import datasetd, os, signal
client = datasetd.connect({address!r})
dataset = client.load_dataset("hundred", format="npy", path={path!r})
loader = datasetd.DataLoader(
    dataset, batch_size=10, prefetch=1, framework="numpy")
os.kill({pid}, signal.SIGSTOP)
try:
    while True:
        for batch in loader:
            print("batch", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
os._exit(0)
"""


def test_interrupt_while_waiting(data_root):
    with datasetd.start_local(device="cpu", data_roots=data_root) as daemon:
        script = WAIT_SCRIPT.format(
            address=daemon.address,
            path=str(data_root / "hundred"),
            pid=daemon.pid,
        )
        process = subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
        )
        try:
            # At most prefetch + 2 were ready; after the last it waits.
            assert process.stdout.readline() == b"batch\n"
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1)
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=20)
            assert output.endswith(b"interrupted\n")
        finally:
            os.kill(daemon.pid, signal.SIGCONT)
            process.kill()
            process.wait()


def test_timeout(data_root):
    with datasetd.start_local(device="cpu", data_roots=data_root) as daemon:
        dataset = load(daemon.connect(), data_root)
        with loader(dataset, prefetch=1, timeout=0.3) as batches:
            stop(daemon)
            try:
                with pytest.raises(datasetd.DeadlineExceeded, match="0.3 s"):
                    for _ in batches:
                        pass
            finally:
                os.kill(daemon.pid, signal.SIGCONT)
            # The daemon goes on, and so does the loader.
            batches.set_epoch(4)
            assert next(iter(batches)).epoch == 4


def test_timeout_of_fetch(data_root):
    with datasetd.start_local(device="cpu", data_roots=data_root) as daemon:
        dataset = load(daemon.connect(), data_root)
        with loader(dataset) as batches:
            assert batches.fetch([7]).indices.tolist() == [7]
            batches.timeout = 0.3
            stop(daemon)
            try:
                with pytest.raises(datasetd.DeadlineExceeded, match="0.3 s"):
                    batches.fetch([8])
            finally:
                os.kill(daemon.pid, signal.SIGCONT)
            batches.timeout = None
            assert batches.fetch([9]).indices.tolist() == [9]


def test_timeout_of_a_samplers_indices(data_root):
    order = list(range(99, -1, -1))
    with datasetd.start_local(device="cpu", data_roots=data_root) as daemon:
        dataset = load(daemon.connect(), data_root)
        with loader(
            dataset, sampler=order, shuffle=False, timeout=0.3
        ) as batches:
            stop(daemon)
            try:
                with pytest.raises(
                    datasetd.DeadlineExceeded,
                    match=r"sampler's indices within 0.3 s \(timeout=\)",
                ):
                    for _ in batches:
                        pass
            finally:
                os.kill(daemon.pid, signal.SIGCONT)
            # Whether the daemon took them then or not: each comes once.
            seen = [i for b in batches for i in b.indices.tolist()]
            assert seen == order


@pytest.mark.parametrize("seconds", [2**64 / 1e9, 1e18, 1e300])
def test_a_timeout_longer_than_the_library_counts(daemon, dataset, seconds):
    """More than 2**63 nanoseconds, of which no rest is the limit."""
    with datasetd.connect(daemon.address, timeout=seconds) as client:
        assert client.status()
    order = list(range(20))
    with loader(
        dataset, sampler=order, shuffle=False, timeout=seconds
    ) as batches:
        assert len(list(batches)) == 2


@pytest.mark.parametrize("num_taken", [0, 3])
@pytest.mark.parametrize(
    "order", [{"sampler": list(range(102, -1, -1))}, {"partition": (0, 1)}],
    ids=["sampler", "partition"],
)
def test_an_iterator_goes_on_after_a_timeout_of_its_indices(
    data_root, order, num_taken
):
    with datasetd.start_local(device="cpu", data_roots=data_root) as daemon:
        dataset = load(daemon.connect(), data_root)
        with loader(
            dataset, batch_size=1, shuffle=False, prefetch=4, **order
        ) as batches:
            expected = [i for b in batches for i in b.indices.tolist()]
            assert sorted(expected) == list(range(103))
            seen = []
            if num_taken:
                iterator = iter(batches)
                for _ in range(num_taken):
                    seen += next(iterator).indices.tolist()
            batches.timeout = 0.3
            stop(daemon)
            try:
                if not num_taken:
                    iterator = iter(batches)
                with pytest.raises(datasetd.DeadlineExceeded):
                    while True:
                        seen += next(iterator).indices.tolist()
                assert len(seen) < len(expected)
            finally:
                os.kill(daemon.pid, signal.SIGCONT)
            batches.timeout = None
            for batch in iterator:
                seen += batch.indices.tolist()
                assert (batch.epoch, batch.index) == (1, len(seen) - 1)
            assert seen == expected
            assert batches.state_dict()["epoch"] == 2


_WAITS = """
from tests.testing.processes import stop
import os, signal, sys
import datasetd
with datasetd.start_local(device="cpu", data_roots=sys.argv[1]) as daemon:
    dataset = daemon.connect().load_dataset(
        "hundred", format="npy", path=sys.argv[1] + "/hundred")
    client = daemon.connect()
    loader = datasetd.DataLoader(dataset, batch_size=1, framework="numpy",
                                 sampler=list(range(100)))
    iterator = iter(loader)
    waits = {
        "indices": lambda: next(iterator),
        "load": lambda: client.load_dataset(
            "other", format="npy", path=sys.argv[1] + "/hundred"),
        "push": lambda: client.push_dataset("pushed", [(1, 2)] * 3),
        "status": client.status,
        "loader": lambda: datasetd.DataLoader(
            dataset, batch_size=1, framework="numpy"),
        "connect": lambda: datasetd.connect(daemon.address, timeout=60),
    }
    stop(daemon)
    try:
        print("waiting", flush=True)
        waits[sys.argv[2]]()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    # It was broken off, or the daemon had done it.
    client.status()
    if sys.argv[2] == "indices":
        seen = [i for batch in iterator for i in batch.indices.tolist()]
        assert seen == list(range(100)), seen
    seen = [i for batch in loader for i in batch.indices.tolist()]
    assert seen == list(range(100)), seen
    print("went on", flush=True)
"""


@pytest.mark.parametrize(
    "wait", ["indices", "load", "push", "status", "loader", "connect"]
)
def test_ctrl_c_while_the_daemon_does_not_answer(data_root, wait):
    process = subprocess.Popen(
        [sys.executable, "-c", _WAITS, str(data_root), wait],
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout.readline() == b"waiting\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)
        assert output == b"interrupted\nwent on\n"
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


_HANDLER = """
from tests.testing.processes import stop
import os, signal, sys
import datasetd
with datasetd.start_local(device="cpu", data_roots=sys.argv[1]) as daemon:
    client = daemon.connect()
    def handle(*_):
        try:
            datasetd.connect(daemon.address, timeout=0.35)
        except datasetd.DeadlineExceeded:
            print("timeout")
        os.kill(daemon.pid, signal.SIGCONT)
    signal.signal(signal.SIGALRM, handle)
    stop(daemon)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    print(client.status()["pid"] == daemon.pid)
"""


def test_a_signal_handler_may_call_while_a_call_waits(data_root):
    result = run_python("-c", _HANDLER, data_root)
    assert (result.stdout, result.stderr) == ("timeout\nTrue\n", "")
    assert result.returncode == 0


def test_close_ends_another_threads_wait(data_root):
    with datasetd.start_local(device="cpu", data_roots=data_root) as daemon:
        client = daemon.connect()
        dataset = load(client, data_root)
        batches = loader(dataset, prefetch=1, name="closed")
        iterator = iter(batches)
        is_used = batches._newest._feed.is_used
        errors = []

        def take():
            try:
                for batch in iterator:
                    del batch
            except datasetd.Error as error:
                errors.append(error)

        stop(daemon)
        try:
            batches.timeout = 1e-3
            with pytest.raises(datasetd.DeadlineExceeded):
                for batch in iterator:
                    del batch
            batches.timeout = None
            thread = threading.Thread(target=take)
            thread.start()
            poll_until(is_used, "the wait")
            for use in (iterator.__next__, batches.__iter__):
                with pytest.raises(
                    datasetd.FailedPrecondition, match="one thread at a time"
                ):
                    use()
            assert thread.is_alive()
            batches.close()
            thread.join(30)
            assert not thread.is_alive()
            with pytest.raises(datasetd.Closed, match="the loader is closed"):
                next(iterator)
        finally:
            os.kill(daemon.pid, signal.SIGCONT)
        (error,) = errors
        assert isinstance(error, datasetd.Closed)
        poll_until(lambda: not client.list_feeds(), "the feed's end")
