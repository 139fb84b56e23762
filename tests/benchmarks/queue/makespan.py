"""The makespan of a queue of training jobs, such as a sweep over learning rates.

    bazel run //tests/benchmarks/queue
    bazel run //tests/benchmarks/queue -- --at_once 1 4 --jobs 8 --workload W1

A queue of jobs is worked off on one machine, some of them at once, with each
peer in turn: datasetd (one resident copy for all jobs), a DataLoader of each
job's own, and a resident copy of each job's own. Each job is a process of its
own that imports torch, opens its loader and trains a small model; nothing is
left out of the times. Printed are medians of the repetitions:

  makespan   seconds from the start of the first job to the end of the last
  CPU        CPU seconds of all jobs, their workers and the daemon
  memory     most memory of all of them at one time, shared pages counted once
  in loader  share of the jobs' time that was spent waiting for a batch
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import datasetd

from tests.benchmarks import benchmark_report
from tests.benchmarks.compare import workloads
from tests.benchmarks.compare.job import cpu_seconds, family, pss_mib
from tests.conformance import loader_harness as harness

_PEERS = ("datasetd", "dataloader-2", "resident")
_SAMPLING_SECONDS = 0.5


class JobFailed(Exception):
    pass


def _start(workload, peer, directory, address, flags, index):
    output = tempfile.TemporaryFile("w+")
    rate = 0.1 / 2 ** (index % 8)
    threads = max(1, (os.cpu_count() or 1) // flags.now_at_once)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.queue.job", workload.name, peer,
         directory, flags.device, address, str(flags.epochs), str(rate),
         str(threads)],
        stdout=output, stderr=subprocess.PIPE, text=True,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path))))
    return process, output, time.monotonic()


def _finish(process, output, started, usage):
    error = process.stderr.read()
    process.stderr.close()
    if process.returncode != 0:
        raise JobFailed(error[-1000:])
    output.seek(0)
    answer = json.loads(output.read())
    output.close()
    if "not_offered" in answer:
        raise JobFailed(answer["not_offered"])
    answer["seconds"] = time.monotonic() - started
    answer["cpu_seconds"] = usage.ru_utime + usage.ru_stime
    return answer


def work_off(workload, peer, directory, flags):
    """Works one queue off; returns its numbers."""
    with contextlib.ExitStack() as stack:
        begin, address, daemon_pids = time.monotonic(), "none", []
        if peer == "datasetd":
            # A fresh daemon, whose start and load count.
            daemon = stack.enter_context(
                datasetd.start_local(device=flags.device))
            address, daemon_pids = daemon.address, [daemon.pid]
        running, done, num_started, peak = {}, [], 0, 0.0
        stack.callback(lambda: [p.kill() for p, _, _ in running.values()])
        while len(done) < flags.jobs:
            while num_started < flags.jobs and len(running) < flags.now_at_once:
                job = _start(workload, peer, directory, address, flags,
                             num_started)
                running[job[0].pid] = job
                num_started += 1
            peak = max(peak, pss_mib({*family()[1:], *daemon_pids}))
            sampled, num_done = time.monotonic() + _SAMPLING_SECONDS, len(done)
            while time.monotonic() < sampled and len(done) == num_done:
                time.sleep(0.01)
                for pid in list(running):
                    ended, status, usage = os.wait4(pid, os.WNOHANG)
                    if ended:
                        process, output, started = running.pop(pid)
                        process.returncode = os.waitstatus_to_exitcode(status)
                        done.append(_finish(process, output, started, usage))
        makespan = time.monotonic() - begin
        cpu = sum(answer["cpu_seconds"] for answer in done)
        return {
            "makespan_seconds": makespan,
            "cpu_seconds": cpu + cpu_seconds(daemon_pids),
            "peak_mib": peak,
            "share_in_loader": sum(a["waited_seconds"] for a in done)
            / sum(a["seconds"] for a in done),
            "samples": sum(a["samples"] for a in done),
        }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--workload", default="W1",
                        choices=list(workloads.WORKLOADS))
    parser.add_argument("--peers", nargs="*", default=list(_PEERS))
    parser.add_argument("--jobs", type=int, default=8,
                        help="jobs in the queue")
    parser.add_argument("--at_once", nargs="*", type=int, default=[1, 2, 4, 8],
                        help="jobs that run at the same time")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repetitions", type=int, default=1)
    flags = parser.parse_args()
    if flags.device != "cpu":
        harness.require_device(flags.device)
    report = benchmark_report.Report("queue", **vars(flags))
    workload = workloads.WORKLOADS[flags.workload]
    print(f"{flags.jobs} jobs of {flags.epochs} epochs: {workload.title}, "
          f"batch {workload.batch_size}")
    rows = []
    with tempfile.TemporaryDirectory(prefix="ddq") as directory:
        workload.write(directory)
        for flags.now_at_once in flags.at_once:
            results = {peer: [] for peer in flags.peers}
            for _ in range(flags.repetitions):
                for peer in flags.peers:
                    try:
                        results[peer].append(
                            work_off(workload, peer, directory, flags))
                    except JobFailed as error:
                        print(f"  {peer}: not measured: {error}")
            print(f"\n{flags.now_at_once} at once"
                  f"\n  {'':14} {'makespan s':>10} {'CPU s':>8} "
                  f"{'memory MiB':>10} {'in loader':>9} {'ratio':>6}")
            for peer, values in results.items():
                if not values:
                    continue
                row = {key: statistics.median(v[key] for v in values)
                       for key in values[0]}
                row.update(peer=peer, at_once=flags.now_at_once,
                           repetitions=values)
                rows.append(row)
                own = next((r for r in rows if r["peer"] == "datasetd" and
                            r["at_once"] == flags.now_at_once), None)
                row["datasetd_is_times"] = own and (
                    row["makespan_seconds"] / own["makespan_seconds"])
                ratio = row["datasetd_is_times"]
                print(f"  {peer:14} {row['makespan_seconds']:10.1f} "
                      f"{row['cpu_seconds']:8.1f} {row['peak_mib']:10.0f} "
                      f"{row['share_in_loader']:9.1%} "
                      f"{'' if ratio is None else format(ratio, '.2f'):>6}",
                      flush=True)
            report.add("rows", rows)
    report.write()


if __name__ == "__main__":
    main()
