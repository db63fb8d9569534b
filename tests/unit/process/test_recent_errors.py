"""The log lines that are kept for consoles are few, and have no secret."""

from __future__ import annotations

import logging

import pytest

from mcpfleet.process import logs
from mcpfleet.process.recent_errors import MOST, SERVICES, RecentErrors, recent_errors
from mcpfleet.telemetry.trace import TraceContext, current

ID = "feedfacefeedface"


@pytest.mark.usefixtures("logging_put_back")
def test_a_warning_is_kept_with_its_names_and_its_trace_and_without_what_it_quotes() -> None:
    """Through logging as a process has it; a handler's error may quote what a caller sent."""
    logs.configure("json", "info", {})
    log = logs.logger("worker", ID)
    trace = TraceContext.fresh(sampled=True)
    token = current.set(trace)
    try:
        log.info("ready")
        log.error("handler failed", tool="search", error="hunter2", exc_info=ValueError("hunter2"))
        logging.getLogger("library").error("a library quotes hunter2")
    finally:
        current.reset(token)
    [kept] = recent_errors.of(ID)
    assert (kept.level, kept.event, kept.of) == ("error", "handler failed", "tool=search")
    assert (kept.trace, kept.sampled) == (trace.trace_id, True)
    assert "hunter2" not in repr(kept)


def line(process: str, event: str = "link lost") -> dict[str, object]:
    return {"level": "warning", "process": process, "event": event}


def test_the_last_lines_of_each_service_are_kept() -> None:
    kept = RecentErrors()
    for number in range(MOST + 3):
        kept(None, "warning", line("a", str(number)))
    kept(None, "warning", line("b"))
    assert [each.event for each in kept.of("a")] == [str(number) for number in range(3, MOST + 3)]
    assert len(kept.of("b")) == 1
    assert kept.of("c") == ()


def test_services_without_end_are_not_kept() -> None:
    kept = RecentErrors()
    for number in range(SERVICES + 1):
        kept(None, "warning", line(str(number)))
    assert [len(kept.of(str(number))) for number in (0, SERVICES)] == [1, 0]
