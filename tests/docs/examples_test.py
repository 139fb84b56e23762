"""Every Python example of README.md and the pages, run as it stands there, as
after pip install: a user with a home, an empty working directory, the files that
the example names, and no daemon."""

import glob
import importlib.metadata
import importlib.util
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

import numpy as np
import pytest

from tests.testing import daemon_harness
from tests.testing.daemon_harness import runfile

# What the text around a piece of code says that there is.
_BATCH = """
import datasetd, numpy as np
dataset = datasetd.push("d", (np.zeros((64, 8, 8, 3), np.uint8), np.arange(64)))
batch = next(iter(datasetd.DataLoader(dataset, 8)))
model = dict
"""
_TRANSFORMS = """
import datasetd, numpy as np
from datasetd import transforms as T
images = np.zeros((64, 300, 300, 3), np.uint8)
dataset = datasetd.push("d", {FIELDS}, fields={KINDS})
"""
_MASKS = _TRANSFORMS.replace(
    "{FIELDS}", '{"image": images, "mask": images[..., 0]}'
).replace("{KINDS}", '{"image": "image", "mask": "mask"}')
_LABELS = _TRANSFORMS.replace(
    "{FIELDS}", '{"image": images, "label": np.arange(64) % 10}'
).replace("{KINDS}", "None")
_LOADS = "\nnext(iter(datasetd.DataLoader(dataset, 8, transforms=transforms)))\n"
_VIEWS = _LABELS + """
import torch
from datasetd import DataLoader
from torch.utils.data import RandomSampler
crops = [T.RandomCrop(32)]
two_views = {name: crops for name in "ab"}
eight_views = {name: crops for name in "cdefgh"}
"""
# Of the scripts that the lines are for.
_NANOGPT = """
import os
import datasetd, numpy as np
dataset, device, block_size, batch_size = "chars", "cpu", 64, 12
for split, count in (("train", 5000), ("val", 500)):
    os.makedirs(f"data/{dataset}", exist_ok=True)
    np.arange(count, dtype=np.uint16).tofile(f"data/{dataset}/{split}.bin")
"""
_NANOGPT_LOOP = """
for batches, largest in ((train_batches, 5000), (val_batches, 500)):
    x, y = next(batches)
    assert x.shape == (12, 64) and (x + 1 == y).all() and y.max() < largest
"""
_MINGPT = """
import sys
import datasetd, numpy as np
text, block_size, batch_size = "abcdefghij" * 30, 16, 8
stoi = {ch: i for i, ch in enumerate(sorted(set(text)))}
def model(x, y):
    assert x.shape == (8, 16) and ((x + 1) % 10 == y).all()
    sys.exit()
"""
# A part of an example: (what stands before it, what stands after it).
_AROUND = {
    "T.RandomResizedCrop(224, fields=": (_MASKS, _LOADS),
    "def order():": (_VIEWS, ""),
    "T.CutMix(alpha=1.0": (_LABELS, _LOADS),
    "images, labels = batch ": (_BATCH, ""),
    "def batches(split):": (_NANOGPT, _NANOGPT_LOOP),
    "logits, loss = model(x, y)": (_MINGPT, "\nraise AssertionError\n"),
}
# What an example prints: a pattern.
_PRINTED = {
    "print(images.shape, labels.shape)":
        r"(torch.Size\(\[128, 3, 32, 32\]\) torch.Size\(\[128\]\)\n){7}"
        r"torch.Size\(\[104, 3, 32, 32\]\) torch.Size\(\[104\]\)\n",
    'path=sys.argv[1], split="train")':
        r"epoch 0: 7 batches of \(128, 3, 32, 32\)\n"
        r"epoch 1: 7 batches of \(128, 3, 32, 32\)\n",
    "print(len(photos), photos.bad_samples": "2 2\n",
    "print(len(bees), len(train)": "333 800 200 8\n",
    "print(len(mix), len(loader), rows)": r"1000 10 \[350 150\]\n",
    "print(same.num_samples": r"1000 \['image', 'label'\]\n",
    'print(client.push_dataset("digits", digits))':
        r"datasetd.Dataset\('digits', .*fields=\['image', 'label'\], push: 100 "
        r"samples\)\n",
    "print(mnist.num_samples, mnist.format)": "50 push\n",
}
# No program: `...` stands for what is the reader's.
_NOT_WHOLE = ["@ray.remote\ndef task(...):"]
# Packages that an example may lack. tests/frameworks:frameworks_full_test runs
# the same blocks with all of them.
_PACKAGES = (
    "accelerate", "h5py", "jax", "lightning", "optuna", "PIL", "ray",
    "soundfile", "torch", "torchdata", "torchmetrics", "transformers",
)


def _pages():
    first = runfile("README.md")
    return [first] + sorted(
        glob.glob(os.path.join(os.path.dirname(first), "docs/*.md"))
    )


def _blocks():
    """(name, text) of each; a name is the page and the line."""
    for path in _pages():
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for match in re.finditer(
            r"^```(?:python|py)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL
        ):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{os.path.basename(path)}:{line}", match[1]


