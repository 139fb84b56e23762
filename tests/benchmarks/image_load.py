"""Loading a folder of JPEGs against torchvision's ImageFolder.

Both read, decode and resize each image once: datasetd into host memory, by
image_folder with the pretransform Resize; torchvision by ImageFolder with
Resize on PIL images in a DataLoader with workers, whose batches of uint8 tensors
are thrown away. Files are in the page cache. The decoders are the same; the
Resize of both averages over the pixels that it covers.

A virtual machine may have to ask its hypervisor for memory that has lain free
for a while, which can take longer than to fill it. So each rate is measured with
memory as ImageFolder's run left it, and with as much as the dataset takes
touched and freed just before; what touching took is printed.
"""

import argparse
import os
import tempfile
import time

import numpy as np
import torch
import torchvision.transforms as V
from datasetd import transforms as T
from PIL import Image
from torchvision.datasets import ImageFolder

from tests.benchmarks import benchmark_report
from tests.conformance import loader_harness as harness


def write_images(root, count, height, width):
    """Smooth colours, edges and noise: about 60 kB each at 375 x 500."""
    random = np.random.default_rng(1)
    y, x = np.mgrid[0:height, 0:width]
    for i in range(count):
        directory = os.path.join(root, f"class{i % 10}")
        os.makedirs(directory, exist_ok=True)
        waves = np.stack(
            [np.sin(x / (20 + i % 7) + c) + np.cos(y / (15 + i % 5) - c)
             for c in range(3)], -1)
        edges = ((x // 37 + y // 29 + i) % 2)[..., None] * 40
        noise = random.normal(0, 8, (height, width, 3))
        pixels = np.clip(110 + 40 * waves + edges + noise, 0, 255)
        Image.fromarray(pixels.astype(np.uint8)).save(
            os.path.join(directory, f"{i:05}.jpg"), quality=90)


def to_tensor(image):
    return torch.from_numpy(np.asarray(image).copy())


def torchvision_rate(root, size, workers, batch_size):
    dataset = ImageFolder(
        root, V.Compose([V.Resize((size, size)), V.Lambda(to_tensor)]))
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=batch_size, num_workers=workers)
    start = time.perf_counter()
    count = sum(len(images) for images, _ in loader)
    return count / (time.perf_counter() - start)


def touch_seconds(num_bytes):
    """Takes memory, writes to it and frees it."""
    start = time.perf_counter()
    memory = np.ones(num_bytes, np.uint8)
    elapsed = time.perf_counter() - start
    del memory
    return elapsed


def datasetd_rate(client, name, root, size, options):
    start = time.perf_counter()
    dataset = client.load_dataset(
        name, "image_folder", root, options=options,
        pretransforms=[T.Resize((size, size))])
    rate = len(dataset) / (time.perf_counter() - start)
    dataset.close()
    client.unload_dataset(name)
    return rate


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num_images", type=int, default=2000)
    parser.add_argument("--height", type=int, default=375)
    parser.add_argument("--width", type=int, default=500)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--repetitions", type=int, default=3)
    flags = parser.parse_args()
    report = benchmark_report.Report(
        "image_load", torch=torch.__version__, **vars(flags))
    peer = f"ImageFolder, {flags.workers} workers"
    runs = {
        peer: lambda daemon, root:
            torchvision_rate(root, flags.size, flags.workers,
                             flags.batch_size),
        "datasetd": lambda daemon, root:
            datasetd_rate(daemon.client, "images", root, flags.size, {}),
        "datasetd, fast_decode": lambda daemon, root:
            datasetd_rate(daemon.client, "images", root, flags.size,
                          {"fast_decode": True}),
    }
    found = {name: [] for name in runs}
    touched = {name: [] for name in runs}
    touching = []
    with tempfile.TemporaryDirectory() as root, harness.Daemon("cpu") as daemon:
        write_images(root, flags.num_images, flags.height, flags.width)
        estimate = daemon.client.load_dataset(
            "images", "image_folder", root, dry_run=True,
            pretransforms=[T.Resize((flags.size, flags.size))])
        report.add("host_bytes_stated", estimate.host_bytes)
        for _ in range(flags.repetitions):
            for name in list(runs)[1:]:
                found[peer].append(runs[peer](daemon, root))
                found[name].append(runs[name](daemon, root))
            for name, run in runs.items():
                touching.append(touch_seconds(estimate.resident_bytes))
                touched[name].append(run(daemon, root))
    print(f"{'':34} {'images/s':>9} {'min..max':>12} {'ratio':>6}")
    for title, rates in (("", found), (", memory touched", touched)):
        other = benchmark_report.median(rates[peer])
        for name, values in rates.items():
            middle = benchmark_report.median(values)
            span = f"{min(values):.0f}..{max(values):.0f}"
            print(f"{name + title:34} {middle:9.0f} {span:>12} "
                  f"{middle / other:6.2f}")
            report.add(name + title,
                       {"images_per_second": values, "median": middle,
                        "is_times_image_folder": middle / other})
    report.add("resident_bytes", estimate.resident_bytes)
    report.add("touch_seconds", touching)
    print(f"touching {estimate.resident_bytes / 2**20:.0f} MiB: "
          f"{min(touching):.2f}..{max(touching):.2f} s")
    report.write()


if __name__ == "__main__":
    main()
