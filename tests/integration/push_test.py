"""Pushes that are killed, cancelled, refused or slow, between processes."""

import concurrent.futures
import contextlib
import os
import re
import threading

import numpy as np
import pytest

from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402

# Says when sample 300 is asked for, and then waits to be told.
_STALLING = r"""
client = datasetd.connect(ADDRESS)
def image(i):
    return b"\xff\xd8\xff" + bytes([i % 256]) * 50_000
def array(i):
    return np.full(50_000, i, np.uint8)
VALUE = {"image": image, "array": array}[ARGUMENTS["kind"]]
class Stalling:
    def __len__(self):
        return 1000
    def __iter__(self):
        for i in range(1000):
            if i == 300:
                say(stalled=True)
                hear()
            yield VALUE(i)
try:
    dataset = client.push_dataset(ARGUMENTS["name"], Stalling())
    say(num_samples=len(dataset))
except datasetd.Error as error:
    say(error=type(error).__name__, message=str(error))
hear()
"""


@pytest.fixture(name="daemon")
def _daemon():
    with harness.Daemon() as daemon:
        yield daemon


def _states(client):
    return {d["name"]: d["state"] for d in client.list_datasets()}


def _stalled(daemon, name="pushed", kind="array"):
    worker = harness.Worker(
        _STALLING, daemon.socket_path, name=name, kind=kind)
    assert worker.hear() == {"stalled": True}
    return worker


def test_a_push_that_goes_on_is_served(daemon):
    with daemon.connect() as client, _stalled(daemon) as worker:
        harness.poll_until(
            lambda: _states(client) == {"pushed": "DATASET_STATE_LOADING"},
            "loading")
        worker.tell()
        assert worker.hear() == {"num_samples": 1000}
        with client.get_dataset("pushed") as dataset:
            with datasetd.DataLoader(
                dataset, batch_size=500, framework="numpy"
            ) as loader:
                firsts = [batch.data[:, 7].tolist() for batch in loader]
        assert sum(firsts, []) == [i % 256 for i in range(1000)]


def test_a_killed_push_leaves_nothing_behind(daemon):
    with daemon.connect() as client:
        before = harness.Footprint(daemon, client)
        with _stalled(daemon) as worker:
            harness.poll_until(
                lambda: int(
                    client.status()["devices"][0]["dataset_bytes"]) > 0,
                "memory is reserved")
            worker.kill()
            worker.wait()
        harness.poll_until(lambda: _states(client) == {}, "nothing is left")
        harness.expect_footprint(daemon, client, before)


def _spools(daemon):
    """The sizes of the spools, files that only descriptors keep."""
    sizes = []
    folder = f"/proc/{daemon.pid}/fd"
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        with contextlib.suppress(FileNotFoundError):
            target = os.readlink(path)
            is_in_cache = "/cache/" in target and target.endswith("(deleted)")
            if is_in_cache or target.startswith("/memfd:datasetd-spool"):
                sizes.append(os.stat(path).st_size)
    return sizes


@pytest.mark.parametrize("has_cache", [False, True])
def test_a_killed_push_of_images_gives_its_spool_back(tmp_path, has_cache):
    cache = tmp_path / "cache"
    config = {"cache": {"directory": str(cache), "limit_mib": 100}}
    with harness.Daemon(
        push_spool_mib=20, **(config if has_cache else {})
    ) as daemon, daemon.connect() as client:
        before = harness.Footprint(daemon, client)
        assert _spools(daemon) == []
        with _stalled(daemon, kind="image") as worker:
            harness.poll_until(
                lambda: sum(_spools(daemon)) > 13_000_000, "the spool")
            if has_cache:
                assert os.listdir(cache) == ["lock"]
            # Together they would take 26 MB.
            with harness.Worker(
                _STALLING, daemon.socket_path, name="other", kind="image"
            ) as other:
                answer = other.hear()
                if "stalled" in answer:  # the refusal is on its way
                    other.tell()
                    answer = other.hear()
                assert answer["error"] == "ResourceExhausted"
                assert "raise push_spool_mib" in answer["message"]
            assert len(_spools(daemon)) == 1
            worker.kill()
            worker.wait()
        harness.poll_until(lambda: _spools(daemon) == [], "no spool")
        harness.expect_footprint(daemon, client, before)
        assert _states(client) == {}


@pytest.mark.parametrize("kind", ["image", "array"])
def test_an_unload_ends_a_push_that_waits(daemon, kind):
    with daemon.connect() as client, _stalled(daemon, kind=kind) as worker:
        harness.poll_until(lambda: "pushed" in _states(client), "loading")
        client.unload_dataset("pushed")
        harness.poll_until(lambda: _states(client) == {}, "nothing is left")
        assert _spools(daemon) == []
        worker.tell()
        answer = worker.hear()
        assert answer["error"] == "Aborted"
        assert "'pushed': it was unloaded meanwhile" in answer["message"]


