"""Writes the seeds of the readers' fuzzers: make_corpus.py tests/fuzz/readers/corpus."""

import gzip
import io
import os
import struct
import sys

import numpy as np
from PIL import Image


def write(out, folder, name, data):
    directory = os.path.join(out, folder)
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, name), "wb") as file:
        file.write(data)


def part(data):
    return struct.pack("<H", len(data)) + data


def idx(array):
    return (struct.pack(">BBBB", 0, 0, 8, array.ndim) +
            struct.pack(">%dI" % array.ndim, *array.shape) + array.tobytes())


def npy(array, version=(1, 0)):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version=version)
    return buffer.getvalue()


def main(out):
    pixels = bytes(i % 251 for i in range(3072))
    names = "\n".join("abcdefghij").encode()
    write(out, "cifar_reader", "cifar10", b"\0" + part(b"") + b"\x05" + pixels)
    write(out, "cifar_reader", "cifar10_names",
          b"\0" + part(names) + b"\x09" + pixels)
    write(out, "cifar_reader", "cifar100",
          b"\1" + part(b"") + b"\x13\x63" + pixels)

    labels = idx(np.arange(4, dtype=np.uint8))
    images = idx(np.arange(24, dtype=np.uint8).reshape(4, 3, 2))
    write(out, "mnist_reader", "plain", part(labels) + images)
    write(out, "mnist_reader", "gzip",
          part(gzip.compress(labels, mtime=0)) + gzip.compress(images, mtime=0))
    write(out, "mnist_reader", "members",
          part(labels) + gzip.compress(images[:9], mtime=0) +
          gzip.compress(images[9:], mtime=0))

    image = np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3)
    label = np.arange(2, dtype=np.int64)
    write(out, "npy_reader", "image_label",
          part(b"") + part(npy(image)) + npy(label))
    write(out, "npy_reader", "version2_float",
          part(b"-image") + part(npy(image.astype(np.float32), (2, 0))) +
          npy(label, (3, 0)))
    write(out, "npy_reader", "bool",
          part(b"image,-label") + part(npy(image[..., 0] > 4)) +
          npy(label.astype(np.float16)))

    ramp = np.arange(7 * 9 * 3, dtype=np.uint8).reshape(7, 9, 3)
    picture = Image.fromarray(ramp)
    exif = (b"Exif\0\0II*\0\x08\0\0\0\x01\0"
            b"\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0")
    for name, options, image, kind, how in (
            ("jpeg", 2, picture, "JPEG", {}),
            ("jpeg_progressive", 3, picture, "JPEG", {"progressive": True}),
            ("jpeg_exif_fast", 0x1E, picture, "JPEG", {"exif": exif}),
            ("jpeg_cmyk", 0, picture.convert("CMYK"), "JPEG", {}),
            ("jpeg_grey", 1, picture.convert("L"), "JPEG", {}),
            ("png", 0, picture, "PNG", {}),
            ("png_palette", 3, picture.quantize(9), "PNG", {}),
            ("png_one_bit", 2, picture.convert("1"), "PNG", {}),
            ("png_alpha", 0, picture.convert("RGBA"), "PNG", {}),
            ("bmp", 2, picture, "BMP", {}),
            ("bmp_palette", 1, picture.quantize(9), "BMP", {})):
        buffer = io.BytesIO()
        image.save(buffer, kind, **how)
        write(out, "image_codec", name, bytes([options]) + buffer.getvalue())
    write(out, "image_csv_reader", "plain", b"\0" + b"1,5\n2,7\n\n1,0")
    write(out, "image_csv_reader", "names", b"\0" + b'1,cat\n"2","a ""dog"""')
    write(out, "image_csv_reader", "header",
          b"\3" + b"\xef\xbb\xbffile,b,c\r\n1,x,2\r\n/d/2,,3\r\n")
    write(out, "image_csv_reader", "missing", b"\0" + b"1,5\n../3,7\n")

    for name, text in {
            "u1": "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }",
            "f8": "{\"shape\": (3, 4, 5), \"fortran_order\": False, "
                  "\"descr\": \"<f8\"}\n",
            "big": "{'descr': '>f4', 'fortran_order': True, 'shape': ()}",
            "struct": "{'descr': [('x', '<f4')], 'fortran_order': False, "
                      "'shape': (9223372036854775807, 2)}",
    }.items():
        write(out, "npy_header", name, text.encode())


if __name__ == "__main__":
    main(sys.argv[1])
