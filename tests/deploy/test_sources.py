"""The overlay with a source: its worker keeps every rule of the other workers, and its file can be served as it is."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from mcpfleet.contracts.manifest import pool_named
from mcpfleet.contracts.permissions import permissions
from mcpfleet.process.settings import ProcessSettings
from mcpfleet.sources.reading import read_configuration
from mcpfleet.worker.hosting.source_app import check_built
from tests.deploy import manifests, test_manifests
from tests.deploy.manifests import K8S
from tests.kit.kustomize import containers, pod

OVERLAY: Final = "sources"
WORKER: Final = "worker-notes"
COMPONENT: Final = K8S / "components" / "source"
USERS: Final = K8S / "overlays" / OVERLAY / "users.conf"


@pytest.mark.parametrize("version", [test_manifests.VERSIONS[0], test_manifests.VERSIONS[-1]])
def test_every_manifest_is_valid(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    test_manifests.test_every_manifest_is_valid(OVERLAY, version, monkeypatch)


def test_kubectl_renders_the_same() -> None:
    test_manifests.test_kubectl_renders_the_same(OVERLAY)


@pytest.mark.parametrize(
    "rule",
    [
        test_manifests.test_nothing_runs_as_root_or_may_become_more_than_it_is,
        test_manifests.test_nothing_holds_a_token_of_kubernetes_or_hears_of_its_services,
        test_manifests.test_everything_asks_for_what_it_needs_and_has_a_limit,
        test_manifests.test_every_image_has_a_version,
        test_manifests.test_everything_that_stays_has_probes,
        test_manifests.test_our_processes_are_probed_on_the_admin_port,
        test_manifests.test_a_process_has_longer_than_its_drain,
        test_manifests.test_a_rollout_takes_nothing_away_before_something_new_is_ready,
        test_manifests.test_replicas_are_spread_over_nodes_and_zones,
        test_manifests.test_every_variable_is_a_setting_that_is_known,
        test_manifests.test_a_secret_is_named_and_never_written,
        test_manifests.test_every_file_that_a_setting_names_is_mounted,
    ],
)
def test_the_worker_keeps_the_rules_of_every_process(rule: Callable[[str, str], None]) -> None:
    rule(OVERLAY, WORKER)


def test_the_worker_serves_the_pool_that_the_file_names() -> None:
    """With the file of the ConfigMap, at the place where it is mounted."""
    worker = manifests.fleet(OVERLAY)[WORKER]
    [role, target] = manifests.command(worker)
    place, _, name = target.partition(":")
    maps = manifests.config_maps(OVERLAY)
    [mount] = [each for each in containers(worker)[0]["volumeMounts"] if each["name"] == "source"]
    [volume] = [each for each in (pod(worker) or {})["volumes"] if each["name"] == "source"]
    assert (role, Path(place).parent) == ("worker", Path(mount["mountPath"]))
    assert Path(place).name in maps[volume["configMap"]["name"]]
    assert manifests.environment(worker, maps)["MCPFLEET_POOL"] == pool_named(name)
    assert manifests.labels(worker)["mcpfleet.io/pool"] == pool_named(name)


@pytest.mark.rule("B28")
def test_every_secret_of_the_file_is_mounted_and_the_source_can_be_served(tmp_path: Path) -> None:
    text = (COMPONENT / "fleet.toml").read_text()
    found = [line.partition('file = "')[2].partition('"')[0] for line in text.splitlines() if 'file = "' in line]
    assert found
    for path in found:
        assert manifests.mounted(manifests.fleet(OVERLAY)[WORKER], path) == ("source-notes", Path(path).name)
        (tmp_path / Path(path).name).write_text("s3cret")
        text = text.replace(path, str(tmp_path / Path(path).name))
    (tmp_path / "server.py").write_text((COMPONENT / "server.py").read_text())
    (tmp_path / "fleet.toml").write_text(text)
    read = read_configuration(tmp_path / "fleet.toml", {}, ("notes",))
    assert read.notes == ()
    [source] = read.sources
    check_built(source)
    assert source.secrets == ("s3cret",)


def test_check_lists_what_clients_would_see(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret")
    (tmp_path / "server.py").write_text((COMPONENT / "server.py").read_text())
    text = (COMPONENT / "fleet.toml").read_text().replace("/run/source", str(tmp_path))
    (tmp_path / "fleet.toml").write_text(text)
    command = [sys.executable, "-m", "mcpfleet.cli", "check", str(tmp_path / "fleet.toml"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert '"notes_list_notes"' in done.stdout


def test_the_pool_has_a_user_of_nats_with_its_own_rights_alone() -> None:
    command = [sys.executable, "-m", "mcpfleet.cli", "nats", "--pools", "library,notes"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    assert USERS.read_text() == printed, f"run: mcpfleet nats --pools library,notes > {USERS}"
    assert json.dumps(permissions("pool-notes", "notes", ProcessSettings().subject_prefix)) in printed
    [served] = [data for data in manifests.config_maps(OVERLAY).values() if "users.conf" in data]
    assert served["users.conf"] == printed


def test_the_source_reaches_public_addresses_by_https_and_no_others() -> None:
    worker = manifests.fleet(OVERLAY)[WORKER]
    own = manifests.labels(worker).items()
    rules: list[Mapping[str, Any]] = [
        rule
        for each in manifests.of_kind(OVERLAY, "NetworkPolicy").values()
        if "Egress" in each["spec"]["policyTypes"] and each["spec"]["podSelector"].get("matchLabels", {}).items() <= own
        for rule in each["spec"].get("egress", [])
    ]
    [outside] = [rule for rule in rules if any("ipBlock" in peer for peer in rule["to"])]
    [port] = outside["ports"]
    assert port == {"protocol": "TCP", "port": 443}
    assert "10.0.0.0/8" in outside["to"][0]["ipBlock"]["except"]
    others = manifests.of_kind(OVERLAY, "NetworkPolicy")["source-notes"]["spec"]["podSelector"]["matchLabels"].items()
    held = [key for key, each in manifests.fleet(OVERLAY).items() if others <= manifests.labels(each).items()]
    assert held == [WORKER]
