"""Compares datasetd's and torchvision's ops on the same images, op by op.

datasetd tells its draws, and torchvision's functions are run with them.
"""

import tempfile

import datasetd
import numpy as np
import torch
import torchvision.transforms.functional as F
from datasetd import transforms as T
from PIL import Image

from tests.conformance import loader_harness as harness


def _resized_crop(image, drawn):
    box = [int(drawn[key][0]) for key in ("top", "left", "height", "width")]
    size = [int(value) for value in drawn["size"]]
    return F.resized_crop(image, *box, size, antialias=True)


def _affine(image, drawn):
    return F.affine(image, drawn["angle"][0], drawn["translate"],
                    drawn["scale"][0], drawn["shear"])


def _with_factor(function, key):
    return lambda image, drawn: function(image, drawn[key][0])


# By the names that explain uses.
FUNCTIONS = {
    "Resize": _resized_crop,
    "HorizontalFlip": lambda image, _: F.hflip(image),
    "Affine": _affine,
    "AdjustBrightness": _with_factor(F.adjust_brightness, "brightness_factor"),
    "AdjustContrast": _with_factor(F.adjust_contrast, "contrast_factor"),
    "AdjustSaturation": _with_factor(F.adjust_saturation, "saturation_factor"),
    "AdjustHue": _with_factor(F.adjust_hue, "hue_factor"),
}


def _torchvision(image, drawn, num_ops):
    """`image` [3, H, W] in levels after each of the list's ops, float64."""
    found = []
    for position in range(num_ops):
        for op in drawn:
            if op.position == position and op.is_applied:
                image = FUNCTIONS[op.name](image, op.parameters)
        if isinstance(image, torch.Tensor):
            found.append(image.double().numpy() * 255)
        else:
            found.append(np.asarray(image, np.float64).transpose(2, 0, 1))
    return np.stack(found)


def _datasetd(dataset, ops, seed):
    with datasetd.DataLoader(
        dataset, batch_size=500, shuffle=False, seed=seed, framework="torch",
        transforms=ops,
    ) as loader:
        batches = [batch[0].double().numpy() * 255 for batch in loader]
    return np.concatenate(batches)


def compare(daemon, images, ops, seed=0):
    """Levels of 255: [{pipeline: mean, deviation, and from the tensors}].

    Of one epoch of `images` [N, H, W, 3], uint8. After each of `ops`: of all
    pixels of a pipeline the mean and the standard deviation, and of their
    difference from torchvision's on float tensors the mean, the root of the
    mean square, and the largest amount.
    """
    to_float = T.ToDtype("float32", scale=True)
    with tempfile.TemporaryDirectory() as directory:
        # As bytes, and as the floats that torchvision's tensors are.
        whole = daemon.load(harness.write_npy(directory + "/u8", image=images))
        floats = daemon.load(harness.write_npy(
            directory + "/f32", image=images.astype(np.float32) / 255))
    explained = daemon.client.explain(whole, ops, seed, 0, range(len(images)))
    tensors, pillow = [], []
    for image, drawn in zip(images, explained):
        tensor = torch.from_numpy(image).permute(2, 0, 1).float() / 255
        tensors.append(_torchvision(tensor, drawn, len(ops)))
        pillow.append(_torchvision(Image.fromarray(image), drawn, len(ops)))
    tensors, pillow = np.stack(tensors, 1), np.stack(pillow, 1)
    rows = []
    for i in range(len(ops)):
        first = ops[:i + 1]
        row = {}
        for name, values in (
            ("tensors", tensors[i]),
            ("pillow", pillow[i]),
            ("datasetd", _datasetd(whole, first + [to_float], seed)),
            ("datasetd on floats", _datasetd(floats, first, seed)),
        ):
            difference = values - tensors[i]
            row[name] = {
                "mean": values.mean(),
                "deviation": values.std(),
                "mean_difference": difference.mean(),
                "rms_difference": np.sqrt((difference**2).mean()),
                "max_difference": np.abs(difference).max(),
            }
        rows.append(row)
    return rows
