"""Bodies of requests: read within bounds of size, time and memory, and parsed without holding up others."""

from __future__ import annotations

import asyncio
from typing import Any

from mcpfleet.edge.identity.admission import Admission
from mcpfleet.edge.protocol.exchange import Exchange
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.transport.memory_budget import MemoryBudget
from mcpfleet.wire.scan import scan
from mcpfleet.wire.strict import parse, parse_scanned


class RequestBodies:
    """Reads bodies."""

    def __init__(self, admission: Admission, settings: EdgeSettings) -> None:
        self._admission = admission
        self._settings = settings
        self._room = MemoryBudget(settings.request_room, "MCPFLEET_REQUEST_ROOM")
        self._arriving = MemoryBudget(settings.arriving_room, "MCPFLEET_ARRIVING_ROOM")

    async def read(self, exchange: Exchange) -> tuple[bytes, Any]:
        """Read a body and parse it (groups 4c and 5).

        Raises:
            Rejection: 413, 408 or -32700; 401 and 504 for a large body of a stranger.
            BudgetExhausted: it found no room in memory in time.
            ClientGone: the client left before it was whole.
        """
        size = exchange.stated_size(self._settings.max_request)
        if size is not None and size <= self._settings.large_body and exchange.has_arrived:
            # Most requests: a body that is small and whole needs no account.
            body = await exchange.read_body(self._settings.max_request, self._settings.read_timeout)
            return body, parse(body, self._settings.max_values)
        return await self._read_arriving(exchange, is_large=size is not None and size > self._settings.large_body)

    async def _read_arriving(self, exchange: Exchange, *, is_large: bool) -> tuple[bytes, Any]:
        """Read a body that is large, of unsaid size, or not whole yet.

        Group 4c: the edge does not read a stranger's large body, let alone keep or parse it (T29). Small bodies that
        still arrive share a budget; where that is spent, a caller must be known as well (T38). The body of a known
        caller takes memory of its own as it arrives, until `forget_body`. A large one is scanned slice by slice, and
        others are served between (T31).
        """
        settings, arrived, shared, is_judged = self._settings, 0, 0, is_large
        if is_large:
            await self._judge(exchange)
        account = self._room.open(within=settings.queue_wait)
        exchange.forget_body = account.close

        async def charge(size: int) -> None:
            nonlocal arrived, shared, is_judged
            beyond = max(0, min(size, arrived + size - settings.large_body))
            arrived += size
            if not beyond and self._arriving.try_take(size):
                shared += size
                return
            if not is_judged:
                await self._judge(exchange)
                is_judged = True
            await account.charge(beyond or size)

        try:
            body = await exchange.read_body(settings.max_request, settings.read_timeout, charge)
        finally:
            self._arriving.give(shared)
        if len(body) <= settings.large_body:
            return body, parse(body, settings.max_values)
        for _ in scan(body, settings.max_values):
            await asyncio.sleep(0)
        message = parse_scanned(body)
        await asyncio.sleep(0)
        return body, message

    async def _judge(self, exchange: Exchange) -> None:
        """Have the caller's credential judged before the request is known, where the endpoint needs one."""
        if exchange.credential is not None:
            await self._admission.admit(exchange.endpoint, exchange.credential)
