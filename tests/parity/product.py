"""The product's ops, run by the program apply_ops."""

import json
import os
import subprocess

import numpy as np
from row import Drawn, Mix


class Refused(Exception):
    """The product refused the ops or the image."""


class Product:
    """A running apply_ops; close it, or use it in a with statement."""

    def __init__(self, program=None):
        self._process = subprocess.Popen(
            [os.path.abspath(program or os.environ["APPLY_OPS"])],
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

    def describe(self):
        """Returns what transform.proto says of every op: {op: {...}}."""
        self._process.stdin.write(b'{"describe": true}\n')
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def run(self, case, image, seed, epoch, sample):
        """An image [C, H, W] after a case's ops, and what explain says."""
        images, _, reply = self._run(
            case.transforms, image[None], seed, epoch, sample,
            is_mask=case.is_mask,
        )
        return images[0], Drawn(reply["drawn"], seed, epoch, sample)

    def draw(self, case, shape, dtype, seed, epoch, num_samples):
        """What explain says of each of the first samples, images [C, H, W]."""
        channels, height, width = shape
        reply = self._reply({
            "dtype": str(dtype), "channels": channels, "height": height,
            "width": width, "is_mask": case.is_mask, "num_images": 0,
            "num_drawn": num_samples, "seed": seed, "epoch": epoch,
            "sample": 0, "pipeline": {"transforms": case.transforms},
        }, b"")
        return reply["drawn"]

    def run_batch(self, case, images, labels, seed, epoch, batch):
        """Images [N, C, H, W] after a case's ops, their labels, and a Mix
        for each of them."""
        images, labels, reply = self._run(
            case.transforms, images, seed, epoch, 0, batch=batch,
            labels=[int(label) for label in labels],
        )
        mixes = [
            Mix(m["lambda"], m["top"], m["left"], m["bottom"], m["right"])
            for m in reply["mixed"]
        ]
        return images, labels, mixes

    def run_sequence(self, case, x, seed, epoch, sample):
        """A sample of a field of numbers after a case's ops."""
        request = {
            "dtype": str(x.dtype), "shape": x.shape, "num_images": 1,
            "seed": seed, "epoch": epoch, "batch": 0, "sample": sample,
            "pipeline": {"transforms": case.transforms},
        }
        data = x.tobytes()
        if case.noise:
            first = case.noise[0]
            request["noise"] = {
                "dtype": str(first.dtype),
                "channels": first.shape[1] if first.ndim > 1 else 0,
                "steps": [len(noise) for noise in case.noise],
            }
            data += b"".join(noise.tobytes() for noise in case.noise)
        reply = self._reply(request, data)
        return self._read(reply["shape"], reply["dtype"])

    def _reply(self, request, data):
        stdin = self._process.stdin
        stdin.write(json.dumps(request).encode() + b"\n")
        stdin.write(data)
        stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("apply_ops ended")
        reply = json.loads(line)
        if "error" in reply:
            raise Refused(reply["error"])
        return reply

    def _run(self, transforms, images, seed, epoch, sample, **others):
        """Images, labels and the reply."""
        count, channels, height, width = images.shape
        request = {
            "dtype": str(images.dtype),
            "num_images": count,
            "channels": channels,
            "height": height,
            "width": width,
            "is_mask": False,
            "seed": seed,
            "epoch": epoch,
            "batch": 0,
            "sample": sample,
            "pipeline": {"transforms": transforms},
            **others,
        }
        reply = self._reply(
            request, np.ascontiguousarray(images.transpose(0, 2, 3, 1)).tobytes()
        )
        shape = count, reply["channels"], reply["height"], reply["width"]
        result = self._read(shape, reply["dtype"])
        classes = self._read((count, reply["num_classes"]), "float32")
        return result, classes, reply

    def _read(self, shape, dtype):
        # NumPy has no bfloat16: the upper half of a float32.
        stored = np.dtype("uint16" if dtype == "bfloat16" else dtype)
        data = self._process.stdout.read(int(np.prod(shape)) * stored.itemsize)
        result = np.frombuffer(data, stored).reshape(shape)
        if dtype == "bfloat16":
            result = (result.astype(np.uint32) << 16).view(np.float32)
        return result
