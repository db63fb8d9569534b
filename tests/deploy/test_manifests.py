"""deploy/k8s: valid for every Kubernetes that we name, and held to the rules that an operator relies on."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]  # it ships no types
import pytest
import yaml
from kubernetes_validate.utils import all_versions  # type: ignore[import-untyped]  # it ships no types

from mcpfleet.cli.services import SETTINGS
from mcpfleet.contracts.permissions import permissions, users
from mcpfleet.process.run import FORCED_AFTER
from mcpfleet.process.settings import ProcessSettings
from mcpfleet.process.settings_table import unknown_names
from tests.deploy import manifests
from tests.deploy.manifests import K8S, OVERLAYS, POOLS, ROOT
from tests.kit.kustomize import Resource, containers, pod

VERSIONS = [version for version in all_versions() if tuple(map(int, version.split(".")[:2])) >= (1, 30)]
SCHEMAS = cache(kubernetes_validate.utils.schema_contents)
EVERY_WORKLOAD = [(name, key) for name in OVERLAYS for key in manifests.workloads(name)]
EVERY_PROCESS = [(name, key) for name in OVERLAYS for key in manifests.fleet(name)]


def every_container(name: str, key: str) -> Iterator[dict[str, Any]]:
    yield from containers(manifests.workloads(name)[key])


def seconds(setting: str, environment: dict[str, str]) -> float:
    """A duration as a process of that environment has it."""
    cls = SETTINGS["edge"]
    default = cls.model_fields[setting.removeprefix("MCPFLEET_").lower()].default
    return float(environment.get(setting, default))


@pytest.mark.parametrize("name", OVERLAYS)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_is_valid(name: str, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strictly: a member that Kubernetes does not know is a mistake."""
    # The package reads two megabytes of schemas for each resource.
    monkeypatch.setattr(kubernetes_validate.utils, "schema_contents", SCHEMAS)
    for resource in manifests.overlay(name):
        kubernetes_validate.validate(resource, version, strict=True)


def test_the_versions_begin_with_the_oldest_that_is_supported() -> None:
    assert VERSIONS[0].startswith("1.30")
    assert len(VERSIONS) > 5


@pytest.mark.parametrize("name", OVERLAYS)
def test_kubectl_renders_the_same(name: str) -> None:
    """Where it is at hand: what is tested here is what is applied."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl on this machine")
    done = subprocess.run(
        [kubectl, "kustomize", str(K8S / "overlays" / name)], capture_output=True, text=True, timeout=60, check=True
    )

    def ordered(resources: Any) -> list[str]:
        return sorted(json.dumps(each, sort_keys=True) for each in resources if each)

    assert ordered(yaml.safe_load_all(done.stdout)) == ordered(manifests.overlay(name))


@pytest.mark.parametrize(("name", "key"), EVERY_WORKLOAD)
def test_nothing_runs_as_root_or_may_become_more_than_it_is(name: str, key: str) -> None:
    workload = manifests.workloads(name)[key]
    spec = pod(workload) or {}
    context = spec["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] > 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not spec.get("hostNetwork")
    assert not spec.get("hostPID")
    assert not [volume for volume in spec.get("volumes", []) if "hostPath" in volume]
    for container in every_container(name, key):
        own = container["securityContext"]
        assert own["allowPrivilegeEscalation"] is False
        assert own["readOnlyRootFilesystem"] is True
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert "runAsUser" not in own
        assert "privileged" not in own


@pytest.mark.parametrize(("name", "key"), EVERY_WORKLOAD)
def test_nothing_holds_a_token_of_kubernetes_or_hears_of_its_services(name: str, key: str) -> None:
    """A Service's variables, such as MCPFLEET_…_PORT, would be settings that nobody knows."""
    spec = pod(manifests.workloads(name)[key]) or {}
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    account = manifests.of_kind(name, "ServiceAccount")[spec["serviceAccountName"]]
    assert spec["serviceAccountName"] == key
    assert account["automountServiceAccountToken"] is False


@pytest.mark.parametrize(("name", "key"), EVERY_WORKLOAD)
def test_everything_asks_for_what_it_needs_and_has_a_limit(name: str, key: str) -> None:
    """No limit of CPU: what is throttled in the middle of a turn looks to others as if it had died."""
    for container in every_container(name, key):
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
        assert container["resources"]["limits"].keys() == {"memory"}


@pytest.mark.parametrize(("name", "key"), EVERY_WORKLOAD)
def test_every_image_has_a_version(name: str, key: str) -> None:
    for container in every_container(name, key):
        _, _, tag = container["image"].rpartition("/")[2].partition(":")
        assert tag not in {"", "latest"}


