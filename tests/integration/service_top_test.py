"""datasetctl top shows what goes on, in a terminal and elsewhere."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import termios

import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402

_CTL = harness.runfile("client/ctl/datasetctl")


@pytest.fixture(name="daemon")
def _daemon():
    with harness.Daemon() as daemon:
        yield daemon


_JOB = """
client = datasetd.connect(ADDRESS)
ds = load(client)
loader = datasetd.DataLoader(ds, batch_size=10, framework="numpy", name="mine")
say(ready=True)
while True:
    for _ in loader:
        pass
"""


def _top(daemon, *arguments):
    done = subprocess.run(
        [_CTL, "--address", daemon.socket_path, "top", "--interval", "0.3",
         *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, timeout=60)
    return done


def test_top_shows_who_draws_how_fast(daemon):
    daemon.write_dataset(100)
    with harness.Worker(_JOB, daemon.socket_path, path=daemon.path) as job:
        job.hear()
        done = _top(daemon, "--json", "--count", "2")
        assert done.returncode == 0, done.stderr
        looks = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(looks) == 2
        (feed,) = looks[1]["feeds"]
        assert feed["name"] == "mine"
        assert feed["pid"] == job.pid
        assert feed["samples_per_second"] > 0
        assert 0 <= feed["client_wait_ratio"] <= 1
        assert looks[1]["datasets"][0]["state"] == "DATASET_STATE_READY"

        done = _top(daemon, "--count", "1")
        assert "mine" in done.stdout
        assert "samples/s" in done.stdout
        # No control characters where it is no terminal.
        assert "\x1b" not in done.stdout


def _top_in_terminal(daemon, num_rows, num_columns):
    """Returns the lines of one look, without the code that clears."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ,
                struct.pack("HHHH", num_rows, num_columns, 0, 0))
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        try:
            subprocess.run(
                [_CTL, "--address", daemon.socket_path, "top", "--interval",
                 "0.05", "--count", "1"], stdout=theirs, check=True, timeout=60)
        finally:
            os.close(theirs)
        shown = terminal.read(65536).decode()
    before, clear, screen = shown.rpartition("\x1b[H\x1b[2J")
    assert (before, clear) == ("", "\x1b[H\x1b[2J")
    *lines, cursor = screen.split("\r\n")
    assert cursor == ""
    return lines


def test_top_fills_a_terminal_and_no_name_writes_to_it(daemon):
    daemon.write_dataset(100)
    with daemon.connect() as client:
        dataset = daemon.load(client)
        with datasetd.DataLoader(dataset, batch_size=10, framework="numpy",
                                 name="evil\x1b[31m\x1b]0;title\x07\nname"):
            lines = _top_in_terminal(daemon, 50, 200)
            (line,) = [line for line in lines if "evil" in line]
            assert r"evil\x1b[31m\x1b]0;title\x07\nname" in line
            assert not any("\x1b" in line for line in lines)
            assert lines[0].startswith("datasetd ")

            lines = _top_in_terminal(daemon, 4, 20)
            assert len(lines) == 3
            assert all(len(line) <= 20 for line in lines)
            assert lines[-1].startswith("... ")

            done = subprocess.run(
                [_CTL, "--address", daemon.socket_path, "feeds"],
                stdout=subprocess.PIPE, text=True, check=True, timeout=60)
            assert r"evil\x1b[31m" in done.stdout
            assert "\x1b" not in done.stdout


def test_top_ends_with_3_when_the_daemon_goes(daemon):
    with subprocess.Popen(
            [_CTL, "--address", daemon.socket_path, "top", "--interval",
             "0.05"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as top:
        assert top.stdout.readline().startswith(b"datasetd ")
        daemon.kill()
        _, error = top.communicate(timeout=60)
        assert top.returncode == 3
        assert error.startswith(b"datasetctl: ")


if __name__ == "__main__":
    harness.main(__file__)
