"""Loading and pushing a node's part of a dataset."""

import io
import os
import struct
import subprocess
import tarfile

import datasetd
import numpy as np
import pytest
from datasetd._datasets import parts as _parts
from datasetd.sources import _shards
from PIL import Image

NUM_SHARDS = 11


def write_tar(path, first, count):
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as file:
        for i in range(first, first + count):
            data = str(i).encode()
            info = tarfile.TarInfo(f"{i:06d}.cls")
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    value ^= 0xFFFFFFFF
    masked = (value >> 15 | value << 17) + 0xA282EAD8
    return struct.pack("<I", masked & 0xFFFFFFFF)


def message(number, data):
    """A field of protobuf; all are shorter than 128 bytes."""
    return bytes([number << 3 | 2, len(data)]) + data


def write_tfrecord(path, first, count):
    with open(path, "wb") as file:
        for i in range(first, first + count):
            feature = message(3, message(1, bytes([i])))
            entry = message(1, b"label") + message(2, feature)
            record = message(1, message(1, entry))
            length = struct.pack("<Q", len(record))
            for part in (length, record):
                file.write(part + crc32c(part))


WRITERS = {"webdataset": write_tar}
# tfrecord_test.py runs this where the package is.
if os.environ.get("SOURCES_ENVIRONMENT") == "tfrecord":
    WRITERS["tfrecord"] = write_tfrecord


@pytest.fixture(scope="module")
def shards_of(data_root):
    """Patterns by format. Shard s has s + 1 samples; the label counts over
    all."""
    patterns = {}
    for format, write in WRITERS.items():
        directory = data_root / f"shards-{format}"
        directory.mkdir()
        first = 0
        for number in range(NUM_SHARDS):
            write(directory / f"s-{number:03d}.x", first, number + 1)
            first += number + 1
        patterns[format] = str(
            directory / f"s-{{000..{NUM_SHARDS - 1:03d}}}.x"
        )
    return patterns


@pytest.fixture
def shards(shards_of):
    return shards_of["webdataset"]


OPTIONS = {"fields": "label:cls"}


def labels(dataset):
    return dataset.column("label").tolist()


@pytest.mark.parametrize("count", [1, 2, 4, NUM_SHARDS])
@pytest.mark.parametrize("epoch", [None, 0, 1])
@pytest.mark.parametrize("format", WRITERS)
def test_shards_are_dealt(client, shards_of, format, count, epoch):
    options = OPTIONS if format == "webdataset" else {}
    given = ("all-" + format, format, shards_of[format])
    whole = client.load_dataset(*given, options=options)
    seen = []
    for number in range(count):
        part = client.load_dataset(
            *given, options=options, part=(number, count), part_epoch=epoch
        )
        ending = "" if epoch is None else f".e{epoch}"
        assert part.name == f"all-{format}.{number}of{count}{ending}"
        of_shards = {int((2 * i + 0.25) ** 0.5 - 0.5) for i in labels(part)}
        if epoch is None:
            assert of_shards == set(range(number, NUM_SHARDS, count))
        assert len(of_shards) in (
            NUM_SHARDS // count, -(-NUM_SHARDS // count),
        )  # fmt: skip
        seen += labels(part)
        part.close()
    assert sorted(seen) == labels(whole)


def parts_of(count, num_items, **arguments):
    return [
        _parts.resolve((i, count), **arguments).deal(num_items)
        for i in range(count)
    ]


def test_another_part_each_epoch():
    """Each item in one part of each epoch; over epochs a node has each about
    as often as any other."""
    counts = np.zeros((4, 100), int)
    divisions = set()
    for epoch in range(200):
        dealt = parts_of(4, 100, part_epoch=epoch, part_seed=3)
        assert sorted(sum(dealt, [])) == list(range(100))
        for node, items in enumerate(dealt):
            assert items == sorted(items)
            counts[node, items] += 1
        divisions.add(str(dealt))
    assert len(divisions) == 200
    # 50 expected, with a standard deviation of 6.1.
    assert 20 < counts.min() and counts.max() < 80
    assert parts_of(4, 100, part_epoch=5, part_seed=3) == parts_of(4, 100, part_epoch=5, part_seed=3)
    assert parts_of(4, 100, part_epoch=5, part_seed=3) != parts_of(4, 100, part_epoch=5, part_seed=4)


