"""connect(): its wait, and what it and load_dataset say of wrong arguments."""

import io
import os
import pathlib
import signal
import subprocess
import sys
import tarfile
import time

import datasetd
import numpy as np
import pytest
import torch
from datasetd._client import folders
from datasetd._daemon.start import find_daemon
from PIL import Image

_FILE = io.BytesIO()
Image.new("RGB", (8, 8)).save(_FILE, "jpeg")
JPEG = _FILE.getvalue()


def test_connect_waits_for_its_timeout(tmp_path):
    address = str(tmp_path / "nope.sock")
    start = time.monotonic()
    with pytest.raises(datasetd.DaemonGone) as raised:
        datasetd.connect(address, timeout=0.5)
    assert 0.5 <= time.monotonic() - start < 3
    text = str(raised.value)
    for words in (
        f"no daemon listens at {address} ", "No such file",
        "$DATASETD_ADDRESS", "datasetd.connect() without an address finds",
        "datasetd.start_local()",
        "datasetctl run -- python",
    ):
        assert words in text
    start = time.monotonic()
    with pytest.raises(datasetd.DaemonGone):
        datasetd.connect(address, timeout=0)
    assert time.monotonic() - start < 3


_JOB = """
import sys
import datasetd
print("waits", flush=True)
try:
    print(datasetd.connect(sys.argv[1], timeout=60).status()["pid"])
except KeyboardInterrupt:
    print("interrupted")
"""


