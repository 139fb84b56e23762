"""Warnings of a daemon that logs to the journal, as a real journald keeps them.

Runs as root: journald, the daemon and the page get a mount namespace with a
/run of their own.
"""

import json
import os
import subprocess
import sys

import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()

from datasetd.web import _health  # noqa: E402

from tests.testing import attach_wire as wire  # noqa: E402
from tests.web.web_harness import Web  # noqa: E402

# Starts the daemon as systemd does, which says in the environment which of its
# descriptors lead to the journal.
_START = """#!/bin/sh
exec systemd-cat sh -c 'export JOURNAL_STREAM=$(stat -Lc %d:%i /proc/$$/fd/2)
exec {} "$@"' sh "$@"
"""
_JOURNALD = "/lib/systemd/systemd-journald"
_MACHINE_ID = "/etc/machine-id"


@pytest.mark.skipif(
    os.geteuid() != 0 or not all(
        os.path.exists(path) and os.path.getsize(path)
        for path in (_JOURNALD, _MACHINE_ID)),
    reason=f"makes a mount namespace (root); needs {_JOURNALD}, {_MACHINE_ID}")
def test_warnings_in_the_journal():
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, os.path.abspath(__file__),
         "in_namespace"], timeout=120)
    assert done.returncode == 0


def _in_namespace():
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    with open(_MACHINE_ID) as file:
        os.makedirs("/run/log/journal/" + file.read().strip())
    os.makedirs("/run/systemd/journal")
    journald = subprocess.Popen([_JOURNALD])
    try:
        harness.poll_until(
            lambda: os.path.exists("/run/systemd/journal/stdout"), "journald")
        _daemon_and_page()
    finally:
        journald.terminate()
        journald.wait()


def _daemon_and_page():
    program = os.path.join(os.environ["TEST_TMPDIR"], "logged_daemon")
    with open(program, "w") as file:
        file.write(_START.format(os.path.abspath(harness.daemon_program())))
    os.chmod(program, 0o755)
    with harness.Daemon(program=program) as daemon:
        with wire.connect(daemon.socket_path) as stranger:
            stranger.send(b"no packet of ours")
            while stranger.recv(512):
                pass
        with Web(daemon.socket_path) as web:
            log = harness.poll_until(
                lambda: _with_lines(web.ask("health")["log"]), "the warning")
            assert any("attach" in line for line in log["lines"]), log
            assert f"_PID={daemon.pid}" in log["source"]
            assert not log["error"]
        log = _as_nobody(lambda: _health.warnings(daemon.pid))
        assert log["lines"] == []
        assert "ask for the group adm or systemd-journal" in log["error"]


def _as_nobody(function):
    """The result of a function that another user calls."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        os.write(writing, json.dumps(function()).encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        return json.load(pipe)


def _with_lines(log):
    return log if log["lines"] else None


if __name__ == "__main__":
    if sys.argv[1:] == ["in_namespace"]:
        _in_namespace()
    else:
        harness.main(__file__)
