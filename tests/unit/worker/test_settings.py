"""Which settings of a worker are accepted."""

from __future__ import annotations

import pytest

from mcpfleet.process.errors import ConfigurationError
from mcpfleet.worker.settings import WorkerSettings


@pytest.mark.parametrize(
    "environ",
    [
        {"MCPFLEET_END_KEPT": "12.9"},
        {"MCPFLEET_RESULT_WAIT": "10.1"},
        {"MCPFLEET_RESULT_FETCH": "7.1"},
    ],
    ids=str,
)
def test_an_end_that_is_kept_for_less_than_its_fetching_may_take_is_refused_at_start(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]
) -> None:
    """Otherwise a large result is gone when its edge has room for it, and the call is uncertain."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=r"^MCPFLEET_END_KEPT: must be at least MCPFLEET_RESULT_WAIT"):
        WorkerSettings.load()


def test_an_end_may_be_kept_for_just_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCPFLEET_END_KEPT", "13")
    assert WorkerSettings.load().end_kept == 13
