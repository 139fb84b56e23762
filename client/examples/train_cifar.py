"""Trains a small network on CIFAR-10, fed by a datasetd daemon.

    python3 train_cifar.py DIR [--seed 1] [--batch_size 512] [--epochs 2]

DIR is the directory of the binary version of CIFAR-10 in the daemon's file
system. The daemon is at --address, else at $DATASETD_ADDRESS, else the
system's.
"""

import argparse
import time

import datasetd
import torch
from datasetd import transforms as T
from torch import nn

MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2470, 0.2435, 0.2616)
PRESETS = {
    "none": [],
    "flip": [T.RandomHorizontalFlip()],
    "crop_flip": [
        T.RandomCrop(32, padding=4, padding_mode="reflect"),
        T.RandomHorizontalFlip(),
    ],
    "alternating": [
        T.RandomCrop(32, padding=2, padding_mode="reflect"),
        T.AlternatingFlip(),
    ],
}


def make_model() -> nn.Module:
    def block(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )

    return nn.Sequential(
        block(3, 8),
        block(8, 16),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("path", help="directory of the binary CIFAR-10")
    parser.add_argument("--address", default=None)
    parser.add_argument("--name", default="cifar10-train")
    parser.add_argument("--device", default=None, help="of the daemon")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch_size", type=int, default=512)
    parser.add_argument(
        "--transforms", choices=sorted(PRESETS), default="crop_flip"
    )
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument(
        "--batches", type=int, default=0, help="stop after; 0: all"
    )
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    torch.manual_seed(arguments.seed)
    client = datasetd.connect(arguments.address)
    dataset = client.load_dataset(
        arguments.name,
        format="cifar10",
        path=arguments.path,
        split="train",
        device=arguments.device,
        progress=True,
    )
    with datasetd.DataLoader(
        dataset,
        batch_size=arguments.batch_size,
        shuffle=True,
        seed=arguments.seed,
        drop_last=True,
        transforms=PRESETS[arguments.transforms]
        + [T.ToDtype("float32", scale=True), T.Normalize(MEAN, STD)],
        layout="NHWC",
        name="train_cifar.py",
    ) as loader:
        device = "cpu" if dataset.device == "cpu" else "cuda"
        model = make_model().to(device, memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        num_batches = num_samples = 0
        # Summed on the device, because .item() would wait for the GPU.
        total_loss = torch.zeros((), device=device)
        start = time.monotonic()
        for _ in range(arguments.epochs):
            for images, labels in loader:
                loss = nn.functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total_loss += loss.detach()
                num_batches += 1
                num_samples += len(images)
                if num_batches == arguments.batches:
                    break
            if num_batches == arguments.batches:
                break
        mean_loss = total_loss.item() / max(num_batches, 1)
        seconds = time.monotonic() - start
        print(
            f"train_cifar.py seed={arguments.seed}: "
            f"{num_samples / seconds:.0f} samples/s, {num_batches} batches, "
            f"waited {loader.waited_seconds:.3f} s of {seconds:.3f} s, "
            f"loss {mean_loss:.3f}"
        )


if __name__ == "__main__":
    main()
