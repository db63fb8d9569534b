"""Publishes the stats of a process, and serves the console of a service."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import NotRun
from mcpfleet.console.feed import Console
from mcpfleet.console.page import PATH, ConsolePage
from mcpfleet.console.stats import figures
from mcpfleet.contracts.stats import EVERY, Figures, Role, Speaker, pool_figures_subject, service_figures_subject
from mcpfleet.process.logs import reporting
from mcpfleet.process.service import Process


async def show(process: Process[Any], bus: Bus, role: Role) -> None:
    """Say this process's figures and serve the page, until cancelled; nothing where MCPFLEET_CONSOLE is off."""
    settings = process.settings
    if not settings.console:
        return
    console = Console(bus, Speaker(role.value, "", process.id), jaeger=settings.jaeger_url, log=process.log)
    page = ConsolePage(console, settings.console_hosts)
    is_served = process.pages.offer(page.pages())
    if is_served and process.pages.url:
        process.log.info("console", url=f"{process.pages.url}{PATH}")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_say, process, bus, service_figures_subject(role, process.id), console.hear_own)
        if is_served:
            tasks.start_soon(console.run)


async def tell(process: Process[Any], bus: Bus, pool: str) -> None:
    """Say a worker's figures until cancelled; nothing where MCPFLEET_CONSOLE is off."""
    if process.settings.console:
        await _say(process, bus, pool_figures_subject(pool, process.id), lambda _: None)


async def _say(process: Process[Any], bus: Bus, subject: str, also: Callable[[Figures], None]) -> None:
    """Say figures at intervals, and once more as soon as the process stops."""
    has_said_so = False
    while True:
        has_said_so = process.stopping.is_set()
        with reporting(process.log, "figures"), suppress(NotRun):  # the next ones are newer
            said = figures(process, bus)
            also(said)
            bus.publish(subject, said.model_dump_json().encode())
        with anyio.move_on_after(EVERY):
            await (anyio.sleep_forever() if has_said_so else process.stopping.wait())
