"""Measures a ready batch's cost to the client, in C++ and in Python.

Next and release of batches from a daemon with little else to do, to torch
tensors in Python. Rounds of both are interleaved. See client_cost.cc.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
import warnings

import datasetd

from tests.benchmarks import benchmark_report
from tests.conformance import loader_harness as harness

PREFETCH = 32
BURST = 16


def program():
    return os.environ.get("DATASETD_CLIENT_COST") or harness.runfile(
        "tests/benchmarks/client_cost_native"
    )


def python_times(dataset, framework, num_bursts, pause_us):
    """As client_cost.cc, in nanoseconds.

    "control" is two torch.from_numpy after every pause: what cold caches cost
    any caller. "copied" is as "burst", but so many batches are kept that each
    is a copy.
    """
    import numpy
    import torch

    now = time.perf_counter_ns
    times = {"paced": [], "burst": [], "control": [], "copied": []}
    array = numpy.zeros((64, 3, 32, 32), numpy.uint8)
    vector = numpy.zeros(64, numpy.int64)
    num_waited = 0
    with datasetd.DataLoader(
        dataset,
        batch_size=64,
        shuffle=True,
        prefetch=PREFETCH,
        framework=framework,
    ) as loader:

        def endless():
            while True:
                yield from loader

        iterator = endless()
        for _ in range(num_bursts):
            time.sleep(pause_us / 1e6)
            start = now()
            images, labels = torch.from_numpy(array), torch.from_numpy(vector)
            del images, labels
            times["control"].append(now() - start)
        for burst in range(-10, 2 * num_bursts):
            time.sleep(pause_us / 1e6)
            is_burst = burst >= num_bursts
            for i in range(BURST if is_burst else 1):
                waited = loader.waited_seconds
                start = now()
                images, labels = next(iterator)
                del images, labels
                elapsed = now() - start
                if burst < 0 or (is_burst and i == 0):
                    continue
                if loader.waited_seconds != waited:
                    num_waited += 1
                    continue
                times["burst" if is_burst else "paced"].append(elapsed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kept = [next(iterator) for _ in range(PREFETCH)]
            for _ in range(num_bursts * 4):
                time.sleep(pause_us / 1e6)
                waited = loader.waited_seconds
                start = now()
                images, labels = next(iterator)
                del images, labels
                elapsed = now() - start
                if loader.waited_seconds == waited:
                    times["copied"].append(elapsed)
        del kept
    return times, num_waited


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bursts", type=int, default=200)
    parser.add_argument("--pause_us", type=int, default=2000)
    flags = parser.parse_args()
    report = benchmark_report.Report("client_cost", **vars(flags))
    rows = {}
    with tempfile.TemporaryDirectory() as directory, harness.Daemon(
        "cpu"
    ) as daemon:
        path = harness.write_npy(
            directory,
            image=harness.images(6400, (32, 32, 3)),
            label=harness.labels(6400),
        )
        dataset = daemon.load(path, name="client-cost")
        for _ in range(flags.rounds):
            output = subprocess.run(
                [
                    program(),
                    daemon.process.address,
                    "client-cost",
                    f"--bursts={flags.bursts}",
                    f"--pause_us={flags.pause_us}",
                ],
                check=True,
                capture_output=True,
            ).stdout
            result = json.loads(output)
            for part in ("paced", "burst"):
                for step in ("next", "release", "both"):
                    row = rows.setdefault(f"C++, {part}, {step}", [])
                    row.append(
                        (result[part][step]["p50"], result[part][step]["p99"])
                    )
            rows.setdefault("C++, clock_gettime", []).append(
                (result["clock"], result["clock"])
            )
            for framework in ("torch", "numpy"):
                times, _ = python_times(
                    dataset, framework, flags.bursts, flags.pause_us
                )
                for part, values in times.items():
                    rows.setdefault(
                        f"Python, {framework}, {part}, both", []
                    ).append(
                        (
                            benchmark_report.percentile(values, 0.5),
                            benchmark_report.percentile(values, 0.99),
                        )
                    )

    print(f"{'median of the rounds, us':32} {'p50':>9} {'p99':>9}")
    for name, values in rows.items():
        p50 = benchmark_report.median([p50 for p50, _ in values]) / 1000
        p99 = benchmark_report.median([p99 for _, p99 in values]) / 1000
        print(f"{name:32} {p50:9.2f} {p99:9.2f}")
        report.add(name, {"p50_us": p50, "p99_us": p99, "rounds_ns": values})
    report.write()


if __name__ == "__main__":
    main()
