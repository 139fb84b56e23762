"""The library lives beside torch, whichever comes first."""

import pytest
from conftest import run_python

SCRIPT = """
import {first}
import {second}
import sys
client = datasetd.connect({address!r})
dataset = client.load_dataset("hundred", format="npy", path={path!r})
loader = datasetd.DataLoader(dataset, batch_size=10)
images, labels = next(iter(loader))
assert (images[:, 0, 0, 0].long() == labels).all()
print(torch.ones(3).sum().item())
"""


@pytest.mark.parametrize(
    "first, second", [("torch", "datasetd"), ("datasetd", "torch")]
)
def test_import_order(daemon, data_root, first, second):
    script = SCRIPT.format(
        first=first,
        second=second,
        address=daemon.address,
        path=str(data_root / "hundred"),
    )
    result = run_python("-c", script)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "3.0\n" and result.stderr == ""


def test_transforms_need_no_library(monkeypatch):
    monkeypatch.delenv("DATASETD_LIBRARY", raising=False)
    script = """
import datasetd
datasetd.transforms.RandomCrop(32)
try:
    datasetd.connect()
except datasetd.LibraryNotFound as error:
    print("DATASETD_LIBRARY" in str(error))
"""
    result = run_python("-c", script)
    assert result.stdout == "True\n", result.stderr


def test_library_that_is_not_there(monkeypatch, tmp_path):
    from datasetd import LibraryNotFound
    from datasetd._connection import library

    monkeypatch.setenv("DATASETD_LIBRARY", str(tmp_path / "no.so"))
    with pytest.raises(LibraryNotFound, match="no.so"):
        library._find_library()
