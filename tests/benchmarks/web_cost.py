"""Measures the cost of the page: CPU time of the daemon, of a job and of the
page's server, with the page open and without, host backend.

A reader asks once a second, as the page does; the browser is left out, which is
the user's. Rounds alternate, and the medians of their differences are printed.
"""

import argparse
import time

import numpy as np

from tests.benchmarks import benchmark_report
from tests.testing import daemon_harness as harness
from tests.web.web_harness import Web, job

TARGET = 0.01


def cpu_seconds(process):
    """To the nanosecond, by the process's clock; /proc counts in 10 ms."""
    return time.clock_gettime(~process.pid << 3 | 2)


def round_of(processes, seconds, web):
    """CPU seconds per second of each process; `web` is read if it is given."""
    before = [cpu_seconds(process) for process in processes]
    start = time.monotonic()
    version = ""
    while True:
        left = start + seconds - time.monotonic()
        if left <= 0:
            break
        if web is not None:
            state = web.ask("state", window=60, datasets_version=version)
            version = state["datasets_version"]
        time.sleep(min(1.0, left))
    passed = time.monotonic() - start
    return [(cpu_seconds(process) - old) / passed
            for process, old in zip(processes, before)]


def measure(num_loaders, num_datasets, seconds, num_rounds):
    with harness.Daemon(max_datasets=num_datasets + 16,
                        log_level="warn") as daemon:
        with daemon.connect() as client:
            images = np.random.default_rng(1).integers(
                0, 256, (512, 32, 32, 3), np.uint8)
            client.push_dataset(
                "images", {"image": images, "label": np.arange(512) % 10})
            for i in range(num_datasets - 1):
                client.push_dataset(
                    f"set-{i}", {"x": np.zeros((2, 3), np.int32)}).close()
            loaders = [{"rank": i, "world_size": num_loaders, "seed": 1, "prefetch": 1,
                        "batch_size": 8} for i in range(num_loaders)]
            # Mostly idle, so that what is measured is not lost in the work.
            with job(daemon.socket_path, "images", loaders=loaders,
                     pause=0.5) as worker:
                differences = []
                for _ in range(num_rounds):
                    without = round_of([daemon, worker], seconds, None)
                    with Web(daemon.socket_path) as web:
                        web.ask("state")
                        open_page = round_of(
                            [daemon, worker, web], seconds, web)
                    differences.append([
                        open_page[0] - without[0], open_page[1] - without[1],
                        open_page[2]])
    names = ("daemon", "job", "page_server")
    return {name: benchmark_report.median(row[i] for row in differences)
            for i, name in enumerate(names)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    harness.use_python_package()
    report = benchmark_report.Report("web_cost", **vars(arguments))
    for num_loaders, num_datasets in ((1, 1), (64, 1), (64, 1000)):
        name = f"{num_loaders} loaders, {num_datasets} datasets"
        shares = measure(num_loaders, num_datasets, arguments.seconds,
                         arguments.rounds)
        report.add(name, shares)
        text = ", ".join(f"{who} {100 * share:+.2f} %"
                         for who, share in shares.items())
        verdict = "within" if shares["daemon"] < TARGET else "ABOVE"
        print(f"{name}: {text} of a core; {verdict} the daemon's 1 %",
              flush=True)
    report.write()


if __name__ == "__main__":
    main()
