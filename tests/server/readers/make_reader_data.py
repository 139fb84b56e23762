"""Writes one directory per case: source files, and what a reader must give.

Written with numpy, gzip and struct alone, from the formats' descriptions, and
images with PIL; it shares nothing with the readers. Usage: make_reader_data.py OUT

  OUT/<case>/source/...        the files of the format
  OUT/<case>/expected.json     format, options, split, samples, fields, names
  OUT/<case>/<field>.expected  the field's bytes of all samples, C order
"""

import gzip
import io
import json
import os
import struct
import sys

import make_image_data
import numpy as np

RNG = np.random.default_rng(20240229)
CIFAR10_NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog",
                 "frog", "horse", "ship", "truck"]


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


class Case:
    """One source and its expected samples."""

    def __init__(self, out, name, format_name, split="", options=None,
                 subdirectory=""):
        self.directory = os.path.join(out, name)
        self.subdirectory = subdirectory
        self.expected = {"format": format_name, "split": split,
                         "options": options or {}, "fields": [],
                         "class_names": [], "files": []}

    def source(self, name, data, is_listed=True):
        relative = os.path.join(self.subdirectory, name)
        write(os.path.join(self.directory, "source", relative), data)
        if is_listed:
            self.expected["files"].append(relative)

    def field(self, name, array, dtype, shape, is_image, is_mask=False):
        write(os.path.join(self.directory, name + ".expected"),
              np.ascontiguousarray(array).tobytes())
        self.expected["num_samples"] = int(array.shape[0])
        self.expected["fields"].append(
            {"name": name, "dtype": dtype, "shape": list(shape),
             "is_image": is_image, "is_mask": is_mask})

    def close(self):
        write(os.path.join(self.directory, "expected.json"),
              json.dumps(self.expected).encode())


def images(*shape):
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def cifar_records(pixels, *labels):
    heads = np.stack(labels, axis=1)
    planes = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
    return np.concatenate([heads, planes], axis=1).tobytes()


def cifar10(out, name, split, sizes, subdirectory, has_names):
    case = Case(out, name, "cifar10", split, subdirectory=subdirectory)
    count = sum(sizes)
    pixels = images(count, 32, 32, 3)
    labels = RNG.integers(0, 10, count, dtype=np.uint8)
    labels[0], labels[-1] = 9, 0
    begin = 0
    for i, size in enumerate(sizes):
        end = begin + size
        file = ("test_batch.bin" if split == "test"
                else "data_batch_%d.bin" % (i + 1))
        case.source(file, cifar_records(pixels[begin:end], labels[begin:end]))
        begin = end
    if has_names:
        case.source("batches.meta.txt",
                    ("\n".join(CIFAR10_NAMES) + "\n\n").encode())
        case.expected["class_names"] = CIFAR10_NAMES
    case.field("image", pixels, "uint8", [32, 32, 3], True)
    case.field("label", labels, "uint8", [], False)
    case.close()


def cifar100(out, name, split, count, subdirectory):
    case = Case(out, name, "cifar100", split, subdirectory=subdirectory)
    pixels = images(count, 32, 32, 3)
    fine = RNG.integers(0, 100, count, dtype=np.uint8)
    coarse = RNG.integers(0, 20, count, dtype=np.uint8)
    fine[0], coarse[0] = 99, 19
    case.source(("test" if split == "test" else "train") + ".bin",
                cifar_records(pixels, coarse, fine))
    names = ["class_%d" % i for i in range(100)]
    case.source("fine_label_names.txt", ("\n".join(names) + "\n").encode())
    case.expected["class_names"] = names
    case.field("image", pixels, "uint8", [32, 32, 3], True)
    case.field("label", fine, "uint8", [], False)
    case.field("coarse_label", coarse, "uint8", [], False)
    case.close()


def idx(array):
    header = struct.pack(">BBBB", 0, 0, 8, array.ndim)
    return header + struct.pack(">%dI" % array.ndim,
                                *array.shape) + array.tobytes()


def compress(data, members):
    step = -(-len(data) // members)
    return b"".join(gzip.compress(data[i:i + step], 9)
                    for i in range(0, len(data), step))


def mnist(out, name, split, shape, members=0, dotted=False, pixels=None):
    case = Case(out, name, "mnist", split)
    pixels = images(*shape) if pixels is None else pixels
    labels = RNG.integers(0, 10, shape[0], dtype=np.uint8)
    prefix = "t10k" if split == "test" else "train"
    separator = "." if dotted else "-"
    for kind, data in (("images%sidx3" % separator, idx(pixels)),
                       ("labels%sidx1" % separator, idx(labels))):
        file = "%s-%s-ubyte" % (prefix, kind)
        if members:
            case.source(file + ".gz", compress(data, members))
        else:
            case.source(file, data)
    case.field("image", pixels, "uint8", list(shape[1:]) + [1], True)
    case.field("label", labels, "uint8", [], False)
    case.close()


def npy_bytes(array, version):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version=version)
    return buffer.getvalue()


