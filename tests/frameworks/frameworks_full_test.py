"""Runs the tests of frameworks that Debian does not have, in an environment
with those of PyPI. It takes 8 GB of disk space while it runs."""

import os
import pathlib
import subprocess
import sys
import tempfile

import datasetd
import pytest

_HERE = pathlib.Path(__file__).resolve().parent
_PACKAGES = pathlib.Path(datasetd.__file__).absolute().parent.parent

_ENVIRONMENT = [
    "numpy==2.4.6",
    "pytest==9.2.0",
    "torch==2.15.0",
    "torchdata==0.11.0",
    "soundfile==0.13.1",
    "torchmetrics==1.9.0",
    "lightning==2.6.6",
    "accelerate==1.15.0",
    "transformers==5.23.0",
    "datasets==5.2.0",
    "pillow==13.0.0",
    "jax==0.10.2",
    "ray[train,tune]==2.60.0",
    "optuna==5.0.0",
]


@pytest.fixture(scope="module")
def python():
    # Not pytest's directory, which it keeps.
    with tempfile.TemporaryDirectory() as folder:
        python = pathlib.Path(folder, "venv/bin/python")
        for command in (
            [sys.executable, "-m", "venv", f"{folder}/venv"],
            [
                python,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-cache-dir",
                *_ENVIRONMENT,
            ],
        ):
            subprocess.run(
                command,
                check=True,
                timeout=1800,
                env=dict(os.environ, HOME=folder),
            )
        yield python


@pytest.mark.parametrize(
    "name",
    [
        "accelerate_test",
        "ddp_test",
        "evaluation_test",
        "fsdp_test",
        "hf_datasets_test",
        "hf_trainer_test",
        "jax_test",
        "lightning_test",
        "optuna_test",
        "ray_test",
        "torchdata_test",
    ],
)
def test_in_the_environment(name, python, tmp_path):
    done = subprocess.run(
        [python, _HERE / "pytest_main.py", f"{name}.py"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=900,
        env=dict(
            os.environ,
            HOME=str(tmp_path),
            # Nothing of the system's, which would hide the environment's.
            PYTHONPATH=str(_PACKAGES),
        ),
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout
