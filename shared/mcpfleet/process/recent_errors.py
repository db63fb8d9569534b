"""The last warnings and errors of each service of this process, for the console.

Only parts of a line that cannot hold a secret are kept: the event, a few names, and the trace. The event is a text of
our code. Texts of libraries stay in the log, since they may quote anything.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Final

from structlog.typing import EventDict, WrappedLogger

from mcpfleet.telemetry.trace import current

MOST: Final = 20
"""Lines that are kept of each service."""
SERVICES: Final = 16
"""Services that are kept apart; a process has five at most."""
_LEVELS: Final = ("warning", "error", "critical")
_NAMES: Final = ("tool", "prompt", "resource", "template", "lister", "pool", "endpoint", "condition", "setting", "end")
"""Fields with names that the application's author, the operator or we give."""


@dataclass(frozen=True, slots=True)
class RecentError:
    """One line."""

    at: float
    """Unix time."""
    level: str
    event: str
    of: str
    """Its subject, as `tool=search`; empty if it names none."""
    trace: str
    """The trace's id; empty if there is none."""
    sampled: bool
    """Whether the trace is recorded, so that a link to it works."""


class RecentErrors:
    """Keeps the last lines of each service, by its process id."""

    def __init__(self) -> None:
        self._kept: dict[str, deque[RecentError]] = {}

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        """Keep a line, as a processor of structlog that changes nothing; callable from any thread."""
        process = event.get("process")
        if event.get("level") in _LEVELS and isinstance(process, str) and "logger" not in event:
            kept = self._kept.get(process)
            if kept is None and len(self._kept) < SERVICES:
                kept = self._kept.setdefault(process, deque(maxlen=MOST))
            if kept is not None:
                kept.append(_recent_error(event))
        return event

    def of(self, process: str) -> tuple[RecentError, ...]:
        """Return the last lines of a service, the oldest first."""
        kept = self._kept.get(process)
        return tuple(kept.copy()) if kept is not None else ()


recent_errors: Final = RecentErrors()
"""The lines of this operating-system process: logging is set up for the whole of it."""


def _recent_error(event: EventDict) -> RecentError:
    trace = current.get()
    return RecentError(
        at=time.time(),
        level=str(event["level"]),
        event=str(event.get("event", "")),
        of=" ".join(f"{name}={event[name]}" for name in _NAMES if name in event),
        trace=trace.trace_id if trace is not None else "",
        sampled=trace is not None and trace.sampled,
    )
