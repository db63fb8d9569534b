"""MCP Apps in a whole fleet: lists by audience, documents byte for byte, and who is told of changes (X8 to X19)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from mcp.client.extension import advertise

from mcpfleet.app import App
from mcpfleet.contracts.apps import APP_TYPE, APPS_EXTENSION
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.accounts_app import ANN, BOB
from tests.contract.fleet.apps_app import BOARD, HTML, SECRET, WITH_APPS, answer, metas, shop
from tests.contract.fleet.listener import ACK, UPDATED, changed
from tests.contract.fleet.policy_app import fleet as guarded
from tests.contract.fleet.policy_app import policy
from tests.contract.fleet.test_files import QUICK, written
from tests.contract.fleet.test_streams import at_every_edge, each
from tests.contract.fleet.visitor import Visitors
from tests.kit.waiting import until

WHOLE = {"resourceUri": BOARD, "visibility": ["model", "app"]}
APP_ONLY = {"resourceUri": BOARD, "visibility": ["app"]}


@pytest.mark.rule("X8", "X10", "X12", "X13", "X14")
async def test_every_edge_lists_by_the_clients_capability(tmp_path: Path) -> None:
    """Both kinds of clients may call every tool; the list that differs is private, the others are not."""
    async with LocalFleet(shop(tmp_path), edges=2) as fleet:
        for edge in range(2):
            async with fleet.http(edge) as http:
                for apps in (True, False):
                    discovered = await answer(http, "server/discover", apps=apps)
                    assert discovered["capabilities"]["extensions"] == {APPS_EXTENSION: {}}
                    listed = await answer(http, "tools/list", apps=apps)
                    assert metas(listed) == ({"stock": WHOLE, "refresh": APP_ONLY} if apps else {"stock": None})
                    assert listed["cacheScope"] == "private"
                    resources = await answer(http, "resources/list", apps=apps)
                    assert [each["uri"] for each in resources["resources"]] == ["shop://x", BOARD]
                    assert resources["cacheScope"] == "public"
                    called = await answer(http, "tools/call", apps=apps, name="refresh")
                    assert called["content"][0]["text"] == "refreshed"
                    called = await answer(http, "tools/call", apps=apps, name="stock")
                    assert called["content"][0]["text"] == str(apps)


@pytest.mark.rule("X11", "X12", "X16")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_official_client_shows_documents_if_it_says_so(
    tmp_path: Path, mode: Literal["auto", "legacy"]
) -> None:
    """Both eras, with Apps and without."""
    async with LocalFleet(shop(tmp_path)) as fleet:
        async with fleet.client(mode=mode, extensions=[advertise(APPS_EXTENSION, {"mimeTypes": [APP_TYPE]})]) as client:
            assert client.server_capabilities.extensions == {APPS_EXTENSION: {}}
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert tools["refresh"].meta == {"ui": APP_ONLY}
            [found] = (await client.read_resource(BOARD)).contents
            assert (found.mime_type, found.meta) == (APP_TYPE, {"ui": {"prefersBorder": True}})
            assert (await client.call_tool("stock")).model_dump()["content"][0]["text"] == "True"
        async with fleet.client(mode=mode) as client:
            [stock] = (await client.list_tools()).tools
            assert (stock.name, stock.meta) == ("stock", None)
            assert (await client.call_tool("stock")).model_dump()["content"][0]["text"] == "False"


@pytest.mark.rule("X9", "X18")
async def test_a_document_leaves_byte_for_byte_with_the_meta_of_its_entry(tmp_path: Path) -> None:
    """Without any worker; no address of an edge shows it."""
    async with LocalFleet(shop(tmp_path)) as fleet, fleet.http() as http:
        unlisted = await answer(http, "resources/read", uri=SECRET)
        assert unlisted["contents"] == [{"uri": SECRET, "mimeType": APP_TYPE, "text": "<!doctype html>secret"}]
        await fleet.workers[0].kill()
        entries = (await answer(http, "resources/list"))["resources"]
        [entry] = [each for each in entries if each["uri"] == BOARD]
        read = await answer(http, "resources/read", uri=BOARD)
        [content] = read["contents"]
        assert content == {"uri": BOARD, "mimeType": APP_TYPE, "text": HTML, "_meta": {"ui": {"prefersBorder": True}}}
        assert (entry["mimeType"], entry["_meta"]) == (APP_TYPE, content["_meta"])
        assert (read["ttlMs"], read["cacheScope"]) == (60_000, "public")
        for path in ("/mcp", "/", "/ui/shop/board", f"/mcp/{BOARD}"):
            got = await http.get(path, headers={"accept": "text/html"})
            assert HTML not in got.text


@pytest.mark.rule("X10", "X13")
async def test_what_policy_hides_is_unknown_to_clients_with_apps_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool whose document is hidden from a caller is listed without it."""
    monkeypatch.setattr(
        policy,
        "_visible",
        lambda group, items: {each for each in items if group == "bob" or each.name not in (BOARD, "refresh")},
    )
    async with guarded(shop(tmp_path)) as fleet, fleet.http() as http:
        bobs = await answer(http, "tools/list", apps=True, token=BOB)
        assert metas(bobs) == {"stock": WHOLE, "refresh": APP_ONLY}
        assert metas(await answer(http, "tools/list", apps=True, token=ANN)) == {"stock": None}
        for apps in (True, False):
            assert (await answer(http, "resources/read", apps=apps, token=ANN, uri=BOARD))[0] == -32602
            assert (await answer(http, "tools/call", apps=apps, token=ANN, name="refresh"))[0] == -32602
            assert (await answer(http, "resources/read", apps=apps, token=BOB, uri=BOARD))["contents"]


