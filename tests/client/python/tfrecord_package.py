"""Run by tfrecord_test.py: files that the package tfrecord wrote."""

import gzip
import io
import itertools
import struct
import subprocess
import sys
import zlib

import datasetd
import numpy as np
import pytest
import tfrecord
from datasetd import sources
from PIL import Image

_NUMBERS = itertools.count()
_RANDOM = np.random.default_rng(8)
_COUNT = 40
_IMAGES = _RANDOM.integers(0, 256, (_COUNT, 8, 9, 3), np.uint8)
_ROWS = _RANDOM.standard_normal((_COUNT, 16)).astype(np.float32)
_LABELS = _RANDOM.integers(-(2**40), 2**40, _COUNT)
_PAIRS = _RANDOM.integers(0, 99, (_COUNT, 2))
_GREY = _RANDOM.integers(0, 256, (_COUNT, 4, 3), np.uint8)
_FEATURES = {
    "image": "image/encoded:image",
    "label": "image/class/label:int64",
    "x": "vec:float32[4x4]",
    "grey": "grey:uint8[4x3]",
}
_WANT = {
    "image": _IMAGES,
    "label": _LABELS,
    "x": _ROWS.reshape(_COUNT, 4, 4),
    "grey": _GREY[..., None],
}
_AS_TEXT = ",".join(f"{field}={text}" for field, text in _FEATURES.items())


def _png(image):
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "png")
    return buffer.getvalue()


def _write(path, samples):
    writer = tfrecord.TFRecordWriter(str(path))
    for i in samples:
        writer.write(
            {
                "image/encoded": (_png(_IMAGES[i]), "byte"),
                "image/class/label": (int(_LABELS[i]), "int"),
                "vec": (_ROWS[i].tolist(), "float"),
                "pair": (_PAIRS[i].tolist(), "int"),
                "grey": (_GREY[i].tobytes(), "byte"),
                "text": (b"no field", "byte"),
            }
        )
    writer.close()
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("records") / "all.tfrecord"
    return _write(path, range(_COUNT))


@pytest.fixture
def pattern(tmp_path):
    for shard, first in enumerate((0, 9, 10, 33)):
        end = (9, 10, 33, _COUNT)[shard]
        _write(tmp_path / f"t-{shard:05}", range(first, end))
    return str(tmp_path / "t-{00000..00003}")


def _expect(client, dataset, want):
    with dataset:
        assert [field.name for field in dataset.fields] == list(want)
        batch = client.fetch(dataset, range(len(dataset)), framework="numpy")
        for field in dataset.fields:
            values = np.array(getattr(batch, field.name))
            if field.is_image:
                values = np.moveaxis(values, 1, -1)
            np.testing.assert_array_equal(values, want[field.name])
            assert field.dtype == want[field.name].dtype.name


@pytest.mark.parametrize(
    "features",
    [
        _FEATURES,
        _AS_TEXT,
        {field: tuple(text.split(":")) for field, text in _FEATURES.items()},
    ],
    ids=["mapping", "text", "pairs"],
)
def test_features_are_named(client, pattern, features):
    dataset = client.load_dataset(
        f"records-{next(_NUMBERS)}", "tfrecord", pattern,
        options={"features": features},
    )
    _expect(client, dataset, _WANT)


@pytest.mark.parametrize("packing", ["plain", "gzip", "zlib"])
def test_features_of_the_first_example(client, whole, tmp_path, packing):
    path = tmp_path / "packed"
    data = whole.read_bytes()
    if packing == "gzip":  # of two members
        data = gzip.compress(data[:999]) + gzip.compress(data[999:])
    if packing == "zlib":
        data = zlib.compress(data)
    path.write_bytes(data)
    dataset = client.push_dataset(
        f"records-{next(_NUMBERS)}", sources.tfrecord(path)
    )
    _expect(
        client,
        dataset,
        {
            "image_encoded": _IMAGES,
            "image_class_label": _LABELS,
            "pair": _PAIRS,
            "vec": _ROWS,
        },
    )


