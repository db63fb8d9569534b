"""A call that needs more scopes than its tool: by its arguments, or by what its handler alone knows (X55)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel

from mcpfleet.app import App, Context, ToolError
from mcpfleet.contracts.manifest import Definition
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.visitor import Visitors
from tests.kit.tasks import TaskClient, text_of

LARGE = {"payments:large": {"properties": {"amount": {"minimum": 1000}}}}
SMALL_TOKEN, LARGE_TOKEN = "secret-of-ann", "secret-of-bob"
TOKENS = [
    {"token": SMALL_TOKEN, "subject": "ann", "audience": "mcp", "scopes": ["pay"]},
    {"token": LARGE_TOKEN, "subject": "bob", "audience": "mcp", "scopes": ["pay", "payments:large", "vip"]},
]
STATIC = {"MCPFLEET_AUTHORIZATION": "static", "MCPFLEET_TOKENS": json.dumps({"tokens": TOKENS})}
KEYED = {"io.mcpfleet/idempotency-key": "k1"}


class Order(BaseModel):
    item: str
    amount: int = 5000


class Shop:
    """The application, and what it did."""

    def __init__(self) -> None:  # noqa: C901  # many small handlers
        self.app = app = App("shop", version="1")
        self.done: list[Any] = []
        self.vips = {"lamp"}

        @app.tool(scopes=["pay"], scopes_if=LARGE)
        async def pay(amount: int = 10) -> str:
            self.done.append(amount)
            return f"paid {amount}"

        @app.tool(scopes_if=LARGE)
        async def pay_much(amount: int = 5000) -> str:
            self.done.append(amount)
            return f"paid {amount}"

        @app.tool(scopes_if={"vip": {"properties": {"order": {"properties": {"amount": {"minimum": 1000}}}}}})
        async def order(order: Order) -> str:
            self.done.append(order)
            return "ordered"

        @app.tool(task="required", scopes_if=LARGE)
        async def pay_later(amount: int) -> str:
            self.done.append(amount)
            return "paid"

        @app.tool(scopes=["pay"], idempotency_key=True)
        async def buy(item: str, ctx: Context) -> str:
            if item in self.vips:
                ctx.need("vip")
            self.done.append(item)
            return f"bought {item}"

        @app.tool()
        def plain(ctx: Context) -> str:
            ctx.sync.need("vip")
            return "done"

        @app.tool()
        async def late(ctx: Context) -> str:
            await ctx.progress(1)
            ctx.need("vip")
            return "done"

        @app.tool(task="required")
        async def needs_in_a_task(ctx: Context) -> str:
            ctx.need("vip")
            return "done"

        @app.tool()
        async def asks(ctx: Context) -> str:
            if await ctx.elicit("sure?", {"type": "object", "properties": {"yes": {"type": "boolean"}}}):
                raise ToolError("not reached")
            return "done"

        @app.prompt()
        async def greet(ctx: Context) -> str:
            ctx.need("vip")
            return "hello"

        @app.resource("shop://vault")
        async def vault(ctx: Context) -> str:
            ctx.need("vip")
            return "gold"

    def fleet(self, **options: Any) -> LocalFleet:
        return LocalFleet(self.app, environment=STATIC, **options)


def client(http: httpx2.AsyncClient, token: str = SMALL_TOKEN) -> TaskClient:
    return TaskClient(http, headers={"Authorization": f"Bearer {token}"})


async def calling(http: httpx2.AsyncClient, tool: str, token: str = SMALL_TOKEN, **arguments: Any) -> httpx2.Response:
    return await client(http, token).post("tools/call", {"name": tool, "arguments": arguments})


def asked_scopes(answer: httpx2.Response) -> set[str]:
    """The scopes that a refusal's challenge names."""
    assert answer.status_code == 403, answer.text
    assert answer.json()["error"]["code"] == -32603
    challenge = answer.headers["www-authenticate"]
    assert 'error="insufficient_scope"' in challenge
    return set(challenge.partition('scope="')[2].partition('"')[0].split())


@pytest.mark.rule("X55")
@pytest.mark.rule("M63")
async def test_arguments_that_fit_a_schema_need_its_scope_and_one_challenge_names_all() -> None:
    shop = Shop()
    async with shop.fleet() as fleet, fleet.http() as http:
        assert (await calling(http, "pay", amount=999)).status_code == 200
        assert asked_scopes(await calling(http, "pay", amount=1000)) == {"pay", "payments:large"}
        assert asked_scopes(await calling(http, "pay", amount=1e3)) == {"pay", "payments:large"}
        assert (await calling(http, "pay", LARGE_TOKEN, amount=1000)).status_code == 200
    assert shop.done == [999, 1000]


@pytest.mark.rule("X55")
async def test_an_absent_argument_counts_by_its_default_at_every_depth() -> None:
    shop = Shop()
    async with shop.fleet() as fleet, fleet.http() as http:
        assert (await calling(http, "pay")).status_code == 200
        assert asked_scopes(await calling(http, "pay_much")) == {"payments:large"}
        assert asked_scopes(await calling(http, "order", order={"item": "lamp"})) == {"vip"}
        assert (await calling(http, "order", order={"item": "lamp", "amount": 5})).status_code == 200
    assert [each if isinstance(each, int) else each.amount for each in shop.done] == [10, 5]


