"""datasetd against what a user would pick instead, on equal work.

One run, one table, one JSON file:

    bazel run //tests/benchmarks/compare
    bazel run //tests/benchmarks/compare -- --workloads W1 W10 --jobs 1 4

For each workload every peer's jobs are started, as many as the largest number
of jobs at once; then numbers and peers are measured in turns, so that a busy
machine falls on all alike: medians of the repetitions. `ratio` is datasetd's
samples/s over the peer's. CPU seconds are of the jobs that were measured, their
workers, and the daemon; `of one` is that for a sample over one job's. Time to
first batch leaves the imports out: the first job's holds the load, the second's
finds it loaded. The file also has num_batches and num_launches of the daemons.
What a peer or machine cannot do stands in the table with its reason.

    bazel run //tests/benchmarks/compare -- --before DIR --peers datasetd before

compares with another build: DIR holds its `bin/datasetd`,
`bin/libdatasetd.so` and `python/datasetd`. Each has a daemon of its own.
"""

import argparse
import contextlib
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import types

import datasetd

from tests.benchmarks import benchmark_report
from tests.benchmarks.compare import peers, plot, workloads
from tests.conformance import loader_harness as harness

JOB_DEADLINE_SECONDS = 600.0


class JobFailed(Exception):
    pass


class Job:
    """A process of job.py, told what to do line by line."""

    def __init__(self, workload, peer, directory, device, address, build):
        environment = dict(os.environ)
        path = [p for p in sys.path if p]
        if build is not None:
            path.insert(0, os.path.join(build, "python"))
            environment["DATASETD_LIBRARY"] = os.path.join(
                build, "bin", "libdatasetd.so")
        environment["PYTHONPATH"] = os.pathsep.join(path)
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.compare.job", workload,
             peer, directory, device, address],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
            env=environment, start_new_session=True)

    def tell(self, command):
        try:
            self.process.stdin.write(command.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # answer() says why it ended

    def answer(self):
        ready, _, _ = select.select(
            [self.process.stdout], [], [], JOB_DEADLINE_SECONDS)
        line = self.process.stdout.readline() if ready else b""
        if not line:
            self.close()
            self.log.seek(0)
            tail = self.log.read()[-1500:].decode(errors="replace")
            raise JobFailed(tail.strip() or "it said nothing")
        return json.loads(line)

    def close(self):
        try:
            os.killpg(self.process.pid, 9)
        except ProcessLookupError:
            pass
        self.process.wait()


def daemon_pss_mib(pid):
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file
                   if line.startswith("Pss:")) / 1024


def open_jobs(name, peer, directory, device, address, num_jobs, build=None):
    """Opens the jobs one after the other, as many as can be.

    Returns them, what they answered, and why they are not num_jobs, or None."""
    jobs = []
    answers = []
    try:
        for _ in range(num_jobs):
            jobs.append(Job(name, peer, directory, device, address, build))
        for job in jobs:
            job.answer()  # it has imported what it needs
        for job in jobs:
            job.tell("open")
            answer = job.answer()
            if "not_offered" in answer:
                raise JobFailed(answer["not_offered"])
            answers.append(answer)
    except JobFailed as error:
        for job in jobs[len(answers):]:
            job.close()
        return jobs[:len(answers)], answers, str(error)[-300:]
    return jobs, answers, None


