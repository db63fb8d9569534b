"""Clients of the revisions of 2025, over any edge, without a session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import anyio
import psutil
import pytest
from h2.errors import ErrorCodes
from h2.events import ResponseReceived
from mcp import Client
from mcp.shared.exceptions import MCPError

from mcpfleet.testing.fleet import Fleet
from mcpfleet.wire.protocol import LEGACY
from tests.kit.http2 import HEAD, Peer
from tests.kit.raw import connected
from tests.kit.waiting import until

APP = Path(__file__).with_name("app.py")
LIBRARY = Path(__file__).parents[2] / "examples" / "library.py"


async def post(url: str, method: str, params: dict[str, Any], version: str = LEGACY[0]) -> Any:
    """Ask as a client of 2025 does, on a connection of its own."""
    async with connected(url) as connection:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        await connection.send_body(json.dumps(message).encode(), {"MCP-Protocol-Version": version})
        return (await connection.answer()).message


@pytest.mark.rule("D11")
async def test_the_official_client_of_2025_is_served() -> None:
    async with Fleet(LIBRARY, edges=2) as fleet, Client(fleet.urls[0], mode="legacy") as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools["search"].output_schema is not None
        assert tools["search"].output_schema["type"] == "object", "M78: a list is wrapped"
        found = await client.call_tool("search", {"query": "e"})
        assert not found.is_error
        assert isinstance(found.structured_content, dict)
        assert found.structured_content.keys() == {"result"}
        with pytest.raises(MCPError) as raised:
            await client.read_resource("library://nothing")
        assert raised.value.error.code == -32002


@pytest.mark.rule("L1", "invariant 1")
async def test_each_request_may_come_to_another_edge() -> None:
    async with Fleet(APP, edges=2) as fleet:
        handshake = {"protocolVersion": LEGACY[1], "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        agreed = await post(fleet.urls[0], "initialize", handshake)
        assert agreed["result"]["protocolVersion"] == LEGACY[1]
        called = await post(fleet.urls[1], "tools/call", {"name": "add", "arguments": {"left": 2, "right": 3}})
        assert called["result"]["structuredContent"] == {"result": 5}
        assert "resultType" not in called["result"]


@pytest.mark.rule("P9")
async def test_a_client_of_2025_that_leaves_has_not_cancelled(tmp_path: Path) -> None:
    async with Fleet(APP) as fleet:
        async with connected(fleet.urls[0]) as connection:
            params = {"name": "hold", "arguments": {"folder": str(tmp_path)}}
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            await connection.send_body(json.dumps(message).encode(), {"MCP-Protocol-Version": LEGACY[0]})
            await until((tmp_path / "started").exists, within=10)
        (tmp_path / "release").touch()
        await until((tmp_path / "finished").exists, within=10)
    assert not (tmp_path / "cancelled").exists()


@pytest.mark.rule("L19")
async def test_a_call_with_a_closed_post_holds_no_descriptor_and_can_be_cancelled(tmp_path: Path) -> None:
    """As the Go SDK and rmcp take a call back."""
    headers = {"MCP-Protocol-Version": LEGACY[0]}
    async with Fleet(APP) as fleet, connected(fleet.urls[0]) as connection:
        own = {"protocolVersion": LEGACY[0], "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        handshake = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": own}
        await connection.send_body(json.dumps(handshake).encode(), {})
        headers |= {"Mcp-Session-Id": (await connection.answer()).headers["mcp-session-id"]}
        edge = psutil.Process(fleet.edges[0].pid)
        before = edge.num_fds()
        async with connected(fleet.urls[0]) as held:
            params = {"name": "hold", "arguments": {"folder": str(tmp_path)}}
            message = {"jsonrpc": "2.0", "id": "mine", "method": "tools/call", "params": params}
            await held.send_body(json.dumps(message).encode(), headers)
            await until((tmp_path / "started").exists)
            assert edge.num_fds() > before
        await until(lambda: edge.num_fds() <= before)
        assert not (tmp_path / "cancelled").exists()
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "mine"}}
        await connection.send_body(json.dumps(cancel).encode(), headers)
        assert (await connection.answer()).status == 202
        await until((tmp_path / "cancelled").exists)


@pytest.mark.rule("L19")
async def test_a_call_with_a_reset_stream_can_be_cancelled_over_its_connection(tmp_path: Path) -> None:
    """The connection of HTTP/2 has other requests, and goes on."""
    own = {"protocolVersion": LEGACY[0], "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    async with Fleet(APP) as fleet:
        at = urlsplit(fleet.urls[0])
        async with await anyio.connect_tcp(at.hostname or "", at.port or 0) as stream:
            peer = Peer(stream)
            peer.http.initiate_connection()
            session = dict((await asked(peer, 1, at, method="initialize", params=own)).headers)[b"mcp-session-id"]
            params = {"name": "hold", "arguments": {"folder": str(tmp_path)}}
            await posted(peer, 3, at, session=session, id="mine", method="tools/call", params=params)
            await until((tmp_path / "started").exists)
            await anyio.sleep(0.15)  # in a call's first tenth of a second nobody watches for its client's leaving
            peer.http.reset_stream(3, ErrorCodes.CANCEL)
            ping = {"session": session, "id": 2, "method": "ping"}
            assert dict((await asked(peer, 5, at, **ping)).headers)[b":status"] == b"200"
            assert not (tmp_path / "cancelled").exists()
            cancel = {"method": "notifications/cancelled", "params": {"requestId": "mine"}}
            assert dict((await asked(peer, 7, at, session=session, **cancel)).headers)[b":status"] == b"202"
            await until((tmp_path / "cancelled").exists)
            assert dict((await asked(peer, 9, at, **ping)).headers)[b":status"] == b"200"


async def posted(peer: Peer, stream: int, at: SplitResult, *, session: bytes | None = None, **message: Any) -> None:
    """Post a message over HTTP/2; a request has the id 0 where none is given."""
    identified = {} if message["method"].startswith("notifications/") else {"id": 0}
    body = json.dumps({"jsonrpc": "2.0", **identified, **message}).encode()
    head = HEAD | {b":path": at.path.encode(), b":authority": at.netloc.encode(), b"content-type": b"application/json"}
    head |= {b"accept": b"*/*", b"content-length": b"%d" % len(body)}
    if session is not None:
        head |= {b"mcp-session-id": session}
    peer.http.send_headers(stream, list(head.items()))
    peer.http.send_data(stream, body, end_stream=True)
    await peer.send()


async def asked(peer: Peer, stream: int, at: SplitResult, **message: Any) -> ResponseReceived:
    """Post a message, and wait for the head of its answer."""
    await posted(peer, stream, at, **message)
    with anyio.fail_after(10):
        found: ResponseReceived = await peer.until(ResponseReceived, stream)
    return found


@pytest.mark.rule("D3")
@pytest.mark.parametrize("version", LEGACY)
async def test_arguments_that_fail_the_schema_are_told_as_the_revision_has_it(version: str) -> None:
    """2025-06-18 knows them as an error of the protocol, and later revisions as a result that the model reads."""
    async with Fleet(APP) as fleet:
        told = await post(fleet.urls[0], "tools/call", {"name": "add", "arguments": {"left": "x"}}, version)
    if version == "2025-06-18":
        assert told["error"]["code"] == -32602
    else:
        assert told["result"]["isError"] is True
