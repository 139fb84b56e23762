"""Tells which clients can open a daemon's slab; one line of JSON.

    sharing_probe.py DEVICE

A client as the daemon's user, as another user, in a PID namespace of its own,
and both, by export kind: whether it took a batch, or the error. Needs root.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import datasetd

NOBODY = 65534
DEADLINE_SECONDS = 60.0

_CLIENT = """
import sys
import datasetd
client = datasetd.connect(sys.argv[1])
loader = datasetd.DataLoader(client.get_dataset("probe"), batch_size=4,
                             framework="dlpack", timeout=30)
batch = next(iter(loader))
print("took a batch", flush=True)
"""
TOOK_A_BATCH = "took a batch"
_OTHER_USER = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}",
               "--clear-groups", "--")
_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--")
WAYS = {
    "same_user": (),
    "other_user": _OTHER_USER,
    "pid_namespace": _NAMESPACE,
    "other_user_in_pid_namespace": _NAMESPACE + _OTHER_USER,
}


def copy_package(directory):
    """Copies it to where every user may read it; returns its environment."""
    os.chmod(directory, 0o755)
    original = pathlib.Path(datasetd.__file__).parent
    package = pathlib.Path(directory) / "python"
    shutil.copytree(original, package / "datasetd",
                    ignore=shutil.ignore_patterns("libdatasetd.so"))
    source = pathlib.Path(os.path.realpath(os.environ.get(
        "DATASETD_LIBRARY", original / "libdatasetd.so")))
    library = pathlib.Path(directory) / "lib" / "libdatasetd.so"
    library.parent.mkdir()
    shutil.copy(source, library)
    library.chmod(0o755)
    # In a release, the libraries that it needs.
    if (source.parent / "datasetd").is_dir():
        shutil.copytree(source.parent / "datasetd",
                        library.parent / "datasetd")
    return dict(os.environ, HOME="/", PYTHONPATH=str(package),
                DATASETD_LIBRARY=str(library))


def take_batch(prefix, address, environment):
    try:
        done = subprocess.run(
            [*prefix, sys.executable, "-c", _CLIENT, address],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            timeout=DEADLINE_SECONDS, env=environment, cwd="/")
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}: {error}"
    if done.returncode == 0:
        return done.stdout.decode().strip()
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"ended with {done.returncode}: {lines[-1] if lines else ''}"[:800]


def main(device):
    if os.geteuid() != 0:
        return {"not_measured": "needs root, to become another user"}
    missing = [tool for tool in ("setpriv", "unshare")
               if shutil.which(tool) is None]
    if missing:
        return {"not_measured": f"no {' and no '.join(missing)} here"}
    answer = {}
    kinds = (["auto"] if device == "cpu" else
             ["cuda_ipc_handle", "cuda_vmm_fd"])
    with tempfile.TemporaryDirectory(prefix="dd") as directory:
        environment = copy_package(directory)
        path = pathlib.Path(directory) / "data"
        path.mkdir()
        with open(path / "test_batch.bin", "wb") as file:
            for i in range(64):
                file.write(bytes([i % 10]) + os.urandom(3072))
        for kind in kinds:
            config = pathlib.Path(directory) / f"{kind}.yaml"
            config.write_text(json.dumps(
                {"slab_export": kind, "socket_mode": "0666"}))
            with datasetd.start_local(
                    device=device, arguments=[f"--config={config}"]) as daemon:
                os.chmod(os.path.dirname(daemon.address), 0o755)
                with daemon.connect() as client:
                    client.load_dataset("probe", format="cifar10",
                                        split="test", path=path, device=device)
                    answer[kind] = {
                        way: take_batch(prefix, daemon.address, environment)
                        for way, prefix in WAYS.items()}
            own = answer[kind]["same_user"]
            if own != TOOK_A_BATCH:
                return {"not_measured": f"{kind}, the daemon's user: {own}"}
    return answer


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(json.dumps(main(sys.argv[1])))
