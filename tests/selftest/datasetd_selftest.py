#!/usr/bin/env python3
"""Tests and measures this release on this machine.

With a GPU every CUDA test must run, and what it skips counts as failed;
without one the same runs on the host backend. Prints a table last, and writes
all results as JSON. Needs Python 3.9; uses NumPy, torch and torchvision where
they are installed. What cannot run says why.
"""

import argparse
import ctypes
import datetime
import importlib.util
import json
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PARTS = ROOT / "libexec" / "datasetd"
PART_SECONDS = 8 * 60.0
# Kept for the report.
RESERVE_SECONDS = 15.0

# Name, seconds it may take.
BINARIES = [
    ("augment_parity_test", 150), ("cuda_backend_test", 120),
    ("host_backend_test", 60), ("backends_test", 30), ("status_test", 30),
    ("augment_test", 150), ("permutation_test", 60), ("random_test", 60),
    ("rounding_test", 60), ("kernels_cuda_test", 200),
    ("driver_contract_test", 60),
]
# Tests of tests/integration/data_loader, for pytest; reference_test holds the
# parity with torchvision.
LOADER_TESTS = [
    ("reference_test", 240), ("determinism_test", 90), ("epochs_test", 90),
    ("pretransforms_test", 90), ("resume_test", 90),
]
# A test of tests/parity; it needs the same packages and a GPU.
PARITY_TEST = ("kernel_parity_test", 200)
LOADER_PACKAGES = ("pytest", "numpy", "torch", "torchvision")
# Programs in C++ that need a GPU, and scripts; seconds each may take.
CUDA_PROBES = [("cuda_probe", 120), ("kernel_probe", 60),
               ("trainer_probe", 30)]
# The parts of the probes that run with --no_timing.
UNTIMED_PARTS = {
    "cuda_probe": ["machine", "free", "release"],
    "kill_probe": [], "sharing_probe": [],
}
PROBES = [
    ("kill_probe", ["probes.py", "kill_probe"], 60),
    ("sharing_probe", ["sharing_probe.py"], 60),
    ("step_probe", ["probes.py", "step_probe"], 120),
    ("mps_step_probe", ["probes.py", "mps_step_probe"], 120),
]
DIRECT_PROBE_SECONDS = 420
LEFT_OUT_READERS = "none: every reader of this version is in the daemon"


