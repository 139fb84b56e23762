"""The library lives beside torch, and the package does without both."""

import pytest
from conftest import run_python

SCRIPT = """
import datasetd
import sys
client = datasetd.connect({address!r})
dataset = client.load_dataset("hundred", format="npy", path={path!r})
assert "torch" not in sys.modules
import torch
loader = datasetd.DataLoader(dataset, batch_size=10)
images, labels = next(iter(loader))
assert (images[:, 0, 0, 0].long() == labels).all()
print(torch.ones(3).sum().item())
"""


def test_the_library_before_torch(daemon, data_root):
    """Most other tests have torch before the library."""
    script = SCRIPT.format(
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
