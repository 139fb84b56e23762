"""The watchdog is fed as long as the producers get on, and only then."""

import contextlib
import os
import signal
import time

from tests.testing import daemon_harness as harness
from tests.testing import supervisor

harness.use_python_package()

import datasetd  # noqa: E402

_INTERVAL_SECONDS = 1.5


def _is_ping(notice):
    return notice.get("WATCHDOG") == "1"


def _seconds_of_silence(manager, timeout):
    """Listens for so long; the time since the last ping."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        manager.receive(deadline - time.monotonic())
    last = max(when for when, notice in manager.notices if _is_ping(notice))
    return time.monotonic() - last


def test_an_idle_daemon_is_healthy():
    with supervisor.Supervisor() as manager:
        manager.start(watchdog_seconds=_INTERVAL_SECONDS)
        manager.await_ready()
        # It sleeps, without a feed, for ten checks.
        for _ in range(10):
            manager.await_notice(_is_ping, timeout=_INTERVAL_SECONDS)
        assert "watchdog not fed" not in manager.log()
        assert manager.stop() == 0


def test_a_client_that_keeps_every_batch_is_no_fault_of_the_daemon():
    with supervisor.Supervisor() as manager:
        path = os.path.join(manager.data_root, "a")
        harness.write_cifar10_test(path, 100)
        manager.start(watchdog_seconds=_INTERVAL_SECONDS)
        manager.await_ready()
        with datasetd.connect(manager.socket_path) as client:
            dataset = client.load_dataset(
                "a", format="cifar10", split="test", path=path)
            with datasetd.DataLoader(dataset, batch_size=10, prefetch=1,
                                     framework="numpy") as loader:
                kept = next(iter(loader))
                for _ in range(6):
                    manager.await_notice(_is_ping, timeout=_INTERVAL_SECONDS)
                del kept
        assert "watchdog not fed" not in manager.log()


def test_a_stuck_producer_is_noticed_and_the_manager_may_end_it():
    with supervisor.Supervisor() as manager:
        manager.start(watchdog_seconds=_INTERVAL_SECONDS)
        manager.await_ready()
        manager.await_notice(_is_ping)
        (producer,) = manager.threads("producer")
        with supervisor.FrozenThread(producer):
            # The rest of the daemon goes on: it answers, but is not fed.
            silence = _seconds_of_silence(manager, 2 * _INTERVAL_SECONDS)
            assert silence > _INTERVAL_SECONDS, manager.notices
            with datasetd.connect(manager.socket_path) as client:
                assert client.status()["num_sessions"] == 1
            assert "the producer of cpu has not answered" in manager.log()
        # It comes back when the producer does.
        manager.await_notice(_is_ping, timeout=_INTERVAL_SECONDS)
        # The signal that the manager sends.
        manager.process.send_signal(signal.SIGABRT)
        assert manager.process.wait(harness.DEADLINE_SECONDS) == -signal.SIGABRT


def test_a_grpc_that_answers_nobody_is_noticed():
    with supervisor.Supervisor() as manager, contextlib.ExitStack() as frozen:
        manager.start(watchdog_seconds=_INTERVAL_SECONDS)
        manager.await_ready()
        manager.await_notice(_is_ping)
        for name in ("grpcpp_sync_ser", "nexting_thread", "event_engine",
                     "default-executo"):
            for thread in manager.threads(name):
                frozen.enter_context(supervisor.FrozenThread(thread))
        # Two calls of 10 s each; producers get on.
        harness.poll_until(
            lambda: "gRPC has not answered the last 2 calls" in manager.log(),
            "the log says so", 60)
        assert (_seconds_of_silence(manager, _INTERVAL_SECONDS)
                > _INTERVAL_SECONDS / 2)
        frozen.close()
        manager.await_notice(_is_ping)
        assert manager.stop() == 0


def test_without_a_watchdog_nothing_is_sent():
    with supervisor.Supervisor() as manager:
        manager.start()
        manager.await_ready()
        assert manager.stop() == 0
        manager.drain_notices()
        assert not any(_is_ping(notice) for _, notice in manager.notices)


def test_a_watchdog_for_another_process_is_not_fed():
    with supervisor.Supervisor() as manager:
        manager.start(watchdog_seconds=_INTERVAL_SECONDS,
                      environment={"WATCHDOG_PID": "1"})
        manager.await_ready()
        assert manager.stop() == 0
        manager.drain_notices()
        assert not any(_is_ping(notice) for _, notice in manager.notices)


if __name__ == "__main__":
    harness.main(__file__)
