"""Measures a batch's cost to the producer thread: CPU time and launches.

The thread's CPU time, of /proc/PID/task/*/schedstat, divided by the batches
that were published meanwhile. On the host backend the kernels run on other
threads; what the producer spends is the order's indices, the ring, and handing
the work to these threads, where a GPU's producer launches a kernel.
"""

import argparse
import os
import tempfile
import threading
import time

import datasetd
from datasetd import transforms as T

from tests.benchmarks import benchmark_report
from tests.conformance import loader_harness as harness


def threads_of(pid):
    """{thread name: CPU seconds}, threads of one name together."""
    result = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/comm", encoding="utf-8") as file:
            name = file.read().strip()
        with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as file:
            seconds = int(file.read().split()[0]) / 1e9
        result[name] = result.get(name, 0) + seconds
    return result


def measure(daemon, dataset, num_feeds, batch_size, seconds):
    stop = threading.Event()
    barrier = threading.Barrier(num_feeds + 1)

    def consume(seed):
        with datasetd.DataLoader(
            dataset,
            batch_size=batch_size,
            shuffle=True,
            seed=seed,
            drop_last=True,
            framework="dlpack",
            transforms=[
                T.RandomCrop(32, 4),
                T.RandomHorizontalFlip(),
                T.ToDtype("float16", scale=True),
                T.Normalize((0.49, 0.48, 0.45), (0.25, 0.24, 0.26)),
            ],
        ) as loader:
            barrier.wait()
            while not stop.is_set():
                for _ in loader:
                    if stop.is_set():
                        break
            barrier.wait()  # counters are read
            barrier.wait()

    consumers = [
        threading.Thread(target=consume, args=(seed,))
        for seed in range(num_feeds)
    ]
    for consumer in consumers:
        consumer.start()
    barrier.wait()
    before = threads_of(daemon.process.pid)
    feeds_before = daemon.client.list_feeds()
    start = time.perf_counter()
    time.sleep(seconds)
    after = threads_of(daemon.process.pid)
    feeds = daemon.client.list_feeds()
    elapsed = time.perf_counter() - start
    stop.set()
    barrier.wait()
    barrier.wait()
    for consumer in consumers:
        consumer.join()

    def total(key):
        return sum(int(f[key]) for f in feeds) - sum(
            int(f[key]) for f in feeds_before
        )

    batches = total("num_batches")
    cpu = {name: after[name] - before.get(name, 0) for name in after}
    return {
        "feeds": num_feeds,
        "batch_size": batch_size,
        "batches": batches,
        "launches_per_batch": total("num_launches") / batches,
        "producer_us_per_batch": cpu["producer"] * 1e6 / batches,
        "daemon_us_per_batch": sum(cpu.values()) * 1e6 / batches,
        "batches_per_second": batches / elapsed,
        "cpu_seconds_by_thread": {k: v for k, v in cpu.items() if v > 0},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--feeds", type=int, nargs="*", default=[1, 8])
    parser.add_argument("--batch_sizes", type=int, nargs="*", default=[1, 512])
    flags = parser.parse_args()
    report = benchmark_report.Report("producer_cost", **vars(flags))
    n = 50000
    results = {}
    with tempfile.TemporaryDirectory() as directory, harness.Daemon(
        "cpu"
    ) as daemon:
        path = harness.write_npy(
            directory,
            image=harness.images(n, (32, 32, 3)),
            label=harness.labels(n),
        )
        dataset = daemon.load(path)
        for _ in range(flags.repetitions):
            for batch_size in flags.batch_sizes:
                for num_feeds in flags.feeds:
                    results.setdefault((num_feeds, batch_size), []).append(
                        measure(
                            daemon,
                            dataset,
                            num_feeds,
                            batch_size,
                            flags.seconds,
                        )
                    )
    keys = (
        "launches_per_batch",
        "producer_us_per_batch",
        "daemon_us_per_batch",
        "batches_per_second",
    )
    print(f"{'feeds':>5} {'batch':>6}" + "".join(f" {k:>22}" for k in keys))
    for (num_feeds, batch_size), rows in results.items():
        medians = {
            key: benchmark_report.median([row[key] for row in rows])
            for key in keys
        }
        print(
            f"{num_feeds:5} {batch_size:6}"
            + "".join(f" {medians[key]:22.3f}" for key in keys)
        )
        report.add(
            f"feeds={num_feeds} batch_size={batch_size}",
            {"median": medians, "repetitions": rows},
        )
    report.write()


if __name__ == "__main__":
    main()
