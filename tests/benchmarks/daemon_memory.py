"""Memory of the daemon's process: 8 feeds on CIFAR-10, host backend.

PSS counts what is the daemon's alone in full and what it shares with clients
(the slabs) by its part; the clients here are other processes, so the whole of
the slabs is added back and the number is an upper bound.
"""

import argparse
import multiprocessing
import os
import tempfile

import datasetd
import numpy as np
from datasetd import transforms as T

from tests.benchmarks import benchmark_report
from tests.conformance import loader_harness as harness

TARGET_MIB = 64


def smaps(pid):
    """{name of a mapping: [PSS bytes, RSS bytes]}."""
    result = {}
    name = ""
    with open(f"/proc/{pid}/smaps", encoding="utf-8") as file:
        for line in file:
            words = line.split()
            if not words[0].endswith(":"):
                name = words[5] if len(words) > 5 else "anonymous"
            elif words[0] in ("Pss:", "Rss:"):
                sums = result.setdefault(name, [0, 0])
                sums[words[0] == "Rss:"] += int(words[1]) * 1024
    return result


def train(address, seed, batch_size, num_batches, ready, finish):
    """A client process: some batches, then it holds its feed."""
    with datasetd.connect(address) as client:
        dataset = client.get_dataset("cifar10")
        with datasetd.DataLoader(
            dataset,
            batch_size=batch_size,
            shuffle=True,
            seed=seed,
            framework="numpy",
            transforms=[
                T.RandomCrop(32, 4),
                T.RandomHorizontalFlip(),
                T.ToDtype("float16", scale=True),
                T.Normalize((0.49, 0.48, 0.45), (0.25, 0.24, 0.26)),
            ],
        ) as loader:
            taken = 0
            while taken < num_batches:
                for batch in loader:
                    assert batch[0][-1].any()
                    taken += 1
            del batch
            ready.wait()
            finish.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--feeds", type=int, default=8)
    parser.add_argument("--batch_size", type=int, default=512)
    parser.add_argument("--batches", type=int, default=200)
    flags = parser.parse_args()
    report = benchmark_report.Report("daemon_memory", **vars(flags))
    n = 50000
    with tempfile.TemporaryDirectory() as directory, harness.Daemon(
        "cpu"
    ) as daemon:
        path = harness.write_cifar10(
            directory, harness.images(n, (32, 32, 3)), np.arange(n) % 10
        )
        daemon.load(path, format="cifar10", name="cifar10")
        context = multiprocessing.get_context("spawn")
        ready = context.Barrier(flags.feeds + 1)
        finish = context.Event()
        clients = [
            context.Process(
                target=train,
                args=(
                    daemon.process.address,
                    seed,
                    flags.batch_size,
                    flags.batches,
                    ready,
                    finish,
                ),
            )
            for seed in range(flags.feeds)
        ]
        for client in clients:
            client.start()
        ready.wait()
        device = daemon.client.status()["devices"][0]
        feeds = daemon.client.list_feeds()
        maps = smaps(daemon.process.pid)
        finish.set()
        for client in clients:
            client.join()
        assert all(client.exitcode == 0 for client in clients)
    assert len(feeds) == flags.feeds

    dataset_bytes = int(device["dataset_bytes"])
    slab_bytes = int(device["slab_bytes"])
    pss = sum(pss for pss, _ in maps.values())
    rss = sum(rss for _, rss in maps.values())
    # As if the clients had not mapped the slabs.
    shared = sum(
        rss - pss for name, (pss, rss) in maps.items() if "memfd" in name
    )
    rest = pss + shared - dataset_bytes - slab_bytes
    mib = 2**20
    for name, value in (
        ("dataset", dataset_bytes),
        ("slabs", slab_bytes),
        ("PSS", pss),
        ("PSS with the whole slabs", pss + shared),
        ("RSS", rss),
        ("beyond dataset and slabs", rest),
    ):
        print(f"{name:26} {value / mib:9.1f} MiB")
        report.add(name.replace(" ", "_") + "_bytes", value)
    print(f"target: at most {TARGET_MIB} MiB beyond dataset and slabs")
    largest = sorted(maps.items(), key=lambda item: -item[1][0])[:12]
    for name, (part, _) in largest:
        print(f"    {part / mib:9.1f} MiB  {os.path.basename(name)}")
    report.add("largest_mappings_pss_bytes", {k: v[0] for k, v in largest})
    report.write()


if __name__ == "__main__":
    main()
