"""No kind of log line comes as a flood: the first ones are written, the others are counted, and the counts are told."""

from __future__ import annotations

import json
import logging
import threading
from typing import Any

import pytest
import structlog
from structlog.typing import EventDict

from mcpfleet.process import logs
from mcpfleet.process.pace import AT_ONCE, AT_ONCE_INFO, KINDS, Pace
from mcpfleet.process.recent_errors import recent_errors

pytestmark = pytest.mark.usefixtures("logging_put_back")

LONG = 3600.0


class Sink:
    """Where the lines of a pace go."""

    def __init__(self, period: float = LONG) -> None:
        self.counts: list[EventDict] = []
        self.has_count = threading.Event()
        self.pace = Pace(self._take, period)

    def _take(self, event: EventDict) -> None:
        self.counts.append(event)
        self.has_count.set()

    def say(self, event: str, **fields: Any) -> bool:
        """Whether the line passes."""
        try:
            self.pace(None, "", {"level": "warning", "process": "a", "event": event, **fields})
        except structlog.DropEvent:
            return False
        return True


@pytest.mark.rule("T23")
def test_the_first_lines_of_a_kind_are_written_and_the_others_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """Through logging as a process has it; what was left out is told at the latest when the process ends."""
    logs.configure("json", "info", {})
    log = logs.logger("edge", "feedface")
    for number in range(1000):
        log.warning("malformed alive", pool=f"pool{number}")
    log.warning("link lost")
    logs.flush()
    logs.flush()
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["malformed alive"] * AT_ONCE + ["link lost", "malformed alive"]
    assert (lines[-1]["count"], lines[-1]["pool"], lines[-1]["level"]) == (1000 - AT_ONCE, "pool999", "warning")
    assert (lines[-1]["service"], lines[-1]["process"]) == ("edge", "feedface")
    assert "call_site" not in lines[-1]


@pytest.mark.rule("T23")
def test_a_count_is_told_when_the_flood_is_over() -> None:
    sink = Sink(period=0.05)
    assert [sink.say("expired call") for _ in range(100)].count(True) == AT_ONCE
    assert sink.has_count.wait(5)
    [line] = sink.counts
    assert line["count"] == 100 - AT_ONCE


@pytest.mark.rule("T23")
def test_a_flood_that_goes_on_is_told_by_its_counts_alone() -> None:
    sink = Sink()
    passed = sum(sink.say("expired call") for _ in range(100))
    for _ in range(3):
        sink.pace._tell()
        passed += sum(sink.say("expired call") for _ in range(100))
    sink.pace.flush()
    assert passed == AT_ONCE
    assert passed + sum(line["count"] for line in sink.counts) == 400
    assert len(sink.counts) == 4


@pytest.mark.rule("T23")
def test_lines_are_written_at_once_again_after_a_quiet_period() -> None:
    sink = Sink(period=0.0)
    assert all(sink.say("expired call") for _ in range(100))


@pytest.mark.rule("T23")
def test_tools_and_levels_make_kinds_and_names_by_strangers_do_not() -> None:
    sink = Sink()
    assert [sink.say("handler failed", tool="a") for _ in range(20)].count(True) == AT_ONCE
    assert sink.say("handler failed", tool="b")
    assert sink.say("handler failed", tool="a", level="error")
    assert [sink.say("handler failed", tool="a", level="info") for _ in range(50)].count(True) == AT_ONCE_INFO
    assert not sink.say("handler failed", tool="a", subject="another")


@pytest.mark.rule("T23")
def test_kinds_are_bounded() -> None:
    """A text that has a stranger's words in it, by a mistake of ours, costs neither memory nor lines without end."""
    sink = Sink()
    passed = sum(sink.say(f"made up {number}") for number in range(10 * KINDS))
    sink.pace.flush()
    assert passed <= KINDS + AT_ONCE
    assert passed + sum(line["count"] for line in sink.counts) == 10 * KINDS
    assert len(sink.pace._kinds) <= KINDS + 1


@pytest.mark.rule("T23")
def test_a_librarys_lines_are_one_kind_for_each_place_that_logs(capsys: pytest.CaptureFixture[str]) -> None:
    """Their texts may quote a stranger."""
    logs.configure("json", "info", {})
    for number in range(100):
        logging.getLogger("hypercorn.error").error("bad request %s", number)
    for number in range(100):
        logging.getLogger("shop.orders").error("an application's own %s", number)
    logs.flush()
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    ours = [line for line in lines if line["logger"] == "hypercorn.error"]
    assert len(ours) == AT_ONCE + 1
    assert ours[-1]["count"] == 100 - AT_ONCE
    assert len(lines) == len(ours) + 100


@pytest.mark.rule("T23")
def test_the_exact_count_is_told_whichever_threads_log() -> None:
    sink = Sink(period=0.001)
    passed = [0] * 8

    def flood(place: int) -> None:
        passed[place] = sum(sink.say("frame not sent") for _ in range(2000))

    threads = [threading.Thread(target=flood, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sink.pace.flush()
    assert sum(passed) + sum(line["count"] for line in sink.counts) == 16_000


@pytest.mark.rule("T23")
def test_a_flood_does_not_push_other_lines_off_the_console() -> None:
    logs.configure("json", "info", {})
    log = logs.logger("edge", "cafecafecafecafe")
    log.error("no caller admitted")
    for _ in range(1000):
        log.warning("malformed alive")
    kept = [each.event for each in recent_errors.of("cafecafecafecafe")]
    assert kept == ["no caller admitted"] + ["malformed alive"] * AT_ONCE


def test_a_traceback_is_not_kept_for_a_count() -> None:
    """Its frames hold all that the failed request had."""
    sink = Sink()
    for _ in range(AT_ONCE + 1):
        sink.say("request failed", exc_info=ValueError("x"))
    assert all("exc_info" not in told.last for told in sink.pace._kinds.values())
    sink.pace.flush()
    assert "exc_info" not in sink.counts[0]


def test_debug_lines_are_all_written() -> None:
    """An operator who asks for them wants each."""
    sink = Sink()
    assert all(sink.say("hint not sent", level="debug") for _ in range(100))
