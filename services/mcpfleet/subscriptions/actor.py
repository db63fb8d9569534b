"""The handlers of subscriptions: what edges ask when streams open and close."""

from __future__ import annotations

from typing import Final

from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.actor import Actor, Asked
from mcpfleet.contracts.subscriptions import (
    CLOSE,
    LEASE,
    OPEN,
    CloseStreams,
    EdgeLeased,
    LeaseEdge,
    OpenStream,
    StreamOpened,
    StreamsClosed,
)
from mcpfleet.subscriptions.repository import Ledger
from mcpfleet.subscriptions.settings import SubscriptionsSettings
from mcpfleet.subscriptions.sweeper import Sweeper

GROUP: Final = "subscriptions"


class SubscriptionsActor:
    """Answers for subscriptions."""

    def __init__(
        self, ledger: Ledger, sweeper: Sweeper, settings: SubscriptionsSettings, *, log: FilteringBoundLogger
    ) -> None:
        self._ledger = ledger
        self._sweeper = sweeper
        self._settings = settings
        self._log = log

    async def register(self, actor: Actor) -> None:
        """Answer from now on."""
        await actor.answer(OPEN, self.open, group=GROUP)
        await actor.answer(CLOSE, self.close, group=GROUP)
        await actor.answer(LEASE, self.lease, group=GROUP)

    async def open(self, question: OpenStream, asked: Asked) -> StreamOpened:  # noqa: ARG002
        """Count a stream in, where its partition has room."""
        limit, lost = self._settings.partition_streams, self._sweeper.lost
        granted = await self._ledger.open(question.edge, question.sequence, question.count, limit=limit, lost=lost)
        if not granted:
            self._log.info("no room for a stream", endpoint=question.count.endpoint, limit=limit)
        return StreamOpened(granted=granted)

    async def close(self, question: CloseStreams, asked: Asked) -> StreamsClosed:  # noqa: ARG002
        """Write how many streams an edge has now."""
        await self._ledger.restate(question.edge, question.sequence, question.counts)
        return StreamsClosed(counts=len(question.counts))

    async def lease(self, question: LeaseEdge, asked: Asked) -> EdgeLeased:  # noqa: ARG002
        """Note that an edge lives."""
        return EdgeLeased(wanted=not await self._ledger.lease(question.edge))
