"""How a request ended, read from what came back."""

from __future__ import annotations

from typing import Final

from mcpfleet.bus import header
from mcpfleet.bus.errors import Busy, Expired, Failed, NoResponders, NotRun
from mcpfleet.bus.port import Incoming

_LONGEST_CLOCK: Final = 16
"""Digits that milliseconds since 1970 may have: whoever answers may write anything."""


def answer(subject: str, reply: Incoming) -> Incoming:
    """Return a plain answer, and raise what any other line says."""
    error = ending(subject, reply)
    if error is not None:
        raise error
    return reply


def ending(subject: str, reply: Incoming) -> NotRun | Failed | None:
    """Read how a request ended from its answer: none where the answer is a plain one."""
    if reply.no_responders:
        return NoResponders(f"no process hears {subject}")
    words = reply.header.split(" ") if reply.header else []
    match words[1:]:
        case ["busy", *_]:
            return Busy(f"{subject}: the receiver has no room")
        case ["expired", clock, *_]:
            is_clock = clock.isdecimal() and len(clock) <= _LONGEST_CLOCK
            return Expired(subject, int(clock) / 1000 - header.now() if is_clock else 0.0)
        case ["fault", kind, *more]:
            return Failed(kind, reply.body.decode(errors="replace"), is_undone=header.UNDONE in more)
        case _:
            return None
