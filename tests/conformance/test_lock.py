"""The lock files of the npm projects: exact, checked by digests, and free of addresses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SERVER = HERE.parent / "benchmarks" / "typescript"
SERVERS = HERE.parent / "fleet" / "servers"
BROWSER = HERE.parent / "fleet" / "browser"
APPS = HERE.parent / "fleet" / "apps"
SUITE = "@modelcontextprotocol/conformance"


def test_the_lock_holds_the_release_that_the_tests_are_written_for() -> None:
    """The package names one version, and the lock has it."""
    wanted = json.loads((HERE / "package.json").read_text())["dependencies"]
    locked = json.loads((HERE / "package-lock.json").read_text())["packages"]
    assert wanted == {SUITE: "0.2.0-alpha.12"}
    assert locked[f"node_modules/{SUITE}"]["version"] == wanted[SUITE]


def test_the_benchmark_is_beside_one_release_of_the_server() -> None:
    """The package names one version of all that its server imports, and the lock has them."""
    wanted = json.loads((SERVER / "package.json").read_text())["dependencies"]
    locked = json.loads((SERVER / "package-lock.json").read_text())["packages"]
    assert {name: locked[f"node_modules/{name}"]["version"] for name in wanted} == wanted


def test_the_servers_that_a_fleet_serves_are_of_one_release() -> None:
    """The package names one version of each, and the lock has them."""
    wanted = json.loads((SERVERS / "package.json").read_text())["dependencies"]
    locked = json.loads((SERVERS / "package-lock.json").read_text())["packages"]
    assert {name: locked[f"node_modules/{name}"]["version"] for name in wanted} == wanted


@pytest.mark.parametrize(
    "project", [HERE, SERVER, SERVERS, BROWSER, APPS], ids=["suite", "server", "servers", "browser", "apps"]
)
def test_the_lock_checks_contents_and_names_no_registry(project: Path) -> None:
    """Each package has its digest, and comes from whichever registry a machine uses."""
    packages = json.loads((project / "package-lock.json").read_text())["packages"]
    del packages[""]
    assert [name for name, package in packages.items() if "integrity" not in package] == []
    assert [name for name, package in packages.items() if "resolved" in package] == []
