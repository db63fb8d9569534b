"""Stopping, readiness, and the time for which a process has heard others without a gap."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import anyio
from structlog.typing import FilteringBoundLogger

STARTING_FOR: Final = 30.0
"""Seconds after its start in which a process does not warn of another that is not there: all of them are starting."""


class Stopping:
    """Set by the first SIGTERM or SIGINT, and never unset; the services of a process share one."""

    def __init__(self, last_deadline: float) -> None:
        """Take the seconds until the remaining work is cancelled."""
        self._event = anyio.Event()
        self._last_deadline = last_deadline
        self._cut_at = math.inf
        self.cause = ""
        """Why the process is to stop; empty before."""

    def set(self, cause: str = "told to stop") -> None:
        """Begin to stop, for a cause; the first call counts. Call it on the process's own loop."""
        if not self._event.is_set():
            self.cause = cause
            self._cut_at = time.monotonic() + self._last_deadline
            self._event.set()

    def is_set(self) -> bool:
        """Return whether the process is to stop; callable from any thread."""
        return self._event.is_set()

    async def wait(self) -> None:
        """Wait until the process is to stop."""
        await self._event.wait()

    def left(self) -> float:
        """Return the seconds until the remaining work is cancelled; infinite before the process is to stop."""
        return max(0.0, self._cut_at - time.monotonic())


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of readiness."""

    ok: bool
    why: str = ""
    """The reason why it does not hold, for the operator."""


NOT_YET: Final = Condition(ok=False, why="the service has not started yet")


class Health:
    """A process is ready while it has conditions, all of them hold, and it is not stopping.

    Readiness is not liveness: a process that is not ready goes on, and may be ready again.
    """

    def __init__(self, stopping: Stopping, log: FilteringBoundLogger) -> None:
        self._stopping = stopping
        self._log = log
        self._conditions: dict[str, Condition] = {}
        self._was_ready = False

    def set(self, name: str, ok: bool, why: str = "") -> None:
        """Set whether a condition holds; callable from any thread, and often.

        Args:
            name: the subject, for example `nats`.
            ok: whether it holds.
            why: the reason for an operator, if it does not.
        """
        self._conditions[name] = Condition(ok, "" if ok else why)
        ready = self._all_hold()
        if ready is not self._was_ready and not self._stopping.is_set():
            if ready:
                self._log.info("ready")
            else:
                self._log.warning("not ready", condition=name, why=why)
        self._was_ready = ready

    @property
    def conditions(self) -> MappingProxyType[str, Condition]:
        """The conditions by name; before the first is set, one that does not hold."""
        return MappingProxyType(self._conditions or {"started": NOT_YET})

    @property
    def ready(self) -> bool:
        """Whether new work should come here."""
        return self._all_hold() and not self._stopping.is_set()

    def _all_hold(self) -> bool:
        conditions = list(self._conditions.values())
        return bool(conditions) and all(condition.ok for condition in conditions)


@dataclass
class HeartbeatWindow:
    """The time without a gap in which the link to NATS was proven, the store answered and this process ran."""

    longest_gap: float
    """Seconds between two looks beyond which this process itself was not running."""
    since: float | None = None
    last: float | None = None

    def look(self, now: float, link_since: float | None) -> float:
        """Return for how many seconds up to now this process could hear others.

        Args:
            now: monotonic seconds.
            link_since: since when the link to NATS has been proven without a gap; None while it is not proven.
        """
        slept = self.last is not None and now - self.last > self.longest_gap
        self.last = now
        if link_since is None:
            self.since = None
            return 0.0
        if slept or self.since is None:
            self.since = now
        self.since = max(self.since, link_since)
        return now - self.since

    def interrupt(self) -> None:
        """Note that the store did not answer: heartbeats meanwhile were not kept."""
        self.since = None
