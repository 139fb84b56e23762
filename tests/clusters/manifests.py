"""The manifests of deploy/kubernetes, with what kustomize would do to them."""

import copy
import os

import yaml

from tests.testing import daemon_harness as harness

ROOT = harness.runfile("deploy/kubernetes")


def load(path):
    with open(os.path.join(ROOT, path)) as file:
        return yaml.safe_load(file)


def merged(base, patch):
    """A strategic merge: maps by key, lists of things with names by name, other
    lists replaced."""
    if isinstance(base, dict) and isinstance(patch, dict):
        result = dict(base)
        for key, value in patch.items():
            result[key] = merged(base[key], value) if key in base else value
        return result
    named = [item for item in (*(base or ()), *(patch or ()))
             if isinstance(item, dict) and "name" in item]
    if isinstance(base, list) and named and len(named) == len(base + patch):
        items = {item["name"]: item for item in base}
        for item in patch:
            items[item["name"]] = merged(items.get(item["name"], {}), item)
        return list(items.values())
    return patch


def built(folder):
    """The resources of a kustomization."""
    kustomization = load(f"{folder}/kustomization.yaml")
    assert kustomization.pop("apiVersion") == "kustomize.config.k8s.io/v1beta1"
    assert kustomization.pop("kind") == "Kustomization"
    resources = []
    for name in kustomization.pop("resources"):
        if name.endswith(".yaml"):
            resources.append(load(f"{folder}/{name}"))
        else:
            resources += built(os.path.normpath(f"{folder}/{name}"))
    for patch in kustomization.pop("patches", []):
        change = load(f"{folder}/{patch['path']}")
        (target,) = [
            resource for resource in resources
            if resource["kind"] == change["kind"]
            and resource["metadata"]["name"] == change["metadata"]["name"]]
        resources[resources.index(target)] = merged(target, change)
    for generator in kustomization.pop("configMapGenerator", []):
        data = {}
        for name in generator["files"]:
            with open(os.path.join(ROOT, folder, name)) as file:
                data[name] = file.read()
        resources.append({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": generator["name"]}, "data": data})
    namespace = kustomization.pop("namespace", None)
    images = {image["name"]: f"{image['newName']}:{image['newTag']}"
              for image in kustomization.pop("images", [])}
    assert kustomization == {}, "not known to this test"
    resources = copy.deepcopy(resources)
    for resource in resources:
        if namespace and resource["kind"] != "Namespace":
            resource["metadata"]["namespace"] = namespace
        if "template" in resource.get("spec", {}):
            for container in containers(pod_of(resource)):
                container["image"] = images.get(
                    container["image"], container["image"])
    return resources


def pod_of(resource):
    return resource["spec"]["template"]["spec"]


def containers(pod):
    return pod.get("initContainers", []) + pod["containers"]


FOLDERS = ("base", "gpu", "training", "sidecar")
