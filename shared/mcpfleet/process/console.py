"""Log lines as text for people: time, service, level, event, then what else is known."""

from __future__ import annotations

import os
import re
import zlib
from typing import Any, Final, TextIO

from structlog.typing import EventDict, WrappedLogger

_RESET: Final = "\x1b[0m"
_DIM: Final = "\x1b[2m"
_LEVELS: Final = {"warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31m"}
_SERVICES: Final = tuple(f"\x1b[{code}m" for code in (36, 35, 34, 32, 96, 95, 94, 92))
_PLAIN: Final = re.compile(r"[^\s\"'=]+")


def coloured(stream: TextIO) -> bool:
    """Whether text on this stream is coloured: on a terminal, unless NO_COLOR; elsewhere only with FORCE_COLOR."""
    if os.environ.get("NO_COLOR"):
        return False
    return stream.isatty() or bool(os.environ.get("FORCE_COLOR"))


class ConsoleLines:
    """A structlog renderer of one line an event, with a traceback below it where there is one."""

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
            self._in(_LEVELS.get(level, ""), level.ljust(7)),
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
    """Escape what could steer the terminal: a library's message may quote what a stranger sent."""
    return text if text.isprintable() else repr(text)
