"""The ops that torchvision 0.14 lacks, in NumPy, from their formulas."""

import numpy as np


def posterize(image, bits):
    """Of a floating point image: 2^bits levels."""
    levels = 2**bits
    return (
        np.clip(np.floor(image.astype(np.float64) * levels), 0, levels - 1)
        / levels
    ).astype(np.float32)


def equalize(image):
    """Of a floating point image, through 8 bits and PIL's table."""
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


def erase(image, top, left, height, width, values):
    """One value, or one per channel."""
    result = image.copy()
    values = np.asarray(values, image.dtype).reshape(-1, 1, 1)
    result[:, top : top + height, left : left + width] = values
    return result
