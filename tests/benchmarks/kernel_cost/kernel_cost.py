"""Counts the cost of the CUDA kernels by executing their PTX on the host.

    bazel run //tests/benchmarks/kernel_cost [-- --ptxas] [WORKLOAD...]

Prints the tables of docs/kernel-cost.md, which says what the columns are.
--ptxas also compiles the PTX for the GPUs named there, which takes minutes, for
registers, stack, spills and size of code.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile

# Shared memory of an SM, in bytes, by architecture.
_ARCHS = {"sm_80": 164 << 10, "sm_90": 228 << 10}
_SM_REGISTERS = 65536
_SM_THREADS = 2048
_BLOCK_THREADS = {"AugmentKernel": 256, "ChainKernel": 256,
                  "SequenceKernel": 256, "StageKernel": 256}
_BLOCK_RESERVED_SHARED = 1024
_NVCC_BIN = "/usr/local/cuda/bin"


# A warp instruction of PTX is so many of machine code, and so many of these
# start in a clock on one SM: means of the workloads on an H200.
# SequenceKernel was not measured: it is taken for a ChainKernel.
_MACHINE_PER_PTX = {"AugmentKernel": 0.95, "ChainKernel": 1.14,
                    "SequenceKernel": 1.14}
_STARTS_PER_CLOCK = {"AugmentKernel": 1.5, "ChainKernel": 1.6,
                     "SequenceKernel": 1.6}


class Gpu:
    def __init__(self, name, sms, ghz, gb_per_second):
        self.name = name
        self.sms = sms
        self.ghz = ghz
        self.gb_per_second = gb_per_second

    def nanoseconds(self, cost):
        """Returns the time of a sample, with all SMs at work: by instructions
        or by memory, whichever takes longer."""
        clocks = sum(
            kernel["warp_instructions"] * _MACHINE_PER_PTX[name]
            / _STARTS_PER_CLOCK[name]
            for name, kernel in cost["kernels"].items())
        compute = clocks / cost["samples"] / self.sms / self.ghz
        num_bytes = 32 * total(cost, "global_sectors") / cost["samples"]
        # Scratch and what is read again stay in the caches: at the least what
        # is read of the sample is read once, and the result written.
        least = cost["bytes_in_per_sample"] + cost["bytes_out_per_sample"]
        memory = min(num_bytes, least) / self.gb_per_second
        return max(compute, memory)


GPUS = (
    Gpu("A100", 108, 1.41, 2039),
    Gpu("H100", 132, 1.98, 3350),
    Gpu("H200", 132, 1.98, 4800),
    Gpu("RTX 4090", 128, 2.52, 1008),
)

COLUMNS = (
    # Title, counter: per 32 output pixels.
    ("warp instr.", "warp_instructions"),
    ("sectors", "global_sectors"),
    ("needed", "global_sectors_needed"),
    ("shared waves", "shared_wavefronts"),
    ("local words", "local_words"),
    ("divisions", "divides"),
)


def total(cost, counter):
    return sum(kernel[counter] for kernel in cost["kernels"].values())


def per_32_pixels(cost, counter):
    units = cost["samples"] * cost["pixels_per_sample"] / 32
    return total(cost, counter) / units


def program():
    return os.path.join(
        os.environ.get("TEST_SRCDIR") or _runfiles(),
        os.environ.get("TEST_WORKSPACE", "datasetd"),
        "tests/benchmarks/kernel_cost/count_kernels")


def _runfiles():
    # .../kernel_cost.runfiles/datasetd/tests/benchmarks/kernel_cost/this file
    path = os.path.abspath(__file__)
    return path[:path.index(".runfiles/") + len(".runfiles")]


def count(names=()):
    """{workload: cost}, as count_kernels.cc prints it."""
    root = os.path.normpath(os.path.join(os.path.dirname(program()),
                                         "../../.."))
    done = subprocess.run([program(), *names], cwd=root, check=True,
                          stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def count_stage():
    """{copy: cost} of the stage-in kernel."""
    return count(["--stage"])


def count_launches():
    """[{workload, samples, ...}] of small launches; of what the launch does and
    of what one block for each sample would do, in this order: pairs."""
    return count(["--launches"])


def launch_table(rows):
    """Markdown: a row a launch. Counts of one block for each sample stand in
    brackets, where they are others."""
    lines = ["| launch | samples | blocks | warp instr. a sample, thousands "
             "| of the longest block, thousands |",
             "| --- | ---: | ---: | ---: | ---: |"]
    for row in rows:
        values = []
        for key, scale, digits in (
                ("blocks", 1, 0), ("warp_instructions_a_sample", 1e3, 1),
                ("longest_block", 1e3, 1)):
            before, now = (f"{value / scale:.{digits}f}" for value in row[key])
            values.append(now if now == before else f"{now} ({before})")
        lines.append(f"| {row['workload']} | {row['samples']} | "
                     + " | ".join(values) + " |")
    return "\n".join(lines)


STAGE_COLUMNS = (
    ("bytes a warp instr.", lambda c: c["bytes"] / c["warp_instructions"]),
    ("sectors a KB", lambda c: 1000 * c["global_sectors"] / c["bytes"]),
    ("needed", lambda c: 1000 * c["global_sectors_needed"] / c["bytes"]),
)


def stage_table(costs):
    lines = ["| stage-in | " + " | ".join(t for t, _ in STAGE_COLUMNS) + " |",
             "| --- |" + " ---: |" * len(STAGE_COLUMNS)]
    for name, cost in costs.items():
        values = [f"{value(cost):.1f}" for _, value in STAGE_COLUMNS]
        lines.append(f"| {name} | " + " | ".join(values) + " |")
    return "\n".join(lines)


def cost_table(costs):
    """Markdown: a row a workload."""
    lines = ["| workload | " + " | ".join(t for t, _ in COLUMNS)
             + " | active lanes | barriers a sample |",
             "| --- |" + " ---: |" * (len(COLUMNS) + 2)]
    for name, cost in costs.items():
        values = [f"{per_32_pixels(cost, counter):.1f}"
                  for _, counter in COLUMNS]
        instructions = total(cost, "warp_instructions")
        lanes = sum(k["mean_active_lanes"] * k["warp_instructions"]
                    for k in cost["kernels"].values()) / instructions
        values.append(f"{lanes:.1f}")
        values.append(f"{total(cost, 'barriers') / cost['samples']:.1f}")
        lines.append(f"| {name} | " + " | ".join(values) + " |")
    return "\n".join(lines)


def three_digits(value):
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"


def estimate_table(costs):
    lines = ["| workload | " + " | ".join(g.name for g in GPUS) + " |",
             "| --- |" + " ---: |" * len(GPUS)]
    for name, cost in costs.items():
        values = [three_digits(gpu.nanoseconds(cost)) for gpu in GPUS]
        lines.append(f"| {name} | " + " | ".join(values) + " |")
    return "\n".join(lines)


def _code_bytes(cubin):
    # It warns of what it does not know in machine code for a GPU.
    listing = subprocess.run(
        ["readelf", "-SW", cubin], check=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    # Number, name, type, address, offset, size.
    return sum(int(size, 16) for size in re.findall(
        r"\] \.text\.\S+\s+\S+\s+\S+\s+\S+\s+([0-9a-f]+)", listing))


def _threads_in_flight(kernel, registers, shared, sm_shared):
    threads = _BLOCK_THREADS[kernel]
    blocks = min(_SM_REGISTERS // (registers * threads),
                 sm_shared // (shared + _BLOCK_RESERVED_SHARED),
                 _SM_THREADS // threads)
    return f"{blocks} x {threads}"


def ptxas_table():
    root = os.path.join(os.path.dirname(program()), "../../..")
    ptx = os.path.join(root, "cuda/kernels/augment_ptx.ptx")
    ptxas = shutil.which("ptxas") or os.path.join(_NVCC_BIN, "ptxas")
    lines = ["| GPU | kernel | registers | stack bytes | spills st/ld "
             "| static shared | blocks x threads an SM | code of all, KB |",
             "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    with tempfile.TemporaryDirectory() as directory:
        for arch, sm_shared in _ARCHS.items():
            cubin = os.path.join(directory, arch)
            said = subprocess.run(
                [ptxas, "-v", f"-arch={arch}", "-o", cubin, ptx],
                check=True, text=True, stderr=subprocess.STDOUT,
                stdout=subprocess.PIPE).stdout
            size = _code_bytes(cubin) / 1000
            for part in said.split("Compiling entry function '")[1:]:
                kernel = part.split("'")[0]
                stack, stored, loaded = re.search(
                    r"(\d+) bytes stack frame, (\d+) bytes spill stores, "
                    r"(\d+) bytes spill loads", part).groups()
                registers = int(
                    re.search(r"Used (\d+) registers", part).group(1))
                # Left out if there is none.
                found = re.search(r"(\d+) bytes smem", part)
                shared = int(found.group(1)) if found else 0
                in_flight = _threads_in_flight(kernel, registers, shared,
                                               sm_shared)
                lines.append(
                    f"| {arch} | {kernel} | {registers} | {stack} "
                    f"| {stored}/{loaded} | {shared} | {in_flight} "
                    f"| {size:.0f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD")
    parser.add_argument("--ptxas", action="store_true")
    parser.add_argument("--json", metavar="FILE", type=os.path.abspath,
                        help="write the counts of each kernel")
    flags = parser.parse_args()
    costs = count(flags.workloads)
    print(cost_table(costs))
    print()
    print(stage_table(count_stage()))
    print()
    print(launch_table(count_launches()))
    print("\nNanoseconds a sample, estimated:\n")
    print(estimate_table(costs))
    if flags.ptxas:
        print()
        print(ptxas_table())
    if flags.json:
        with open(flags.json, "w", encoding="utf-8") as file:
            json.dump(costs, file, indent=1)


if __name__ == "__main__":
    main()
