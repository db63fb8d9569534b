"""Sessions of the clients of 2025 in a whole fleet: whichever edge a request comes to, it is the same session."""

from __future__ import annotations

import re
from typing import Any, Final

import anyio
import pytest

from mcpfleet.app import App
from mcpfleet.testing.local import LocalFleet
from mcpfleet.wire.protocol import LEGACY, MODERN, OLDEST
from tests.contract.fleet.sessions_app import BOOK, asking, guarded
from tests.contract.fleet.visitor import FORM, Visitor, Visitors
from tests.kit.waiting import pause, until

NEWEST: Final = LEGACY[0]
STATED: Final[dict[str, list[str]]] = {
    "none": [],
    "its own": [NEWEST],
    "its own in two lines": [NEWEST, NEWEST],
    "its own twice in a line": [f"{NEWEST}, {NEWEST}"],
    "another that is served": [OLDEST],
    "another that is served, twice": [OLDEST, OLDEST],
    "its own and another": [NEWEST, OLDEST],
    "the modern one": [MODERN],
    "one that is not served": ["2024-11-05"],
    "one that is to come": ["2099-01-01"],
    "nonsense": ["nonsense"],
    "an empty one": [""],
}
"""Version headers of a message in a session, by what is odd about them."""
ITS_OWN: Final = ("none", "its own", "its own in two lines", "its own twice in a line")
OK: Final = [200, 202, 202, 200, 204]
REFUSED: Final = [400] * 5
UNKNOWN: Final = [404] * 5
"""The statuses of a request, a notification, a response, GET and DELETE."""


def said(result: Any) -> str:
    """The text of a tool's result."""
    [block] = result["content"]
    text = block["text"]
    assert isinstance(text, str)
    return text


# -- the session itself -----------------------------------------------------------------------------------------------


@pytest.mark.rule("M74", "L18", "invariant 1", "N25")
async def test_a_handshake_begins_a_session_that_every_edge_knows() -> None:
    """D11: what needs one is offered; its id is long, visible, and on that one response alone."""
    async with LocalFleet(asking(), edges=2) as fleet, Visitors(fleet) as visitors:
        visitor = Visitor(visitors.https)
        offered = await visitor.begin()
        assert visitor.session is not None
        assert re.fullmatch(r"[0-9a-f]{32}", visitor.session)
        assert offered["capabilities"] == {
            "tools": {"listChanged": True},
            "resources": {"subscribe": True, "listChanged": True},
            "logging": {},
        }
        for edge in (0, 1):
            response = await visitor.send({"jsonrpc": "2.0", "id": 1, "method": "ping"}, edge)
            assert response.json() == {"jsonrpc": "2.0", "id": 1, "result": {}}
            assert "mcp-session-id" not in response.headers


@pytest.mark.rule("L4")
async def test_a_session_needs_no_version_header_and_no_other_than_its_own() -> None:
    async with LocalFleet(asking(), edges=2) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one(version=OLDEST)
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        headers = {name: value for name, value in visitor.headers().items() if name != "mcp-protocol-version"}
        assert (await visitors.https[1].post("/mcp", json=ping, headers=headers)).status_code == 200
        other = await visitor.send(ping, 1, **{"mcp-protocol-version": LEGACY[0]})
        assert (other.status_code, other.json()["error"]["code"]) == (400, -32602)


@pytest.mark.rule("M76")
async def test_an_unknown_session_is_404_and_a_missing_one_400() -> None:
    """L5: for every kind of message, in the same words for each, and without an id: SDKs go by the status then.

    An error with the request's id would be the call's own to the Go SDK, which would keep a session that is gone.
    """
    async with LocalFleet(asking()) as fleet, Visitors(fleet) as visitors:
        stranger = Visitor(visitors.https)
        subscribe = {"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": {"uri": BOOK}}
        get = stranger.headers(accept="text/event-stream")
        assert (await stranger.send(subscribe)).status_code == 400
        assert (await visitors.https[0].get("/mcp", headers=get)).status_code == 400
        assert await stranger.delete() == 400
        stranger.session = "0" * 32
        told: set[bytes] = set()
        messages: list[Any] = [
            subscribe,
            {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": "x", "result": {}},
        ]
        for message in messages:
            response = await stranger.send(message)
            assert response.status_code == 404
            told.add(response.content)
        get = stranger.headers(accept="text/event-stream")
        response = await visitors.https[0].get("/mcp", headers=get)
        assert response.status_code == 404
        assert told == {b"", response.content}, "nothing is said to a notification (T4)"
        assert response.json().keys() == {"jsonrpc", "error"}
        assert await stranger.delete() == 404


@pytest.mark.rule("L21")
async def test_what_comes_in_a_session_is_of_its_revision() -> None:
    """By each way that something comes: a request, a notification, a response, GET and DELETE."""
    async with LocalFleet(asking()) as fleet, Visitors(fleet) as visitors:
        found = {name: await statuses(visitors, values) for name, values in STATED.items()}
    assert found == {name: OK if name in ITS_OWN else REFUSED for name in STATED}


@pytest.mark.rule("L21")
@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (["{}", "{}"], OK),
        (["{}, {}"], OK),
        (["{}, {},", "{}"], OK),
        (["{}", "another"], UNKNOWN),
        (["{}, another"], UNKNOWN),
        ([","], UNKNOWN),
    ],
)
async def test_a_session_that_is_named_twice_is_named_once(written: list[str], expected: list[int]) -> None:
    """The library that adds the version header a second time adds this one as well."""
    async with LocalFleet(asking()) as fleet, Visitors(fleet) as visitors:
        assert await statuses(visitors, [NEWEST], written) == expected


async def statuses(visitors: Visitors, stated: list[str], written: list[str] | None = None) -> list[int]:
    """Send everything that a session's client sends, in a session of its own.

    Args:
        visitors: who has it.
        stated: the version headers' values.
        written: the session headers' values; `{}` is the session's id.
    """
    visitor, [http] = await visitors.one(), visitors.https
    named = [each.replace("{}", visitor.session or "") for each in written or ["{}"]]
    kept = [pair for pair in visitor.headers().items() if pair[0] not in ("mcp-protocol-version", "mcp-session-id")]
    headers = [
        *kept,
        *(("mcp-protocol-version", each) for each in stated),
        *(("mcp-session-id", each) for each in named),
    ]
    messages: list[Any] = [
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"},
        {"jsonrpc": "2.0", "id": "x", "result": {}},
    ]
    found = [(await http.post("/mcp", json=message, headers=headers)).status_code for message in messages]
    async with http.stream("GET", "/mcp", headers=headers) as stream:
        found.append(stream.status_code)
    return [*found, (await http.delete("/mcp", headers=headers)).status_code]


@pytest.mark.rule("L20")
async def test_a_session_is_of_the_revision_that_the_handshakes_body_asks_for() -> None:
    async with LocalFleet(asking()) as fleet, Visitors(fleet) as visitors:
        for header in (None, OLDEST, "2024-11-05", MODERN, "2099-01-01", "nonsense", ""):
            visitor = Visitor(visitors.https)
            params = {"protocolVersion": NEWEST, "capabilities": {}, "clientInfo": {"name": "v", "version": "1"}}
            message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
            kept = {name: value for name, value in visitor.headers().items() if name != "mcp-protocol-version"}
            stated = {} if header is None else {"mcp-protocol-version": header}
            begun = await visitors.https[0].post("/mcp", json=message, headers=kept | stated)
            assert (begun.status_code, begun.json()["result"]["protocolVersion"]) == (200, NEWEST)
            visitor.session = begun.headers["mcp-session-id"]
            assert (await visitor.ask("ping"))["result"] == {}


@pytest.mark.rule("T36")
async def test_a_response_that_nobody_waits_for_is_taken_whatever_its_id() -> None:
    """M75: the server's ids are texts; what answers none of them means nothing, and is answered by nothing."""
    async with LocalFleet(asking()) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        for identifier in ("x", 1, None):
            members: list[dict[str, Any]] = [{"result": {}}, {"error": {"code": -1, "message": "no"}}]
            for member in members:
                response = await visitor.send({"jsonrpc": "2.0", "id": identifier, **member})
                assert (response.status_code, response.content) == (202, b"")


