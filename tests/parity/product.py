"""The product's ops, run by the program apply_ops."""

import json
import os
import subprocess

import numpy as np


class Refused(Exception):
    """The product refused the ops or the image."""


class Product:
    """A running apply_ops; close it, or use it in a with statement."""

    def __init__(self):
        self._process = subprocess.Popen(
            [os.path.abspath(os.environ["APPLY_OPS"])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def close(self):
        self._process.stdin.close()
        if self._process.wait() != 0:
            raise RuntimeError("apply_ops failed")

    def run(self, transforms, image, seed=0, epoch=0, sample=0):
        """An image [C, H, W] after the ops, and what they drew."""
        channels, height, width = image.shape
        request = {
            "dtype": str(image.dtype),
            "channels": channels,
            "height": height,
            "width": width,
            "seed": seed,
            "epoch": epoch,
            "sample": sample,
            "transforms": transforms,
        }
        stdin = self._process.stdin
        stdin.write(json.dumps(request).encode() + b"\n")
        stdin.write(np.ascontiguousarray(image.transpose(1, 2, 0)).tobytes())
        stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("apply_ops ended")
        reply = json.loads(line)
        if "error" in reply:
            raise Refused(reply["error"])
        shape = reply["channels"], reply["height"], reply["width"]
        count = int(np.prod(shape))
        data = self._process.stdout.read(count * image.dtype.itemsize)
        result = np.frombuffer(data, image.dtype).reshape(shape)
        return result, reply["drawn"]
