"""Refused credentials have lines that a person can read."""

from __future__ import annotations

import time

import pytest
from structlog.testing import LogCapture

from mcpfleet.authorization.refusals import Refusals
from mcpfleet.authorization.rules import Reason, Refused
from tests.kit.logs import captured


def test_each_has_its_line_up_to_a_bound_and_the_others_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, now = LogCapture(), 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    refusals = Refusals(captured(lines))
    for _ in range(50):
        refusals.note("mcp", Refused("it is not listed", Reason.UNKNOWN))
    assert [line["event"] for line in lines.entries] == ["credential refused"] * 20
    now = 101.5
    refusals.note("mcp", Refused("it is not listed", Reason.UNKNOWN))
    assert [line["event"] for line in lines.entries[20:]] == ["more credentials refused", "credential refused"]
    assert lines.entries[20]["number"] == 30
