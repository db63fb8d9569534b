"""What a handler reports while it runs, written as frames: its progress, and messages for its client's log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from mcpfleet.app import LogMessage, Progress, ProgressError
from mcpfleet.wire.reply import written
from mcpfleet.worker.calls.table import Key
from mcpfleet.worker.frames import Logged, Report
from mcpfleet.worker.settings import WorkerSettings

_WINDOW = 1.0
"""Seconds in which so many log messages may be sent."""


def reporter(key: Key, tell: Callable[[Report], None], settings: WorkerSettings) -> Callable[[Progress], None]:
    """Make what takes a call's progress; whoever sends it holds the rate.

    What is made raises ProgressError for a report that is no JSON, or too large.
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


def logger(
    key: Key, least: str, tell: Callable[[Logged], None], settings: WorkerSettings
) -> Callable[[LogMessage], None]:
    """Make what takes a call's log messages: those of the wanted levels, at most so many a second (M49).

    What is made raises ValueError for a message that is no JSON, or too large. Those beyond the rate are dropped, since
    a client that is slow to read them would hold up its own result.
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
