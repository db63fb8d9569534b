"""docs/settings.md has every setting of every service, with its default and meaning."""

from __future__ import annotations

import re

import pytest

from mcpfleet.cli.services import SETTINGS
from mcpfleet.process.settings import ProcessSettings, variable
from mcpfleet.store.settings import StoreSettings
from tests.unit.process.settings_page import MARK, PAGE, tables


def test_the_tables_are_those_of_the_code() -> None:
    """Run the page's program after each change of a setting."""
    assert PAGE.read_text().partition(MARK)[2].strip() == tables().strip(), "python -m tests.unit.process.settings_page"


@pytest.mark.parametrize("service", SETTINGS)
def test_every_setting_of_a_service_is_listed_with_a_meaning(service: str) -> None:
    told = dict(re.findall(r"^\| `(MCPFLEET_\w+)` \| [^|]*\| (.*) \|$", tables(), re.MULTILINE))
    assert all(told[variable(name)] for name in SETTINGS[service].model_fields)


def test_what_all_processes_can_be_told_is_listed_once() -> None:
    names = {variable(name) for base in (ProcessSettings, StoreSettings) for name in base.model_fields}
    told = re.findall(r"^\| `(MCPFLEET_\w+)` \|", tables(), re.MULTILINE)
    assert {name: told.count(name) for name in names} == dict.fromkeys(names, 1)


def test_a_value_of_this_machine_is_in_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCPFLEET_NATS_PASSWORD", "very secret")
    monkeypatch.setenv("MCPFLEET_SLOTS", "4711")
    assert "4711" not in tables()
    assert "secret" not in re.findall(r"MCPFLEET_NATS_PASSWORD.*", tables())[0]