def find_gpu():
    """None if there is a GPU, else why not."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"no CUDA driver: {error}"
    code = driver.cuInit(0)
    if code != 0:
        return f"cuInit failed with {code}"
    count = ctypes.c_int()
    code = driver.cuDeviceGetCount(ctypes.byref(count))
    if code != 0 or count.value == 0:
        return f"no CUDA device (cuDeviceGetCount: {code}, {count.value})"
    return None


def run_text(*command):
    try:
        return subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            timeout=30, check=True).stdout.decode("utf-8", "replace").strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def describe_machine():
    model = ""
    try:
        with open("/proc/cpuinfo") as file:
            found = re.search(r"^model name\s*: (.*)$", file.read(), re.M)
            model = found.group(1) if found else ""
    except OSError:
        pass
    packages = {}
    for name in ("numpy", "torch", "torchvision"):
        code = f"import {name}; print({name}.__version__)"
        packages[name] = (run_text(sys.executable, "-c", code)
                          if importlib.util.find_spec(name) else "")
    return {
        "host": platform.node(), "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()), "cpu": model,
        "num_cpus": len(os.sched_getaffinity(0)),
        "python": platform.python_version(), "packages": packages,
        "gpu": run_text("nvidia-smi", "--format=csv,noheader",
                        "--query-gpu=name,driver_version,memory.total"),
    }


class Part:
    """The steps of one of tests, probes and bench, with its deadline."""

    def __init__(self, name, device, environment):
        self.name = name
        self.device = device
        self.environment = environment
        self.end = time.monotonic() + PART_SECONDS - RESERVE_SECONDS
        self.steps = []

    def run(self, name, command, seconds, environment=None):
        """Runs a step; returns its dict, with `output` and `code`."""
        step = {"name": name, "part": self.name,
                "command": [str(word) for word in command]}
        self.steps.append(step)
        left = min(seconds, self.end - time.monotonic())
        if left <= 0:
            step.update(result="not run", why="the part's time is up",
                        output="", code=None)
            return step
        print(f"... {name}", file=sys.stderr, flush=True)
        start = time.monotonic()
        with tempfile.TemporaryFile() as log:
            try:
                process = subprocess.Popen(
                    step["command"], stdin=subprocess.DEVNULL, stdout=log,
                    stderr=subprocess.STDOUT, start_new_session=True,
                    env={**self.environment, **(environment or {})})
            except OSError as error:
                step.update(result="FAILED", why=str(error), output="",
                            code=None)
                return step
            try:
                step["code"] = process.wait(left)
            except subprocess.TimeoutExpired:
                step["code"] = None
            finally:
                # Kills the processes that it started, too.
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()
            log.seek(0)
            step["output"] = log.read().decode("utf-8", "replace")
        step["seconds"] = round(time.monotonic() - start, 2)
        if step["code"] is None:
            step.update(result="FAILED", why=f"not done in {left:.0f} s")
        elif step["code"] != 0:
            step.update(result="FAILED", why=f"ended with {step['code']}")
        else:
            step.update(result="ok", why="")
        return step


def judge(step, num_run, num_skipped, why_skipped, may_skip):
    step.update(num_run=num_run, num_skipped=num_skipped)
    if step["result"] != "ok":
        return
    if num_run + num_skipped == 0:
        step.update(result="FAILED", why="it ran no test")
    elif num_skipped and not may_skip:
        step.update(result="FAILED",
                    why=f"{num_skipped} skipped: {why_skipped}")
    elif num_skipped:
        step.update(result="ok" if num_run else "skipped",
                    why=f"{num_skipped} skipped: {why_skipped}")


def run_tests(part, no_gpu):
    for name, seconds in BINARIES:
        binary = PARTS / name
        if not binary.exists():
            part.steps.append({
                "name": name, "part": "tests",
                "result": "left out" if no_gpu else "FAILED",
                "why": "this release was built without the CUDA toolkit"})
            continue
        step = part.run(name, [binary], seconds)
        skipped = len(set(re.findall(r"^\[  SKIPPED \] (\S+) \(",
                                     step["output"], re.M)))
        passed = len(re.findall(r"^\[       OK \] ", step["output"], re.M))
        judge(step, passed, skipped, no_gpu, may_skip=bool(no_gpu))
    step = part.run(
        "system_test", [sys.executable, PARTS / "system_test.py", part.device],
        400)
    skipped = re.findall(r"\.\.\. skipped '(.*)'$", step["output"], re.M)
    num_run = re.search(r"^Ran (\d+) tests?", step["output"], re.M)
    judge(step, (int(num_run.group(1)) if num_run else 0) - len(skipped),
          len(skipped), "; ".join(sorted(set(skipped))),
          may_skip=bool(no_gpu))

    missing = [name for name in LOADER_PACKAGES
               if importlib.util.find_spec(name) is None]
    why = f"this Python has no {', '.join(missing)}" if missing else ""
    for name, seconds in LOADER_TESTS:
        run_pytest(part, f"integration/data_loader/{name}", seconds, why,
                   no_gpu)
    name, seconds = PARITY_TEST
    run_pytest(part, f"parity/{name}", seconds, no_gpu or why, no_gpu)


def run_pytest(part, name, seconds, why_left_out, no_gpu):
    """Runs a file of tests/, or says why not."""
    _, _, step_name = name.rpartition("/")
    if why_left_out:
        part.steps.append({"name": step_name, "part": "tests",
                           "result": "left out", "why": why_left_out})
        return
    step = part.run(
        step_name, [sys.executable, "-m", "pytest", "-q", "-rs", "-p",
                    "no:cacheprovider", PARTS / f"tests/{name}.py"],
        seconds, {
            "PYTHONPATH": f"{part.environment['PYTHONPATH']}:{PARTS}",
            "APPLY_OPS": str(PARTS / "apply_ops"),
            "APPLY_OPS_KERNELS": str(PARTS / "apply_ops_cuda")})
    judge(step, count(r"(\d+) passed", step["output"]),
          count(r"(\d+) skipped", step["output"]),
          "; ".join(sorted(set(re.findall(
              r"^SKIPPED \[\d+\] \S+ (.*)$", step["output"], re.M)))),
          may_skip=bool(no_gpu))


def count(pattern, text):
    found = re.findall(pattern, text)
    return int(found[-1]) if found else 0


def read_json(step):
    """The last line of the output, as JSON; {} if it is none."""
    for line in reversed(step["output"].splitlines()):
        try:
            value = json.loads(line)
            return value if isinstance(value, dict) else {}
        except ValueError:
            continue
    return {}


def why_not(step):
    return {"not_measured": f"{step['why']}: {step['output'][-2000:]}"}


def run_probes(part, no_gpu, is_timed=True):
    answers = {}
    left_out = {"not_measured": "left out by --no_timing"}
    for name, seconds in CUDA_PROBES:
        binary = PARTS / name
        if not is_timed and name not in UNTIMED_PARTS:
            answers[name] = left_out
        elif no_gpu:
            answers[name] = {"not_measured": no_gpu}
        elif not binary.exists():
            answers[name] = {
                "not_measured": "this release was built without the toolkit"}
        else:
            parts = [] if is_timed else UNTIMED_PARTS[name]
            step = part.run(name, [binary, *parts], seconds)
            answers[name] = read_json(step) or why_not(step)
    for name, (script, *arguments), seconds in PROBES:
        if not is_timed and name not in UNTIMED_PARTS:
            answers[name] = left_out
            continue
        step = part.run(name, [sys.executable, PARTS / script, *arguments,
                               part.device], seconds)
        answers[name] = read_json(step) or why_not(step)
    return answers


# Questions that only a GPU can answer: a name, the question, and where its
# answer is: the keys of a probe, or the names of steps.
QUESTIONS = [
    ("kernels", "Do the kernels give the host's bits?",
     ["augment_parity_test", "kernels_cuda_test", "kernel_parity_test",
      "reference_test", "determinism_test"]),
    ("start", "How long, and how much memory, until they are ready?",
     ("cuda_probe", "start")),
    ("kill", "What do a client's kernels see when the daemon is killed?",
     ("kill_probe",)),
    ("release", "Can a stream write to the ring's page, and how soon?",
     ("cuda_probe", "release")),
    ("streams", "Is a batch kept until a side stream has read it?",
     ["system_test"]),
    ("capture", "Do the client's calls leave a graph's capture valid?",
     ["driver_contract_test"]),
    ("trainer", "How long does a launch wait for a busy trainer, and what "
     "does the trainer lose?", ("trainer_probe",)),
    ("bandwidth", "How much of the memory's bandwidth do the kernels use?",
     ("kernel_probe",)),
    ("free", "Does giving memory back wait for running work?",
     ("cuda_probe", "free")),
    ("sharing", "Which users and PID namespaces can open a slab?",
     ("sharing_probe",)),
    ("sizes", "Is memory of an absurd size refused as exhausted?",
     ["cuda_backend_test"]),
    ("open", "How long does opening a slab take?",
     ("cuda_probe", "slab_open")),
    ("read_only", "Is a copy to a read-only mapping of a slab refused?",
     ["driver_contract_test"]),
]


def answer_question(report, source):
    """(answer, ""), or (None, why there is none)."""
    if isinstance(source, list):
        results = {step["name"]: step["result"] for step in report["steps"]
                   if step["name"] in source}
        if "ok" in results.values():
            return results, ""
        return None, "; ".join(
            f"{step['name']}: {step['result']}: {step['why']}"
            for step in report["steps"]
            if step["name"] in source) or "the tests were not asked for"
    answer = report.get("probes")
    if answer is None:
        return None, "the probes were not asked for"
    for key in source:
        if "not_measured" in answer:
            break
        if key not in answer:
            return None, f"{source[0]} was not asked for it"
        answer = answer[key]
    if "not_measured" in answer:
        return None, answer["not_measured"]
    return answer, ""


def answer_questions(report):
    rows = []
    for name, question, source in QUESTIONS:
        answer, why = answer_question(report, source)
        rows.append({"name": name, "question": question, "answer": answer,
                     "why_not": why})
    return rows


def print_questions(rows):
    print()
    for row in rows:
        told = (f"not answered: {row['why_not'][:90]}"
                if row["answer"] is None else json.dumps(row["answer"])[:200])
        print(f"{row['name']}: {row['question']} {told}")


def run_compare(part):
    """Against what else there is; tests/benchmarks/compare."""
    missing = [name for name in ("numpy", "torch", "torchvision", "PIL")
               if importlib.util.find_spec(name) is None]
    if missing:
        return {"not_measured": f"this Python has no {', '.join(missing)}"}
    with tempfile.TemporaryDirectory(prefix="dd") as directory:
        step = part.run(
            "compare", [sys.executable, "-m",
                        "tests.benchmarks.compare.compare", "--device",
                        part.device, "--workloads", "W1", "W10", "--jobs", "1",
                        "4", "--peers", "datasetd", "dataloader-8", "resident",
                        "batch", "--seconds", "1.5"], 300,
            {"PYTHONPATH": f"{part.environment['PYTHONPATH']}:{PARTS}",
             "DATASETD_BENCHMARK_DIR": directory})
        try:
            with open(os.path.join(directory, "compare.json")) as file:
                return json.load(file)
        except OSError:
            return why_not(step)


def run_direct_probe(part, no_gpu):
    """The answers so far, also of a probe that is cut."""
    if no_gpu:
        return {"not_measured": no_gpu}
    if not (PARTS / "direct_plan").exists():
        return {"not_measured": "this release was built without the toolkit"}
    with tempfile.TemporaryDirectory(prefix="dd") as directory:
        answers = os.path.join(directory, "direct.json")
        step = part.run("direct_probe", [
            sys.executable, PARTS / "direct_probe.py", part.device, answers],
            DIRECT_PROBE_SECONDS,
            {"PYTHONPATH": f"{part.environment['PYTHONPATH']}:{PARTS}"})
        try:
            with open(answers) as file:
                return json.load(file)
        except OSError:
            return why_not(step)


def run_bench(part):
    rows = []
    for jobs in (1, 4):
        step = part.run(f"bench_{jobs}_jobs", [
            sys.executable, PARTS / "bench.py", part.device, str(jobs)], 120)
        rows += read_json(step).get("rows", [])
    return rows


def named_direct(report):
    """The parts of direct_probe, by names that tell whose they are."""
    answers = report.get("direct_probe", {})
    if "not_measured" in answers:
        return {"direct_probe": answers}
    return {f"direct_probe.{name}": answer for name, answer in answers.items()}


def print_table(report):
    lines = [("step", "result", "seconds", "what")]
    for step in report["steps"]:
        what = step["why"]
        if "num_run" in step:
            what = f"{step['num_run']} ran" + (f"; {what}" if what else "")
        lines.append((f"{step['part']}/{step['name']}", step["result"],
                      f"{step.get('seconds', 0):.1f}", what))
    widths = [max(len(line[i]) for line in lines) for i in range(3)]
    print()
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in
                        zip(line[:3], widths)) + "  " + line[3][:100])
    for row in report.get("bench", []):
        print(f"bench {row['workload']:<28} jobs {row['jobs']}  "
              f"{row['samples_per_second']:>12,.0f} samples/s  "
              f"{row['daemon_cpu_seconds_per_million']:.3f} daemon CPU s/1e6")
    compared = report.get("compare", {})
    if "not_measured" in compared:
        print(f"compare: not measured: {compared['not_measured'][:90]}")
    for group in compared.get("results", {}).get("groups", []):
        for peer, row in group["rows"].items():
            rate = row.get("median", {}).get("samples_per_second")
            print(f"compare {group['workload']:<4} jobs {group['jobs']}  "
                  f"{peer:<14} " + (
                      f"{rate:>12,.0f} samples/s  datasetd is "
                      f"{row['datasetd_is_times']:.2f} times" if rate else
                      f"not measured: {row['not_measured'][-80:]}"))
    for name, answer in {**report.get("probes", {}),
                         **named_direct(report)}.items():
        if "not_measured" in answer:
            print(f"probe {name}: not measured: {answer['not_measured'][:90]}")
        else:
            print(f"probe {name}: {json.dumps(answer)[:160]}")


def main():
    parser = argparse.ArgumentParser(
        prog="datasetd-selftest", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("tests", "probes", "bench",
                                           "direct_probe"),
                        help="one part; each ends within 8 minutes. "
                        "direct_probe runs only if it is asked for: what "
                        "feeds in the trainer's process would give")
    parser.add_argument("--require_gpu", action="store_true",
                        help="fail where there is no GPU")
    parser.add_argument("--no_timing", action="store_true",
                        help="leave out the probes that only measure time")
    parser.add_argument("--json", default="datasetd-selftest.json",
                        help="where the results go (%(default)s)")
    arguments = parser.parse_args()

    no_gpu = find_gpu()
    if no_gpu and arguments.require_gpu:
        print(f"datasetd-selftest: --require_gpu, but {no_gpu}",
              file=sys.stderr)
        return 1
    device = "cpu" if no_gpu else "cuda:0"
    path = os.environ.get("PYTHONPATH", "")
    environment = dict(
        os.environ,
        PYTHONPATH=str(ROOT / "python") + (":" + path if path else ""),
        PYTHONDONTWRITEBYTECODE="1",
        DATASETD_REQUIRE_GPU="0" if no_gpu else "1")
    environment.pop("DATASETD_LIBRARY", None)
    environment["DATASETD_DAEMON"] = str(ROOT / "bin" / "datasetd")

    report = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(
            timespec="seconds"),
        "command": sys.argv,
        "version": run_text(str(ROOT / "bin" / "datasetd"), "--version"),
        "commit": (ROOT / "COMMIT").read_text().strip(),
        "machine": describe_machine(),
        "device": device,
        "no_gpu": no_gpu or "",
        "readers_left_out": LEFT_OUT_READERS,
        "steps": [],
    }
    wanted = [arguments.only] if arguments.only else [
        "tests", "probes", "bench"]
    for name in wanted:
        part = Part(name, device, environment)
        if name == "tests":
            run_tests(part, no_gpu)
        elif name == "direct_probe":
            report["direct_probe"] = run_direct_probe(part, no_gpu)
        elif name == "probes":
            report["probes"] = run_probes(part, no_gpu,
                                          not arguments.no_timing)
        else:
            report["bench"] = run_bench(part)
            report["compare"] = run_compare(part)
        report["steps"] += part.steps

    # "not run" is a failure: time was up, or a GPU's test is not there. What
    # this machine cannot run is "left out".
    failed = [step for step in report["steps"]
              if step["result"] in ("FAILED", "not run")]
    report["result"] = "FAILED" if failed else "ok"
    report["questions"] = answer_questions(report)
    with open(arguments.json, "w") as file:
        json.dump(report, file, indent=1)
    for step in failed:
        print(f"\n--- {step['name']}: {step['why']}\n"
              f"{step.get('output', '')[-6000:]}")
    print_table(report)
    print_questions(report["questions"])
    print(f"device {device}" + (f" ({no_gpu})" if no_gpu else "") +
          f": {report['result']}; {arguments.json}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
