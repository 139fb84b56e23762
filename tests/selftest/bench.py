"""Serves a dataset to a number of jobs at once; one line of JSON.

    bench.py DEVICE NUM_JOBS

Each job takes batches and uses none: what is measured is the daemon.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import datasetd

NUM_SAMPLES = 50000
SECONDS = 5.0
BATCH_SIZE = 512

_JOB = """
import json, sys, time
import datasetd
from datasetd import transforms as T
address, device, workload, seconds, batch_size = sys.argv[1:]
client = datasetd.connect(address)
dataset = client.get_dataset("bench")
ops = []
if workload == "pad_crop_flip_float16":
    ops = [T.RandomCrop(32, padding=4), T.RandomHorizontalFlip(),
           T.ToDtype("float16", scale=True),
           T.Normalize([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616])]
options = {} if device == "cpu" else {"framework": "dlpack"}
loader = datasetd.DataLoader(dataset, batch_size=int(batch_size), shuffle=True,
                             drop_last=True, transforms=ops, timeout=60,
                             **options)
iterator = iter(loader)
next(iterator)
print("ready", flush=True)
sys.stdin.readline()
num, start = 0, time.monotonic()
waited = loader.waited_seconds
end = start + float(seconds)
while time.monotonic() < end:
    for batch in loader:
        num += 1
        if time.monotonic() >= end:
            break
print(json.dumps({"num": num, "seconds": time.monotonic() - start,
                  "waited": loader.waited_seconds - waited}), flush=True)
"""


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(daemon, device, workload, num_jobs):
    jobs = [
        subprocess.Popen(
            [sys.executable, "-c", _JOB, daemon.address, device, workload,
             str(SECONDS), str(BATCH_SIZE)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(num_jobs)
    ]
    try:
        for job in jobs:
            if job.stdout.readline().strip() != b"ready":
                sys.exit(f"a job of {workload} ended with {job.wait()}")
        before = cpu_seconds(daemon.pid)
        for job in jobs:
            job.stdin.write(b"\n")
            job.stdin.flush()
        answers = [json.loads(job.stdout.readline()) for job in jobs]
        used = cpu_seconds(daemon.pid) - before
    finally:
        for job in jobs:
            job.kill()
            job.wait()
    samples = sum(answer["num"] for answer in answers) * BATCH_SIZE
    return {
        "workload": workload, "jobs": num_jobs, "batch_size": BATCH_SIZE,
        "samples_per_second": sum(
            a["num"] * BATCH_SIZE / a["seconds"] for a in answers),
        "daemon_cpu_seconds_per_million": used / samples * 1e6,
        "share_waited": sum(a["waited"] / a["seconds"]
                            for a in answers) / num_jobs,
    }


def main():
    device, num_jobs = sys.argv[1], int(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="dd") as directory:
        path = pathlib.Path(directory) / "data"
        path.mkdir()
        for i in range(1, 6):
            with open(path / f"data_batch_{i}.bin", "wb") as file:
                block = os.urandom(100 * 3072)
                for k in range(NUM_SAMPLES // 5):
                    start = k % 100 * 3072
                    file.write(bytes([k % 10]) + block[start:start + 3072])
        with datasetd.start_local(device=device) as daemon:
            with daemon.connect() as client:
                client.load_dataset("bench", format="cifar10", split="train",
                                    path=path, device=device)
                print(json.dumps({"rows": [
                    run(daemon, device, workload, num_jobs)
                    for workload in ("copy_uint8", "pad_crop_flip_float16")
                ]}))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main()
