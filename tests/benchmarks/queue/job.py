"""One training job of a queue: a process that trains one small model.

    job.py WORKLOAD PEER DIRECTORY DEVICE ADDRESS EPOCHS RATE THREADS

Prints one line of JSON: {"samples", "loss", "waited_seconds"}, of which the last
is the time spent in the loader.
"""

import json
import sys
import time

import torch

from tests.benchmarks.compare import peers, workloads


def model_for(workload):
    """A small convolutional net, as a sweep over learning rates trains it."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(workload.image_shape[2], 16, 4, stride=4),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(64, 10),
    )


def main():
    name, peer, directory, device, address = sys.argv[1:6]
    epochs, rate, threads = int(sys.argv[6]), float(sys.argv[7]), int(sys.argv[8])
    workload = workloads.WORKLOADS[name]
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = model_for(workload).to(device, getattr(torch, workload.dtype))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    batches = peers.open_peer(peer, workload, directory, device, address)
    samples, waited = 0, 0.0
    while samples < epochs * workload.num_samples:
        start = time.monotonic()
        images, *_, labels = next(batches)
        waited += time.monotonic() - start
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        samples += len(images)
    print(json.dumps({
        "samples": samples,
        "loss": loss.item(),
        "waited_seconds": waited,
    }))


if __name__ == "__main__":
    try:
        main()
    except peers.NotOffered as error:
        print(json.dumps({"not_offered": str(error)}))
