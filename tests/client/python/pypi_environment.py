"""Runs test files in an environment with packages of PyPI."""

import os
import pathlib
import subprocess
import sys

import datasetd

_HERE = pathlib.Path(__file__).resolve().parent
# Of the client, and of the tests.
_PACKAGES = (
    pathlib.Path(datasetd.__file__).absolute().parent.parent, _HERE.parents[2])


def run(tmp_path, name, packages, files):
    """`name` is $SOURCES_ENVIRONMENT there."""
    python = tmp_path / "venv/bin/python"
    for command in (
        [sys.executable, "-m", "venv", "--system-site-packages",
         tmp_path / "venv"],
        [python, "-m", "pip", "install", "--quiet", *packages],
    ):
        subprocess.run(
            command, check=True, timeout=900,
            env=dict(os.environ, HOME=str(tmp_path)),
        )
    done = subprocess.run(
        [python, _HERE / "pytest_main.py", *files],
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
        env=dict(
            os.environ,
            HOME=str(tmp_path),
            # Nothing of the system's, which would hide the environment's.
            PYTHONPATH=os.pathsep.join(map(str, _PACKAGES)),
            SOURCES_ENVIRONMENT=name,
        ),
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout
