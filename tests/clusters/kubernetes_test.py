"""The manifests of deploy/kubernetes: what they say, and pods played by processes
in namespaces of their own."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest
import yaml

from tests.clusters import manifests
from tests.testing import daemon_harness as harness

harness.use_python_package()

_UID = 64210
_PODS = [
    (folder, resource)
    for folder in manifests.FOLDERS
    for resource in manifests.built(folder)
    if "template" in resource.get("spec", {})
]
_IDS = [f"{folder}-{resource['kind']}" for folder, resource in _PODS]
_ADDRESS = "/run/datasetd/datasetd.sock"
_CACHE = "/var/cache/datasetd"  # an emptyDir


def test_every_file_is_used():
    used = set()
    for folder in manifests.FOLDERS:
        text = open(f"{manifests.ROOT}/{folder}/kustomization.yaml").read()
        for name in os.listdir(f"{manifests.ROOT}/{folder}"):
            if name == "kustomization.yaml" or name in text:
                used.add(f"{folder}/{name}")
    found = {
        os.path.relpath(os.path.join(folder, name), manifests.ROOT)
        for folder, _, names in os.walk(manifests.ROOT)
        for name in names if name.endswith(".yaml")}
    assert found == used


@pytest.mark.parametrize("folder, resource", _PODS, ids=_IDS)
def test_pods_have_no_privileges(folder, resource):
    pod = manifests.pod_of(resource)
    for key in ("hostIPC", "hostPID", "hostNetwork", "shareProcessNamespace"):
        assert key not in pod
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {
        "type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    for container in manifests.containers(pod):
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert "privileged" not in context
        assert context["capabilities"]["drop"] == ["ALL"]
        if container["name"] == "directory":
            assert folder in ("base", "gpu")
            assert context["capabilities"]["add"] == ["CHOWN"]
            continue
        assert "add" not in context["capabilities"]
        assert context.get("runAsUser", 1) > 0
        assert context.get("runAsNonRoot", True) is True


def mebibytes(quantity):
    return int(re.fullmatch(r"(\d+)Gi", quantity)[1]) << 10


@pytest.mark.parametrize("folder, resource", _PODS, ids=_IDS)
def test_the_budget_leaves_what_loads_need(folder, resource):
    pod = manifests.pod_of(resource)
    for container in manifests.containers(pod):
        if container["name"] != "datasetd":
            continue
        budgets = re.findall(r"--memory_budget_mib=(\d+)",
                             " ".join(container["args"]))
        if folder == "gpu":  # it is of the GPUs' memory
            budgets.append(0)
        (budget,) = budgets
        # docs/operations.md, "Memory of the host".
        limit = mebibytes(container["resources"]["limits"]["memory"])
        assert limit >= int(budget) + 4096


@pytest.mark.parametrize("folder, resource", _PODS, ids=_IDS)
def test_names_that_belong_together(folder, resource):
    pod = manifests.pod_of(resource)
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounted = set()
    for container in manifests.containers(pod):
        assert "memory" in container["resources"]["limits"]
        for mount in container["volumeMounts"]:
            mounted.add(mount["name"])
            if mount["name"] == "sockets":
                assert mount["mountPath"] == os.path.dirname(_ADDRESS)
            if mount["name"] == "cache":
                assert mount["mountPath"] == _CACHE
                assert volumes["cache"] == {"name": "cache", "emptyDir": {}}
        environment = {entry["name"]: entry["value"]
                       for entry in container.get("env", [])}
        if container["name"] != "directory":
            assert environment["DATASETD_ADDRESS"] == _ADDRESS
        for probe in ("startupProbe", "livenessProbe"):
            if probe in container:
                assert container[probe]["exec"]["command"] == [
                    "datasetctl", "status"]
    assert mounted == set(volumes)
    if "hostPath" in volumes["sockets"]:
        assert volumes["sockets"]["hostPath"]["path"] == (
            os.path.dirname(_ADDRESS))
    labels = resource["spec"]["template"].get("metadata", {}).get("labels", {})
    if resource["kind"] == "DaemonSet":
        assert resource["spec"]["selector"]["matchLabels"] == labels


def test_examples_can_be_applied_side_by_side():
    names = [
        (resource["kind"], resource["metadata"].get("namespace"),
         resource["metadata"]["name"])
        for folder in ("base", "training", "sidecar")
        for resource in manifests.built(folder)]
    assert len(names) == len(set(names)), names
    # The manifests make their namespaces, or the page says how to.
    made = {name for kind, _, name in names if kind == "Namespace"}
    used = {namespace for kind, namespace, _ in names if kind != "Namespace"}
    assert used - made == {"training"}
    with open(harness.runfile("docs/clusters.md"), encoding="utf-8") as file:
        assert "kubectl create namespace training" in file.read()


def test_the_training_pod_may_use_the_daemon():
    (daemon,) = [r for f, r in _PODS if f == "base"]
    (job,) = [r for f, r in _PODS if f == "training"]
    group = manifests.pod_of(daemon)["securityContext"]["runAsGroup"]
    assert group == _UID
    pod = manifests.pod_of(job)
    assert group in pod["securityContext"]["supplementalGroups"]
    (service,) = [r for r in manifests.built("training")
                  if r["kind"] == "Service"]
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == labels
    assert pod["subdomain"] == service["metadata"]["name"]
    (endpoint,) = [word for word in pod["containers"][0]["command"]
                   if word.startswith("--rdzv_endpoint=")]
    assert endpoint.split("=")[1].startswith(
        f"{job['metadata']['name']}-0.{pod['subdomain']}:")
    assert job["spec"]["completions"] == job["spec"]["parallelism"]
    (container,) = pod["containers"]
    gpus = container["resources"]["limits"]["nvidia.com/gpu"]
    assert f"--nproc_per_node={gpus}" in container["command"]


def test_gpus():
    (base,) = [r for f, r in _PODS if f == "base"]
    (gpu,) = [r for f, r in _PODS if f == "gpu"]
    pod = manifests.pod_of(gpu)
    (container,) = pod["containers"]
    environment = {e["name"]: e["value"] for e in container["env"]}
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert pod["runtimeClassName"] == "nvidia"
    # Asking for GPUs would take them from training pods.
    assert "nvidia.com/gpu" not in container["resources"]["limits"]
    # Nothing of the base is lost.
    (original,) = manifests.pod_of(base)["containers"]
    assert container["volumeMounts"] == original["volumeMounts"]
    assert container["image"] == "registry.example.com/datasetd:0.1.0"


def configuration(directory):
    """That of the base, with directories of the test's."""
    (config_map,) = [r for r in manifests.built("base")
                     if r["kind"] == "ConfigMap"]
    config = yaml.safe_load(config_map["data"]["datasetd.yaml"])
    assert config["socket_path"] == _ADDRESS
    assert config.pop("socket_group") == "datasetd"  # the image has it
    config["socket_path"] = os.path.join(directory, "run/datasetd.sock")
    config["data_roots"] = [os.path.join(directory, "data")]
    assert config["cache"]["directory"].startswith(_CACHE + "/")
    config["cache"]["directory"] = config["cache"]["directory"].replace(
        _CACHE, os.path.join(directory, "cache"))
    config["devices"] = ["cpu"]
    return config


def test_the_daemon_ends_in_its_time():
    (daemon,) = [r for f, r in _PODS if f == "base"]
    drain = configuration("/x")["drain_timeout"]
    assert manifests.pod_of(daemon)["terminationGracePeriodSeconds"] > int(
        drain[:-1])


def test_the_image():
    with open(harness.runfile("deploy/container/Dockerfile")) as file:
        text = re.sub(r"\\\n", " ", file.read())
    lines = [line.split(None, 1) for line in text.splitlines()
             if line and not line.startswith("#")]
    allowed = {"FROM", "ARG", "ADD", "RUN", "COPY", "ENV", "USER", "ENTRYPOINT"}
    assert {word for word, _ in lines} <= allowed
    last = [rest for word, rest in lines if word == "USER"]
    assert last == [f"{_UID}:{_UID}"]
    assert f"--gid {_UID} datasetd" in text and f"--uid {_UID}" in text
    (entry,) = [json.loads(rest) for word, rest in lines
                if word == "ENTRYPOINT"]
    assert entry == ["/opt/datasetd/bin/datasetd"]
    assert "ENV PATH=/opt/datasetd/bin:" in text
    with open(harness.runfile("client/python/datasetd/_version.py")) as file:
        version = re.search(r'__version__ = "(.*)"', file.read())[1]
    assert f"ARG VERSION={version}" in text
    for folder in ("base", "sidecar"):
        (image,) = manifests.load(f"{folder}/kustomization.yaml")["images"]
        assert image["newTag"] == version


class Pod:
    """A process in namespaces of its own (mounts, processes, IPC, network, host
    name), as an ordinary user."""

    def __init__(self, command, uid, gid, groups=(), mounts=(), **options):
        script = "".join(
            f"mount --bind {path} {path} && "
            f"mount -o remount,bind,{mode} {path} && "
            for path, mode in mounts)
        words = ["setpriv", f"--reuid={uid}", f"--regid={gid}",
                 "--bounding-set=-all", "--no-new-privs"]
        words += ([f"--groups={','.join(map(str, groups))}"] if groups
                  else ["--clear-groups"])
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--ipc", "--net", "--uts",
             "--fork", "--mount-proc", "sh", "-ec",
             script + 'exec "$@"', "pod", *words, *command], **options)

    def kill(self):
        """As the node does: with its first process all others end."""
        pid = self.process.pid
        if self.process.poll() is None:
            with open(f"/proc/{pid}/task/{pid}/children") as file:
                for child in file.read().split():
                    os.kill(int(child), signal.SIGKILL)
        self.process.wait()


_TRAIN = """
import json, os, sys
import datasetd
def say(**message):
    print(json.dumps(message), flush=True)
assert os.getpid() < 10 and os.getuid() == 1000
with datasetd.connect() as client:
    dataset = client.load_dataset("x", "cifar10", sys.argv[1], "test")
    loader = datasetd.DataLoader(dataset, batch_size=10, shuffle=True, seed=1,
                                 framework="numpy", prefetch=2, reconnect=True)
    rows = []
    for batch in loader:
        rows += batch.indices.tolist()
        if len(rows) == 50:
            say(rows=len(rows))
            sys.stdin.readline()
    say(rows=rows, sum=int(client.fetch(dataset, [3], framework="numpy")
                           .image.sum()))
"""


@pytest.fixture
def node():
    """A node's directories: the sockets', given to the daemon by the manifest's
    own init container, and data."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to make namespaces and to be several users")
    directory = tempfile.mkdtemp(prefix="dd", dir="/tmp")
    os.chmod(directory, 0o755)
    for name in ("run", "cache", "bin"):
        os.mkdir(os.path.join(directory, name))
    # As the kubelet makes an emptyDir: of root, for everybody to write.
    os.chmod(os.path.join(directory, "cache"), 0o777)
    planes, _ = harness.write_cifar10_test(
        os.path.join(directory, "data"), 100)
    # Both users can read them.
    for name in ("client/c_api/libdatasetd.so", "server/datasetd"):
        shutil.copy(harness.runfile(name), os.path.join(directory, "bin"))
    shutil.copytree(harness.runfile("client/python"),
                    os.path.join(directory, "python"))
    subprocess.run(["chmod", "-R", "a+rX", directory], check=True)
    os.chmod(os.path.join(directory, "run"), 0o755)
    with open(os.path.join(directory, "datasetd.yaml"), "w") as file:
        json.dump(configuration(directory), file)
    yield directory, planes
    shutil.rmtree(directory)


def prepare(directory):
    (resource,) = [r for f, r in _PODS if f == "base"]
    (init,) = manifests.pod_of(resource)["initContainers"]
    *shell, script = init["command"]
    assert "/run/datasetd" in script
    subprocess.run(
        ["setpriv", "--bounding-set=-all,+chown", "--inh-caps=-all,+chown",
         *shell, script.replace("/run/datasetd", f"{directory}/run")],
        check=True)
    info = os.stat(f"{directory}/run")
    assert (info.st_uid, info.st_gid, info.st_mode & 0o7777) == (
        _UID, _UID, 0o750)


def daemon_pod(directory, log):
    prepare(directory)
    return Pod(
        [f"{directory}/bin/datasetd", f"--config={directory}/datasetd.yaml"],
        _UID, _UID, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        mounts=[(f"{directory}/data", "ro")])


def training_pod(directory, groups):
    return Pod(
        [sys.executable, "-c", _TRAIN, f"{directory}/data"], 1000, 1000,
        groups, [(f"{directory}/run", "ro")], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=dict(
            PATH=os.environ["PATH"], PYTHONPATH=f"{directory}/python",
            PYTHONDONTWRITEBYTECODE="1", HOME="/nonexistent",
            DATASETD_LIBRARY=f"{directory}/bin/libdatasetd.so",
            DATASETD_ADDRESS=f"{directory}/run/datasetd.sock"))


def test_pods_share_nothing_but_a_directory(node):
    directory, planes = node
    with open(f"{directory}/log", "w+") as log:
        daemon = daemon_pod(directory, log)
        pods = [training_pod(directory, [_UID]) for _ in range(2)]
        try:
            for pod in pods:
                line = pod.process.stdout.readline()
                assert line == '{"rows": 50}\n', pod.process.stderr.read()
            entries = os.stat(f"{directory}/cache/entries")
            assert (entries.st_uid, entries.st_mode & 0o7777) == (_UID, 0o700)
            # A killed pod's slab comes back, though its number is not known.
            pods[1].kill()
            harness.poll_until(
                lambda: "freed: uid=1000" in open(log.name).read(),
                "its slab back")
            # The daemon's pod is replaced; its socket is another one then.
            daemon.kill()
            daemon = daemon_pod(directory, log)
            out, errors = pods[0].process.communicate("go\n", 60)
            assert pods[0].process.returncode == 0, errors
            said = json.loads(out)
            assert sorted(said["rows"]) == list(range(100))
            assert said["sum"] == int(planes[3].sum())
            # Without the group a pod is refused.
            stranger = training_pod(directory, [])
            pods.append(stranger)
            _, errors = stranger.process.communicate(timeout=60)
            assert stranger.process.returncode == 1
            assert "PermissionDenied" in errors
        finally:
            for pod in (daemon, *pods):
                pod.kill()


if __name__ == "__main__":
    harness.main(__file__)
