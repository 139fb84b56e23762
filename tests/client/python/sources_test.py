"""datasetd.sources: files that their own libraries wrote; the command."""

import codecs
import functools
import io
import itertools
import json
import os
import pickle
import re
import resource
import sys
import tarfile
import zipfile
from unittest import mock

import datasetd
import h5py
import lmdb
import numpy as np
import pandas
import pytest
import torch
from conftest import run_python
from datasetd import __main__ as command
from datasetd import sources
from datasetd._push.field_names import FieldNames, Kinds
from PIL import Image

_NUMBERS = itertools.count()
_RANDOM = np.random.default_rng(4)
_IMAGES = _RANDOM.integers(0, 256, (300, 8, 9, 3), np.uint8)
_ROWS = _RANDOM.standard_normal((300, 4)).astype(np.float32)
_LABELS = np.arange(300) % 10



def _expect(client, data, want, classes=None):
    """Pushes `data`; the dataset has these fields and bits."""
    with client.push_dataset(f"source-{next(_NUMBERS)}", data) as dataset:
        _expect_content(client, dataset, want)
        if classes is not None:
            assert dataset.class_names == classes


def _expect_content(client, dataset, want):
    assert [field.name for field in dataset.fields] == list(want)
    batch = client.fetch(dataset, range(len(dataset)), framework="numpy")
    for field in dataset.fields:
        values = np.array(getattr(batch, field.name))
        if field.is_image:
            values = np.moveaxis(values, 1, -1)
        assert field.dtype == want[field.name].dtype.name
        np.testing.assert_array_equal(values, want[field.name])


@pytest.fixture
def h5(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "x", data=_IMAGES, chunks=(64, 8, 9, 3), compression="gzip"
        )
        file["y"] = _LABELS
        file["deep/rows"] = _ROWS
    return path


def test_hdf5(client, h5):
    _expect(client, sources.hdf5(h5), {"x": _IMAGES, "y": _LABELS})
    _expect(
        client,
        sources.hdf5(h5, {"image": "x", "label": "y", "z": "deep/rows"}),
        {"image": _IMAGES, "label": _LABELS, "z": _ROWS},
    )
    with pytest.raises(datasetd.InvalidArgument, match="no 'q'; it has deep/rows, x, y"):
        sources.hdf5(h5, ["q"])


def test_npz(client, tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, image=_IMAGES, label=_LABELS)
    want = {"image": _IMAGES, "label": _LABELS}
    _expect(client, sources.npz(path), want)
    _expect(client, sources.npz(path, "label"), {"label": _LABELS})
    np.savez(path, x=np.array([{}], object))
    with pytest.raises(
        datasetd.InvalidArgument, match="a.npz: .*allow_pickle"
    ):
        sources.npz(path)
    path.write_bytes(b"PK, cut off")
    with pytest.raises(datasetd.DataLoss, match="a.npz is no .npz file"):
        sources.npz(path)
    np.savez(path, image=_IMAGES)
    with zipfile.ZipFile(path, "a") as file:
        with pytest.warns(UserWarning, match="Duplicate name"):
            file.writestr("image.npy", file.read("image.npy"))
    with pytest.raises(
        datasetd.InvalidArgument, match="a.npz has 'image' 2 times"
    ):
        sources.npz(path)
    np.savez(path, image=_IMAGES)
    content = bytearray(path.read_bytes())
    content[content.index(_IMAGES.tobytes()[:16])] ^= 1
    path.write_bytes(content)
    with pytest.raises(datasetd.DataLoss, match="a.npz: Bad CRC-32"):
        sources.npz(path)


def test_npz_fields_are_sorted_and_chosen(client, tmp_path):
    path = tmp_path / "a.npz"
    flags = _LABELS[:, None] > [2, 5]
    np.savez(path, label=_LABELS, image=_IMAGES, flags=flags)
    _expect(
        client,
        sources.npz(path),
        {"flags": flags.astype(np.uint8), "image": _IMAGES, "label": _LABELS},
    )
    _expect(
        client,
        sources.npz(path, {"y": "label", "x": "image"}),
        {"y": _LABELS, "x": _IMAGES},
    )


@pytest.mark.parametrize("read", [sources.npz, sources.hdf5])
def test_which_arrays_are_images_and_masks(client, tmp_path, read):
    """As of format npy."""
    grey = _IMAGES[:, :, :, 0]
    arrays = {
        "codes": np.concatenate([_IMAGES] * 2, 3),
        "depth": grey[..., None].astype(np.float16),
        "grey": grey,
        "image": grey.astype(np.float32),
        "labels": grey.astype(np.int64)[..., None],
        "mask": grey > 9,
        "spectrum": grey.astype(np.float32),
        "vector": _IMAGES[:, 0, :, 0],
    }
    path = tmp_path / "a"
    if read is sources.npz:
        path = tmp_path / "a.npz"
        np.savez(path, **arrays)
    else:
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file[name] = array

    def kinds(**choices):
        data = read(path, **choices)
        with client.push_dataset(f"source-{next(_NUMBERS)}", data) as dataset:
            return {
                field.name: "mask" if field.is_mask else "image"
                for field in dataset.fields
                if field.is_image
            }

    assert kinds() == {
        "depth": "image", "grey": "image", "image": "image", "mask": "mask",
    }
    assert kinds(images="spectrum, -grey", masks=["-mask", "depth"]) == {
        "depth": "mask", "image": "image", "mask": "image",
        "spectrum": "image",
    }
    assert kinds(fields=["grey", "codes"], images=["-grey"]) == {}
    for choices, words in (
        ({"images": "q"}, "the fields are codes, depth"),
        ({"images": "grey,-grey"}, "each once"),
        ({"images": "-grey", "masks": "grey"}, "contradict each other"),
    ):
        with pytest.raises(datasetd.InvalidArgument, match=words):
            read(path, **choices)
    with pytest.raises(datasetd.InvalidArgument, match="expected an image"):
        client.push_dataset("vector", read(path, images="vector"))


