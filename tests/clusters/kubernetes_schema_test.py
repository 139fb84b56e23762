"""The manifests against the JSON schemas of the Kubernetes API."""

import json
import os
import shutil
import subprocess
import sys
import tempfile

import pytest

from tests.clusters import manifests
from tests.testing import daemon_harness as harness

_VALIDATOR = "kubernetes-validate==1.37.0"
# The oldest and the newest that it has.
_VERSIONS = ("1.25", "1.37")
_CHECK = """
import json, sys, kubernetes_validate
kubernetes_validate.validate(json.load(sys.stdin), sys.argv[1], strict=True)
"""


@pytest.fixture(scope="module")
def validate():
    directory = tempfile.mkdtemp(prefix="dd", dir="/tmp")
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    python = os.path.join(directory, "bin", "python")
    installed = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", _VALIDATOR],
        capture_output=True, text=True)
    if installed.returncode != 0:
        shutil.rmtree(directory)
        pytest.fail(f"{_VALIDATOR} cannot be installed: "
                    f"{installed.stderr[-500:]}")

    def run(resource, version):
        environment = {key: value for key, value in os.environ.items()
                       if key != "PYTHONPATH"}
        return subprocess.run(
            [python, "-c", _CHECK, version], input=json.dumps(resource),
            capture_output=True, text=True, env=environment)

    yield run
    shutil.rmtree(directory)


@pytest.mark.parametrize("version", _VERSIONS)
@pytest.mark.parametrize("folder", manifests.FOLDERS)
def test_resources(validate, folder, version):
    for resource in manifests.built(folder):
        done = validate(resource, version)
        if (folder, version) == ("sidecar", "1.25"):
            # Sidecars came with 1.28.
            assert "restartPolicy" in done.stderr
            continue
        assert done.returncode == 0, (resource["kind"], done.stderr)


def test_mistakes_are_found(validate):
    (daemon_set,) = [resource for resource in manifests.built("base")
                     if resource["kind"] == "DaemonSet"]
    manifests.pod_of(daemon_set)["hostIpc"] = True
    done = validate(daemon_set, _VERSIONS[-1])
    assert done.returncode != 0 and "hostIpc" in done.stderr


if __name__ == "__main__":
    harness.main(__file__)
