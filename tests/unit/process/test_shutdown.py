"""The account of a process's end."""

from __future__ import annotations

import time
from typing import Any

import pytest
from structlog.testing import LogCapture

from mcpfleet.process.shutdown import BUS, MOST_RESIDUAL, Departure, Residual
from tests.kit.logs import captured


def ended(departure: Departure, cause: str = "SIGTERM") -> tuple[Any, dict[str, Any]]:
    log = LogCapture()
    shutdown = departure.record(cause, captured(log))
    (line,) = log.entries
    return shutdown, dict(line)


@pytest.mark.rule("X72")
def test_an_end_that_leaves_nothing_is_complete_and_no_warning() -> None:
    departure = Departure("edge", "id")
    departure.expect(BUS)
    with departure.phase("lame"):
        pass
    with departure.phase("calls"):
        departure.calls_finished = 3
    departure.prove(BUS)
    shutdown, line = ended(departure)
    assert shutdown.complete
    assert list(shutdown.phases) == ["lame", "calls"]
    assert (line["event"], line["log_level"], line["complete"], line["calls_finished"]) == ("shutdown", "info", True, 3)


@pytest.mark.rule("X72")
def test_what_remains_is_named_with_its_age_the_oldest_first_and_bounded() -> None:
    departure, now = Departure("worker", "id"), time.monotonic()
    calls = [(f"tool{number}", now - number) for number in range(MOST_RESIDUAL + 5)]
    departure.watch("call", lambda: calls)
    with departure.phase("work"):
        departure.remain()
        departure.cut("a second signal")  # the same calls once, and the phase
    calls.clear()
    shutdown, line = ended(departure)
    assert not shutdown.complete
    assert shutdown.cause == "SIGTERM, then a second signal"
    assert (len(shutdown.residual), shutdown.more) == (MOST_RESIDUAL, 6)
    first = shutdown.residual[0]
    assert (first.kind, first.name) == ("call", f"tool{MOST_RESIDUAL + 4}")
    assert first.age == pytest.approx(MOST_RESIDUAL + 4, abs=1)
    assert line["log_level"] == "warning"
    assert line["residual"][0]["name"] == first.name


@pytest.mark.rule("X72")
def test_it_is_incomplete_while_something_is_unproven_or_a_call_was_cut() -> None:
    unproven = Departure("tasks", "id")
    unproven.expect(BUS, "store")
    unproven.prove("store")
    shutdown, _ = ended(unproven)
    assert (shutdown.unproven, shutdown.complete) == ((BUS,), False)
    cut = Departure("worker", "id")
    cut.calls_cut = 1
    assert not ended(cut)[0].complete


@pytest.mark.rule("X72")
def test_the_first_record_stands_and_is_logged_once() -> None:
    log = LogCapture()
    departure = Departure("edge", "id")
    first = departure.record("SIGTERM", captured(log))
    departure.calls_cut = 7
    departure.cut("the last deadline")
    assert departure.record("SIGINT", captured(log)) is first
    assert len(log.entries) == 1


@pytest.mark.rule("X72")
def test_a_phase_under_way_is_named_when_the_process_is_cut() -> None:
    departure = Departure("edge", "id")
    with departure.phase("lame"):
        departure.cut("a second signal, SIGINT")
        shutdown, _ = ended(departure)
    assert [(each.kind, each.name) for each in shutdown.residual] == [("phase", "lame")]
    assert isinstance(shutdown.residual[0], Residual)
    assert "lame" in shutdown.phases
