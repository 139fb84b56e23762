"""datasetd.sources: files that their own libraries wrote; the command."""

import itertools
import json
import os
import pickle
import re
import subprocess
import sys

import datasetd
import h5py
import lmdb
import numpy as np
import pandas
import pytest
import torch
from datasetd import sources
from PIL import Image

# Bazel names it relative to the working directory.
_PAGE = os.path.abspath(os.environ["FORMATS_PAGE"])
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
    with pytest.raises(datasetd.InvalidArgument, match="no 'q'; it has x, y"):
        sources.hdf5(h5, ["q"])


def test_npz(client, tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, image=_IMAGES, label=_LABELS)
    want = {"image": _IMAGES, "label": _LABELS}
    _expect(client, sources.npz(path), want)
    _expect(client, sources.npz(path, "label"), {"label": _LABELS})
    np.savez(path, x=np.array([{}], object))
    with pytest.raises(ValueError, match="allow_pickle"):
        sources.npz(path)


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

    torch.save([Image.fromarray(_IMAGES[0])], path)
    with pytest.raises(pickle.UnpicklingError):
        sources.torch_file(path)


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


def test_csv(client, tmp_path):
    path = tmp_path / "a.csv"
    frame = pandas.DataFrame(_ROWS, columns=["a", "b", "c", "d"])
    frame["kind"] = [f"class {i}" for i in _LABELS]
    frame.to_csv(path, index=False, sep=";")
    _expect(
        client,
        sources.csv(
            path, {"x": ["a", "b", "c", "d"], "label": "kind"}, sep=";"
        ),
        {"x": _ROWS, "label": _LABELS},
        [f"class {i}" for i in range(10)],
    )
    frame["kind"] = _LABELS
    frame.to_csv(path, index=False)
    _expect(client, sources.csv(path, ["kind"]), {"kind": _LABELS})
    with pytest.raises(datasetd.InvalidArgument, match="no column 'z'"):
        sources.csv(path, ["z"])
    frame.iloc[5, 0] = None
    frame.to_csv(path, index=False)
    with pytest.raises(datasetd.InvalidArgument, match="empty cells"):
        sources.csv(path)


def _cifar(directory, batches, **meta):
    directory.mkdir()
    rows = np.tile(np.arange(3072) % 251, (20, 1)).astype(np.uint8)
    rows += np.arange(20, dtype=np.uint8)[:, None]
    for name, keys in batches.items():
        content = {key: list(range(20)) for key in keys}
        with open(directory / name, "wb") as file:
            pickle.dump(dict(content, data=rows), file, protocol=2)
    for name, content in meta.items():
        with open(directory / name.replace("_", "."), "wb") as file:
            pickle.dump(content, file, protocol=2)
    return rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def test_cifar_python(client, tmp_path):
    ten = tmp_path / "ten"
    names = [f"c{i}" for i in range(20)]
    images = _cifar(
        ten,
        dict.fromkeys(
            [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"],
            ["labels"],
        ),
        batches_meta={"label_names": names},
    )
    _expect(
        client,
        sources.cifar_python(ten),
        {"image": np.tile(images, (5, 1, 1, 1)),
         "label": np.tile(np.arange(20), 5)},
        names,
    )
    hundred = tmp_path / "hundred"
    _cifar(
        hundred,
        dict.fromkeys(["train", "test"], ["fine_labels", "coarse_labels"]),
        meta={"fine_label_names": names},
    )
    _expect(
        client,
        sources.cifar_python(hundred, "test"),
        {"image": images, "label": np.arange(20),
         "coarse_label": np.arange(20)},
        names,
    )


class _Attack:
    def __reduce__(self):
        return os.system, ("touch attacked",)


def test_a_pickle_runs_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open("batches.meta", "wb") as file:
        pickle.dump({"label_names": _Attack()}, file)
    with pytest.raises(datasetd.DataLoss, match="it asks for .*system"):
        sources.cifar_python(".")
    assert not os.path.exists("attacked")


def test_image_folder(client, tmp_path):
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


def test_a_path_that_is_not_there():
    with pytest.raises(datasetd.NotFound, match="/nowhere/x.h5"):
        sources.hdf5("/nowhere/x.h5")
    with pytest.raises(datasetd.NotFound, match=os.path.expanduser("~/x.h5")):
        sources.hdf5("~/x.h5")


def test_the_examples_of_the_page(daemon, tmp_path):
    with open(_PAGE, encoding="utf-8") as file:
        examples = re.findall(
            r"^```python\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL
        )
    printed = [
        _run_python(
            example, cwd=tmp_path, DATASETD_ADDRESS=daemon.address
        )
        for example in examples
    ]
    assert len(printed) == 2
    assert printed[0] == "1000 ['image', 'label']\n"
    assert "100 samples" in printed[1] and "['image', 'label']" in printed[1]


def _run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "datasetd", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
    )


def test_the_command_pushes_what_python_reads(client, daemon, h5):
    done = _run(
        "load", "cli", "hdf5", h5, "--in_python", "--address", daemon.address,
        "--field", "image=x", "--field", "label=y", "--kind", "label=array",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("cli: 300 samples")
    with client.get_dataset("cli") as dataset:
        assert dataset.format == "push"
        _expect_content(
            client, dataset, {"image": _IMAGES, "label": _LABELS}
        )
    done = _run(
        "--json", "load", "cli", "hdf5", h5, "--in_python",
        f"--address={daemon.address}", "--if_exists", "keep",
    )
    assert (done.returncode, done.stderr) == (0, "")
    message = json.loads(done.stdout)
    assert message["name"] == "cli" and message["num_samples"] == "300"


def test_the_command_asks_the_daemon_for_its_formats(daemon, data_root):
    done = _run(
        "load", "npy", "npy", data_root / "three", "--address", daemon.address
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("npy: 3 samples")


def test_the_command_ends_with_the_codes_of_datasetctl(daemon, h5, tmp_path):
    def fails(code, kind, words, *arguments):
        done = _run("--json", *arguments)
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
    fails(2, "INVALID_ARGUMENT", "unexpected keyword",
          *load, "safetensors", h5, "--option", "a=b", *at)
    fails(2, "INVALID_ARGUMENT", "MODULE:FUNCTION",
          *load, "lmdb", h5, "--option", "decode=x", *at)
    fails(1, "NOT_FOUND", "no such file",
          *load, "csv", tmp_path / "none.csv", *at)
    fails(1, "INVALID_ARGUMENT", "no 'q'",
          *load, "hdf5", h5, "--in_python", "--field", "a=q", *at)
    fails(3, "UNAVAILABLE", "no daemon",
          *load, "csv", h5, "--address", tmp_path / "none.sock")
    done = _run(*load, "csv", "/none.csv", *at)
    assert done.returncode == 1
    assert done.stderr == "datasetd: /none.csv: no such file or directory\n"


def test_the_package_imports_no_library_of_a_format():
    done = _run_python(
        "import sys, datasetd\n"
        "names = {'numpy', 'torch', 'h5py', 'pandas', 'pyarrow', 'PIL',\n"
        "         'lmdb', 'zarr', 'safetensors', 'mxnet', 'tfrecord'}\n"
        "print(sorted(names & set(sys.modules)))"
    )
    assert done == "[]\n"


def _run_python(program, cwd=None, **environment):
    path = os.pathsep.join(map(os.path.abspath, sys.path))
    return subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=cwd,
        timeout=120,
        env=dict(os.environ, PYTHONPATH=path, **environment),
    ).stdout
