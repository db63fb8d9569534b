"""A process's bus over NATS, wired to its settings, its log, its metrics and its readiness."""

from __future__ import annotations

from typing import Any

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.nats import NatsConnector
from mcpfleet.bus.port import Connector
from mcpfleet.process.service import Process
from mcpfleet.process.settings import ProcessSettings
from mcpfleet.telemetry.instruments import BusInstruments


def bus_of(process: Process[Any], user: str, connector: Connector | None = None) -> Bus:
    """Make the bus of a process, which is ready only while it has a link.

    Args:
        process: whose bus it is.
        user: the user that its role has in the table of permissions; MCPFLEET_NATS_USER may name another that NATS
            knows it by, with the same permissions.
        connector: makes links; by default, to NATS as the settings say.
    """
    settings: ProcessSettings = process.settings
    connector = connector or NatsConnector(
        settings, user=settings.nats_user or user, name=f"{process.name} {process.id}", log=process.log
    )
    return Bus(
        connector,
        settings,
        user=user,
        process=process.id,
        instruments=BusInstruments(process.telemetry.metrics),
        log=process.log,
    )


def watch_link(process: Process[Any], bus: Bus) -> None:
    """Make the process ready only while its bus has a link."""

    def tell(is_up: bool) -> None:
        process.health.set("nats", is_up, "no link to NATS (MCPFLEET_NATS_URL)")

    bus.on_link(tell)
    tell(bus.is_up)
