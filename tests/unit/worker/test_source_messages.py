"""The messages of a hosted source: errors of requests that still wait, and progress in the protocol's form."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from mcpfleet.app.client import Progress
from mcpfleet.worker.hosting.handler import progress_of
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


@pytest.mark.rule("B5")
@pytest.mark.parametrize(
    ("told", "report"),
    [
        ({"progress": 1, "total": 2.5, "message": "half"}, Progress(1, 2.5, "half")),
        ({"progress": 0.5, "total": "2", "message": {"text": "half"}}, Progress(0.5)),
        ({"progress": 1, "total": True}, Progress(1)),
        ({"progress": True}, None),
        ({"progress": "1"}, None),
        ({}, None),
    ],
)
def test_progress_reaches_clients_in_the_form_of_the_protocol(told: dict[str, Any], report: Progress | None) -> None:
    assert progress_of(told) == report
