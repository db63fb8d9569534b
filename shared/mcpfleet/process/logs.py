"""Log lines: one JSON object each on standard error, or text for people; lines of libraries look the same.

A line carries the trace of its work, and no kind of line floods the log (`pace.py`). No line has a secret: settings
hide theirs, passwords in addresses become stars, and tracebacks show no variables.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import zlib
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from typing import Any, Final, Literal, TextIO

import structlog
from structlog.processors import JSONRenderer, TimeStamper, add_log_level, format_exc_info
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from mcpfleet.process.pace import CALL_SITE, LIBRARIES, Pace
from mcpfleet.process.recent_errors import recent_errors
from mcpfleet.process.tracebacks import own_traceback
from mcpfleet.telemetry.trace import current

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["json", "console"]

_FIRST: Final = ("time", "level", "service", "process", "event")
_LEVELS: Final = logging.getLevelNamesMapping()
_PASSWORD: Final = re.compile(r"(://[^/\s:@]*):[^/\s@]+@")


def configure(form: Format, level: Level, names: Mapping[str, str]) -> None:
    """Set up logging for this operating-system process; call it once, before the first line.

    Args:
        form: JSON for machines, or text for people, coloured if standard error is a terminal.
        level: the least important lines to write. Lines of libraries are written from warnings on.
        names: `service` and `process` for the lines of libraries, which belong to no service.
    """
    global _pace  # noqa: PLW0603  # logging is set up for the whole of an operating-system process
    flush()
    _pace = Pace(_write)
    # People read the frames of their own code; machines, and people who look for a mistake of ours, get all.
    errors = own_exc_info if form == "console" and level != "debug" else format_exc_info
    processors: list[Processor] = [add_log_level, _pace, _add_trace, recent_errors, errors, _hide_passwords]
    if form == "json":
        processors += [TimeStamper(fmt="iso", utc=True, key="time"), _in_order, JSONRenderer()]
    else:
        processors += [TimeStamper(fmt="%H:%M:%S", utc=False, key="time"), ConsoleLines(coloured(sys.stderr))]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=_StandardError,
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers = [_FromLibraries(structlog.get_logger().bind(**names))]
    root.setLevel(max(logging.WARNING, _LEVELS[level.upper()]))
    logging.captureWarnings(True)


def flush() -> None:
    """Write how many lines were left out so far; call it before the process ends."""
    _pace.flush()


def _write(event: EventDict) -> None:
    """Write a composed line by its level."""
    fields = dict(event)
    level = _LEVELS[str(fields.pop("level")).upper()]
    structlog.get_logger().log(level, fields.pop("event"), **fields)


_pace = Pace(_write)
"""The pace of this process's lines, since `configure`."""


def logger(service: str, process: str) -> FilteringBoundLogger:
    """Return the logger of one service; each of its lines names the service and its process id."""
    bound: FilteringBoundLogger = structlog.get_logger().bind(service=service, process=process)
    return bound


def write_composed(lines: str) -> None:
    """Write composed lines to the present standard error; raises OSError or ValueError if nobody can read them."""
    sys.stderr.write(lines)
    sys.stderr.flush()


class _StandardError:
    """Writes lines to the present standard error; a line that cannot be written costs no work."""

    def __init__(self, *_names: object) -> None:
        pass

    def msg(self, line: str) -> None:
        with suppress(OSError, ValueError):  # nobody reads: a log line is not worth a call
            write_composed(line + "\n")

    debug = info = warning = error = critical = fatal = log = msg


