"""Tells which clients can open a daemon's slab; one line of JSON.

    sharing_probe.py DEVICE

The daemon has a user of its own, as a service has. A client as that user, as
another one, in a PID namespace of its own, and both, by export kind: whether it
took a batch, or the error. Needs root.
"""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import datasetd

DAEMON_USER, OTHER_USER = 64533, 64534
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


def become(user):
    return ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups",
            "--")


_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--")
WAYS = {
    "same_user": become(DAEMON_USER),
    "other_user": become(OTHER_USER),
    "pid_namespace": _NAMESPACE + become(DAEMON_USER),
    "other_user_in_pid_namespace": _NAMESPACE + become(OTHER_USER),
}


def copy_product(directory):
    """Copies daemon and client to where every user may read them; returns the
    client's environment."""
    directory.chmod(0o755)
    original = pathlib.Path(datasetd.__file__).parent
    package = directory / "python"
    shutil.copytree(original, package / "datasetd",
                    ignore=shutil.ignore_patterns("datasetd",
                                                  "libdatasetd.so"))
    library = pathlib.Path(os.path.realpath(os.environ.get(
        "DATASETD_LIBRARY", original / "libdatasetd.so")))
    for source, target in (
            (library, directory / "lib" / "libdatasetd.so"),
            (os.environ["DATASETD_DAEMON"], directory / "bin" / "datasetd")):
        target.parent.mkdir()
        shutil.copy(source, target)
        target.chmod(0o755)
    # In a release, the libraries of both.
    if (library.parent / "datasetd").is_dir():
        shutil.copytree(library.parent / "datasetd",
                        directory / "lib" / "datasetd")
    return dict(os.environ, HOME="/", PYTHONPATH=str(package),
                DATASETD_LIBRARY=str(directory / "lib" / "libdatasetd.so"))


@contextlib.contextmanager
def serving(directory, kind, device):
    """A daemon of DAEMON_USER; gives its address."""
    config = directory / f"{kind}.yaml"
    config.write_text(json.dumps({"slab_export": kind, "socket_mode": "0666"}))
    sockets = directory / kind
    sockets.mkdir()
    os.chown(sockets, DAEMON_USER, DAEMON_USER)
    address = str(sockets / "datasetd.sock")
    with open(directory / f"{kind}.log", "wb") as log:
        process = subprocess.Popen(
            [*become(DAEMON_USER), directory / "bin" / "datasetd",
             f"--config={config}", f"--socket_path={address}",
             f"--device={device}", "--data_root=/"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")
    try:
        yield address
    except datasetd.Error as error:
        text = (directory / f"{kind}.log").read_text()
        raise SystemExit(f"{error}\n{text}") from error
    finally:
        process.terminate()
        process.wait()


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
    with tempfile.TemporaryDirectory(prefix="dd") as name:
        directory = pathlib.Path(name)
        environment = copy_product(directory)
        path = directory / "data"
        path.mkdir()
        with open(path / "test_batch.bin", "wb") as file:
            for i in range(64):
                file.write(bytes([i % 10]) + os.urandom(3072))
        for kind in kinds:
            with serving(directory, kind, device) as address, \
                    datasetd.connect(address, timeout=30) as client:
                client.load_dataset("probe", format="cifar10", split="test",
                                    path=path, device=device)
                answer[kind] = {way: take_batch(prefix, address, environment)
                                for way, prefix in WAYS.items()}
            own = answer[kind]["same_user"]
            if own != TOOK_A_BATCH:
                return {"not_measured": f"{kind}, the daemon's user: {own}"}
    return answer


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(json.dumps(main(sys.argv[1])))
