"""The ops that torchvision 0.14 lacks, in NumPy, from their formulas.

Random numbers are those of docs/randomness.md.
"""

import numpy as np

from tests.conformance.random_reference import philox


def posterize(image, bits):
    """Posterizes a floating point image to 2^bits levels."""
    levels = 2**bits
    return (
        np.clip(np.floor(image.astype(np.float64) * levels), 0, levels - 1)
        / levels
    ).astype(np.float32)


def equalize(image):
    """Equalizes a floating point image, through 8 bits and PIL's table."""
    scaled = np.floor(image * np.float32(255.999)).astype(np.int64)
    result = np.empty(image.shape, np.float32)
    for plane, levels in zip(result, scaled):
        histogram = np.bincount(levels.ravel(), minlength=256)
        step = (levels.size - histogram[levels.max()]) // 255
        if step == 0:
            table = np.arange(256)
        else:
            below = np.concatenate([[0], np.cumsum(histogram)[:-1]])
            table = np.clip((below + step // 2) // step, 0, 255)
        plane[...] = table[levels] / 255
    return result


def grayscale_to_three(image):
    """Repeats the one channel of a gray image."""
    return np.repeat(image, 3, axis=0)


def normal_image(channels, height, width, seed, op_index, epoch, sample):
    """Standard normal numbers [C, H, W] of a RandomErasing, in double."""
    pixels = np.arange(height * width, dtype=np.uint64)
    counter = [pixels + np.uint64(16)] + [
        np.full(len(pixels), word, np.uint64)
        for word in (op_index, epoch, sample)
    ]
    words = [word.astype(np.float64) for word in philox(counter, seed)]
    planes = []
    for first, second in (words[:2], words[2:]):
        radius = np.sqrt(-2 * np.log((first + 1) / 2**32))
        angle = 2 * np.pi * second / 2**32
        planes += [radius * np.cos(angle), radius * np.sin(angle)]
    return np.stack(planes[:channels]).reshape(channels, height, width)


def erase_normal(image, box, normal):
    """The box (top, left, height, width) of `normal` on the image."""
    top, left, height, width = box
    window = (slice(None), slice(top, top + height), slice(left, left + width))
    values = normal[window]
    if image.dtype == np.uint8:
        values = np.rint(np.clip(values, 0, 255))
    result = image.copy()
    result[window] = values
    return result


def _partners(values):
    return np.roll(values, 1, axis=0)


def mix_labels(labels, num_classes, mixes):
    own = np.eye(num_classes)[labels]
    weights = np.array([mix.weight for mix in mixes])[:, None]
    return own * weights + _partners(own) * (1 - weights)


def mix_up(images, mixes):
    weights = np.array([mix.weight for mix in mixes])[:, None, None, None]
    mixed = images.astype(np.float64) * weights + _partners(
        images.astype(np.float64)
    ) * (1 - weights)
    return np.rint(mixed).astype(np.uint8) if (
        images.dtype == np.uint8
    ) else mixed.astype(np.float32)


def cut_mix(images, mixes):
    mixed = images.copy()
    for row, (partner, mix) in enumerate(zip(_partners(images), mixes)):
        window = (
            slice(None), slice(mix.top, mix.bottom), slice(mix.left, mix.right)
        )
        mixed[row][window] = partner[window]
    return mixed
