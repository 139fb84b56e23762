"""What a load reports, class names that are given, and files of labels whose
values must not become others."""

import io
import itertools
import json
import logging
import tarfile
import warnings

import datasetd
import numpy as np
import pytest
from conftest import run_python
from PIL import Image

_NUMBERS = itertools.count()


def _name():
    return f"notes-{next(_NUMBERS)}"


@pytest.fixture
def root(data_root):
    path = data_root / _name()
    path.mkdir()
    return path


def _png(path, grey, **how):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((8, 8, 3), grey, np.uint8)).save(path, **how)


def _tagged(path):
    exif = Image.Exif()
    exif[0x0112] = 6
    _png(path, 1, exif=exif)


def _labels(client, path, **arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with client.load_dataset(_name(), "image_csv", path, **arguments) as d:
            return d.column("label")


# -- image_csv ---------------------------------------------------------------


@pytest.mark.parametrize("policy", ["fail", "skip", "replace"])
@pytest.mark.parametrize(
    "header", ["id_code,diagnosis", '"the id","the, label"', "img.name,0"]
)
def test_a_header_of_any_words_shifts_no_label(client, root, header, policy):
    for i in range(12):
        _png(root / f"{i}.png", i)
    rows = "".join(f"{i}.png,{i}\n" for i in range(12))
    (root / "t.csv").write_text(f"{header}\n{rows}")
    if header.endswith(",0"):
        with pytest.raises(
            datasetd.InvalidArgument, match="line 1: no file.*path_column"
        ) as refused:
            _labels(client, root / "t.csv", bad_samples=policy)
        assert "skip" not in str(refused.value)
        options = {"path_column": "img.name", "label_column": "0"}
        with pytest.raises(datasetd.InvalidArgument, match="same column"):
            _labels(client, root / "t.csv", options=options)
        options = {"path_column": "img.name"}
    else:
        options = {}
    labels = _labels(
        client, root / "t.csv", bad_samples=policy, options=options
    )
    assert labels.tolist() == list(range(12))


@pytest.mark.parametrize("odd", ["", "unknown", "3.0", "nan", "1,5"])
def test_one_odd_label_is_refused_with_its_line(client, root, odd):
    _png(root / "0.png", 0)
    rows = "".join(f"0.png,{i}\n" for i in range(11))
    (root / "t.csv").write_text(f"path,label\n{rows}0.png,{odd}\n")
    with pytest.raises(datasetd.InvalidArgument, match="line 13: "):
        _labels(client, root / "t.csv", bad_samples="skip")


def test_numbers_stay_numbers(client, root):
    _png(root / "0.png", 0)
    for texts, dtype in (
        (["-1", "10", "2"], np.int64),
        (["23.5", "7.25", "101.0"], np.float32),
    ):
        rows = "".join(f"0.png,{text}\n" for text in texts)
        (root / "t.csv").write_text(f"path,label\n{rows}")
        labels = _labels(client, root / "t.csv")
        assert labels.dtype == dtype
        assert labels.tolist() == [float(text) for text in texts]


# -- Classes -----------------------------------------------------------------


def test_splits_agree_by_the_classes_of_another(client, root):
    for name in ("train/a/0", "train/b/0", "train/c/0", "val/a/0", "val/c/0"):
        _png(root / f"{name}.png", 1)
    with pytest.warns(UserWarning, match="'b' is only in 'train'"):
        train = client.load_dataset(
            _name(), "image_folder", root, split="train"
        )
    with pytest.warns(UserWarning, match="so that their labels differ"):
        shifted = client.load_dataset(
            _name(), "image_folder", root, split="val"
        )
    assert shifted.class_to_idx == {"a": 0, "c": 1}
    for classes in (train, train.name, ["a", "b", "c"], ("a", "b", "c")):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            val = client.load_dataset(
                _name(), "image_folder", root, split="val", classes=classes
            )
        assert val.class_to_idx == {"a": 0, "b": 1, "c": 2}
        assert val.column("label").tolist() == [0, 2]
        assert val.notes == ["no sample of class 'b'"]
    with pytest.raises(
        datasetd.InvalidArgument,
        match="class 'c' is not .*ignore_other_classes",
    ):
        client.load_dataset(
            _name(), "image_folder", root, split="val", classes=["a", "b"]
        )
    part = client.load_dataset(
        _name(), "image_folder", root, split="val", classes=["a", "b"],
        ignore_other_classes=True,
    )  # fmt: skip
    assert part.column("label").tolist() == [0]
    assert part.notes[0] == (
        "left out: 1 sample of classes that were not given: 'c'"
    )


def test_lists_beside_each_other_are_compared(client, root):
    _png(root / "0.png", 0)
    (root / "train.csv").write_text("path,label\n0.png,ant\n0.png,bee\n")
    (root / "val.csv").write_text("path,label\n0.png,bee\n")
    train = client.load_dataset(_name(), "image_csv", root / "train.csv")
    with pytest.warns(UserWarning, match=f"classes='{train.name}'"):
        val = client.load_dataset(_name(), "image_csv", root / "val.csv")
    assert val.class_to_idx == {"bee": 0}
    val = client.load_dataset(
        _name(), "image_csv", root / "val.csv", classes=train.name
    )
    assert val.column("label").tolist() == [1]


@pytest.mark.parametrize(
    "classes, message",
    [
        ([], "the list has no class names"),
        ([1], "1 is not a str"),
        (["a", "a"], "'a' is there twice"),
        ([""], "is empty"),
        (["x" * 70_000], "class names, expected at most 65536"),
    ],
)
def test_wrong_classes_are_refused(client, root, classes, message):
    _png(root / "a/0.png", 0)
    with pytest.raises(datasetd.InvalidArgument, match=message):
        client.load_dataset(_name(), "image_folder", root, classes=classes)


def test_classes_are_of_formats_that_derive_them(
    client, data_root, tiny, tmp_path
):
    np.savez(tmp_path / "a.npz", x=np.zeros(2))
    with pytest.raises(
        datasetd.InvalidArgument, match="npy derives no classes"
    ):
        client.load_dataset(_name(), "npy", data_root / "three", classes=["a"])
    with pytest.raises(datasetd.InvalidArgument, match="has no class names"):
        client.load_dataset(_name(), "npy", data_root / "three", classes=tiny)
    with pytest.raises(datasetd.NotFound, match="no dataset 'none'"):
        client.load_dataset(_name(), "npy", data_root / "three", classes="none")
    named = client.load_dataset(
        _name(), "npz", tmp_path / "a.npz", classes=["a", "b"]
    )
    assert named.class_to_idx == {"a": 0, "b": 1}


# -- Notes -------------------------------------------------------------------


def test_one_line_says_what_was_left_out(client, root, capsys, caplog):
    for i in range(6):
        _png(root / f"cat/{i}.png", i)
        _png(root / f"dog/{i}.png", i)
    for i in range(3):
        (root / f"cat/{i}.gif").write_bytes(b"GIF8")
    line = (
        "image_folder: 12 samples, 2 classes ['cat', 'dog']; left out: 3 .gif "
        "files"
    )
    with caplog.at_level(logging.INFO, "datasetd"):
        dataset = client.load_dataset(
            _name(), "image_folder", root, progress=True
        )
    assert dataset.notes == ["left out: 3 .gif files"]
    assert repr(dataset).endswith(f", {line})")
    assert f"dataset '{dataset.name}': {line}" in capsys.readouterr().err
    assert f"dataset '{dataset.name}': {line}" in caplog.text
    assert client.get_dataset(dataset.name).notes == dataset.notes
    estimate = client.load_dataset(_name(), "image_folder", root, dry_run=True)
    assert estimate.notes == dataset.notes
    done = run_python(
        "-m", "datasetd", "--address", client.address, "load", _name(),
        "image_folder", root,
    )  # fmt: skip
    assert line in done.stdout, done.stderr


def test_exif_that_is_not_applied_is_a_warning(client, root):
    for i in range(3):
        _tagged(root / f"a/{i}.jpg")
    _png(root / "a/plain.png", 1)
    note = "3 images carry an EXIF orientation that is not applied"
    with pytest.warns(UserWarning, match=note) as warned:
        dataset = client.load_dataset(_name(), "image_folder", root)
    assert len(warned) == 1
    assert dataset.notes[0].startswith(note)
    estimate = client.load_dataset(_name(), "image_folder", root, dry_run=True)
    assert estimate.notes == dataset.notes
    files = [path.read_bytes() for path in sorted((root / "a").glob("*.jpg"))]
    with pytest.warns(UserWarning, match=note):
        client.push_dataset(_name(), {"image": files})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        turned = client.load_dataset(
            _name(), "image_folder", root, options={"apply_exif": True}
        )
    assert turned.notes == []


def test_a_root_of_splits_is_a_warning(client, root):
    for split in ("train", "val"):
        _png(root / split / "a/0.png", 1)
    with pytest.warns(UserWarning, match="look like splits: split='train'"):
        client.load_dataset(_name(), "image_folder", root)


def test_images_alone_of_a_shard_with_text_are_a_warning(client, root):
    def write(names):
        with tarfile.open(root / "s.tar", "w") as archive:
            for name in names:
                data = b"7"
                if name.endswith("jpg"):
                    buffer = io.BytesIO()
                    Image.new("RGB", (8, 8)).save(buffer, "JPEG")
                    data = buffer.getvalue()
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))

    write(["0.jpg", "0.txt", "0.json"])
    with pytest.warns(UserWarning, match="left out: 1 .json member, 1 .txt"):
        client.load_dataset(_name(), "webdataset", root / "s.tar")
    write(["0.cls", "0.jpg", "0.txt"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = client.load_dataset(_name(), "webdataset", root / "s.tar")
    assert dataset.notes == ["left out: 1 .txt member"]


def test_a_load_from_the_cache_has_the_same_notes(root, tmp_path):
    _tagged(root / "a/0.jpg")
    (root / "a/x.txt").write_text("")
    config = tmp_path / "config.yaml"
    config.write_text(
        json.dumps({"cache": {"directory": str(tmp_path / "cache")}})
    )

    def notes():
        with (
            datasetd.start_local(
                device="cpu", data_roots=root, arguments=[f"--config={config}"]
            ) as daemon,
            daemon.connect() as client,
        ):
            # In the cache before the load ends.
            with pytest.warns(UserWarning, match="EXIF"):
                dataset = client.load_dataset(
                    "d", "image_folder", root, residency="mapped"
                )
            return dataset.notes

    first = notes()
    assert len(first) == 2
    assert notes() == first
