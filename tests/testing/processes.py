"""Waits for the states of processes."""

import os
import pathlib
import select
import signal
import time

DEADLINE_SECONDS = 60.0


def poll_until(condition, what, timeout=DEADLINE_SECONDS):
    """Waits until condition() is true, and returns what it gave."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        # A pause between two looks; its length changes no result.
        time.sleep(0.005)


def is_running(pid):
    """False once all threads have ended, also if init has yet to reap them."""
    try:
        process = os.pidfd_open(int(pid))
    except ProcessLookupError:
        return False
    poll = select.poll()
    poll.register(process, select.POLLIN)
    try:
        return not poll.poll(0)
    finally:
        os.close(process)


def await_end(pid):
    """Waits for the end of any process."""
    poll_until(lambda: not is_running(pid), f"the end of {pid}")


def states(pid):
    """The states of a process's threads, apart from those that end."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            text = (task / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        found.append(text.rsplit(")", 1)[1].split()[0])
    return found


def stop(process):
    """SIGSTOP, and its effect: no thread of it runs any more."""
    os.kill(process.pid, signal.SIGSTOP)
    poll_until(lambda: set(states(process.pid)) == {"T"}, "the stop")