def start_job(address):
    job = subprocess.Popen(
        [sys.executable, "-c", _JOB, str(address)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert job.stdout.readline() == "waits\n"
    return job


def test_a_job_started_beside_its_daemon(tmp_path):
    address = tmp_path / "d.sock"
    job = start_job(address)
    with pytest.raises(subprocess.TimeoutExpired):
        job.wait(0.2)
    daemon = subprocess.Popen(
        [find_daemon(), f"--socket_path={address}", "--device=cpu",
         "--exit_with_parent"],
        stderr=subprocess.DEVNULL,
    )
    try:
        output, _ = job.communicate(timeout=60)
        assert output == f"{daemon.pid}\n" and job.returncode == 0
    finally:
        daemon.kill()
        daemon.wait()
    # Its sockets are still there, and nobody listens.
    assert address.exists()
    with pytest.raises(datasetd.DaemonGone, match="Connection refused"):
        datasetd.connect(str(address), timeout=0)


def test_ctrl_c_ends_the_wait(tmp_path):
    job = start_job(tmp_path / "nope.sock")
    with pytest.raises(subprocess.TimeoutExpired):
        job.wait(0.2)
    job.send_signal(signal.SIGINT)
    output, _ = job.communicate(timeout=20)
    assert output == "interrupted\n"


def test_addresses(daemon, monkeypatch):
    with pytest.raises(datasetd.InvalidArgument, match="a host and a port"):
        datasetd.connect("localhost:50051")
    home, name = os.path.split(daemon.address)
    monkeypatch.setenv("HOME", home)
    with datasetd.connect(f"~/{name}") as client:
        assert client.address == daemon.address


def test_paths_of_a_home_directory(client, data_root, monkeypatch):
    monkeypatch.setenv("HOME", str(data_root))
    dataset = client.load_dataset("home", format="npy", path="~/three")
    assert dataset.path == str(data_root / "three")


def test_devices(client, data_root):
    path = data_root / "three"
    for i, device in enumerate((torch.device("cpu"), "cpu", None)):
        dataset = client.load_dataset(
            f"device{i}", format="npy", path=path, device=device
        )
        assert dataset.device == "cpu"
        pushed = client.push_dataset(
            f"pushed{i}", {"x": np.zeros((3, 2), np.float32)}, device=device
        )
        assert pushed.device == "cpu"
    for device in ("cuda", torch.device("cuda"), torch.device("cuda", 0)):
        with pytest.raises(datasetd.Error, match="cuda:0"):
            client.load_dataset("x", format="npy", path=path, device=device)
    with pytest.raises(datasetd.InvalidArgument, match="device=0; expected"):
        client.load_dataset("x", format="npy", path=path, device=0)
    with datasetd.start_local(device=torch.device("cpu")) as other:
        with other.connect() as connected:
            (named,) = connected.status()["devices"]
            assert named["name"] == "cpu"


def test_what_has_no_json_form_is_named(client, data_root):
    with pytest.raises(
        datasetd.InvalidArgument, match=r"split=<object .* is a object;"
    ):
        client.load_dataset(
            "x", format="npy", path=data_root / "three", split=object()
        )
    with pytest.raises(
        datasetd.InvalidArgument, match=r"max_bad_samples=nan is a float"
    ):
        client.load_dataset(
            "x", "npy", data_root / "three", max_bad_samples=float("nan")
        )


def touch(*paths):
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")


def test_the_folder_that_was_meant(client, data_root):
    root = data_root / "downloads"
    touch(
        root / "cifar-10-batches-py/data_batch_1",
        root / "MNIST/raw/train-images-idx3-ubyte.gz",
        root / "cifar-100-binary/train.bin",
        root / "cifar-100-python/train",
    )
    for format, path, words in (
        ("cifar10", root, "cifar-10-batches-py' with format='cifar10_python'"),
        ("cifar10", root / "cifar-10-batches-py",
         "cifar-10-batches-py' with format='cifar10_python'"),
        ("cifar10_python", data_root, "cifar-10-batches-py' with format"),
        ("mnist", root, "MNIST/raw' with format='mnist'"),
        ("mnist", root / "MNIST", "MNIST/raw' with format='mnist'"),
    ):
        with pytest.raises(
            (datasetd.NotFound, datasetd.InvalidArgument), match="Found here: "
        ) as raised:
            client.load_dataset("x", format=format, path=path)
        assert words in str(raised.value)
    # Both versions; the one that was asked for comes first.
    for format, first, second in (
        ("cifar100", "cifar-100-binary", "cifar-100-python"),
        ("cifar100_python", "cifar-100-python", "cifar-100-binary"),
    ):
        text = folders.advice(format, str(root))
        assert first in text and second in text
    assert folders.advice("mnist", str(root / "MNIST/raw")) == ""
    assert folders.advice("npy", str(root)) == ""
    assert folders.advice("mnist", "/nonexistent") == ""


# One format that the daemon reads, and two that this process reads.
@pytest.mark.parametrize("format", ["image_folder", "csv", "npz"])
def test_a_path_that_is_not_there(client, data_root, format, monkeypatch):
    def error_of(path):
        with pytest.raises((datasetd.NotFound, datasetd.InvalidArgument)) as e:
            client.load_dataset("x", format, path)
        assert "data_roots" not in str(e.value)
        return str(e.value)

    typo = data_root / "hundrde"
    assert error_of(typo) == (
        f"{typo}: no such file or directory: did you mean "
        f"{data_root / 'hundred'}?"
    )
    assert "no such file or directory" in error_of("/nowhere/at/all")
    monkeypatch.chdir(data_root)
    assert f"did you mean {data_root / 'hundred'}?" in error_of("hundrd")
    for url in ("https://a.org/x", "s3://bucket/x", "gs://b/x", "hf://x/y"):
        assert f"{url}: URLs are not read" in error_of(url)
        assert "datasetd.push(name, data)" in error_of(url)
    assert "patterns are written {000..009}" in error_of(data_root / "hund*")
    monkeypatch.setenv("DATA", str(data_root))
    assert f"give {data_root}/three" in error_of("$DATA/three")
    assert "paths are written with /" in error_of("hundred\\image.npy")
    for path in (5, 2.0, {"a": 1}, "", [""]):
        assert "expected the path of a file" in error_of(path)
    assert "path is an empty list" in error_of([])
    assert "lists of shards are for tfrecord and webdataset" in error_of(
        [data_root / "hundred", data_root / "three"]
    )


def test_a_path_that_the_daemon_alone_does_not_read(client, tmp_path):
    """Then its data roots are the cause."""
    (tmp_path / "a").mkdir()
    with pytest.raises(datasetd.PermissionDenied, match="data_roots: "):
        client.load_dataset("x", "npy", tmp_path / "a")
    with pytest.raises(datasetd.NotFound) as raised:
        client.load_dataset("x", "npy", tmp_path / "b")
    assert "data_roots" not in str(raised.value)


def test_a_list_of_shards(client, data_root, monkeypatch):
    folder = data_root / "shards"
    folder.mkdir()
    for i in (1, 0, 10):
        with tarfile.open(folder / f"s-{i}.tar", "w") as tar:
            for key in range(2):
                for ending, data in (
                    ("jpg", JPEG), ("cls", b"%d" % (10 * i + key))
                ):
                    info = tarfile.TarInfo(f"{key}.{ending}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    monkeypatch.chdir(folder)
    shards = [pathlib.Path("s-1.tar"), str(folder / "s-0.tar"), b"s-10.tar"]
    for paths in (shards, tuple(shards), iter(shards)):
        with client.load_dataset("shards", "webdataset", paths) as dataset:
            assert dataset.column("label").tolist() == [10, 11, 0, 1, 100, 101]
    one = client.load_dataset("one", "webdataset", ["s-0.tar"])
    assert one.column("label").tolist() == [0, 1]
    with pytest.raises(datasetd.NotFound, match="mean .*/s-10.tar"):
        client.load_dataset("x", "webdataset", ["s-0.tar", "s-101.tar"])
    # In a part, each node has its own.
    part = client.load_dataset("p", "webdataset", shards, part=(1, 3))
    assert part.column("label").tolist() == [0, 1]


def test_a_pushed_dataset_that_a_restart_lost(tmp_path):
    """It is said at once, whatever reconnect= allows."""
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
        dataset = client.push_dataset(
            "pushed", {"x": np.zeros((64, 2), np.float32)}
        )
        batches = datasetd.DataLoader(
            dataset, batch_size=1, prefetch=1, reconnect=60,
            framework="numpy",
        )
        iterator = iter(batches)
        next(iterator)
        daemon.kill()
        daemon.wait()
        daemon = start()
        start_time = time.monotonic()
        with pytest.raises(
            datasetd.FailedPrecondition, match="was pushed.*push it again"
        ):
            for _ in iterator:
                pass
        assert time.monotonic() - start_time < 20
    finally:
        daemon.kill()
        daemon.wait()
