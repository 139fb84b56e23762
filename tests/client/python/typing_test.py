"""Runs mypy --strict on the package, and on a program that uses it."""

import inspect
import os
import pathlib
import re
import subprocess
import sys

import datasetd
import pytest
from datasetd._client.loading import LoadOptions
from datasetd._loader import torch_arguments
from datasetd._loader.loader import LoaderOptions

_PACKAGE = pathlib.Path(datasetd.__file__).parent


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """mypy's lines on both, by their file; those that sum up are left out."""
    directory = tmp_path_factory.mktemp("mypy")
    program = directory / "program.py"
    program.write_text(_PROGRAM)
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            f"--config-file={_PACKAGE.parent / 'mypy.ini'}",
            f"--cache-dir={os.devnull}",
            "--no-error-summary",
            "--package=datasetd",
            "--module=program",
        ],
        capture_output=True,
        text=True,
        cwd=directory,
        env=dict(os.environ, MYPYPATH=f"{_PACKAGE.parent}:{directory}"),
    )
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    own = [line for line in lines if line.startswith("program.py:")]
    return own, [line for line in lines if line not in own]


def test_the_package_is_strict(found):
    assert found[1] == []


def keyword_options(function):
    return {
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def test_type_checkers_know_every_keyword_option():
    loads = set(LoadOptions.__annotations__)
    assert keyword_options(datasetd.Client.load_dataset) == loads
    assert keyword_options(datasetd.load) == loads
    ours = {*keyword_options(datasetd.DataLoader), *torch_arguments.NAMES}
    assert ours == {"framework", *LoaderOptions.__annotations__}


# A comment says what mypy finds in its line.
_PROGRAM = '''
from typing import Any, Dict, List

import datasetd
from datasetd import transforms as T

client = datasetd.connect(timeout=2)
dataset = client.load_dataset("d", format="npy", path="/data", progress=True)
names: List[str] = [field.name for field in dataset.fields]
estimate = client.load_dataset("d", "npy", dry_run=True)
print(estimate.problem, len(dataset))
estimate.close()  # "LoadEstimate" has no attribute "close"
client.load_dataset("d", format="npy", pth="/data")  # No overload variant
client.load_dataset("d")  # No overload variant

with datasetd.DataLoader(
    dataset, batch_size=8, sampler=[1, 2], transforms=[T.RandomCrop(32)]
) as loader:
    for images, labels in loader:
        images.square().mean()
    for batch in loader:
        number: int = batch.epoch + batch.index + batch.num_samples
        image: Any = batch.image
        batch.epoch = 3  # Property "epoch" defined in "Batch" is read-only
    state = loader.state_dict()
    loader.load_state_dict(state)
    first: datasetd.Batch[Any] = loader.fetch([1, 2])
    number = len(loader) + loader.prefetch
    loader.set_epoch("1")  # incompatible type "str"; expected "int"
train, test = dataset.split(0.8, seed=1)
datasetd.DataLoader(train.select([1, 2]))
image = dataset[0].image
labels = dataset[[3, 1]].label
dataset.split("a")  # incompatible type "str"
datasetd.DataLoader(dataset, batch_size="8")  # No overload variant
datasetd.DataLoader(dataset, 8, True, seed="1")  # No overload variant
datasetd.DataLoader(client)  # No overload variant
datasetd.DataLoader(dataset, num_workers=4, drop_lst=True)  # No overload variant
client.load_dataset("d", "npy", device_bytes="1")  # No overload variant
import numpy
import torch

with datasetd.DataLoader(dataset, 8, True, drop_last=True) as tensors:
    for tensor_batch in tensors:
        tensor: torch.Tensor = tensor_batch.image
        tensor = tensor_batch["image"].float()
        pair: datasetd.Batch[torch.Tensor] = tensor_batch.clone().to("cpu")
        named: Dict[str, torch.Tensor] = tensor_batch.as_dict()
        xs, ys = tensor_batch
        xs.square().mean()
    look: datasetd.Batch[torch.Tensor] = tensors.peek()
arrays = datasetd.DataLoader(dataset, framework="numpy")
for array_batch in arrays:
    array: numpy.ndarray[Any, Any] = array_batch["image"]
    wrong: str = array_batch.label  # expression has type "ndarray
framework = str(names)
for any_batch in datasetd.DataLoader(dataset, framework=framework):
    any_batch.image.whatever()
drawn = client.explain(dataset, [T.RandomHorizontalFlip()])
applied: bool = drawn[0][0].is_applied
with datasetd.start_local(device="cpu") as daemon:
    daemon.connect(timeout=1.5).status()["version"]
'''


def test_a_program_is_checked(found):
    errors = {}
    for line in found[0]:
        match = re.fullmatch(r"program\.py:(\d+): error: (.*)", line)
        if match:
            errors[int(match[1])] = match[2]
    expected = {
        number: line.partition("  # ")[2]
        for number, line in enumerate(_PROGRAM.splitlines(), 1)
        if "  # " in line
    }
    assert sorted(errors) == sorted(expected), errors
    for number, words in expected.items():
        assert words in errors[number]
