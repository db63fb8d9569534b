"""Methods of an application's own extension in a whole fleet: checked and run as calls of tools are."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import anyio
import httpx2
import pytest

from mcpfleet.app import Extension
from mcpfleet.testing.local import LocalFleet
from mcpfleet.wire.protocol import CLIENT_CAPABILITIES_META_KEY, LEGACY, SERVER_INFO_META_KEY
from tests.contract.fleet.stock_app import STOCK, Shop, asked
from tests.contract.fleet.visitor import Visitors
from tests.kit.waiting import until

ANN, BOB = "secret-of-ann", "secret-of-bob"
TOKENS = {
    "tokens": [
        {"token": ANN, "subject": "ann", "scopes": ["stock"], "audience": "mcp"},
        {"token": BOB, "subject": "bob", "audience": "mcp"},
    ]
}
GUARDED = {"MCPFLEET_AUTHORIZATION": "static", "MCPFLEET_TOKENS": json.dumps(TOKENS)}


@asynccontextmanager
async def serving(shop: Shop, **environment: str) -> AsyncIterator[tuple[LocalFleet, httpx2.AsyncClient]]:
    """A fleet that serves a shop, and a client of its first edge."""
    async with LocalFleet(shop.app, environment=environment) as fleet, fleet.http() as http:
        yield fleet, http


def error(response: httpx2.Response) -> tuple[int, int]:
    """The status and the code of an error."""
    return response.status_code, response.json()["error"]["code"]


@pytest.mark.rule("X41")
async def test_an_added_extension_is_advertised_and_one_that_is_not_added_is_off() -> None:
    shop = Shop()
    async with serving(shop) as (_, http):
        found = (await http.post("/mcp", **asked("server/discover"))).json()["result"]["capabilities"]
        assert found["extensions"] == {STOCK: {"units": ["piece"]}}
        assert found["experimental"] == {"com.example/beta": {"level": 2}}


@pytest.mark.rule("X43", "X45")
async def test_a_method_is_answered_by_its_object_with_what_the_edge_adds() -> None:
    shop = Shop()
    async with serving(shop) as (_, http):
        reply = (await http.post("/mcp", **asked("stock/reserve", {"sku": "lamp"}, name="lamp"))).json()
        meta = reply["result"].pop("_meta")
        assert reply["result"] == {"resultType": "complete", "sku": "lamp", "count": 1, "subject": None}
        assert meta[SERVER_INFO_META_KEY] == {"name": "shop", "version": "1.0.0"}
        counted = (await http.post("/mcp", **asked("stock/count"))).json()["result"]
        assert (counted["ttlMs"], counted["cacheScope"], counted["total"]) == (60_000, "private", 7)
        empty = (await http.post("/mcp", **asked("stock/watch", {"steps": 0}))).json()["result"]
        assert {name for name in empty if name != "_meta"} == {"resultType"}
        assert shop.reserved == ["lamp"]


@pytest.mark.rule("X43")
@pytest.mark.parametrize("name", [None, "chair"])
async def test_the_header_that_a_method_names_is_present_and_equal(name: str | None) -> None:
    shop = Shop()
    async with serving(shop) as (_, http):
        assert error(await http.post("/mcp", **asked("stock/reserve", {"sku": "lamp"}, name=name))) == (400, -32020)
        assert error(await http.post("/mcp", **asked("stock/reserve", {"sku": 1}, name="1"))) == (400, -32020)
        assert shop.reserved == []


@pytest.mark.rule("X43")
async def test_an_absent_method_and_a_hidden_one_are_one_answer() -> None:
    """The header that the hidden one names tells nothing of it, either."""
    shop = Shop()
    async with serving(shop, **GUARDED) as (_, http):
        absent = await http.post("/mcp", **asked("stock/absent", token=BOB))
        for name in (None, "chair", "lamp"):
            hidden = await http.post("/mcp", **asked("stock/secret", {"sku": "lamp"}, token=BOB, name=name))
            assert (hidden.status_code, hidden.json()) == (absent.status_code, absent.json()) == (404, absent.json())
        assert absent.json()["error"]["code"] == -32601
        shown = await http.post("/mcp", **asked("stock/secret", {"sku": "lamp"}, token=ANN, name="lamp"))
        assert shown.json()["result"]["sku"] == "lamp"
        assert error(await http.post("/mcp", **asked("stock/secret", {"sku": "lamp"}, token=ANN))) == (400, -32020)


@pytest.mark.rule("X43")
async def test_a_method_needs_its_scopes_and_the_refusal_names_them() -> None:
    shop = Shop()
    async with serving(shop, **GUARDED) as (_, http):
        refused = await http.post("/mcp", **asked("stock/reserve", {"sku": "lamp"}, token=BOB, name="lamp"))
        assert refused.status_code == 403
        assert 'scope="stock"' in refused.headers["www-authenticate"]
        made = await http.post("/mcp", **asked("stock/reserve", {"sku": "lamp"}, token=ANN, name="lamp"))
        assert made.json()["result"]["subject"] == "ann"


@pytest.mark.rule("X43")
async def test_a_client_that_does_not_declare_a_needed_extension_is_told_its_name() -> None:
    shop = Shop(needs_client=True)
    async with serving(shop) as (_, http):
        refused = await http.post("/mcp", **asked("stock/count"))
        assert error(refused) == (400, -32021)
        assert refused.json()["error"]["data"] == {"requiredCapabilities": {"extensions": {STOCK: {}}}}
        declared = {CLIENT_CAPABILITIES_META_KEY: {"extensions": {STOCK: {"version": 2}}}}
        served = (await http.post("/mcp", **asked("stock/count", meta=declared))).json()["result"]
        assert served["extensions"] == {STOCK: {"version": 2}}


@pytest.mark.rule("X44")
async def test_bad_parameters_are_a_protocol_error_and_nothing_runs() -> None:
    shop = Shop()
    async with serving(shop) as (_, http):
        for params in ({"sku": "lamp", "count": "two"}, {"sku": "lamp", "colour": "red"}):
            refused = await http.post("/mcp", **asked("stock/reserve", params, name="lamp"))
            assert error(refused) == (400, -32602)
        assert shop.reserved == []


@pytest.mark.rule("X44")
async def test_a_failure_is_internal_and_says_nothing_and_an_authored_error_says_all() -> None:
    shop = Shop()
    async with serving(shop) as (fleet, http):
        for how in ("raised", "taken", "list"):
            failed = await http.post("/mcp", **asked("stock/fail", {"how": how}))
            assert error(failed) == (200, -32603)
            assert "secret" not in failed.text
            assert "reference" in failed.text
        authored = await http.post("/mcp", **asked("stock/fail", {"how": "authored"}))
        assert authored.status_code == 400
        assert authored.json()["error"] == {"code": 409, "message": "out of stock", "data": {"left": 0}}
        assert fleet.lines("handler failed")[0]["method"] == "stock/fail"


@pytest.mark.rule("X44")
async def test_progress_is_told_and_a_client_that_leaves_cancels() -> None:
    shop = Shop()
    async with serving(shop) as (_, http):
        post = asked("stock/watch", {"steps": 3}, meta={"progressToken": "t"})
        async with http.stream("POST", "/mcp", **post) as response:
            events = [json.loads(line[6:]) async for line in response.aiter_lines() if line.startswith("data: ")]
        assert [each["params"]["progress"] for each in events[:-1]] == [0, 1, 2, 3]
        assert events[-1]["result"]["resultType"] == "complete"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(http.post, "/mcp", **asked("stock/wait")))
            await until(lambda: shop.waiting == 1)
            tasks.cancel_scope.cancel()
        await until(lambda: shop.cancelled == 1)


@pytest.mark.rule("X44")
async def test_a_rate_a_deadline_an_audit_line_and_a_comment_are_as_for_tools() -> None:
    shop = Shop(declare=declare_more)
    async with serving(shop, MCPFLEET_SILENT_AFTER="0.2", MCPFLEET_KEEPALIVE="0.2") as (fleet, http):
        assert (await http.post("/mcp", **asked("stock/seldom"))).status_code == 200
        limited = await http.post("/mcp", **asked("stock/seldom"))
        assert error(limited) == (429, -31999)
        async with http.stream("POST", "/mcp", **asked("stock/short")) as response:
            lines = [line async for line in response.aiter_lines()]
        assert ": keepalive" in lines
        end = json.loads(next(line for line in lines if line.startswith("data: "))[6:])
        assert end["error"]["code"] == -32603
        assert "did not finish" in end["error"]["message"]
    assert [(line["method"], line["target"], line["outcome"]) for line in fleet.lines("audit")] == [
        ("stock/seldom", "stock/seldom", "ok"),
        ("stock/seldom", "stock/seldom", "-31999"),
        ("stock/short", "stock/short", "application_error"),
    ]


def declare_more(extension: Extension) -> None:
    """Declare a method that is limited, and one that takes longer than its time."""

    @extension.method("stock/seldom", rate=(1, 60))
    async def seldom() -> None: ...

    @extension.method("stock/short", timeout=0.6)
    async def short() -> None:
        await anyio.sleep(30)


@pytest.mark.rule("X47")
async def test_clients_of_2025_have_an_extension_only_where_it_says_so() -> None:
    for revisions, has in ((("2026-07-28",), False), (("2026-07-28", *LEGACY), True)):
        shop = Shop(revisions=revisions)
        async with LocalFleet(shop.app) as fleet, Visitors(fleet) as visitors:
            visitor = await visitors.one(capabilities={"extensions": {STOCK: {"version": 1}}})
            told = await visitor.begin()
            assert told["capabilities"].get("extensions") == ({STOCK: {"units": ["piece"]}} if has else None)
            answer = await visitor.ask("stock/count")
            if has:
                assert answer["result"] == {"total": 7, "extensions": {STOCK: {"version": 1}}}
            else:
                assert answer["error"]["code"] == -32601