def _whole(client):
    """Pushes what a stalled push sends if it goes on."""
    return client.push_dataset(
        "pushed", [np.full(50_000, i % 256, np.uint8) for i in range(1000)])


@pytest.mark.parametrize("end", ["goes on", "is killed", "is unloaded"])
def test_a_push_of_a_dataset_that_is_there_is_hashed_alone(daemon, end):
    with daemon.connect() as client:
        whole = _whole(client)
        before = harness.Footprint(daemon, client)
        with _stalled(daemon) as worker:
            after = harness.Footprint(daemon, client)
            assert after.memory == before.memory
            if end == "goes on":
                worker.tell()
                assert worker.hear() == {"num_samples": 1000}
                (listed,) = client.list_datasets()
                assert listed["spec_id"] == whole.spec_id
                assert int(listed["num_holders"]) == 2
            elif end == "is killed":
                worker.kill()
                worker.wait()
            else:
                client.unload_dataset("pushed")
                assert _states(client) == {}
                worker.tell()
                answer = worker.hear()
                assert answer["error"] == "Aborted"
                assert "it was unloaded meanwhile" in answer["message"]
        if end == "is unloaded":
            assert _whole(client).content_hash == whole.content_hash
        harness.expect_footprint(daemon, client, before)


def test_any_number_of_ranks_push_the_same(daemon):
    """More than a user may push, or call, at a time."""
    values = {"x": np.arange(300_000)}

    def push(_):
        with daemon.connect() as client:
            return client.push_dataset("ranks", values).spec_id

    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        ids = list(pool.map(push, range(40)))
    assert len(set(ids)) == 1
    with daemon.connect() as client:
        assert list(_states(client)) == ["ranks"]


def test_silent_pushes_hold_up_no_load_and_are_counted(daemon):
    harness.write_cifar10_test(daemon.data_root, 20)
    workers = [_stalled(daemon, f"p{i}") for i in range(4)]
    try:
        with daemon.connect() as client:
            harness.poll_until(lambda: len(_states(client)) == 4, "four pushes")
            with client.load_dataset(
                "cifar", format="cifar10", path=daemon.data_root, split="test"
            ) as dataset:
                assert len(dataset) == 20
            with pytest.raises(datasetd.ResourceExhausted) as caught:
                client.push_dataset("fifth", [1])
            assert re.search("pushes: 4 are under way, 4 of them of uid .*"
                             "and 4 of one user: try again",
                             str(caught.value))
            workers[0].tell()
            assert workers[0].hear() == {"num_samples": 1000}
            with client.push_dataset("fifth", [1]) as dataset:
                assert len(dataset) == 1
    finally:
        for worker in workers:
            with worker:
                pass


def test_a_push_is_cancelled_by_the_daemons_end(daemon):
    with _stalled(daemon) as worker:
        daemon.terminate()
        assert daemon.wait() == 0
        worker.tell()
        assert worker.hear()["error"] in (
            "DaemonGone", "DaemonDraining", "Aborted")


def test_several_pushes_of_one_name_make_one_dataset(daemon):
    results = []

    def push():
        with daemon.connect() as client:
            results.append(
                client.push_dataset("one", {"x": np.arange(500_000)}).spec_id)

    threads = [threading.Thread(target=push) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3 and len(set(results)) == 1
    with daemon.connect() as client:
        assert list(_states(client)) == ["one"]


def test_a_pushed_set_comes_back_and_its_job_goes_on(tmp_path_factory):
    """SIGKILL in the middle of an epoch: the samples come from the cache."""
    images = np.random.default_rng(1).integers(
        0, 256, (200, 9, 11, 3), dtype=np.uint8)
    samples = [(image, i % 7) for i, image in enumerate(images)]
    stores = tmp_path_factory.mktemp("stores")
    cache = stores / "cache"
    with harness.Daemon(
        cache={"directory": str(cache), "limit_mib": 64},
        state_directory=str(stores / "state"),
    ) as daemon, daemon.connect() as client:
        dataset = client.push_dataset("pushed", samples)
        harness.poll_until(lambda: list(cache.glob("*.cache")), "the entry")
        with datasetd.DataLoader(
            dataset, batch_size=20, shuffle=True, seed=3, framework="numpy",
            prefetch=1, reconnect=30,
        ) as loader:
            taken = []
            for batch in loader:
                assert (batch[0] == images[batch.indices].transpose(
                    0, 3, 1, 2)).all()
                assert (batch[1] == batch.indices % 7).all()
                taken += batch.indices.tolist()
                del batch
                if len(taken) == 80:
                    daemon.kill()
                    daemon.start()
        assert sorted(taken) == list(range(200))
        assert dataset.content_hash == client.get_dataset(
            "pushed").content_hash


if __name__ == "__main__":
    harness.main(__file__)
