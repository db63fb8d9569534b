"""The renderer of kustomizations, held to what `kubectl kustomize` was seen to make of the same."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.kit.kustomize import UnknownFeature, render

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: edge}
spec:
  template:
    metadata: {labels: {name: edge}}
    spec:
      containers:
        - name: edge
          image: mcpfleet
          args: [edge]
          resources: {limits: {memory: 1Gi}}
          envFrom: [{configMapRef: {name: fleet}}]
"""


def rendered(folder: Path, kustomization: str, **files: str) -> list[dict[str, Any]]:
    """Render a folder with a deployment, and what else is given."""
    (folder / "deployment.yaml").write_text(DEPLOYMENT)
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(dedent(text))
    (folder / "kustomization.yaml").write_text("resources: [deployment.yaml]\n" + dedent(kustomization))
    return render(folder)


def test_a_config_map_is_named_by_its_content_and_so_are_references_to_it(tmp_path: Path) -> None:
    generator = "configMapGenerator: [{name: fleet, literals: [b=1, a=x]}]"
    deployment, config = rendered(tmp_path, generator)
    assert config["metadata"]["name"] == "fleet-c4hh79h9mm"
    assert config["data"] == {"b": "1", "a": "x"}
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["envFrom"] == [{"configMapRef": {"name": "fleet-c4hh79h9mm"}}]


def test_namespace_labels_and_image_are_set(tmp_path: Path) -> None:
    [deployment] = rendered(
        tmp_path,
        """
        namespace: here
        labels: [{pairs: {part-of: mcpfleet}, includeTemplates: true}]
        images: [{name: mcpfleet, newName: a/mcpfleet, newTag: "2"}]
        """,
    )
    assert deployment["metadata"] == {"name": "edge", "namespace": "here", "labels": {"part-of": "mcpfleet"}}
    template = deployment["spec"]["template"]
    assert template["metadata"]["labels"] == {"name": "edge", "part-of": "mcpfleet"}
    assert template["spec"]["containers"][0]["image"] == "a/mcpfleet:2"


def test_a_patch_merges_containers_by_their_names(tmp_path: Path) -> None:
    [deployment] = rendered(
        tmp_path,
        """
        patches:
          - target: {kind: Deployment, name: edge}
            patch: |
              spec: {template: {spec: {containers: [{name: edge, resources: {limits: {memory: 2Gi}}}]}}}
        """,
    )
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["edge"]
    assert container["resources"] == {"limits": {"memory": "2Gi"}}


def test_a_list_of_operations_is_a_json_patch(tmp_path: Path) -> None:
    [deployment] = rendered(
        tmp_path,
        """
        patches:
          - target: {kind: Deployment}
            patch: |
              - {op: add, path: /spec/replicas, value: 1}
              - {op: replace, path: /spec/template/spec/containers/0/image, value: other}
              - {op: remove, path: /spec/template/spec/containers/0/resources}
        """,
    )
    assert deployment["spec"]["replicas"] == 1
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "other"
    assert "resources" not in container


def test_a_component_sees_what_its_parent_has(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "kustomization.yaml").write_text(
        "patches: [{target: {kind: Deployment}, patch: '[{op: add, path: /spec/replicas, value: 7}]'}]"
    )
    [deployment] = rendered(tmp_path, "components: [part]")
    assert deployment["spec"]["replicas"] == 7


def test_what_a_patch_deletes_is_gone(tmp_path: Path) -> None:
    assert rendered(tmp_path, "patches: [{target: {kind: Deployment}, patch: '{$patch: delete}'}]") == []


@pytest.mark.parametrize(
    "kustomization",
    [
        "namePrefix: a-",
        "configMapGenerator: [{name: a, envs: [b]}]",
        "patches: [{target: {kind: Deployment, labelSelector: a=b}, patch: '[]'}]",
        "patches: [{target: {kind: Service}, patch: '[]'}]",
        "labels: [{pairs: {a: b}, includeSelectors: true}]",
    ],
)
def test_what_is_not_rendered_here_is_refused(tmp_path: Path, kustomization: str) -> None:
    with pytest.raises(UnknownFeature):
        rendered(tmp_path, kustomization)