@pytest.mark.rule("L22")
async def test_a_capability_that_is_null_is_none() -> None:
    """As libraries write it that leave nothing out."""
    async with LocalFleet(asking()) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one(capabilities={"elicitation": {"form": None, "url": {}}, "sampling": None})
        refused = await visitor.call("order", {"title": "Emma"})
        assert "elicitation.form" in said(refused)


@pytest.mark.rule("M76")
async def test_a_stream_must_be_welcome() -> None:
    async with LocalFleet(asking()) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        get = visitor.headers(accept="application/json")
        response = await visitors.https[0].get("/mcp", headers=get)
        assert (response.status_code, response.json()["error"]["code"]) == (406, -32600)


@pytest.mark.rule("L8")
async def test_a_deleted_session_is_gone_at_every_edge_with_its_streams_and_calls() -> None:
    async with LocalFleet(asking(), edges=2) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        answers: list[Any] = []

        async def wait() -> None:
            params = {"name": "wait", "arguments": {}, "_meta": {"progressToken": "t"}}
            answers.append(await visitor.ask("tools/call", params, 1))

        async with visitor.watching(0) as watching, anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await until(lambda: visitor.told)
            assert await visitor.delete(1) == 204
            await until(lambda: answers == [None] and watching.is_over)
        assert await visitor.delete(0) == 404
        assert await visitor.ask("tools/list", edge=0) == 404


@pytest.mark.rule("L5")
async def test_a_session_is_its_owners_and_its_endpoints() -> None:
    """D10: the owner is who the token speaks for, and another token of the same one is the same owner."""
    tokens = [
        {"token": token, "subject": subject, "audience": "mcp"}
        for token, subject in (("ann-1", "ann"), ("ann-2", "ann"), ("bob-1", "bob"))
    ]
    async with guarded(tokens) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one(token="ann-1")
        visitor.token = "bob-1"
        assert await visitor.ask("ping") == 404
        assert await visitor.delete() == 404
        visitor.token = "ann-2"
        assert (await visitor.ask("ping"))["result"] == {}


@pytest.mark.rule("D11")
async def test_a_setting_serves_the_revisions_of_2025_without_sessions() -> None:
    endpoints = '{"mcp": {"path": "/mcp", "sessions": false}}'
    environment = {"MCPFLEET_ENDPOINTS": endpoints}
    async with LocalFleet(asking(), environment=environment) as fleet, Visitors(fleet) as visitors:
        visitor = Visitor(visitors.https)
        offered = await visitor.begin()
        assert visitor.session is None
        assert offered["capabilities"] == {"tools": {}, "resources": {}}
        told = await visitor.call("order", {"title": "Emma"})
        assert told["isError"] is True
        get = visitor.headers(accept="text/event-stream")
        assert (await visitors.https[0].get("/mcp", headers=get)).status_code == 405


# -- calls ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("L7", "invariant 1")
async def test_a_client_takes_a_call_back_at_any_edge() -> None:
    """The stream ends without a result, and the handler is stopped; what is unknown or over is left alone."""
    stopped: list[str] = []
    async with LocalFleet(asking(stopped), edges=2) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        answers: list[Any] = []

        async def wait(identifier: Any, meta: Any) -> None:
            params = {"name": "wait", "arguments": {}, "_meta": meta}
            answers.append(await visitor.ask("tools/call", params, 0, identifier))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, "mine", {"progressToken": "t"})
            await until(lambda: visitor.told)
            unknown: list[Any] = ["other", 7, None, {}]
            for gone in unknown:
                params = {"requestId": gone, "reason": 5}
                assert (await visitor.notify("notifications/cancelled", params, 1)).status_code == 202
            assert not answers
            await visitor.notify("notifications/cancelled", {"requestId": "mine"}, 1)
            await until(lambda: answers == [None])
        await until(lambda: stopped == ["wait"])