@pytest.mark.parametrize(
    ("name", "key"), [each for each in EVERY_WORKLOAD if manifests.workloads(each[0])[each[1]]["kind"] != "Job"]
)
def test_everything_that_stays_has_probes(name: str, key: str) -> None:
    for container in every_container(name, key):
        ports = {port["name"] for port in container["ports"]}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container[probe].get("httpGet", {"port": "admin"})["port"] in {*ports, "admin"}


@pytest.mark.parametrize(("name", "key"), EVERY_PROCESS)
def test_our_processes_are_probed_on_the_admin_port(name: str, key: str) -> None:
    [container] = every_container(name, key)
    variables = manifests.environment(manifests.fleet(name)[key], manifests.config_maps(name))
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert variables["MCPFLEET_ADMIN_BIND"] == f":{ports['admin']}"
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "admin"}
    assert container["startupProbe"]["httpGet"] == {"path": "/livez", "port": "admin"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "admin"}


@pytest.mark.parametrize(("name", "key"), EVERY_PROCESS)
def test_a_process_has_longer_than_its_drain(name: str, key: str) -> None:
    """D14: Kubernetes kills nobody who would have ended by himself."""
    workload = manifests.fleet(name)[key]
    spec = pod(workload) or {}
    variables = manifests.environment(workload, manifests.config_maps(name))
    last = seconds("MCPFLEET_LAST_DEADLINE", variables)
    before = spec["containers"][0].get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    assert spec["terminationGracePeriodSeconds"] >= before + last + FORCED_AFTER
    assert last > seconds("MCPFLEET_LAME", variables) + seconds("MCPFLEET_DRAIN", variables)


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_edge_is_led_away_before_it_is_told_to_stop(name: str) -> None:
    edge = manifests.fleet(name)["edge"]
    assert containers(edge)[0]["lifecycle"]["preStop"]["sleep"]["seconds"] >= 5


@pytest.mark.parametrize(("name", "key"), EVERY_PROCESS)
def test_a_rollout_takes_nothing_away_before_something_new_is_ready(name: str, key: str) -> None:
    assert manifests.fleet(name)[key]["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


@pytest.mark.parametrize(("name", "key"), [*EVERY_PROCESS, *((name, "nats") for name in OVERLAYS)])
def test_replicas_are_spread_over_nodes_and_zones(name: str, key: str) -> None:
    spec = pod(manifests.workloads(name)[key]) or {}
    spread = {each["topologyKey"]: each["labelSelector"]["matchLabels"] for each in spec["topologySpreadConstraints"]}
    own = {"app.kubernetes.io/name": key}
    assert spread == {"kubernetes.io/hostname": own, "topology.kubernetes.io/zone": own}


@pytest.mark.parametrize("key", [*manifests.fleet("production"), "nats"])
def test_production_tolerates_the_loss_of_a_pod(key: str) -> None:
    budgets = manifests.of_kind("production", "PodDisruptionBudget")
    assert budgets[key]["spec"]["maxUnavailable"] == 1
    assert (
        budgets[key]["spec"]["selector"]["matchLabels"].items()
        <= manifests.labels(manifests.workloads("production")[key]).items()
    )
    scalers = manifests.of_kind("production", "HorizontalPodAutoscaler")
    replicas = manifests.workloads("production")[key]["spec"].get("replicas")
    # A number beside a scaler would be a fight at each apply.
    assert (replicas is None) is (key in scalers)
    assert (replicas or scalers[key]["spec"]["minReplicas"]) >= 2


def test_edges_scale_by_cpu_and_streams_and_workers_by_what_waits() -> None:
    scalers = manifests.of_kind("production", "HorizontalPodAutoscaler")

    def measured(key: str) -> list[str]:
        metrics = scalers[key]["spec"]["metrics"]
        return [
            each.get("resource", {}).get("name") or each[each["type"].lower()]["metric"]["name"] for each in metrics
        ]

    assert measured("edge") == ["cpu", "mcpfleet_edge_streams_open"]
    assert measured("worker-library") == ["mcpfleet_worker_slots_used", "mcpfleet_pool_backlog"]


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_selector_finds_its_pods(name: str) -> None:
    found = {key: manifests.labels(each) for key, each in manifests.workloads(name).items()}
    selectors = [each["spec"]["selector"] for each in manifests.of_kind(name, "Service").values()]
    selectors += [each["spec"]["selector"]["matchLabels"] for each in manifests.of_kind(name, "Deployment").values()]
    selectors += [each["spec"]["selector"]["matchLabels"] for each in manifests.of_kind(name, "StatefulSet").values()]
    for selector in selectors:
        assert [key for key, own in found.items() if selector.items() <= own.items()] == [
            selector["app.kubernetes.io/name"]
        ]


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_service_is_a_subcommand_and_every_subcommand_is_deployed(name: str) -> None:
    commands = {manifests.command(each)[0] for each in manifests.fleet(name).values()}
    assert commands <= SETTINGS.keys()
    assert commands >= SETTINGS.keys()
    assert manifests.command(manifests.ours(name)["migrate"]) == ["migrate"]


@pytest.mark.parametrize(("name", "key"), [(name, key) for name in OVERLAYS for key in manifests.ours(name)])
def test_every_variable_is_a_setting_that_is_known(name: str, key: str) -> None:
    """A process refuses the others at its start."""
    variables = manifests.environment(manifests.ours(name)[key], manifests.config_maps(name))
    assert [str(stranger) for stranger in unknown_names(variables, SETTINGS.values())] == []


@pytest.mark.parametrize(("name", "key"), EVERY_WORKLOAD)
def test_a_secret_is_named_and_never_written(name: str, key: str) -> None:
    for container in every_container(name, key):
        for variable in container.get("env", []):
            secret_like = any(word in variable["name"] for word in ("PASSWORD", "STORE_URL", "TOKEN", "SECRET"))
            assert not secret_like or variable["name"].endswith("_FILE")


@pytest.mark.parametrize("name", OVERLAYS)
def test_no_secret_is_committed(name: str) -> None:
    assert manifests.of_kind(name, "Secret") == {}
    for data in manifests.config_maps(name).values():
        assert "BEGIN" not in "".join(data.values())


@pytest.mark.parametrize(("name", "key"), EVERY_WORKLOAD)
def test_every_secret_that_is_named_can_be_made(name: str, key: str, made_secrets: dict[str, dict[str, str]]) -> None:
    for secret, item in manifests.secrets(manifests.workloads(name)[key]):
        assert secret in made_secrets
        assert not item or item in made_secrets[secret]


@pytest.mark.parametrize(("name", "key"), [(name, key) for name in OVERLAYS for key in manifests.ours(name)])
def test_every_file_that_a_setting_names_is_mounted(name: str, key: str) -> None:
    workload = manifests.ours(name)[key]
    variables = manifests.environment(workload, manifests.config_maps(name))
    files = {variable: value for variable, value in variables.items() if value.startswith("/run/")}
    if workload["kind"] == "Deployment":
        role = manifests.command(workload)[0]
        user = f"pool-{variables['MCPFLEET_POOL']}" if role == "worker" else role
        assert manifests.mounted(workload, files.pop("MCPFLEET_NATS_PASSWORD_FILE")) == (f"nats-{user}", "password")
        assert manifests.mounted(workload, files.pop("MCPFLEET_NATS_CA")) == ("nats-tls", "ca.crt")
    for path in files.values():
        assert manifests.mounted(workload, path) in {("store", "url"), ("seal-keys", "keys")}


@pytest.mark.parametrize("name", OVERLAYS)
def test_who_keeps_state_has_the_stores_address_and_nobody_else(name: str) -> None:
    """Invariant 13: a worker least of all."""
    holders = {key for key, each in manifests.workloads(name).items() if ("store", "") in manifests.secrets(each)}
    assert holders == {"authorization", "catalog", "subscriptions", "tasks", "migrate"}
    assert {key for key, each in manifests.workloads(name).items() if ("seal-keys", "") in manifests.secrets(each)} == {
        "edge"
    }


def test_the_users_of_nats_are_those_of_the_table() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mcpfleet.cli", "nats", "--pools", ",".join(POOLS)],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    held = (K8S / "components" / "nats" / "users.conf").read_text()
    assert held == done.stdout, "run: mcpfleet nats --pools library > deploy/k8s/components/nats/users.conf"


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_process_has_a_user_whose_rules_nats_holds(name: str) -> None:
    held = (K8S / "components" / "nats" / "users.conf").read_text()
    for user, pool in users(POOLS).items():
        assert json.dumps(permissions(user, pool, ProcessSettings().subject_prefix)) in held
    roles = {
        secret.removeprefix("nats-") for each in manifests.fleet(name).values() for secret, _ in manifests.secrets(each)
    }
    roles -= {"tls", "store", "seal-keys"}
    assert roles <= users(POOLS).keys()
    # The operator is a person.
    assert users(POOLS).keys() - roles == {"operator"}


def test_the_file_of_the_lock_is_what_the_image_is_made_from() -> None:
    assert "--require-hashes" in (ROOT / "deploy" / "Dockerfile").read_text()


def test_the_ingress_leads_to_names_that_edges_know() -> None:
    ingress: Resource = manifests.of_kind("production", "Ingress")["edge"]
    edge = manifests.fleet("production")["edge"]
    variables = manifests.environment(edge, manifests.config_maps("production"))
    hosts = {rule["host"] for rule in ingress["spec"]["rules"]}
    assert {f"https://{host}" for host in hosts} == {variables["MCPFLEET_PUBLIC_URL"]}
    assert {host for each in ingress["spec"]["tls"] for host in each["hosts"]} == hosts
    assert ingress["metadata"]["annotations"]["nginx.ingress.kubernetes.io/proxy-buffering"] == "off"
