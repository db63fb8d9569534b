"""The manifests that deploy/k8s renders to, and how tests look their parts up."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.kit.kustomize import Resource, containers, pod, render

ROOT: Final = Path(__file__).parents[2]
K8S: Final = ROOT / "deploy" / "k8s"
OVERLAYS: Final = ("dev", "production")
POOLS: Final = ("library",)
"""The pools that the NATS component has users for."""


@cache
def overlay(name: str) -> tuple[Resource, ...]:
    """An overlay's resources; nobody changes them."""
    return tuple(render(K8S / "overlays" / name))


def of_kind(name: str, *kinds: str) -> dict[str, Resource]:
    """An overlay's resources of some kinds, by name."""
    return {each["metadata"]["name"]: each for each in overlay(name) if each["kind"] in kinds}


def workloads(name: str) -> dict[str, Resource]:
    """Everything that runs pods."""
    return {each["metadata"]["name"]: each for each in overlay(name) if pod(each)}


def ours(name: str) -> dict[str, Resource]:
    """The workloads of our image, which an overlay calls what it wants."""
    return {
        key: each
        for key, each in workloads(name).items()
        if any(_is_ours(container["image"]) for container in containers(each))
    }


def fleet(name: str) -> dict[str, Resource]:
    """The processes that are on the bus."""
    return {key: each for key, each in ours(name).items() if each["kind"] == "Deployment"}


def labels(workload: Resource) -> dict[str, str]:
    """The labels of a workload's pods."""
    found: dict[str, str] = workload["spec"]["template"]["metadata"]["labels"]
    return found


def command(workload: Resource) -> list[str]:
    """Return the command that our image is told to run."""
    found: list[str] = containers(workload)[0]["args"]
    return found


def config_maps(name: str) -> dict[str, dict[str, str]]:
    """The overlay's ConfigMaps by their names."""
    return {key: each["data"] for key, each in of_kind(name, "ConfigMap").items()}


def environment(workload: Resource, maps: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The variables of a workload's only container that are no secrets, as Kubernetes would set them."""
    [container] = containers(workload)
    variables: dict[str, str] = {}
    for source in container.get("envFrom", []):
        if "configMapRef" in source:
            variables |= maps[source["configMapRef"]["name"]]
    return variables | {each["name"]: each["value"] for each in container.get("env", []) if "value" in each}


def secrets(workload: Resource) -> set[tuple[str, str]]:
    """Each Secret that a workload's pods need, with a key where one is named, else with an empty one."""
    spec = pod(workload) or {}
    found: set[tuple[str, str]] = set()
    sources = [volume for volume in spec.get("volumes", []) if "secret" in volume]
    sources += [each for volume in spec.get("volumes", []) for each in volume.get("projected", {}).get("sources", [])]
    for secret in (source["secret"] for source in sources if "secret" in source):
        name = secret.get("secretName") or secret["name"]
        found |= {(name, item["key"]) for item in secret.get("items", [{"key": ""}])}
    for container in containers(workload):
        found |= {(each["secretRef"]["name"], "") for each in container.get("envFrom", []) if "secretRef" in each}
        for each in container.get("env", []):
            if reference := each.get("valueFrom", {}).get("secretKeyRef"):
                found.add((reference["name"], reference["key"]))
    return found


def mounted(workload: Resource, path: str) -> tuple[str, str]:
    """The Secret and the key that stand behind a file's path; raises LookupError where there are none."""
    spec = pod(workload) or {}
    volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
    for mount in containers(workload)[0].get("volumeMounts", []):
        folder, volume = mount["mountPath"], volumes[mount["name"]]
        if Path(path).parent != Path(folder):
            continue
        for secret in _secrets_of(volume):
            for item in secret.get("items", [{"key": Path(path).name, "path": Path(path).name}]):
                if item["path"] == Path(path).name:
                    return secret.get("secretName") or secret["name"], item["key"]
    raise LookupError(f"{workload['metadata']['name']}: no secret is mounted at {path}")


def _secrets_of(volume: Mapping[str, Any]) -> list[dict[str, Any]]:
    if "secret" in volume:
        return [volume["secret"]]
    return [source["secret"] for source in volume.get("projected", {}).get("sources", []) if "secret" in source]


def _is_ours(image: str) -> bool:
    return image.rpartition("/")[2].partition(":")[0] == "mcpfleet"