def test_features_that_would_be_one_field(tmp_path):
    path = tmp_path / "a"
    writer = tfrecord.TFRecordWriter(str(path))
    writer.write(
        {
            "a.b": ([1], "int"),
            "a/b": ([2.5], "float"),
            "a:b": (b"no field", "byte"),
        }
    )
    writer.close()
    with pytest.raises(
        datasetd.InvalidArgument, match="'a.b' and 'a/b' are both field 'a_b'"
    ):
        sources.tfrecord(path)
    columns = sources.tfrecord(path, {"x": "a.b:int64", "y": "a/b:float32"})
    assert (columns["x"].tolist(), columns["y"].tolist()) == ([1], [2.5])


def test_it_agrees_with_the_reader_of_the_package(whole):
    """In any order, and also where the job decodes."""
    records = sources.tfrecord(
        whole,
        {"image": "image/encoded:byte", "x": "vec:float32", "y": "pair:int64"},
        decode={"image": sources.decode_image},
    )
    assert len(records) == _COUNT
    peer = list(
        tfrecord.tfrecord_loader(
            str(whole), None, {"vec": "float", "pair": "int"}
        )
    )
    for i in _RANDOM.permutation(_COUNT).tolist():
        np.testing.assert_array_equal(records[i]["image"], _IMAGES[i])
        np.testing.assert_array_equal(records[i]["x"], peer[i]["vec"])
        np.testing.assert_array_equal(records[i]["y"], peer[i]["pair"])
    with pytest.raises(IndexError):
        records[_COUNT]


def test_options_of_images_and_bad_samples(client, tmp_path):
    path = tmp_path / "damaged"
    writer = tfrecord.TFRecordWriter(str(path))
    for i in range(8):
        data = _png(_IMAGES[i])
        writer.write({"image": (data[:40] if i == 3 else data, "byte")})
    writer.close()
    name = f"records-{next(_NUMBERS)}"
    dataset = client.load_dataset(
        name, "tfrecord", path, bad_samples="skip", options={"channels": 1}
    )
    with dataset:
        assert len(dataset) == 7
        assert dataset.fields[0].shape[-1] == 1
        assert [bad.index for bad in dataset.bad_samples] == [3]


@pytest.mark.parametrize("part", [(0, 3), (1, 3), (2, 3)])
def test_a_part_of_one_file(client, whole, part):
    """Without shards a node has a range of the records."""
    with client.load_dataset(
        "rows", "tfrecord", whole, part=part, options={"features": _FEATURES}
    ) as dataset:
        begin, end = (_COUNT * i // 3 for i in (part[0], part[0] + 1))
        assert dataset.column("label").tolist() == _LABELS[begin:end].tolist()


def test_the_command_line(client, daemon, pattern):
    def load(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "datasetd", "load", "by-command",
             "tfrecord", pattern, *arguments, "--address", daemon.address],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )  # fmt: skip

    fields = [f"--field={field}={text}" for field, text in _FEATURES.items()]
    done = load(*fields)
    assert done.returncode == 0, done.stderr
    _expect(client, client.get_dataset("by-command"), _WANT)
    done = load(*fields, "--part", "1/2")
    assert done.returncode == 0, done.stderr
    with client.get_dataset("by-command.1of2") as dataset:
        mine = [*range(9, 10), *range(33, _COUNT)]  # shards 1 and 3
        assert dataset.column("label").tolist() == _LABELS[mine].tolist()
    done = load(*fields, "--option", "features=x:int64")
    assert done.returncode == 2
    assert "--field and --option features are the same" in done.stderr


def test_a_name_made_of_the_files(client, daemon, whole, tmp_path):
    """datasetd.load sees that a shard has changed."""
    from datasetd._client import formats

    path = tmp_path / "s-0"
    path.write_bytes(whole.read_bytes())
    text = str(tmp_path / "s-{0..0}")
    before = formats.file_state(text)
    assert before[0][:2] == (str(path), path.stat().st_size)
    path.write_bytes(whole.read_bytes()[:-100])
    assert formats.file_state(text) != before


