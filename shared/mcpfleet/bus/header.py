"""The one header line of a message: everything that is read before its body, or without it.

NATS carries headers as text lines, and three cost twice as much as one. So all words share one line.

- A request is `1 <ms left> <ms since 1970 at sending> <traceparent or -> <extra words>`.
- An answer without a line is plain success. Otherwise it is `1 busy`, `1 expired <the answerer's ms>` or
  `1 fault <kind>`. `undone` follows the kind if certainly nothing was changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, NamedTuple

from mcpfleet.bus.errors import Busy, Expired, Failed, NoResponders, NotRun
from mcpfleet.bus.port import Incoming
from mcpfleet.telemetry.trace import TraceContext

NAME: Final = "Fleet"
"""The header's name on the wire."""

clock: Final[ContextVar[Callable[[], float]]] = ContextVar("clock", default=time.time)
"""The wall clock that dates and judges messages; a test can give one process a wrong clock."""

BUSY: Final = "1 busy"
UNDONE: Final = "undone"
"""Follows the kind of a fault if nothing was changed."""
_VERSION: Final = "1"


class Sent(NamedTuple):
    """A request's line, read."""

    left: float
    """Seconds that were left until the asker's deadline at the sending."""
    at: float
    """The asker's wall clock at the sending, in seconds since 1970."""
    trace: TraceContext | None
    extra: tuple[str, ...]
    """Further words of the kind of request, in order; a newer sender may append more."""


def now() -> float:
    """Return the wall clock's time, in seconds since 1970."""
    return clock.get()()


def write(left: float, trace: TraceContext | None, *extra: str) -> str:
    """Compose the line of a request; `left` is in seconds, and the time of sending is now."""
    parent = trace.header() if trace is not None else "-"
    line = f"{_VERSION} {int(left * 1000)} {int(now() * 1000)} {parent}"
    return f"{line} {' '.join(extra)}" if extra else line


def read(line: str | None) -> Sent | None:
    """Read the line of a request; None if it is missing or malformed, which no process of ours sends."""
    words = line.split(" ") if line else []
    if len(words) < 4 or words[0] != _VERSION:
        return None
    try:
        left, at = int(words[1]) / 1000, int(words[2]) / 1000
    except (ValueError, OverflowError):  # hundreds of digits are no float
        return None
    trace = TraceContext.parse(words[3]) if words[3] != "-" else None
    return Sent(left, at, trace, tuple(words[4:]))


def expired() -> str:
    """Compose the answer that a request was too old. It has our own clock, so that a wrong clock is found."""
    return f"{_VERSION} expired {now() * 1000:.0f}"


def fault(kind: str, *, is_undone: bool = False) -> str:
    """Compose the answer that a request failed, with a kind of the closed list."""
    return f"{_VERSION} fault {kind} {UNDONE}" if is_undone else f"{_VERSION} fault {kind}"


_LONGEST_CLOCK: Final = 16
"""Digits that milliseconds since 1970 may have; a stranger may answer anything."""


def answer(subject: str, reply: Incoming) -> Incoming:
    """Return a plain answer, and raise the error that any other line means."""
    error = ending(subject, reply)
    if error is not None:
        raise error
    return reply


def ending(subject: str, reply: Incoming) -> NotRun | Failed | None:
    """Return the error that an answer means; None for a plain answer."""
    if reply.no_responders:
        return NoResponders(f"no process hears {subject}")
    words = reply.header.split(" ") if reply.header else []
    match words[1:]:
        case ["busy", *_]:
            return Busy(f"{subject}: the receiver has no room")
        case ["expired", clock, *_]:
            is_clock = clock.isdecimal() and len(clock) <= _LONGEST_CLOCK
            return Expired(subject, int(clock) / 1000 - now() if is_clock else 0.0)
        case ["fault", kind, *more]:
            return Failed(kind, reply.body.decode(errors="replace"), is_undone=UNDONE in more)
        case _:
            return None
