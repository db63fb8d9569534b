"""An edge's reports of its streams while others wait to be counted."""

from __future__ import annotations

import anyio
import pytest
import structlog

from mcpfleet.contracts.subscriptions import CloseStreams, OpenStream, SubscriptionsClient
from mcpfleet.edge.streams.quota import Quota
from tests.kit.waiting import until

pytestmark = pytest.mark.usefixtures("jumping")


class Held(SubscriptionsClient):
    """Stands where the bus begins: grants everything, when the test lets it, and keeps what it was told."""

    def __init__(self) -> None:
        self.opened: list[int] = []
        self.closed: list[int] = []
        self.go_on = anyio.Event()
        self.go_on.set()

    async def open(self, question: OpenStream) -> bool:
        self.opened.append(question.count.streams)
        await self.go_on.wait()
        return True

    async def close(self, message: CloseStreams) -> None:
        self.closed += [count.streams for count in message.counts]


@pytest.mark.rule("D7")
async def test_who_waits_to_be_asked_for_is_not_counted_and_who_is_being_asked_for_is() -> None:
    """A crowd that waits at one edge would keep all others out of a partition that has room."""
    client = Held()
    quota = Quota(client, "0" * 16, interval=3600, log=structlog.get_logger())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(quota.run)
        assert await quota.open("mcp", "acme")
        client.go_on = anyio.Event()
        tasks.start_soon(quota.open, "mcp", "acme")
        await until(lambda: client.opened == [1, 2])
        for _ in range(4):
            tasks.start_soon(quota.open, "mcp", "acme")
        await anyio.wait_all_tasks_blocked()
        quota.close("mcp", "acme")
        await until(lambda: client.closed)
        assert client.closed == [1]
        client.go_on.set()
        await until(lambda: client.opened == [1, 2, 5])
        quota.close("mcp", "acme")
        await until(lambda: client.closed == [1, 4])
        tasks.cancel_scope.cancel()