@pytest.mark.parametrize(
    "features, words",
    [
        ({}, "features is empty"),
        ({"x": "vec"}, "expected FEATURE:KIND"),
        ({"x": "vec:text"}, "kind 'text'"),
        ({"x": "vec:float32[4"}, "expected FEATURE:KIND"),
        ({"x": ("vec", "float", 3)}, "expected FEATURE:KIND"),
        ("x=vec:float32,x=pair:int64", "field 'x' twice"),
        ({"x": "none:int64"}, "no feature 'none'; there are grey, image/cl"),
        ({"x": "vec:int64"}, "'vec' is a list of float32, expected int64"),
        ({"x": "vec:image"}, "'vec' is a list of float32, expected bytes"),
        ({"x": "vec:float32[5]"}, r"16 values, expected the shape \[5\]"),
        ({"x": "grey:float64"}, "12 bytes, which is not a multiple of"),
        ({"x": "grey:uint8[4x4]"}, r"12 values, expected the shape \[4, 4\]"),
    ],
)
def test_wrong_features_are_named(whole, features, words):
    with pytest.raises(datasetd.InvalidArgument, match=words):
        sources.tfrecord(whole, features)


def _damaged(data, kind):
    (size,) = struct.unpack_from("<Q", data)
    if kind == "no file of records":
        return b"emotion,pixels,Usage\n"
    if kind == "a cut record":
        return data[: 16 + size + 30]
    if kind == "a cut header":
        return data[: 16 + size + 7]
    at = {"length": 3, "its CRC": 9, "data": 20, "data's CRC": 13 + size}[kind]
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    "kind, words",
    [
        ("no file of records", "offset 0: the CRC of .*a file of TFRecords?"),
        ("length", "offset 0: the CRC of a record's length is wrong"),
        ("its CRC", "offset 0: the CRC of a record's length is wrong"),
        ("data", "offset 12: the record's CRC is wrong"),
        ("data's CRC", "offset 12: the record's CRC is wrong"),
        ("a cut record", "a record of [0-9]+ bytes, found 14"),
        ("a cut header", "the CRC of a record's length is wrong"),
    ],
)
def test_damage_is_found(client, whole, tmp_path, kind, words):
    path = tmp_path / "damaged"
    path.write_bytes(_damaged(whole.read_bytes(), kind))
    with pytest.raises(datasetd.DataLoss, match=words):
        client.load_dataset(
            f"records-{next(_NUMBERS)}", "tfrecord", path,
            options={"features": _FEATURES},
        )


def test_lists_of_other_lengths_are_refused(tmp_path):
    path = tmp_path / "ragged"
    writer = tfrecord.TFRecordWriter(str(path))
    for count in (2, 2, 3):
        writer.write({"x": ([1] * count, "int")})
    writer.close()
    with pytest.raises(
        datasetd.InvalidArgument, match="has 3 values, and .* first record 2"
    ):
        sources.tfrecord(path)


def test_a_record_that_is_no_example(tmp_path):
    path = tmp_path / "other"
    data = b"no protobuf"
    length = struct.pack("<Q", len(data))
    crc = tfrecord.TFRecordWriter.masked_crc
    path.write_bytes(length + crc(length) + data + crc(data))
    with pytest.raises(datasetd.DataLoss, match="offset 12: "):
        sources.tfrecord(path)


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_a_cut_compressed_file_is_an_error(whole, tmp_path, pack):
    path = tmp_path / "cut"
    path.write_bytes(pack(whole.read_bytes())[:-20])
    with pytest.raises(datasetd.DataLoss, match=str(path)):
        sources.tfrecord(path, _FEATURES)


def test_an_empty_file_is_an_error(tmp_path):
    path = tmp_path / "empty"
    path.write_bytes(b"")
    with pytest.raises(datasetd.InvalidArgument, match="zero samples"):
        sources.tfrecord(path, _FEATURES)
