"""Questions that need the daemon and a training process; one line of JSON.

    probes.py kill_probe|step_probe|mps_step_probe DEVICE

kill_probe: what a client sees, and can still do, when the daemon is killed
while the client's kernels run, by export kind. step_probe: the time of a
training step on the loader's batches over that on one constant batch, in turns
(datasetd.benchmark), at 1 and 32 batches a launch at most; on a GPU also as a
CUDA graph, which leaves out the time of Python. mps_step_probe: the same under
an MPS server of its own.
"""

import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile

import datasetd
from datasetd import transforms as T

NUM_SAMPLES = 10000
DEADLINE_SECONDS = 40.0

# Steps of the first are Python's, and differ by more than what batches cost.
STEP_CASES = [
    {"model": model, "size": size, "batch_size": batch_size, "steps": steps,
     "is_graph": is_graph, "is_synchronised": is_synchronised,
     "prefetch": prefetch}
    for model, size, batch_size, steps, is_graph, is_synchronised, prefetch in [
        ("small_cnn", 32, 256, 100, False, False, None),
        ("small_cnn", 32, 256, 200, True, False, None),
        ("resnet18", 32, 256, 100, True, False, None),
        ("resnet18", 32, 256, 100, True, True, None),
        ("resnet18", 32, 256, 100, True, False, 4),
        ("resnet50", 224, 64, 10, True, False, None),
    ]
]

_VICTIM = """
import json, sys, time
import datasetd
address, device = sys.argv[1:]
client = datasetd.connect(address)
dataset = client.get_dataset("probe")
loader = datasetd.DataLoader(dataset, batch_size=100, framework="torch",
                             timeout=30)
import torch
iterator = iter(loader)
kept = next(iterator)
before = kept[0].clone()
if device != "cpu":
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000_000)
    in_flight = kept[0].float().sum()
print("ready", flush=True)
sys.stdin.readline()
result = {}
start = time.monotonic()
try:
    while True:
        for batch in loader:
            batch = None
except datasetd.Error as error:
    result["error"] = type(error).__name__
    result["seconds_until_error"] = round(time.monotonic() - start, 3)
def attempt(name, function):
    try:
        result[name] = function()
    except Exception as error:
        result[name] = f"{type(error).__name__}: {error}"[:300]
if device != "cpu":
    attempt("work_in_flight_completed",
            lambda: (torch.cuda.synchronize(), True)[1])
attempt("kept_batch_is_unchanged",
        lambda: bool((kept[0] == before).all().item()))
attempt("device_still_works",
        lambda: float(torch.ones(8, device=device).sum()) == 8.0)
print(json.dumps(result), flush=True)
import os
os._exit(0)
"""


def write_cifar10_test(path):
    path.mkdir()
    with open(path / "test_batch.bin", "wb") as file:
        for i in range(NUM_SAMPLES):
            file.write(bytes([i % 10]) + os.urandom(3072))


def start(directory, device, **config_keys):
    config = pathlib.Path(directory) / "config.yaml"
    config.write_text(json.dumps(config_keys))
    return datasetd.start_local(device=device,
                                arguments=[f"--config={config}"])


def load(client, path, device):
    return client.load_dataset("probe", format="cifar10", split="test",
                               path=path, device=device)


def read_line(process):
    ready, _, _ = select.select([process.stdout], [], [], DEADLINE_SECONDS)
    return process.stdout.readline().decode().strip() if ready else ""


def kill_probe(directory, path, device):
    kinds = (["auto"] if device == "cpu" else
             ["cuda_ipc_handle", "cuda_vmm_fd"])
    answer = {}
    for kind in kinds:
        daemon = start(directory, device, slab_export=kind)
        with daemon.connect() as client:
            load(client, path, device)
            victim = subprocess.Popen(
                [sys.executable, "-c", _VICTIM, daemon.address, device],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            if read_line(victim) != "ready":
                answer[kind] = {"not_measured": "the client did not start"}
            else:
                os.kill(daemon.pid, signal.SIGKILL)
                victim.stdin.write(b"\n")
                victim.stdin.flush()
                line = read_line(victim)
                answer[kind] = (json.loads(line) if line else {
                    "ended_with": victim.poll(),
                    "not_measured": "the client said nothing more"})
            victim.kill()
            victim.wait()
        daemon.close()
    return answer


def make_model(torch, name):
    if name != "small_cnn":
        import torchvision

        return getattr(torchvision.models, name)(num_classes=10)
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(64, 10))


