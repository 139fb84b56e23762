"""Sockets that the service manager made: both planes work over them, they stay
when the daemon goes, and clients that wait in them are served by the next."""

import os
import socket

import pytest

from tests.testing import daemon_harness as harness
from tests.testing import supervisor

harness.use_python_package()


_CLIENT = """
client = datasetd.connect(ADDRESS)
ds = load(client, "a")
loader = datasetd.DataLoader(ds, batch_size=10, framework="numpy")
say(labels=[int(l) for _, labels in loader for l in labels])
"""


@pytest.fixture(name="manager")
def _manager():
    with supervisor.Supervisor() as manager:
        yield manager


def _labels(manager):
    path = os.path.join(manager.data_root, "a")
    _, labels = harness.write_cifar10_test(path, 50)
    with harness.Worker(_CLIENT, manager.socket_path, path=path) as client:
        assert client.hear()["labels"] == labels.tolist()


def test_the_socket_that_was_passed_is_served_and_left_as_it_is(manager):
    manager.listen()
    os.chmod(manager.socket_path, 0o600)
    before = os.stat(manager.socket_path)
    manager.start()
    manager.await_ready()
    _labels(manager)
    # Neither replaced nor given other rights: 0660 is the daemon's own default.
    assert os.stat(manager.socket_path).st_ino == before.st_ino
    assert os.stat(manager.socket_path).st_mode == before.st_mode
    # A child of the daemon would not take it for its own.
    with open(f"/proc/{manager.process.pid}/environ") as environ:
        assert "LISTEN_FDS=1" in environ.read()
    assert manager.stop() == 0
    assert os.stat(manager.socket_path).st_ino == before.st_ino


def test_a_client_that_came_before_the_daemon_is_served(manager):
    manager.listen()
    path = os.path.join(manager.data_root, "a")
    _, labels = harness.write_cifar10_test(path, 50)
    with harness.Worker(_CLIENT, manager.socket_path, path=path) as client:
        # It waits in the queue of the socket.
        def is_waiting():
            return _num_queued(manager.socket_path) > 0

        harness.poll_until(is_waiting, "a connection in the queue")
        manager.start()
        manager.await_ready()
        assert client.hear()["labels"] == labels.tolist()


def _num_queued(path):
    # Unix sockets that were connected and not accepted have no inode of their
    # own in /proc/net/unix.
    with open("/proc/net/unix") as table:
        return sum(1 for line in table
                   if line.rstrip().endswith(path) and line.split()[6] == "0")


def test_a_restarted_daemon_takes_the_sockets_again(manager):
    manager.listen()
    for _ in range(2):
        manager.start()
        manager.await_ready()
        _labels(manager)
        assert manager.stop() == 0


def test_sockets_for_another_process_are_not_taken(manager):
    manager.start(environment={"LISTEN_PID_OVERRIDE": "1", "LISTEN_FDS": "1"})
    manager.await_ready()
    _labels(manager)
    assert manager.stop() == 0
    assert not os.path.exists(manager.socket_path)


def _ends_with_2(manager, text, **keywords):
    manager.start(**keywords)
    assert manager.process.wait(harness.DEADLINE_SECONDS) == 2
    assert text in manager.log()


def test_sockets_of_an_earlier_version_are_a_bad_configuration(manager):
    """One for streams beside the one for packets."""
    manager.listen()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        stream.bind(os.path.join(manager.directory, "stream.sock"))
        stream.listen()
        passed = [manager.listeners[0].fileno(), stream.fileno()]
        _ends_with_2(manager, "2 sockets were passed; expected one "
                     "ListenSequentialPacket=", descriptors=passed)
        _ends_with_2(manager, "stream.sock is not one of packets; expected one",
                     descriptors=passed[1:])


def test_what_is_no_listening_path_is_a_bad_configuration(manager):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as internet:
        internet.bind(("127.0.0.1", 0))
        internet.listen()
        _ends_with_2(manager, "does not listen on a path",
                     descriptors=[internet.fileno()])
    with open(os.devnull) as file:
        _ends_with_2(manager, "is no socket", descriptors=[file.fileno()])


def test_other_paths_than_the_configuration_names_are_refused(manager):
    manager.listen()
    other = os.path.join(manager.directory, "other.sock")
    manager.config["socket_path"] = other
    _ends_with_2(manager,
                 f"socket_path is {other}, but the service manager passed ")


if __name__ == "__main__":
    harness.main(__file__)
