"""The bus's side of a worker: the values that all its parts on the bus's loop share."""

from __future__ import annotations

from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.telemetry.instruments import WorkerInstruments
from mcpfleet.worker.settings import WorkerSettings


@dataclass(frozen=True, slots=True)
class BusSide:
    """One worker process as a member of its pool. Its parts speak on the same bus, in the same name."""

    bus: Bus
    pool: str
    settings: WorkerSettings
    instruments: WorkerInstruments
    log: FilteringBoundLogger

    @property
    def process(self) -> str:
        """The name of this process on the bus."""
        return self.bus.process