def test_hdf5_dtypes(client, tmp_path):
    path = tmp_path / "a.h5"
    values = _RANDOM.integers(-128, 128, (300, 4))
    bits = {name: values.astype(name) for name in ("i1", "u2", "u4")}
    big = {name: values.astype(name) for name in (">i4", ">f8")}
    with h5py.File(path, "w") as file:
        for name, array in {**bits, **big}.items():
            file[name[-2:]] = array
        file["flags"] = values > 0
        file["text"] = ["no", "field"]
        file["one"] = 7
        file["u8"] = values.astype("u8")
        space = h5py.h5s.create_simple((300,))
        h5py.h5d.create(file.id, b"time", h5py.h5t.UNIX_D32LE, space)
        file["set/deep"] = values
        file["lost"] = h5py.SoftLink("/nowhere")
        file["same"] = h5py.SoftLink("/set/deep")
        file["far"] = h5py.ExternalLink("other.h5", "x")
    _expect(
        client,
        sources.hdf5(path),
        {
            "f8": values.astype("f8"),
            "flags": (values > 0).astype("u1"),
            "i1": values.astype("i1"),
            "i4": values.astype("i4"),
            "u2": bits["u2"],
            "u4": bits["u4"],
        },
    )
    _expect(client, sources.hdf5(path, "same"), {"same": values})
    _expect(client, sources.hdf5(path, {"x": "/set/deep"}), {"x": values})
    for name, words in (
        ("text", "'text' is not an array"),
        ("one", "'one' is not an array"),
        ("u8", "'u8' is not an array"),
        ("time", "'time' is not an array"),
        ("lost", "no 'lost'; it has"),
        ("far", "no 'far'; it has"),
        ("set", "no 'set'; it has"),
    ):
        with pytest.raises(datasetd.InvalidArgument, match=words):
            sources.hdf5(path, [name])


