"""A real daemon, its Python client, and batches as NumPy arrays.

What the tests of the loader share. Each runs on every device of DEVICES: "cpu"
everywhere, "cuda:0" where there is a GPU. Without one the CUDA half is
skipped, or fails if DATASETD_REQUIRE_GPU=1.
"""

import ctypes
import glob
import gzip
import os
import struct

import numpy as np
import pytest


def runfile(path):
    """A built file, where Bazel runs tests and programs."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    return os.path.join(os.path.abspath(root), path)


# Other ones can be named, as where Bazel did not build them.
os.environ.setdefault("DATASETD_DAEMON", runfile("server/datasetd"))
os.environ.setdefault(
    "DATASETD_LIBRARY", runfile("client/c_api/libdatasetd.so"))

import datasetd  # noqa: E402

DEVICES = ("cpu", "cuda:0")


def has_gpu():
    # Where tests run on an emulated GPU, they say how many.
    return bool(
        glob.glob("/dev/nvidia[0-9]*")
        or os.environ.get("DATASETD_EMULATED_GPU_DEVICES")
    )


def require_device(device):
    """Skips, or fails if it must not, where there is no such device."""
    if device == "cpu" or has_gpu():
        return
    message = f"no GPU here, so nothing is tested on {device}"
    if os.environ.get("DATASETD_REQUIRE_GPU") == "1":
        pytest.fail(message)
    pytest.skip(message)


def start_daemon(device="cpu", host_threads=0):
    arguments = [f"--host_threads={host_threads}"] if host_threads else []
    return datasetd.start_local(device=device, arguments=arguments)


class Daemon:
    """A daemon on one device with a client; a context manager."""

    def __init__(self, device="cpu", host_threads=0):
        self.device = device
        self.process = start_daemon(device, host_threads)
        self.client = self.process.connect()
        self._num_datasets = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()
        self.process.close()

    def load(self, path, format="npy", name=None, **options):
        self._num_datasets += 1
        return self.client.load_dataset(
            name or f"data-{self._num_datasets}",
            format=format,
            path=path,
            device=self.device,
            **options,
        )

    def loader(self, dataset, **options):
        options.setdefault("timeout", 120)
        if self.device == "cpu":
            # To import torch takes longer than most tests.
            options.setdefault("framework", "numpy")
        else:
            # Read through the driver: no framework with CUDA is needed.
            options["framework"] = "dlpack"
        return datasetd.DataLoader(dataset, **options)


@pytest.fixture(scope="module", params=DEVICES)
def daemon(request):
    """A Daemon on each device; a test file makes the name its own."""
    require_device(request.param)
    with Daemon(request.param) as made:
        yield made


# -- Arrays -----------------------------------------------------------------


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_capsule_pointer = ctypes.PYFUNCTYPE(
    ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p
)(("PyCapsule_GetPointer", ctypes.pythonapi))


def _copy_from_gpu(to, address, size_bytes, ordinal):
    driver = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), ordinal) == 0
    assert driver.cuCtxPushCurrent_v2(context) == 0
    copy = driver.cuMemcpyDtoH_v2
    copy.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t]
    assert copy(to, address, size_bytes) == 0
    assert driver.cuCtxPopCurrent_v2(None) == 0
    assert driver.cuDevicePrimaryCtxRelease_v2(ordinal) == 0


def _copy_from_device(tensor):
    """A datasetd.Tensor's elements; of bfloat16 the bits, as uint16."""
    capsule = tensor.__dlpack__()
    view = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    shape = tuple(view.shape[i] for i in range(view.ndim))
    kinds = {0: "i", 1: "u", 2: "f", 4: "u"}  # 4 is bfloat16
    dtype = np.dtype(f"{kinds[view.code]}{view.bits // 8}")
    strides = tuple(view.strides[i] * dtype.itemsize for i in range(view.ndim))
    span = dtype.itemsize + sum(
        (extent - 1) * stride for extent, stride in zip(shape, strides)
    )
    data = np.empty(span, np.uint8)
    address = view.data + view.byte_offset
    if view.device_type == 2:
        _copy_from_gpu(data.ctypes.data, address, span, view.device_id)
    else:
        ctypes.memmove(data.ctypes.data, address, span)
    return np.lib.stride_tricks.as_strided(data.view(dtype), shape, strides)


