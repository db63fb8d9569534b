"""Whether a service's store answers, as its readiness and its log are told."""

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
        """The last time that it was asked, the store answered."""
        health.set(_CONDITION, False, "not asked yet")

    def answered(self) -> None:
        """The store did its work."""
        self._complaint = ""
        self._set(True)

    def failed(self, error: StoreError) -> None:
        """It did not: say why, once for each reason."""
        why = str(error)
        self._set(False, why)
        if why != self._complaint:
            self._log.warning("waiting for the store", error=why)
        self._complaint = why

    def _set(self, holds: bool, why: str = "") -> None:
        self.holds = holds
        self._health.set(_CONDITION, holds, why)
