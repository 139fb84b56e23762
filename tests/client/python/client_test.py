"""Client, Dataset, and the errors that they raise."""

import pickle

import datasetd
import pytest
from conftest import NUM_SAMPLES, load, loader, run_python
from datasetd import _descriptions
from datasetd._connection import library


def test_datasets(client, dataset, data_root):
    assert dataset.num_samples == len(dataset) == NUM_SAMPLES
    assert [f.name for f in dataset.fields] == ["image", "label"]
    assert dataset.fields[0].shape == (8, 10, 3)
    assert dataset.fields[0].is_image and dataset.fields[0].dtype == "uint8"
    again = client.get_dataset("hundred")
    assert again.content_hash == dataset.content_hash
    assert "hundred" in [d["name"] for d in client.list_datasets()]
    with pytest.raises(datasetd.NotFound, match="nothing"):
        client.get_dataset("nothing")
    with pytest.raises(datasetd.NotFound, match="missing"):
        client.load_dataset("x", format="npy", path=data_root / "missing")
    with pytest.raises(datasetd.AlreadyExists, match="hundred"):
        client.load_dataset("hundred", format="npy", path=data_root / "three")
    with pytest.raises(datasetd.InvalidArgument, match="tape"):
        client.load_dataset("x", format="tape", path=data_root)
    with pytest.raises(datasetd.PermissionDenied):
        client.load_dataset("x", format="npy", path="/etc")


def test_progress_function_and_its_exception(client, data_root):
    seen = []
    load(client, data_root, progress=seen.append)
    assert seen and seen[-1]["name"] == "hundred"

    def fail(message):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(client, data_root, progress=fail)


def test_unload_with_open_feeds(client, data_root):
    dataset = client.load_dataset(
        "unloaded", format="npy", path=data_root / "hundred"
    )
    with loader(dataset, prefetch=1) as batches:
        iterator = iter(batches)
        batch = next(iterator)
        with pytest.raises(datasetd.FailedPrecondition, match="unloaded"):
            client.unload_dataset("unloaded")
        client.unload_dataset("unloaded", force=True)
        with pytest.raises(datasetd.DatasetUnloaded):
            for batch in iterator:
                pass
            # The news may come after an epoch as short as this.
            while True:
                for batch in batches:
                    pass
        assert batch.image.shape[1:] == (3, 8, 10)


def test_no_daemon(tmp_path):
    with pytest.raises(datasetd.DaemonGone, match="no daemon listens"):
        datasetd.connect(str(tmp_path / "datasetd.sock"), timeout=0.1)
    with pytest.raises(datasetd.InvalidArgument, match="tcp://"):
        datasetd.connect("tcp://127.0.0.1:80")


def test_the_version_is_the_daemons(client):
    assert client.status()["version"] == datasetd.__version__


@pytest.mark.parametrize("timeout", [-1, "soon", float("nan"), True])
def test_the_time_to_connect_is_checked(timeout):
    with pytest.raises(datasetd.InvalidArgument, match="timeout="):
        datasetd.connect("/nowhere", timeout=timeout)


_CLOSES_MEANWHILE = """
from tests.testing.processes import stop
import os, signal, sys, threading
import datasetd
with datasetd.start_local(device="cpu", data_roots=sys.argv[1]) as daemon:
    client = daemon.connect()
    stop(daemon)
    is_waiting = threading.Event()
    results = []
    def load():
        dataset = client.load_dataset(
            "hundred", format="npy", path=sys.argv[1] + "/hundred",
            progress=lambda _: is_waiting.set())
        results.append(len(dataset))
    thread = threading.Thread(target=load)
    thread.start()
    is_waiting.wait()
    client.close()
    os.kill(daemon.pid, signal.SIGCONT)
    thread.join()
    print(*results)
    try:
        client.status()
    except datasetd.Closed as error:
        print(error)
"""


def test_close_while_another_thread_is_in_a_call(data_root):
    """The call has its result, and what it works on lives until then."""
    result = run_python("-c", _CLOSES_MEANWHILE, data_root)
    assert result.stderr == "" and result.returncode == 0
    assert result.stdout == "103\nthe client is closed\n"


# -- Answers of a daemon that lies ---------------------------------------------


@pytest.mark.parametrize("kind", [
    datasetd.Error, datasetd.Internal, datasetd.NotFound,
    datasetd.PermissionDenied, datasetd.InvalidArgument,
    datasetd.LibraryNotFound,
])
def test_a_message_drives_no_terminal(kind):
    text = "a\x1b[2J\x9b1m\u202e\u2028\udcff b\nc \u00fc\u0645\u200c\u0645"
    want = (
        "a\\x1b[2J\\x9b1m\\u202e\\u2028\\udcff b\nc \u00fc\u0645\u200c\u0645"
    )
    assert str(kind(text)) == want
    assert str(pickle.loads(pickle.dumps(kind(text)))) == want


def test_an_answer_that_lacks_something():
    answer = library.parse_answer('{"dataset": {"dtype": 77}, "x": {}}')
    with pytest.raises(datasetd.Internal, match="answer has no 'layout': it"):
        answer["layout"]["fields"]
    with pytest.raises(datasetd.Internal, match="answer has no 'name': it"):
        answer["dataset"]["name"]
    assert answer.get("layout") is None
    with pytest.raises(datasetd.Internal, match="answer has DTYPE_77, which"):
        _descriptions.dtype_of(answer["dataset"])
    with pytest.raises(datasetd.Internal, match="answer has RESIDENCY_9, whi"):
        _descriptions.residency_of({"residency": 9})
