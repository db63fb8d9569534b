"""Views of MCP Apps: for clients that show documents, for others, and for those of 2025 (X8, X10, X12, X14)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcpfleet.contracts.apps import APP_TYPE, APPS_EXTENSION, Audience, declares_apps, ui_faults, without_apps
from mcpfleet.contracts.catalog import Listed, Snapshot
from mcpfleet.contracts.manifest import Definition, Kind
from mcpfleet.contracts.principal import Principal
from mcpfleet.views.rights import Policy
from mcpfleet.views.view import View, view_of

BOARD = "ui://shop/board"
WITH, WITHOUT, NO_UI = Audience.WITH_APPS, Audience.WITHOUT_APPS, Audience.WITHOUT_UI


def definition(kind: Kind, name: str, *, meta: dict[str, Any] | None = None, **fields: Any) -> Definition:
    wire: dict[str, Any] = {"name": name}
    if kind == "tool":
        wire["inputSchema"] = {"type": "object"}
    else:
        wire |= {"uri": name, "mimeType": APP_TYPE}
    if meta is not None:
        wire["_meta"] = meta
    return Definition(kind=kind, name=name, wire=wire, **fields)


def tool(name: str, *, visibility: list[str] | None = None, **fields: Any) -> Definition:
    ui: dict[str, Any] = {"resourceUri": BOARD}
    if visibility is not None:
        ui["visibility"] = visibility
    return definition("tool", name, meta={"ui": ui}, **fields)


def seen(
    *definitions: Definition,
    audience: Audience = WITH,
    principal: Principal | None = None,
    revision: str | None = None,
    pools: tuple[str, ...] = (),
) -> View:
    listed = [
        Listed(pool=pools[place] if pools else "shop", digest=each.digest, definition=each)
        for place, each in enumerate(definitions)
    ]
    snapshot = Snapshot(endpoint="mcp", number=1, name="shop", version="1", listed=tuple(listed))
    policy = Policy.of(snapshot, hides_uncovered=False)
    return view_of(snapshot, policy, policy.rights(principal or Principal(), revision, None, audience))


def entries(view: View, kind: Kind = "tool") -> dict[str, Any]:
    found = json.loads(b"[%b]" % view.page(kind, 0, 0).items)
    return {each["name"]: each.get("_meta", {}).get("ui") for each in found}


@pytest.mark.rule("X10", "X12")
def test_with_apps_every_tool_is_listed_with_its_document_and_visibility() -> None:
    stock, refresh = tool("stock"), tool("refresh", visibility=["app"])
    assert entries(seen(stock, refresh, definition("resource", BOARD))) == {
        "stock": {"resourceUri": BOARD},
        "refresh": {"resourceUri": BOARD, "visibility": ["app"]},
    }


@pytest.mark.rule("X12", "X13")
@pytest.mark.parametrize("audience", [WITHOUT, NO_UI])
def test_without_apps_tools_for_documents_alone_are_unlisted_and_exist(audience: Audience) -> None:
    """All others lose `_meta.ui`, and other members of `_meta` stay."""
    stock = definition("tool", "stock", meta={"ui": {"resourceUri": BOARD}, "own": 1})
    refresh = tool("refresh", visibility=["app"])
    view = seen(stock, refresh, definition("resource", BOARD), audience=audience)
    [only] = json.loads(b"[%b]" % view.page("tool", 0, 0).items)
    assert only == {"name": "stock", "inputSchema": {"type": "object"}, "_meta": {"own": 1}}
    assert view.find("tool", "refresh") is not None


@pytest.mark.rule("X12")
def test_pages_count_what_is_listed_alone() -> None:
    tools = [tool(name, visibility=["app"] if name == "b" else None) for name in "abcd"]
    view = seen(*tools, definition("resource", BOARD), audience=WITHOUT)
    first = view.page("tool", 2, 0)
    assert [each["name"] for each in json.loads(b"[%b]" % first.items)] == ["a", "c"]
    assert first.following == 2
    assert [each["name"] for each in json.loads(b"[%b]" % view.page("tool", 2, 2).items)] == ["d"]


@pytest.mark.rule("X10")
def test_a_tool_whose_document_is_hidden_or_of_another_pool_loses_it() -> None:
    """A tool that is for documents alone still says so: it must not come to models."""
    tools = (tool("stock"), tool("refresh", visibility=["app"]))
    lost = {"stock": None, "refresh": {"visibility": ["app"]}}
    hidden = definition("resource", BOARD, only_for=("tenant:acme",))
    assert entries(seen(*tools, hidden)) == lost
    assert entries(seen(*tools, hidden, principal=Principal(subject="ann", tenant="acme")))["stock"] is not None
    assert entries(seen(*tools)) == lost
    assert entries(seen(*tools, definition("resource", BOARD), pools=("shop", "shop", "other"))) == lost
    assert entries(seen(*tools, definition("resource", BOARD, hosted="1"))) == lost
    hosted = tool("stock", hosted="1"), definition("resource", BOARD, hosted="1")
    assert entries(seen(*hosted)) == {"stock": {"resourceUri": BOARD}}


@pytest.mark.rule("X10")
@pytest.mark.parametrize("audience", [WITH, WITHOUT])
def test_no_list_has_the_member_of_drafts(audience: Audience) -> None:
    stock = definition("tool", "stock", meta={"ui/resourceUri": BOARD, "own": 1})
    [only] = json.loads(
        b"[%b]" % seen(stock, definition("resource", BOARD), audience=audience).page("tool", 0, 0).items
    )
    assert only["_meta"] == {"own": 1}


@pytest.mark.rule("X8", "X16")
def test_the_extension_is_offered_where_a_document_is() -> None:
    """To everybody, whoever may see it; but not to clients for whom no `ui://` URI exists."""
    board = definition("resource", BOARD, only_for=("tenant:acme",))
    for audience in (WITH, WITHOUT):
        assert seen(board, audience=audience).capabilities["extensions"] == {APPS_EXTENSION: {}}
    none = seen(board, audience=NO_UI)
    assert "extensions" not in none.capabilities
    assert "resources" not in none.capabilities
    assert "extensions" not in seen(definition("tool", "stock")).capabilities


@pytest.mark.rule("X12", "X16")
def test_documents_are_listed_for_both_unless_they_are_unlisted() -> None:
    """Where no `ui://` URI exists, none is found either."""
    secret = definition("resource", "ui://shop/secret", unlisted=True)
    for audience in (WITH, WITHOUT):
        view = seen(definition("resource", BOARD), secret, audience=audience)
        assert list(entries(view, "resource")) == [BOARD]
        assert view.find_resource(BOARD) is not None
        assert view.find_resource(secret.name) is not None
    none = seen(definition("resource", BOARD), secret, audience=NO_UI)
    assert not entries(none, "resource")
    assert none.find_resource(BOARD) is None


@pytest.mark.rule("X14")
def test_a_list_that_differs_by_audience_is_private_and_only_its_own_streams_differ() -> None:
    board = definition("resource", BOARD)
    one, other = seen(tool("stock"), board), seen(tool("stock", visibility=["model"]), board)
    assert (one.list_scope("tool"), one.list_scope("resource"), one.scope) == ("private", "public", "public")
    assert one.list_digest("tools") != other.list_digest("tools")
    assert one.list_digest("resources") == other.list_digest("resources")
    plain = [seen(tool("stock", visibility=each), board, audience=WITHOUT) for each in (None, ["model"])]
    assert plain[0].list_digest("tools") == plain[1].list_digest("tools")
    assert plain[0].list_scope("tool") == "private"
    assert seen(definition("tool", "x"), board).list_scope("tool") == "public"


@pytest.mark.rule("X12")
def test_without_apps_in_a_snapshot_all_kinds_of_clients_share_a_view() -> None:
    listed = definition("tool", "x")
    snapshot = Snapshot(
        endpoint="mcp", number=1, name="shop", version="1",
        listed=(Listed(pool="shop", digest=listed.digest, definition=listed),),
    )  # fmt: skip
    policy = Policy.of(snapshot, hides_uncovered=False)
    assert len({policy.rights(Principal(), audience=audience) for audience in Audience}) == 1


@pytest.mark.rule("X11")
@pytest.mark.parametrize(
    "capabilities",
    [
        {},
        {"extensions": []},
        {"extensions": {APPS_EXTENSION: {}}},
        {"extensions": {APPS_EXTENSION: None}},
        {"extensions": {APPS_EXTENSION: {"mimeTypes": APP_TYPE}}},
        {"extensions": {APPS_EXTENSION: {"mimeTypes": ["text/html", {"x": 1}]}}},
        {"experimental": {APPS_EXTENSION: {"mimeTypes": [APP_TYPE]}}},
    ],
)
def test_only_the_media_type_in_the_capability_counts(capabilities: dict[str, Any]) -> None:
    assert not declares_apps(capabilities)
    assert without_apps(capabilities) is capabilities


@pytest.mark.rule("X11")
def test_a_client_with_apps_names_the_media_type() -> None:
    declared = {"extensions": {APPS_EXTENSION: {"mimeTypes": ["image/png", APP_TYPE]}, "own": {}}, "roots": {}}
    assert declares_apps(declared)
    assert without_apps(declared) == {"extensions": {"own": {}}, "roots": {}}


@pytest.mark.rule("X9", "X10")
@pytest.mark.parametrize(
    ("wrong", "member"),
    [
        (definition("template", "ui://shop/{x}"), "name"),
        (
            Definition(kind="resource", name=BOARD, wire={"uri": BOARD, "name": "x", "mimeType": "text/html"}),
            "mimeType",
        ),
        (definition("tool", "x", meta={"ui": {"resourceUri": "https://x"}}), "resourceUri"),
        (definition("tool", "x", meta={"ui": {"resourceUri": 7}}), "resourceUri"),
        (definition("tool", "x", meta={"ui": {"visibility": []}}), "visibility"),
        (definition("tool", "x", meta={"ui": {"visibility": [["app"]]}}), "visibility"),
    ],
)
def test_the_catalog_refuses_what_hosts_could_not_read(wrong: Definition, member: str) -> None:
    [fault] = ui_faults(wrong)
    assert member in fault


@pytest.mark.rule("X9", "X10")
def test_the_catalog_takes_what_hosts_read() -> None:
    for right in (tool("x", visibility=["app", "model"]), definition("resource", BOARD), definition("tool", "y")):
        assert ui_faults(right) == []
