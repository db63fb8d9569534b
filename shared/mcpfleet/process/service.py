"""A service in a process: its name, its work, its pages on the admin port, and what its process gives it."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, HTTPScope

from mcpfleet.process.lifecycle import Health, Stopping
from mcpfleet.process.logs import logger, write_composed
from mcpfleet.process.observers import Observers
from mcpfleet.process.settings import ProcessSettings
from mcpfleet.process.shutdown import Departure
from mcpfleet.telemetry.instruments import ProcessInstruments
from mcpfleet.telemetry.setup import Telemetry

Page = Callable[[HTTPScope, ASGIReceiveCallable, ASGISendCallable], Awaitable[None]]
"""Answers one request, a GET or a HEAD."""


class Pages:
    """Pages by their paths. Services of one process share them; the first to offer a path serves it."""

    def __init__(self, url: str = "") -> None:
        self.url = url
        """The address that reaches the admin port from this machine; empty if there is none."""
        self._pages: dict[str, Page] = {}

    def offer(self, pages: Mapping[str, Page]) -> bool:
        """Serve pages from now on; return False, and serve nothing, if another service has one of their paths."""
        if self._pages.keys() & pages.keys():
            return False
        self._pages.update(pages)
        return True

    def find(self, path: str) -> Page | None:
        """Return the page of a path."""
        return self._pages.get(path)

    def __iter__(self) -> Iterator[str]:
        return iter(self._pages)


S = TypeVar("S", bound=ProcessSettings)


class Process(Generic[S]):
    """The process of a running service; each service has one, also if several share an operating-system process.

    Make it inside the event loop of the service. A test makes its own, without signals and an admin port.

    Attributes:
        name: the service's name: `service.name` in traces, `service` in log lines and metrics.
        id: 16 random hexadecimal digits that name this process on the bus.
        settings: read once, frozen.
        log: its lines name the service and the process.
        write_composed: writes lines that are composed already to where the log goes.
        stopping: set by the first SIGTERM or SIGINT; then the service ends its work and returns.
        health: the conditions that /readyz tells.
        telemetry: the tracer and the metrics.
        departure: the account of its end.
        pages: the service's pages on the admin port.
        observers: hear what happens here (X69).
    """

    def __init__(self, name: str, settings: S, *, stopping: Stopping | None = None, pages: Pages | None = None) -> None:
        """Make the process of a service; raises `TelemetrySettingError` for an OTEL_* variable with an unusable value.

        Args:
            name: the name of the service.
            settings: the settings of the service.
            stopping: shared by the services of one operating-system process; by default its own.
            pages: shared in the same way.
        """
        self.name = name
        self.id = secrets.token_hex(8)
        self.settings = settings
        self.log = logger(name, self.id)
        self.write_composed: Callable[[str], None] = write_composed
        self.stopping = stopping if stopping is not None else Stopping(settings.last_deadline)
        self.health = Health(self.stopping, self.log)
        self.telemetry = Telemetry(name, self.id, log=self.log)
        self.departure = Departure(name, self.id)
        self.pages = pages if pages is not None else Pages()
        dropped = ProcessInstruments(self.telemetry.metrics).observer_drops
        self.observers = Observers(name, self.id, self.log, dropped, departure=self.departure)


@dataclass(frozen=True, slots=True)
class Service(Generic[S]):
    """A service for `run`."""

    name: str
    serve: Callable[[Process[S]], Awaitable[None]]
    """Runs until `process.stopping` is set and the work has ended; it is cancelled at the last deadline."""
    settings: Callable[[], S]
    """Reads the settings, most often their class; `run` tells mistakes in them to the operator."""
