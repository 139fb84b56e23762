"""The harness itself, with a program in place of the daemon."""

import glob
import os
import socket
import sys

import pytest

from tests.testing import daemon_harness as harness
from tests.testing import ports

# Says that it serves, and ends with $CODE when it is asked to.
_PROGRAM = f"""#!{sys.executable}
import os, signal, socket, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notices.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
signal.sigwait([signal.SIGTERM])
sys.exit(int(os.environ["CODE"]))
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    path = tmp_path / "program"
    path.write_text(_PROGRAM)
    path.chmod(0o755)
    monkeypatch.setenv("DATASETD_TEST_DAEMON", str(path))


def _run(code, end=lambda daemon: None):
    with harness.Daemon(environment={"CODE": str(code)}) as daemon:
        end(daemon)
    assert not os.path.exists(daemon.directory)
    return daemon.process.returncode


def test_another_build_ends_in_order(program):
    assert _run(0) == 0
    # Also one that does not run at the moment.
    assert _run(0, lambda daemon: daemon.stop()) == 0


def test_its_complaint_at_its_end_is_a_failure(program):
    with pytest.raises(AssertionError, match="ended with 23"):
        _run(23)


def test_a_test_that_killed_it_or_failed_hears_of_nothing_else(program):
    assert _run(23, lambda daemon: daemon.kill()) == -9
    with pytest.raises(ZeroDivisionError):
        _run(23, lambda daemon: 1 / 0)


def test_one_that_does_not_get_ready_leaves_nothing(tmp_path, monkeypatch):
    program, said = tmp_path / "program", tmp_path / "said"
    prefix = f"dd{os.getpid()}left"
    program.write_text("#!/bin/sh\necho $$ >$SAID\nexec sleep 600\n")
    program.chmod(0o755)

    def give_up(daemon, _):
        harness.poll_until(lambda: said.exists() and said.read_text(),
                           "the program runs")
        raise AssertionError("not ready")

    monkeypatch.setattr(harness.Daemon, "await_notice", give_up)
    with pytest.raises(AssertionError, match="not ready"):
        harness.Daemon(program=str(program), prefix=prefix,
                       environment={"SAID": str(said)})
    with pytest.raises(ProcessLookupError):
        os.kill(int(said.read_text()), 0)
    assert not glob.glob(f"/tmp/{prefix}*")


def test_a_port_is_its_servers_alone():
    port = ports.free_port()
    with socket.socket() as other:
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
    # Sets SO_REUSEADDR.
    with socket.create_server(("127.0.0.1", port)) as server:
        with socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()


if __name__ == "__main__":
    harness.main(__file__)
