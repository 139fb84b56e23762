"""The daemon's life: start, readiness, reload, drain, exit codes; and a
dataset's: loads that meet, loads that nobody wants any more, unloads."""

import concurrent.futures
import contextlib
import os
import re
import signal
import struct
import subprocess
import time

import pytest

from tests.testing import attach_wire as wire
from tests.testing import daemon_harness as harness

harness.use_python_package()

import datasetd  # noqa: E402

_IS_FULL = os.environ.get("DATASETD_TEST_FULL") == "1"
_UNAVAILABLE = 14
# A GOODBYE with the code kDraining, without its reason.
_DRAINING = wire.header(wire.GOODBYE) + struct.pack("<I", 1)
_NUM_SAMPLES = 1000
# Loads for long enough that others meet it.
_NUM_LARGE = 100000

_LOAD = """
client = datasetd.connect(ADDRESS)
say(ready=True)
hear()
seen = []
ds = client.load_dataset(
    "large", format="cifar10", split="test", path=ARGUMENTS["path"],
    pretransforms=[T.CenterCrop(31)],
    progress=lambda d: seen.append(d.get("state")) or (
        len(seen) == 1 and say(loading=True)))
say(spec_id=ds.spec_id, hash=ds.content_hash, samples=ds.num_samples)
hear()
"""

_LOADS = """
client = datasetd.connect(ADDRESS)
begin = threading.Barrier(ARGUMENTS["num"])
answers = []
def load_one():
    begin.wait()
    ds = load(client)
    answers.append((ds.spec_id, ds.content_hash, len(ds)))
for _ in range(2):
    say(ready=True)
    hear()
    threads = [threading.Thread(target=load_one)
               for _ in range(ARGUMENTS["num"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    say(num=len(answers), distinct=sorted(set(answers)))
hear()
"""


