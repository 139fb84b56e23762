"""The metrics: valid, and true, while a dataset loads, while clients draw from
it, when they break rules, and afterwards."""

import os
import re
import socket
import subprocess
import urllib.error
import urllib.request

import pytest

from tests.testing import daemon_harness as harness
from tests.testing import ports

harness.use_python_package()

import datasetd  # noqa: E402

_JOB = """
client = datasetd.connect(ADDRESS)
loader = datasetd.DataLoader(client.get_dataset("a"), batch_size=10,
                             framework="numpy", prefetch=2)
for _ in range(ARGUMENTS["epochs"]):
    for _ in loader:
        pass
say(done=True)
hear()
"""


# Sends half of its samples, and the others when it is told.
_PUSHER = """
client = datasetd.connect(ADDRESS)
class Held:
    def __len__(self):
        return 1000
    def __iter__(self):
        for i in range(1000):
            if i == 500:
                say(is_held=True)
                hear()
            yield np.full(50_000, i % 256, np.uint8)
client.push_dataset("big", Held())
say(done=True)
hear()
"""
_PUSHED_BYTES = 1000 * 50_000


class _Page:
    """One scrape."""

    def __init__(self, port):
        url = f"http://127.0.0.1:{port}/metrics"
        with urllib.request.urlopen(url, timeout=30) as answer:
            self.text = answer.read().decode()
        self.values = {}
        for line in self.text.splitlines():
            if not line.startswith("#"):
                series, value = line.rsplit(" ", 1)
                self.values[series] = float(value)

    def get(self, name, **labels):
        """The sum over all series that have these labels."""
        found = [value for series, value in self.values.items()
                 if series.split("{")[0] == name and all(
                     f'{key}="{value}"' in series
                     for key, value in labels.items())]
        assert found, f"no {name} {labels} in:\n{self.text}"
        return sum(found)

    def has(self, name):
        return any(series.split("{")[0] == name for series in self.values)

    def check(self):
        """By Prometheus' own rules."""
        done = subprocess.run(["promtool", "check", "metrics"],
                              input=self.text, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60)
        assert done.returncode == 0 and done.stdout == "", done.stdout


@pytest.fixture(name="port")
def _port():
    return ports.free_port()


@pytest.fixture(name="daemon")
def _daemon(port):
    with harness.Daemon(metrics_port=port) as daemon:
        yield daemon


def _load(daemon, num_samples=100, name="a"):
    daemon.write_dataset(num_samples, name)
    client = daemon.connect()
    return client, daemon.load(client, name)


def test_it_is_on_the_loopback_device_only(daemon, port):
    # "0100007F" is 127.0.0.1.
    with open(f"/proc/{daemon.pid}/net/tcp") as table:
        listening = [line.split()[1] for line in table
                     if line.split()[3] == "0A"]
    assert [address for address in listening
            if address.endswith(f":{port:04X}")] == [f"0100007F:{port:04X}"]
    with open(f"/proc/{daemon.pid}/net/tcp6") as table:
        assert not any(f":{port:04X} " in line for line in table)


def test_there_is_no_endpoint_unless_it_is_asked_for():
    with harness.Daemon() as daemon:
        inodes = {re.sub(r"\D", "", target)
                  for target in daemon.descriptor_targets()
                  if target.startswith("socket:")}
        with open(f"/proc/{daemon.pid}/net/tcp") as table:
            assert not any(line.split()[9] in inodes for line in table)


def test_a_taken_port_is_a_failure_that_names_it():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with harness.Daemon(await_ready=False, metrics_port=port) as daemon:
            assert daemon.wait() == 1
            assert f"cannot listen on 127.0.0.1:{port}" in daemon.log()


def test_a_fresh_daemon(daemon, port):
    page = _Page(port)
    page.check()
    assert page.get("datasetd_build_info") == 1
    assert page.get("datasetd_start_time_seconds") > 1.6e9
    assert page.get("datasetd_draining") == 0
    assert page.get("datasetd_sessions") == 0
    assert page.get("datasetd_datasets") == 0
    assert page.get("datasetd_feeds") == 0
    assert page.get("datasetd_device_budget_bytes", device="cpu") == 1024 << 20
    assert page.get("datasetd_device_used_bytes", device="cpu") == 0
    assert page.get("datasetd_hand_over_seconds_count", device="cpu") == 0


