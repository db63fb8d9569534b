"""Publishes the stats of a process, and serves the console of a service."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import NotRun
from mcpfleet.console.ended_calls import EndedCalls
from mcpfleet.console.feed import ConsoleFeed
from mcpfleet.console.page import PATH, ConsolePage
from mcpfleet.console.stats import collect_stats
from mcpfleet.contracts.stats import EVERY, Role, Sender, Stats, pool_stats_subject, service_stats_subject
from mcpfleet.process.host import HOSTS_WANTED, forms_of_host
from mcpfleet.process.logs import reporting, say_console
from mcpfleet.process.service import Process


async def serve_console(process: Process[Any], bus: Bus, role: Role) -> None:
    """Publish this process's stats and serve the page, until cancelled; do nothing if MCPFLEET_CONSOLE is off."""
    settings = process.settings
    if not settings.console:
        return
    feed = ConsoleFeed(bus, Sender(role.value, "", process.id), jaeger=settings.jaeger_url, log=process.log)
    page = ConsolePage(feed, settings.console_hosts)
    if useless := [ascii(each) for each in settings.console_hosts if not forms_of_host(each)]:
        process.log.warning("console hosts match nothing", hosts=useless, want=f"MCPFLEET_CONSOLE_HOSTS {HOSTS_WANTED}")
    is_served = process.pages.offer(page.pages())
    if is_served and process.pages.url:
        url = f"{process.pages.url}{PATH}"
        process.log.info("console served", url=url)
        say_console(process.log, url)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_publish, process, bus, service_stats_subject(role, process.id), feed.hear_own)
        if is_served:
            tasks.start_soon(feed.run)


async def publish_stats(process: Process[Any], bus: Bus, pool: str) -> None:
    """Publish a worker's stats until cancelled; do nothing if MCPFLEET_CONSOLE is off."""
    if process.settings.console:
        await _publish(process, bus, pool_stats_subject(pool, process.id), lambda _: None)


async def _publish(process: Process[Any], bus: Bus, subject: str, also: Callable[[Stats], None]) -> None:
    """Publish stats at intervals, and once more as soon as the process stops."""
    ended = EndedCalls()
    while True:
        is_last = process.stopping.is_set()
        with reporting(process.log, "stats"), suppress(NotRun):  # the next ones are newer
            stats = collect_stats(process, bus, ended)
            also(stats)
            bus.publish(subject, stats.model_dump_json().encode())
        with anyio.move_on_after(EVERY):
            await (anyio.sleep_forever() if is_last else process.stopping.wait())
