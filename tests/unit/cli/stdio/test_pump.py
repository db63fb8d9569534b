"""The pump of `mcpfleet stdio` before servers that behave well and badly: every request gets one answer."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from mcpfleet.cli.stdio import endpoint, requests
from mcpfleet.cli.stdio.messages import VERSION_KEY
from mcpfleet.wire.protocol import PROTOCOL_VERSION_META_KEY
from tests.kit.waiting import until
from tests.unit.cli.stdio.scripted import MODERN, WITHIN, Asked, pumping


def result(identifier: Any, **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identifier, "result": members}


def test_the_key_of_the_revision_is_the_protocols_own() -> None:
    assert VERSION_KEY == PROTOCOL_VERSION_META_KEY


async def test_bytes_pass_unchanged_in_both_directions() -> None:
    """Members that nobody knows, nulls, spaces and numbers of any length go through."""
    sent = (
        b'{ "jsonrpc":"2.0", "id":7 ,"method":"x/y","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":'
        b'"2026-07-28"},"n":' + b"9" * 5000 + b',"no":null,"t":"\\u00e9 \xe2\x80\xa8"}}'
    )
    answer = '{"jsonrpc": "2.0", "id": 7, "result": {"n": 123456789012345678901234567890, "f": 1.10, "x": null}}'
    got = []

    async def script(asked: Asked) -> None:
        got.append(asked.body)
        await asked.reply(200, answer, content_type="application/json")

    async with pumping(script) as pumped:
        await pumped.client.send(sent)
        assert await pumped.client.line() == answer.encode()
    assert got == [sent]


async def test_a_message_of_several_lines_becomes_one() -> None:
    async def script(asked: Asked) -> None:
        if asked.message["id"] == 1:
            return await asked.reply(200, json.dumps(result(1, a=[1]), indent=1), content_type="application/json")
        await asked.stream()
        return await asked.event('{"jsonrpc":"2.0",\n"id":2,\n"result":{}}')

    async with pumping(script) as pumped:
        await pumped.client.ask(1, "tools/list")
        assert await pumped.client.hear() == result(1, a=[1])
        await pumped.client.ask(2, "tools/list")
        assert await pumped.client.hear() == result(2)


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "add"}, "add"),
        ("tools/call", {"name": "größe"}, "=?base64?Z3LDtsOfZQ==?="),
        ("resources/read", {"uri": "shop://a"}, "shop://a"),
        ("prompts/get", {"name": " padded"}, "=?base64?IHBhZGRlZA==?="),
        ("tasks/get", {"taskId": "t1"}, "t1"),
        ("tools/list", {}, None),
    ],
)
async def test_a_modern_request_is_repeated_in_headers(method: str, params: dict[str, Any], name: str | None) -> None:
    heads: list[Any] = []

    async def script(asked: Asked) -> None:
        heads.append(asked.headers)
        await asked.answer({})

    async with pumping(script) as pumped:
        await pumped.client.ask(1, method, params)
        await pumped.client.hear()
    [head] = heads
    assert (head["mcp-protocol-version"], head["mcp-method"], head.get("mcp-name")) == (MODERN, method, name)
    assert "mcp-session-id" not in head


SCHEMA = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
BAD = {"type": "object", "properties": {"r": {"type": "number", "x-mcp-header": "R"}}}


@pytest.mark.rule("M6")
async def test_listed_tools_tell_which_arguments_are_repeated_in_headers() -> None:
    """M7: a tool whose annotations break the rules is left out of the list."""
    heads: list[Any] = []

    async def script(asked: Asked) -> None:
        heads.append(asked.headers)
        tools = [{"name": "q", "inputSchema": SCHEMA}, {"name": "bad", "inputSchema": BAD}]
        await asked.answer({"tools": tools} if asked.message["method"] == "tools/list" else {})

    async with pumping(script) as pumped:
        await pumped.client.ask(1, "tools/list")
        assert [tool["name"] for tool in (await pumped.client.hear())["result"]["tools"]] == ["q"]
        await pumped.client.ask(2, "tools/call", {"name": "q", "arguments": {"region": "west"}})
        await pumped.client.hear()
        await pumped.client.ask(3, "tools/call", {"name": "q", "arguments": {"region": None}})
        await pumped.client.hear()
    assert [head.get("mcp-param-region") for head in heads] == [None, "west", None]


async def test_a_call_with_other_headers_than_expected_is_sent_again_once_after_a_list() -> None:
    asks: list[str] = []

    async def script(asked: Asked) -> None:
        asks.append(asked.message["method"])
        if asked.message["method"] == "tools/list":
            await asked.answer({"tools": [{"name": "q", "inputSchema": SCHEMA}]})
        elif asked.headers.get("mcp-param-region") == "west":
            await asked.answer({"ran": True})
        else:
            error = {"code": -32020, "message": "Mcp-Param-Region is missing"}
            await asked.reply(400, {"jsonrpc": "2.0", "id": asked.message["id"], "error": error})

    async with pumping(script) as pumped:
        await pumped.client.ask(1, "tools/call", {"name": "q", "arguments": {"region": "west"}})
        assert await pumped.client.hear() == result(1, ran=True)
        await pumped.client.ask(2, "tools/call", {"name": "other", "arguments": {"region": "west"}})
        assert (await pumped.client.hear())["error"]["code"] == -32020
    assert asks == ["tools/call", "tools/list", "tools/call", "tools/call", "tools/list"]


@pytest.mark.parametrize(
    ("status", "headers", "says"),
    [
        (401, {}, "--token @FILE"),
        (401, {"www_authenticate": 'Bearer error="invalid_token"'}, "does not take this token"),
        (403, {}, "lack a scope"),
        (404, {}, "is not an endpoint"),
        (405, {}, "does not speak Streamable HTTP"),
        (429, {"retry_after": "7"}, "try again in 7 s"),
        (502, {}, "may have run"),
        (503, {}, "try again later"),
        (302, {"location": "http://127.0.0.1:1/"}, "redirects"),
        (202, {}, "without a result"),
        (200, {}, "may not be an MCP server"),
    ],
)
async def test_an_answer_that_is_no_message_becomes_an_error_that_says_what_to_do(
    status: int, headers: dict[str, str], says: str
) -> None:
    async def script(asked: Asked) -> None:
        await asked.reply(status, "<html>", **headers)

    async with pumping(script) as pumped:
        await pumped.client.ask("a", "tools/list")
        answer = await pumped.client.hear()
    assert (answer["id"], answer["error"]["code"], answer["error"]["data"]["status"]) == ("a", -32603, status)
    assert says in answer["error"]["message"]


async def test_the_servers_own_error_passes_and_one_without_an_id_gets_the_requests() -> None:
    error = {"code": -32022, "message": "no", "data": {"supported": []}}

    async def script(asked: Asked) -> None:
        own = {"id": 1} if asked.message["id"] == 1 else {"id": None}
        await asked.reply(400, {"jsonrpc": "2.0", **own, "error": error})

    async with pumping(script) as pumped:
        for identifier in (1, "1"):
            await pumped.client.ask(identifier, "server/discover")
            assert await pumped.client.hear() == {"jsonrpc": "2.0", "id": identifier, "error": error}


async def test_a_lost_connection_is_an_error_that_leaves_open_whether_it_ran() -> None:
    async def script(asked: Asked) -> None:
        if asked.message["id"] == 2:
            await asked.stream()
            await asked.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}})

    async with pumping(script) as pumped:
        await pumped.client.ask(1, "tools/call", {"name": "a"})
        assert "may have run" in (await pumped.client.hear())["error"]["message"]
        await pumped.client.ask(2, "tools/call", {"name": "a"})
        assert (await pumped.client.hear())["method"] == "notifications/progress"
        assert "may have run" in (await pumped.client.hear())["error"]["message"]


async def test_a_refused_connection_is_tried_again_and_then_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "CONNECTED_WITHIN", 0.3)

    async def script(asked: Asked) -> None:
        raise AssertionError(asked)

    async with pumping(script, url="http://127.0.0.1:1/mcp") as pumped:
        await pumped.client.ask(1, "tools/call", {"name": "a"})
        said = (await pumped.client.hear())["error"]["message"]
    assert "cannot connect to http://127.0.0.1:1/mcp" in said
    assert "Nothing was sent" in said


@pytest.mark.rule("B32")
@pytest.mark.parametrize(
    ("line", "code", "identifier"),
    [
        (b"nonsense", -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":NaN}}', -32700, None),
        (b"\xff\xfe{}", -32700, None),
        (b"[" * 100_000, -32700, None),
        (b"[]", -32600, None),
        (b"7", -32600, None),
        (b'{"jsonrpc":"2.0","id":5}', -32600, 5),
        (b'{"jsonrpc":"2.0","id":true,"method":"x"}', -32600, None),
    ],
)
async def test_a_line_that_is_no_message_gets_an_error_and_the_next_one_works(
    line: bytes, code: int, identifier: int | None
) -> None:
    async def script(asked: Asked) -> None:
        await asked.answer({})

    async with pumping(script) as pumped:
        await pumped.client.send(line)
        answer = await pumped.client.hear()
        assert (answer["id"], answer["error"]["code"]) == (identifier, code)
        await pumped.client.ask(1, "tools/list")
        assert await pumped.client.hear() == result(1)


async def test_a_modern_cancel_closes_the_requests_stream_and_nothing_more_comes_of_it() -> None:
    posted: list[str] = []
    closed = anyio.Event()

    async def script(asked: Asked) -> None:
        posted.append(asked.message["method"])
        if asked.message["method"] == "tools/list":
            return await asked.answer({})
        await asked.stream()
        await asked.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}})
        await asked.gone.wait()
        closed.set()
        return None

    async with pumping(script) as pumped:
        await pumped.client.ask(1, "tools/call", {"name": "a"})
        await pumped.client.hear()
        await pumped.client.tell("notifications/cancelled", {"requestId": 1})
        with anyio.fail_after(WITHIN):
            await closed.wait()
        await pumped.client.ask(2, "tools/list")
        assert await pumped.client.hear() == result(2)
    assert posted == ["tools/call", "tools/list"]


async def test_a_listen_stream_that_breaks_ends_by_the_notification_of_stdio() -> None:
    acknowledged = {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {}}

    async def script(asked: Asked) -> None:
        await asked.stream()
        if asked.message["id"] == 2:
            await asked.event(acknowledged)

    async with pumping(script) as pumped:
        await pumped.client.ask(1, "subscriptions/listen")
        assert (await pumped.client.hear())["error"]["code"] == -32603
        await pumped.client.ask(2, "subscriptions/listen")
        assert await pumped.client.hear() == acknowledged
        ended = await pumped.client.hear()
    assert (ended["method"], ended["params"]["requestId"]) == ("notifications/cancelled", 2)


async def test_a_redirect_within_the_server_is_followed_and_no_other_gets_the_token() -> None:
    seen: list[Any] = []

    async def foreign(asked: Asked) -> None:
        seen.append(asked)

    async def script(asked: Asked) -> None:
        assert asked.headers["authorization"] == "Bearer t"
        if asked.message["id"] == 2:
            await asked.reply(308, location="http://localhost:1/mcp")
        elif "again" not in asked.headers:
            await asked.reply(307, location="/mcp/")

    async with pumping(script, secrets=lambda: {"Authorization": "Bearer t"}) as pumped:
        await pumped.client.ask(1, "tools/list")
        assert "redirects more than" in (await pumped.client.hear())["error"]["message"]
        await pumped.client.ask(2, "tools/list")
        assert "redirects to another server" in (await pumped.client.hear())["error"]["message"]
    assert seen == []


async def test_many_requests_run_at_once_and_one_too_many_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from mcpfleet.cli.stdio import pump

    monkeypatch.setattr(pump, "MOST_RUNNING", 40)
    together, all_there = [], anyio.Event()

    async def script(asked: Asked) -> None:
        together.append(asked)
        if len(together) == 40:
            all_there.set()
        await all_there.wait()
        await asked.answer({})

    async with pumping(script) as pumped:
        for number in range(39):
            await pumped.client.ask(number, "tools/list")
        await until(lambda: len(together) == 39)
        await pumped.client.ask(39, "tools/list")
        await pumped.client.ask(40, "tools/list")
        answers = [await pumped.client.hear() for _ in range(41)]
    refused = [answer["id"] for answer in answers if "error" in answer]
    assert refused in ([40], [])
    assert {answer["id"] for answer in answers} == set(range(41))


async def test_a_secret_that_cannot_be_read_any_more_is_an_error_of_the_request() -> None:
    from mcpfleet.process.errors import ConfigurationError

    async def script(asked: Asked) -> None:
        raise AssertionError(asked)

    def secrets() -> dict[str, str]:
        raise ConfigurationError("--token: cannot read t: No such file or directory")

    async with pumping(script, secrets=secrets) as pumped:
        await pumped.client.ask(1, "tools/list")
        assert "cannot read t" in (await pumped.client.hear())["error"]["message"]


async def test_a_mistake_of_ours_is_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request is left without an answer, whatever fails."""

    async def script(asked: Asked) -> None:
        raise AssertionError(asked)

    def fail(*_: object) -> str:
        raise ZeroDivisionError

    monkeypatch.setattr(requests, "encode", fail)
    async with pumping(script) as pumped:
        await pumped.client.ask(1, "tools/call", {"name": "a"})
        assert "standard error says how" in (await pumped.client.hear())["error"]["message"]
