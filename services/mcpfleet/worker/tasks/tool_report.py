"""Reports which tools this worker runs tasks of, so that a rollout leaves no task behind (K21)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType

from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import BusError
from mcpfleet.contracts.pool_tasks import PoolTasksClient, Serve
from mcpfleet.process.auto_reset_event import AutoResetEvent
from mcpfleet.process.logs import reporting


class ToolReport:
    """Reports at every interval, and when the tools change."""

    def __init__(self, client: PoolTasksClient, process: str, interval: float, log: FilteringBoundLogger) -> None:
        self._client = client
        self._process = process
        self._interval = interval
        self._log = log
        self._tools: Mapping[str, str] = MappingProxyType({})
        self._news = AutoResetEvent()

    def offer(self, tools: Mapping[str, str]) -> None:
        """Report these tools from now on: the definition of each, by its name."""
        self._tools = tools
        self._news.set()

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await self._news.wait(self._interval * random.uniform(0.75, 1.0))  # noqa: S311  # no secret
            if not self._tools:
                continue
            with reporting(self._log, "tasks that run here"):
                await self._report()

    async def _report(self) -> None:
        try:
            await self._client.serve(Serve(process=self._process, tools=dict(self._tools)))
        except BusError as error:
            self._log.debug("tool report not acknowledged", error=str(error))