@pytest.mark.rule("X55")
async def test_a_task_that_needs_another_scope_is_not_made() -> None:
    shop = Shop()
    async with shop.fleet() as fleet, fleet.http() as http:
        assert asked_scopes(await calling(http, "pay_later", amount=1000)) == {"payments:large"}
        caller = client(http)
        await caller.until(await caller.start("pay_later", amount=1), "completed")
    assert shop.done == [1]


@pytest.mark.rule("X55")
async def test_a_handler_that_needs_a_scope_ends_refused_and_its_key_is_free() -> None:
    shop = Shop()
    async with shop.fleet() as fleet, fleet.http() as http:
        refused = await client(http).post(
            "tools/call", {"name": "buy", "arguments": {"item": "lamp"}, "_meta": dict(KEYED)}
        )
        assert asked_scopes(refused) == {"pay", "vip"}
        assert shop.done == []
        shop.vips.clear()
        again = await client(http).call("buy", {"item": "lamp"}, _meta=dict(KEYED))
        assert text_of({"result": again}) == "bought lamp"
    assert shop.done == ["lamp"]


@pytest.mark.rule("X55")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "plain", "arguments": {}}),
        ("prompts/get", {"name": "greet", "arguments": {}}),
        ("resources/read", {"uri": "shop://vault"}),
    ],
)
async def test_every_kind_of_handler_may_need_a_scope(method: str, params: Mapping[str, Any]) -> None:
    shop = Shop()
    async with shop.fleet() as fleet, fleet.http() as http:
        asking = TaskClient(http, headers={"Authorization": f"Bearer {SMALL_TOKEN}"})
        if "uri" in params:
            asking.headers = {**asking.headers, "Mcp-Name": params["uri"]}
        assert asked_scopes(await asking.post(method, params)) == {"vip"}


@pytest.mark.rule("X55")
async def test_once_the_answer_is_a_stream_a_model_reads_which_scopes_are_missing() -> None:
    shop = Shop()
    app = shop.app

    async def chatty(invocation: Any, call_next: Any) -> Any:
        await invocation.ctx.progress(1)
        return await call_next(invocation)

    app.interceptor(chatty)
    async with shop.fleet() as fleet, fleet.http() as http:
        params = {"name": "buy", "arguments": {"item": "lamp"}, "_meta": {**KEYED, "progressToken": 1}}
        answer = await client(http).post("tools/call", params)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream"
        result = json.loads(answer.text.split("data: ")[-1].splitlines()[0])["result"]
        assert result["isError"] is True
        assert "the scopes pay, vip" in text_of({"result": result})
        shop.vips.clear()
        again = await client(http).call("buy", {"item": "lamp"}, _meta=dict(KEYED))
        assert text_of({"result": again}) == "bought lamp"


@pytest.mark.rule("X55")
async def test_a_task_that_lacks_a_scope_ends_with_a_text_that_names_it() -> None:
    shop = Shop()
    async with shop.fleet() as fleet, fleet.http() as http:
        caller = client(http)
        task = await caller.start("needs_in_a_task")
        ended = await caller.until(task, "completed")
        assert "the scopes vip" in text_of(ended)


@pytest.mark.rule("X55")
async def test_need_behind_another_use_of_the_context_is_the_authors_mistake() -> None:
    shop = Shop()
    async with shop.fleet() as fleet, fleet.http() as http:
        for token in (SMALL_TOKEN, LARGE_TOKEN):
            result = (await calling(http, "late", token)).json()["result"]
            assert result["isError"] is True
        [line, *_] = fleet.lines("handler failed")
        assert "before any other use of ctx" in str(line)


@pytest.mark.rule("X55")
async def test_a_session_of_2025_is_refused_with_403_too() -> None:
    shop = Shop()
    async with shop.fleet() as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one(token=SMALL_TOKEN)
        for name, arguments in (("pay", {"amount": 1000}), ("buy", {"item": "lamp"})):
            message = {
                "jsonrpc": "2.0",
                "id": 7,
                "method": "tools/call",
                "params": {"name": name, "arguments": arguments},
            }
            assert "pay" in asked_scopes(await visitor.send(message))


@pytest.mark.rule("X55")
async def test_without_credentials_nobody_needs_a_scope() -> None:
    app = App("shop", version="1")

    @app.tool()
    async def buy(ctx: Context) -> str:
        ctx.need("vip")
        return "bought"

    async with LocalFleet(app) as fleet, fleet.client() as plain:
        assert "bought" in str(await plain.call_tool("buy", {}))


@pytest.mark.rule("X55")
def test_a_definition_without_further_scopes_has_the_digest_of_the_former_release() -> None:
    """A release that knows fewer fields gives equal definitions equal names."""
    assert "scopes_if" not in Definition(kind="tool", name="pay", wire={}).text
