"""One line for each call that was let in: who, what, outcome, duration, trace; never arguments or credentials.

For people a line is short, and has the reason of a refusal, as the client was told.

Lines are written together a few times a second, since each write by itself would cost a call as much as its JSON.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from pydantic_core import to_json

from mcpfleet.edge.protocol.exchange import Exchange
from mcpfleet.process.logs import ConsoleLines, Format, coloured, write_composed
from mcpfleet.telemetry.metrics import Counter

_EVERY: Final = 0.1
"""Seconds that a line may wait."""
_MOST: Final = 1_000
"""Lines that wait at most; with more they are written at once."""
_HEADS: Final = 1_000
"""Callers and targets whose part of the line is kept."""


class Audit:
    """Writes the lines to standard error with all other lines, in their form."""

    def __init__(
        self,
        service: str,
        process: str,
        *,
        is_on: bool,
        lost: Counter,
        form: Format = "json",
        out: Callable[[str], None] = write_composed,
    ) -> None:
        """Write nothing yet.

        Args:
            service: the edge's name.
            process: the edge's id.
            is_on: lines are written at all.
            lost: counts the lines that could not be written.
            form: JSON for machines, or text for people.
            out: takes the composed lines; it raises OSError or ValueError if they cannot be written.
        """
        self._out = out
        self._text = ConsoleLines(coloured(sys.stderr)) if form == "console" else None
        self._of_process = {"level": "info", "service": service, "process": process, "event": "audit"}
        self._is_on = is_on
        self._lost = lost
        self._lines: list[str] = []
        self._second, self._written = 0, ""
        self._head = lru_cache(_HEADS)(self._compose)

    def note(self, exchange: Exchange, outcome: str, seconds: float, why: str = "") -> None:
        """Note a request that has ended.

        Args:
            exchange: the request's, of a method that leaves a line.
            outcome: `ok`, or the error's type.
            seconds: how long it took.
            why: the reason of a refusal, in words that the client was told; only people read it.
        """
        if not self._is_on:
            return
        self._add(
            self._as_json(exchange, outcome, seconds)
            if self._text is None
            else self._as_text(self._text, exchange, outcome, seconds, why)
        )

    def note_stranger(self, why: str) -> None:
        """Note a request without a caller, for people alone: its metric counts for programs.

        Args:
            why: the reason, which the client was not told.
        """
        if self._is_on and self._text is not None:
            self._add(self._text(None, "", self._event(f"401: {why or 'the token is refused'}")))

    def _add(self, line: str) -> None:
        if not self._lines:
            asyncio.get_running_loop().call_later(_EVERY, self.write)
        self._lines.append(line)
        if len(self._lines) >= _MOST:
            self.write()

    def _as_json(self, exchange: Exchange, outcome: str, seconds: float) -> str:
        caller = exchange.caller
        head = self._head(exchange.message.method, _target(exchange), caller.subject, caller.client, caller.tenant)
        said = outcome if outcome.isidentifier() else to_json(outcome).decode()[1:-1]
        return (
            f'{{"time":"{self._now()}",{head},"outcome":"{said}","seconds":{seconds:.6f},'
            f'"trace_id":"{exchange.trace.trace_id}"}}'
        )

    def _as_text(self, lines: ConsoleLines, exchange: Exchange, outcome: str, seconds: float, why: str) -> str:
        """Compose a line for people: the trace is named where something went wrong."""
        caller, is_ok = exchange.caller, outcome == "ok"
        what = " ".join(filter(None, (exchange.message.method, _target(exchange))))
        event = self._event(f"{what}: {outcome} in {seconds * 1000:.0f} ms" + (f": {why}" if why else ""))
        event |= {} if caller.subject is None else {"subject": caller.subject}
        event |= {} if is_ok else {"trace_id": exchange.trace.trace_id}
        return lines(None, "", event)

    def _event(self, text: str) -> dict[str, str]:
        return {**self._of_process, "time": time.strftime("%H:%M:%S"), "event": text}

    def _compose(
        self, method: str, target: str | None, subject: str | None, client: str | None, tenant: str | None
    ) -> str:
        """Compose what the lines of one caller's calls of one target have in common."""
        who = {"subject": subject, "client": client, "tenant": tenant}
        said = {name: value for name, value in who.items() if value is not None}
        return to_json({**self._of_process, "method": method, "target": target, **said}).decode()[1:-1]

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
            self._out("\n".join(lines) + "\n")
        except (OSError, ValueError):  # nobody reads: a line is not worth a call, and could not say so itself
            self._lost.add(len(lines))


def _target(exchange: Exchange) -> str | None:
    """The declared name of what was used: where there is no target, the name is a caller's own making."""
    method = exchange.method
    target = method.audit(exchange) if method is not None and method.audit is not None else None
    return target.listed.definition.name if target is not None else None
