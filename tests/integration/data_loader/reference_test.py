"""Pixels through the daemon against two independent implementations.

One is plain NumPy (tests/conformance/loader_reference.py), the other the
functional ops of the installed torchvision; both with random parameters drawn
by the NumPy Philox. Equal bit for bit.
"""


import numpy as np
import pytest
import torch
import torchvision.transforms.functional as F
from datasetd import transforms as T
from torchvision.transforms import InterpolationMode

from tests.conformance import loader_harness as harness
from tests.conformance import loader_reference as reference

daemon = harness.daemon

N = 24
SEED = 0x1234_5678_9ABC_DEF0
# Above 2^16: no word of the counter is cut.
EPOCH = 70001

SHAPES = [(28, 28, 1), (32, 32, 3), (33, 31, 4), (224, 224, 3)]
DTYPES = ["uint8", "float16", "bfloat16", "float32"]
LAYOUTS = ["NCHW", "NHWC"]
MODES = ["constant", "edge", "reflect", "symmetric"]


def statistics(channels):
    return (
        [0.4914, 0.4822, 0.4465, 0.5][:channels],
        [0.2470, 0.2435, 0.2616, 0.3][:channels],
    )


def to_dtype_and_normalize(dtype, channels):
    if dtype == "uint8":
        return []
    return [T.ToDtype(dtype, scale=True), T.Normalize(*statistics(channels))]


class Torchvision:
    """torchvision.transforms.functional on uint8 or float32 [C, H, W]."""

    @staticmethod
    def pad(image, padding, fill=0, mode="constant"):
        fills = list(np.broadcast_to(np.asarray(fill), image.shape[:1]))
        if mode != "constant" or len(set(fills)) == 1:
            fill = float(fills[0])
            fill = int(fill) if image.dtype == torch.uint8 else fill
            return F.pad(image, list(padding), fill, mode)
        # The functional form pads a tensor with one value for all channels.
        return torch.cat(
            [
                Torchvision.pad(image[c : c + 1], padding, fills[c], mode)
                for c in range(len(fills))
            ]
        )

    crop = staticmethod(F.crop)
    flip_horizontally = staticmethod(F.hflip)
    flip_vertically = staticmethod(F.vflip)

    @staticmethod
    def center_crop(image, height, width):
        return F.center_crop(image, [height, width])

    @staticmethod
    def to_float(image, scale):
        if scale:
            return F.convert_image_dtype(image, torch.float32)
        return image.to(torch.float32)

    @staticmethod
    def normalize(image, mean, std):
        return F.normalize(image, mean, std)

    @staticmethod
    def size(image):
        return tuple(image.shape[1:])


def by_numpy(ops, image, draws, dtype):
    """[C, H, W], of bfloat16 the bits."""
    result = reference.apply(ops, image, draws)
    return reference.round_to(result, dtype).transpose(2, 0, 1)


def by_torchvision(ops, image, draws, dtype):
    tensor = torch.from_numpy(image.transpose(2, 0, 1).copy())
    result = reference.apply(ops, tensor, draws, Torchvision).to(
        getattr(torch, dtype)
    )
    if dtype == "bfloat16":
        bits = result.contiguous().view(torch.int16)
        return bits.numpy().view(np.uint16)
    return result.numpy()


@pytest.fixture(scope="module")
def dataset_of(daemon, tmp_path_factory):
    loaded = {}

    def load(shape, dtype=np.uint8):
        key = (shape, np.dtype(dtype))
        if key not in loaded:
            image = harness.images(N, shape)
            if dtype != np.uint8:
                image = (image / np.float32(255) - 0.5).astype(dtype)
            path = harness.write_npy(
                tmp_path_factory.mktemp("images"),
                image=image,
                label=harness.labels(N),
            )
            loaded[key] = (daemon.load(path), image)
        return loaded[key]

    return load


def check(daemon, dataset, image, ops, dtype, layout="NCHW"):
    with daemon.loader(
        dataset,
        batch_size=7,
        shuffle=True,
        seed=SEED,
        transforms=ops,
        layout=layout,
        prefetch=1,
        framework="torch",  # which has bfloat16, and tensors of NHWC
    ) as loader:
        loader.set_epoch(EPOCH)
        batches = harness.take_epoch(loader)
    compared = 0
    for batch in batches:
        assert batch.epoch == EPOCH
        if layout == "NHWC":
            # [N, C, H, W] whose channels are dense.
            strides = batch.fields[0].strides
            assert strides[1] == batch.fields[0].itemsize
        for row, sample in zip(batch.fields[0], batch.indices):
            draws = reference.Draws(SEED, EPOCH, int(sample))
            expected = by_numpy(ops, image[sample], draws, dtype)
            assert row.dtype == expected.dtype
            np.testing.assert_array_equal(row, expected)
            np.testing.assert_array_equal(
                row, by_torchvision(ops, image[sample], draws, dtype)
            )
            compared += 1
    assert compared == len(image)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_training_pipeline(daemon, dataset_of, shape, dtype, layout):
    """Crop with padding, both flips, ToDtype, Normalize."""
    height, width, channels = shape
    ops = [
        T.RandomCrop((height, width), padding=4, padding_mode="reflect"),
        T.RandomHorizontalFlip(),
        T.RandomVerticalFlip(0.25),
    ] + to_dtype_and_normalize(dtype, channels)
    check(daemon, *dataset_of(shape), ops, dtype, layout)