class _FromLibraries(logging.Handler):
    """Passes records of the standard library on as lines of ours."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            # structlog knows five levels; a level between two counts as the lower one.
            level = max(logging.DEBUG, min(record.levelno // 10 * 10, logging.CRITICAL))
            origin: dict[str, str] = {}
            if record.name.partition(".")[0] in LIBRARIES:
                origin[CALL_SITE] = f"{record.name}:{record.lineno}"
            self._log.log(level, record.getMessage(), logger=record.name, exc_info=record.exc_info, **origin)
        except Exception as error:  # its arguments do not fit its text, by a mistake of the library
            self._log.error("library line not written", logger=record.name, error=repr(error))


def _add_trace(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    context = current.get()
    if context is not None:
        event["trace_id"] = context.trace_id
        event["span_id"] = context.span_id
    return event


def _hide_passwords(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for key, value in event.items():
        if isinstance(value, str) and "://" in value:
            event[key] = without_passwords(value)
    return event


def without_passwords(text: str) -> str:
    """Put stars in place of the password in each address of a text."""
    return _PASSWORD.sub(r"\1:***@", text)


def own_exc_info(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Put an error's traceback into a line as its author reads it: a processor in place of `format_exc_info`."""
    error = event.pop("exc_info", None)
    if error is True or isinstance(error, tuple):
        error = sys.exc_info()[1] if error is True else error[1]
    if isinstance(error, BaseException):
        event["exception"] = own_traceback(error)
    return event


def _in_order(_logger: WrappedLogger, _method: str, event: EventDict) -> MutableMapping[str, Any]:
    """Order the fields: the common ones come first."""
    return {key: event.pop(key) for key in _FIRST if key in event} | dict(event)


_RESET: Final = "\x1b[0m"
_DIM: Final = "\x1b[2m"
_LEVEL_COLOURS: Final = {"warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31m"}
_SERVICES: Final = tuple(f"\x1b[{code}m" for code in (36, 35, 34, 32, 96, 95, 94, 92))
_PLAIN: Final = re.compile(r"[^\s\"'=]+")


def coloured(stream: TextIO) -> bool:
    """Return whether text on this stream is coloured: on a terminal without NO_COLOR, elsewhere only with
    FORCE_COLOR."""
    if os.environ.get("NO_COLOR"):
        return False
    return stream.isatty() or bool(os.environ.get("FORCE_COLOR"))


class ConsoleLines:
    """A structlog renderer of one line an event, with a traceback below it if there is one."""

    def __init__(self, colours: bool) -> None:
        self._colours = colours

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> str:
        """Render one event."""
        time, level = str(event.pop("time", "")), str(event.pop("level", ""))
        service, process = str(event.pop("service", "")), str(event.pop("process", ""))
        text, traceback = _printable(str(event.pop("event", ""))), event.pop("exception", None)
        event.pop("span_id", None)  # the trace's id is enough to find the span
        # Several edges have one name; four digits tell them apart.
        name = f"{service} {process[:4]}".strip().ljust(18)
        parts = [
            self._in(_DIM, time),
            self._in(_SERVICES[zlib.crc32(service.encode()) % len(_SERVICES)], name),
            self._in(_LEVEL_COLOURS.get(level, ""), level.ljust(7)),
            text,
            *(f"{self._in(_DIM, key + '=')}{_value(value)}" for key, value in event.items()),
        ]
        line = " ".join(parts)
        return f"{line}\n{traceback}" if traceback else line

    def _in(self, colour: str, text: str) -> str:
        return f"{colour}{text}{_RESET}" if self._colours and colour else text


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if _PLAIN.fullmatch(text) and text.isprintable() else repr(text)


def _printable(text: str) -> str:
    """Escape characters that could steer the terminal: a library's message may quote a stranger."""
    return text if text.isprintable() else repr(text)


@contextmanager
def reporting(log: FilteringBoundLogger, report: str) -> Iterator[None]:
    """Log any error of one report, and go on; cancellation passes through.

    Args:
        log: names the failed report. A report that fails each time is no flood, since lines keep a pace (`pace.py`).
        report: the name of the report, in words of ours.
    """
    try:
        yield
    except Exception:
        log.exception("report failed", report=report)


def say_ready(log: FilteringBoundLogger, url: str = "") -> None:
    """Print `ready` on standard output for the parent process, which may not read any more."""
    with reporting(log, "ready"):
        print(f"ready {url}".rstrip(), flush=True)  # noqa: T201  # this line is for programs


def say_console(log: FilteringBoundLogger, url: str) -> None:
    """Print on standard output where this process serves a console, before it is ready."""
    with reporting(log, "console"):
        print(f"console {url}", flush=True)  # noqa: T201  # as above
