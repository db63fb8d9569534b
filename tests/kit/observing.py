"""Observers of a test's own process, and functions that keep what they are told."""

from __future__ import annotations

import threading
from typing import Any

from structlog.testing import LogCapture

from mcpfleet.process.observers import Observers
from mcpfleet.process.shutdown import Departure
from mcpfleet.telemetry.instruments import ProcessInstruments
from mcpfleet.telemetry.metrics import Counter, Metrics
from tests.kit.logs import captured


def observers(
    log: LogCapture | None = None, dropped: Counter | None = None, departure: Departure | None = None
) -> Observers:
    """Observers without functions."""
    counter = dropped if dropped is not None else ProcessInstruments(Metrics()).observer_drops
    written = captured(log if log is not None else LogCapture())
    return Observers("test", "p1", written, counter, departure=departure)


class Told:
    """A plain observer that keeps its events; while it is held, it does not return."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.threads: set[str] = set()
        self.released = threading.Event()
        self.released.set()

    def __call__(self, event: Any) -> None:
        """Keep an event."""
        self.released.wait(60)
        self.threads.add(threading.current_thread().name)
        self.events.append(event)

    def kinds(self) -> list[str]:
        """The names of the events, in order."""
        return [type(event).__name__ for event in self.events]

    def of(self, *kinds: type) -> list[Any]:
        """The events of some kinds, in order."""
        return [event for event in self.events if isinstance(event, kinds)]
