"""Processes of services that are started again: they say only in their log when they are ready."""

from __future__ import annotations

from mcpfleet.cli.child import Child
from mcpfleet.testing.fleet import Fleet
from tests.kit.waiting import until


async def restart_services(fleet: Fleet, child: Child, *, services: int = 4, drain: bool = True) -> None:
    """Restart a process of services, and wait until each of them is ready."""
    assert child.log is not None
    wanted = _ready_lines(child) + services
    await fleet.restart(child, drain=drain)
    await until(lambda: _ready_lines(child) >= wanted, within=30)


def _ready_lines(child: Child) -> int:
    """How often services of a process have said that they are ready."""
    assert child.log is not None
    return child.log.read_text().count('"event": "ready"')
