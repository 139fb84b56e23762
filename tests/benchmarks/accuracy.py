"""A model trained with torchvision's pipeline and with datasetd's.

The task is in accuracy_task.py. The same small convolutional net, the same
steps; the initial weights are the same for all pipelines of a seed, and order
and augmentation are each one's own:

    pillow    torchvision on Pillow images, as in most training scripts
    tensors   torchvision on float32 tensors, which rounds nothing
    datasetd  the same ops
    again     datasetd once more, with other draws: how far two trainings that
              differ by chance alone are apart

Prints the test accuracy of each seed and, for each pair, the difference of the
means with its standard error, paired by seed. Every net is tested on images one
level of 255 brighter and darker, too: what a shift between training and test
costs. What the pipelines make of the same training images with the same draws
is compared op by op.
"""

import argparse
import itertools
import math
import statistics
import tempfile

import datasetd
import torch
import torchvision
import torchvision.transforms as V
from datasetd import transforms as T
from PIL import Image

from tests.benchmarks import accuracy_pixels, benchmark_report
from tests.benchmarks import accuracy_task as task
from tests.conformance import loader_harness as harness

ARMS = ("pillow", "tensors", "datasetd", "again")
JITTER = {"brightness": 0.3, "contrast": 0.3, "saturation": 0.3, "hue": 0.05}
SHIFTS = (-1, 1)  # of the test's images, in levels


def transform_lists(module):
    """The same ops for both; `module` has torchvision's names."""
    return [
        module.RandomResizedCrop(32, scale=(0.5, 1.0), antialias=True),
        module.RandomHorizontalFlip(),
        module.RandomRotation(10),
        module.ColorJitter(**JITTER),
    ]


class Samples(torch.utils.data.Dataset):
    """Samples that torchvision makes, of Pillow images or of float tensors."""

    def __init__(self, images, labels, on_tensors):
        self.images, self.labels = images, labels
        ops = transform_lists(V)
        self.transform = V.Compose(
            ([V.ToTensor()] + ops if on_tensors
             else [Image.fromarray] + ops + [V.ToTensor()])
            + [V.Normalize(task.MEAN, task.STD), V.RandomErasing(0.25)])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.transform(self.images[index]), int(self.labels[index])


def train_arm(arm, seed, dataset, images, labels, flags):
    draws = 1000 * (1 + ARMS.index(arm)) + seed
    if arm in ("pillow", "tensors"):
        loader = torch.utils.data.DataLoader(
            Samples(images, labels, arm == "tensors"), flags.batch_size,
            shuffle=True, drop_last=True)
        return task.train(loader, flags.epochs, seed, draws)
    with datasetd.DataLoader(
        dataset, batch_size=flags.batch_size, shuffle=True, drop_last=True,
        seed=draws, framework="torch",
        transforms=transform_lists(T) + [
            T.ToDtype("float32", scale=True),
            T.Normalize(list(task.MEAN), list(task.STD)),
            T.RandomErasing(0.25),
        ],
    ) as loader:
        return task.train(loader, flags.epochs, seed, draws)


def summary(values):
    return {
        "mean": statistics.mean(values),
        "stdev": statistics.stdev(values),
        "standard_error": statistics.stdev(values) / math.sqrt(len(values)),
    }


def differences(found, shifted):
    """Paired by seed: of each two arms, and what a shifted test costs each."""
    pairs = {
        f"{a} - {b}": (found[a], found[b])
        for b, a in itertools.combinations(ARMS, 2)
    }
    for arm in ARMS:
        for by, values in shifted[arm].items():
            pairs[f"{arm}, images {by}"] = (values, found[arm])
    return {
        name: summary([x - y for x, y in zip(*pair)])
        for name, pair in pairs.items()
    }


def print_summary(name, values):
    print("{:22} mean {mean:6.2f} %, stdev {stdev:.2f}, "
          "standard error {standard_error:.2f}".format(name, **values))


def compare_pixels(daemon, images):
    """Compares the list, op by op, and each part of its ColorJitter alone."""
    ops = transform_lists(T)
    rows = dict(zip((type(op).__name__ for op in ops),
                    accuracy_pixels.compare(daemon, images, ops)))
    for part, amount in JITTER.items():
        rows[part + " alone"], = accuracy_pixels.compare(
            daemon, images, [T.ColorJitter(**{part: amount})])
    return rows


def print_pixels(pixels):
    for op, row in pixels.items():
        print(op + ": " + "; ".join(
            "{} mean {mean:.3f}, deviation {deviation:.3f}, from tensors "
            "{mean_difference:+.3f}, rms {rms_difference:.3f}".format(
                name, **values) for name, values in row.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num_train", type=int, default=4000)
    parser.add_argument("--num_test", type=int, default=4000)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch_size", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=10, help="2 or more")
    flags = parser.parse_args()
    report = benchmark_report.Report(
        "accuracy", torch=torch.__version__,
        torchvision=torchvision.__version__,
        torch_threads=torch.get_num_threads(), **vars(flags))
    images, labels = task.make_set(flags.num_train, 1)
    test_set = task.make_set(flags.num_test, 2)
    found = {arm: [] for arm in ARMS}
    shifted = {arm: {f"{by:+}": [] for by in SHIFTS} for arm in ARMS}
    report.add("accuracy", found)
    report.add("on_shifted_images", shifted)
    with tempfile.TemporaryDirectory() as directory, harness.Daemon(
            "cpu", host_threads=1) as daemon:
        dataset = daemon.load(
            harness.write_npy(directory, image=images, label=labels))
        pixels = compare_pixels(daemon, images)
        print_pixels(pixels)
        report.add("pixels", pixels)
        for seed in range(flags.seeds):
            for arm in ARMS:
                net = train_arm(arm, seed, dataset, images, labels, flags)
                found[arm].append(task.accuracy(net, *test_set))
                for by in SHIFTS:
                    shifted[arm][f"{by:+}"].append(
                        task.accuracy(net, *test_set, brighter=by))
            print(f"seed {seed}: " + ", ".join(
                f"{arm} {values[-1]:.2f} %" for arm, values in found.items()),
                flush=True)
            if seed > 0:  # now already: the rest takes long
                report.add("differences", differences(found, shifted))
                report.write()
    for arm, values in found.items():
        print_summary(arm, summary(values))
    for name, values in differences(found, shifted).items():
        print_summary(name, values)


if __name__ == "__main__":
    main()
