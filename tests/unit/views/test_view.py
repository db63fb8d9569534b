"""A caller's view of a snapshot."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcpfleet.contracts.catalog import Listed, Snapshot
from mcpfleet.contracts.manifest import Definition
from mcpfleet.contracts.principal import Principal
from mcpfleet.views.rights import Policy
from mcpfleet.views.view import ListPage, View, view_of
from mcpfleet.wire.mirror import Mirrored
from mcpfleet.wire.protocol import SERVED

ANYBODY = Principal()


def listed(name: str, schema: dict[str, Any] | None = None, **fields: Any) -> Listed:
    wire = {"name": name, "description": f"About {name}.", "inputSchema": schema or {"type": "object"}}
    definition = Definition(kind="tool", name=name, wire=wire, **fields)
    return Listed(pool="library", digest=definition.digest, definition=definition)


def snapshot(*tools: Listed, **fields: Any) -> Snapshot:
    return Snapshot.model_validate(
        {"endpoint": "mcp", "number": 7, "name": "library", "version": "1.2.0", "listed": tools, **fields}
    )


def view(*tools: Listed, principal: Principal = ANYBODY, hides_uncovered: bool = False, **fields: Any) -> View:
    taken = snapshot(*tools, **fields)
    policy = Policy.of(taken, hides_uncovered=hides_uncovered)
    return view_of(taken, policy, policy.rights(principal))


def names(page: ListPage) -> list[str]:
    return [item["name"] for item in json.loads(b"[" + page.items + b"]")]


@pytest.mark.rule("M34")
def test_a_list_is_in_the_order_of_the_names_as_they_were_declared() -> None:
    tools = [listed("search"), listed("add"), listed("book")]
    page = view(*tools).page("tool", 0, 0)
    assert json.loads(b"[" + page.items + b"]") == [tools[each].definition.wire for each in (1, 2, 0)]
    assert page.following is None


@pytest.mark.rule("M47")
def test_a_list_is_cut_into_pages_of_a_size() -> None:
    of = view(*map(listed, "abcde"))
    first = of.page("tool", 2, 0)
    assert (names(first), first.following) == (["a", "b"], 2)
    second = of.page("tool", 2, 2)
    assert (names(second), second.following) == (["c", "d"], 4)
    third = of.page("tool", 2, 4)
    assert (names(third), third.following) == (["e"], None)


@pytest.mark.rule("M46")
@pytest.mark.parametrize(
    ("principal", "scope"),
    [
        (ANYBODY, "public"),
        (Principal(subject="ann"), "private"),
        (Principal(client="cli"), "private"),
        (Principal(tenant="acme"), "private"),
        (Principal(scopes=("read",)), "private"),
    ],
    ids=["anybody", "subject", "client", "tenant", "scopes"],
)
def test_what_somebody_is_told_is_private(principal: Principal, scope: str) -> None:
    assert view(listed("search"), principal=principal).scope == scope


@pytest.mark.rule("M46")
def test_what_depends_on_a_rule_is_private_for_everybody() -> None:
    assert view(listed("search"), listed("secret", only_for=("tenant:acme",))).scope == "private"


@pytest.mark.rule("D10")
@pytest.mark.parametrize(
    ("rule", "fits"),
    [
        ("tenant:acme", True),
        ("tenant:ac*", True),
        ("tenant:other", False),
        ("client:agent-?", True),
        ("subject:ann", True),
        ("subject:bob", False),
        ("planet:mars", False),
    ],
)
def test_what_no_rule_gives_a_caller_does_not_exist_for_it(rule: str, fits: bool) -> None:
    ann = Principal(subject="ann", client="agent-7", tenant="acme")
    of = view(listed("search"), listed("secret", only_for=(rule,)), principal=ann)
    assert (of.find("tool", "secret") is not None) is fits
    assert of.find("tool", "search") is not None


@pytest.mark.rule("D10")
def test_what_scopes_do_not_cover_is_listed_unless_a_setting_hides_it() -> None:
    reader = Principal(subject="ann", scopes=("read",))
    tools = (listed("look", scopes=("read",)), listed("change", scopes=("read", "write")))
    assert names(view(*tools, principal=reader).page("tool", 0, 0)) == ["change", "look"]
    assert names(view(*tools, principal=reader, hides_uncovered=True).page("tool", 0, 0)) == ["look"]
    open_to_all = view(*tools, hides_uncovered=True)
    assert names(open_to_all.page("tool", 0, 0)) == ["change", "look"], "nobody is refused, so nothing is hidden"


@pytest.mark.rule("D10")
@pytest.mark.parametrize(
    ("principal", "held"),
    [
        (ANYBODY, True),
        (Principal(subject="ann", scopes=("read", "write")), True),
        (Principal(subject="ann", scopes=("read",)), False),
        (Principal(client="cli"), False),
        (Principal(client="cli", scopes=("read", "write")), True),
        (Principal(tenant="acme"), False),
        (Principal(scopes=("read",)), False),
    ],
)
def test_a_named_caller_needs_the_scopes_and_an_anonymous_one_needs_none(principal: Principal, *, held: bool) -> None:
    assert principal.holds(("read", "write")) is held


def test_a_name_leads_to_the_definition_and_its_pool() -> None:
    tool = view(listed("add"), listed("search")).find("tool", "search")
    assert tool is not None
    assert (tool.listed.pool, tool.listed.definition.name) == ("library", "search")
    assert view(listed("search")).find("tool", "find") is None


@pytest.mark.rule("M6")
def test_a_tool_knows_which_of_its_arguments_stand_in_headers() -> None:
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    tool = view(listed("search", schema)).find("tool", "search")
    assert tool is not None
    assert tool.mirrored == (Mirrored("mcp-param-region", ("region",)),)


@pytest.mark.rule("M33")
@pytest.mark.parametrize(
    ("tools", "offered"),
    [((listed("search"),), {"tools": {"listChanged": True}, "logging": {}}), ((), {})],
    ids=["tools", "none"],
)
def test_an_endpoint_offers_what_was_announced(tools: tuple[Listed, ...], offered: dict[str, Any]) -> None:
    assert view(*tools).capabilities == offered
    assert json.loads(view(*tools).discover(SERVED, 1))["capabilities"] == offered


@pytest.mark.rule("M29")
def test_discover_tells_versions_capabilities_and_instructions() -> None:
    told = json.loads(view(listed("search"), instructions="Search first.").discover(SERVED, 60_000))
    assert told == {
        "_meta": {},
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {"listChanged": True}, "logging": {}},
        "instructions": "Search first.",
        "ttlMs": 60_000,
        "cacheScope": "public",
    }


@pytest.mark.rule("D15")
def test_discover_tells_nothing_that_depends_on_the_caller() -> None:
    tools = [listed("search")]
    somebody = view(*tools, principal=Principal(subject="ann", scopes=("read",)))
    assert somebody.discover(SERVED, 1) == view(*tools).discover(SERVED, 1)


@pytest.mark.rule("M42")
def test_a_uri_leads_to_the_resource_of_that_name_before_any_template() -> None:
    one, many = resource("library://books/1"), template("library://books/{book}")
    of = view(many, one)
    found = [of.find_resource(uri) for uri in ("library://books/1", "library://books/2", "library://shelves/1")]
    assert [target and target.listed.digest for target in found] == [one.digest, many.digest, None]


@pytest.mark.rule("M33")
def test_resources_prompts_and_completions_are_offered_where_there_are_any() -> None:
    assert set(view(template("library://{book}", completes=("book",))).capabilities) == {
        "resources",
        "completions",
        "logging",
    }


def resource(uri: str) -> Listed:
    definition = Definition(kind="resource", name=uri, wire={"uri": uri, "name": uri})
    return Listed(pool="library", digest=definition.digest, definition=definition)


def template(uri: str, **fields: Any) -> Listed:
    definition = Definition(kind="template", name=uri, wire={"uriTemplate": uri, "name": uri}, **fields)
    return Listed(pool="library", digest=definition.digest, definition=definition)


@pytest.mark.rule("M19")
def test_the_server_is_named_as_the_snapshot_names_it() -> None:
    named = json.loads(b"{" + view(title="The Library").server + b"}")
    assert list(named.values()) == [{"name": "library", "version": "1.2.0", "title": "The Library"}]


@pytest.mark.rule("X61")
def test_only_a_uri_of_other_revisions_is_left_out_of_a_stream() -> None:
    """A URI where nothing is may come to be; one that another revision has never does."""
    wire = {"uri": "x://old", "name": "old"}
    old = Definition(kind="resource", name="x://old", wire=wire, revisions=("2025-11-25",))
    template = Definition(kind="template", name="y://{at}", wire={"name": "y"}, revisions=("2025-11-25",))
    named = [Listed(pool="library", digest=each.digest, definition=each) for each in (old, template)]
    policy = Policy.of(taken := snapshot(*named), hides_uncovered=False)
    seen = view_of(taken, policy, policy.rights(ANYBODY, "2026-07-28"))
    others = [uri for uri in ("x://old", "y://1", "x://new") if seen.is_of_other_revisions(uri)]
    assert others == ["x://old", "y://1"]
    former = view_of(taken, policy, policy.rights(ANYBODY, "2025-11-25"))
    assert not former.is_of_other_revisions("x://old")
