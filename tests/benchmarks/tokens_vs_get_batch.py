"""Windows of tokens: the host backend against nanoGPT's get_batch.

Time: what a training step waits for a batch that is ready, x and y as int64
[12, block_size], against get_batch on a memmap, which makes it then; in turns.
Batches are taken eight at a time, after a pause in which the daemon fills its slots.

Memory: PSS of as many ranks as given, and of the daemon, with 1. a copy of the
stream as int64 in each rank; 2. a memmap; 3. a loader; beyond that of processes
that have imported torch and datasetd.
"""

import argparse
import multiprocessing
import os
import tempfile
import time

import datasetd
import numpy as np
import torch

from tests.benchmarks import benchmark_report
from tests.conformance import loader_harness as harness

_AT_ONCE = 8
_PAUSE_SECONDS = 0.02


class GetBatch:
    """nanoGPT's, whose data may also be an int64 array in memory."""

    def __init__(self, data, block_size, batch_size):
        self.data, self.block_size = data, block_size
        self.batch_size = batch_size

    def __next__(self):
        size, data = self.block_size, self.data
        ix = torch.randint(len(data) - size, (self.batch_size,))
        x = torch.stack(
            [torch.from_numpy(data[i : i + size].astype(np.int64)) for i in ix]
        )
        y = torch.stack(
            [
                torch.from_numpy(data[i + 1 : i + 1 + size].astype(np.int64))
                for i in ix
            ]
        )
        return x, y


def microseconds(batches, count):
    """Of `count` batches each."""
    times = []
    while len(times) < count:
        time.sleep(_PAUSE_SECONDS)
        for _ in range(_AT_ONCE):
            start = time.perf_counter_ns()
            x, y = next(batches)
            times.append((time.perf_counter_ns() - start) / 1e3)
            assert x.shape == y.shape and x.dtype == torch.int64
            del x, y
    return times


def loader(client, block_size, batch_size):
    return datasetd.DataLoader(
        client.get_dataset("tokens"), batch_size, seed=1337, prefetch=16,
        windows=datasetd.random_windows(block_size, num_windows=2**31),
    )  # fmt: skip


def pss_bytes(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        for line in file:
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    raise AssertionError("no Pss")


def be_a_rank(kind, path, address, flags, ready, finish):
    torch.set_num_threads(1)
    batch = batches = None
    if kind == "loader":
        batches = iter(
            loader(datasetd.connect(address), flags.block_size, flags.batch_size)
        )
    elif kind != "nothing":
        data = np.memmap(path, np.uint16, "r")
        if kind == "copy":
            data = data.astype(np.int64)
        batches = GetBatch(data, flags.block_size, flags.batch_size)
    if batches is not None:
        for _ in range(200):
            batch = next(batches)
    ready.wait()
    finish.wait()
    del batch


def memory(kind, path, daemon, flags):
    """PSS of all ranks, and of the daemon meanwhile."""
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(flags.ranks + 1)
    finish = context.Event()
    arguments = (kind, path, daemon.process.address, flags, ready, finish)
    ranks = [
        context.Process(target=be_a_rank, args=arguments)
        for _ in range(flags.ranks)
    ]
    for rank in ranks:
        rank.start()
    ready.wait()
    sizes = [pss_bytes(rank.pid) for rank in ranks]
    own = pss_bytes(daemon.process.pid)
    finish.set()
    for rank in ranks:
        rank.join()
    return sum(sizes), own


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=100_000_000)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--batch_size", type=int, default=12)
    parser.add_argument("--block_size", type=int, default=1024)
    parser.add_argument("--block_sizes", type=int, nargs="*", default=[64, 1024])
    parser.add_argument("--batches", type=int, default=2000)
    parser.add_argument("--repetitions", type=int, default=5)
    flags = parser.parse_args()
    torch.set_num_threads(1)
    report = benchmark_report.Report(
        "tokens_vs_get_batch", torch=torch.__version__, **vars(flags)
    )
    with tempfile.TemporaryDirectory() as directory, harness.Daemon(
        "cpu"
    ) as daemon:
        path = os.path.join(directory, "train.bin")
        np.random.default_rng(0).integers(
            0, 50257, flags.tokens, np.uint16
        ).tofile(path)
        # Kept by this process, so that an idle dataset is not evicted.
        dataset = daemon.load(path, format="tokens", name="tokens")
        data = np.memmap(path, np.uint16, "r")
        for block_size in flags.block_sizes:
            usual = GetBatch(data, block_size, flags.batch_size)
            times = {"get_batch": [], "datasetd": []}
            with loader(daemon.client, block_size, flags.batch_size) as job:
                batches = iter(job)
                for repetition in range(flags.repetitions + 1):
                    for name, source in (
                        ("get_batch", usual), ("datasetd", batches)
                    ):  # fmt: skip
                        found = microseconds(source, flags.batches)
                        if repetition:  # the first ones warm up
                            times[name].append(found)
                del batches
            for name, found in times.items():
                middles = [benchmark_report.median(one) for one in found]
                worst = [benchmark_report.percentile(one, 0.99) for one in found]
                print(
                    f"block_size {block_size:5} {name:10} p50 "
                    f"{benchmark_report.median(middles):7.1f} us "
                    f"({min(middles):.1f}..{max(middles):.1f}), p99 "
                    f"{benchmark_report.median(worst):7.1f} us"
                )
                report.add(
                    f"{name}_{block_size}",
                    {"p50_us": middles, "p99_us": worst},
                )
        nothing, idle = memory("nothing", path, daemon, flags)
        for kind in ("copy", "memmap", "loader"):
            ranks, own = memory(kind, path, daemon, flags)
            beyond = ranks - nothing
            if kind == "loader":
                beyond += own
            print(
                f"{flags.ranks} ranks, {kind:7} {beyond / 2**20:9.1f} MiB beyond "
                f"imports; daemon {own / 2**20:.1f} MiB (before {idle / 2**20:.1f})"
            )
            report.add(
                f"memory_{kind}",
                {"ranks_pss": ranks, "imports_pss": nothing, "daemon_pss": own},
            )
        dataset.close()
    report.write()


if __name__ == "__main__":
    main()
