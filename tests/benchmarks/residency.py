"""Residency "mapped" against memory, on the host: the same workloads from the
mapped file of the cache, once it is in the page cache, and from memory."""

import argparse
import json
import os
import tempfile
import time

import datasetd

from tests.benchmarks import benchmark_report
from tests.benchmarks.compare import workloads
from tests.conformance import loader_harness as harness


def start_daemon(directory):
    config = os.path.join(directory, "datasetd.yaml")
    with open(config, "w", encoding="utf-8") as file:
        json.dump(
            {"cache": {"directory": os.path.join(directory, "cache")}}, file)
    return datasetd.start_local(
        device="cpu",
        binary=harness.runfile("server/datasetd"),
        arguments=[f"--config={config}"],
    )


def samples_per_second(loader, seconds):
    """Counts whole batches, after one epoch that is not counted."""
    for _ in loader:
        pass
    count = 0
    begin = time.perf_counter()
    while True:
        for batch in loader:
            count += len(batch.indices)
            spent = time.perf_counter() - begin
            if spent >= seconds:
                return count / spent


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", default="W1,W2,W3,W4,W6,W10")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5)
    flags = parser.parse_args()
    report = benchmark_report.Report("residency", **vars(flags))
    print(f"{'':4} {'memory':>12} {'mapped':>12}  samples/s; ratio")
    with tempfile.TemporaryDirectory() as directory, start_daemon(
            directory) as daemon, daemon.connect() as client:
        for name in flags.workloads.split(","):
            workload = workloads.WORKLOADS[name]
            data = workload.arrays()
            rates = {"device": [], "mapped": []}
            loaders = {
                residency: datasetd.DataLoader(
                    client.push_dataset(f"{name}-{residency}", data,
                                        residency=residency),
                    batch_size=workload.batch_size,
                    shuffle=True,
                    seed=1,
                    transforms=workload.transforms(),
                    layout=workload.layout,
                    framework="numpy",
                )
                for residency in rates
            }
            for _ in range(flags.turns):
                for residency, loader in loaders.items():
                    rates[residency].append(
                        samples_per_second(loader, flags.seconds))
            for loader in loaders.values():
                loader.close()
            memory, mapped = map(benchmark_report.median, rates.values())
            print(f"{name:4} {memory:12,.0f} {mapped:12,.0f}  "
                  f"{mapped / memory:.2f}")
            report.add(name, rates)
            for residency in rates:
                client.unload_dataset(f"{name}-{residency}", force=True)
    report.write()


if __name__ == "__main__":
    main()
