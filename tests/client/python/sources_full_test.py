"""Sources and columns of libraries that Debian does not have: runs
sources_packages.py in environments with those of PyPI."""

import os
import pathlib
import subprocess
import sys

import datasetd
import pytest

_HERE = pathlib.Path(__file__).resolve().parent
_PACKAGES = pathlib.Path(datasetd.__file__).absolute().parent.parent

# NumPy below 2 goes with Debian's torch, and below 1.24 with mxnet.
_ENVIRONMENTS = {
    "common": [
        "numpy==1.26.4", "pyarrow==17.0.0", "datasets==2.21.0",
        "pandas==2.3.3", "safetensors==0.8.0", "tfrecord==1.14.6",
        "zarr==2.18.7", "numcodecs==0.15.2",
    ],
    "mxnet": ["numpy==1.23.5", "mxnet==1.9.1"],
}


@pytest.mark.parametrize("name", _ENVIRONMENTS)
def test_in_an_environment_with(name, tmp_path):
    python = tmp_path / "venv/bin/python"
    for command in (
        [sys.executable, "-m", "venv", "--system-site-packages",
         tmp_path / "venv"],
        [python, "-m", "pip", "install", "--quiet", *_ENVIRONMENTS[name]],
    ):
        subprocess.run(
            command, check=True, timeout=900,
            env=dict(os.environ, HOME=str(tmp_path)),
        )
    done = subprocess.run(
        [python, _HERE / "pytest_main.py", "sources_packages.py"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
        env=dict(
            os.environ,
            HOME=str(tmp_path),
            # Nothing of the system's, which would hide the environment's.
            PYTHONPATH=str(_PACKAGES),
            SOURCES_ENVIRONMENT=name,
        ),
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout
