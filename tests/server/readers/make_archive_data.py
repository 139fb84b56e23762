"""Cases of the formats that hold many samples in a file.

As make_reader_data.py, which runs this: written with numpy, PIL, h5py,
tarfile, zipfile and struct, from the formats' descriptions.
"""

import gzip
import io
import pickle
import struct
import tarfile
import zlib

import h5py
import numpy as np
from make_reader_data import CIFAR10_NAMES, RNG, Case, images
from PIL import Image


def single_file(out, name, format_name, file, data, split="", options=None):
    """A case whose path is a file."""
    case = Case(out, name, format_name, split, options)
    case.source(file, data)
    case.expected["path"] = file
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


def csv_pixels(out):
    usages = ["Training", "PublicTest", "Training", "PrivateTest", "Training",
              "PublicTest"]
    pixels = images(6, 4, 4)
    labels = RNG.integers(0, 7, 6, dtype=np.int64)
    rows = [(label, " ".join(str(v) for v in image.ravel()), usage)
            for label, image, usage in zip(labels, pixels, usages)]
    text = "emotion,pixels,Usage\n" + "".join(
        "%d,%s,%s\n" % row for row in rows)
    for split, usage in (("", "Training"), ("public_test", "PublicTest"),
                         ("private_test", "PrivateTest"), ("all", None)):
        keep = [usage in (None, row[2]) for row in rows]
        case = single_file(out, "csv_pixels_" + (split or "train"),
                           "csv_pixels", "fer2013.csv", text.encode(), split)
        case.field("image", pixels[keep], "uint8", [4, 4, 1], True)
        case.field("label", labels[keep], "int64", [], False)
        case.close()
    # Columns in another order, quotes, CRLF, no end of the last line.
    wide = images(3, 2, 5)
    text = "\ufeffid, \"Pixels\"\r\n" + "\r\n".join(
        "%d,\"%s\"" % (i, " ".join(str(v) for v in image.ravel()))
        for i, image in enumerate(wide))
    case = single_file(out, "csv_pixels_wide", "csv_pixels", "pixels.csv",
                       text.encode(), options={"width": "5"})
    case.field("image", wide, "uint8", [2, 5, 1], True)
    case.close()


def npz(out):
    count = 13
    image = images(count, 6, 5, 3)
    label = RNG.integers(-2**62, 2**62, count, dtype=np.int64)
    flags = RNG.integers(0, 2, (count, 4)).astype(np.bool_)

    def archive(save, **arrays):
        buffer = io.BytesIO()
        save(buffer, **arrays)
        return buffer.getvalue()

    for name, save in (("npz_stored", np.savez),
                       ("npz_deflated", np.savez_compressed)):
        data = archive(save, label=label, image=image, flags=flags)
        case = single_file(out, name, "npz", "data.npz", data)
        case.field("flags", flags, "uint8", [4], False)
        case.field("image", image, "uint8", [6, 5, 3], True)
        case.field("label", label, "int64", [], False)
        case.close()
    data = archive(np.savez_compressed, x_train=image[:, :, :, 0],
                   y_train=label, x_test=image[:3], y_test=label[:3])
    case = single_file(
        out, "npz_chosen", "npz", "mnist.npz", data,
        options={"fields": "label:y_test, picture:x_test", "images": "picture"})
    case.field("label", label[:3], "int64", [], False)
    case.field("picture", image[:3], "uint8", [6, 5, 3], True)
    case.close()
    # Compresses to a thousandth, and takes many reads.
    zeros = np.zeros((700, 28, 28), np.float32)
    case = single_file(out, "npz_zeros", "npz", "zeros.npz",
                       archive(np.savez_compressed, data=zeros))
    case.field("data", zeros, "float32", [28, 28], False)
    case.close()


def text2(data):
    """A str of Python 2."""
    data = data if isinstance(data, bytes) else data.encode()
    return (b"U" + bytes([len(data)]) if len(data) < 256
            else b"T" + struct.pack("<I", len(data))) + data


def pickle2(**values):
    """As cPickle of Python 2 writes a dict in protocol 2."""
    numpy_part = (b"cnumpy.core.multiarray\n_reconstruct\nq\x07"
                  b"cnumpy\nndarray\nq\x08K\x00\x85q\x09U\x01bq\x0a\x87q\x0b"
                  b"Rq\x0c(K\x01%b\x86q\x0dcnumpy\ndtype\nq\x0eU\x02u1q\x0f"
                  b"K\x00K\x01\x87q\x10Rq\x11(K\x03U\x01|q\x12NNN"
                  b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x13b\x89%btq\x14b")

    def integer(value):
        return (b"K" + bytes([value]) if value < 256
                else b"M" + struct.pack("<H", value))

    data = b"\x80\x02}q\x01("
    for key, value in values.items():
        data += text2(key) + b"q\x02"
        if isinstance(value, np.ndarray):
            shape = b"".join(integer(n) for n in value.shape)
            data += numpy_part % (shape, text2(value.tobytes()))
        elif isinstance(value, list):
            items = b"".join(integer(v) if isinstance(v, int) else text2(v)
                             for v in value)
            data += b"]q\x03(" + items + b"e"
        else:
            data += text2(value)
    data += b"u."
    # Python's own unpickler reads the same.
    loaded = pickle.loads(data, encoding="latin1")
    for key, value in values.items():
        assert np.array_equal(loaded[key], value), key
    return data


def cifar_python(out):
    for name, split, sizes, below, write in (
            ("cifar10_python_train", "", [3, 5, 1, 7, 1], "", pickle2),
            ("cifar10_python_test", "test", [5], "cifar-10-batches-py", pickle2),
            ("cifar10_python_protocol4", "test", [4], "",
             lambda **values: pickle.dumps(values, 4))):
        case = Case(out, name, "cifar10_python", split, subdirectory=below)
        pixels = images(sum(sizes), 32, 32, 3)
        labels = RNG.integers(0, 10, sum(sizes), dtype=np.uint8)
        begin = 0
        for i, size in enumerate(sizes):
            end = begin + size
            rows = pixels[begin:end].transpose(0, 3, 1, 2).reshape(size, -1)
            case.source(
                "test_batch" if split else "data_batch_%d" % (i + 1),
                write(batch_label="batch", labels=labels[begin:end].tolist(),
                      data=np.ascontiguousarray(rows),
                      filenames=["f%d.png" % j for j in range(size)]))
            begin = end
        if not split:
            case.source("batches.meta", write(
                num_cases_per_batch="10000", label_names=CIFAR10_NAMES))
            case.expected["class_names"] = CIFAR10_NAMES
        case.field("image", pixels, "uint8", [32, 32, 3], True)
        case.field("label", labels, "uint8", [], False)
        case.close()
    case = Case(out, "cifar100_python", "cifar100_python", "train")
    pixels = images(7, 32, 32, 3)
    fine = RNG.integers(0, 100, 7, dtype=np.uint8)
    coarse = RNG.integers(0, 20, 7, dtype=np.uint8)
    rows = pixels.transpose(0, 3, 1, 2).reshape(7, -1)
    case.source("train", pickle2(
        filenames=["a.png"], batch_label="training batch 1 of 1",
        fine_labels=fine.tolist(), coarse_labels=coarse.tolist(),
        data=np.ascontiguousarray(rows)))
    names = ["class_%d" % i for i in range(100)]
    case.source("meta", pickle2(
        fine_label_names=names, coarse_label_names=["x"] * 20))
    case.expected["class_names"] = names
    case.field("image", pixels, "uint8", [32, 32, 3], True)
    case.field("label", fine, "uint8", [], False)
    case.field("coarse_label", coarse, "uint8", [], False)
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


def ragged(case, name, arrays):
    """A field of images of their own sizes."""
    case.field(name, np.concatenate([a.ravel() for a in arrays]), "uint8",
               arrays[0].shape, True)
    case.expected["fields"][-1]["is_ragged"] = True
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
        ragged(case, "seg", [mask[1] for _, mask in pairs])
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
    ragged(case, "seg", [mask[1] for _, mask in pairs])
    case.field("audio", vectors, "float32", [2, 3], False)
    case.close()

    case = single_file(
        out, "webdataset_fields", "webdataset", "all.tar",
        packed,
        options={"fields": "sound:audio.npy, mask:seg.png",
                 "max_pixels": "100000", "channels": "1"})
    case.field("sound", vectors, "float32", [2, 3], False)
    ragged(case, "mask", [np.asarray(Image.open(io.BytesIO(mask[0])))[..., None]
                          for _, mask in pairs])
    case.expected["fields"][-1]["is_mask"] = True
    case.close()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def tfrecord_of(make_examples):
    """A file whose cuts at every 64th all fall into a record."""
    for padding in range(100):
        data = b""
        ends = set()
        for example in make_examples(bytes(padding)):
            length = struct.pack("<Q", len(example))
            data += length + masked(length) + example + masked(example)
            ends.add(len(data))
        if not any(len(data) * part // 64 in ends for part in range(1, 64)):
            return data
    raise AssertionError("no padding will do")


def varint(value):
    value &= 2**64 - 1
    data = b""
    while value > 127:
        data += bytes([value & 127 | 128])
        value >>= 7
    return data + bytes([value])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def example(**features):
    """The wire format of tf.train.Example, by hand."""
    entries = b""
    for name, value in features.items():
        if isinstance(value, bytes):
            kind = field(1, field(1, value))
        elif value.dtype == np.float32:
            kind = field(2, field(1, value.tobytes()))
        else:
            kind = field(3, field(1, b"".join(varint(int(v)) for v in value)))
        entries += field(1, field(1, name.replace("__", "/").encode()) +
                         field(2, kind))
    return field(1, entries)


def tfrecord(out):
    count = 7
    encoded = [encode(picture(i), "JPEG" if i % 2 else "PNG")
               for i in range(count)]
    labels = RNG.integers(-2**40, 2**40, count, dtype=np.int64)
    vectors = RNG.standard_normal((count, 5)).astype(np.float32)
    codes = RNG.integers(0, 99, (count, 2), dtype=np.int64)
    grey = images(count, 4, 3)

    def records(begin, end):
        return lambda padding: [
            example(image__encoded=encoded[i][0], vec=vectors[i],
                    image__class__label=labels[i:i + 1], codes=codes[i],
                    text=b"no field" + padding, grey=grey[i].tobytes())
            for i in range(begin, end)]

    case = Case(out, "tfrecord_shards", "tfrecord",
                options={"max_pixels": "100000"})
    case.source("t-00000-of-00002", tfrecord_of(records(0, 3)))
    case.source("t-00001-of-00002", tfrecord_of(records(3, count)))
    case.expected["path"] = "t-{00000..00001}-of-00002"
    ragged(case, "image_encoded", [pixels for _, pixels in encoded])
    case.field("codes", codes, "int64", [2], False)
    case.field("image_class_label", labels, "int64", [], False)
    case.field("vec", vectors, "float32", [5], False)
    case.close()
    for kind, compress in (("gzip", lambda data: gzip.compress(data, mtime=0)),
                           ("zlib", zlib.compress)):
        case = single_file(
            out, "tfrecord_" + kind, "tfrecord", "all." + kind,
            compress(tfrecord_of(records(0, count))),
            options={"max_pixels": "100000",
                     "features":
                     "image_encoded=image/encoded:image,codes:int64[2]"})
        ragged(case, "image_encoded", [pixels for _, pixels in encoded])
        case.field("codes", codes, "int64", [2], False)
        case.close()

    case = single_file(
        out, "tfrecord_features", "tfrecord", "all.tfrecord",
        tfrecord_of(records(0, count)),
        options={"max_pixels": "100000", "features":
                 "image=image/encoded:jpeg, label=image/class/label:int64,"
                 "vec:float[5],grey:uint8[4x3]"})
    ragged(case, "image", [pixels for _, pixels in encoded])
    case.field("label", labels, "int64", [], False)
    case.field("vec", vectors, "float32", [5], False)
    case.field("grey", grey, "uint8", [4, 3, 1], True)
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


def hdf5_bytes(write):
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        write(file)
    return buffer.getvalue()


def hdf5(out):
    count = 9
    pixels = images(count, 6, 5, 3)
    label = RNG.integers(-2**62, 2**62, count, dtype=np.int64)

    def write(file):
        file.create_dataset("image", data=pixels, chunks=(4, 6, 5, 3),
                            compression="gzip", shuffle=True)
        file["label"] = label
        file.attrs["note"] = "text"

    case = single_file(out, "hdf5_chunked", "hdf5", "data.h5",
                       hdf5_bytes(write))
    case.field("image", pixels, "uint8", [6, 5, 3], True)
    case.field("label", label, "int64", [], False)
    case.close()

    arrays = {
        "a": images(count), "b": RNG.integers(0, 2, (count, 3)).astype(np.bool_),
        "c": RNG.integers(-2**15, 2**15, (count, 2), dtype=np.int16),
        "d": RNG.integers(-2**31, 2**31, (count, 1), dtype=np.int32),
        "e": RNG.integers(-2**62, 2**62, (count, 2, 2), dtype=np.int64),
        "f": RNG.standard_normal((count, 7)).astype(np.float16),
        "g": RNG.standard_normal((count, 7)).astype(np.float32),
        "h": RNG.standard_normal((count, 2, 3, 1, 2)),
        "i": RNG.integers(0, 2**16, (count, 4), dtype=np.uint16),
        "j": RNG.integers(0, 2**32, (count, 4), dtype=np.uint32),
        "k": RNG.integers(-128, 128, (count, 4), dtype=np.int8),
        "l": RNG.integers(-9, 9, (count, 4)).astype(">i4"),
        "m": RNG.standard_normal((count, 4)).astype(">f8"),
    }
    becomes = {"b": "uint8", "i": "int32", "j": "int64", "k": "int16",
               "l": "int32", "m": "float64"}

    def write_all(file):
        for name, array in arrays.items():
            file["set/" + name] = array
        file["text"] = ["left", "out"]

    case = single_file(
        out, "hdf5_every_dtype", "hdf5", "data.h5", hdf5_bytes(write_all),
        options={"fields": ",".join("%s:set/%s" % (n, n) for n in arrays)})
    for name, array in arrays.items():
        dtype = becomes.get(name, str(array.dtype))
        case.field(name, array.astype(dtype), dtype, list(array.shape[1:]),
                   False)
    case.close()

    # What would read other files, and what is declared and not there.
    def write_evil(file):
        file["good"] = label
        file["linked"] = h5py.ExternalLink("other.h5", "/x")
        file["lost"] = h5py.SoftLink("/nowhere")
        file["text"] = ["a", "b"]
        file["scalar"] = 5
        file["short"] = label[:3]
        file.create_dataset("external", (4,), "u1",
                            external=[("/etc/hostname", 0, 4)])
        file.create_dataset("huge", (2**40, 1000), "f4", chunks=(1, 1000))
        layout = h5py.VirtualLayout((count,), "i8")
        layout[:] = h5py.VirtualSource("other.h5", "x", (count,))
        file.create_virtual_dataset("virtual", layout)

    case = single_file(out, "hdf5_evil", "hdf5", "data.h5",
                       hdf5_bytes(write_evil), options={"fields": "good"})
    case.field("good", label, "int64", [], False)
    case.close()


def main(out):
    hdf5(out)
    join(out)
    webdataset(out)
    tfrecord(out)
    cifar_python(out)
    raw(out)
    csv_pixels(out)
    npz(out)