@pytest.mark.parametrize("num_rows", [4, 5, 103, 255, 256, 1_000_003])
@pytest.mark.parametrize("epoch", [None, 0, 9])
def test_ranges_of_rows(num_rows, epoch):
    parts = [_parts.resolve((i, 4), epoch, 0) for i in range(4)]
    ranges = [part.ranges(num_rows) for part in parts]
    everything = sorted(sum(ranges, []))
    assert everything[0][0] == 0 and everything[-1][1] == num_rows
    for (_, end), (begin, _) in zip(everything, everything[1:]):
        assert begin == end
    assert all(begin < end for begin, end in everything)
    sizes = [sum(end - begin for begin, end in of) for of in ranges]
    # Equally many pieces, of sizes that differ by one.
    assert max(sizes) - min(sizes) <= len(ranges[0])
    assert {len(of) for of in ranges} == {
        1 if epoch is None else min(64, num_rows // 4)
    }


class Counted:
    """A map-style dataset that notes what is read of it."""

    def __init__(self, size):
        self.size = size
        self.read = set()

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        if not 0 <= i < self.size:
            raise IndexError(i)
        self.read.add(i)
        return {"label": i}


class Sliced:
    """Notes what is read of it."""

    dtype = np.dtype(np.int64)

    def __init__(self, size):
        self.shape = (size,)
        self._rows = np.arange(size)
        self._is_read = np.zeros(size, bool)

    @property
    def read(self):
        return np.flatnonzero(self._is_read)

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, key):
        self._is_read[key] = True
        return self._rows[key]


@pytest.mark.parametrize("epoch", [None, 2])
@pytest.mark.parametrize("kind", ["columns", "samples"])
def test_pushed_parts(client, kind, epoch):
    seen = []
    for number in range(3):
        data = (
            {"label": np.arange(1000)} if kind == "columns" else Counted(1000)
        )
        part = client.push_dataset(
            f"pushed-{kind}", data, part=(number, 3), part_epoch=epoch
        )
        seen += labels(part)
        if kind == "samples":
            assert data.read == set(labels(part))
        # The same again is compared and attaches.
        again = client.push_dataset(
            f"pushed-{kind}", data, part=(number, 3), part_epoch=epoch
        )
        assert again.name == part.name
        assert again.content_hash == part.content_hash
    assert sorted(seen) == list(range(1000))
    if epoch is None:
        assert seen == sorted(seen)


def test_only_the_part_of_an_array_is_read(client):
    """But for its first row, which tells dtype and shape, and what is read
    with the last ones."""
    data = Sliced(10_000_000)
    part = client.push_dataset("sliced", {"label": data}, part=(1, 4))
    assert len(part) == 2_500_000
    assert part[0].label == 2_500_000 and part[-1].label == 4_999_999
    assert len(data.read) < 4_500_000
    assert max(data.read) < 5_600_000


def test_the_whole_by_name():
    part = _parts.resolve((3, 8), None, 0)
    assert part.name("a.b") == "a.b.3of8"
    assert _parts.resolve((3, 8), 5, 7).name("a") == "a.3of8.e5s7"
    for name in ("a.3of8", "a.3of8.e5", "a.3of8.e5s7"):
        assert _parts.whole_name(name) == "a"
    for name in ("a", "a.of8", "3of8", "a.3of8.tar", "a.3of8.e"):
        assert _parts.whole_name(name) == name


