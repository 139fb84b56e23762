"""Cases of the formats that hold many samples in a file.

As make_reader_data.py, which runs this: written with numpy, PIL and
tarfile, from the formats' descriptions.
"""

import gzip
import io
import tarfile

import numpy as np
from make_reader_data import RNG, Case, images
from PIL import Image


def single_file(out, name, format_name, file, data, split="", options=None):
    """A case whose path is a file."""
    case = Case(out, name, format_name, split, options)
    case.source(file, data)
    case.expected["path"] = file
    return case


def several_files(out, name, format_name, pattern, files, options):
    """A case whose path is a pattern of files."""
    case = Case(out, name, format_name, options=options)
    for file, data in files.items():
        case.source(file, data)
    case.expected["path"] = pattern
    return case


def raw(out):
    count = 9
    pixels = images(count, 5, 7, 3)
    labels = RNG.integers(0, 256, count, dtype=np.uint8)
    case = single_file(
        out, "raw_images", "raw", "data.bin",
        b"".join(bytes([label]) + image.tobytes()
                 for image, label in zip(pixels, labels)),
        options={"shape": "5x7x3", "label_bytes": "1"})
    case.field("image", pixels, "uint8", [5, 7, 3], True)
    case.field("label", labels, "uint8", [], False)
    case.close()

    labels = RNG.integers(0, 2**32, count, dtype=np.uint32)
    case = single_file(
        out, "raw_planes", "raw", "data.bin",
        b"header" + b"".join(
            image.transpose(2, 0, 1).tobytes() + label.tobytes()
            for image, label in zip(pixels, labels)),
        options={"shape": "3x5x7", "layout": "chw", "label": "last",
                 "label_bytes": "4", "header_bytes": "6", "name": "photo"})
    case.field("photo", pixels, "uint8", [5, 7, 3], True)
    case.field("label", labels.astype(np.int64), "int64", [], False)
    case.close()

    vectors = RNG.standard_normal((count, 11))
    case = single_file(
        out, "raw_vectors", "raw", "data.bin", vectors.tobytes(),
        options={"shape": "11", "dtype": "float64"})
    case.field("data", vectors, "float64", [11], False)
    case.close()

    # More than the reader takes at once.
    grey = images(501, 40, 30)
    case = single_file(out, "raw_blocks", "raw", "data.bin", grey.tobytes(),
                       options={"shape": "40x30"})
    case.field("image", grey, "uint8", [40, 30, 1], True)
    case.close()


def tokens(out):
    # A cut between two steps would not show: no 64th of a file is there.
    stream = RNG.integers(0, 2**16, (128, 7), dtype=np.uint16)
    shards = {f"s_{i}.bin": b"head" + part.tobytes()
              for i, part in enumerate(np.split(stream, 4))}
    case = several_files(out, "tokens_shards", "tokens", "s_{0..3}.bin",
                         shards, options={"header_bytes": "4", "shape": "7"})
    case.field("tokens", stream, "uint16", [7], False)
    case.close()

    signal = RNG.standard_normal((90, 3)).astype(np.float32)
    shards = {"0.npy": npy_of(signal[:40]), "1.npy": npy_of(signal[40:])}
    case = several_files(out, "tokens_npy", "tokens", "{0,1}.npy", shards,
                         options={"name": "eeg"})
    case.field("eeg", signal, "float32", [3], False)
    case.close()


def picture(i, channels=3):
    """[H, W, C], smooth, of a size of its own."""
    y, x = np.mgrid[0:5 + i % 3, 0:9 - i % 4]
    planes = [127 + 60 * np.sin(x / (2 + c) + i) + 50 * np.cos(y / (1 + c))
              for c in range(channels)]
    return np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)