@pytest.mark.parametrize("dtype", ["uint8", "float16"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", SHAPES[:3], ids=str)
def test_random_crop(daemon, dataset_of, shape, mode, dtype):
    """Uneven padding, another size, a fill for each channel."""
    height, width, channels = shape
    fill = [7, 250, 0, 128][:channels] if mode == "constant" else 0
    ops = [
        T.RandomCrop(
            (height - 3, width + 2),
            padding=(1, 2, 6, 3),
            fill=fill,
            padding_mode=mode,
        )
    ] + to_dtype_and_normalize(dtype, channels)
    check(daemon, *dataset_of(shape), ops, dtype)


@pytest.mark.parametrize("dtype", ["uint8", "bfloat16"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", SHAPES[:3], ids=str)
def test_pad(daemon, dataset_of, shape, mode, dtype):
    channels = shape[2]
    fill = [1, 2, 3, 4][:channels] if mode == "constant" else 0
    ops = [
        T.Pad((3, 0, 2, 5), fill=fill, padding_mode=mode)
    ] + to_dtype_and_normalize(dtype, channels)
    check(daemon, *dataset_of(shape), ops, dtype)


@pytest.mark.parametrize(
    "ops",
    [
        [T.RandomCrop((20, 24))],
        [T.RandomCrop((40, 36), pad_if_needed=True, fill=9)],
        [
            T.RandomCrop(
                (33, 60), padding=2, pad_if_needed=True, padding_mode="edge"
            )
        ],
        [T.CenterCrop(20)],
        [T.CenterCrop((21, 30))],
        [T.CenterCrop((35, 20))],
        [T.CenterCrop((41, 40))],
        [T.AlternatingFlip()],
        [T.RandomHorizontalFlip(1.0), T.RandomVerticalFlip(1.0)],
        [T.RandomHorizontalFlip(0.0), T.RandomVerticalFlip(0.0)],
        [T.RandomVerticalFlip(), T.RandomCrop(17), T.AlternatingFlip()],
        [
            T.Pad(2, fill=200),
            T.RandomCrop(30),
            T.Pad((0, 3), padding_mode="symmetric"),
            T.RandomCrop(25, padding=5, fill=60),
            T.CenterCrop(23),
            T.RandomHorizontalFlip(),
            T.Pad(1, padding_mode="reflect"),
        ],
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", [(32, 32, 3), (33, 31, 4)], ids=str)
def test_moves(daemon, dataset_of, shape, ops):
    check(daemon, *dataset_of(shape), ops, "uint8")
    check(
        daemon,
        *dataset_of(shape),
        ops + to_dtype_and_normalize("float32", shape[2]),
        "float32",
        "NHWC",
    )


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_to_dtype_without_scale(daemon, dataset_of, dtype):
    check(daemon, *dataset_of((32, 32, 3)), [T.ToDtype(dtype)], dtype)


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_pad_after_normalize(daemon, dataset_of, dtype):
    """The fill is in the units of the image at the op."""
    ops = [
        T.ToDtype("float32", scale=True),
        T.Normalize(*statistics(3)),
        T.RandomCrop(32, padding=4, fill=[0.25, -1.5, 2.0]),
    ]
    if dtype != "float32":
        ops.append(T.ToDtype(dtype))
    check(daemon, *dataset_of((32, 32, 3)), ops, dtype)


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_float32_images(daemon, dataset_of, dtype):
    """Resident float32: no scaling, whatever `scale` says."""
    ops = [
        T.RandomCrop(32, padding=4, fill=[0.25, -1.5, 2.0]),
        T.RandomHorizontalFlip(),
        T.ToDtype(dtype),
        T.Normalize(*statistics(3)),
    ]
    check(daemon, *dataset_of((32, 32, 3), np.float32), ops, dtype)


def test_alternating_flip_shows_both_sides_in_two_epochs(daemon, dataset_of):
    dataset, image = dataset_of((32, 32, 3))
    with daemon.loader(
        dataset, batch_size=N, transforms=[T.AlternatingFlip()], seed=5
    ) as loader:
        first, second, third = [
            harness.take_epoch(loader)[0].fields[0] for _ in range(3)
        ]
    planes = image.transpose(0, 3, 1, 2)
    for i in range(N):
        sides = {first[i].tobytes(), second[i].tobytes()}
        mirrored = planes[i][:, :, ::-1]
        assert sides == {planes[i].tobytes(), mirrored.tobytes()}
    np.testing.assert_array_equal(first, third)
    is_mirrored = (first != planes).any(axis=(1, 2, 3))
    assert 0 < is_mirrored.sum() < N


@pytest.mark.parametrize("fill", [None, 0, 200.0])
def test_no_fill_is_none_of_torchvisions(daemon, dataset_of, fill):
    dataset, sources = dataset_of((33, 31, 3))
    bilinear = InterpolationMode.BILINEAR
    ops = [T.ToDtype("float32"), T.Rotate(30, "bilinear", fill=fill)]
    with daemon.loader(dataset, batch_size=N, transforms=ops) as loader:
        images = harness.take_epoch(loader)[0].fields[0]
    assert len(images) == len(sources)
    for image, source in zip(images, sources):
        expected = F.rotate(
            torch.from_numpy(source).permute(2, 0, 1).float(), 30, bilinear,
            fill=None if fill is None else [fill] * 3)
        np.testing.assert_allclose(image, expected, atol=1e-2)


def test_the_numpy_philox_gives_the_known_answers():
    """The answers are those of Random123, for philox4x32-10."""
    ones = 0xFFFFFFFF
    assert reference.philox([0, 0, 0, 0], 0) == [
        0x6627E8D5,
        0xE169C58D,
        0xBC57AC4C,
        0x9B00DBD8,
    ]
    assert reference.philox([ones] * 4, ones << 32 | ones) == [
        0x408F276D,
        0x41C83B0E,
        0xA20BC7C6,
        0x6D5451FD,
    ]
    assert reference.philox(
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], 0x299F31D0A4093822
    ) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


if __name__ == "__main__":
    harness.main(__file__)
