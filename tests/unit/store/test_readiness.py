"""A service is ready only while its store answers, and says why it is not, once for each reason."""

from __future__ import annotations

from structlog.testing import LogCapture

from mcpfleet.process.lifecycle import Health, Stopping
from mcpfleet.store.errors import StoreBusy, StoreUnreachable
from mcpfleet.store.readiness import StoreReadiness
from tests.kit.logs import captured


def test_a_service_is_ready_while_its_store_answers() -> None:
    capture = LogCapture()
    health = Health(Stopping(60), captured(capture))
    readiness = StoreReadiness(health, captured(capture))
    seen = [(readiness.holds, health.ready)]
    readiness.answered()
    seen.append((readiness.holds, health.ready))
    readiness.failed(StoreBusy("it is busy"))
    seen.append((readiness.holds, health.ready))
    assert seen == [(False, False), (True, True), (False, False)]
    assert health.conditions["store"].why == "it is busy"


def test_each_reason_is_one_line() -> None:
    """A store that answered in between is another outage."""
    capture = LogCapture()
    readiness = StoreReadiness(Health(Stopping(60), captured(capture)), captured(capture))
    for error in (StoreUnreachable("away"), StoreUnreachable("away"), StoreBusy("busy"), StoreUnreachable("away")):
        readiness.failed(error)
    readiness.answered()
    readiness.failed(StoreUnreachable("away"))
    told = [line["error"] for line in capture.entries if line["event"] == "waiting for the store"]
    assert told == ["away", "busy", "away", "away"]
