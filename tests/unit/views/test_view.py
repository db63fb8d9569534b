"""What a caller sees of a snapshot."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcpfleet.contracts.catalog import Listed, Snapshot
from mcpfleet.contracts.manifest import Definition
from mcpfleet.contracts.principal import Principal
from mcpfleet.views.view import View, rights_of, view_of
from mcpfleet.wire.parameters import Mirrored
from mcpfleet.wire.versions import SERVED

ANYBODY = Principal()


def listed(name: str, schema: dict[str, Any] | None = None) -> Listed:
    wire = {"name": name, "description": f"About {name}.", "inputSchema": schema or {"type": "object"}}
    definition = Definition(kind="tool", name=name, wire=wire)
    return Listed(pool="library", digest=definition.digest, definition=definition)


def snapshot(*tools: Listed, **fields: Any) -> Snapshot:
    return Snapshot.model_validate(
        {"endpoint": "mcp", "number": 7, "name": "library", "version": "1.2.0", "listed": tools, **fields}
    )


def view(*tools: Listed, principal: Principal = ANYBODY, **fields: Any) -> View:
    return view_of(snapshot(*tools, **fields), rights_of(principal))


def page(of: View) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(of.tools_list(5000))
    return result


def test_m34_tools_are_listed_in_the_order_of_the_snapshot_as_they_were_declared() -> None:
    """The catalog orders by name, so that every edge lists alike."""
    tools = [listed("add"), listed("book"), listed("search")]
    assert page(view(*tools))["tools"] == [tool.definition.wire for tool in tools]


def test_m35_a_list_depends_on_the_snapshot_and_the_callers_rights_alone() -> None:
    tools = [listed("add"), listed("search")]
    assert view(*tools).tools_list(5000) == view(*tools).tools_list(5000)


def test_m18_m45_a_list_says_its_type_and_how_long_it_may_be_kept() -> None:
    result = page(view(listed("search")))
    assert (result["resultType"], result["ttlMs"]) == ("complete", 5000)
    assert "nextCursor" not in result, "M47: one page has no successor, not a null one"


@pytest.mark.parametrize(
    ("principal", "scope"), [(ANYBODY, "public"), (Principal(subject="ann"), "private")], ids=["anybody", "somebody"]
)
def test_m46_a_list_that_depends_on_the_caller_is_private(principal: Principal, scope: str) -> None:
    assert page(view(listed("search"), principal=principal))["cacheScope"] == scope


def test_a_name_leads_to_the_definition_and_its_pool() -> None:
    tool = view(listed("add"), listed("search")).tools["search"]
    assert (tool.listed.pool, tool.listed.definition.name) == ("library", "search")
    assert "find" not in view(listed("search")).tools


def test_m6_a_tool_knows_which_of_its_arguments_stand_in_headers() -> None:
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    assert view(listed("search", schema)).tools["search"].mirrored == (Mirrored("mcp-param-region", ("region",)),)


@pytest.mark.parametrize(("tools", "offered"), [((listed("search"),), {"tools": {}}), ((), {})], ids=["tools", "none"])
def test_m33_an_endpoint_offers_what_was_announced(tools: tuple[Listed, ...], offered: dict[str, Any]) -> None:
    assert view(*tools).capabilities == offered
    assert json.loads(view(*tools).discover(SERVED, 1))["capabilities"] == offered


def test_m29_discover_tells_versions_capabilities_and_instructions() -> None:
    told = json.loads(view(listed("search"), instructions="Search first.").discover(SERVED, 60_000))
    assert told == {
        "_meta": {},
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}},
        "instructions": "Search first.",
        "ttlMs": 60_000,
        "cacheScope": "public",
    }


def test_d15_discover_tells_nothing_that_depends_on_the_caller() -> None:
    tools = [listed("search")]
    somebody = view(*tools, principal=Principal(subject="ann", scopes=("read",)))
    assert somebody.discover(SERVED, 1) == view(*tools).discover(SERVED, 1)


def test_m19_the_server_is_named_as_the_snapshot_names_it() -> None:
    named = json.loads(b"{" + view(title="The Library").server + b"}")
    assert list(named.values()) == [{"name": "library", "version": "1.2.0", "title": "The Library"}]
