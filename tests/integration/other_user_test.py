"""What a second user can do with the first one's feeds and datasets."""

import os
import shutil

import pytest

from tests.testing import attach_wire as wire
from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402

pytestmark = pytest.mark.skipif(
    os.getuid() != 0, reason="only root starts another user's process")

_NOBODY = 65534
_TRY = """
import socket, struct
sys.path.insert(0, ARGUMENTS["wire"])
import attach_wire as wire
answers = {"uid": os.getuid()}
session = wire.Session(ADDRESS)
for name, token in (("stolen", bytes.fromhex(ARGUMENTS["token"])),
                    ("own", session.token)):
    connection, packet, descriptors = wire.attach_feed(
        ADDRESS, token, ARGUMENTS["feed_id"])
    answers[name] = [wire.parse_refused(packet)[0], len(descriptors)]
client = datasetd.connect(ADDRESS)
for force in (False, True):
    try:
        client.unload_dataset("d", force=force)
        answers[str(force)] = "done"
    except datasetd.Error as error:
        answers[str(force)] = [type(error).__name__, str(error)]
with datasetd.DataLoader(client.get_dataset("d"), batch_size=50,
                         framework="numpy") as loader:
    answers["samples"] = sum(len(labels) for _, labels in loader)
say(**answers)
hear()
"""
_LOOK = """
client = datasetd.connect(ADDRESS)
def error_of(call):
    try:
        call()
    except datasetd.Error as error:
        return [type(error).__name__, str(error)]
load = {"format": "cifar10", "split": "test", "path": ARGUMENTS["path"]}
say(
    names=[d["name"] for d in client.list_datasets()],
    get=error_of(lambda: client.get_dataset("secret")),
    unload=error_of(lambda: client.unload_dataset("secret", force=True)),
    noise=error_of(lambda: client.explain(
        client.push_dataset(None, {"audio": np.ones((2, 9), np.float32)}),
        {"audio": [T.AddNoise("secret")]})),
    load=error_of(lambda: client.load_dataset("secret", **load)),
    pushed=error_of(lambda: client.push_dataset("secret", {"x": [1, 2]})),
    pin=error_of(lambda: client.load_dataset("own", pin=True, **load)),
    pin_push=error_of(
        lambda: client.push_dataset("own", {"x": [1, 2]}, pin=True)),
)
# The first user's, who is root, sees it.
client.load_dataset("own", private=True, **load)
say()
hear()
"""


@pytest.fixture
def daemon(monkeypatch):
    """A daemon that every user reaches, with a dataset and a package that he
    can read."""
    with harness.Daemon(socket_mode="0666") as daemon:
        os.chmod(daemon.directory, 0o755)
        daemon.write_dataset(100)
        shutil.copytree(harness.runfile("client/python/datasetd"),
                        os.path.join(daemon.directory, "datasetd"))
        for name in ("client/c_api/libdatasetd.so",
                     "tests/testing/attach_wire.py"):
            shutil.copy(harness.runfile(name), daemon.directory)
        monkeypatch.setenv("PYTHONPATH", daemon.directory)
        monkeypatch.setenv(
            "DATASETD_LIBRARY",
            os.path.join(daemon.directory, "libdatasetd.so"))
        yield daemon


def test_another_users_feed(daemon):
    with daemon.connect() as client, harness.Session(
            daemon.socket_path) as session:
        daemon.load(client)
        opened = session.call("FeedService.OpenFeed",
                              options={"dataset": "d", "batch_size": 10})
        feed_id = int(opened["responses"][0]["feed_id"])
        with harness.Worker(
                _TRY, daemon.socket_path, user=_NOBODY,
                feed_id=feed_id, wire=daemon.directory,
                token=session.token.hex()) as worker:
            answers = worker.hear()
        assert answers["uid"] == _NOBODY
        # PERMISSION_DENIED and NOT_FOUND, and no descriptor.
        assert answers["stolen"] == [7, 0]
        assert answers["own"] == [5, 0]
        assert answers["False"][0] == "PermissionDenied"
        assert "loaded by uid 0" in answers["False"][1]
        assert answers["True"][0] == "PermissionDenied"
        assert "user 0" in answers["True"][1]
        assert answers["samples"] == 100
        # The feed is there, and its owner's.
        with wire.RawFeed(daemon.socket_path, session.token,
                          feed_id) as feed:
            harness.poll_until(feed.published, "a batch")


def test_a_grpc_connection_that_is_passed_on_stays_its_sessions(daemon):
    """The calls of whoever has it are of the user who said HELLO."""
    with daemon.connect() as client, harness.Session(
            daemon.socket_path) as session:
        daemon.load(client, "secret", private=True)
        session.user = _NOBODY
        session.program = os.path.join(daemon.directory, "probe")
        shutil.copy(harness.runfile("tests/integration/rpc_probe"),
                    session.program)
        os.chmod(session.program, 0o755)
        answer = session.call("DatasetService.GetDataset", name="secret")
        assert answer["code"] == 0, answer
        # Not beyond the session.
        session.connection.close()
        harness.poll_until(
            lambda: session.call("DatasetService.GetDataset",
                                 name="secret")["code"] == 14,
            "the session's end")


def test_a_private_dataset_is_hidden_from_another_user(daemon):
    with daemon.connect() as client:
        daemon.load(client, "d", pin=True)
        secret = daemon.load(client, "secret", private=True)
        with harness.Worker(
                _LOOK, daemon.socket_path, user=_NOBODY,
                path=daemon.path) as worker:
            answers = worker.hear()
            assert answers["names"] == ["d"]
            for call in ("get", "unload", "noise"):
                assert answers[call][0] == "NotFound", call
            for call in ("load", "pushed"):
                assert answers[call][0] == "AlreadyExists", call
            for call in ("pin", "pin_push"):
                assert answers[call][0] == "PermissionDenied", call
                assert "may pin a dataset" in answers[call][1]
            worker.hear()
            seen = {d["name"]: d for d in client.list_datasets()}
            assert [seen[n]["is_private"] for n in ("d", "own", "secret")] == [
                False, True, True]
            assert [seen[n]["is_pinned"] for n in ("d", "own", "secret")] == [
                True, False, False]
        # Its user loads it again by the same call, and not as a public one.
        assert daemon.load(
            client, "secret", private=True).spec_id == secret.spec_id
        with pytest.raises(datasetd.FailedPrecondition,
                           match="private: dataset 'd' is loaded"):
            daemon.load(client, "d", private=True)


if __name__ == "__main__":
    harness.main(__file__)
