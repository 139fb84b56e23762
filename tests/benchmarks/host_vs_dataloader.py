"""The host backend against torch.utils.data.DataLoader, same ops.

Whole passes over a training set of CIFAR-10's size with RandomCrop(32, 4),
RandomHorizontalFlip, ToTensor and Normalize, batch 512, to float32 torch
tensors. The DataLoader's dataset is torchvision.datasets.CIFAR10's: a NumPy
array, one PIL image for each sample, the transforms on it. Its workers are
persistent, and each side gets a pass to warm up.
"""

import argparse
import tempfile
import time

import datasetd
import numpy as np
import torch
import torchvision.transforms as V
from datasetd import transforms as T
from PIL import Image

from tests.benchmarks import benchmark_report
from tests.conformance import loader_harness as harness

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


class Cifar10(torch.utils.data.Dataset):
    """As torchvision.datasets.CIFAR10 gives it."""

    def __init__(self, image, label):
        self.data = image
        self.targets = label.tolist()
        self.transform = V.Compose(
            [
                V.RandomCrop(32, 4),
                V.RandomHorizontalFlip(),
                V.ToTensor(),
                V.Normalize(MEAN, STD),
            ]
        )

    def __getitem__(self, index):
        image = Image.fromarray(self.data[index])
        return self.transform(image), self.targets[index]

    def __len__(self):
        return len(self.data)


def samples_per_second(loader, num_samples, num_passes):
    seen = 0
    start = time.perf_counter()
    for _ in range(num_passes):
        for images, _ in loader:
            seen += len(images)
    elapsed = time.perf_counter() - start
    assert seen == num_samples * num_passes
    return seen / elapsed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num_samples", type=int, default=50000)
    parser.add_argument("--batch_size", type=int, default=512)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--passes", type=int, default=20,
                        help="of datasetd, in one repetition")
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 2])
    parser.add_argument("--host_threads", type=int, default=0)
    flags = parser.parse_args()
    report = benchmark_report.Report(
        "host_vs_dataloader", torch=torch.__version__, **vars(flags)
    )
    n = flags.num_samples
    image = harness.images(n, (32, 32, 3))
    label = np.arange(n) % 10
    rates = {f"DataLoader, {w} workers": [] for w in flags.workers}
    rates["datasetd, host backend"] = []
    with tempfile.TemporaryDirectory() as directory, harness.Daemon(
        "cpu", flags.host_threads
    ) as daemon:
        dataset = daemon.load(
            harness.write_cifar10(directory, image, label), format="cifar10"
        )
        loader = datasetd.DataLoader(
            dataset,
            batch_size=flags.batch_size,
            shuffle=True,
            transforms=[
                T.RandomCrop(32, 4),
                T.RandomHorizontalFlip(),
                T.ToDtype("float32", scale=True),
                T.Normalize(MEAN, STD),
            ],
        )
        others = {
            f"DataLoader, {w} workers": torch.utils.data.DataLoader(
                Cifar10(image, label),
                batch_size=flags.batch_size,
                shuffle=True,
                num_workers=w,
                persistent_workers=w > 0,
            )
            for w in flags.workers
        }
        samples_per_second(loader, n, 1)
        for name, other in others.items():
            if not name.startswith("DataLoader, 0 "):
                samples_per_second(other, n, 1)
        for _ in range(flags.repetitions):
            for name, other in others.items():
                rates[name].append(samples_per_second(other, n, 1))
            rates["datasetd, host backend"].append(
                samples_per_second(loader, n, flags.passes)
            )
        loader.close()
        del others, other

    own = benchmark_report.median(rates["datasetd, host backend"])
    print(f"{'':24} {'samples/s':>12} {'min..max':>22} {'ratio':>7}")
    for name, values in rates.items():
        middle = benchmark_report.median(values)
        span = f"{min(values):.0f}..{max(values):.0f}"
        print(f"{name:24} {middle:12.0f} {span:>22} {own / middle:7.1f}")
        report.add(
            name,
            {
                "samples_per_second": values,
                "median": middle,
                "datasetd_is_times": own / middle,
            },
        )
    report.write()


if __name__ == "__main__":
    main()