def test_a_load_is_seen_while_it_runs(daemon, port):
    with harness.Worker(_PUSHER, daemon.socket_path) as pusher:
        # The samples sent so far are loaded, and no others.
        assert pusher.hear()["is_held"]
        pages = []

        def ratios():
            return [page.get("datasetd_dataset_loaded_ratio", dataset="big")
                    for page in pages]

        def is_half_way():
            pages.append(_Page(port))
            return 0 < ratios()[-1] < 1

        harness.poll_until(is_half_way, "a load that has begun")
        page = pages[-1]
        page.check()
        assert page.get("datasetd_datasets", state="loading") == 1
        # Reserved memory counts as used from the start, loaded bytes do not.
        resident = page.get("datasetd_dataset_resident_bytes", dataset="big")
        assert resident < _PUSHED_BYTES
        assert page.get("datasetd_device_used_bytes",
                        kind="dataset") >= _PUSHED_BYTES
        assert page.get("datasetd_dataset_loaded_bytes_total") == 0
        assert page.get("datasetd_dataset_load_results_total",
                        result="ready") == 0
        pusher.tell()
        assert pusher.hear()["done"]
        pages.append(_Page(port))
        page = pages[-1]
        page.check()
        assert ratios() == sorted(ratios())
        assert ratios()[-1] == 1
        resident = page.get("datasetd_dataset_resident_bytes")
        assert resident >= _PUSHED_BYTES
        assert page.get("datasetd_datasets", state="ready") == 1
        assert page.get("datasetd_dataset_samples") == 1000
        assert page.get("datasetd_dataset_loads_total") == 1
        assert page.get("datasetd_dataset_load_results_total",
                        result="ready") == 1
        assert page.get("datasetd_dataset_loaded_bytes_total") == resident


def test_batches_are_counted_while_a_job_runs_and_after_it(daemon, port):
    client, _ = _load(daemon)
    with client:
        with harness.Worker(_JOB, daemon.socket_path, epochs=3) as job:
            assert job.hear()["done"]
            pages = []

            def is_idle():
                pages.append(_Page(port))
                return pages[-1].get(
                    "datasetd_hand_over_seconds_count") == live

            # Ten batches an epoch, and three ahead: the job holds the last.
            live = 33
            harness.poll_until(is_idle, "the producer to have nothing to do")
            page = pages[-1]
            page.check()
            assert page.get("datasetd_feed_batches_total", dataset="a") == live
            assert page.get("datasetd_batches_total", device="cpu") == live
            assert page.get("datasetd_feed_samples_total") == 10 * live
            assert page.get("datasetd_samples_total") == 10 * live
            assert page.get("datasetd_hand_over_seconds_count") == live
            assert page.get("datasetd_hand_over_seconds_bucket",
                            le="+Inf") == live
            assert page.get("datasetd_hand_over_seconds_sum") > 0
            assert page.get("datasetd_feed_slots") == 4
            assert page.get("datasetd_feed_held_slots") <= 4
            assert page.get("datasetd_feeds", phase="attached") == 1
            assert page.get("datasetd_dataset_feeds", dataset="a") == 1
            assert page.get("datasetd_device_used_bytes",
                            kind="slab") == page.get("datasetd_feed_slab_bytes")
            # It holds every batch that there is.
            assert page.get("datasetd_feed_client_wait_seconds_total") >= 0
            job.kill()
        harness.poll_until(
            lambda: _Page(port).get("datasetd_feeds") == 0, "the job's end")
        page = _Page(port)
        page.check()
        # The totals stay; the metrics that name the feed go.
        assert page.get("datasetd_batches_total") >= live
        assert page.get("datasetd_samples_total") == 10 * page.get(
            "datasetd_batches_total")
        assert page.get("datasetd_feeds_opened_total", device="cpu") == 1
        assert not page.has("datasetd_feed_batches_total")
        assert page.get("datasetd_device_used_bytes", kind="slab") == 0