def _run(*arguments, **more):
    return subprocess.run(
        [harness.runfile("server/datasetd"), *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        timeout=harness.DEADLINE_SECONDS, **more)


@pytest.fixture(name="daemon")
def _daemon():
    # No test waits for it, on a slow machine either.
    with harness.Daemon(drain_timeout="60s") as daemon:
        daemon.write_dataset(_NUM_SAMPLES)
        yield daemon


# -- The process -----------------------------------------------------------------


def test_sigterm_drains_and_exits_with_0(daemon):
    def health():
        return subprocess.run(
            [harness.runfile("client/ctl/datasetctl"), "--address",
             daemon.socket_path, "status"], capture_output=True,
            timeout=60).returncode

    with daemon.connect() as client:
        dataset = daemon.load(client)
        assert health() == 0
        loader = datasetd.DataLoader(dataset, batch_size=10, prefetch=2,
                                     framework="numpy", timeout=30)
        iterator = iter(loader)
        kept = next(iterator)
        session = harness.Session(daemon.socket_path)
        daemon.terminate()
        with pytest.raises(datasetd.DaemonDraining) as raised:
            while True:
                for batch in iterator:
                    del batch
                iterator = iter(loader)
        assert "shutting down" in str(raised.value)
        # The kept batch keeps the lease, so the daemon is still there.
        assert health() == 3
        for method, request in {
                "FeedService.OpenFeed": {
                    "options": {"dataset": "d", "batch_size": 1}},
                "DatasetService.GetDataset": {"name": "d"},
                "DatasetService.LoadDataset": {"spec": {
                    "name": "d", "format": "cifar10", "path": daemon.path}},
        }.items():
            answer = session.call(method, **request)
            assert answer["code"] == _UNAVAILABLE, answer
            assert "shutting down" in answer["message"]
        status = session.call("ServerService.GetStatus")
        assert status["responses"][0]["is_draining"] is True
        with pytest.raises(datasetd.DaemonDraining):
            datasetd.DataLoader(dataset, batch_size=10, framework="numpy")
        with pytest.raises(datasetd.DaemonDraining) as raised:
            datasetd.connect(daemon.socket_path, timeout=0)
        assert "shutting down" in str(raised.value)
        lease, answer, _ = wire.attach_feed(
            daemon.socket_path, session.token, 1)
        lease.close()
        assert answer.startswith(_DRAINING), answer
        assert (kept[0] == daemon.planes[:10]).all()
        loader.close()
        del kept
        assert daemon.wait() == 0
        session.close()
    assert not os.path.exists(daemon.socket_path)
    assert not os.path.exists(daemon.socket_path)
    assert "drain_timeout" not in daemon.log()


def test_connect_waits_for_the_daemon_after_one_that_drains(daemon):
    with daemon.connect() as client, wire.Session(
            daemon.socket_path) as session, (
            concurrent.futures.ThreadPoolExecutor(1)) as pool:
        dataset = daemon.load(client)
        loader = datasetd.DataLoader(dataset, batch_size=10,
                                     framework="numpy")
        kept = next(iter(loader))
        daemon.terminate()
        # From then on new sessions are refused.
        assert session.connection.recv(512).startswith(_DRAINING)
        connecting = pool.submit(
            datasetd.connect, daemon.socket_path, harness.DEADLINE_SECONDS)
        harness.poll_until(
            lambda: "ABORTED: the daemon is" in daemon.log(), "a refusal")
        loader.close()
        del kept
        assert daemon.wait() == 0
        daemon.start()
        with connecting.result() as connected:
            assert connected.status()["pid"] == daemon.pid


def test_drain_does_not_wait_longer_than_drain_timeout():
    with harness.Daemon(drain_timeout="1s") as daemon:
        daemon.write_dataset(100)
        with daemon.connect() as client:
            dataset = daemon.load(client)
            loader = datasetd.DataLoader(dataset, batch_size=10,
                                         framework="numpy")
            kept = next(iter(loader))
            began = time.monotonic()
            daemon.terminate()
            # It waited, and not for the batch that is kept.
            assert daemon.wait() == 0
            assert time.monotonic() - began >= 0.9
            assert "drain_timeout passed" in daemon.log()
            assert (kept[0] == daemon.planes[:10]).all()
            loader.close()


def test_sigint_is_sigterm_and_an_idle_daemon_ends_at_once(daemon):
    daemon.terminate(signal.SIGINT)
    assert daemon.wait() == 0
    assert "drain_timeout" not in daemon.log()


def test_an_idle_daemon_has_few_threads():
    with harness.Daemon(host_threads=2) as daemon:
        with daemon.connect() as client:
            client.status()
        harness.poll_until(lambda: daemon.num_threads() <= 20,
                           "at most 20 threads")


def test_a_second_daemon_on_the_same_socket_is_refused(daemon):
    result = _run(f"--socket_path={daemon.socket_path}", "--device=cpu")
    assert result.returncode == 1
    assert f"another datasetd serves {daemon.socket_path}" in result.stderr
    with daemon.connect() as client:
        assert client.status()["pid"] == daemon.pid


@pytest.mark.parametrize("text, expected", [
    ("socket_pth: /tmp/x.sock", ("socket_pth", "1")),
    ("devices: [cpu]\nlog_levels:\n  attach: debug\nmemory: 3",
     ("memory", "4")),
    ("devices: [tpu]", ("devices[0]", "tpu")),
    ("socket_path: relative.sock", ("socket_path", "absolute")),
    ("log_level: loud", ("log_level", "loud")),
    ("log_levels: {kernel: debug}", ("log_levels", "kernel")),
    ("drain_timeout: -1s", ("drain_timeout",)),
    ("datasets: [{name: 'a b', format: cifar10, path: /x}]",
     ("datasets[0].name", "a b")),
    ("devices: [cpu", ("line",)),
    ("max_feeds: lots", ("max_feeds", "lots")),
])
def test_bad_configuration_exits_with_2(tmp_path, text, expected):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    for more in ([], ["--check_config"]):
        result = _run(f"--config={path}", *more)
        assert result.returncode == 2, result
        for part in expected:
            assert part in result.stderr, result.stderr


def test_flags(tmp_path, daemon):
    assert _run("--bad_flag").returncode == 2
    assert _run(f"--config={tmp_path}/none").returncode == 2
    assert _run(f"--config={tmp_path}/none").stderr.count("none") == 1
    result = _run("--version")
    assert result.returncode == 0
    assert re.fullmatch(r"datasetd \d+\.\d+\.\d+\S*\n", result.stdout)
    # It touches no socket.
    result = _run(f"--config={daemon.config_path}", "--check_config")
    assert (result.returncode, result.stderr) == (0, "")
    with daemon.connect() as client:
        assert client.status()["version"] in _run("--version").stdout


def test_cuda_without_a_gpu_exits_with_1(tmp_path):
    environment = dict(os.environ, CUDA_VISIBLE_DEVICES="")
    result = _run(f"--socket_path={tmp_path}/d.sock", "--device=cuda:0",
                  env=environment)
    assert result.returncode == 1
    assert "cuda:0" in result.stderr
    assert not os.path.exists(f"{tmp_path}/d.sock")


def test_a_configured_dataset_that_fails_exits_with_1():
    with harness.Daemon() as first:
        bad = os.path.join(first.data_root, "label")
        os.makedirs(bad)
        with open(os.path.join(bad, "test_batch.bin"), "wb") as file:
            file.write(b"\x0b" + bytes(3072))
        roots = [first.data_root]
        for path, text in ((bad, "label is 11"),
                           (first.data_root + "/none", "no such file")):
            with harness.Daemon(
                    await_ready=False, data_roots=roots,
                    datasets=[{"name": "x", "format": "cifar10",
                               "split": "test", "path": path}]) as daemon:
                assert daemon.wait(20) == 1
                assert "'x'" in daemon.log() and text in daemon.log()
                assert not os.path.exists(daemon.socket_path)


def test_ready_after_the_configured_datasets_are(daemon):
    path = os.path.join(daemon.data_root, "large")
    harness.write_cifar10_test(path, 20000)
    with harness.Daemon(
            data_roots=[daemon.data_root],
            datasets=[{"name": "large", "format": "cifar10", "split": "test",
                       "path": path}]) as second:
        # The constructor waited for READY=1.
        with second.connect() as client:
            states = [d["state"] for d in client.list_datasets()]
            assert states == ["DATASET_STATE_READY"]
            assert client.get_dataset("large").num_samples == 20000
        second.terminate()
        second.await_notice("STOPPING=1")
        assert second.wait(10) == 0


def test_the_log_has_no_line_per_batch():
    with harness.Daemon(log_level="trace") as daemon:
        daemon.write_dataset(100)
        with daemon.connect() as client:
            dataset = daemon.load(client)
            with datasetd.DataLoader(dataset, batch_size=1,
                                     framework="numpy") as loader:
                before = daemon.log().count("\n")
                for _ in range(20):
                    assert sum(1 for _ in loader) == 100
                assert daemon.log().count("\n") - before < 10


def test_sighup_reloads_log_levels(daemon):
    def reload(level):
        number = daemon.log().count("log levels reloaded")
        daemon.config["log_levels"] = {"attach": level}
        daemon.write_config()
        daemon.terminate(signal.SIGHUP)
        harness.poll_until(
            lambda: daemon.log().count("log levels reloaded") == number + 1,
            "the reload")

    def violate():
        with wire.connect(daemon.socket_path) as connection:
            connection.send(b"garbage")
            assert connection.recv(1) == b""
        return daemon.log().count("violation")

    assert violate() == 1
    reload("off")
    assert violate() == 1
    reload("warn")
    assert violate() == 2
    daemon.config["log_level"] = "loud"
    daemon.write_config()
    daemon.terminate(signal.SIGHUP)
    harness.poll_until(
        lambda: "configuration not reloaded" in daemon.log(), "the complaint")
    assert violate() == 3


def test_exit_with_parent():
    with harness.Daemon() as outer:
        source = """
import subprocess
process = subprocess.Popen([ARGUMENTS["program"], "--exit_with_parent",
                            "--socket_path=" + ARGUMENTS["path"],
                            "--device=cpu"])
say(pid=process.pid)
hear()
"""
        path = os.path.join(outer.directory, "sub")
        os.mkdir(path)
        path += "/d.sock"
        with harness.Worker(source, outer.socket_path, path=path,
                            program=harness.runfile("server/datasetd")
                            ) as worker:
            pid = worker.hear()["pid"]
            harness.poll_until(lambda: os.path.exists(path), "its socket")
            # It connects only when it serves.
            harness.poll_until(lambda: _is_up(path), "its service")
            worker.kill()
            worker.wait()
            harness.poll_until(lambda: not os.path.exists(path), "its end")
            harness.await_end(pid)


def test_a_parent_that_is_gone_before_the_start():
    gone = subprocess.Popen(["true"])
    gone.wait()
    with harness.Daemon() as outer:
        ended = subprocess.run(
            [harness.runfile("server/datasetd"),
             f"--exit_with_parent={gone.pid}", "--device=cpu",
             f"--socket_path={outer.directory}/never.sock"],
            timeout=harness.DEADLINE_SECONDS, capture_output=True, text=True,
            check=True)
        assert "the parent process has ended" in ended.stderr + ended.stdout
        assert not os.path.exists(f"{outer.directory}/never.sock")


def _is_up(path):
    try:
        datasetd.connect(path).close()
        return True
    except datasetd.Error:
        return False


def test_a_closed_log_does_not_end_the_daemon():
    with harness.Daemon() as outer:
        directory = os.path.join(outer.directory, "sub")
        os.mkdir(directory)
        path = os.path.join(directory, "d.sock")
        read_end, write_end = os.pipe()
        process = subprocess.Popen(
            [harness.runfile("server/datasetd"), "--device=cpu",
             f"--socket_path={path}"], stdout=write_end, stderr=write_end)
        os.close(write_end)
        try:
            harness.poll_until(lambda: _is_up(path), "its service")
            os.close(read_end)
            for _ in range(3):
                with wire.connect(path) as connection:
                    connection.send(b"garbage")
                    assert connection.recv(1) == b""
            assert _is_up(path)
        finally:
            process.terminate()
            assert process.wait(20) == 0


# -- Datasets ------------------------------------------------------------------


def test_unload_with_open_feeds(daemon):
    with daemon.connect() as client:
        dataset = daemon.load(client)
        loader = datasetd.DataLoader(dataset, batch_size=10, prefetch=2,
                                     framework="numpy", timeout=30)
        iterator = iter(loader)
        kept = next(iterator)
        with pytest.raises(datasetd.FailedPrecondition) as raised:
            client.unload_dataset("d")
        assert "'d'" in str(raised.value) and "1 open feeds" in str(
            raised.value)
        assert next(iterator).index == 1
        client.unload_dataset("d", force=True)
        # Beside one under way, a new iterator would open a feed of its own.
        del iterator
        # Epoch after epoch: the goodbye comes when it comes.
        with pytest.raises(datasetd.DatasetUnloaded) as raised:
            while True:
                for batch in loader:
                    del batch
        assert "'d'" in str(raised.value)
        harness.poll_until(lambda: not client.list_datasets(), "the unload")
        assert (kept[0] == daemon.planes[:10]).all()
        # Memory is freed behind the unload.
        harness.poll_until(
            lambda: client.status()["devices"][0]["dataset_bytes"] == "0",
            "the memory")
        assert client.status()["devices"][0]["slab_bytes"] != "0"
        del kept
        loader.close()
        harness.poll_until(
            lambda: client.status()["devices"][0]["slab_bytes"] == "0",
            "the slab's end")
        with pytest.raises(datasetd.NotFound):
            datasetd.DataLoader(dataset, batch_size=10, framework="numpy")
        dataset = daemon.load(client)
        with datasetd.DataLoader(dataset, batch_size=500,
                                 framework="numpy") as again:
            assert sum(1 for _ in again) == 2


def _make_large(daemon):
    """Zeros, which take no time to make."""
    path = os.path.join(daemon.data_root, "large")
    os.mkdir(path)
    with open(os.path.join(path, "test_batch.bin"), "wb") as file:
        file.truncate(_NUM_LARGE * harness.CIFAR_RECORD_BYTES)
    return path


def test_two_loads_of_one_spec_are_one(daemon):
    path = _make_large(daemon)
    with harness.Worker(_LOAD, daemon.socket_path, path=path) as first, \
            harness.Worker(_LOAD, daemon.socket_path, path=path) as second, \
            daemon.connect() as client:
        for worker in (first, second):
            worker.hear()
        for worker in (first, second):
            worker.tell()
        answers = []
        for worker in (first, second):
            message = worker.hear()
            answers.append(
                worker.hear() if "loading" in message else message)
        assert answers[0] == answers[1]
        assert answers[0]["samples"] == _NUM_LARGE
        assert daemon.log().count("dataset=large loading") == 1
        assert daemon.log().count("dataset=large ready") == 1
        datasets = client.list_datasets()
        assert [d["num_holders"] for d in datasets] == [2]
        resident = int(datasets[0]["resident_bytes"])
        assert int(client.status()["devices"][0]["dataset_bytes"]) == resident


def test_many_loads_of_one_spec_are_one():
    num_workers, num_loads = 4, 250 if _IS_FULL else 25
    # Those that the user may not make yet wait in the daemon.
    limits = {"max_calls": 32, "max_loads": 32}
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(harness.Daemon(user_limits=limits))
        daemon.write_dataset(_NUM_SAMPLES)
        workers = [
            stack.enter_context(harness.Worker(
                _LOADS, daemon.socket_path, path=daemon.path, num=num_loads))
            for _ in range(num_workers)]
        # While there is none, and again when it is ready.
        for number in (1, 2):
            for worker in workers:
                worker.hear()
            for worker in workers:
                worker.tell()
            answers = [worker.hear() for worker in workers]
            assert [a["num"] for a in answers] == (
                num_workers * [number * num_loads])
            distinct = {tuple(one) for a in answers for one in a["distinct"]}
            assert len(distinct) == 1, distinct
        assert daemon.log().count("dataset=d loading") == 1
        assert daemon.log().count("dataset=d ready") == 1
        with daemon.connect() as client:
            (dataset,) = client.list_datasets()
        assert dataset["num_holders"] == num_workers
        assert distinct == {(dataset["spec_id"], dataset["content_hash"],
                             _NUM_SAMPLES)}


def test_a_load_ends_with_the_last_process_that_wants_it(daemon):
    path = _make_large(daemon)
    with daemon.connect() as client:
        before = harness.Footprint(daemon, client)
        with harness.Worker(_LOAD, daemon.socket_path, path=path) as worker:
            worker.hear()
            worker.tell()
            harness.poll_until(
                lambda: [d["state"] for d in client.list_datasets()] ==
                ["DATASET_STATE_LOADING"], "the load")
            worker.kill()
            worker.wait()
        harness.poll_until(lambda: not client.list_datasets(), "no dataset")
        harness.expect_footprint(daemon, client, before)
        assert "dataset=large ready" not in daemon.log()


def test_a_load_outlives_one_of_two_that_want_it(daemon):
    path = _make_large(daemon)
    with harness.Worker(_LOAD, daemon.socket_path, path=path) as first, \
            harness.Worker(_LOAD, daemon.socket_path, path=path) as second, \
            daemon.connect() as client:
        for worker in (first, second):
            worker.hear()
            worker.tell()
        harness.poll_until(
            lambda: [d["num_holders"] for d in client.list_datasets()] == [2],
            "two holders")
        first.kill()
        message = second.hear()
        if "loading" in message:
            message = second.hear()
        assert message["samples"] == _NUM_LARGE
        harness.poll_until(
            lambda: [d["num_holders"] for d in client.list_datasets()] == [1],
            "one holder")


def test_ctrl_c_in_a_load_cancels_it(daemon):
    path = _make_large(daemon)
    with daemon.connect() as client:
        def interrupt(_):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            client.load_dataset(
                "large", format="cifar10", split="test", path=path,
                pretransforms=[datasetd.transforms.CenterCrop(31)],
                progress=interrupt)
        harness.poll_until(lambda: not client.list_datasets(), "no dataset")
        assert daemon.load(client).num_samples == 1000


if __name__ == "__main__":
    harness.main(__file__)
