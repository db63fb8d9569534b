"""The official clients of 2025 in a session, behind a balancer that leads each request to another edge (D11)."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp_types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    ListRootsResult,
    LoggingMessageNotificationParams,
    ResourceUpdatedNotification,
    Root,
    TextContent,
)
from pydantic import FileUrl

from mcpfleet.testing.fleet import Fleet
from tests.conformance.test_typescript_client import PROJECT
from tests.contract.fleet.app import text
from tests.kit.balancer import Balancer
from tests.kit.node import NODE, environment, install
from tests.kit.waiting import until

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.timeout(120),
    # These features are deprecated by the newer revision.
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

APP = Path(__file__).with_name("sessions_app.py")
PROGRAM = "session.mjs"
BOOK = "library://books/1"


@asynccontextmanager
async def balanced() -> AsyncIterator[str]:
    """Where three edges are reached in turn."""
    async with Fleet(APP, edges=3, workers=2) as fleet, Balancer(fleet.urls) as balancer:
        yield balancer.url


async def test_the_typescript_client_needs_no_affinity(tmp_path: Path) -> None:
    """M75, M80, M81, L11: as it opens by itself; nothing is strange to it."""
    (tmp_path / "node_modules").symlink_to(install(PROJECT) / "node_modules")
    program = shutil.copy(PROJECT / PROGRAM, tmp_path)
    async with balanced() as url:
        with anyio.fail_after(60):
            done = await anyio.run_process([str(NODE), program, url, BOOK], env=environment(), stderr=None)
    said: list[Any] = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each for each in said if "stray" in each] == []
    begun, *rest = said
    assert begun["session"] == 32
    assert begun["capabilities"]["resources"] == {"subscribe": True, "listChanged": True}
    assert rest == [
        {"asked": "How many of Emma?"},
        {"ordered": "2 of Emma, hard"},
        {"asked": "How many?"},
        {"asked": "How many more?"},
        {"interviewed": "2 words 1 2"},
        {"logged": ["debug", "info", "error"]},
        {"updated": BOOK},
        {"ended": True},
    ]


class Reader:
    """The callbacks of the Python client, and what they were told."""

    def __init__(self) -> None:
        self.levels: list[str] = []
        self.updated: list[str] = []

    async def fill_in(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        """Fill in a form."""
        return ElicitResult(action="accept", content={"copies": 2, "binding": "hard"})

    async def sample(self, context: ClientRequestContext, params: CreateMessageRequestParams) -> CreateMessageResult:
        """Say something."""
        return CreateMessageResult(role="assistant", model="none", content=TextContent(type="text", text="words"))

    async def roots(self, context: ClientRequestContext) -> ListRootsResult:
        """Name a folder."""
        return ListRootsResult(roots=[Root(uri=FileUrl("file:///home"))])

    async def log(self, params: LoggingMessageNotificationParams) -> None:
        """Keep a level."""
        self.levels.append(params.level)

    async def hear(self, message: object) -> None:
        """Keep what has changed."""
        if isinstance(message, ResourceUpdatedNotification):
            self.updated.append(str(message.params.uri))


async def test_the_python_client_needs_no_affinity() -> None:
    """The same, and its progress tokens and ids are its own."""
    reader = Reader()
    async with (
        balanced() as url,
        Client(
            url,
            mode="legacy",
            elicitation_callback=reader.fill_in,
            sampling_callback=reader.sample,
            list_roots_callback=reader.roots,
            logging_callback=reader.log,
            message_handler=reader.hear,
        ) as client,
    ):

        async def call(name: str, **arguments: Any) -> str:
            result = await client.call_tool(name, arguments)
            assert isinstance(result, CallToolResult)
            return text(result)

        assert await call("order", title="Emma") == "2 of Emma, hard"
        assert await call("interview") == "2 words 1 2"
        await client.set_logging_level("debug")
        await call("chat")
        await until(lambda: reader.levels == ["debug", "info", "error"])
        await client.subscribe_resource(BOOK)
        await call("place_hold", book=1)
        await until(lambda: reader.updated == [BOOK])
        await client.unsubscribe_resource(BOOK)
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(call, "interview")
