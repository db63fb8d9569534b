"""Clients of 2025 over `mcpfleet stdio`: sessions, questions of the server, cancels, streams that go on."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from mcpfleet.cli.stdio import session
from tests.kit.waiting import until
from tests.unit.cli.stdio.scripted import WITHIN, Asked, Client, pumping

VERSION = "2025-11-25"
CAPABILITIES = {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "logging": {}}


def result(identifier: Any, **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identifier, "result": members}


class Server:
    """A server of 2025 with sessions, which a test may have forget them."""

    def __init__(self) -> None:
        self.sessions: list[str] = []
        self.live: set[str] = set()
        self.posted: list[tuple[str, str | None]] = []
        """The posts: each one's method or kind, and its session."""
        self.bodies: list[Any] = []
        self.ended: list[str | None] = []
        self.get = anyio.Event()
        self.opened: list[str | None] = []
        """The sessions of the GET streams."""
        self.said: list[Any] = []
        """The messages of the next GET stream."""
        self.capabilities: Any = CAPABILITIES

    async def __call__(self, asked: Asked) -> None:
        own = asked.headers.get("mcp-session-id")
        if asked.method == "DELETE":
            self.ended.append(own)
            return await asked.reply(204)
        if asked.method == "POST" and asked.message.get("method") == "initialize":
            assert "mcp-protocol-version" not in asked.headers
            name = f"s{len(self.sessions) + 1}"
            self.sessions.append(name)
            self.live.add(name)
            agreed = {"protocolVersion": VERSION, "capabilities": self.capabilities, "serverInfo": {"name": "s"}}
            return await asked.answer(agreed, mcp_session_id=name)
        if own not in self.live:
            return await asked.reply(404, {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "gone"}})
        assert asked.headers["mcp-protocol-version"] == VERSION
        if asked.method == "GET":
            return await self._hear(asked)
        self.posted.append((asked.message.get("method", "answer"), own))
        self.bodies.append(asked.message)
        return await self.serve(asked)

    async def _hear(self, asked: Asked) -> None:
        self.opened.append(asked.headers.get("mcp-session-id"))
        await asked.stream()
        for message in self.said:
            await asked.event(message)
        self.get.set()
        await asked.gone.wait()

    async def serve(self, asked: Asked) -> None:
        """Answer what was posted; a test may replace it."""
        if "id" in asked.message and "method" in asked.message:
            await asked.answer({})
        else:
            await asked.reply(202)


async def begin(client: Client) -> None:
    """Begin a session, as clients do."""
    await client.ask(0, "initialize", {"protocolVersion": VERSION, "capabilities": {}}, modern=False)
    assert (await client.hear())["result"]["protocolVersion"] == VERSION
    await client.tell("notifications/initialized")


async def test_a_session_is_begun_used_heard_and_ended() -> None:
    changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    server = Server()
    server.said = [changed]
    async with pumping(server) as pumped:
        await begin(pumped.client)
        await pumped.client.ask(1, "tools/list", modern=False)
        assert sorted([str(await pumped.client.hear()) for _ in range(2)]) == sorted([str(changed), str(result(1))])
        assert server.posted == [("notifications/initialized", "s1"), ("tools/list", "s1")]
        pumped.client.close()
        with anyio.fail_after(2.0):
            await pumped.ended.wait()
    assert server.ended == ["s1"]


async def test_the_first_request_waits_for_the_stream_of_changes() -> None:
    """A change that a request causes, or that follows a subscription, is heard."""
    server, was_open = Server(), []

    async def serve(asked: Asked) -> None:
        was_open.append(server.get.is_set())
        await (asked.answer({}) if "id" in asked.message else asked.reply(202))

    server.serve = serve  # type: ignore[method-assign]
    async with pumping(server) as pumped:
        await begin(pumped.client)
        await pumped.client.ask(1, "tools/call", {"name": "a"}, modern=False)
        assert await pumped.client.hear() == result(1)
    assert was_open == [False, True]


async def test_a_question_of_the_server_is_answered_by_a_post() -> None:
    server, answered = Server(), anyio.Event()
    question = {"jsonrpc": "2.0", "id": "q1", "method": "elicitation/create", "params": {"message": "?"}}

    async def serve(asked: Asked) -> None:
        if "result" in asked.message:
            await asked.reply(202)
            answered.set()
        elif asked.message.get("method") == "tools/call":
            await asked.stream()
            await asked.event(question)
            await answered.wait()
            await asked.event(result(asked.message["id"], done=True))
            await asked.end()
        else:
            await asked.reply(202)

    server.serve = serve  # type: ignore[method-assign]
    async with pumping(server) as pumped:
        await begin(pumped.client)
        await pumped.client.ask(1, "tools/call", {"name": "a"}, modern=False)
        assert await pumped.client.hear() == question
        await pumped.client.send(result("q1", action="accept"))
        assert await pumped.client.hear() == result(1, done=True)
    assert result("q1", action="accept") in server.bodies


