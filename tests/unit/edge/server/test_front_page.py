"""A browser at `/`, or at an endpoint, gets a page; every other client gets what it gets there without the page."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from typing import Any

import pytest

from mcpfleet.contracts.endpoints import Endpoint
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.process.service import Pages, Process
from tests.unit.edge import played_edge
from tests.unit.edge.asgi import Exchange, Post
from tests.unit.edge.played_edge import Catalog, Edge

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
CONSOLE = "http://127.0.0.1:9101"


async def opened(edge: Edge, *, accept: str | None = BROWSER, method: str = "GET", **headers: str) -> Exchange:
    return await edge.answer(Post(path="/", method=method, raw=b"", headers={"accept": accept, **headers}))


def text(answer: Exchange) -> str:
    return answer.body.decode()


def head(answer: Exchange) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in answer.sent[0]["headers"]}


def edge(**settings: Any) -> Edge:
    return Edge(Catalog(), EdgeSettings(**settings))


async def test_a_browser_learns_what_this_is_and_how_to_connect() -> None:
    answer = await opened(edge())
    assert answer.status == 200
    assert head(answer)["content-type"] == "text/html; charset=utf-8"
    for part in (
        "Model Context Protocol",
        "<code>http://127.0.0.1:8000/mcp</code>",
        "mcpfleet list http://127.0.0.1:8000/mcp",
    ):
        assert part in text(answer)
    assert "token" not in text(answer)
    assert "onsole" not in text(answer)


async def test_a_head_gets_the_head_of_the_page() -> None:
    """RFC 9110, 9.3.2: the server leaves the body away."""
    assert (await opened(edge(), method="HEAD")).sent[0] == (await opened(edge())).sent[0]


@pytest.mark.parametrize("accept", [None, "*/*", "application/json, text/event-stream", "text/html2", "xtext/html"])
async def test_another_client_gets_the_404_of_any_path(accept: str | None) -> None:
    answer = await opened(edge(), accept=accept)
    assert (answer.status, json.loads(answer.body)["error"]["message"]) == (404, "Not found: no endpoint has this path")


@pytest.mark.parametrize("path", ["/one", "/one/"])
async def test_a_browser_at_an_endpoint_reads_of_that_one_alone(path: str) -> None:
    """People paste the URL that `ready` shows. A caller that may not read `/` learns of no other endpoint."""
    served = edge(endpoints={"one": Endpoint(path="/one", title="One"), "two": Endpoint(path="/two")})
    answer = await served.answer(Post(path=path, method="GET", raw=b"", headers={"accept": BROWSER}))
    assert answer.status == 200
    assert "mcpfleet list http://127.0.0.1:8000/one" in text(answer)
    assert "two" not in text(answer)


@pytest.mark.parametrize("accept", [None, "*/*", "text/event-stream", "text/html, text/event-stream"])
async def test_a_client_at_an_endpoint_gets_no_page(accept: str | None) -> None:
    answer = await edge().answer(Post(path="/mcp", method="GET", raw=b"", headers={"accept": accept}))
    assert answer.status == 405


@pytest.mark.parametrize(("method", "path"), [("POST", "/"), ("DELETE", "/"), ("GET", "/other"), ("GET", "/mcp/more")])
async def test_the_page_is_at_known_places_and_is_only_read(method: str, path: str) -> None:
    answer = await edge().answer(Post(path=path, method=method, raw=b"", headers={"accept": BROWSER}))
    assert answer.status == 404


@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"origin": "https://evil.example"}])
async def test_the_page_is_for_allowed_hosts_and_origins(headers: dict[str, str]) -> None:
    assert (await opened(edge(), **headers)).status == 403


async def test_the_page_runs_nothing_and_loads_nothing() -> None:
    answer = await opened(edge())
    policy = head(answer)["content-security-policy"]
    style = re.search("<style>(.*)</style>", text(answer), re.DOTALL)
    assert style is not None
    digest = b64encode(sha256(style[1].encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in policy
    assert (head(answer)["x-content-type-options"], head(answer)["vary"]) == ("nosniff", "Accept")
    assert "script" not in text(answer)


async def test_titles_are_text_and_every_endpoint_is_listed() -> None:
    endpoints = {"one": Endpoint(path="/one", title="<b>One</b>"), "two": Endpoint(path="/two")}
    answer = await opened(
        edge(endpoints=endpoints, public_url="https://mcp.example.com/x", bind="0.0.0.0:80", public_hosts=("a",)),
        host="a",
    )
    assert "<h1>&lt;b&gt;One&lt;/b&gt;</h1>" in text(answer)
    for url in ("https://mcp.example.com/x/one", "https://mcp.example.com/x/two"):
        assert f"<code>{url}</code>" in text(answer)


async def test_a_fleet_with_tokens_says_that_clients_need_one_and_shows_none() -> None:
    answer = await opened(edge(authorization="static", public_url="http://127.0.0.1:8000"))
    assert "Clients need a token" in text(answer)


@pytest.mark.parametrize(
    ("admin", "console", "host", "is_linked"),
    [
        (CONSOLE, True, "localhost:8000", True),
        (CONSOLE, False, "localhost:8000", False),
        (CONSOLE, True, "mcp.example.com", False),
        ("http://0.0.0.0:9101", True, "localhost:8000", False),
        ("", True, "localhost:8000", False),
    ],
)
async def test_the_console_is_linked_for_who_is_at_this_machine(
    admin: str, console: bool, host: str, is_linked: bool
) -> None:
    """The admin port of a fleet that others reach is no link for them."""
    settings = EdgeSettings(console=console, public_hosts=("mcp.example.com",))
    made = played_edge.Edge(Catalog(), settings, Process("edge", settings, pages=Pages(admin)))
    answer = await opened(made, host=host)
    assert (f'<a href="{CONSOLE}/console">' in text(answer)) is is_linked
    assert ("9101" in text(answer)) is is_linked
