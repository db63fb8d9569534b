"""Log lines: for machines, for people, from libraries; with the trace, and without secrets."""

import io
import json
import logging
import sys
import warnings
from typing import Any

import pytest
import structlog
from pydantic import SecretStr

from mcpfleet.process import logs
from mcpfleet.process.logs import ConsoleLines, coloured
from mcpfleet.telemetry.trace import TraceContext, current

pytestmark = pytest.mark.usefixtures("logging_put_back")

TRACE = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", sampled=False)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return [json.loads(line) for line in captured.err.splitlines()]


def test_a_line_is_one_json_object_with_its_service(capsys: pytest.CaptureFixture[str]) -> None:
    """The common fields of every line come first, then those of this line."""
    logs.configure("json", "info", {})
    logs.logger("edge", "0123456789abcdef").info("call ended", outcome="ok", took=0.5, nothing=None)
    [line] = lines(capsys)
    assert list(line) == ["time", "level", "service", "process", "event", "outcome", "took", "nothing"]
    assert line["time"].endswith("Z")
    assert (line["level"], line["service"], line["process"]) == ("info", "edge", "0123456789abcdef")


def test_lines_carry_the_trace_of_the_work_at_hand(capsys: pytest.CaptureFixture[str]) -> None:
    """Also of a trace that is not sampled: logs are searched by it all the same."""
    logs.configure("json", "info", {})
    log = logs.logger("edge", "id")
    token = current.set(TRACE)
    log.info("inside")
    current.reset(token)
    log.info("outside")
    inside, outside = lines(capsys)
    assert (inside["trace_id"], inside["span_id"]) == (TRACE.trace_id, TRACE.span_id)
    assert "trace_id" not in outside


def test_what_is_less_important_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """By MCPFLEET_LOG_LEVEL."""
    logs.configure("json", "warning", {})
    log = logs.logger("edge", "id")
    log.debug("no")
    log.info("no")
    log.error("yes")
    assert [line["event"] for line in lines(capsys)] == ["yes"]


def test_libraries_are_heard_from_warnings_on(capsys: pytest.CaptureFixture[str]) -> None:
    """In the same form, with the library's name and its traceback; even where we log everything."""
    logs.configure("json", "debug", {"service": "edge"})
    library = logging.getLogger("sqlalchemy.engine")
    library.info("a statement")
    library.warning("slow: %s s", 3)
    library.error("lost", exc_info=OSError("gone"))
    slow, lost = lines(capsys)
    assert (slow["event"], slow["level"], slow["service"]) == ("slow: 3 s", "warning", "edge")
    assert slow["logger"] == "sqlalchemy.engine"
    assert "OSError: gone" in lost["exception"]


def test_a_level_of_a_librarys_own_is_understood(capsys: pytest.CaptureFixture[str]) -> None:
    """The standard library allows any number."""
    logs.configure("json", "info", {})
    logging.getLogger("library").log(35, "between")
    logging.getLogger("library").log(99, "above")
    assert [line["level"] for line in lines(capsys)] == ["warning", "critical"]


def test_a_librarys_broken_line_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    """And comes out as a line like every other, not as a traceback between them."""
    logs.configure("json", "info", {})
    logging.getLogger("library").warning("%d", "no number")
    [line] = lines(capsys)
    assert (line["logger"], line["level"]) == ("library", "error")


def test_pythons_warnings_are_lines_too(capsys: pytest.CaptureFixture[str]) -> None:
    """Standard error holds one JSON object a line and nothing else."""
    logs.configure("json", "info", {})
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        logging.captureWarnings(True)
        warnings.warn("old way", DeprecationWarning, stacklevel=1)
        [line] = lines(capsys)
        assert "old way" in line["event"]
        logging.captureWarnings(False)


@pytest.mark.rule("invariant 9")
def test_nothing_secret_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    """Secrets print as stars, addresses lose their password, tracebacks show no variables."""
    logs.configure("json", "info", {})
    password = "hush"
    error = OSError(f"cannot reach postgresql://app:{password}@db/fleet")
    log = logs.logger("edge", "id")
    log.error("failed", exc_info=error, secret=SecretStr(password), at=f"nats://a:{password}@n")
    [line] = lines(capsys)
    assert password not in str(line)
    assert "postgresql://app:***@db/fleet" in line["exception"]
    assert line["at"] == "nats://a:***@n"


def test_a_line_that_nobody_reads_costs_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe that was closed is no reason for a call to fail."""
    logs.configure("json", "info", {})
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    logs.logger("edge", "id").info("into nothing")


def test_the_console_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    """One line an event, no colours where standard error is no terminal, the traceback below."""
    logs.configure("console", "info", {})
    log = logs.logger("edge", "0123456789abcdef")
    log.info("call ended", outcome="ok", why="two words", n=3)
    log.error("failed", exc_info=ValueError("x"))
    captured = capsys.readouterr().err
    first, second, *rest = captured.splitlines()
    assert first.split(maxsplit=1)[1] == "edge 0123          info    call ended outcome=ok why='two words' n=3"
    assert "error   failed" in second
    assert rest == ["ValueError: x"]
    assert "\x1b" not in captured


def test_colours_tell_services_apart() -> None:
    """Each service has a colour of its own, always the same."""
    event = {"time": "12:00:00", "level": "warning", "event": "slow", "service": "edge", "process": "0123"}
    edge = ConsoleLines(colours=True)(None, "", dict(event))
    worker = ConsoleLines(colours=True)(None, "", event | {"service": "worker"})
    assert edge.split("edge")[0] != worker.split("worker")[0]
    assert edge == ConsoleLines(colours=True)(None, "", dict(event))


@pytest.mark.parametrize(
    ("environ", "terminal", "expected"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
    ],
)
def test_when_text_is_coloured(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], terminal: bool, expected: bool
) -> None:
    """On a terminal, unless told otherwise; on a pipe, only when told."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    stream = io.StringIO()
    stream.isatty = lambda: terminal  # type: ignore[method-assign]
    assert coloured(stream) is expected


def test_a_message_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A library may quote what a stranger sent: control characters come out escaped."""
    logs.configure("console", "info", {})
    structlog.get_logger().info("evil\x1b[2J", value="a\x1b[2J")
    assert "\x1b" not in capsys.readouterr().err
