"""The settings of a fleet inside of a test come from what the test says, and from nowhere else."""

from __future__ import annotations

import pytest

from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.testing.environment import check_names, durations
from mcpfleet.worker.settings import WorkerSettings

CLASSES = (EdgeSettings, WorkerSettings)


def test_variables_are_read_as_a_process_reads_them() -> None:
    variables = {
        "MCPFLEET_ENDPOINTS": '{"tools": {"path": "/tools"}}',
        "MCPFLEET_PUBLIC_HOSTS": "a.example,b.example",
        "MCPFLEET_LAME": "0",
        "MCPFLEET_SLOTS": "4",
    }
    settings = EdgeSettings.of(variables)
    assert list(settings.endpoints) == ["tools"]
    assert (settings.public_hosts, settings.lame) == (("a.example", "b.example"), 0)


def test_the_environment_of_the_test_itself_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCPFLEET_SLOTS", "7")
    assert WorkerSettings.of({}).slots == 32


def test_a_wrong_value_names_its_variable() -> None:
    with pytest.raises(ConfigurationError, match="MCPFLEET_SLOTS"):
        WorkerSettings.of({"MCPFLEET_SLOTS": "none"})


def test_a_name_that_no_service_knows_is_an_error() -> None:
    check_names({"MCPFLEET_SLOTS": "4", "MCPFLEET_LAME": "0"}, CLASSES)
    with pytest.raises(ConfigurationError, match="did you mean MCPFLEET_SLOTS"):
        check_names({"MCPFLEET_SLOT": "4"}, CLASSES)


def test_durations_are_divided_by_a_factor_and_by_one_are_left_alone() -> None:
    assert durations(CLASSES, 1.0) == {}
    assert WorkerSettings.of(durations(CLASSES, 10)).lost_after == 0.6
