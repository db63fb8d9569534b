"""Renders a kustomization as `kubectl kustomize` does, for the few features that deploy/k8s keeps to.

What it does not know it refuses, so that a manifest cannot lean on something that is not checked here. Where `kubectl`
is at hand, a test compares the two.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from tests.kit.merging import apply_operations, merged

Resource: TypeAlias = dict[str, Any]

_KNOWN: Final = {
    "apiVersion", "kind", "namespace", "resources", "components", "labels", "images", "configMapGenerator", "patches",
}  # fmt: skip
_CLUSTER_WIDE: Final = {"Namespace"}
_CONFIG_REFERENCES: Final = {"configMap", "configMapRef", "configMapKeyRef"}
_READABLE: Final = str.maketrans({"0": "g", "1": "h", "3": "k", "a": "m", "e": "t"})
"""How kustomize writes digits that could make a word."""
_GENERATED: Final = "tests.kit/generated"
"""An annotation of ours: this ConfigMap gets a name with its content's hash."""


class UnknownFeature(Exception):
    """Raised when a kustomization uses something that is not rendered here."""


def render(folder: Path) -> list[Resource]:
    """Render a folder's kustomization; order is that of the files."""
    return _with_hashes(_build(folder, []))


def read_all(path: Path) -> list[Resource]:
    """Read every document of a YAML file."""
    return [document for document in yaml.safe_load_all(path.read_text()) if document is not None]


def _build(folder: Path, found: list[Resource]) -> list[Resource]:
    """Add a kustomization to what its parent has found, which only a component sees and changes."""
    [own] = read_all(folder / "kustomization.yaml")
    if strangers := own.keys() - _KNOWN:
        raise UnknownFeature(f"{folder}: {', '.join(sorted(strangers))}")
    for name in own.get("resources", []):
        path = folder / name
        found = found + (_build(path, []) if path.is_dir() else read_all(path))
    for name in own.get("components", []):
        found = _build(folder / name, found)
    for generator in own.get("configMapGenerator", []):
        found = _generated(folder, generator, found)
    for patch in own.get("patches", []):
        found = _patched(folder, patch, found)
    for resource in found:
        _in_namespace(resource, own.get("namespace"))
        for labels in own.get("labels", []):
            _labelled(resource, labels)
        for container in containers(resource):
            container["image"] = _image(container["image"], own.get("images", []))
    return found


def _generated(folder: Path, generator: Mapping[str, Any], found: list[Resource]) -> list[Resource]:
    if strangers := generator.keys() - {"name", "literals", "files", "behavior"}:
        raise UnknownFeature(f"{folder}: configMapGenerator with {', '.join(sorted(strangers))}")
    data = dict(literal.split("=", 1) for literal in generator.get("literals", []))
    data |= {Path(file).name: (folder / file).read_text() for file in generator.get("files", [])}
    name = generator["name"]
    if generator.get("behavior") == "merge":
        [before] = [each for each in found if (each["kind"], each["metadata"]["name"]) == ("ConfigMap", name)]
        before["data"] |= data
        return found
    metadata = {"name": name, "annotations": {_GENERATED: "true"}}
    return [*found, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}]


def _patched(folder: Path, patch: Mapping[str, Any], found: list[Resource]) -> list[Resource]:
    if strangers := patch.keys() - {"target", "patch", "path"}:
        raise UnknownFeature(f"{folder}: patch with {', '.join(sorted(strangers))}")
    change = yaml.safe_load(patch["patch"] if "patch" in patch else (folder / patch["path"]).read_text())
    target = patch["target"]
    if not any(_is_target(resource, target) for resource in found):
        raise UnknownFeature(f"{folder}: a patch of nothing, {target}")
    if isinstance(change, dict) and change.get("$patch") == "delete":
        return [resource for resource in found if not _is_target(resource, target)]
    for resource in filter(lambda each: _is_target(each, target), found):
        if isinstance(change, list):
            apply_operations(resource, change)
        else:
            body = {key: value for key, value in change.items() if key not in ("apiVersion", "kind", "metadata")}
            resource.update(merged(resource, body))
    return found


def _is_target(resource: Resource, target: Mapping[str, str]) -> bool:
    if strangers := target.keys() - {"kind", "name"}:
        raise UnknownFeature(f"a patch's target by {', '.join(sorted(strangers))}")
    return all(
        resource["kind"] == value if key == "kind" else resource["metadata"]["name"] == value
        for key, value in target.items()
    )


def _in_namespace(resource: Resource, namespace: str | None) -> None:
    if namespace is not None and resource["kind"] not in _CLUSTER_WIDE:
        resource["metadata"]["namespace"] = namespace


def _labelled(resource: Resource, labels: Mapping[str, Any]) -> None:
    if strangers := labels.keys() - {"pairs", "includeTemplates"}:
        raise UnknownFeature(f"labels with {', '.join(sorted(strangers))}")
    resource["metadata"].setdefault("labels", {}).update(labels["pairs"])
    if labels.get("includeTemplates"):
        for template in templates(resource):
            template.setdefault("metadata", {}).setdefault("labels", {}).update(labels["pairs"])


def templates(resource: Resource) -> Iterator[dict[str, Any]]:
    """The templates of a resource: of pods and claims."""
    spec = resource.get("spec", {})
    if resource["kind"] in ("Deployment", "StatefulSet", "Job"):
        yield spec["template"]
    yield from spec.get("volumeClaimTemplates", [])


def pod(resource: Resource) -> dict[str, Any] | None:
    """The pod that a resource runs, if it runs any."""
    found: dict[str, Any] | None = resource.get("spec", {}).get("template", {}).get("spec")
    return found


def containers(resource: Resource) -> list[dict[str, Any]]:
    """A resource's containers, those that run before the others among them."""
    spec = pod(resource) or {}
    return [*spec.get("initContainers", []), *spec.get("containers", [])]


def _image(image: str, changes: Iterable[Mapping[str, str]]) -> str:
    name, _, tag = image.partition(":")
    for change in changes:
        if change["name"] == name:
            return f"{change.get('newName', name)}:{change.get('newTag', tag)}"
    return image


def _with_hashes(resources: list[Resource]) -> list[Resource]:
    """Name each generated ConfigMap by its content, so that pods are replaced when it changes."""
    names = {}
    for resource in resources:
        annotations = resource["metadata"].get("annotations", {})
        if annotations.pop(_GENERATED, None):
            if not annotations:
                del resource["metadata"]["annotations"]
            before = resource["metadata"]["name"]
            names[before] = resource["metadata"]["name"] = f"{before}-{_hash(resource['data'])}"
    for resource in resources:
        _rename(resource.get("spec"), names)
    return resources


def _hash(data: Mapping[str, str]) -> str:
    """The ten characters that kustomize makes of a ConfigMap's content."""
    content = {"data": dict(sorted(data.items())), "kind": "ConfigMap", "name": ""}
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":  # which Go escapes
        text = text.replace(character, f"\\u{ord(character):04x}")
    return hashlib.sha256(text.encode()).hexdigest()[:10].translate(_READABLE)


def _rename(part: Any, names: Mapping[str, str]) -> None:
    """Give references to ConfigMaps their new names."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key in _CONFIG_REFERENCES and isinstance(value, dict):
                value["name"] = names.get(value["name"], value["name"])
            _rename(value, names)
    elif isinstance(part, list):
        for value in part:
            _rename(value, names)