def test_load_with_a_part(daemon, shards, monkeypatch):
    """The name is made of the whole's path, so that nodes have one name but
    for the part's ending."""
    monkeypatch.setenv("DATASETD_ADDRESS", daemon.address)
    monkeypatch.setenv("SLURM_NODEID", "1")
    monkeypatch.setenv("SLURM_NNODES", "2")
    for name in ("GROUP_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    parts = [
        datasetd.load("webdataset", shards, options=OPTIONS, part=part)
        for part in ((0, 2), "node")
    ]
    names = [part.name for part in parts]
    assert names[0].endswith(".0of2") and names[1].endswith(".1of2")
    assert len({_parts.whole_name(name) for name in names}) == 1
    whole = sorted(sum(map(labels, parts), []))
    assert whole == list(range(NUM_SHARDS * (NUM_SHARDS + 1) // 2))


def _rows(dataset):
    return dataset.column("x").tolist()


def test_load_with_a_part_of_arrays(client, data_root):
    folder = data_root / "arrays"
    folder.mkdir()
    np.save(folder / "x.npy", np.arange(103))
    parts = [
        client.load_dataset("rows", "npy", folder, part=(i, 4))
        for i in range(4)
    ]
    assert [part.name for part in parts] == [f"rows.{i}of4" for i in range(4)]
    assert sum(map(_rows, parts), []) == list(range(103))
    for epoch in range(2):
        dealt = [
            _rows(
                client.load_dataset(
                    "rows", "npy", folder, part=(i, 2), part_epoch=epoch
                )
            )
            for i in range(2)
        ]
        assert sorted(sum(dealt, [])) == list(range(103))
        assert all(rows == sorted(rows) for rows in dealt)
        assert dealt[0] != list(range(len(dealt[0])))
    with pytest.raises(
        datasetd.InvalidArgument,
        match="option part is '0/2097152', expected I/N",
    ):
        client.load_dataset("rows", "npy", folder, part=(0, 1 << 21))


def test_load_with_a_part_of_image_files(client, data_root):
    root = data_root / "files"
    for i in range(11):
        folder = root / f"class{i // 4}"
        folder.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(np.full((4, 4, 3), i, np.uint8))
        image.save(folder / f"{i:02}.png")
    seen = []
    for i in range(3):
        part = client.load_dataset("files", "image_folder", root, part=(i, 3))
        assert part.class_names == ["class0", "class1", "class2"]
        # All classes are in each.
        assert sorted(set(part.column("label").tolist())) == [0, 1, 2]
        with datasetd.DataLoader(
            part, batch_size=4, framework="numpy"
        ) as loader:
            seen += [int(n) for batch in loader for n in batch.image[:, 0, 0, 0]]
    assert sorted(seen) == list(range(11))


def test_parts_on_the_command_line(
    daemon, client, data_root, run_command
):
    folder = data_root / "command"
    folder.mkdir()
    np.save(folder / "x.npy", np.arange(10))
    np.savez(folder.with_suffix(".npz"), x=np.arange(10))
    for format, path in (("npy", folder), ("npz", folder.with_suffix(".npz"))):
        for i in range(2):
            done = run_command(
                "load", f"of-{format}", format, path, "--part", f"{i}/2",
                "--address", daemon.address,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            assert done.stdout.startswith(f"of-{format}.{i}of2: 5 samples")
            with client.get_dataset(f"of-{format}.{i}of2") as dataset:
                assert _rows(dataset) == list(range(5 * i, 5 * i + 5))
    done = run_command(
        "load", "x", "npy", folder, "--part", "half",
        "--address", daemon.address,
    )  # fmt: skip
    assert done.returncode == 2
    assert "--part half: expected node, or I/N" in done.stderr


def test_load_with_a_part_of_what_python_reads(
    daemon, client, tmp_path, monkeypatch
):
    monkeypatch.setenv("DATASETD_ADDRESS", daemon.address)
    np.savez(tmp_path / "rows.npz", x=np.arange(10), y=np.arange(10) % 3)
    path = tmp_path / "rows.npz"
    parts = [datasetd.load("npz", path, part=(i, 2)) for i in range(2)]
    for i, part in enumerate(parts):
        assert part.name.endswith(f".{i}of2")
        assert part.column("x").tolist() == list(range(5 * i, 5 * i + 5))
    # Another job attaches by the name, which is of the file's size and time.
    again = datasetd.load("npz", path, part=(1, 2))
    assert again.spec_id == parts[1].spec_id
    named = client.load_dataset("rows", "npz", path, part=(0, 2))
    assert named.name == "rows.0of2" and named.num_samples == 5


@pytest.mark.parametrize(
    "pattern",
    [
        "s-{000..010}.tar",
        "s-{10..3}.tar",
        "s-{0..12}.tar",
        "{a,b}-{08..11}.tar",
        "{a,,c}{1..2}",
        "plain.tar",
        "{05..1}",
    ],
)
def test_patterns_are_those_of_bash(pattern):
    expanded = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {pattern}"],
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    assert _shards.expand(pattern) == expanded


@pytest.mark.parametrize(
    "files",
    [
        ["/d/s-1.tar"],
        ["/d/s-1.tar", "/d/s-2.tar"],
        ["/d/s-1.tar", "/d/s-11.tar", "/d/s-111.tar"],
        ["/d/a/x", "/e/a/x"],
        ["aa", "aaa"],
        [f"/data/train-{i:05d}-of-00100.tar" for i in range(3, 100, 7)],
    ],
)
def test_a_pattern_names_its_files(files):
    assert _shards.expand(_shards.pattern_of(files)) == files


@pytest.mark.parametrize(
    "pattern, words",
    [
        ("s-{000..010.tar", "has an unmatched brace"),
        ("s-{a,{b,c}}.tar", "unmatched brace, or nested"),
        ("s-{a}.tar", "has braces around one thing"),
        ("s-{a..c}.tar", "has a range of something else than numbers"),
        ("s-{0..65536}.tar", "names more than 65536 files"),
        ("{0..300}{0..300}", "names more than 65536 files"),
    ],
)
def test_wrong_patterns(client, data_root, pattern, words):
    """The daemon refuses the same."""
    with pytest.raises(datasetd.InvalidArgument, match=words):
        _shards.expand(pattern)
    with pytest.raises(datasetd.InvalidArgument, match="the pattern"):
        client.load_dataset(
            "wrong", "webdataset", data_root / pattern, options=OPTIONS
        )


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"part": (0, 12)}, "names 11 shards, which cannot be divided over 12"),
        ({"part": (2, 2)}, r"part\[0\]=2; expected 0 to 1"),
        ({"part": "rank"}, "part='rank'; expected 'node', or the node's index"),
        ({"part_epoch": 1}, "part_epoch and part_seed need part="),
        ({"part": (0, 2), "part_epoch": -1}, "part_epoch=-1; expected 0 to"),
        ({"part": (0, 2), "part_seed": 1}, "part_seed needs part_epoch="),
    ],
)
def test_parts_that_are_refused(client, shards, arguments, words):
    with pytest.raises(datasetd.InvalidArgument, match=words):
        client.load_dataset(
            "refused", "webdataset", shards, options=OPTIONS, **arguments
        )


@pytest.mark.parametrize(
    "data, words",
    [
        ({"x": np.arange(3)}, "3 samples cannot be divided over 4 nodes"),
        (({"x": i} for i in range(9)), "have no len.. or no .i."),
    ],
)
def test_pushes_that_are_refused(client, data, words):
    with pytest.raises(datasetd.InvalidArgument, match=words):
        client.push_dataset("refused", data, part=(0, 4))


def test_names_that_no_pattern_can_have():
    with pytest.raises(datasetd.InvalidArgument, match="rename the shards"):
        _shards.pattern_of(["/d/a,b.tar", "/d/c.tar"])
    files = [f"/data/{i}-{'x' * 100}-{i}.tar" for i in range(100)]
    with pytest.raises(
        datasetd.InvalidArgument, match="100 shards make a pattern of .* bytes"
    ):
        _shards.pattern_of(files)