def test_an_hdf5_file_names_no_other_file(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = _LABELS
    layout = h5py.VirtualLayout((300,), "i8")
    layout[:] = h5py.VirtualSource("other.h5", "x", (300,))
    with h5py.File(path, "w") as file:
        file["linked"] = h5py.ExternalLink("other.h5", "/x")
        file["group"] = h5py.ExternalLink("other.h5", "/")
        file["good"] = _LABELS
        file.create_dataset(
            "set/stored", (4,), "u1", external=[("/etc/hostname", 0, 4)]
        )
        file.create_virtual_dataset("set/virtual", layout)
    assert list(sources.hdf5(path)) == ["good"]
    for name in ("linked", "group/x", "set/stored", "set/virtual"):
        with pytest.raises(
            datasetd.InvalidArgument, match=f"'{name}' keeps its data in other"
        ):
            sources.hdf5(path, {"x": name})
    with h5py.File(path, "a") as file:
        file.create_virtual_dataset("virtual", layout)
    with pytest.raises(datasetd.InvalidArgument, match="'virtual' keeps"):
        sources.hdf5(path)


def test_a_damaged_hdf5_file_is_named(client, h5):
    content = h5.read_bytes()
    h5.write_bytes(content[: len(content) // 2])
    with pytest.raises(datasetd.DataLoss, match="a.h5: .*truncated"):
        sources.hdf5(h5)
    # A byte of a compressed chunk.
    with h5py.File(h5.with_name("b.h5"), "w") as file:
        rows = file.create_dataset(
            "x", data=_ROWS, chunks=(300, 4), fletcher32=True
        )
        offset = rows.id.get_chunk_info(0).byte_offset
    with open(h5.with_name("b.h5"), "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(datasetd.DataLoss, match="b.h5: 'x': "):
        client.push_dataset("damaged", sources.hdf5(h5.with_name("b.h5")))


def test_torch_file(client, tmp_path):
    path = tmp_path / "a.pt"
    images, labels = torch.from_numpy(_IMAGES), torch.from_numpy(_LABELS)
    want = {"image": _IMAGES, "label": _LABELS}
    torch.save((images, labels), path)
    _expect(client, sources.torch_file(path), want)
    _expect(
        client,
        sources.torch_file(path, ["a", "b"]),
        {"a": _IMAGES, "b": _LABELS},
    )
    torch.save({"x": images, "y": labels, "note": "text"}, path)
    _expect(
        client, sources.torch_file(path, {"image": "x", "label": "y"}), want
    )

    # Nothing is left out silently.
    for content, fields, words in (
        ({"x": images, "note": "text"}, None, "'note' is str, expected a tensor"),
        ({"x": images, "n": torch.tensor(3)}, None, "'n' is one number, expected"),
        ((images, {"a": 1}), None, "'label' is dict, expected"),
        ((images, labels, labels), ["a", "b"], "3 values, but fields names 2"),
        ((images,), ["a", "b"], "1 values, but fields names 2"),
        ((images, labels), {"x": "y"}, "no 'y'; it has image, label"),
    ):
        torch.save(content, path)
        with pytest.raises(datasetd.InvalidArgument, match=f"a.pt.*{words}"):
            sources.torch_file(path, fields)
    torch.save((images, labels, "text"), path)
    _expect(
        client,
        sources.torch_file(path, {"image": "image", "label": "label"}),
        want,
    )

    torch.save([Image.fromarray(_IMAGES[0])], path)
    with pytest.raises(datasetd.DataLoss, match="a.pt: UnpicklingError: "):
        sources.torch_file(path)


def test_a_torch_file_runs_nothing(tmp_path):
    class Module(torch.nn.Module):
        def forward(self, x):
            return x

    torch.jit.save(torch.jit.script(Module()), tmp_path / "a.pt")
    with pytest.raises(datasetd.DataLoss, match="a.pt is a program of Torch"):
        sources.torch_file(tmp_path / "a.pt")
    # Versions before 2.6 extract `storages` of a tar archive, links and all.
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        link = tarfile.TarInfo("storages")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "reached")
        archive.addfile(link)
    with mock.patch.object(tarfile.TarFile, "extract") as extract:
        with pytest.raises(datasetd.DataLoss, match="a.tar: "):
            sources.torch_file(tmp_path / "a.tar")
    extract.assert_not_called()


def test_lmdb(client, tmp_path):
    path = tmp_path / "a.lmdb"
    with lmdb.open(str(path)) as environment:
        with environment.begin(write=True) as transaction:
            for i in range(300):
                transaction.put(
                    b"%08d" % i, bytes([_LABELS[i]]) + _IMAGES[i].tobytes()
                )
            transaction.put(b"__keys__", b"?")
            transaction.put(b"__len__", b"300")

    def decode(key, value):
        assert len(key) == 8
        image = np.frombuffer(value[1:], np.uint8).reshape(8, 9, 3)
        return {"image": image, "label": value[0]}

    entries = sources.lmdb(path, decode)
    assert len(entries) == 300
    _expect(client, entries, {"image": _IMAGES, "label": _LABELS})


def _encoded():
    """_IMAGES as files."""
    files = []
    for image in _IMAGES:
        file = io.BytesIO()
        Image.fromarray(image).save(file, "png")
        files.append(file.getvalue())
    return files


def test_encoded_images_are_decoded_by_the_daemon(client, tmp_path):
    files = _encoded()
    want = {"image": _IMAGES, "label": _LABELS}
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset(
            "image", len(files), dtype=h5py.vlen_dtype(np.uint8)
        )
        for i, data in enumerate(files):
            dataset[i] = np.frombuffer(data, np.uint8)
        file["label"] = _LABELS
    _expect(client, sources.hdf5(path), want)
    path = tmp_path / "a.lmdb"
    with lmdb.open(str(path), map_size=1 << 24) as environment:
        with environment.begin(write=True) as transaction:
            for i, data in enumerate(files):
                transaction.put(b"%08d" % i, bytes([_LABELS[i]]) + data)
    _expect(
        client,
        sources.lmdb(path, lambda _, v: {"image": v[1:], "label": v[0]}),
        want,
    )

    def spoilt(key, value):
        return {"image": value[1:] if int(key) != 7 else value[1:60]}

    dataset = client.load_dataset(
        "spoilt-lmdb", "lmdb", path, options={"decode": spoilt},
        bad_samples="skip",
    )
    assert [bad.index for bad in dataset.bad_samples] == [7]
    assert len(dataset) == 299


def test_csv(client, tmp_path):
    path = tmp_path / "a.csv"
    frame = pandas.DataFrame(_ROWS, columns=["a", "b", "c", "d"])
    frame["kind"] = [f"class {i}" for i in _LABELS]
    frame.to_csv(path, index=False, sep=";")
    read = pandas.read_csv(path, sep=";", usecols=range(4))
    _expect(
        client,
        sources.csv(
            path, {"x": ["a", "b", "c", "d"], "label": "kind"}, sep=";"
        ),
        {"x": read.to_numpy(), "label": _LABELS},
        [f"class {i}" for i in range(10)],
    )
    narrow = sources.csv(path, "a", sep=";", dtype={"a": "float32"})
    assert narrow["a"].dtype == np.float32
    frame["kind"] = _LABELS
    frame.to_csv(path, index=False)
    for one in (["kind"], "kind"):
        _expect(client, sources.csv(path, one), {"kind": _LABELS})
    with pytest.raises(datasetd.InvalidArgument, match="no column 'z'"):
        sources.csv(path, ["z"])
    frame.iloc[5, 0] = None
    frame.to_csv(path, index=False)
    with pytest.raises(
        datasetd.InvalidArgument,
        match="line 7: column 'a' has empty cells: .*fillna.*push_dataset",
    ):
        sources.csv(path)


@pytest.mark.parametrize(
    "cells, line, cell, options",
    [
        ("0 ? 3 10 2", 3, "?", {}),
        ("1 2 n/a! 4", 4, "n/a!", {}),
        ("0.5 1.5 $5", 4, "$5", {}),
        ('"1,234" 5 6', 2, "1,234", {}),
        ("1 2 three", 4, "three", {"engine": "python"}),
        ("1 - 3", 3, "-", {"na_values": ["?"]}),
        ("True False maybe", 4, "maybe", {}),
        ("1,5;2,5;x".replace(";", " "), 4, "x", {"decimal": ",", "sep": ";"}),
    ],
)
@pytest.mark.parametrize("name", ["ca", "label"])
def test_an_odd_cell_in_a_csv_column_of_numbers(
    tmp_path, cells, line, cell, options, name
):
    path = tmp_path / "u.csv"
    sep = options.get("sep", ",")
    rows = [f"{value}{sep}{i}\n" for i, value in enumerate(cells.split())]
    path.write_text(f"{name}{sep}n\n" + "".join(rows))
    with pytest.raises(
        datasetd.InvalidArgument,
        match=rf"u.csv, line {line}: column '{name}' is '{re.escape(cell)}', "
        rf"but its other cells are numbers: .*na_values=\['{re.escape(cell)}'\]",
    ):
        sources.csv(path, **options)
    asked = sources.csv(path, label=name, **options)
    assert asked.classes == sorted(set(asked.classes)) and cell in asked.classes
    assert sources.csv(path, "n", **options)["n"].tolist() == list(
        range(len(rows))
    )


def test_numbers_of_a_csv_are_those_of_the_frame(client, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        "t,n,flag,wide\n1700000001.5,16777217,True,0.1\n"
        "1700000002.5,9007199254740993,False,1e300\n"
    )
    _expect(
        client,
        sources.csv(path),
        {
            "t": np.array([1700000001.5, 1700000002.5]),
            "n": np.array([16777217, 9007199254740993]),
            "flag": np.array([1, 0], np.uint8),
            "wide": np.array([0.1, 1e300]),
        },
    )
    with pytest.raises(
        datasetd.InvalidArgument, match=r"column 'n' has integers above 2\*\*53"
    ):
        sources.csv(path, {"x": ["t", "n"]})
    with pytest.raises(
        datasetd.InvalidArgument,
        match="line 3: column 'wide' is '1e300', which float32 cannot "
        "represent",
    ):
        sources.csv(path, dtype={"wide": "float32"})


@pytest.mark.parametrize(
    "name", ["label", "Species", "target", "class_name", "y", "sub category"]
)
def test_text_of_a_label_column_of_a_csv(client, tmp_path, name):
    path = tmp_path / "a.csv"
    path.write_text(f"x,{name}\n" + "1,dog\n2,cat\n3,dog\n")
    source = sources.csv(path)
    assert source[name].tolist() == [1, 0, 1]
    assert source.classes == ["cat", "dog"]
    assert source.notes == [
        (f"the text of column {name!r} became 2 classes, sorted: 'cat', 'dog'",
         False)
    ]
    listed = sources.csv(path, classes=["ant", "dog", "cat"])
    assert listed[name].tolist() == [1, 2, 1]
    with pytest.raises(
        datasetd.InvalidArgument,
        match="line 3 is of class 'cat', which classes does not list: .*"
        "ignore_other_classes",
    ):
        sources.csv(path, classes=["dog"])
    some = sources.csv(path, classes=["dog"], ignore_other_classes=True)
    assert some["x"].tolist() == [1, 3] and some[name].tolist() == [0, 0]
    assert "left out: 1 rows of classes that are not listed, 'cat'" in [
        note.text for note in some.notes
    ]


def test_other_text_of_a_csv_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,by,label\n1,me,dog\n2,you,cat\n")
    with pytest.raises(
        datasetd.InvalidArgument,
        match="line 2: column 'by' contains text, such as 'me': leave it out "
        "with fields=, or make classes of it with label='by'",
    ):
        sources.csv(path)
    path.write_text("by,name,label\nme,a,dog\nyou,b,cat\n")
    with pytest.raises(
        datasetd.InvalidArgument,
        match="column 'by' contains text, such as 'me', and so do 'name': "
        "leave",
    ):
        sources.csv(path)
    path.write_text("x,by,label\n1,me,dog\n2,you,cat\n")
    assert sources.csv(path, {"kind": "by"}, "by").classes == ["me", "you"]
    assert sources.csv(path, {"label": "by"}).classes == ["me", "you"]
    both = sources.csv(path, ["x", "label"])
    assert both.notes[0].text == "left out: columns 'by'"


def test_words_that_pandas_takes_for_empty_cells(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,label,income\n1,NA,5\n2,US,\n3,None,7\n")
    with pytest.raises(
        datasetd.InvalidArgument,
        match="line 2: column 'label' is 'NA', which pandas reads as an empty "
        "cell: keep_default_na=False",
    ):
        sources.csv(path, ["x", "label"])
    kept = sources.csv(path, ["x", "label"], keep_default_na=False)
    assert kept.classes == ["NA", "None", "US"]
    with pytest.raises(
        datasetd.InvalidArgument, match="line 3: column 'income' has empty cells"
    ):
        sources.csv(path, {"x": ["x", "income"]})
    path.write_text("x,income\n1,5\n2,n/a\n")
    with pytest.raises(
        datasetd.InvalidArgument,
        match="line 3: column 'income' has empty cells, as pandas reads 'n/a': "
        "fill them",
    ):
        sources.csv(path)


def test_a_csv_without_a_header(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("1,2,7\n3,4,8\n")
    columns = sources.csv(path, header=None)
    assert {k: v.tolist() for k, v in columns.items()} == {
        "0": [1, 3], "1": [2, 4], "2": [7, 8]
    }
    columns = sources.csv(path, {"x": [0, "1"], "label": 2}, header=None)
    assert {k: v.tolist() for k, v in columns.items()} == {
        "x": [[1, 2], [3, 4]], "label": [7, 8]
    }
    assert sources.csv(path, [2], header=None)["2"].tolist() == [7, 8]
    with pytest.raises(datasetd.InvalidArgument, match="no column '3'"):
        sources.csv(path, {"x": [0, 3]}, header=None)


def test_integers_of_a_csv_that_int64_does_not_hold(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f"a,b\n1,{2**63 - 1}\n2,{2**63}\n")
    for fields in (None, {"x": ["a", "b"]}):
        with pytest.raises(
            datasetd.InvalidArgument, match=r"a.csv: column 'b' has .*2\*\*63"
        ):
            sources.csv(path, fields)
    (values,) = sources.csv(path, {"x": ["b"]}, nrows=1).values()
    assert values.tolist() == [[2**63 - 1]]
    values = sources.csv(path, {"b": "b"}, dtype={"a": "uint64"}, nrows=1)["b"]
    assert values.tolist() == [2**63 - 1]


@pytest.mark.parametrize("rows", [
    "18446744073709551616 1", "1 -9223372036854775809",
    "-1 9223372036854775808", "12345678901234567890123 1",
])
@pytest.mark.parametrize("engine", ["c", "python"])
def test_integers_of_a_csv_that_pandas_reads_as_text(tmp_path, rows, engine):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "".join(f"{n},2\n" for n in rows.split()))
    for fields in (None, "a", {"x": ["b", "a"]}):
        with pytest.raises(
            datasetd.InvalidArgument,
            match=r"a.csv: column 'a' has integers .* dtype=\{'a': str\}",
        ):
            sources.csv(path, fields, engine=engine, dtype={"b": "int64"})
    for dtype in (str, {"a": str}):
        source = sources.csv(path, "a", engine=engine, dtype=dtype)
        assert sorted(source.classes) == sorted(rows.split())
    assert sources.csv(path, "b", engine=engine)["b"].tolist() == [2, 2]


def test_texts_of_a_csv_that_look_like_numbers(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("version;x\n1.10;0,5\n1.9;1,5\n")
    source = sources.csv(path, sep=";", decimal=",", label="version")
    assert source.classes == ["1.10", "1.9"]
    path.write_text("a,b\n")
    assert {k: len(v) for k, v in sources.csv(path, "a").items()} == {"a": 0}


@pytest.mark.parametrize("first", ["1 3", "5 4", "x y"])
def test_a_csv_with_cells_beyond_its_header(tmp_path, first):
    """pandas names cells from the last one on, and takes the others away."""
    path = tmp_path / "a.csv"
    path.write_text(
        "a,b\n" + "".join(f"{cell},7,8\n" for cell in first.split()))
    with pytest.raises(
        datasetd.InvalidArgument, match="a.csv: rows have more cells than"
    ):
        sources.csv(path, "b")
    source = sources.csv(path, "b", names=["a", "b", "c"], header=0)
    assert source["b"].tolist() == [7, 7]
    assert sources.csv(path, "b", index_col=0)["b"].tolist() == [8, 8]


def test_a_class_of_a_long_csv_is_one(tmp_path):
    """pandas reads 2048 rows of so many columns at once, unless told."""
    path = tmp_path / "a.csv"
    rows = [f"007,{','.join('0' * 255)}\n"] * 5000
    path.write_text(
        ",".join(f"c{i}" for i in range(256)) + "\n" + "".join(rows)
        + rows[0].replace("007", "bond")
    )
    source = sources.csv(path, "c0", label="c0")
    assert source.classes == ["007", "bond"]
    assert source["c0"].tolist() == [0] * 5000 + [1]
    for options in ({"engine": "python"}, {"sep": None}):
        few = sources.csv(
            path, "c0", "c0", skiprows=range(1, 4999), **options
        )
        assert few.classes == ["007", "bond"]
    with pytest.warns(pandas.errors.DtypeWarning):
        split = sources.csv(path, "c0", "c0", low_memory=True)
    assert split.classes == ["007", "7", "bond"]


def _fer2013(path):
    """Writes six rows in the form of FER-2013."""
    usages = ["Training", "PublicTest", "training", "PrivateTest", "Training",
              "PublicTest"]
    images, labels = _IMAGES[:6, :8, :8, :1], _LABELS[:6]
    frame = pandas.DataFrame({
        "emotion": labels,
        "pixels": [" ".join(map(str, image.ravel())) for image in images],
        "Usage": usages,
    })
    frame.to_csv(path, index=False)
    return images, labels, np.array([usage.lower() for usage in usages])


def test_csv_pixels(client, tmp_path):
    path = tmp_path / "fer2013.csv"
    images, labels, usages = _fer2013(path)
    for split, usage in (("train", "training"), ("public_test", "publictest"),
                         ("private_test", "privatetest")):
        kept = usages == usage
        _expect(client, sources.csv_pixels(path, split),
                {"image": images[kept], "label": labels[kept]})
    _expect(client, sources.csv_pixels(path, "all"),
            {"image": images, "label": labels})
    # Other columns, quotes, CRLF, blank lines, no end of the last line.
    wide = _IMAGES[:3, :2, :5, :1]
    rows = [f'{i},"{" ".join(map(str, image.ravel()))}"'
            for i, image in enumerate(wide)]
    path.write_bytes(
        "\r\n".join(['\ufeffid, "Pixels"', "", *rows]).encode())
    _expect(client, sources.csv_pixels(path, width=5), {"image": wide})
    _expect(client, sources.csv_pixels(path, height="2"), {"image": wide})


@pytest.mark.parametrize(
    "text, words",
    [
        ("a,b\n1,2\n", "no column is called pixels"),
        ("pixels,Pixels\n1,2\n", "two columns of pixels"),
        ("pixels\n1 2 3\n", "line 2: 3 pixels are not 2 x 2"),
        ("pixels\n1 2 3 4\n1 2 3\n", "line 3: 3 pixels, expected 2 x 2"),
        ("pixels\n1 2 256 4\n", "'256', expected an integer from 0 to 255"),
        ("pixels\n1 2 -3 4\n", "'-3'"),
        ("pixels\n1 2 3.5 4\n", "'3.5'"),
        ("pixels\n1 2 3 99999999999999999999\n", "'99999999999999999999'"),
        ("pixels\n1 2 3 \u0663\n", "'\u0663'"),
        ("pixels\n\"\"\n", "0 pixels"),
        ("pixels,label\n1,x\n", "the label is 'x'"),
        ("label,pixels,usage\n1,1,Training\n1,1\n", "line 3: 2 columns, expected 3"),
        ("label,pixels\n1,1\n1,1,1,1\n", "line 3: 4 columns, expected 2"),
        ("pixels,label\n1,\n", "the label is ''"),
        ("pixels,usage\n1,PublicTest\n", "no row of split 'train'"),
        ("", "no column is called pixels"),
    ],
)
def test_a_csv_of_pixels_that_is_wrong(tmp_path, text, words):
    path = tmp_path / "p.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(datasetd.InvalidArgument, match=f"p.csv: .*{words}"):
        sources.csv_pixels(path)


def _cifar(directory, batches, protocol=2, **meta):
    """Writes batches of 10 images: [10, 32, 32, 3]."""
    directory.mkdir(parents=True)
    rows = np.tile(np.arange(3072) % 251, (10, 1)).astype(np.uint8)
    rows += np.arange(10, dtype=np.uint8)[:, None]
    for name, labels in batches.items():
        with open(directory / name, "wb") as file:
            pickle.dump(dict(labels, data=rows), file, protocol)
    for name, content in meta.items():
        with open(directory / name.replace("_", "."), "wb") as file:
            pickle.dump(content, file, protocol)
    return rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def test_cifar10_python(client, tmp_path):
    names = [f"c{i}" for i in range(10)]
    labels = [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    folder = tmp_path / "cifar-10-batches-py"
    batches = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    images = _cifar(
        folder,
        {name: {"labels": labels} for name in batches},
        batches_meta={"label_names": names},
    )
    want = {
        "image": np.tile(images, (5, 1, 1, 1)),
        "label": np.tile(np.array(labels, np.uint8), 5),
    }
    _expect(client, sources.cifar_python(folder), want, names)
    # The folder that it is in.
    _expect(client, sources.cifar_python(tmp_path), want, names)
    with pytest.raises(datasetd.InvalidArgument, match="train or test"):
        sources.cifar_python(folder, "valid")
    _cifar(tmp_path / "unnamed", {"test_batch": {"labels": labels}}, 4)
    _expect(
        client,
        sources.cifar_python(tmp_path / "unnamed", "test"),
        {"image": images, "label": np.array(labels, np.uint8)},
        [],
    )
    for name, content, words in (
        ("short", {"labels": labels[:9]}, "10 images"),
        ("high", {"labels": [10] * 10}, "not 0 to 9"),
        ("none", {}, "labels"),
    ):
        _cifar(tmp_path / name, {"test_batch": content})
        with pytest.raises(datasetd.DataLoss, match=f"test_batch.*{words}"):
            sources.cifar_python(tmp_path / name, "test")


def test_cifar100_python(client, tmp_path):
    names = [f"c{i}" for i in range(100)]
    labels = {
        "fine_labels": list(range(90, 100)),
        "coarse_labels": list(range(10, 20)),
    }
    images = _cifar(
        tmp_path / "cifar-100-python",
        {"train": labels, "test": labels},
        meta={"fine_label_names": names},
    )
    want = {
        "image": images,
        "label": np.arange(90, 100, dtype=np.uint8),
        "coarse_label": np.arange(10, 20, dtype=np.uint8),
    }
    for path in (tmp_path, tmp_path / "cifar-100-python"):
        for split in ("train", "test"):
            _expect(client, sources.cifar_python(path, split), want, names)
    (tmp_path / "cifar-10-batches-py").mkdir()
    with pytest.raises(
        datasetd.InvalidArgument, match="give the path of one of them"
    ):
        sources.cifar_python(tmp_path)


class _Attack:
    def __reduce__(self):
        return os.system, ("touch attacked",)


def test_a_pickle_runs_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open("data_batch_1", "wb") as file:
        pickle.dump({"data": _Attack()}, file)
    with pytest.raises(datasetd.DataLoss, match="it asks for .*system"):
        sources.cifar_python(".")
    assert not os.path.exists("attacked")


class _Reduced:
    """Is pickled as `reduced`, whatever that makes."""

    def __init__(self, *reduced):
        self.reduced = reduced

    def __reduce__(self):
        return self.reduced


def _dtype(name="u1", state=(3, "|", None, None, None, -1, -1, 0)):
    return _Reduced(np.dtype, (name, False, True), state)


def _array(shape=(10,), dtype=None, data=bytes(10), version=1):
    return _Reduced(
        np.zeros(1).__reduce__()[0],
        (np.ndarray, (0,), b"b"),
        (version, shape, dtype or _dtype(), False, data),
    )


_NO_INTEGERS = "an array of no integers"
_NOT_PLAIN = "an array of no plain dtype"
_NOT_AS_SAID = "an array that is not as its shape and dtype say"
_POINTERS = b"A" * 80
_OBJECT_FIELD = (3, "|", None, ("f",), {"f": (np.dtype("O"), 0)}, 8, 1, 0)


@pytest.mark.parametrize(
    "value, words",
    [
        # The flags of the dtype hide that it holds objects.
        (_array(dtype=_dtype("O8"), data=_POINTERS), _NO_INTEGERS),
        (
            _array(dtype=_dtype("V8", _OBJECT_FIELD), data=_POINTERS),
            _NO_INTEGERS,
        ),
        (
            _array(dtype=_dtype("i8", _OBJECT_FIELD), data=_POINTERS),
            _NO_INTEGERS,
        ),
        (_array(dtype=_dtype(state=_OBJECT_FIELD[:2] + (None,) * 6)), _NOT_PLAIN),
        (_array(dtype=_dtype(state=())), _NOT_PLAIN),
        (_array(dtype=_dtype("i8"), data=bytes(10)), _NOT_AS_SAID),
        (_array((1 << 40,)), _NOT_AS_SAID),
        (_array((-1, -10)), _NOT_AS_SAID),
        (_array((1,) * 100 + (10,)), _NOT_AS_SAID),
        (_array(dtype="u1"), _NOT_AS_SAID),
        (_array(data=[0] * 10), _NOT_AS_SAID),
        (_array(version=2), _NOT_AS_SAID),
        (_array((2, 5)), "labels are no list"),
        (np.zeros(10, "f4"), _NO_INTEGERS),
        (np.zeros(10, "O"), _NO_INTEGERS),
        (_Reduced(np.dtype, ("u1",)), "labels are not whole numbers"),
        (_Reduced(np.ndarray, ((10,), "O")), "an array in an unknown way"),
        (_Reduced(codecs.encode, ("", "zip")), "bytes in an unknown encoding"),
        ([0.5] * 10, "labels are not whole numbers"),
        (["1"] * 10, "labels are not whole numbers"),
    ],
)
def test_a_pickle_reaches_nothing_of_numpy(tmp_path, value, words):
    _cifar(tmp_path / "a", {"test_batch": {"labels": value}})
    with pytest.raises(datasetd.DataLoss, match=f"test_batch.*({words})"):
        sources.cifar_python(tmp_path / "a", "test")


@pytest.mark.parametrize(
    "data, words",
    [
        (b"\x80\x02c_codecs\nencode\n}b.", "it changes a function"),
        # A bytearray of 1 TiB; a list of the place 2 ** 25 of the memo.
        (b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b".", "150"),
        (b"\x80\x02]r\0\0\0\x02.", "it is no dict"),
    ],
)
def test_a_pickle_changes_and_grows_nothing(tmp_path, data, words):
    (tmp_path / "test_batch").write_bytes(data)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(datasetd.DataLoss, match=f"no batch of CIFAR: {words}"):
        sources.cifar_python(tmp_path, "test")
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 64 << 10  # KiB


def test_arrays_of_a_cifar_pickle(tmp_path):
    """In the orders and widths that NumPy writes."""
    rows = np.arange(10 * 3072, dtype="u4").astype("u1").reshape(10, 3072)
    for i, labels in enumerate((">i4", "<u2", "i1", "i8")):
        want = np.arange(10).astype(labels)
        for data in (rows, np.asfortranarray(rows)):
            (tmp_path / "test_batch").write_bytes(
                pickle.dumps({"labels": want, "data": data}, 2 + i % 3)
            )
            source = sources.cifar_python(tmp_path, "test")
            np.testing.assert_array_equal(source["label"], want)
            np.testing.assert_array_equal(
                source["image"],
                rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1),
            )


def test_image_folder(client, tmp_path, monkeypatch):
    endings = ["bmp", "tif", "webp", "gif", "png", "TIFF"]
    want = []
    for kind in ("ant", "bee"):
        (tmp_path / kind / "deep").mkdir(parents=True)
        for i, ending in enumerate(endings):
            image = Image.fromarray(_IMAGES[i])
            options = {"lossless": True} if ending == "webp" else {}
            image.save(tmp_path / kind / f"{i}.{ending}", **options)
            with Image.open(tmp_path / kind / f"{i}.{ending}") as saved:
                want.append(np.asarray(saved.convert("RGB")))
        (tmp_path / kind / "notes.txt").write_text("no image")
    folder = sources.image_folder(tmp_path)
    assert len(folder) == 12
    _expect(
        client,
        folder,
        {"image": np.array(want), "label": np.repeat([0, 1], 6)},
        ["ant", "bee"],
    )
    assert len(sources.image_folder(tmp_path, [".gif"])) == 2
    (tmp_path / "ant" / "9.gif").write_bytes(b"GIF89a, cut off")
    with pytest.raises(datasetd.DataLoss, match="9.gif"):
        client.push_dataset("bad", sources.image_folder(tmp_path))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 8 * 9 // 2 - 1)
    with pytest.raises(datasetd.DataLoss, match="0.bmp: .*decompression bomb"):
        client.push_dataset("bomb", sources.image_folder(tmp_path))


def _image(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(_IMAGES[0]).save(path)


def test_an_image_folder_is_whole_or_an_error(tmp_path, monkeypatch):
    invalid = datasetd.InvalidArgument
    with pytest.raises(invalid, match="contains no directory, expected one"):
        sources.image_folder(tmp_path)
    _image(tmp_path / "ant" / "a.png")
    _image(tmp_path / "bee" / "deep" / "b.png")
    (tmp_path / "cow").mkdir()
    empty = sources.image_folder(tmp_path)
    assert empty.classes == ["ant", "bee", "cow"]
    assert [note.text for note in empty.notes] == ["class 'cow' has no image"]
    # Links are followed.
    (tmp_path / "cow" / "link").symlink_to(tmp_path / "bee")
    folder = sources.image_folder(tmp_path)
    assert [folder[i][1] for i in range(len(folder))] == [0, 1, 2]

    scandir = os.scandir

    def refused(path):
        if str(path).endswith("deep"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    with monkeypatch.context() as patch:
        patch.setattr("os.scandir", refused)
        with pytest.raises(PermissionError, match="bee/deep"):
            sources.image_folder(tmp_path)
    (tmp_path / "bee" / "deep" / "up").symlink_to(tmp_path / "cow")
    with pytest.raises(OSError, match="to a directory above it: .*link"):
        sources.image_folder(tmp_path)


def test_a_folder_of_images_alone_has_no_labels(client, tmp_path):
    for name in ("b.tif", "a.png"):
        _image(tmp_path / name)
    flat = client.push_dataset(None, sources.image_folder(tmp_path))
    assert [field.name for field in flat.fields] == ["image"]
    assert len(flat) == 2
    with pytest.raises(datasetd.InvalidArgument, match="of 'ant'"):
        sources.image_folder(tmp_path, classes=["ant"])
    _image(tmp_path / "ant" / "a.png")
    folder = sources.image_folder(tmp_path)
    assert len(folder) == 1 and folder.classes == ["ant"]
    assert ("2 images outside", True) in [
        (note.text[10:26], note.is_warning) for note in folder.notes
    ]


def test_the_classes_of_an_image_folder_are_those_given(client, tmp_path):
    for kind in ("ant", "cow", ".ipynb_checkpoints"):
        _image(tmp_path / kind / "a.png")
    (tmp_path / "ant" / "notes.txt").write_text("no image")
    (tmp_path / "cow" / "b.raw").write_text("no image")
    alone = sources.image_folder(tmp_path)
    assert alone.classes == ["ant", "cow"]
    assert [note.text for note in alone.notes] == [
        "left out: hidden directories, '.ipynb_checkpoints'",
        "left out: files of other kinds, 1 .txt, 1 .raw",
    ]
    names = ["ant", "bee", "cow"]
    image = np.array([_IMAGES[0]] * 2)
    want = {"image": image, "label": np.array([0, 2])}
    with client.push_dataset("train-classes", {"x": [1, 2]},
                             class_names=names) as train:
        for classes in (names, train):
            folder = sources.image_folder(tmp_path, classes=classes)
            _expect(client, folder, want, names)
        # Data with classes of its own, and the list of another dataset.
        with client.push_dataset(
            "val-classes", alone, class_names="train-classes"
        ) as val:
            _expect_content(client, val, want)
            assert val.class_names == names
    for classes, words in (
        (["ant"], "cow is of class 'cow', which classes does not list: 'ant'.*"
         "ignore_other_classes=True"),
        ("train-classes", "only load_dataset and push_dataset take the name"),
        ([], "classes is empty"),
        (["ant", "ant"], "'ant' 2 times"),
        (3, "classes=3; expected a list"),
    ):
        with pytest.raises(datasetd.InvalidArgument, match=words):
            sources.image_folder(tmp_path, classes=classes)
    some = sources.image_folder(
        tmp_path, classes=["cow"], ignore_other_classes=True
    )
    assert len(some) == 1 and some[0][1] == 0
    with client.push_dataset(
        "val-some", alone, class_names=["cow", "x"], ignore_other_classes=True
    ) as dataset:
        assert dataset.column("label").tolist() == [0]


def test_load_dataset_takes_the_classes_of_a_resident_dataset(
    client, tmp_path
):
    path = tmp_path / "val.csv"
    path.write_text("x,label\n1,dog\n2,ant\n")
    np.savez(tmp_path / "a.npz", x=[1, 2], label=["dog", "ant"])
    names = ["ant", "cat", "dog"]
    with client.push_dataset("train-csv", {"x": [1]}, class_names=names):
        for format, name in (("csv", "val.csv"), ("npz", "a.npz")):
            for classes in ("train-csv", names):
                with client.load_dataset(
                    f"val-{next(_NUMBERS)}", format, tmp_path / name,
                    options={"classes": classes},
                ) as dataset:
                    assert dataset.column("label").tolist() == [2, 0]
                    assert dataset.class_names == names
        with client.push_dataset("no-names", {"x": [1]}):
            with pytest.raises(
                datasetd.InvalidArgument, match="'no-names': .*no class names"
            ):
                client.load_dataset(
                    "val", "csv", path, options={"classes": "no-names"}
                )


def test_what_an_hdf5_file_does_not_give_is_told(client, tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = _ROWS
        file["deep/rows"] = _ROWS
        file["pairs"] = np.zeros(3, [("a", "i4"), ("b", "f4")])
    quiet = sources.hdf5(path)
    assert quiet.notes == [
        ("left out: 'deep' (a group), 'pairs' (a compound type); "
         "fields={'x': 'group/name'} names datasets of groups", False)
    ]
    path = tmp_path / "b.h5"
    with h5py.File(path, "w") as file:
        file["x"] = _ROWS
        file["names"] = ["cat"] * 300
        file["label"] = np.zeros(3, [("a", "i4")])
    source = sources.hdf5(path)
    with pytest.warns(
        UserWarning, match=r"left out: .*'label' \(a compound.*'names' \(text\)"
    ):
        _expect(client, source, {"x": _ROWS})


def test_text_labels_of_an_hdf5_file_are_classes(client, tmp_path):
    path = tmp_path / "a.h5"
    texts = [f"class {i}" for i in _LABELS]
    with h5py.File(path, "w") as file:
        file["x"] = _ROWS
        file["species"] = texts
        file["fixed"] = np.array(texts, "S9")
    names = [f"class {i}" for i in range(10)]
    with pytest.warns(UserWarning, match="left out: 'fixed'"):
        _expect(client, sources.hdf5(path),
                {"species": _LABELS, "x": _ROWS}, names)
    _expect(client, sources.hdf5(path, {"label": "fixed"}),
            {"label": _LABELS}, names)


@pytest.mark.parametrize(
    "call, package",
    [
        (lambda p: sources.parquet(p), "pyarrow"),
        (lambda p: sources.safetensors(p), "safetensors"),
        (lambda p: sources.zarr(p), "zarr"),
        (lambda p: sources.hdf5(p), "h5py"),
        (lambda p: sources.lmdb(p, None), "lmdb"),
        (lambda p: sources.csv(p), "pandas"),
        (lambda p: sources.recordio(p), "mxnet"),
        (lambda p: sources.tfrecord(p, {}), "tfrecord"),
    ],
)
def test_a_missing_library_is_named(call, package, tmp_path, monkeypatch):
    for name in [n for n in sys.modules if n.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        datasetd.FailedPrecondition, match=f"pip install {package}"
    ):
        call(tmp_path)


def test_a_file_that_may_not_be_read(h5, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(datasetd.PermissionDenied, match="a.h5: this process"):
        sources.hdf5(h5)


def test_a_path_that_is_not_there():
    with pytest.raises(datasetd.NotFound, match="/nowhere/x.h5"):
        sources.hdf5("/nowhere/x.h5")
    with pytest.raises(datasetd.NotFound, match=os.path.expanduser("~/x.h5")):
        sources.hdf5("~/x.h5")


def test_the_command_pushes_what_python_reads(
    client, daemon, h5, run_command
):
    done = run_python(
        "-m", "datasetd", "load", "cli", "hdf5", h5, "--address", daemon.address,
        "--field", "image=x", "--field", "label=y", "--kind", "label=array",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("cli: 300 samples")
    with client.get_dataset("cli") as dataset:
        assert dataset.format == "push"
        _expect_content(
            client, dataset, {"image": _IMAGES, "label": _LABELS}
        )
    done = run_command(
        "--json", "load", "cli", "hdf5", h5,
        f"--address={daemon.address}", "--if_exists", "keep",
    )
    assert (done.returncode, done.stderr) == (0, "")
    message = json.loads(done.stdout)
    assert message["name"] == "cli" and message["num_samples"] == "300"


def test_a_kind_of_one_field_leaves_the_others(
    client, daemon, tmp_path, run_command
):
    for i in range(3):
        folder = tmp_path / "f" / f"class{i}"
        folder.mkdir(parents=True)
        Image.fromarray(_IMAGES[i]).save(folder / "a.png")
    run = functools.partial(
        run_command, "load", "cli-kinds", "image_folder", tmp_path / "f",
        "--in_python", "--address", daemon.address, "--kind",
    )
    done = run("label=array")
    assert (done.returncode, done.stderr) == (0, "")
    with client.get_dataset("cli-kinds") as dataset:
        assert [field.name for field in dataset.fields] == ["image", "label"]
    done = run("photo=image")
    assert done.returncode == 1
    assert "there is no field 'photo'; there are image, label" in done.stderr
    # The same holds for tables, and for samples that are dicts.
    names = FieldNames(Kinds({"a": "array"}))
    assert list(names.choose({"a": 0, "b": 1}, "a table")) == ["a", "b"]
    assert names.kind("a") == "array" and names.kind("b") == "auto"


def test_the_command_asks_the_daemon_for_its_formats(
    daemon, data_root, run_command
):
    done = run_command(
        "load", "npy", "npy", data_root / "three", "--address", daemon.address
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("npy: 3 samples")


def test_the_command_ends_with_the_codes_of_datasetctl(
    daemon, h5, tmp_path, run_command
):
    def fails(code, kind, words, *arguments):
        done = run_command("--json", *arguments)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        error = json.loads(done.stderr)["error"]
        assert error["code"] == kind
        assert words in error["message"]

    at = ("--address", daemon.address)
    load = ("load", "d")
    fails(2, "INVALID_ARGUMENT", "required", "load")
    fails(2, "INVALID_ARGUMENT", "neither the daemon's", *load, "x", h5, *at)
    fails(2, "INVALID_ARGUMENT", "expected KEY=VALUE",
          *load, "csv", h5, "--option", "sep", *at)
    fails(2, "INVALID_ARGUMENT", "has no option 'a'",
          *load, "safetensors", h5, "--option", "a=b", *at)
    fails(2, "INVALID_ARGUMENT", "MODULE:FUNCTION",
          *load, "lmdb", h5, "--option", "decode=x", *at)
    fails(2, "INVALID_ARGUMENT", "needs the option 'decode'",
          *load, "lmdb", h5, *at)
    fails(1, "DATA_LOSS", f"{h5}: UnpicklingError",
          *load, "torch_file", h5, *at)
    fails(1, "NOT_FOUND", "no such file",
          *load, "csv", tmp_path / "none.csv", *at)
    fails(1, "INVALID_ARGUMENT", "no 'q'",
          *load, "hdf5", h5, "--field", "a=q", *at)
    fails(3, "UNAVAILABLE", "no daemon",
          *load, "csv", h5, "--address", tmp_path / "none.sock")
    done = run_command(*load, "csv", "/none.csv", *at)
    assert done.returncode == 1
    assert done.stderr == "datasetd: /none.csv: no such file or directory\n"


def test_options_of_the_command_are_literals(
    client, daemon, tmp_path, run_command
):
    path = tmp_path / "a.csv"
    path.write_text("class;n\n" + "NA;1\nb;2\n" * 9)
    done = run_command(
        "load", "cli-csv", "csv", path, "--address", daemon.address,
        "--option", "sep=;", "--option", "keep_default_na=false",
        "--option", "nrows=5", "--option", "usecols=['class']",
    )
    assert (done.returncode, done.stderr) == (0, "")
    with client.get_dataset("cli-csv") as dataset:
        assert dataset.class_names == ["NA", "b"]
        _expect_content(client, dataset, {"class": np.array([0, 1, 0, 1, 0])})


@pytest.mark.parametrize("format", ["csv", "npy"])
def test_the_command_loads_private_and_pinned(
    client, daemon, data_root, tmp_path, run_command, format
):
    path = data_root / "three"
    if format == "csv":
        path = tmp_path / "a.csv"
        path.write_text("n\n1\n2\n")
    name = f"cli-private-{format}"
    done = run_command(
        "load", name, format, path, "--address", daemon.address,
        "--private", "--pin",
    )
    assert (done.returncode, done.stderr) == (0, "")
    (message,) = [d for d in client.list_datasets() if d["name"] == name]
    assert (message["is_private"], message["is_pinned"]) == (True, True)
    client.unload_dataset(name)


@pytest.mark.parametrize(
    "text, value",
    [
        ("true", True), ("False", False), ("null", None), ("None", None),
        ("5", 5), ("-1.5", -1.5), ('"5"', "5"), ("'a b'", "a b"),
        ('["a", 0]', ["a", 0]), ("{'a': 'int8'}", {"a": "int8"}),
        ("", ""), (" ", " "), (",", ","), (";", ";"), ("\\s+", "\\s+"),
        ("utf-8", "utf-8"), ("007", "007"), ("x:y,z", "x:y,z"),
        ("photo,-codes", "photo,-codes"), (".tif", ".tif"), ("RGB", "RGB"),
        ("a\0", "a\0"), ("(" * 500, "(" * 500),
    ],
)
def test_an_option_is_a_literal_or_text(text, value):
    assert command._value(text) == value
    assert type(command._value(text)) is type(value)


def test_errors_of_what_is_read_as_it_is_pushed(
    daemon, tmp_path, run_command
):
    path = tmp_path / "a.lmdb"
    with lmdb.open(str(path)) as environment:
        with environment.begin(write=True) as transaction:
            transaction.put(b"0", b"1")
    load = ("load", "late", "lmdb", path, "--address", daemon.address,
            "--option", "decode=operator:truediv")
    done = run_command(*load)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(
        f"datasetd: {path}: TypeError: sample 0: unsupported operand.*\n", done.stderr
    )
    error = json.loads(run_command("--json", *load).stderr)["error"]
    assert error["code"] == "DATA_LOSS"
    assert error["message"].startswith(f"{path}: TypeError: ")


def test_an_error_of_the_command_is_a_line(capsys, monkeypatch):
    def fail(*_):
        raise datasetd.DataLoss("a.pt: this\nis long")

    monkeypatch.setattr(command, "_run", fail)
    assert command.main(["web"]) == 1
    assert capsys.readouterr().err == "datasetd: a.pt: this is long\n"


def test_tfrecords_of_no_file():
    with pytest.raises(datasetd.InvalidArgument, match="paths is empty"):
        datasetd.sources.tfrecord([])


def test_the_package_imports_no_library_of_a_format():
    done = run_python(
        "-c",
        "import sys, datasetd\n"
        "names = {'numpy', 'torch', 'h5py', 'pandas', 'pyarrow', 'PIL',\n"
        "         'lmdb', 'zarr', 'safetensors', 'mxnet', 'tfrecord'}\n"
        "print(sorted(names & set(sys.modules)))"
    )
    assert done.stdout == "[]\n", done.stderr


def test_a_load_that_is_named_by_files_sees_other_classes(client, tmp_path):
    from datasetd._client import formats

    path = tmp_path / "val.csv"
    path.write_text("x,label\n1,dog\n2,ant\n")
    got = []
    for names in (["ant", "dog"], ["dog", "ant"]):
        with client.push_dataset(
            "train-list", {"x": [1]}, class_names=names, if_exists="replace"
        ):
            for _ in range(2):
                with formats.load(
                    client._session, client.push_dataset, client.get_dataset,
                    "val-list", "csv", path, None,
                    {"classes": "train-list"}, None, is_named_by_files=True,
                ) as dataset:
                    got.append((dataset.name, dataset.class_names,
                                dataset.column("label").tolist()))
    assert got[0] == got[1] and got[2] == got[3]
    assert got[0][1:] == (["ant", "dog"], [1, 0])
    assert got[2][1:] == (["dog", "ant"], [0, 1])
    assert got[0][0] != got[2][0]