def encode(pixels, kind, **options):
    """(bytes, what PIL reads from them as RGB)."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **options)
    data = buffer.getvalue()
    return data, np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def ragged(case, name, arrays, is_mask=False):
    """A field of images of their own sizes."""
    case.field(name, np.concatenate([a.ravel() for a in arrays]), "uint8",
               arrays[0].shape, True)
    case.expected["fields"][-1].update(is_ragged=True, is_mask=is_mask)
    case.expected["num_samples"] = len(arrays)


def tar(members, tar_format=tarfile.USTAR_FORMAT):
    buffer = io.BytesIO()
    archive = tarfile.open(fileobj=buffer, mode="w", format=tar_format)
    for name, data in members:
        info = tarfile.TarInfo(name)
        if data is None:
            info.type = tarfile.DIRTYPE
            data = b""
        info.size = len(data)
        info.mtime = 1700000000
        archive.addfile(info, io.BytesIO(data))
    size = archive.offset
    archive.close()
    # Without the padding, so that any cut is one that shows.
    return buffer.getvalue()[:size + 1024]


def npy_of(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def webdataset(out):
    count = 7
    encoded = [encode(picture(i), "JPEG", quality=90) for i in range(count)]
    labels = RNG.integers(-9, 1000, count, dtype=np.int64)
    samples = [[("data/%04d.cls" % i, b"%d\n" % labels[i]),
                ("data/%04d.jpg" % i, encoded[i][0]),
                ("data/%04d.json" % i, b"{}")] for i in range(count)]
    case = Case(out, "webdataset_shards", "webdataset",
                options={"max_pixels": "100000"})
    case.source("train-000.tar", tar([("data", None)] + sum(samples[:3], [])))
    case.source("train-001.tar", tar([("README", b"no sample")] +
                                     sum(samples[3:], [])))
    case.expected["path"] = "train-{000..001}.tar"
    ragged(case, "image", [pixels for _, pixels in encoded])
    case.field("label", labels, "int64", [], False)
    case.close()

    pairs = [(encode(picture(i), kind), encode(picture(i + 1)[:, :, 0], "PNG"))
             for i, kind in enumerate(["PNG", "JPEG", "BMP", "PNG"])]
    vectors = RNG.standard_normal((4, 2, 3)).astype(np.float32)
    long_name = "deep/" * 40 + "x" * 120
    for name, tar_format in (("webdataset_gnu", tarfile.GNU_FORMAT),
                             ("webdataset_pax", tarfile.PAX_FORMAT)):
        members = []
        for i, (photo, mask) in enumerate(pairs):
            key = "%s%d" % (long_name, i) if i == 2 else "./s%d" % i
            members += [(key + ".audio.npy", npy_of(vectors[i])),
                        (key + "." + ["png", "jpeg", "BMP", "png"][i], photo[0]),
                        (key + ".seg.png", mask[0])]
        case = single_file(out, name, "webdataset", "all.tar",
                           tar(members, tar_format),
                           options={"max_pixels": "100000"})
        ragged(case, "image", [photo[1] for photo, _ in pairs])
        ragged(case, "seg", [mask[1][:, :, :1] for _, mask in pairs], True)
        case.field("audio", vectors, "float32", [2, 3], False)
        case.close()

    # In two members, as by cat or pigz.
    packed = tar(members, tarfile.PAX_FORMAT)
    case = single_file(
        out, "webdataset_gzip", "webdataset", "all.tgz",
        gzip.compress(packed[:5000], mtime=0) +
        gzip.compress(packed[5000:], mtime=0),
        options={"max_pixels": "100000"})
    ragged(case, "image", [photo[1] for photo, _ in pairs])
    ragged(case, "seg", [mask[1][:, :, :1] for _, mask in pairs], True)
    case.field("audio", vectors, "float32", [2, 3], False)
    case.close()

    case = single_file(
        out, "webdataset_fields", "webdataset", "all.tar",
        packed,
        options={"fields": "sound:audio.npy, mask:seg.png",
                 "max_pixels": "100000"})
    case.field("sound", vectors, "float32", [2, 3], False)
    ragged(case, "mask", [np.asarray(Image.open(io.BytesIO(mask[0])))[..., None]
                          for _, mask in pairs])
    case.expected["fields"][-1]["is_mask"] = True
    case.close()


def join(out):
    count = 6
    encoded = [encode(picture(i), "PNG") for i in range(count)]
    vectors = RNG.standard_normal((count, 8)).astype(np.float32)
    labels = RNG.integers(0, 9, count, dtype=np.int64)
    codes = RNG.integers(0, 256, (count, 3), dtype=np.uint8)
    case = Case(out, "join", "join", options={
        "parts": "webdataset:faces-{0..1}.tar, npy:audio,raw:codes.bin",
        "fields": "image,audio:1.audio,label:1.label,codes:2.data",
        "0.max_pixels": "100000", "2.shape": "3"})
    for shard in (0, 1):
        case.source("faces-%d.tar" % shard, tar(
            [("%d.%s" % (i, kind), data) for i in range(3 * shard, 3 * shard + 3)
             for kind, data in (("png", encoded[i][0]), ("cls", b"5"))]))
    case.source("audio/audio.npy", npy_of(vectors))
    case.source("audio/label.npy", npy_of(labels))
    case.source("codes.bin", codes.tobytes())
    ragged(case, "image", [pixels for _, pixels in encoded])
    case.field("audio", vectors, "float32", [8], False)
    case.field("label", labels, "int64", [], False)
    case.field("codes", codes, "uint8", [3], False)
    case.close()


def main(out):
    join(out)
    webdataset(out)
    raw(out)
    tokens(out)
