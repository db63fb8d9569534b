"""The revisions that an endpoint serves, and those that a declaration names."""

from __future__ import annotations

from typing import Any

import pytest

from mcpfleet.contracts.endpoints import Endpoint
from mcpfleet.contracts.manifest import Definition
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.wire.protocol import LEGACY, MODERN, SERVED_WITH_LEGACY
from tests.unit.edge.asgi import Exchange, Post, request
from tests.unit.edge.played_edge import SETTINGS, Edge, edge, tool

NEWER, OLDER = LEGACY


def settings(*revisions: str, **members: Any) -> EdgeSettings:
    endpoint = Endpoint.model_validate({"path": "/mcp", "sessions": False, "revisions": revisions, **members})
    return SETTINGS.model_copy(update={"endpoints": {"mcp": endpoint}})


def of(definition: Definition, *revisions: str) -> Definition:
    return definition.model_copy(update={"revisions": revisions})


def prompt(name: str) -> Definition:
    wire = {"name": name, "arguments": [{"name": "city"}]}
    return Definition(kind="prompt", name=name, wire=wire, completes=("city",))


def legacy(method: str, params: dict[str, Any] | None = None, version: str | None = NEWER) -> Post:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
    return Post(message, headers={"mcp-protocol-version": version, "mcp-method": None, "mcp-name": None})


def handshake(version: str = NEWER) -> Post:
    client = {"name": "c", "version": "1"}
    return legacy("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": client}, None)


def told(exchange: Exchange) -> tuple[int, bytes]:
    return exchange.status, exchange.body


@pytest.mark.rule("X61")
async def test_a_declaration_is_listed_in_its_revisions_alone() -> None:
    declared = of(tool("new"), MODERN), of(tool("old"), NEWER), tool("both")
    async with edge(*declared, settings=settings(*SERVED_WITH_LEGACY)) as served:
        listed = [
            [each["name"] for each in (await served.answer(post)).json["result"]["tools"]]
            for post in (Post(request("tools/list")), legacy("tools/list"), legacy("tools/list", version=OLDER))
        ]
    assert listed == [["both", "new"], ["both", "old"], ["both"]]


@pytest.mark.rule("X61")
async def test_a_call_in_another_revision_is_that_of_an_unknown_tool() -> None:
    async with edge(of(tool("old"), NEWER), tool("both"), settings=settings(*SERVED_WITH_LEGACY)) as served:

        async def error(post: Post) -> Any:
            return (await served.answer(post)).json["error"]

        hidden = await error(Post(request("tools/call", {"name": "old"})))
        unknown = await error(Post(request("tools/call", {"name": "nothing"})))
        older = await error(legacy("tools/call", {"name": "old"}, OLDER))
        served_one = await error(legacy("tools/call", {"name": "old"}))
    assert hidden == unknown
    assert older["code"] == -32602
    assert served_one["code"] == -32603  # it is called, where nobody is there to run it


@pytest.mark.rule("X61")
async def test_capabilities_and_completions_go_by_the_revision() -> None:
    completing = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "city", "value": "P"}}
    async with edge(tool(), of(prompt("greet"), MODERN), settings=settings(*SERVED_WITH_LEGACY)) as served:
        modern = (await served.answer(Post(request("server/discover")))).json["result"]["capabilities"]
        old = (await served.answer(handshake())).json["result"]["capabilities"]
        asked = (await served.answer(legacy("completion/complete", completing))).json["error"]
    assert {"prompts", "completions"} <= modern.keys()
    assert old.keys() == {"tools"}
    assert asked["code"] == -32601


@pytest.mark.rule("X61")
@pytest.mark.parametrize("revisions", [(MODERN,), (MODERN, OLDER), (NEWER, OLDER), (OLDER,), SERVED_WITH_LEGACY])
async def test_an_endpoint_serves_the_revisions_that_it_names(revisions: tuple[str, ...]) -> None:
    async with edge(tool(), settings=settings(*revisions)) as served:
        found = [version for version in SERVED_WITH_LEGACY if (await served.answer(_listing(version))).status == 200]
    assert tuple(found) == revisions


def _listing(version: str) -> Post:
    return Post(request("tools/list")) if version == MODERN else legacy("tools/list", version=version)


@pytest.mark.rule("X61")
async def test_errors_and_discovery_name_the_revisions_that_are_served() -> None:
    async with edge(tool(), settings=settings(MODERN, OLDER)) as served:
        found = (await served.answer(Post(request("server/discover")))).json["result"]["supportedVersions"]
        refused = (await served.answer(legacy("tools/list", version=NEWER))).json["error"]
        agreed = (await served.answer(handshake(NEWER))).json["result"]["protocolVersion"]
    assert found == [MODERN, OLDER]
    assert (refused["code"], refused["data"]["supported"]) == (-32022, [MODERN, OLDER])
    assert agreed == OLDER


@pytest.mark.rule("X62")
@pytest.mark.parametrize("revisions", [LEGACY, (OLDER,)])
@pytest.mark.parametrize(
    "probe",
    [
        Post(request("server/discover")),
        Post(request("tools/list")),
        legacy("tools/list", version=MODERN),
        Post(request("server/discover"), headers={"mcp-protocol-version": None}),
    ],
    ids=["discover", "a list", "the header alone", "the claim alone"],
)
async def test_an_endpoint_of_2025_answers_a_modern_probe_by_an_empty_400(
    probe: Post, revisions: tuple[str, ...]
) -> None:
    async with edge(tool(), settings=settings(*revisions)) as served:
        assert told(await served.answer(probe)) == (400, b"")
        assert (await served.answer(handshake())).status == 200  # what a client sends next


@pytest.mark.rule("X62")
async def test_without_a_header_the_only_revision_of_2025_is_meant() -> None:
    post = legacy("tools/list", version=None)
    async with edge(tool(), settings=settings(OLDER)) as served:
        assert (await served.answer(post)).json["result"].keys() == {"tools"}
        cancelled = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert told(await served.answer(Post(cancelled, headers={"mcp-protocol-version": None}))) == (202, b"")
    async with edge(tool(), settings=settings(*LEGACY)) as served:
        assert told(await served.answer(post)) == (400, b"")
    async with edge(tool(), settings=settings(MODERN)) as served:
        assert (await served.answer(post)).json["error"]["code"] == -32602


@pytest.mark.rule("X61")
@pytest.mark.parametrize(("is_legacy", "meant"), [(False, (MODERN,)), (True, SERVED_WITH_LEGACY)])
async def test_the_former_spelling_is_read_and_warned_of(is_legacy: bool, meant: tuple[str, ...]) -> None:
    endpoint = Endpoint.model_validate({"path": "/mcp", "legacy": is_legacy})
    assert endpoint.revisions == meant
    assert endpoint.digest == Endpoint.model_validate({"path": "/mcp", "revisions": meant}).digest
    async with edge(tool(), settings=SETTINGS.model_copy(update={"endpoints": {"mcp": endpoint}})) as served:
        assert warnings(served) == [f'"revisions": {_json(meant)}']
    async with edge(tool()) as served:
        assert warnings(served) == []


def warnings(served: Edge) -> list[str]:
    return [line["write"] for line in served.log.entries if line["event"] == "setting renamed"]


def _json(revisions: tuple[str, ...]) -> str:
    return "[" + ",".join(f'"{each}"' for each in revisions) + "]"
