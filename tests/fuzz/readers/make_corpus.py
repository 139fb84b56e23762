"""Writes the seeds of the readers' fuzzers: make_corpus.py tests/fuzz/readers/corpus."""

import gzip
import io
import os
import struct
import sys
import tarfile

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


def tar(members, tar_format=tarfile.PAX_FORMAT, kind=tarfile.REGTYPE,
        each=None, every=None):
    """`each` are the pax headers of each member, `every` the global ones."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tar_format,
                      pax_headers=every) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.type = kind
            info.pax_headers = each or {}
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue().rstrip(b"\0") + bytes(1024)


def encoded(kind):
    buffer = io.BytesIO()
    pixels = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def archives(out):
    two = [("a/1.png", encoded("PNG")), ("a/1.cls", b"7"),
           ("a/2.png", encoded("PNG")), ("a/2.cls", b"-8")]
    write(out, "webdataset_reader", "png", part(b"") + tar(two))
    write(out, "webdataset_reader", "gzip",
          part(b"") + gzip.compress(tar(two), mtime=0))
    write(out, "webdataset_reader", "npy", part(b"x:npy,y:jpg;jpeg") + tar(
        [("x" * 120 + ".npy", npy(np.float32([1, 2]))),
         ("x" * 120 + ".jpg", encoded("JPEG"))]))
    longer = [("d/" * 60 + "\u00e4.png", encoded("PNG")),
              ("d/" * 60 + "\u00e4.cls", b"7")]
    write(out, "webdataset_reader", "pax",
          part(b"") + tar(longer, every={"comment": "shard"}))
    write(out, "webdataset_reader", "gnu",
          part(b"") + tar(longer, tarfile.GNU_FORMAT))
    write(out, "webdataset_reader", "ustar",
          part(b"") + tar(longer, tarfile.USTAR_FORMAT))
    write(out, "webdataset_reader", "links",
          part(b"") + tar([("a.png", b"")], kind=tarfile.SYMTYPE))
    holes = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0",
             "GNU.sparse.name": "a.cls", "GNU.sparse.realsize": "1000"}
    write(out, "webdataset_reader", "sparse", part(b"") + tar(
        [("a.cls", b"1\n0\n1\n".ljust(512, b"\0") + b"7")], each=holes))
    write(out, "webdataset_reader", "sparse_map", part(b"") + tar(
        [("a.cls", b"7")], each={"GNU.sparse.map": "0,1,1000,0",
                                 "GNU.sparse.size": "1000"}))


def folders(out):
    write(out, "raw_reader", "image",
          part(b"shape=2x3x3\nlayout=chw\nlabel_bytes=1\n") +
          bytes(range(38)))
    write(out, "raw_reader", "vector",
          part(b"shape=3\ndtype=float32\nheader_bytes=4\nlabel_bytes=4\n"
               b"label=last\nname=x\n") + bytes(4) + bytes(range(32)))
    write(out, "tokens_reader", "shards",
          part(b"dtype=int32\nheader_bytes=4\nname=x\n") +
          part(bytes(range(24))) + bytes(range(12)))
    write(out, "tokens_reader", "npy", part(b"npy\n") +
          part(npy(np.arange(5, dtype=np.uint16))) +
          npy(np.arange(7, dtype=np.uint16)))
    write(out, "join_reader", "folder_npy",
          part(b"parts=image_folder:faces,npy:audio\n") + b"")
    write(out, "join_reader", "list_raw",
          part(b"parts=image_csv:list.csv,raw:r.bin\n1.shape=2\n"
               b"fields=image:0.image,y:label,x:1.data\n0.channels=1\n") +
          b"\1\2\3\4")
    pictures = b"".join(
        part(name) + part(content) for name, content in (
            (b"a/1.png", encoded("PNG")), (b"a/b/2.JPG", encoded("JPEG")),
            (b"c/3.bmp", encoded("BMP")), (b"c/read.me", b"text")))
    write(out, "image_folder_reader", "classes", b"\0" + part(b"") + pictures)
    write(out, "image_folder_reader", "split", b"\5" + part(b"train") + b"".join(
        part(name) + part(content) for name, content in (
            (b"train/a/1.png", encoded("PNG")), (b"test/a/1.png", b"x"))))


def pushed_images(out, picture):
    def file(image, kind):
        buffer = io.BytesIO()
        image.save(buffer, kind)
        return struct.pack("<I", len(buffer.getvalue())) + buffer.getvalue()

    label = struct.pack("<hhh", 1, -2, 3)
    square = picture.resize((2, 2))
    for name, bits, count, stream in (
            ("jpeg", 1, 2, file(picture, "JPEG") + file(square, "JPEG")),
            ("one_size", 3, 2, file(square, "PNG") + file(square, "BMP")),
            ("labels", 5, 2, (file(picture, "PNG") + label) * 2),
            ("masks", 29, 1, file(picture, "PNG") + label
             + file(picture.convert("L"), "PNG")),
            ("as_is", 33, 2, file(picture, "PNG")
             + file(picture.convert("L"), "PNG")),
            ("empty", 1, 3, file(picture, "JPEG") + bytes(8)),
            ("huge", 1, 1, struct.pack("<I", 1 << 31) + b"x"),
            ("short", 5, 1, file(picture, "PNG") + label[:5]),
            ("long", 1, 1, file(picture, "PNG") + b"x")):
        write(out, "pushed_images", name, bytes([bits, count, 100]) + stream)


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

    archives(out)
    folders(out)

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
    jpeg = encoded("JPEG")
    write(out, "image_codec", "jpeg_segments",
          b"\x06" + jpeg[:2] + b"\xff\xe1\0\2" * 1000 + jpeg[2:])
    pushed_images(out, picture)
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
