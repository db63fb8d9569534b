"""Languages in a whole fleet: lists, handlers' texts, questions, tasks and changes, at every edge (X30 to X40)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp_types import HEADER_MISMATCH, TextContent

from mcpfleet.app import load
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.languages_app import ACCEPT, CONTENT, GERMAN, Shop, ask, write
from tests.contract.fleet.listener import ACK, Listener, changed, listening
from tests.contract.fleet.test_files import QUICK
from tests.contract.fleet.visitor import Visitors, events
from tests.kit.tree import ROOT
from tests.kit.waiting import until
from tests.unit.edge.asgi import call, request

FORMS: Mapping[str, Any] = {"elicitation": {"form": {}}}
TASKS: Mapping[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


@asynccontextmanager
async def serving(
    root: Path, *, edges: int = 1, environment: dict[str, str] | None = None, **options: Any
) -> AsyncIterator[tuple[LocalFleet, httpx2.AsyncClient]]:
    """A fleet that serves the shop, and a client of its first edge."""
    shop = Shop.at(root, **options)
    async with LocalFleet(shop.app, edges=edges, environment=environment or {}) as fleet, fleet.http() as http:
        yield fleet, http


async def listed(http: httpx2.AsyncClient, language: str | None = None, header: str | None = None) -> Any:
    """List the tools, and return the one that searches, with what `_meta` and the headers say of the language."""
    response = await ask(http, "tools/list", language, header)
    result = response.json()["result"]
    [search] = [each for each in result["tools"] if each["name"] == "search"]
    return search["title"], result["_meta"].get(CONTENT), response.headers.get("content-language")


async def messages(response: httpx2.Response) -> list[Any]:
    """The messages of an answer that is a stream."""
    return [each async for each in events(response)]


@pytest.mark.rule("X30", "X31", "X32", "X35")
async def test_consecutive_requests_of_one_client_each_have_their_own_language(tmp_path: Path) -> None:
    """Nothing of an earlier preference is left in a request without one, on the same connection and at each edge."""
    async with serving(tmp_path, edges=2) as (fleet, _):
        for edge in range(2):
            async with fleet.http(edge) as http:
                assert await listed(http, "de-CH,*;q=0.1", "de-CH,*;q=0.1") == ("Suchen", "de", "de")
                assert await listed(http) == ("Search", None, None)
                assert await listed(http, "pl") == ("Szukaj", "pl", "pl")
                assert await listed(http, "fr, it;q=0.5") == ("Search", "en", "en")
                assert await listed(http, "de;q=0, pl;q=0.2") == ("Szukaj", "pl", "pl")
                assert await listed(http, "not a range!") == ("Search", "en", "en")
                assert await listed(http, ",".join(["de"] * 33)) == ("Search", "en", "en")


@pytest.mark.rule("X30", "X32", "X35")
async def test_the_official_client_reads_the_example_in_german_and_then_in_english() -> None:
    """One connection: `de-CH,*;q=0.1`, then no preference, then Polish, which the café has not."""
    async with LocalFleet(load(str(ROOT / "examples" / "cafe.py"))) as fleet, fleet.client() as client:
        for preference, title, text, told in (
            ("de-CH,*;q=0.1", "Was noch da ist", "Es sind noch 4 Stücke da.", "de"),
            (None, "What is left", "4 pieces are left.", None),
            ("pl", "What is left", "4 pieces are left.", "en"),
        ):
            meta: Any = {} if preference is None else {ACCEPT: preference}
            listed = await client.list_tools(meta=meta, cache_mode="refresh")
            assert [each.title for each in listed.tools if each.name == "left"] == [title]
            assert (listed.meta or {}).get(CONTENT) == told
            result = await client.call_tool("left", {"cake": "apple"}, meta=meta)
            assert [block.text for block in result.content if isinstance(block, TextContent)] == [text]
            assert (result.meta or {}).get(CONTENT) == told


@pytest.mark.rule("X30")
async def test_a_header_that_differs_is_refused_and_a_bare_one_counts_where_the_endpoint_reads_it(
    tmp_path: Path,
) -> None:
    endpoints = {"mcp": {"path": "/mcp"}, "strict": {"path": "/strict", "language_header": False}}
    async with serving(tmp_path, environment={"MCPFLEET_ENDPOINTS": json.dumps(endpoints)}) as (fleet, http):
        await until(lambda: len(fleet.lines("snapshot taken")) == 2)
        refused = await ask(http, "tools/list", "de", "de ,pl")
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, HEADER_MISMATCH)
        assert (await ask(http, "server/discover", "de", "pl")).status_code == 200
        assert await listed(http, None, "de") == ("Suchen", None, None)
        async with fleet.http() as other:
            other.base_url = httpx2.URL("http://localhost")
            response = await other.post(
                "/strict",
                json=(found := _list_request()),
                headers={"Mcp-Method": "tools/list", "MCP-Protocol-Version": "2026-07-28", "Accept-Language": "de"},
            )
            assert '"Search"' in response.text
            found["params"]["_meta"][ACCEPT] = "de"
            response = await other.post(
                "/strict", json=found, headers={"Mcp-Method": "tools/list", "MCP-Protocol-Version": "2026-07-28"}
            )
            assert '"Suchen"' in response.text


def _list_request() -> dict[str, Any]:
    return request("tools/list")


@pytest.mark.rule("X33", "X34", "X36")
async def test_titles_are_translated_and_names_and_descriptions_are_not(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, http):
        response = await ask(http, "tools/list", "de")
        result = response.json()["result"]
        [search] = [each for each in result["tools"] if each["name"] == "search"]
        assert search["annotations"]["title"] == "Schnell suchen"
        assert search["description"] == "Search the shop."
        assert result["cacheScope"] == "private"
        assert "Accept-Language" in response.headers.get_list("vary")
        [advise] = (await ask(http, "prompts/list", "de")).json()["result"]["prompts"]
        assert (advise["name"], advise["title"], advise["arguments"][0]["title"]) == ("advise", "Beraten", "Thema")
        [today] = (await ask(http, "resources/list", "de")).json()["result"]["resources"]
        assert (today["uri"], today["name"], today["title"]) == ("shop://today", "today", "Heute")
        read = (await ask(http, "resources/read", "de", uri="shop://today")).json()["result"]
        assert read["cacheScope"] == "private"
        named = (await ask(http, "tools/list", "de")).json()["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]
        assert named["title"] == "Der Laden"
        plain = (await ask(http, "server/discover", "de")).json()["result"]
        assert plain["_meta"]["io.modelcontextprotocol/serverInfo"]["title"] == "The shop"
        assert plain["cacheScope"] == "public"


@pytest.mark.rule("X33")
async def test_descriptions_are_translated_where_the_application_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path, translate={"descriptions"}) as (_, http):
        tools = (await ask(http, "tools/list", "de")).json()["result"]["tools"]
        assert [each["description"] for each in tools if each["name"] == "search"] == ["Durchsuche den Laden."]


@pytest.mark.rule("X33", "X35")
async def test_handlers_texts_progress_and_errors_are_in_the_language_of_their_request(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, http):
        for language, text in (("de", "1 Stück"), ("pl", "1 rzecz"), ("fr", "1 item")):
            result = (await ask(http, "tools/call", language, name="search", arguments={"n": 1})).json()["result"]
            assert (result["content"][0]["text"], result["_meta"][CONTENT]) == (
                text,
                language if text[-1] != "m" else "en",
            )
        result = (await ask(http, "tools/call", "de", name="find", arguments={"name": "x"})).json()["result"]
        assert (result["isError"], result["content"][0]["text"]) == (True, "Nichts heißt x")
        failed = await ask(http, "tools/call", "de", name="find", arguments={"name": "closed"})
        assert (failed.status_code, failed.headers["content-language"]) == (400, "de")
        assert failed.json()["error"] == {
            "code": 7,
            "message": "Geschlossen",
            "data": {"when": "today", "_meta": {CONTENT: "de"}},
        }
        told = (await ask(http, "prompts/get", "de", name="advise", arguments={"topic": "Brot"})).json()["result"]
        assert told["messages"][0]["content"]["text"] == "Berate zu Brot"
        bare = (await ask(http, "tools/call", None, "de", name="find", arguments={"name": "closed"})).json()["error"]
        assert (bare["message"], bare["data"]) == ("Geschlossen", {"when": "today"})


@pytest.mark.rule("X35")
async def test_notifications_say_their_language_and_a_stream_has_no_header_of_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, http):
        body = _call("search", {"n": 2}, progressToken=1)
        body["params"]["_meta"][ACCEPT] = "de"
        headers = {"Mcp-Method": "tools/call", "Mcp-Name": "search", "MCP-Protocol-Version": "2026-07-28"}
        async with http.stream("POST", "/mcp", json=body, headers=headers) as response:
            assert "content-language" not in response.headers
            progress, end = await messages(response)
        assert progress["params"]["message"] == "Ich suche"
        assert progress["params"]["_meta"] == {CONTENT: "de"}
        assert end["result"]["content"][0]["text"] == "2 Stücke"
        assert end["result"]["_meta"][CONTENT] == "de"


def _call(name: str, arguments: dict[str, Any], **meta: Any) -> dict[str, Any]:
    return call(name, arguments, meta=meta)


@pytest.mark.rule("X33", "X34")
async def test_a_question_and_its_form_are_translated_and_each_round_has_its_own_language(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, http):
        headers = {"Mcp-Method": "tools/call", "Mcp-Name": "order", "MCP-Protocol-Version": "2026-07-28"}
        body = _call("order", {}, **{ACCEPT: "de", "io.modelcontextprotocol/clientCapabilities": FORMS})
        asked = (await http.post("/mcp", json=body, headers=headers)).json()["result"]
        assert asked["_meta"][CONTENT] == "de"
        [key] = asked["inputRequests"]
        form = asked["inputRequests"][key]["params"]
        assert form["message"] == "Wie viele?"
        assert form["requestedSchema"]["properties"]["copies"]["title"] == "Exemplare"
        assert form["requestedSchema"]["properties"]["size"]["description"] == "Größe"
        assert form["requestedSchema"]["properties"]["size"]["enum"] == ["Size", "other"]
        answered = {key: {"action": "accept", "content": {"copies": 5}}}
        body["params"] |= {"inputResponses": answered, "requestState": asked["requestState"]}
        body["params"]["_meta"][ACCEPT] = "pl"
        result = (await http.post("/mcp", json=body, headers=headers)).json()["result"]
        assert (result["content"][0]["text"], result["_meta"][CONTENT]) == ("5 rzeczy razem", "pl")


@pytest.mark.rule("X32", "X35")
async def test_a_tasks_texts_are_in_its_creators_language_whoever_reads_it(tmp_path: Path) -> None:
    async with serving(tmp_path, edges=2) as (fleet, http):
        headers = {"Mcp-Method": "tools/call", "Mcp-Name": "pack", "MCP-Protocol-Version": "2026-07-28"}
        meta = {"io.modelcontextprotocol/clientCapabilities": TASKS}
        created = await http.post("/mcp", json=_call("pack", {"n": 2}, **meta, **{ACCEPT: "de"}), headers=headers)
        task = created.json()["result"]["taskId"]
        async with fleet.http(1) as other:

            async def read(language: str) -> Any:
                body = request("tasks/get", {"taskId": task}, meta={**meta, ACCEPT: language})
                named = {"Mcp-Method": "tasks/get", "Mcp-Name": task, "MCP-Protocol-Version": "2026-07-28"}
                return (await other.post("/mcp", json=body, headers=named)).json()["result"]

            with anyio.fail_after(10):
                while (result := await read("pl"))["status"] == "working":  # noqa: ASYNC110  # it ends in another service
                    await anyio.sleep(0.05)
        assert result["result"]["content"][0]["text"] == "2 Stücke"
        assert result["_meta"][CONTENT] == "de"


@pytest.mark.rule("X37", "X38")
async def test_only_streams_of_the_changed_language_are_told_and_no_call_is_rerouted(tmp_path: Path) -> None:
    """A German file changes: its streams are told once, the others not at all, and definitions keep their digests."""
    async with serving(tmp_path, edges=2, environment=QUICK) as (fleet, _), AsyncExitStack() as stack:
        streams: dict[str, list[Listener]] = {}
        for edge in range(2):
            http = await stack.enter_async_context(fleet.http(edge))
            for language in ("de", "pl", "en", "fr"):
                own = await stack.enter_async_context(fleet.http(edge))
                own.headers["Accept-Language"] = language
                found = await stack.enter_async_context(listening(own, "/mcp", 2, toolsListChanged=True))
                streams.setdefault(language, []).extend(found)
        write(tmp_path, "de", {**GERMAN, "tool:search:title\x04Search": "Finden"})
        await until(lambda: all(each.kinds() == [ACK, changed("tools")] for each in streams["de"]), within=10)
        assert (await listed(http, "de"))[0] == "Finden"
        assert (await listed(http, "en"))[0] == "Search"
        write(tmp_path, "de", {**GERMAN, "tool:search:title\x04Search": "Finden", "Looking": "Moment"})
        for language in ("pl", "en", "fr"):
            assert [each.kinds() for each in streams[language]] == [[ACK]] * 4
        assert [each.kinds() for each in streams["de"]] == [[ACK, changed("tools")]] * 4


@pytest.mark.rule("X38", "X39")
async def test_a_broken_file_leaves_the_former_texts_and_is_logged_once(tmp_path: Path) -> None:
    async with serving(tmp_path, environment=QUICK) as (fleet, http):
        path = write(tmp_path, "de", {**GERMAN, "Nothing has {name}": "Nichts heißt {nom}"})
        await until(lambda: fleet.lines("files not served, former ones stay"), within=10)
        [line] = fleet.lines("files not served, former ones stay")
        assert f"{path}:" in line["error"]
        assert "{nom}" in line["error"]
        assert (await listed(http, "de"))[0] == "Suchen"


@pytest.mark.rule("X30", "X35")
async def test_a_session_of_2025_has_the_language_of_each_requests_header(tmp_path: Path) -> None:
    async with serving(tmp_path) as (fleet, _), Visitors(fleet) as visitors:
        visitor = await visitors.one()
        message = {"jsonrpc": "2.0", "id": 5, "method": "tools/list", "params": {}}
        for language, title in (("de", "Suchen"), ("pl", "Szukaj"), ("fr", "Search")):
            response = await visitor.send(message, 0, **{"accept-language": language})
            result = response.json()["result"]
            assert {each["title"] for each in result["tools"] if each["name"] == "search"} == {title}
            assert "_meta" not in result
        told = {**message, "params": {"_meta": {ACCEPT: "de"}}}
        result = (await visitor.send(told, 0, **{"accept-language": "pl"})).json()["result"]
        assert result["_meta"] == {CONTENT: "de"}


@pytest.mark.rule("X64")
async def test_a_cursor_leads_on_in_its_own_language_alone(tmp_path: Path) -> None:
    async with serving(tmp_path, environment={"MCPFLEET_PAGE_SIZE": "2"}) as (_, http):
        cursor = (await ask(http, "tools/list", "de")).json()["result"]["nextCursor"]
        assert "result" in (await ask(http, "tools/list", "de-AT", cursor=cursor)).json()
        assert (await ask(http, "tools/list", "pl", cursor=cursor)).json()["error"]["code"] == -32602
