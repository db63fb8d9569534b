"""Whether a process can serve: named conditions, all of which must hold."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from structlog.typing import FilteringBoundLogger

from mcpfleet.process.stopping import Stopping


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that must hold for a process to be ready."""

    ok: bool
    why: str = ""
    """Why it does not hold, for the operator."""


NOT_YET: Final = Condition(ok=False, why="the service has not started yet")


class Health:
    """A process is ready while it has a condition, all of them hold, and it is not stopping.

    Readiness is not life: a process that is not ready goes on, and may be ready again.
    """

    def __init__(self, stopping: Stopping, log: FilteringBoundLogger) -> None:
        self._stopping = stopping
        self._log = log
        self._conditions: dict[str, Condition] = {}
        self._was_ready = False

    def set(self, name: str, ok: bool, why: str = "") -> None:
        """Say whether a condition holds; may be called from any thread, as often as one likes.

        Args:
            name: what it is about, for example `nats`.
            ok: whether it holds.
            why: the reason for an operator, where it does not.
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
        """The conditions by name; before the first is set there is one that does not hold."""
        return MappingProxyType(self._conditions or {"started": NOT_YET})

    @property
    def ready(self) -> bool:
        """Whether new work should come here."""
        return self._all_hold() and not self._stopping.is_set()

    def _all_hold(self) -> bool:
        conditions = list(self._conditions.values())
        return bool(conditions) and all(condition.ok for condition in conditions)
