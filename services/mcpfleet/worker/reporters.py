"""Frames of running handlers: progress, status messages of tasks, and messages for their clients' logs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from mcpfleet.app import LogMessage, Progress, ProgressError
from mcpfleet.contracts.tasks import MESSAGE_LENGTH
from mcpfleet.telemetry.instruments import WorkerInstruments
from mcpfleet.wire.reply import written
from mcpfleet.worker.settings import WorkerSettings
from mcpfleet.worker.work import CallKey, Logged, Report, StatusReport, TaskKey

_WINDOW: Final = 1.0
"""Seconds over which the rate of log messages is counted."""


def progress_reporter(
    key: CallKey, tell: Callable[[Report], None], settings: WorkerSettings
) -> Callable[[Progress], None]:
    """Make a function that takes a call's progress; its sender holds the rate.

    The function raises ProgressError for a report that is no JSON, or too large.
    """

    def report(progress: Progress) -> None:
        fields: dict[str, Any] = {"progress": progress.value}
        if progress.total is not None:
            fields["total"] = progress.total
        if progress.message is not None:
            fields["message"] = progress.message
        try:
            body = written(fields)
        except ValueError as error:
            raise ProgressError("the message cannot be written as JSON") from error
        if len(body) > settings.report_limit:
            raise ProgressError(f"a report has {len(body)} bytes (MCPFLEET_REPORT_LIMIT)")
        tell(Report(key, body))

    return report


def log_reporter(
    key: CallKey, least: str, tell: Callable[[Logged], None], settings: WorkerSettings
) -> Callable[[LogMessage], None]:
    """Make a function that takes a call's log messages: those of the wanted levels, at a bounded rate (M49).

    The function raises ValueError for a message that is no JSON, or too large. It drops messages beyond the rate,
    since a client that reads them slowly would hold up its own result.
    """
    window, sent = time.monotonic(), 0

    def log(message: LogMessage) -> None:
        nonlocal window, sent
        if not message.is_wanted(least):
            return
        fields: dict[str, Any] = {"level": message.level}
        if message.logger is not None:
            fields["logger"] = message.logger
        body = written(fields | {"data": message.data})
        if len(body) > settings.report_limit:
            raise ValueError(f"a log message has {len(body)} bytes (MCPFLEET_REPORT_LIMIT)")
        now = time.monotonic()
        if now - window >= _WINDOW:
            window, sent = now, 0
        if sent < max(1.0, settings.log_rate) * _WINDOW:
            sent += 1
            tell(Logged(key, body))

    return log


class DroppedLogs:
    """Drops what handlers log to clients of an App without logs: counted, and warned of once (X66)."""

    def __init__(self, instruments: WorkerInstruments, log: FilteringBoundLogger) -> None:
        self._dropped = instruments.logs_dropped
        self._log = log
        self._is_told = False

    def drop(self, message: LogMessage) -> None:
        """Drop a message."""
        self._dropped.add(1)
        if not self._is_told:
            self._is_told = True
            self._log.warning(
                "log message dropped", wanted=message.level, why="App(logs=False)", remedy="use `logging`"
            )


def status_reporter(key: TaskKey, tell: Callable[[StatusReport], None]) -> Callable[[Progress], None]:
    """Make a function that takes a task's progress, and tells it as the task's status message."""

    def report(progress: Progress) -> None:
        value, total = _number(progress.value), progress.total
        reached = f"{value:g}" if total is None else f"{value:g} of {_number(total):g}"
        text = f"{progress.message} ({reached})" if progress.message else reached
        tell(StatusReport(key, status_message(text), value))

    return report


def status_message(text: str) -> str:
    """The text as a status message may be: within its length, without what the store or UTF-8 cannot carry."""
    return text.replace("\x00", "")[:MESSAGE_LENGTH].encode(errors="replace").decode()


def _number(value: float) -> float:
    """The value as a double; an integer may be larger than any."""
    try:
        return float(value)
    except OverflowError:
        return sys.float_info.max if value > 0 else -sys.float_info.max
