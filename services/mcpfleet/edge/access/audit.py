"""One line for each call that was let in: who, what, outcome, duration, trace; never arguments or credentials.

Lines are written together a few times a second, since each write by itself would cost a call as much as its JSON.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Final

from pydantic_core import to_json

from mcpfleet.edge.protocol.request import Inquiry

_EVERY: Final = 0.1
"""Seconds that a line may wait."""
_MOST: Final = 1_000
"""Lines that wait at most; with more they are written at once."""


class Audit:
    """Writes the lines, as JSON, to standard error with all other lines."""

    def __init__(self, service: str, process: str, *, is_on: bool) -> None:
        self._head = {"level": "info", "service": service, "process": process, "event": "audit"}
        self._is_on = is_on
        self._lines: list[bytes] = []
        self._second, self._written = 0, ""

    def note(self, inquiry: Inquiry, target: str | None, outcome: str, seconds: float) -> None:
        """Note a request that has ended.

        Args:
            inquiry: who asked, and what.
            target: the declared name of what was used; what a caller made up is not noted.
            outcome: `ok`, or the error's type.
            seconds: how long it took.
        """
        if not self._is_on:
            return
        request, principal = inquiry.request, inquiry.principal
        who = {"subject": principal.subject, "client": principal.client, "tenant": principal.tenant}
        line = {
            "time": self._now(),
            **self._head,
            "method": request.envelope.method,
            "target": target,
            **{name: value for name, value in who.items() if value is not None},
            "outcome": outcome,
            "seconds": round(seconds, 6),
            "trace_id": request.trace.trace_id,
        }
        if not self._lines:
            asyncio.get_running_loop().call_later(_EVERY, self.write)
        self._lines.append(to_json(line))
        if len(self._lines) >= _MOST:
            self.write()

    def _now(self) -> str:
        """The time as all lines have it; what changes once a second is written once a second."""
        now = time.time()
        second = int(now)
        if second != self._second:
            self._second, self._written = second, time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(second))
        return f"{self._written}{int((now - second) * 1e6):06d}Z"

    def write(self) -> None:
        """Write what waits."""
        lines, self._lines = self._lines, []
        if not lines:
            return
        try:
            sys.stderr.write(b"\n".join(lines).decode() + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):  # nobody reads: a line is not worth a call
            pass