async def test_a_forgotten_session_is_made_again_with_what_the_client_had_set() -> None:
    """The specification has a client begin anew; the call that met the 404 has not run, and is sent again once."""
    server = Server()
    async with pumping(server) as pumped:
        await begin(pumped.client)
        await pumped.client.ask(1, "logging/setLevel", {"level": "error"}, modern=False)
        await pumped.client.hear()
        await pumped.client.ask(2, "resources/subscribe", {"uri": "shop://a"}, modern=False)
        await pumped.client.hear()
        await server.get.wait()
        server.live.clear()
        for identifier in (3, 4):
            await pumped.client.ask(identifier, "tools/call", {"name": "a"}, modern=False)
        heard = [await pumped.client.hear() for _ in range(4)]
        await until(lambda: server.opened == ["s1", "s2"])
    told = [message["method"] for message in heard if "method" in message]
    assert told == ["notifications/tools/list_changed", "notifications/resources/updated"]
    assert sorted(message["id"] for message in heard if "result" in message) == [3, 4]
    renewed = [method for method, own in server.posted if own == "s2"]
    assert renewed[:3] == ["notifications/initialized", "logging/setLevel", "resources/subscribe"]
    assert (renewed.count("tools/call"), server.sessions) == (2, ["s1", "s2"])


async def test_a_session_that_would_be_another_is_not_made_again() -> None:
    server = Server()
    async with pumping(server) as pumped:
        await begin(pumped.client)
        server.capabilities = {}
        server.live.clear()
        await pumped.client.ask(1, "tools/call", {"name": "a"}, modern=False)
        said = (await pumped.client.hear())["error"]["message"]
    assert "capabilities changed" in said
    assert "start this connection again" in said


@pytest.mark.rule("P8")
async def test_a_cancel_is_posted_after_its_request_and_nothing_more_comes_of_it() -> None:
    server, cancelled = Server(), anyio.Event()

    async def serve(asked: Asked) -> None:
        if asked.message.get("method") == "tools/call":
            await asked.stream()
            await cancelled.wait()
            await asked.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}})
            await asked.end()
        elif "id" in asked.message:
            await asked.answer({})
        else:
            if asked.message["method"] == "notifications/cancelled":
                cancelled.set()
            await asked.reply(202)

    server.serve = serve  # type: ignore[method-assign]
    async with pumping(server) as pumped:
        await begin(pumped.client)
        await pumped.client.ask(1, "tools/call", {"name": "a"}, modern=False)
        await pumped.client.tell("notifications/cancelled", {"requestId": 1})
        with anyio.fail_after(WITHIN):
            await cancelled.wait()
        await pumped.client.ask(2, "ping", modern=False)
        assert await pumped.client.hear() == result(2)
    methods = [method for method, _ in server.posted]
    assert methods.index("tools/call") < methods.index("notifications/cancelled")


@pytest.mark.rule("B32")
@pytest.mark.parametrize("is_modern", [True, False])
async def test_the_end_of_the_input_cancels_what_runs_within_two_seconds(is_modern: bool) -> None:
    server, left = Server(), anyio.Event()

    async def serve(asked: Asked) -> None:
        if asked.message.get("method") == "tools/call":
            await asked.stream()
            await asked.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}})
            await asked.gone.wait()
            left.set()
        else:
            await asked.reply(202)

    async def script(asked: Asked) -> None:
        await (serve(asked) if is_modern else server(asked))

    server.serve = serve  # type: ignore[method-assign]
    async with pumping(script) as pumped:
        if not is_modern:
            await begin(pumped.client)
        await pumped.client.ask(1, "tools/call", {"name": "a"}, modern=is_modern)
        await pumped.client.hear()
        pumped.client.close()
        with anyio.fail_after(2.0):
            await pumped.ended.wait()
        with anyio.fail_after(WITHIN):
            await left.wait()
    if not is_modern:
        assert ("notifications/cancelled", "s1") in server.posted
        assert server.ended == ["s1"]


async def test_a_stream_with_event_ids_is_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    resumed: list[str] = []

    async def serve(asked: Asked) -> None:
        if asked.message.get("method") == "tools/call":
            await asked.stream()
            await asked.event("", id="e1", retry="10")
            await asked.end()
        else:
            await asked.reply(202)

    async def script(asked: Asked) -> None:
        if asked.method == "GET" and "last-event-id" in asked.headers:
            resumed.append(asked.headers["last-event-id"])
            await asked.stream()
            if len(resumed) == 2:
                await asked.event(result(1, late=True), id="e3")
            else:
                await asked.event("", id="e2")
            await asked.end()
        else:
            await server(asked)

    server.serve = serve  # type: ignore[method-assign]
    async with pumping(script) as pumped:
        await begin(pumped.client)
        await pumped.client.ask(1, "tools/call", {"name": "a"}, modern=False)
        assert await pumped.client.hear() == result(1, late=True)
    assert resumed == ["e1", "e2"]


async def test_a_get_stream_that_ends_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_LONGEST_PAUSE", 0.01)
    server = Server()
    opened: list[str] = []

    async def script(asked: Asked) -> None:
        if asked.method != "GET":
            return await server(asked)
        opened.append(asked.headers["mcp-session-id"])
        if len(opened) == 1:
            return await asked.reply(503)
        if len(opened) == 2:
            await asked.stream()
            return await asked.end()
        server.said = [{"jsonrpc": "2.0", "method": "notifications/message", "params": {}}]
        return await server(asked)

    async with pumping(script) as pumped:
        await begin(pumped.client)
        assert (await pumped.client.hear())["method"] == "notifications/message"
    assert opened == ["s1"] * 3


async def test_a_server_without_the_stream_is_not_asked_again() -> None:
    server = Server()
    asks: list[str] = []

    async def script(asked: Asked) -> None:
        if asked.method == "GET":
            asks.append(asked.method)
            await asked.reply(405)
        else:
            await server(asked)

    async with pumping(script) as pumped:
        await begin(pumped.client)
        await until(lambda: asks)
        await pumped.client.ask(1, "ping", modern=False)
        assert await pumped.client.hear() == result(1)
    assert asks == ["GET"]
