"""load_dataset, load and the command with formats that this process reads."""

import functools
import os
import pickle
import subprocess

import datasetd
import h5py
import lmdb
import numpy as np
import pandas
import pytest
from datasetd import transforms as T
from datasetd._client import formats
from datasetd._daemon.start import find_daemon

_RANDOM = np.random.default_rng(14)
_IMAGES = _RANDOM.integers(0, 256, (60, 32, 32, 3), np.uint8)
_LABELS = np.arange(60) % 10
_CHOSEN = {"fields": "image:x,label:y"}


def _write_npz(path):
    np.savez(path, x=_IMAGES, y=_LABELS)


def _write_hdf5(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=_IMAGES, chunks=(7, 32, 32, 3),
                            compression="gzip", shuffle=True)
        file["y"] = _LABELS


def _write_csv_pixels(path):
    pixels = [" ".join(map(str, image[..., 0].ravel())) for image in _IMAGES]
    pandas.DataFrame(
        {"emotion": _LABELS, "pixels": pixels, "Usage": "PublicTest"}
    ).to_csv(path, index=False)


def _write_cifar(path, name, **labels):
    path.mkdir()
    rows = _IMAGES.transpose(0, 3, 1, 2).reshape(60, 3072)
    with open(path / name, "wb") as file:
        pickle.dump(dict(labels, data=rows), file, protocol=2)


def _write_cifar10(path):
    _write_cifar(path, "test_batch", labels=_LABELS.tolist())


def _write_cifar100(path):
    _write_cifar(path, "test", fine_labels=_LABELS.tolist(),
                 coarse_labels=_LABELS.tolist())


# Format, writer, split, options, images, dtype of the labels.
_CASES = [
    ("npz", _write_npz, None, _CHOSEN, _IMAGES, "int64"),
    ("hdf5", _write_hdf5, None, _CHOSEN, _IMAGES, "int64"),
    ("csv_pixels", _write_csv_pixels, "public_test", {"width": 32},
     _IMAGES[..., :1], "int64"),
    ("cifar10_python", _write_cifar10, "test", {}, _IMAGES, "uint8"),
    ("cifar100_python", _write_cifar100, "test", {}, _IMAGES, "uint8"),
]


def _path(tmp_path, format, write):
    path = tmp_path / (format + (".npz" if format == "npz" else ""))
    write(path)
    return path


def _expect(dataset, images, dtype):
    assert [field.dtype for field in dataset.fields[:2]] == ["uint8", dtype]
    with datasetd.DataLoader(
        dataset, batch_size=len(dataset), framework="numpy"
    ) as loader:
        (batch,) = loader
        np.testing.assert_array_equal(
            batch.image, images.transpose(0, 3, 1, 2)
        )
        np.testing.assert_array_equal(batch.label, _LABELS)


@pytest.mark.parametrize(
    "format, write, split, options, images, dtype", _CASES,
    ids=[case[0] for case in _CASES],
)
def test_a_format_that_python_reads(
    client, daemon, tmp_path, monkeypatch, run_command, format, write, split,
    options, images, dtype,
):
    path = _path(tmp_path, format, write)
    with client.load_dataset(
        "here-" + format, format, path, split, options=options
    ) as dataset:
        assert dataset.format == "push"
        _expect(dataset, images, dtype)
        # Attaches: the samples are the same.
        with client.load_dataset(
            "here-" + format, format, path, split, options=options
        ) as again:
            assert again.spec_id == dataset.spec_id
    monkeypatch.setenv("DATASETD_ADDRESS", daemon.address)
    with datasetd.load(format, path, split, options=options) as dataset:
        _expect(dataset, images, dtype)

    arguments = [f"--option={key}={value}" for key, value in options.items()]
    if split:
        arguments.append(f"--split={split}")
    done = run_command(
        "load", "cli-" + format, format, path, *arguments
    )
    assert (done.returncode, done.stderr) == (0, "")
    with client.get_dataset("cli-" + format) as dataset:
        _expect(dataset, images, dtype)


