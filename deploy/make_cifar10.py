#!/usr/bin/python3
"""Writes a made-up data set in the binary format and size of CIFAR-10.

    /usr/bin/python3 make_cifar10.py DIR [--samples_per_file 10000]

Ten classes of drawn shapes in random colours, places and sizes, with shading
and a little noise: enough for a network to learn and for an eye to see what a
crop or a flip did. The same bytes every time. Not CIFAR-10, and no measure of
accuracy.
"""

import argparse
import os
import sys

import numpy as np

FILES = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
CLASSES = ["disc", "square", "triangle", "ring", "cross", "stripes", "bars",
           "slope", "checker", "arrow"]
SIZE = 32
SAMPLES_PER_CHUNK = 1000


def masks(labels: np.ndarray, draw: np.random.RandomState) -> np.ndarray:
    """Where the shape is: bool [N, SIZE, SIZE]."""
    n = len(labels)
    grid = np.arange(SIZE, dtype=np.float32)
    column = lambda low, high: draw.uniform(low, high, (n, 1, 1)).astype("f4")
    x = grid[None, None, :] - column(11, 21)
    y = grid[None, :, None] - column(11, 21)
    radius = column(6, 11)
    width = column(2, 3.5)
    distance = np.sqrt(x * x + y * y)
    box = np.maximum(np.abs(x), np.abs(y)) <= radius
    shapes = [
        distance <= radius,
        box,
        (y <= radius) & (2 * np.abs(x) <= y + radius) & (y >= -radius),
        np.abs(distance - radius + width) <= width,
        box & (np.minimum(np.abs(x), np.abs(y)) <= width),
        box & (np.floor(y / width).astype(int) % 2 == 0),
        box & (np.floor(x / width).astype(int) % 2 == 0),
        box & (x >= y),
        box & ((np.floor(x / 4) + np.floor(y / 4)).astype(int) % 2 == 0),
        ((np.abs(y) <= width * 0.7) & (np.abs(x) <= radius))
        | ((x >= 0) & (np.abs(y) <= radius - x) & (x <= radius)),
    ]
    result = np.empty((n, SIZE, SIZE), bool)
    for label, shape in enumerate(shapes):
        rows = labels == label
        result[rows] = shape[rows]
    return result


def images(labels: np.ndarray, draw: np.random.RandomState) -> np.ndarray:
    """uint8 [N, 3, SIZE, SIZE]."""
    n = len(labels)
    ramp = np.linspace(-1, 1, SIZE, dtype=np.float32)
    colour = lambda: draw.uniform(20, 235, (n, 3, 1, 1)).astype("f4")
    ground, shape = colour(), colour()
    # Colours that are too near each other go to the other side.
    near = np.abs(ground - shape).mean(axis=(1, 2, 3), keepdims=True) < 70
    shape = np.where(near, (ground + 128) % 256, shape)
    slopes = draw.uniform(-35, 35, (2, n, 3, 1, 1)).astype("f4")
    shading = slopes[0] * ramp[None, None, None, :]
    shading = shading + slopes[1] * ramp[None, None, :, None]
    where = masks(labels, draw)[:, None]
    noise = draw.randint(-6, 7, (n, 3, SIZE, SIZE)).astype("f4")
    pixels = np.where(where, shape - shading / 2, ground + shading) + noise
    return np.clip(pixels, 0, 255).astype(np.uint8)


def write_file(path: str, num_samples: int, seed: int) -> None:
    """Appears under its name only when it is whole."""
    draw = np.random.RandomState(seed)
    with open(path + ".part", "wb") as file:
        for first in range(0, num_samples, SAMPLES_PER_CHUNK):
            n = min(SAMPLES_PER_CHUNK, num_samples - first)
            labels = draw.randint(0, len(CLASSES), n)
            records = np.empty((n, 1 + 3 * SIZE * SIZE), np.uint8)
            records[:, 0] = labels
            records[:, 1:] = images(labels, draw).reshape(n, -1)
            file.write(records.tobytes())
    os.replace(path + ".part", path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory")
    parser.add_argument("--samples_per_file", type=int, default=10000)
    arguments = parser.parse_args()
    if arguments.samples_per_file < 1:
        parser.error("--samples_per_file: expected 1 or more")
    os.makedirs(arguments.directory, exist_ok=True)
    for seed, name in enumerate(FILES):
        path = os.path.join(arguments.directory, name)
        write_file(path, arguments.samples_per_file, seed)
    meta = os.path.join(arguments.directory, "batches.meta.txt")
    with open(meta, "w", encoding="ascii") as file:
        file.write("\n".join(CLASSES) + "\n")
    print(f"{arguments.directory}: {len(FILES)} files of "
          f"{arguments.samples_per_file} samples, made up")
    return 0


if __name__ == "__main__":
    sys.exit(main())
