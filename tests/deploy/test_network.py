"""The network policies: each workload reaches what it is configured to reach, and nothing else."""

from __future__ import annotations

from itertools import product
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.deploy import manifests
from tests.deploy.manifests import OVERLAYS
from tests.kit.kustomize import Resource, containers, pod

PROCESSES = ("authorization", "catalog", "edge", "subscriptions", "tasks", "worker-library")
STATEFUL = ("authorization", "catalog", "subscriptions", "tasks", "migrate")

REACHES = (
    {(key, "nats", 4222) for key in PROCESSES}
    | {(key, "otel-collector", 4318) for key in PROCESSES}
    | {(key, "postgresql", 5432) for key in STATEFUL}
    | {("nats", "nats", 6222), ("otel-collector", "jaeger", 4317)}
)
"""The connections inside of a fleet's namespace: from, to, port."""

FROM_OUTSIDE = {
    **{(key, 9000): "monitoring" for key in PROCESSES},
    ("edge", 8000): "ingress-nginx",
    ("nats", 8222): "monitoring",
    ("otel-collector", 8888): "monitoring",
    ("otel-collector", 8889): "monitoring",
}
"""Which namespace comes in to a workload's port; a port that is not here is reached from nowhere else."""


def policies(name: str, workload: Resource, direction: str) -> list[dict[str, Any]]:
    """The specifications that select a workload's pods and speak of a direction."""
    own = manifests.labels(workload).items()
    specs = [each["spec"] for each in manifests.of_kind(name, "NetworkPolicy").values()]
    return [
        spec
        for spec in specs
        if direction in spec["policyTypes"] and spec["podSelector"].get("matchLabels", {}).items() <= own
    ]


def ports(workload: Resource) -> dict[str, int]:
    """The ports of a workload by name."""
    return {port["name"]: port["containerPort"] for each in containers(workload) for port in each.get("ports", [])}


def allows(rules: list[dict[str, Any]], peer: Resource, port: int, names: dict[str, int], side: str) -> bool:
    """Whether a rule lets a workload of the same namespace through to a port."""
    return any(
        any(
            "podSelector" in each
            and "namespaceSelector" not in each
            and each["podSelector"]["matchLabels"].items() <= manifests.labels(peer).items()
            for each in rule[side]
        )
        and any(names.get(each["port"], each["port"]) == port for each in rule["ports"])
        for rule in rules
    )


def reached(name: str) -> set[tuple[str, str, int]]:
    """Return the allowed connections: from, to, port. Both sides must allow one."""
    found = set()
    every = manifests.workloads(name)
    for (source, sender), (target, receiver) in product(every.items(), every.items()):
        names = ports(receiver)
        out = [rule for spec in policies(name, sender, "Egress") for rule in spec.get("egress", [])]
        into = [rule for spec in policies(name, receiver, "Ingress") for rule in spec.get("ingress", [])]
        for port in names.values():
            if allows(out, receiver, port, names, "to") and allows(into, sender, port, names, "from"):
                found.add((source, target, port))
    return found


@pytest.mark.parametrize("name", OVERLAYS)
def test_each_workload_reaches_what_it_needs_and_no_more(name: str) -> None:
    there = manifests.workloads(name).keys()
    assert reached(name) == {each for each in REACHES if {each[0], each[1]} <= there}


@pytest.mark.parametrize("name", OVERLAYS)
@pytest.mark.parametrize("direction", ["Ingress", "Egress"])
def test_what_no_rule_allows_is_refused(name: str, direction: str) -> None:
    """A pod that no policy selects may do everything; the one of all pods has no rule."""
    nothing = manifests.of_kind(name, "NetworkPolicy")["nothing"]["spec"]
    assert nothing["podSelector"] == {}
    assert direction in nothing["policyTypes"]
    assert nothing.keys() == {"podSelector", "policyTypes"}


@pytest.mark.parametrize("name", OVERLAYS)
def test_other_namespaces_come_in_where_they_must_and_nowhere_else(name: str) -> None:
    found: dict[tuple[str, int], str] = {}
    for key, workload in manifests.workloads(name).items():
        names = ports(workload)
        for rule in (rule for spec in policies(name, workload, "Ingress") for rule in spec.get("ingress", [])):
            for peer in (each for each in rule["from"] if "namespaceSelector" in each):
                [namespace] = peer["namespaceSelector"]["matchLabels"].values()
                found |= {(key, names.get(each["port"], each["port"])): namespace for each in rule["ports"]}
    assert found == FROM_OUTSIDE


@pytest.mark.rule("invariant 13")
@pytest.mark.parametrize("name", OVERLAYS)
def test_what_leaves_the_namespace_is_names_the_database_and_the_issuers_keys(name: str) -> None:
    """A worker that is taken over has no way to the internet, nor to the database: invariant 13."""
    for key, workload in manifests.workloads(name).items():
        rules = [rule for spec in policies(name, workload, "Egress") for rule in spec.get("egress", [])]
        outside = [
            rule for rule in rules if any("ipBlock" in each or "namespaceSelector" in each for each in rule["to"])
        ]
        told = {port["port"] for rule in outside for port in rule["ports"]}
        database = {5432} if key in STATEFUL and name == "production" else set()
        issuer = {443} if key == "authorization" and name == "production" else set()
        assert told == {53} | database | issuer


@pytest.mark.parametrize("name", OVERLAYS)
@pytest.mark.parametrize("key", [*PROCESSES, "otel-collector"])
def test_every_address_that_is_configured_is_a_service_that_is_reached(name: str, key: str) -> None:
    workload = manifests.workloads(name)[key]
    services = manifests.of_kind(name, "Service")
    for variable, value in manifests.environment(workload, manifests.config_maps(name)).items():
        address = urlsplit(value)
        if variable == "MCPFLEET_JAEGER_URL":
            continue  # a link for people, whom a port is forwarded to
        if not address.scheme or not address.port:
            continue  # what is reached by its public name is no Service
        service = services[str(address.hostname)]
        target = service["spec"]["selector"]["app.kubernetes.io/name"]
        [port] = [each for each in service["spec"]["ports"] if each["port"] == address.port]
        number = ports(manifests.workloads(name)[target])[port["targetPort"]]
        assert (key, target, number) in REACHES


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_port_of_a_service_is_one_of_its_pods(name: str) -> None:
    for service in manifests.of_kind(name, "Service").values():
        target = manifests.workloads(name)[service["spec"]["selector"]["app.kubernetes.io/name"]]
        assert pod(target)
        for port in service["spec"]["ports"]:
            assert ports(target)[port["targetPort"]] == port["port"]
