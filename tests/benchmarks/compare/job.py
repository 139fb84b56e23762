"""One job of a comparison: a process that takes a peer's batches.

    job.py WORKLOAD PEER DIRECTORY DEVICE [ADDRESS]

Says one line of JSON for each line that it reads, and once before:

    (start)   {"imported_s": ...}
    open      {"first_batch_s": ..., "shape": ...} or {"not_offered": ...}
    take S T PID  takes batches for S seconds and uses none, torch with T
                  threads: {"samples", "seconds", "cpu_seconds",
                  "daemon_cpu_seconds", "pss_mib", "device_mib"}, and of
                  a daemon's job "num_batches", "num_launches"

CPU seconds and memory include the peer's worker processes; the daemon's, PID,
stand by themselves.
"""

import json
import os
import sys
import time

_START = time.monotonic()

import torch  # noqa: E402

from tests.benchmarks.compare import peers, workloads  # noqa: E402

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Batches made ahead of the clock are no part of the rate.
_PREFETCHED_BATCHES = 64
_SETTLE_SECONDS = 0.5
_MAX_QUIET_SECONDS = 60.0


def family():
    """This process and its descendants."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    parent = int(file.read().rsplit(")", 1)[1].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(parent, []).append(int(name))
    found = [os.getpid()]
    for pid in found:
        found += children.get(pid, [])
    return found


def cpu_seconds(pids):
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
        except FileNotFoundError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS_PER_SECOND


def pss_mib(pids):
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup") as file:
                total += sum(int(line.split()[1]) for line in file
                             if line.startswith("Pss:"))
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue
    return total / 1024


class Launches:
    """What the daemon launched for this process; None of another peer."""

    def __init__(self, peer, address):
        self._client = None
        if address is not None and peer in peers.DAEMON_PEERS:
            import datasetd

            self._client = datasetd.connect(address)

    def totals(self):
        if self._client is None:
            return {}
        own = [feed for feed in self._client.list_feeds()
               if int(feed["pid"]) == os.getpid()]
        return {key: sum(int(feed[key]) for feed in own)
                for key in ("num_batches", "num_launches")}


def synchronize(device):
    if device != "cpu":
        torch.cuda.synchronize()


def await_quiet(pids):
    """Until what the workers make ahead is made: it is no part of the rate, and
    would fall on whoever is measured next."""
    deadline = time.monotonic() + _MAX_QUIET_SECONDS
    used = cpu_seconds(pids)
    while time.monotonic() < deadline:
        time.sleep(0.1)
        before, used = used, cpu_seconds(pids)
        if used - before < 0.02:
            break


def take(batches, workload, device, seconds, daemon, launches):
    settled = time.monotonic() + min(_SETTLE_SECONDS, seconds)
    for _ in range(_PREFETCHED_BATCHES):
        next(batches)
        if time.monotonic() >= settled:
            break
    synchronize(device)
    pids = family()
    launched = launches.totals()
    cpu, daemon_cpu = cpu_seconds(pids), cpu_seconds([daemon])
    start, num = time.monotonic(), 0
    while True:
        images = next(batches)[0]
        num += len(images)
        elapsed = time.monotonic() - start
        if elapsed >= seconds:
            break
    synchronize(device)
    elapsed = time.monotonic() - start
    cpu = cpu_seconds(pids) - cpu
    daemon_cpu = cpu_seconds([daemon]) - daemon_cpu
    launched = {key: value - launched[key]
                for key, value in launches.totals().items()}
    await_quiet(pids)
    return {
        **launched,
        "samples": num,
        "seconds": elapsed,
        "cpu_seconds": cpu,
        "daemon_cpu_seconds": daemon_cpu,
        "pss_mib": pss_mib(pids),
        "device_mib": 0 if device == "cpu"
        else torch.cuda.memory_reserved() / 2**20,
    }


def main():
    name, peer, directory, device = sys.argv[1:5]
    address = sys.argv[5] if len(sys.argv) > 5 else None
    workload = workloads.WORKLOADS[name]

    def say(answer):
        print(json.dumps(answer), flush=True)

    say({"imported_s": time.monotonic() - _START})
    batches = None
    launches = Launches(peer, address)
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "open":
            start = time.monotonic()
            try:
                batches = peers.open_peer(
                    peer, workload, directory, device, address)
                first = next(batches)
            except peers.NotOffered as error:
                say({"not_offered": str(error)})
                return
            synchronize(device)
            first_batch_s = time.monotonic() - start
            await_quiet(family())
            say({
                "first_batch_s": first_batch_s,
                "shape": list(first[0].shape),
                "dtype": str(first[0].dtype).replace("torch.", ""),
                "num_fields": len(first),
            })
            del first
        else:
            torch.set_num_threads(int(arguments[1]))
            say(take(batches, workload, device, float(arguments[0]),
                     int(arguments[2]), launches))


if __name__ == "__main__":
    main()