def measure(jobs, daemon_pid, seconds):
    threads = max(1, (os.cpu_count() or 1) // len(jobs))
    for job in jobs:
        job.tell(f"take {seconds} {threads} {daemon_pid}")
    answers = [job.answer() for job in jobs]
    # Each saw it while it took; they took at once.
    daemon = statistics.mean(a["daemon_cpu_seconds"] for a in answers)
    samples = sum(a["samples"] for a in answers)
    return {
        # Of a daemon: how many batches one launch makes bounds small ones.
        **{key: sum(a[key] for a in answers)
           for key in ("num_batches", "num_launches") if key in answers[0]},
        "samples_per_second": sum(
            a["samples"] / a["seconds"] for a in answers),
        "cpu_seconds_per_million": 1e6 * (
            sum(a["cpu_seconds"] for a in answers) + daemon) / samples,
        "slowest_over_fastest": min(
            a["samples"] / a["seconds"] for a in answers) / max(
                a["samples"] / a["seconds"] for a in answers),
        "host_mib": sum(a["pss_mib"] for a in answers),
        "device_mib": sum(a["device_mib"] for a in answers),
    }


def summarise(values):
    return {key: statistics.median(value[key] for value in values)
            for key in values[0]}


_DAEMON_OF_BUILD = """
import sys, datasetd
with datasetd.start_local(device=sys.argv[1]) as daemon:
    print(daemon.address, daemon.pid, flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def daemon_of_build(build, device):
    """A daemon of another build, started by its own package."""
    environment = dict(
        os.environ, PYTHONPATH=os.path.join(build, "python"),
        DATASETD_DAEMON=os.path.join(build, "bin", "datasetd"),
        DATASETD_LIBRARY=os.path.join(build, "bin", "libdatasetd.so"))
    with subprocess.Popen(
            [sys.executable, "-c", _DAEMON_OF_BUILD, device], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=environment) as process:
        words = process.stdout.readline().split()
        if len(words) != 2:
            sys.exit(f"{build}: its daemon did not start")
        yield types.SimpleNamespace(address=words[0], pid=int(words[1]))
        process.stdin.close()


def compare(workload, directory, device, flags):
    """The rows of a workload, by number of jobs and peer."""
    rows = {num_jobs: {} for num_jobs in flags.jobs}
    # A fresh daemon, so that its first job loads.
    with contextlib.ExitStack() as stack:
        daemons = {"datasetd": stack.enter_context(
            datasetd.start_local(device=device))}
        if "pretransformed" in flags.peers:
            daemons["pretransformed"] = stack.enter_context(
                datasetd.start_local(device=device))
        if "before" in flags.peers:
            daemons["before"] = stack.enter_context(
                daemon_of_build(flags.before, device))
        opened = {}
        try:
            for peer in flags.peers:
                daemon = daemons.get(peer, daemons["datasetd"])
                jobs, answers, error = open_jobs(
                    workload.name, peer, directory, device, daemon.address,
                    max(flags.jobs), flags.before if peer == "before" else None)
                opened[peer] = jobs
                for num_jobs in flags.jobs:
                    if num_jobs > len(jobs):
                        rows[num_jobs][peer] = {"not_measured": error}
                        continue
                    rows[num_jobs][peer] = {
                        "first_batch_s": answers[0]["first_batch_s"],
                        "second_job_first_batch_s":
                            answers[1]["first_batch_s"]
                            if num_jobs > 1 else None,
                        "shape": answers[0]["shape"],
                        "dtype": answers[0]["dtype"],
                        "repetitions": [],
                    }
            shapes = {(tuple(row["shape"]), row["dtype"])
                      for group in rows.values() for row in group.values()
                      if "shape" in row}
            if len(shapes) > 1:
                sys.exit(f"{workload.name}: the peers do unequal work: "
                         f"{shapes}")
            for _ in range(flags.repetitions):
                for num_jobs, group in rows.items():
                    for peer, row in group.items():
                        if "not_measured" in row:
                            continue
                        daemon = daemons.get(peer, daemons["datasetd"])
                        result = measure(opened[peer][:num_jobs], daemon.pid,
                                         flags.seconds)
                        if peer in daemons:
                            result["host_mib"] += daemon_pss_mib(daemon.pid)
                        row["repetitions"].append(result)
        finally:
            for jobs in opened.values():
                for job in jobs:
                    job.close()
    for group in rows.values():
        for peer, row in group.items():
            if "not_measured" not in row:
                row["median"] = summarise(row["repetitions"])
    for group in rows.values():
        for peer, row in group.items():
            if "not_measured" in row:
                continue
            own = group.get("datasetd", {}).get("median")
            row["datasetd_is_times"] = own and (
                own["samples_per_second"] /
                row["median"]["samples_per_second"])
            one = rows.get(1, {}).get(peer, {}).get("median")
            row["cpu_is_times_one_jobs"] = one and (
                row["median"]["cpu_seconds_per_million"] /
                one["cpu_seconds_per_million"])
    return rows


def print_rows(workload, num_jobs, rows):
    print(f"\n{workload.name}, {num_jobs} "
          f"{'job' if num_jobs == 1 else 'jobs at once'}: {workload.title}, "
          f"batch {workload.batch_size}")
    print(f"  {'':14} {'samples/s':>11} {'min..max':>19} {'ratio':>7} "
          f"{'CPU s/M':>8} {'of one':>6} {'host MiB':>9} {'dev MiB':>8} "
          f"{'first s':>8} "
          f"{'second s':>8}")
    for peer, row in rows.items():
        if "not_measured" in row:
            lines = row["not_measured"].strip().splitlines() or ["?"]
            print(f"  {peer:14} not measured: {lines[-1][:90]}")
            continue
        rates = [r["samples_per_second"] for r in row["repetitions"]]
        span = f"{min(rates):.0f}..{max(rates):.0f}"
        m = row["median"]
        ratio = row["datasetd_is_times"]
        cpu = row["cpu_is_times_one_jobs"]
        second = row["second_job_first_batch_s"]
        print(f"  {peer:14} {m['samples_per_second']:11.0f} {span:>19} "
              f"{'' if ratio is None else format(ratio, '.2f'):>7} "
              f"{m['cpu_seconds_per_million']:8.1f} "
              f"{'' if cpu is None else format(cpu, '.2f'):>6} "
              f"{m['host_mib']:9.0f} "
              f"{m['device_mib']:8.0f} {row['first_batch_s']:8.2f} "
              f"{'' if second is None else format(second, '.2f'):>8}")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--workloads", nargs="*",
                        default=list(workloads.WORKLOADS),
                        choices=list(workloads.WORKLOADS))
    parser.add_argument("--peers", nargs="*", default=list(peers.PEERS),
                        choices=peers.PEERS + ("before",))
    parser.add_argument("--before", metavar="DIR", type=os.path.abspath,
                        help="another build, for the peer 'before'")
    parser.add_argument("--jobs", nargs="*", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=3.0,
                        help="of one measurement of one peer")
    parser.add_argument("--repetitions", type=int, default=3)
    flags = parser.parse_args()
    if "before" in flags.peers and flags.before is None:
        parser.error("the peer 'before' needs --before DIR")
    if flags.device != "cpu":
        harness.require_device(flags.device)
    report = benchmark_report.Report("compare", **vars(flags))
    import torch

    print(f"torch {torch.__version__}, device {flags.device}")
    groups = []
    for name in flags.workloads:
        workload = workloads.WORKLOADS[name]
        with tempfile.TemporaryDirectory(prefix="ddc") as directory:
            workload.write(directory)
            compared = compare(workload, directory, flags.device, flags)
            for num_jobs, rows in compared.items():
                print_rows(workload, num_jobs, rows)
                groups.append({"workload": name, "title": workload.title,
                               "batch_size": workload.batch_size,
                               "jobs": num_jobs, "rows": rows})
                report.add("groups", groups)
    path = report.write()
    plot.draw(path)


if __name__ == "__main__":
    main()
