"""The task of the accuracy benchmark: its images, its net, its training.

Ten classes of generated shapes, 32x32 in colour, with noise and clutter, so
that no pipeline reaches 100 %.
"""

import math

import numpy as np
import torch
import torchvision.transforms.functional as F
from PIL import Image, ImageDraw
from torch import nn

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


def train(loader, epochs, weights_seed, draws_seed):
    """Trains on `loader`; draws_seed is of what the loader draws from torch."""
    torch.manual_seed(weights_seed)
    # The layout that is faster on a processor; it changes nothing else.
    net = make_net().to(memory_format=torch.channels_last)
    torch.manual_seed(draws_seed)
    steps = epochs * len(loader)
    optimizer = torch.optim.SGD(net.parameters(), 0.05, 0.9, weight_decay=5e-4,
                                nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, steps)
    net.train()
    for _ in range(epochs):
        for images, labels in loader:
            images = images.contiguous(memory_format=torch.channels_last)
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(images), labels).backward()
            optimizer.step()
            schedule.step()
    return net.eval()


def accuracy(net, images, labels, brighter=0):
    """Percent right of uint8 [N, H, W, 3], made brighter by levels of 255."""
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float() + brighter
    pixels = F.normalize(pixels / 255, MEAN, STD)
    with torch.no_grad():
        found = torch.cat([net(part).argmax(1) for part in pixels.split(500)])
    return (found.numpy() == labels).mean() * 100
