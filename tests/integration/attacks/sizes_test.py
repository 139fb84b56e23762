"""Attacks by sizes: ops and images whose numbers or memory are too large."""

import os
import struct
import zlib

import pytest

from tests.testing import arena
from tests.testing import daemon_harness as harness

_MIB = 1 << 20

_ATTACKER = """
client = datasetd.connect(ADDRESS)
def attempt(call):
    try:
        call()
    except datasetd.InvalidArgument as error:
        return str(error)
    return None
while True:
    attack = hear()
    ops = [T.Pad(attack["pad"])] if "pad" in attack else []
    ops.append(T.Resize((1, 1), interpolation=attack["interpolation"]))
    def load(**options):
        return client.load_dataset(os.path.basename(attack["path"]), "npy",
                                   attack["path"], **options)
    def open_feed():
        loader = datasetd.DataLoader(load(), batch_size=1, transforms=ops,
                                     framework="numpy", fields=["image"])
        next(iter(loader))
    if attack["at_load"]:
        say(refusal=attempt(lambda: load(pretransforms={"image": ops})))
    else:
        say(refusal=attempt(open_feed))
"""


def _write_npy(directory, shape):
    """A sparse file of uint8 zeros."""
    os.makedirs(directory)
    header = str({"descr": "|u1", "fortran_order": False, "shape": shape})
    header = header.ljust(117) + "\n"
    path = os.path.join(directory, "image.npy")
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)))
        file.write(header.encode())
        num_bytes = 1
        for extent in shape:
            num_bytes *= extent
        file.truncate(file.tell() + num_bytes)
    return directory


@pytest.fixture(name="world", scope="module")
def _world():
    with arena.Arena(memory_budget_mib=2048) as world:
        yield world


@pytest.fixture(name="worker", scope="module")
def _worker(world):
    with world.attacker(_ATTACKER) as worker:
        yield worker


def _refusal(world, worker, **attack):
    with world.attack() as measure:
        worker.tell(**attack)
        refusal = worker.hear()["refusal"]
    assert refusal is not None, f"{attack} is accepted"
    assert measure.peak_bytes < 64 * _MIB
    world.expect_unhurt(measure)
    return refusal


@pytest.mark.parametrize("name, side, interpolation", [
    # Twice the filter's reach is beyond 2^31: the number of taps was negative.
    ("tap_overflow", 2**29 + 1, "bicubic"),
    # As many taps for as many rows: the bytes of scratch memory wrapped around.
    ("scratch_overflow", 2**30 - 1, "bilinear"),
])
def test_an_image_with_a_long_side_is_refused(world, worker, name, side,
                                              interpolation):
    tall = _write_npy(world.path(f"data/{name}"), (1, side, 1, 1))
    refusal = _refusal(world, worker, path=tall, at_load=True,
                       interpolation=interpolation)
    assert f"{side}x1" in refusal
    assert "transform_limits.max_side is 16777216" in refusal
    # A feed of one that is loaded, just above the limit.
    long = _write_npy(world.path(f"data/{name}-feed"), (1, 2**24 + 1, 1, 1))
    refusal = _refusal(world, worker, path=long, at_load=False,
                       interpolation=interpolation)
    assert "transform_limits.max_side is 16777216" in refusal
    # No large file is needed.
    small = _write_npy(world.path(f"data/{name}-pad"), (1, 4, 4, 1))
    for at_load in (True, False):
        refusal = _refusal(world, worker, path=small, at_load=at_load,
                           interpolation=interpolation,
                           pad=[0, 0, 0, side - 4])
        assert "transforms[0] Pad: " in refusal
        assert ("transform_limits.max_side" in refusal
                or "is more than 1073741823 elements" in refusal)
        assert f"{side}x4" in refusal


def _chunk(kind, data):
    return (struct.pack(">I", len(data)) + kind + data +
            struct.pack(">I", zlib.crc32(kind + data)))


def _write_png(path, side):
    """Grey, one bit a pixel, all black: some KB."""
    row = b"\0" + bytes((side + 7) // 8)
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) +
                   _chunk(b"IDAT", zlib.compress(row * side, 9)) +
                   _chunk(b"IEND", b""))


_BOMBER = """
client = datasetd.connect(ADDRESS)
while True:
    attack = hear()
    ops = [T.Rotate(30), T.Resize((8, 8))]
    options = dict(options={"max_pixels": "500000000"},
                   pretransforms={"image": ops})
    try:
        dataset = client.load_dataset(attack["name"], "image_folder",
                                      ARGUMENTS["path"],
                                      bad_samples=attack["policy"], **options)
    except datasetd.Error as error:
        say(error=str(error))
        continue
    say(num_samples=len(dataset),
        reasons=[sample.reason for sample in dataset.bad_samples])
"""


def test_pretransform_memory():
    limits = {"max_sample_memory_mib": 64, "decode_memory_mib": 128}
    with arena.Arena(**limits) as world:
        classes = world.path("data/bombs/class")
        os.makedirs(classes)
        _write_png(os.path.join(classes, "a.png"), 16)
        for name in "bcdefgh":
            _write_png(os.path.join(classes, f"{name}.png"), 8000)
        # Rotated, 192 MB of pixels are 1.5 GB of float32. Small enough to
        # decode, too large to rotate.
        _write_png(os.path.join(classes, "i.png"), 4000)
        with world.attack() as measure, world.attacker(
                _BOMBER, path=world.path("data/bombs")) as bomber:
            bomber.tell(name="failing", policy="fail")
            error = bomber.hear()["error"]
            assert "bombs/class/b.png" in error
            bomber.tell(name="skipping", policy="skip")
            loaded = bomber.hear()
            assert loaded["num_samples"] == 1
            assert len(loaded["reasons"]) == 8
            for reason in loaded["reasons"]:
                assert ("max_sample_memory_mib of the daemon's configuration "
                        "is 64") in reason or "max_scratch_mib" in reason
            assert any("max_sample_memory_mib" in reason
                       for reason in loaded["reasons"])
        # Two buffers of a chunk, and the samples.
        assert measure.peak_bytes < 256 * _MIB
        world.expect_unhurt(measure)


if __name__ == "__main__":
    harness.main(__file__)