def array(value):
    """A field of a batch as a NumPy array; of bfloat16 the bits, as uint16.

    What it was made of may be freed.
    """
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, datasetd.Tensor):
        return _copy_from_device(value)
    import torch

    copy = value.clone(memory_format=torch.preserve_format)
    if value.dtype == torch.bfloat16:
        return copy.view(torch.int16).numpy().view(np.uint16)
    return copy.numpy()


class Taken:
    """A copy of a batch; the batch itself is given back."""

    def __init__(self, batch):
        self.fields = [array(field) for field in batch]
        self.indices = array(batch.indices).copy()
        self.epoch = batch.epoch
        self.index = batch.index
        self.num_samples = batch.num_samples
        self.num_padding = batch.num_padding

    def bits(self, field=0):
        """The rows of a field as bytes, [num_samples, bytes]."""
        rows = np.ascontiguousarray(self.fields[field])
        return rows.reshape(len(rows), -1).view(np.uint8)


def take_epoch(loader):
    """Copies of all batches of the next epoch."""
    return [Taken(batch) for batch in loader]


def contents(batch):
    """All that a batch has, for comparisons; the batch itself is given back."""
    taken = Taken(batch)
    fields = [taken.bits(field).tobytes() for field in range(len(taken.fields))]
    return taken.epoch, taken.index, taken.indices.tolist(), fields


def by_sample(batches, field=0):
    """{sample: bytes of its row} of what take_epoch gave."""
    rows = {}
    for batch in batches:
        for sample, row in zip(batch.indices, batch.bits(field)):
            rows[int(sample)] = row.tobytes()
    return rows


def main(file):
    """Runs the tests of a file; exits with pytest's code."""
    from tests.testing import pytest_file  # which the release does not have

    pytest_file.main(file)


# -- Data -------------------------------------------------------------------


def images(num_samples, shape, seed=0):
    """uint8 [N, *shape] without structure."""
    return np.random.default_rng(seed).integers(
        0, 256, (num_samples,) + tuple(shape), dtype=np.uint8
    )


def numbered_images(num_samples, shape=(2, 2, 3)):
    """Images whose first four bytes are the sample's number."""
    result = images(num_samples, shape)
    flat = result.reshape(num_samples, -1)
    numbers = np.arange(num_samples, dtype="<u4")
    flat[:, :4] = numbers.view(np.uint8).reshape(num_samples, 4)
    return result


def numbers_of(images_nchw):
    """The numbers that numbered_images wrote, from [N, C, H, W]."""
    rows = np.ascontiguousarray(images_nchw.transpose(0, 2, 3, 1))
    flat = rows.reshape(len(rows), -1)
    return np.ascontiguousarray(flat[:, :4]).view("<u4").reshape(-1)


def labels(num_samples):
    """int64 [N], a function of the sample's number."""
    return (np.arange(num_samples, dtype=np.int64) * 7 + 3) % 1009


def write_npy(directory, **fields):
    """A directory for format "npy"; returns its path."""
    os.makedirs(directory, exist_ok=True)
    for name, values in fields.items():
        np.save(os.path.join(directory, name + ".npy"), values)
    return str(directory)


def write_mnist_gz(directory, image, label):
    """MNIST's training files, gzip."""
    os.makedirs(directory, exist_ok=True)
    header = struct.pack(">4I", 0x803, *image.shape)
    with gzip.open(
        os.path.join(directory, "train-images-idx3-ubyte.gz"), "wb"
    ) as file:
        file.write(header + image.tobytes())
    with gzip.open(
        os.path.join(directory, "train-labels-idx1-ubyte.gz"), "wb"
    ) as file:
        file.write(struct.pack(">2I", 0x801, len(label)) + label.tobytes())
    return str(directory)


def write_cifar10(directory, image, label):
    """CIFAR-10's training files: five, of equally many records or nearly."""
    os.makedirs(directory, exist_ok=True)
    planes = image.transpose(0, 3, 1, 2).reshape(len(image), -1)
    records = np.concatenate([label.astype(np.uint8)[:, None], planes], axis=1)
    for i, part in enumerate(np.array_split(records, 5)):
        part.tofile(os.path.join(directory, f"data_batch_{i + 1}.bin"))
    return str(directory)
