"""Writes docs/images/web-*.png: the page with two jobs, one of which waits.

    screenshots.py [DIRECTORY]

The pictures have few colours, so that they are small.
"""

import base64
import io
import json
import os
import subprocess
import sys

import numpy as np
from PIL import Image

from tests.testing import daemon_harness as harness
from tests.web.chromium import Chromium
from tests.web.web_harness import JOB, Web

harness.use_python_package()

_NUM_COLOURS = 128
_SIDE = 32
# Drawn alike for image and mask.
_GEOMETRY = [
    {"random_crop": {"height": 32, "width": 32, "padding": {
        "left": 4, "top": 4, "right": 4, "bottom": 4}}, "draw_id": 1},
    {"random_horizontal_flip": {"p": 0.5}, "draw_id": 2}]
_COLOUR = {"color_jitter": {"brightness": {"min": 0.6, "max": 1.4},
                            "hue": {"min": -0.1, "max": 0.1}}}


def _scene(random, kind):
    """An image that a reader tells from another: a shape on a background."""
    image = np.zeros((_SIDE, _SIDE, 3), np.float64)
    top, bottom, shape = random.integers(0, 256, (3, 3))
    image += np.linspace(top, bottom, _SIDE)[:, None, :]
    y, x = np.mgrid[0:_SIDE, 0:_SIDE]
    cy, cx = random.integers(11, 21, 2)
    radius = random.integers(6, 11)
    inside = {
        0: (y - cy) ** 2 + (x - cx) ** 2 < radius**2,
        1: (abs(y - cy) < radius) & (abs(x - cx) < radius),
        2: (abs(x - cx) < (y - cy + radius) / 2) & (y < cy + radius),
    }[kind]
    image[inside] = shape
    return image.clip(0, 255).astype(np.uint8), inside


def _shapes(client):
    random = np.random.default_rng(7)
    labels = np.arange(300) % 3
    pairs = [_scene(random, int(kind)) for kind in labels]
    return client.push_dataset(
        "shapes",
        {"image": np.stack([image for image, _ in pairs]),
         "mask": np.stack([inside.astype(np.uint8) * (kind + 1)
                           for (_, inside), kind in zip(pairs, labels)]),
         "label": labels},
        fields={"image": "image", "mask": "mask", "label": "array"},
        class_names=["circle", "square", "triangle"])


class _Train:
    """A job that is a file, as people's are."""

    def __init__(self, directory, address, **arguments):
        path = os.path.join(directory, "train.py")
        with open(path, "w") as file:
            file.write(harness.PRELUDE + JOB)
        self._process = subprocess.Popen(
            [sys.executable, path, address, json.dumps(arguments)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()


def _write(browser, path, selector):
    box = browser.run(
        f"(() => {{ const box = document.querySelector('{selector}')"
        ".getBoundingClientRect(); return [scrollX + box.left, scrollY + "
        "box.top, box.width, box.height]; })()")
    x, y, width, height = box
    data = browser.call(
        "Page.captureScreenshot", captureBeyondViewport=True,
        clip={"x": max(x - 16, 0), "y": max(y - 8, 0), "width": width + 32,
              "height": min(height + 16, 720), "scale": 1})["data"]
    image = Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")
    image.quantize(_NUM_COLOURS).save(path, optimize=True)
    print(f"{path}: {os.path.getsize(path)} bytes, {image.size}")


def main():
    if len(sys.argv) > 1:
        directory = sys.argv[1]
    else:
        directory = os.path.join(
            os.environ["BUILD_WORKSPACE_DIRECTORY"], "docs", "images")
    os.makedirs(directory, exist_ok=True)
    with harness.Daemon(host_threads=1) as daemon, \
            daemon.connect() as client, Chromium(1100, 900) as browser:
        _shapes(client)
        usual = {"name": "resnet", "batch_size": 16}
        slow = {"name": "large", "transforms": "slow", "batch_size": 8}
        with Web(daemon.socket_path) as web, \
                _Train(daemon.directory, daemon.socket_path, dataset="shapes",
                       pause=0.05, loaders=[usual]), \
                _Train(daemon.directory, daemon.socket_path, dataset="shapes",
                       pause=0.0, loaders=[slow]):
            for scheme in ("light", "dark"):
                browser.call("Emulation.setEmulatedMedia", features=[
                    {"name": "prefers-color-scheme", "value": scheme},
                    {"name": "prefers-reduced-motion", "value": "reduce"}])
                browser.open(web.page(
                    dataset="shapes", source="pasted", seed="1", epoch="3",
                    pasted=json.dumps({"image": [*_GEOMETRY, _COLOUR],
                                       "mask": _GEOMETRY}), window="10"))
                browser.wait(
                    "document.querySelectorAll('#grid li').length === 8")
                browser.wait("document.querySelector('.job.red') !== null && "
                             "document.querySelector('.job.green') !== null")
                browser.wait("document.querySelectorAll('#findings tr')"
                             ".length > 0 || document.querySelector("
                             "'#doctor-error').innerText !== ''")
                for name in ("jobs", "samples", "memory"):
                    if scheme == "dark" and name != "jobs":
                        continue
                    suffix = "-dark" if scheme == "dark" else ""
                    _write(browser, os.path.join(
                        directory, f"web-{name}{suffix}.png"), f"#{name}")


if __name__ == "__main__":
    main()