def test_load_attaches_by_the_files(client, daemon, tmp_path, monkeypatch):
    """Without a comparison, which pretransforms would not allow."""
    monkeypatch.setenv("DATASETD_ADDRESS", daemon.address)
    path = tmp_path / "a.npz"
    _write_npz(path)

    def load():
        return datasetd.load(
            "npz", path, options=_CHOSEN, pretransforms=[T.CenterCrop(16)]
        )

    with load() as dataset, load() as again:
        assert again.name == dataset.name
        assert again.fields[0].shape == (16, 16, 3)
        np.savez(path, x=_IMAGES[:9], y=_LABELS[:9])
        with load() as other:
            assert other.name != dataset.name
            assert len(other) == 9
    with client.load_dataset("named", "npz", path, options=_CHOSEN):
        _write_npz(path)
        with pytest.raises(
            datasetd.AlreadyExists, match="9 samples, and these are 60"
        ):
            client.load_dataset("named", "npz", path, options=_CHOSEN)


def test_the_state_of_files_behind_links(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    path = tmp_path / "a.zarr"
    path.mkdir()
    (path / "link").symlink_to(elsewhere)
    (path / "link" / "up").symlink_to(path)
    (path / "self").symlink_to("self")

    def state():
        found = formats.file_state(str(path))
        return [os.path.relpath(name, path) for name, _, _ in found], found

    (elsewhere / "part").write_bytes(b"1")
    names, before = state()
    assert names == ["link/part"]
    (elsewhere / "part").write_bytes(b"12")
    assert state()[1] != before
    (elsewhere / "more").write_bytes(b"")
    assert state()[0] == ["link/more", "link/part"]
    # A file alone, and nothing.
    part = str(elsewhere / "part")
    assert [name for name, *_ in formats.file_state(part)] == [part]
    assert formats.file_state(str(tmp_path / "none")) == []


def _decode(key, value):
    return {"label": len(value)}


@pytest.mark.parametrize(
    "format, options",
    [
        ("lmdb", {"decode": _decode}),
        ("tfrecord", {"decode": {"image": _decode}}),
        ("tfrecord", {"features": {"image": ["byte", functools.partial(int)]}}),
    ],
)
def test_a_function_needs_a_name(
    daemon, tmp_path, monkeypatch, format, options
):
    monkeypatch.setenv("DATASETD_ADDRESS", daemon.address)
    with pytest.raises(
        datasetd.InvalidArgument,
        match=f"option {min(options)} is or has a function.*name=",
    ):
        datasetd.load(format, tmp_path, options=options)


def test_a_function_with_a_name(daemon, tmp_path, monkeypatch):
    monkeypatch.setenv("DATASETD_ADDRESS", daemon.address)
    path = str(tmp_path / "a.lmdb")
    with lmdb.open(path) as environment:
        with environment.begin(write=True) as transaction:
            for i in range(7):
                transaction.put(b"%d" % i, bytes(i))
    with datasetd.load(
        "lmdb", path, options={"decode": _decode}, name="by-function"
    ) as dataset:
        assert (dataset.name, len(dataset)) == ("by-function", 7)


def test_another_users_dataset_of_that_name_is_compared(
    client, daemon, tmp_path, monkeypatch
):
    monkeypatch.setenv("DATASETD_ADDRESS", daemon.address)
    path = tmp_path / "a.npz"
    _write_npz(path)
    with datasetd.load("npz", path, options=_CHOSEN) as dataset:
        name = dataset.name
        client.unload_dataset(name, force=True)
    with client.push_dataset(name, {"image": _IMAGES[:5]}):
        monkeypatch.setattr("os.getuid", lambda: 12345)
        with pytest.raises(datasetd.AlreadyExists, match="'replace' pushes these"):
            datasetd.load("npz", path, options=_CHOSEN)


def test_what_is_wrong_with_a_call(client, tmp_path):
    path = tmp_path / "a.npz"
    _write_npz(path)

    def fails(kind, words, *arguments, **keywords):
        with pytest.raises(kind, match=words):
            client.load_dataset("x", *arguments, **keywords)

    invalid = datasetd.InvalidArgument
    fails(invalid, "'npz' needs a path", "npz")
    fails(invalid, "no option 'split'; it has fields, images, masks",
          "npz", path, "train")
    fails(invalid, "no option 'shape'", "npz", path, options={"shape": "3"})
    fails(invalid, "FIELD:SOURCE", "npz", path, options={"fields": "a:x,a:y"})
    fails(invalid, "dry_run is for", "npz", path, dry_run=True)
    fails(invalid, "bad_samples", "npz", path, bad_samples="no")
    fails(invalid, "width is 'x'", "csv_pixels", path,
          options={"width": "x"})
    fails(invalid, "'lmdb' needs the option 'decode'", "lmdb", path)
    fails(invalid, "no option 'paths'", "tfrecord", path,
          options={"paths": "x"})
    fails(invalid, "a.npz: .*'separators'", "csv", path,
          options={"separators": ";"})
    fails(datasetd.NotFound, "b.npz: no such file", "npz",
          tmp_path / "b.npz")


@pytest.mark.parametrize(
    "format, words, cause",
    [
        ("csv", "UnicodeDecodeError: ", UnicodeDecodeError),
        ("lmdb", "InvalidError: ", lmdb.Error),
        ("torch_file", "UnpicklingError: ", pickle.UnpicklingError),
    ],
)
def test_damage_that_a_library_finds(client, tmp_path, format, words, cause):
    path = tmp_path / "bad"
    path.write_bytes(b"\xff\xfe\xfd" * 1000)
    options = {"decode": _decode} if format == "lmdb" else {}
    with pytest.raises(datasetd.DataLoss, match=f"{path}: {words}") as raised:
        client.load_dataset("bad", format, path, options=options)
    assert isinstance(raised.value.__cause__, cause)


def test_the_daemon_names_the_way(client, data_root):
    """For every format that Python reads, also within a join."""
    from datasetd import sources
    from datasetd._client import formats, loading

    def load(format, options):
        spec = loading.dataset_spec(
            "x", format, data_root, None, (), None, options
        )
        loading.load(client._session, spec, False)

    read_here = [f for f in formats.FUNCTIONS if formats.is_read_here(f)]
    assert not set(client.status()["formats"]) & set(read_here)
    for format in read_here:
        function = format if format in sources.__all__ else "cifar_python"
        text = (
            f'format "{format}" is read by the job: python -m datasetd load '
            f"NAME {format} PATH, or datasetd.sources.{function}"
        )
        for arguments in ((format, {}), ("join", {"parts": format + ":a"})):
            with pytest.raises(datasetd.InvalidArgument) as raised:
                load(*arguments)
            assert text in str(raised.value)


def test_a_loader_reads_the_file_again_after_a_restart(tmp_path):
    path = tmp_path / "a.npz"
    _write_npz(path)
    address = tmp_path / "d.sock"

    def start():
        return subprocess.Popen(
            [find_daemon(), f"--socket_path={address}", "--device=cpu",
             "--exit_with_parent"],
            stderr=subprocess.DEVNULL,
        )

    daemon = start()
    try:
        client = datasetd.connect(str(address))
        dataset = client.load_dataset("d", "npz", path, options=_CHOSEN)
        seen = []
        with datasetd.DataLoader(
            dataset, batch_size=6, shuffle=True, seed=1, prefetch=2,
            reconnect=60, framework="numpy",
        ) as loader:
            for batch in loader:
                np.testing.assert_array_equal(
                    batch.image, _IMAGES[batch.indices].transpose(0, 3, 1, 2)
                )
                seen += batch.indices.tolist()
                if len(seen) == 12:
                    daemon.kill()
                    daemon.wait()
                    daemon = start()
        assert sorted(seen) == list(range(60))
    finally:
        daemon.kill()
        daemon.wait()


def test_an_unknown_format_names_those_of_this_process_too(client, tmp_path):
    with pytest.raises(
        datasetd.InvalidArgument,
        match=r"'imagefolder'; there are: .* image_folder, .*webdataset\. "
        r"This process reads: arrow, .* csv, .* npz, .*zarr$",
    ):
        client.load_dataset("unknown", "imagefolder", tmp_path)


def test_a_path_that_is_not_utf8(client, data_root, tmp_path):
    path = os.path.join(tmp_path, os.fsdecode(b"\xff"))
    for arguments in ({}, {"dry_run": True}):
        with pytest.raises(
            datasetd.InvalidArgument,
            match=r"^path=.*\\udcff' is not UTF-8, .*: rename it$",
        ):
            client.load_dataset("latin", "image_folder", path, **arguments)
    with pytest.raises(datasetd.NotFound, match="\u00e9: no such file"):
        client.load_dataset("latin", "image_folder", f"{data_root}/\u00e9")
    # The daemon does not get the path of what this process reads.
    np.savez(path, x=_LABELS)
    with client.load_dataset("latin", "npz", path + ".npz") as dataset:
        assert len(dataset) == 60
