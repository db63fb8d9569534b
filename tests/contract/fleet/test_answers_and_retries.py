"""A call's own answer, and a second call of the same."""

from __future__ import annotations

import json
import threading
from typing import Any

import anyio
import httpx2
import pytest

from mcpfleet.app import App, Context
from mcpfleet.testing.local import LocalFleet
from tests.kit.waiting import until
from tests.unit.edge.asgi import CAPABILITIES_KEY, Post, call

LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
SECRET = "a-token-that-nobody-else-reads"


class Shop:
    """An application whose handlers note what they did."""

    def __init__(self) -> None:
        self.bought: list[str] = []
        self.may_end = threading.Event()
        self.app = App("shop", version="1.0.0")
        self.app.tool()(self.tell)
        self.app.tool(may_ask={"sampling"})(self.perhaps)
        self.app.tool()(self.buy)

    async def tell(self, word: str, ctx: Context) -> str:
        """Report and log."""
        await ctx.progress(1, message=word)
        await ctx.log("info", word)
        await anyio.sleep(0.05)
        await ctx.progress(2, message=word)
        return word

    async def perhaps(self, ctx: Context) -> str:
        """Report, where the client could answer what may be asked."""
        await ctx.progress(1)
        return "done"

    async def buy(self, what: str) -> str:
        """Have an effect, and take long to say so."""
        self.bought.append(what)
        while not self.may_end.is_set():  # noqa: ASYNC110  # who sets it is on another thread
            await anyio.sleep(0.005)
        return what


async def send(http: httpx2.AsyncClient, post: Post) -> httpx2.Response:
    headers = [(name.decode(), value.decode()) for name, value in post.pairs() if name != b"host"]
    return await http.post(post.path, content=post.body, headers=headers)


def events(response: httpx2.Response) -> list[Any]:
    lines = response.text.split("\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


@pytest.mark.rule("M16")
async def test_reports_and_log_messages_are_only_on_the_stream_of_their_request() -> None:
    answers: dict[str, httpx2.Response] = {}
    async with LocalFleet(Shop().app) as fleet, fleet.http() as http:

        async def ask(word: str, meta: dict[str, Any]) -> None:
            answers[word] = await send(http, Post(call("tell", {"word": word}, meta=meta)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, "one", {"progressToken": 1, LOG_LEVEL_KEY: "debug"})
            tasks.start_soon(ask, "two", {"progressToken": "1"})
            tasks.start_soon(ask, "three", {})
    of_one = events(answers["one"])
    assert {each["params"].get("progressToken", 1) for each in of_one[:-1]} == {1}
    assert "notifications/message" in {each["method"] for each in of_one[:-1]}
    assert [each["params"]["progressToken"] for each in events(answers["two"])[:-1]] == ["1", "1"]
    assert "two" not in answers["one"].text
    assert answers["three"].headers["content-type"] == "application/json"


@pytest.mark.rule("P4")
@pytest.mark.parametrize(("capabilities", "streams"), [({}, False), ({"sampling": {}}, True)])
async def test_nothing_is_reported_while_a_capability_that_may_be_needed_is_missing(
    capabilities: dict[str, Any], streams: bool
) -> None:
    """The answer stays uncommitted, so that the handler can still end in an error of the protocol's."""
    message = call("perhaps", meta={"progressToken": 1, CAPABILITIES_KEY: capabilities})
    async with LocalFleet(Shop().app) as fleet, fleet.http() as http:
        response = await send(http, Post(message))
    assert response.headers["content-type"].startswith("text/event-stream") is streams
    assert response.status_code == 200


@pytest.mark.rule("P11")
async def test_a_cancel_takes_nothing_back_and_a_retry_is_a_new_call() -> None:
    """The application alone knows its effect, by a key of its own."""
    shop = Shop()
    async with LocalFleet(shop.app) as fleet, fleet.http() as http:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send, http, Post(call("buy", {"what": "book"})))
            await until(lambda: shop.bought)
            tasks.cancel_scope.cancel()
        shop.may_end.set()
        response = await send(http, Post(call("buy", {"what": "book"})))
    assert response.json()["result"]["content"][0]["text"] == "book"
    assert shop.bought == ["book", "book"]


@pytest.mark.rule("M65")
async def test_a_token_goes_to_authorization_and_to_no_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Invariant 9: no other message on the bus has it, so no worker could hand it on."""
    tokens = [{"token": SECRET, "subject": "ann", "audience": "http://localhost/mcp"}]
    environment = {
        "MCPFLEET_AUTHORIZATION": "static",
        "MCPFLEET_TOKENS": json.dumps({"tokens": tokens}),
        "MCPFLEET_PUBLIC_URL": "http://localhost",
    }
    carried: set[str] = set()
    async with LocalFleet(Shop().app, environment=environment) as fleet, fleet.http() as http:
        route = fleet.switch.route

        def noted(sender: Any, message: Any) -> None:
            if SECRET in repr(message):
                carried.add(message.subject)
            route(sender, message)

        monkeypatch.setattr(fleet.switch, "route", noted)
        message = call("tell", {"word": "hi"}, meta={"progressToken": 1})
        response = await send(http, Post(message, {"authorization": f"Bearer {SECRET}"}))
    assert events(response)[-1]["result"]["isError"] is False
    assert carried == {"mcpfleet.authorization.admit"}