def test_a_job_that_keeps_its_batches_makes_the_daemon_wait(daemon, port):
    client, dataset = _load(daemon)
    with client:
        with datasetd.DataLoader(dataset, batch_size=10, prefetch=1,
                                 framework="numpy") as loader:
            batches = iter(loader)
            kept = [next(batches)]
            harness.poll_until(
                lambda: _Page(port).get("datasetd_feed_held_slots") == 3,
                "all slots out")
            before = _Page(port).get("datasetd_feed_daemon_wait_seconds_total")
            del kept[:]
            next(batches)
            harness.poll_until(
                lambda: _Page(port).get(
                    "datasetd_feed_daemon_wait_seconds_total") > before,
                "the wait")


def test_refusals_and_faults_are_counted(daemon, port):
    client, dataset = _load(daemon)
    with client:
        with pytest.raises(datasetd.NotFound):
            client.get_dataset("nobody")
        with pytest.raises(datasetd.ResourceExhausted):
            datasetd.DataLoader(dataset, batch_size=1000000,
                                framework="numpy")
        page = _Page(port)
        page.check()
        assert page.get("datasetd_requests_total", code="NOT_FOUND",
                        method="DatasetService/GetDataset") == 1
        assert page.get("datasetd_requests_total", code="RESOURCE_EXHAUSTED",
                        method="FeedService/OpenFeed") == 1
        assert page.get("datasetd_requests_total", code="OK",
                        method="DatasetService/LoadDataset") == 1
        assert page.get("datasetd_protocol_violations_total") == 0

        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
            stranger.connect(daemon.socket_path)
            stranger.send(b"nonsense that is long enough")
            assert stranger.recv(100) == b""
        page = _Page(port)
        assert page.get("datasetd_protocol_violations_total") == 1

        cut = os.path.join(daemon.data_root, "cut")
        os.makedirs(cut)
        record = bytes([200]) + bytes(harness.CIFAR_RECORD_BYTES - 1)
        with open(os.path.join(cut, "test_batch.bin"), "wb") as file:
            file.write(record)  # there are ten labels
        with pytest.raises(datasetd.Error):
            client.load_dataset("cut", format="cifar10", split="test", path=cut)
        page = _Page(port)
        page.check()
        assert page.get("datasetd_dataset_load_results_total",
                        result="failed") == 1
        assert page.get("datasetd_datasets", state="failed") == 1
        # An alert takes a ratio below 1 for a load that stands still.
        assert page.get("datasetd_dataset_samples", dataset="cut") == 1
        assert [series for series in page.values if series.startswith(
            "datasetd_dataset_loaded_ratio") and "cut" in series] == []
        assert page.get("datasetd_dataset_loaded_ratio", dataset="a") == 1


def test_an_eviction_is_counted(port):
    with harness.Daemon(metrics_port=port, memory_budget_mib=8) as daemon:
        client, dataset = _load(daemon, 2000, "first")  # about 6 MB
        with client:
            dataset.close()
            assert _Page(port).get("datasetd_dataset_evictions_total") == 0
            second, _ = _load(daemon, 2000, "second")
            with second:
                page = _Page(port)
                page.check()
                assert page.get("datasetd_dataset_evictions_total") == 1
                assert page.get("datasetd_datasets", state="ready") == 1


def test_names_that_people_chose_do_not_break_the_page(daemon, port):
    client, dataset = _load(daemon)
    name = 'a "name"\\ of\ntwo lines'
    with client:
        with datasetd.DataLoader(dataset, batch_size=10, framework="numpy",
                                 name=name):
            page = _Page(port)
            page.check()
            assert r'name="a \"name\"\\ of\ntwo lines"' in page.text


def test_other_pages_are_not_there(port, daemon):
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30)
    assert error.value.code == 404
    assert daemon.is_running()


if __name__ == "__main__":
    harness.main(__file__)
