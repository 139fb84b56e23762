"""A second user can do nothing to the first one's feeds."""

import os
import shutil

import pytest

from tests.testing import attach_wire as wire
from tests.testing import daemon_harness as harness

harness.use_python_package()

_NOBODY = 65534
_TRY = """
import socket, struct
sys.path.insert(0, ARGUMENTS["wire"])
import attach_wire as wire
answers = {"uid": os.getuid()}
session = wire.Session(ARGUMENTS["attach"])
for name, token in (("stolen", bytes.fromhex(ARGUMENTS["token"])),
                    ("own", session.token)):
    connection, packet, descriptors = wire.attach_feed(
        ARGUMENTS["attach"], token, ARGUMENTS["feed_id"])
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


@pytest.mark.skipif(os.getuid() != 0, reason="only root starts another user's "
                    "process")
def test_another_users_feed():
    with harness.Daemon(socket_mode="0666") as daemon:
        os.chmod(daemon.directory, 0o755)
        path = os.path.join(daemon.data_root, "d")
        harness.write_cifar10_test(path, 100)
        # Where that user can read them.
        shutil.copytree(harness.runfile("client/python/datasetd"),
                        os.path.join(daemon.directory, "datasetd"))
        for name in ("client/c_api/libdatasetd.so",
                     "tests/testing/attach_wire.py"):
            shutil.copy(harness.runfile(name), daemon.directory)
        environment = dict(os.environ)
        os.environ["PYTHONPATH"] = daemon.directory
        os.environ["DATASETD_LIBRARY"] = os.path.join(
            daemon.directory, "libdatasetd.so")
        try:
            with daemon.connect() as client, harness.Rpc(
                    daemon.socket_path) as rpc, wire.Session(
                        daemon.attach_path) as session:
                client.load_dataset("d", format="cifar10", split="test",
                                    path=path)
                opened = rpc.call(
                    "FeedService.OpenFeed", session.token,
                    options={"dataset": "d", "batch_size": 10})
                feed_id = int(opened["responses"][0]["feed_id"])
                with harness.Worker(
                        _TRY, daemon.socket_path, user=_NOBODY,
                        attach=daemon.attach_path, feed_id=feed_id,
                        wire=daemon.directory,
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
                with wire.RawFeed(daemon.attach_path, session.token,
                                  feed_id) as feed:
                    harness.poll_until(feed.published, "a batch")
        finally:
            os.environ.clear()
            os.environ.update(environment)


if __name__ == "__main__":
    harness.main(__file__)
