"""The description of a server that its application gives: who it is, whether it logs, how long its lists hold."""

from __future__ import annotations

from typing import Any, Final

import pytest

from mcpfleet.contracts.endpoints import Endpoint
from mcpfleet.wire.protocol import LEGACY
from tests.unit.edge.asgi import Post, request
from tests.unit.edge.played_edge import SETTINGS, edge, tool
from tests.unit.edge.server.test_revisions import handshake

NAMED: Final = {"name": "library", "version": "1", "title": "Library"}
ICONS: Final = [{"src": "https://example.com/a.png", "sizes": ["48x48"]}]
TOLD: Final = {"description": "Lends books.", "websiteUrl": "https://example.com", "icons": ICONS}
ABOUT: Final[dict[str, Any]] = {
    "title": "Library",
    "description": "Lends books.",
    "website_url": "https://example.com",
    "icons": ICONS,
}
SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
WITHOUT_SESSIONS = SETTINGS.model_copy(update={"endpoints": {"mcp": Endpoint(path="/mcp", sessions=False)}})


@pytest.mark.rule("X65")
async def test_discovery_describes_the_server_and_other_results_name_it() -> None:
    async with edge(tool(), **ABOUT) as served:
        found = (await served.answer(Post(request("server/discover")))).json["result"]
        listed = (await served.answer(Post(request("tools/list")))).json["result"]
    assert found["_meta"][SERVER_INFO] == {**NAMED, **TOLD}
    assert listed["_meta"][SERVER_INFO] == NAMED


@pytest.mark.rule("X65")
@pytest.mark.parametrize(("revision", "more"), [(LEGACY[0], TOLD), (LEGACY[1], {})])
async def test_a_handshake_describes_the_server_as_its_revision_can(revision: str, more: dict[str, Any]) -> None:
    async with edge(tool(), settings=WITHOUT_SESSIONS, **ABOUT) as served:
        agreed = (await served.answer(handshake(revision))).json["result"]
    assert agreed["serverInfo"] == {**NAMED, **more}


@pytest.mark.rule("X66")
async def test_without_logs_logging_is_not_offered() -> None:
    async with edge(tool(), logs=False) as served:
        found = (await served.answer(Post(request("server/discover")))).json["result"]["capabilities"]
    assert found.keys() == {"tools"}


@pytest.mark.rule("X66")
async def test_by_default_logging_is_offered_where_a_handler_may_log() -> None:
    async with edge(tool()) as served:
        found = (await served.answer(Post(request("server/discover")))).json["result"]["capabilities"]
    assert found.keys() == {"tools", "logging"}
    async with edge() as served:
        found = (await served.answer(Post(request("server/discover")))).json["result"]["capabilities"]
    assert found == {}


@pytest.mark.rule("X74")
@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ({}, (60_000, 5_000)),
        ({"ttl": {"discover": 600, "tools": 30}}, (600_000, 30_000)),
        ({"ttl": {"prompts": 30}}, (60_000, 5_000)),
        ({"ttl": {"discover": 600, "tools": 30}, "partly": ["discover", "tools"]}, (60_000, 5_000)),
        ({"ttl": {"discover": 6, "tools": 3}, "partly": ["discover", "tools"]}, (6_000, 3_000)),
    ],
)
async def test_answers_may_be_kept_as_long_as_their_pools_or_the_settings_say(
    about: dict[str, Any], expected: tuple[int, int]
) -> None:
    async with edge(tool(), **about) as served:
        found = [
            (await served.answer(Post(request(each)))).json["result"] for each in ("server/discover", "tools/list")
        ]
    assert tuple(each["ttlMs"] for each in found) == expected
