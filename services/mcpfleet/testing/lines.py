"""The log of a local fleet: kept in memory, so that a test reads it, and shown with what fails."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import structlog
from structlog.processors import TimeStamper, add_log_level, format_exc_info
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from mcpfleet.process.console import ConsoleLines

_KEPT: Final = 10_000
"""Lines; the oldest go first."""


class Lines:
    """The newest lines of all services."""

    def __init__(self) -> None:
        self._kept: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self._render = ConsoleLines(colours=False)

    def logger(self, level: str) -> FilteringBoundLogger:
        """A logger whose lines are kept here, from a level on."""
        time = TimeStamper(fmt="%H:%M:%S.%f", utc=False, key="time")
        log: FilteringBoundLogger = structlog.wrap_logger(
            None,
            processors=[add_log_level, time, format_exc_info, self._keep],
            wrapper_class=structlog.make_filtering_bound_logger(level),
        )
        return log

    def of(self, event: str) -> list[dict[str, Any]]:
        """The lines of one event, with what each says of it."""
        return [line for line in self._kept if line["event"] == event]

    def text(self) -> str:
        """All lines, for people."""
        return "\n".join(self._render(None, "", dict(line)) for line in self._kept)

    def _keep(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        self._kept.append(dict(event))
        raise structlog.DropEvent
