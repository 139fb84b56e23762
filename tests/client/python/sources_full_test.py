"""Sources and columns of libraries that the other tests do without: runs
sources_packages.py in environments with those of PyPI, and audio_files_test.py
with another soundfile than Debian's."""

import pypi_environment
import pytest

# NumPy below 2 goes with Debian's torch, and below 1.24 with mxnet.
_ENVIRONMENTS = {
    "audio": ["numpy==1.26.4", "soundfile==0.13.1"],
    "common": [
        "numpy==1.26.4", "pyarrow==17.0.0", "datasets==2.21.0",
        "pandas==2.3.3", "soundfile==0.13.1", "safetensors==0.8.0",
        "zarr==2.18.7", "numcodecs==0.15.2",
    ],
    "zarr3": ["numpy==1.26.4", "zarr==3.0.10"],
    "mxnet": ["numpy==1.23.5", "mxnet==1.9.1"],
}


@pytest.mark.parametrize("name", _ENVIRONMENTS)
def test_in_an_environment_with(name, tmp_path):
    packages = _ENVIRONMENTS[name]
    files = [
        "audio_files_test.py" if name == "audio" else "sources_packages.py"
    ]
    pypi_environment.run(tmp_path, name, packages, files)
