"""docs/deploying.md and the runbooks: what they name is there."""

from __future__ import annotations

import re
from typing import Final

import pytest

from mcpfleet.cli.services import SETTINGS
from mcpfleet.contracts.permissions import TABLE, password_variable, users
from mcpfleet.process.names import TOKEN_VARIABLE
from mcpfleet.process.settings import variable
from tests.deploy.manifests import K8S, OVERLAYS, POOLS, ROOT, ours, secrets, workloads

KNOWN: Final = {variable(name) for cls in SETTINGS.values() for name in cls.model_fields} | {TOKEN_VARIABLE}
PAGES: Final = (
    "docs/deploying.md",
    "docs/design.md",
    "docs/operations.md",
    "docs/settings.md",
    "docs/testing.md",
    "README.md",
    "deploy/k8s/README.md",
    "observability/signals.md",
    "observability/traces.md",
    "observability/alerts.yaml",
)


@pytest.mark.parametrize("page", PAGES)
def test_every_setting_that_a_page_names_is_one(page: str) -> None:
    named = set(re.findall(r"\bMCPFLEET_[A-Z_]+[A-Z]\b", (ROOT / page).read_text()))
    settings = {each.removesuffix("_FILE") for each in named if not each.startswith("MCPFLEET_NATS_PASSWORD_")}
    assert settings <= KNOWN
    passwords = {password_variable(user) for user in [*users(POOLS), "pool-shop"]}
    own = {each for each in named if each.startswith("MCPFLEET_NATS_PASSWORD_")} - {"MCPFLEET_NATS_PASSWORD_FILE"}
    assert own <= passwords


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_is_there(page: str) -> None:
    text = (ROOT / page).read_text()
    named = set(re.findall(r"`((?:deploy|observability|docs|tests)/[\w./-]+)`", text))
    assert [name for name in named if not (ROOT / name).exists()] == []
    links = set(re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", text))
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []


def test_the_fleet_by_hand_has_every_process_and_every_user_of_nats() -> None:
    """A NATS without a user's password does not start."""
    page = (ROOT / "docs" / "operations.md").read_text()
    loops = re.findall(r"for user in ([\w ]+); do", page)
    assert len(loops) == 2
    for loop in loops:
        assert set(loop.split()) == {user.replace("-", "_") for user in users(["library"])}
    assert set(re.findall(r"^as .*mcpfleet (\w+)", page, re.MULTILINE)) == set(SETTINGS)


def test_every_secret_is_in_the_table() -> None:
    text = (ROOT / "docs" / "deploying.md").read_text()
    needed = {name for overlay in OVERLAYS for each in workloads(overlay).values() for name, _ in secrets(each)}
    for name in needed - {"nats-pool-library"}:
        assert f"`{name}`" in text


def test_every_folder_of_the_manifests_is_in_the_table() -> None:
    text = (ROOT / "docs" / "deploying.md").read_text()
    folders = [path.name for part in ("base", "components") for path in (K8S / part).iterdir() if path.is_dir()]
    assert [name for name in folders if f"`{name}`" not in text] == []
    assert ours("dev")


def test_the_design_has_every_subject_and_every_decision() -> None:
    page = (ROOT / "docs" / "design.md").read_text()
    own = {row.subject for row in TABLE if row.subject.partition(".")[0] != "figures"}
    assert [subject for subject in sorted(own) if f"`{subject}`" not in page] == []
    decided = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("*.md"))
    assert [name for name in decided if f"(decisions/{name})" not in page] == []
