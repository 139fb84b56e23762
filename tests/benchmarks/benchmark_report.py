"""Writes a benchmark's numbers, with the facts that every benchmark reports.

Numbers are medians of interleaved repetitions; the load average stands beside
them, because ratios within one run survive a busy machine and times do not.
"""

import datetime
import json
import os
import platform
import statistics
import subprocess


def source_directory():
    # Set by `bazel run`.
    return os.environ.get(
        "BUILD_WORKSPACE_DIRECTORY", os.path.dirname(os.path.abspath(__file__))
    )


def _commit():
    def git(*arguments):
        return subprocess.run(
            ("git", "-C", source_directory()) + arguments,
            capture_output=True,
            text=True,
        ).stdout.strip()

    return git("rev-parse", "--short=12", "HEAD") + (
        "-dirty" if git("status", "--porcelain") else ""
    )


def _processor():
    names = set()
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("model name"):
                names.add(line.split(":", 1)[1].strip())
    return ", ".join(sorted(names)) or platform.processor()


def machine():
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(
            os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1
        ),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def median(values):
    return statistics.median(values)


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Report:
    """Collects results; write() stores them as JSON and returns where."""

    def __init__(self, name, **settings):
        self.name = name
        self._document = {
            "benchmark": name,
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(
                timespec="seconds"
            ),
            "commit": _commit(),
            "machine": machine(),
            "load_average_before": os.getloadavg(),
            "settings": settings,
            "results": {},
        }
        print(f"{name}: {self._document['machine']['processor']}, ", end="")
        print(f"{os.cpu_count()} cores, commit {self._document['commit']}")

    def add(self, key, value):
        self._document["results"][key] = value

    def write(self):
        self._document["load_average_after"] = os.getloadavg()
        before, after = (
            self._document[f"load_average_{when}"][0]
            for when in ("before", "after")
        )
        print(f"load average {before:.1f} before, {after:.1f} after")
        directory = os.environ.get("DATASETD_BENCHMARK_DIR", os.getcwd())
        path = os.path.join(directory, self.name + ".json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self._document, file, indent=1)
            file.write("\n")
        print(f"written to {path}")
        return path
