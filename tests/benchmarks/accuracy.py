"""A model trained with torchvision's pipeline and with datasetd's.

Ten classes of generated shapes, 32x32 in colour, with noise and clutter, so that
no pipeline reaches 100 %. The same small convolutional net, the same steps; the
initial weights are the same for both pipelines of a seed, and order and
augmentation are each pipeline's own. Prints the test accuracy of each seed, and
the difference of the means with its standard error: paired by seed.
"""

import argparse
import math
import statistics
import tempfile

import numpy as np
import torch
import torchvision.transforms as V
from PIL import Image, ImageDraw
from torch import nn

import datasetd
from datasetd import transforms as T
from tests.benchmarks import benchmark_report
from tests.conformance import loader_harness as harness

NUM_CLASSES = 10
MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)


def draw_shape(kind, rng):
    """One image [32, 32, 3], uint8."""
    size = 96
    background = tuple(int(v) for v in rng.integers(0, 256, 3))
    image = Image.new("RGB", (size, size), background)
    draw = ImageDraw.Draw(image)
    for _ in range(4):  # clutter
        x, y = rng.integers(0, size, 2)
        r = int(rng.integers(4, 16))
        colour = tuple(int(v) for v in rng.integers(0, 256, 3))
        draw.line((x, y, x + r, y + r), fill=colour, width=3)
    while True:  # a colour that can be told from the background
        colour = tuple(int(v) for v in rng.integers(0, 256, 3))
        if sum(abs(a - b) for a, b in zip(colour, background)) > 150:
            break
    cx, cy = rng.uniform(36, 60, 2)
    radius = rng.uniform(16, 28)
    turn = rng.uniform(-0.3, 0.3)

    def corners(count, inner=None):
        points = []
        total = count * (2 if inner else 1)
        for i in range(total):
            r = radius * (inner if inner and i % 2 else 1.0)
            angle = turn + 2 * math.pi * i / total - math.pi / 2
            points.append((cx + r * math.cos(angle), cy + r * math.sin(angle)))
        return points

    box = (cx - radius, cy - radius, cx + radius, cy + radius)
    if kind == 0:
        draw.ellipse(box, fill=colour)
    elif kind == 1:
        draw.ellipse(box, outline=colour, width=6)
    elif kind in (2, 3, 4, 5):
        draw.polygon(corners(kind + 1), fill=colour)
    elif kind in (6, 7):
        draw.polygon(corners(kind - 2, 0.45), fill=colour)
    elif kind == 8:
        draw.pieslice(box, 45, 315, fill=colour)
    else:
        width = int(radius / 1.6)
        draw.line((cx - radius, cy, cx + radius, cy), colour, width)
        draw.line((cx, cy - radius, cx, cy + radius), colour, width)
    small = np.asarray(image.resize((32, 32), Image.BILINEAR), np.float32)
    return np.clip(small + rng.normal(0, 12, small.shape), 0, 255).astype(
        np.uint8)


def make_set(count, seed):
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % NUM_CLASSES
    images = np.stack([draw_shape(kind, rng) for kind in labels])
    return images, labels.astype(np.int64)


def make_net():
    layers = []
    channels = 3
    for width in (24, 48, 64, 64):
        layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False),
                   nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
        channels = width
    # 2x2 pixels are left.
    return nn.Sequential(*layers, nn.Flatten(),
                         nn.Linear(4 * channels, NUM_CLASSES))


def transform_lists(module):
    """The same ops for both; `module` has torchvision's names."""
    return [
        module.RandomResizedCrop(32, scale=(0.5, 1.0)),
        module.RandomHorizontalFlip(),
        module.RandomRotation(10),
        module.ColorJitter(0.3, 0.3, 0.3, 0.05),
    ]


class Samples(torch.utils.data.Dataset):
    def __init__(self, images, labels):
        self.images, self.labels = images, labels
        self.transform = V.Compose(
            transform_lists(V)
            + [V.ToTensor(), V.Normalize(MEAN, STD), V.RandomErasing(0.25)])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = Image.fromarray(self.images[index])
        return self.transform(image), int(self.labels[index])


def train(loader, epochs, seed):
    torch.manual_seed(seed)
    net = make_net()
    steps = epochs * len(loader)
    optimizer = torch.optim.SGD(net.parameters(), 0.05, 0.9, weight_decay=5e-4,
                                nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, steps)
    net.train()
    for _ in range(epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(images), labels).backward()
            optimizer.step()
            schedule.step()
    return net.eval()


def accuracy(net, images, labels):
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    pixels = V.functional.normalize(pixels, MEAN, STD)
    with torch.no_grad():
        found = torch.cat([net(part).argmax(1) for part in pixels.split(500)])
    return (found.numpy() == labels).mean() * 100


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num_train", type=int, default=4000)
    parser.add_argument("--num_test", type=int, default=4000)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch_size", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=5)
    flags = parser.parse_args()
    report = benchmark_report.Report(
        "accuracy", torch=torch.__version__, **vars(flags))
    images, labels = make_set(flags.num_train, 1)
    test_images, test_labels = make_set(flags.num_test, 2)
    found = {"torchvision": [], "datasetd": []}
    with tempfile.TemporaryDirectory() as directory, harness.Daemon(
            "cpu") as daemon:
        np.save(directory + "/image.npy", images)
        np.save(directory + "/label.npy", labels)
        dataset = daemon.load(directory)
        for seed in range(flags.seeds):
            with datasetd.DataLoader(
                dataset, batch_size=flags.batch_size, shuffle=True,
                drop_last=True, seed=seed, framework="torch",
                transforms=transform_lists(T) + [
                    T.ToDtype("float32", scale=True),
                    T.Normalize(list(MEAN), list(STD)),
                    T.RandomErasing(0.25),
                ],
            ) as own:
                torch.manual_seed(1000 + seed)
                other = torch.utils.data.DataLoader(
                    Samples(images, labels), flags.batch_size, shuffle=True,
                    drop_last=True)
                for name, loader in (("torchvision", other),
                                     ("datasetd", own)):
                    net = train(loader, flags.epochs, seed)
                    found[name].append(
                        accuracy(net, test_images, test_labels))
            print(f"seed {seed}: " + ", ".join(
                f"{name} {values[-1]:.2f} %" for name, values in found.items()),
                flush=True)
    differences = [a - b for a, b in
                   zip(found["datasetd"], found["torchvision"])]
    mean = statistics.mean(differences)
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    for name, values in found.items():
        print(f"{name:12} mean {statistics.mean(values):.2f} %, "
              f"stdev {statistics.stdev(values):.2f}")
        report.add(name, values)
    print(f"datasetd - torchvision: {mean:+.2f} %, standard error {error:.2f}")
    report.add("difference", {"mean": mean, "standard_error": error})
    report.write()


if __name__ == "__main__":
    main()