def npy(out, name, arrays, image_fields=(), version=(1, 0), options=None,
        mask_fields=()):
    case = Case(out, name, "npy", options=options)
    for field in sorted(arrays):
        array = arrays[field]
        case.source(field + ".npy", npy_bytes(array, version))
        dtype = "uint8" if array.dtype == np.bool_ else str(array.dtype)
        shape = list(array.shape[1:])
        is_image = field in image_fields
        if is_image and len(shape) == 2:
            shape.append(1)
        case.field(field, array, dtype, shape, is_image, field in mask_fields)
    case.close()


def main(out):
    # Odd numbers of records: no 64th of such a file ends with a record.
    cifar10(out, "cifar10_train", "", [3, 5, 1, 7, 1], "", True)
    cifar10(out, "cifar10_test", "test", [5], "", False)
    cifar10(out, "cifar10_parent", "train", [1] * 5, "cifar-10-batches-bin",
            True)
    cifar10(out, "cifar10_blocks", "test", [601], "", False)
    cifar100(out, "cifar100_train", "", 7, "")
    cifar100(out, "cifar100_test", "test", 3, "cifar-100-binary")

    mnist(out, "mnist_train", "", (9, 28, 28))
    mnist(out, "mnist_test", "test", (5, 28, 28))
    mnist(out, "mnist_gzip", "train", (9, 28, 28), members=1)
    mnist(out, "mnist_gzip_members", "test", (11, 7, 3), members=3)
    mnist(out, "mnist_gzip_zeros", "train", (300, 28, 28), members=1,
          pixels=np.zeros((300, 28, 28), np.uint8))
    mnist(out, "mnist_dotted", "train", (1, 1, 1), dotted=True)
    mnist(out, "mnist_odd", "train", (13, 5, 31))

    count = 11
    npy(out, "npy_images", {
        "image": images(count, 6, 5, 3),
        "label": RNG.integers(-2**62, 2**62, count, dtype=np.int64),
    }, ["image"])
    npy(out, "npy_every_dtype", {
        "a": images(count),
        "b": RNG.integers(0, 2, (count, 3)).astype(np.bool_),
        "c": RNG.integers(-2**15, 2**15, (count, 2), dtype=np.int16),
        "d": RNG.integers(-2**31, 2**31, (count, 1), dtype=np.int32),
        "e": RNG.integers(-2**62, 2**62, (count, 2, 2), dtype=np.int64),
        "f": RNG.standard_normal((count, 7)).astype(np.float16),
        "g": RNG.standard_normal((count, 7)).astype(np.float32),
        "h": RNG.standard_normal((count, 2, 3, 1, 2)),
    }, version=(2, 0))
    npy(out, "npy_image_rules", {
        "codes": images(count, 4, 4, 5),
        "depth": RNG.standard_normal((count, 4, 6, 1)).astype(np.float32),
        "grey": images(count, 4, 6),
        "image": RNG.standard_normal((count, 4, 6)).astype(np.float32),
        "mask": RNG.integers(0, 2, (count, 4, 6)).astype(np.bool_),
        "spectrum": RNG.standard_normal((count, 4, 6)).astype(np.float32),
        "vector": images(count, 4),
    }, ["depth", "grey", "image", "mask"], version=(3, 0),
        mask_fields=["mask"])
    npy(out, "npy_images_option", {
        "grey": images(count, 4, 6),
        "spectrum": RNG.standard_normal((count, 4, 6)).astype(np.float32),
        "_x9": images(count, 2, 2, 2),
    }, ["spectrum"], options={"images": "spectrum, -grey,-_x9"})
    npy(out, "npy_masks_option", {
        "classes": RNG.integers(0, 9, (count, 4, 6)).astype(np.uint8),
        "grey": images(count, 4, 6),
        "mask": images(count, 4, 6),
    }, ["classes", "grey", "mask"], options={"masks": "classes,-mask"},
        mask_fields=["classes"])
    npy(out, "npy_one_sample", {"x": images(1)})

    make_archive_data.main(out)


if __name__ == "__main__":
    import make_archive_data  # imports this module

    main(sys.argv[1])
    make_image_data.main(sys.argv[1])