@pytest.mark.rule("I3")
async def test_a_key_whose_call_was_taken_back_is_uncertain_at_once() -> None:
    """D12: whoever takes a call back stops it, and nobody knows how far it came."""
    async with LocalFleet(asking()) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()

        async def reserve() -> None:
            params = {"name": "reserve", "arguments": {"key": "k"}, "_meta": {"progressToken": "t"}}
            await visitor.ask("tools/call", params, 0, "mine")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reserve)
            await until(lambda: visitor.told)
            await visitor.notify("notifications/cancelled", {"requestId": "mine"})
        with anyio.fail_after(10):
            again = await visitor.call("reserve", {"key": "k"})
        assert "unknown" in said(again)


@pytest.mark.rule("M78", "I2")
async def test_a_repeat_has_the_form_of_its_revision_too() -> None:
    app = App("library", version="1.0.0")

    @app.tool(idempotency_key="request")
    async def count(request: str) -> dict[str, int] | list[int]:
        """Count; a result that may be no object stands below a member in the revisions of 2025."""
        return {"length": len(request)}

    async with LocalFleet(app) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        results = [await visitor.call("count", {"request": "abc"}) for _ in range(2)]
    assert [result["structuredContent"] for result in results] == [{"result": {"length": 3}}] * 2


@pytest.mark.rule("P2")
async def test_progress_goes_forward_over_the_rounds_of_a_call() -> None:
    async with LocalFleet(asking()) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        visitor.answers = {"elicitation/create": FORM}
        await visitor.call("order", {"title": "Emma"}, _meta={"progressToken": "t"})
        assert [each["params"]["progress"] for each in visitor.told] == [1, 2]


async def test_an_id_that_runs_is_not_taken_twice() -> None:
    """The error table: 200, -32600; a text is another id than a number."""
    async with LocalFleet(asking()) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()

        async def wait() -> None:
            params = {"name": "wait", "arguments": {}, "_meta": {"progressToken": "t"}}
            await visitor.ask("tools/call", params, 0, 5)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await until(lambda: visitor.told)
            assert (await visitor.ask("ping", identifier=5))["error"]["code"] == -32600
            assert (await visitor.ask("ping", identifier="5"))["result"] == {}
            await visitor.notify("notifications/cancelled", {"requestId": 5})


@pytest.mark.rule("L15")
async def test_a_progress_token_that_is_taken_reports_nothing() -> None:
    started: list[str] = []
    async with LocalFleet(asking(started=started)) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        other = Visitor(visitors.https)
        other.session = visitor.session
        params = {"name": "wait", "arguments": {}, "_meta": {"progressToken": "t"}}

        async def wait(who: Visitor, identifier: str) -> None:
            await who.ask("tools/call", params, 0, identifier)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, visitor, "one")
            await until(lambda: visitor.told)
            started.clear()
            tasks.start_soon(wait, other, "two")
            await until(lambda: started)
            await visitor.notify("notifications/cancelled", {"requestId": "one"})
            await visitor.notify("notifications/cancelled", {"requestId": "two"})
        assert len(visitor.told) == 1
        assert not other.told


@pytest.mark.rule("M80")
async def test_the_log_level_is_the_sessions_at_every_edge() -> None:
    """Log messages come on the stream of their call."""
    async with LocalFleet(asking(), edges=2) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()

        async def levels(edge: int) -> list[str]:
            visitor.told.clear()
            await visitor.call("chat", edge=edge)
            return [each["params"]["level"] for each in visitor.told]

        assert await levels(0) == ["info", "error"]
        assert (await visitor.ask("logging/setLevel", {"level": "debug"}, 1))["result"] == {}
        await until_equal(levels, 0, ["debug", "info", "error"])
        assert (await visitor.ask("logging/setLevel", {"level": "error"}, 0))["result"] == {}
        await until_equal(levels, 1, ["error"])
        assert (await visitor.ask("logging/setLevel", {"level": "loud"}))["error"]["code"] == -32602


async def until_equal(levels: Any, edge: int, wanted: list[str]) -> None:
    """An edge may go by what it knew until the hint is there."""
    with anyio.fail_after(5):
        while await levels(edge) != wanted:
            await pause()
