"""The docstrings of datasetd.transforms: there, complete, and their examples
run."""

import inspect
import re

import datasetd
import numpy as np
import pytest
from conftest import NUM_SAMPLES
from datasetd import transforms as T

OPS = sorted(
    name
    for name in T.__all__
    if inspect.isclass(getattr(T, name))
    and issubclass(getattr(T, name), T.Transform)
    and name != "Transform"
)


def documentation(name):
    """The op's own, and not what it inherits."""
    return vars(getattr(T, name)).get("__doc__") or ""


@pytest.fixture(scope="module")
def pictures(daemon, tmp_path_factory):
    random = np.random.default_rng(1)
    with daemon.connect() as client:
        noise = {"audio": random.standard_normal((9, 50), np.float32)}
        client.push_dataset("noise", noise)
        yield client.push_dataset(
            "pictures",
            {
                "image": random.integers(
                    0, 256, (NUM_SAMPLES, 32, 32, 3), np.uint8
                ),
                "label": np.arange(NUM_SAMPLES) % 10,
                "audio": random.standard_normal(
                    (NUM_SAMPLES, 1600), np.float32
                ),
            },
        )


def test_there_are_as_many_as_the_daemon_has():
    assert len(OPS) == 58


@pytest.mark.parametrize("name", OPS)
def test_it_tells_what_the_op_does_and_all_its_arguments(name):
    text = documentation(name)
    assert re.match(r"[A-Z][^\n]+\.\n\n", text.replace("\n    ", "\n")), text
    # `p` and its like may be at an op that the text names.
    named = [other for other in OPS if re.search(rf"\b{other}\b", text)]
    whole = text + "".join(map(documentation, named))
    for argument in inspect.signature(getattr(T, name)).parameters:
        if argument != "fields":
            assert re.search(rf"\b{argument}\b", whole), argument


@pytest.mark.parametrize("name", OPS)
def test_its_example_runs(name, pictures):
    (example,) = re.findall(r"^ +Example: (.*)$", documentation(name), re.M)
    op = eval(example, {"T": T})
    assert type(op) is getattr(T, name)
    transforms = [op]
    if name in ("Normalize", "GaussianNoise"):
        transforms.insert(0, T.ToDtype("float32", scale=True))
    if op._op.family == "sequence":
        is_mask = name.endswith("Masking")
        before = [T.MelSpectrogram(n_mels=30)] if is_mask else []
        transforms = {"audio": before + [op]}
    with datasetd.DataLoader(
        pictures, batch_size=50, transforms=transforms, framework="numpy"
    ) as loader:
        assert sum(len(batch.label) for batch in loader) == NUM_SAMPLES
