"""The messages of a hosted source: which of its errors belong to requests that still wait."""

from __future__ import annotations

import asyncio
import json

from mcpfleet.worker.hosting.pipes import MessagesIn


async def test_only_errors_of_requests_that_wait_are_remembered() -> None:
    """A source may answer a cancelled request, or one that nobody made; it may write an id as a text."""
    reader = asyncio.StreamReader()
    messages = MessagesIn(reader, {7}, print)
    for identifier in (1, "other", "7"):
        error = {"code": 0, "message": "Request cancelled"}
        reader.feed_data(json.dumps({"jsonrpc": "2.0", "id": identifier, "error": error}).encode() + b"\n")
        await messages.receive()
    assert messages.refused == {7}
