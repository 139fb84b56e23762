"""64 feeds of 8 processes at once: every index is accounted for, no feed
stands still, and equal feeds get equal shares."""

import contextlib
import os

import numpy as np

from tests.testing import daemon_harness as harness

harness.use_python_package()

_IS_FULL = os.environ.get("DATASETD_TEST_FULL") == "1"
_SECONDS = 60.0 if _IS_FULL else 10.0
_NUM_PROCESSES = 8
_FEEDS_PER_PROCESS = 8
_NUM_SAMPLES = 5000
# Between two batches of one feed, of 64 on the cores that there are. A feed
# that was forgotten would wait for ever.
_MAX_STALL_SECONDS = 3.0
# The fastest of equal feeds to the slowest.
_MAX_SHARE = 1.5

# Each feed has a thread. Every second one has the client's own order.
_JOB = """
client = datasetd.connect(ADDRESS)
ds = load(client)
N = ARGUMENTS["num_samples"]
begin, end = threading.Event(), threading.Event()
ready = threading.Barrier(ARGUMENTS["num_feeds"] + 1)
results = [None] * ARGUMENTS["num_feeds"]
planes = np.fromfile(ARGUMENTS["path"] + "/test_batch.bin", np.uint8)
planes = planes.reshape(N, -1)[:, 1:].reshape(N, 3, 32, 32)

class Order:
    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
    def __iter__(self):
        return iter(self.random.permutation(N).tolist())

def run(number):
    seed = ARGUMENTS["seed"] + number
    order = ({"sampler": Order(seed)} if number % 2 else
             {"shuffle": True, "seed": seed})
    loader = datasetd.DataLoader(ds, batch_size=50, framework="numpy",
                                 prefetch=4, **order)
    num, stall, wrong, epochs, last = 0, 0.0, [], 0, None
    is_waiting = True
    while not end.is_set():
        seen = np.zeros(N, np.int64)
        for batch in loader:
            now = time.monotonic()
            if last is not None:
                stall = max(stall, now - last)
            indices = batch.indices
            seen[indices] += 1
            if not (batch[1] == indices % 10).all():
                wrong.append("label")
            row = num % len(indices)
            if not (batch[0][row] == planes[indices[row]]).all():
                wrong.append("pixels")
            if is_waiting:
                is_waiting = False
                ready.wait()
                begin.wait()
                now = time.monotonic()
            else:
                num += 1
            last = now
            if end.is_set():
                break
        else:
            epochs += 1
            if not (seen == 1).all():
                wrong.append("an epoch that is none")
        if seen.max() > 1:
            wrong.append("a sample that came twice")
    loader.close()
    results[number] = [num, stall, epochs, wrong[:3]]

threads = [threading.Thread(target=run, args=(i,))
           for i in range(ARGUMENTS["num_feeds"])]
for thread in threads:
    thread.start()
ready.wait()
say(ready=True)
hear()
begin.set()
hear()
end.set()
for thread in threads:
    thread.join()
say(results=results)
"""


def test_64_feeds_at_once():
    with harness.Daemon(log_level="error") as daemon:
        daemon.write_dataset(_NUM_SAMPLES)
        workers = [
            harness.Worker(_JOB, daemon.socket_path, path=daemon.path,
                           num_samples=_NUM_SAMPLES, seed=100 * i,
                           num_feeds=_FEEDS_PER_PROCESS)
            for i in range(_NUM_PROCESSES)
        ]
        try:
            for worker in workers:
                worker.hear()
            for worker in workers:
                worker.tell()
            harness.pause(_SECONDS)
            for worker in workers:
                worker.tell()
            results = [result for worker in workers
                       for result in worker.hear()["results"]]
        finally:
            for worker in workers:
                worker.__exit__()
        assert daemon.is_running()
    assert len(results) == _NUM_PROCESSES * _FEEDS_PER_PROCESS
    counts = [count for count, _, _, _ in results]
    longest = max(stall for _, stall, _, _ in results)
    print(f"{len(results)} feeds, {_SECONDS:.0f} s: {sum(counts)} batches, "
          f"{min(counts)} to {max(counts)} for each, share "
          f"{max(counts) / min(counts):.3f}, longest stall {longest:.3f} s, "
          f"{sum(epochs for _, _, epochs, _ in results)} epochs")
    assert not [wrong for _, _, _, wrong in results if wrong]
    assert min(epochs for _, _, epochs, _ in results) >= 1
    assert longest < _MAX_STALL_SECONDS
    assert max(counts) / min(counts) <= _MAX_SHARE


# All begin at once. Their weights are of several messages, and the calls that
# send them more than a user may have under way.
_WEIGHTED_JOB = """
client = datasetd.connect(ADDRESS, timeout=60)
dataset = client.get_dataset("d")
weights = np.zeros(len(dataset))
weights[7::1000] = 1.0
begin = threading.Barrier(ARGUMENTS["num_feeds"])
rows = [None] * ARGUMENTS["num_feeds"]
def run(number):
    begin.wait()
    with datasetd.DataLoader(dataset, batch_size=100, weights=weights,
                             seed=number, framework="numpy") as loader:
        rows[number] = next(iter(loader)).indices.tolist()
threads = [threading.Thread(target=run, args=(i,)) for i in range(len(rows))]
say(ready=True)
hear()
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
say(rows=rows)
"""


def test_40_weighted_feeds_opened_at_once():
    with harness.Daemon() as daemon, daemon.connect() as client, \
            contextlib.ExitStack() as stack:
        client.push_dataset("d", {"x": np.arange(50_000)})
        workers = [
            stack.enter_context(harness.Worker(
                _WEIGHTED_JOB, daemon.socket_path, num_feeds=5))
            for _ in range(_NUM_PROCESSES)]
        for worker in workers:
            worker.hear()
        for worker in workers:
            worker.tell()
        for worker in workers:
            for rows in worker.hear()["rows"]:
                assert len(rows) == 100
                assert all(row % 1000 == 7 for row in rows)


if __name__ == "__main__":
    harness.main(__file__)