_BLOCKS = list(_blocks())
# What the examples of frameworks.md import.
_COMMON = [text for _, text in _BLOCKS if text.startswith("# common.py")]


def _missing(text):
    """Returns what this Python lacks for the example; empty if nothing."""
    for name in _PACKAGES:
        is_used = re.search(rf"^\s*(from|import) .*\b{name}\b", text, re.M)
        if is_used and importlib.util.find_spec(name) is None:
            return f"there is no package {name}"
    if "fully_shard" in text and importlib.metadata.version("torch") < "2":
        return "torch is older than fully_shard"
    return ""


@pytest.fixture(scope="module")
def cifar10(tmp_path_factory):
    path = tmp_path_factory.mktemp("cifar10")
    subprocess.run(
        [sys.executable, runfile("deploy/make_cifar10.py"), path,
         "--samples_per_file", "200"], check=True, timeout=60)
    return str(path)


@pytest.fixture
def user(cifar10):
    """(environment, working directory) of a user who has installed the package
    and nothing else."""
    daemon_harness.use_python_package()
    home = tempfile.mkdtemp(prefix="dd", dir="/tmp")
    kept = ("PATH", "PYTHONPATH", "DATASETD_LIBRARY", "DATASETD_DAEMON")
    environment = {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "HOME": home,
        "XDG_RUNTIME_DIR": home,
        "DATASETD_IDLE_SECONDS": "60",
        "OMP_NUM_THREADS": "1",
    }
    os.makedirs(os.path.join(home, "data"))
    os.symlink(cifar10, os.path.join(home, "data/cifar-10-batches-bin"))
    work = os.path.join(home, "work")
    os.mkdir(work)
    yield environment, work
    for pid in daemon_harness.daemons_of(home):
        os.kill(pid, signal.SIGKILL)
        daemon_harness.await_end(pid)
    shutil.rmtree(home)


@pytest.fixture(scope="module")
def server():
    """Runs programs without the seconds that each would take to import torch."""
    daemon_harness.use_python_package()
    with subprocess.Popen(
        [sys.executable, runfile("tests/docs/examples_server.py")], text=True,
        env=dict(os.environ, OMP_NUM_THREADS="1"), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, start_new_session=True,
    ) as process:
        yield process
        process.stdin.close()
        process.wait(60)


def _run(program, user, server, *arguments):
    environment, work = user
    outputs = [os.path.join(work, "..", name) for name in ("out", "error")]
    print(json.dumps({
        "program": program, "arguments": arguments, "environment": environment,
        "directory": work, "outputs": outputs,
    }), file=server.stdin, flush=True)
    if not select.select([server.stdout], [], [], 240)[0]:
        os.killpg(server.pid, signal.SIGKILL)
    code = server.stdout.readline()
    with open(outputs[1], encoding="utf-8") as error:
        assert code == "0\n", f"exit code {code or 'none in 240 s'}: {error.read()}"
    with open(outputs[0], encoding="utf-8") as printed:
        return printed.read()


def _write_common(user, server, cifar10):
    """common.py, and the dataset that its text asks for."""
    _, work = user
    (common,) = _COMMON
    with open(os.path.join(work, "common.py"), "w", encoding="utf-8") as file:
        file.write(common)
    _run("import datasetd, sys\ndatasetd.connect().load_dataset("
         "'cifar10', 'cifar10', sys.argv[1], 'train')", user, server, cifar10)


def _as_rank_0_of_1(environment):
    """What torchrun gives a single process."""
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        environment.update(
            RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_WORLD_SIZE="1",
            MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port.getsockname()[1]))


@pytest.mark.parametrize("name, text", _BLOCKS, ids=[b[0] for b in _BLOCKS])
def test_example(name, text, user, server, cifar10):
    if any(text.startswith(begin) for begin in _NOT_WHOLE):
        pytest.skip(f"{name} is not run: it is a piece of a program")
    if _missing(text):
        pytest.skip(f"{name} is not run: {_missing(text)}")
    environment, work = user
    if "common import" in text or text in _COMMON:
        _write_common(user, server, cifar10)
    if "init_process_group" in text:
        _as_rank_0_of_1(environment)
    if '"images.npy"' in text:
        np.save(os.path.join(work, "images.npy"),
                np.zeros((64, 8, 8, 3), np.uint8))
        np.save(os.path.join(work, "labels.npy"), np.arange(64))
    before, after = next(
        (around for words, around in _AROUND.items() if words in text),
        ("", ""))
    printed = _run(before + text + after, user, server, cifar10)
    for words, pattern in _PRINTED.items():
        if words in text:
            assert re.fullmatch(pattern, printed), printed


def test_that_every_piece_is_one_of_the_pages():
    """None is left out by a change of its words."""
    for words in [*_AROUND, *_PRINTED, *_NOT_WHOLE]:
        assert sum(words in text for _, text in _BLOCKS) == 1, words
    assert len(_COMMON) == 1 and len(_BLOCKS) > 20


if __name__ == "__main__":
    daemon_harness.main(__file__)  # names what is not run