@pytest.mark.rule("X14", "X15")
async def test_changes_are_told_to_those_whom_they_concern(tmp_path: Path) -> None:
    """Another `_meta.ui`: streams with Apps. Another text: the watchers. Another declaration: the list."""
    app = shop(tmp_path)
    everything = {"toolsListChanged": True, "resourcesListChanged": True, "resourceSubscriptions": [BOARD]}
    async with (
        LocalFleet(app, edges=2, environment=QUICK) as fleet,
        at_every_edge(fleet, 1, capabilities=dict(WITH_APPS), **everything) as with_apps,
        at_every_edge(fleet, 1, **everything) as without,
    ):
        function = app.tools["stock"].function
        app.remove("tool", "stock")
        app.tool(ui=BOARD, visibility={"model"})(function)
        await each(with_apps, lambda stream: stream.kinds() == [ACK, changed("tools")])
        written(tmp_path / "board.html", b"<!doctype html>new")
        await each([*with_apps, *without], lambda stream: stream.kinds()[-1] == UPDATED)
        assert [stream.kinds() for stream in without] == [[ACK, UPDATED]] * 2
        assert [stream.kinds() for stream in with_apps] == [[ACK, changed("tools"), UPDATED]] * 2
        app.ui("ui://shop/more")(_more)
        await each([*with_apps, *without], lambda stream: stream.kinds()[-1] == changed("resources"))


def _more() -> str:
    """Be a document."""
    return "<!doctype html>more"


@pytest.mark.rule("X16")
async def test_sessions_of_2025_have_apps_by_their_handshake(tmp_path: Path) -> None:
    """At every edge; one that did not declare it has them as little as a request without a session."""
    app = shop(tmp_path)
    async with LocalFleet(app, edges=2) as fleet, Visitors(fleet) as visitors:
        for apps in (True, False):
            visitor = await visitors.one(capabilities=WITH_APPS if apps else {})
            begun = await visitor.ask("initialize", handshake(apps=apps))
            assert begun["result"]["capabilities"]["extensions"] == {APPS_EXTENSION: {}}
            for edge in range(2):
                listed = (await visitor.ask("tools/list", edge=edge))["result"]
                assert metas(listed) == ({"stock": WHOLE, "refresh": APP_ONLY} if apps else {"stock": None})
                [content] = (await visitor.ask("resources/read", {"uri": BOARD}, edge))["result"]["contents"]
                assert (content["text"], content["_meta"]) == (HTML, {"ui": {"prefersBorder": True}})
                assert (await visitor.call("stock", edge=edge))["content"][0]["text"] == str(apps)
        async with fleet.http() as http:
            headers = {"MCP-Protocol-Version": "2025-11-25"}
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            assert metas((await http.post("/mcp", json=body, headers=headers)).json()["result"]) == {"stock": None}