def make_step(torch, model):
    """step(batch): forward, backward, update."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(batch):
        images, labels = batch
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def make_graph(torch, step, device, batch_size, size):
    """`step` as a CUDA graph, on copies of its batches."""
    copies = [
        torch.zeros(batch_size, 3, size, size, device=device),
        torch.zeros(batch_size, dtype=torch.int64, device=device)]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(copies)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(copies)

    def replay(batch):
        for copy, tensor in zip(copies, batch):
            copy.copy_(tensor)
        graph.replay()

    return replay


def step_probe(directory, path, device):
    try:
        import torch
    except ImportError as error:
        return {"not_measured": f"torch: {error}"}
    if device != "cpu" and not torch.cuda.is_available():
        return {"not_measured": "torch sees no GPU"}
    answer = {"rows": []}
    # The host backend makes one batch a launch.
    for num_batches in (1,) if device == "cpu" else (1, 32):
        with start(directory, device,
                   max_batches_per_launch=num_batches) as daemon, \
                daemon.connect() as client:
            datasets = {32: load(client, path, device)}
            if device != "cpu":
                datasets[224] = push_images(client, device)
            for case in STEP_CASES[:1] if device == "cpu" else STEP_CASES:
                answer["rows"].append({
                    **case, "max_batches_per_launch": num_batches,
                    **measure_step(torch, datasets, device, **case)})
    return answer


def push_images(client, device):
    import numpy as np

    pixels = np.random.default_rng(0).integers(
        0, 256, (512, 256, 256, 3), dtype=np.uint8)
    return client.push_dataset(
        "images", {"image": pixels, "label": np.arange(512) % 10},
        device=device)


def measure_step(torch, datasets, device, model, size, batch_size, steps,
                 is_graph, is_synchronised, prefetch):
    crop = (T.RandomCrop(32, padding=4) if size == 32 else
            T.RandomResizedCrop(size))
    ops = [crop, T.RandomHorizontalFlip(), T.ToDtype("float32", scale=True),
           T.Normalize([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616])]
    step = make_step(torch, make_model(torch, model).to(device))
    if is_graph:
        # Before the loader's threads call the driver.
        step = make_graph(torch, step, device, batch_size, size)
    with datasetd.DataLoader(
            datasets[size], batch_size=batch_size, shuffle=True,
            drop_last=True, transforms=ops, prefetch=prefetch,
            framework="torch", timeout=60) as loader:
        def run(batch):
            step(batch)
            if is_synchronised:
                torch.cuda.synchronize()

        result = (datasetd.benchmark(loader, run, 3, 2) if device == "cpu" else
                  datasetd.benchmark(loader, run, steps, 7))
    return {"ratio": result.loader_seconds / result.constant_seconds,
            **result.to_dict()}


def mps_step_probe(directory, path, device):
    """Starts an MPS server, and this program under it."""
    control = "nvidia-cuda-mps-control"
    if device == "cpu":
        return {"not_measured": "no GPU"}
    if shutil.which(control) is None:
        return {"not_measured": f"no {control} here"}
    environment = dict(os.environ)
    for name in ("PIPE", "LOG"):
        folder = pathlib.Path(directory) / name.lower()
        folder.mkdir()
        environment[f"CUDA_MPS_{name}_DIRECTORY"] = str(folder)
    started = subprocess.run([control, "-d"], env=environment,
                             stderr=subprocess.PIPE)
    if started.returncode != 0:
        return {"not_measured": f"{control}: {started.stderr.decode()[-300:]}"}
    try:
        done = subprocess.run(
            [sys.executable, __file__, "step_probe", device], env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    finally:
        subprocess.run([control], input=b"quit\n", env=environment)
    if done.returncode != 0:
        return {"not_measured": done.stderr.decode()[-300:]}
    return json.loads(done.stdout)


def main():
    probe = {"kill_probe": kill_probe, "step_probe": step_probe,
             "mps_step_probe": mps_step_probe}[sys.argv[1]]
    with tempfile.TemporaryDirectory(prefix="dd") as directory:
        path = pathlib.Path(directory) / "data"
        write_cifar10_test(path)
        print(json.dumps(probe(directory, path, sys.argv[2])))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main()
