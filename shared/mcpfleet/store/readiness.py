"""Tells the readiness and the log of a service whether its store answers."""

from __future__ import annotations

from typing import Final

from structlog.typing import FilteringBoundLogger

from mcpfleet.process.lifecycle import Health
from mcpfleet.store.errors import StoreError

_CONDITION: Final = "store"


class StoreReadiness:
    """A service is ready only while its store answers."""

    def __init__(self, health: Health, log: FilteringBoundLogger) -> None:
        self._health = health
        self._log = log
        self._complaint = ""
        self.holds = False
        """Whether the store answered the last time."""
        health.set(_CONDITION, False, "not asked yet")

    def answered(self) -> None:
        """Note that the store did its work."""
        self._complaint = ""
        self._set(True)

    def failed(self, error: StoreError) -> None:
        """Note that it did not, and log each reason once."""
        why = str(error)
        self._set(False, why)
        if why != self._complaint:
            self._log.warning("waiting for the store", error=why)
        self._complaint = why

    def _set(self, holds: bool, why: str = "") -> None:
        self.holds = holds
        self._health.set(_CONDITION, holds, why)