@pytest.mark.rule("X14", "X16")
async def test_a_session_hears_of_a_changed_document_of_a_tool_only_with_apps(tmp_path: Path) -> None:
    app = shop(tmp_path)
    async with LocalFleet(app, edges=2) as fleet, Visitors(fleet) as visitors:
        one, other = await visitors.one(capabilities=WITH_APPS), await visitors.one(capabilities={})
        async with one.watching(0) as with_apps, other.watching(1) as without:
            function = app.tools["stock"].function
            app.remove("tool", "stock")
            app.tool(ui=BOARD, visibility={"model"})(function)
            await until(lambda: with_apps.kinds() == [changed("tools")])
            app.ui("ui://shop/more")(_more)
            await until(lambda: without.kinds() == [changed("resources")])


@pytest.mark.rule("X16")
async def test_an_endpoint_may_take_apps_from_clients_of_2025(tmp_path: Path) -> None:
    """Nothing is advertised, `ui://` is unknown, and handlers see no client with Apps; modern clients have all."""
    endpoints = '{"mcp": {"path": "/mcp", "apps_2025": false}}'
    async with (
        LocalFleet(shop(tmp_path), environment={"MCPFLEET_ENDPOINTS": endpoints}) as fleet,
        Visitors(fleet) as visitors,
        fleet.http() as http,
    ):
        visitor = await visitors.one(capabilities=WITH_APPS)
        begun = (await visitor.ask("initialize", handshake(apps=True)))["result"]
        assert "extensions" not in begun["capabilities"]
        assert metas((await visitor.ask("tools/list"))["result"]) == {"stock": None}
        listed = (await visitor.ask("resources/list"))["result"]["resources"]
        assert [each["uri"] for each in listed] == ["shop://x"]
        for uri in (BOARD, SECRET):
            assert (await visitor.ask("resources/read", {"uri": uri}))["error"]["code"] == -32002
            assert (await visitor.ask("resources/subscribe", {"uri": uri}))["error"]["code"] == -32002
        assert (await visitor.call("stock"))["content"][0]["text"] == "False"
        assert metas(await answer(http, "tools/list", apps=True)) == {"stock": WHOLE, "refresh": APP_ONLY}
        assert (await answer(http, "resources/read", apps=True, uri=BOARD))["contents"]


def handshake(*, apps: bool) -> dict[str, Any]:
    """The parameters of `initialize`."""
    client = {"name": "visitor", "version": "1"}
    capabilities = dict(WITH_APPS) if apps else {}
    return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": client}


@pytest.mark.rule("X19")
async def test_a_document_has_a_bound(tmp_path: Path) -> None:
    """A larger file keeps its worker from starting; what a function makes is a mistake of the function."""
    app = shop(tmp_path)
    limit = len(HTML.encode())
    with pytest.raises(ConfigurationError, match=r"^MCPFLEET_UI_LIMIT: .*/board\.html has"):
        async with LocalFleet(app, environment={"MCPFLEET_UI_LIMIT": str(limit - 1)}):
            pass  # pragma: no cover

    @app.ui("ui://shop/large")
    async def large() -> str:
        """Be too large."""
        return "<!doctype html>" + "x" * limit

    async with LocalFleet(app, environment={"MCPFLEET_UI_LIMIT": str(limit)}) as fleet, fleet.http() as http:
        assert (await answer(http, "resources/read", uri=BOARD))["contents"]
        assert (await answer(http, "resources/read", uri="ui://shop/large"))[0] == -32603
        assert "MCPFLEET_UI_LIMIT" in fleet.logs()


@pytest.mark.rule("X10")
async def test_a_worker_does_not_start_whose_tool_has_no_document() -> None:
    """Once all is declared; the error names the tool, its file and line."""
    app = App("shop", version="1")
    app.ui(BOARD)(_more)
    app.tool("look", ui=BOARD)(_more)
    app.remove("resource", BOARD)
    with pytest.raises(ConfigurationError, match=r"test_apps\.py:\d+.*is no document of this App"):
        async with LocalFleet(app):
            pass  # pragma: no cover
