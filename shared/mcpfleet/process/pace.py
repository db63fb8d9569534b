"""Log lines at a pace: the first few of a kind are written at once, and the others are counted once a period.

Strangers cause log lines: a broken client, a worker that is taken over, a foreign publisher on NATS. Without a pace, a
flood of their messages becomes a flood of lines. It costs more than the messages do, and hides all other lines.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import structlog
from structlog.typing import EventDict, WrappedLogger

PERIOD: Final = 60.0
"""Seconds between two counts of one kind. After this time without a line, lines are written at once again."""
AT_ONCE: Final = 5
"""Warnings and errors of one kind that are written before others are counted."""
AT_ONCE_INFO: Final = 20
"""The same for less important lines, which mostly tell actions of an operator or the fleet."""
KINDS: Final = 500
"""Kinds that are counted apart; later ones count as one for each service and level."""
CALL_SITE: Final = "call_site"
"""The field with the origin of a library's line, whose text may quote a stranger. It is not written."""
COUNT: Final = "count"
"""The field with the number of left out lines; its line is the last of them."""
_OURS: Final = ""
"""The call site of such a line."""
LIBRARIES: Final = frozenset(("asyncio", "h2", "hypercorn", "mcpfleet", "nats", "uvloop"))
"""Loggers, by their first word, whose lines strangers cause. An application's loggers are its author's business."""

_DISTINCT: Final = ("tool", "prompt", "resource", "template", "lister", "function", "condition", "setting", "report")
"""Fields that distinguish kinds: names by the application's author or by us, never by a message's sender."""

_Kind = tuple[str, ...]


class _Told:
    """The state of one kind."""

    __slots__ = ("last", "left_out", "since", "written")

    def __init__(self, now: float) -> None:
        self.since = now
        self.written = 0
        self.left_out = 0
        self.last: EventDict = {}


class Pace:
    """A processor of structlog that passes the first lines of a kind and counts the others; for any thread."""

    def __init__(self, write: Callable[[EventDict], None], period: float = PERIOD) -> None:
        """Start without counts.

        Args:
            write: writes a line past this pace: its level, its event and its fields.
            period: seconds between two counts.
        """
        self._write = write
        self._period = period
        self._kinds: dict[_Kind, _Told] = {}
        # Reentrant: the garbage collector may end something that logs while a line is being counted.
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        """Pass a line on; raises `DropEvent` for one that is counted instead."""
        call_site = event.pop(CALL_SITE, None)
        level = event.get("level")
        if level == "debug" or call_site == _OURS or ("logger" in event and call_site is None):
            return event
        with self._lock:
            if not self._admits(_kind(event, call_site), level == "info", event):
                raise structlog.DropEvent
        return event

    def flush(self) -> None:
        """Write the counts so far, since the process ends."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            counts = self._counts()
        for count in counts:
            self._write(count)

    def _admits(self, kind: _Kind, is_info: bool, event: EventDict) -> bool:
        now = time.monotonic()
        if kind not in self._kinds and len(self._kinds) >= KINDS:
            kind = kind[:2]
        told = self._kinds.setdefault(kind, _Told(now))
        if not told.left_out and now - told.since >= self._period:
            told.since, told.written = now, 0
        if told.written < (AT_ONCE_INFO if is_info else AT_ONCE):
            told.written += 1
            return True
        told.left_out += 1
        event.pop("exc_info", None)  # its frames hold everything that the failed work had
        told.last = event
        if self._timer is None:
            self._start_timer()
        return False

    def _start_timer(self) -> None:
        self._timer = threading.Timer(self._period, self._tell)
        self._timer.daemon = True
        self._timer.name = "log-pace"
        self._timer.start()

    def _tell(self) -> None:
        """Write the counts of this period; a lasting flood is told by its counts alone."""
        with self._lock:
            self._timer = None
            counts = self._counts()
        for count in counts:
            self._write(count)

    def _counts(self) -> list[EventDict]:
        """Return a line for each kind with left out lines: the last of them, with their number."""
        now = time.monotonic()
        counts: list[EventDict] = []
        for told in self._kinds.values():
            if told.left_out:
                counts.append({**told.last, COUNT: told.left_out, CALL_SITE: _OURS})
                told.left_out, told.since, told.last = 0, now, {}
        return counts


def _kind(event: EventDict, call_site: str | None) -> _Kind:
    """Return the kind of a line: its process, level and origin, and the names in it."""
    names = [f"{name}={event[name]}" for name in _DISTINCT if name in event]
    return str(event.get("process", "")), str(event.get("level", "")), call_site or str(event.get("event", "")), *names
