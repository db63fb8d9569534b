"""The definitions that an endpoint shows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from mcpfleet.catalog.rules import (
    EndpointState,
    Key,
    Merged,
    Pool,
    PoolManifest,
    ShownDefinition,
    holdings,
    inputs_digest,
    is_change,
    merge,
)
from mcpfleet.contracts.catalog import Snapshot
from mcpfleet.contracts.endpoints import Endpoint
from mcpfleet.contracts.manifest import Definition, Manifest, digest_of

ENDPOINT = Endpoint(path="/mcp")


def tool(name: str, description: str = "") -> Definition:
    wire: dict[str, Any] = {"name": name, "description": description, "inputSchema": {"type": "object"}}
    return Definition(kind="tool", name=name, wire=wire)


def serving(pool: str, since: float, *names: str, **about: Any) -> PoolManifest:
    return offering(pool, since, *(tool(name) for name in names), **about)


def offering(pool: str, since: float, *tools: Definition, **about: Any) -> PoolManifest:
    about = {"name": f"{pool}-app", "version": "1.0.0"} | about
    return PoolManifest(pool, since, Manifest(definitions=tuple(tool.text for tool in tools), **about))


def merged(
    *pools: PoolManifest,
    endpoint: Endpoint = ENDPOINT,
    held: Mapping[Key, ShownDefinition] | None = None,
    limit: int = 9999,
) -> Merged:
    return merge("mcp", endpoint, pools, held or {}, limit=limit)


def shown(result: Merged) -> list[tuple[str, str]]:
    return [(listed.definition.name, listed.pool) for listed in result.snapshot.listed]


def refused(result: Merged) -> list[tuple[str, str]]:
    return [(refusal.name, refusal.pool) for refusal in result.refusals]


def test_lists_are_in_the_order_of_names_whoever_came_first() -> None:
    """M34: the same order on every edge."""
    result = merged(serving("b", 2, "delta", "alpha"), serving("a", 1, "charlie", "Bravo"))
    assert [name for name, _ in shown(result)] == ["Bravo", "alpha", "charlie", "delta"]


def test_a_listed_definition_carries_its_digest() -> None:
    (listed,) = merged(serving("a", 1, "search")).snapshot.listed
    assert listed.digest == tool("search").digest


@pytest.mark.parametrize(
    ("first", "second", "held", "owner"),
    [
        pytest.param(1, 2, {}, "a", id="who came first has the name"),
        pytest.param(2, 1, {}, "b", id="whichever it is"),
        pytest.param(1, 1, {}, "a", id="at the same moment every replica chooses the same"),
        pytest.param(1, 2, {("search", "tool"): ShownDefinition("b", 0)}, "b", id="who holds it keeps it"),
        pytest.param(1, 2, {("search", "tool"): ShownDefinition("gone", 0)}, "a", id="who held it is gone"),
    ],
)
def test_a_name_that_two_pools_claim(
    first: float, second: float, held: Mapping[Key, ShownDefinition], owner: str
) -> None:
    """M36: an alarm, not a coin toss."""
    result = merged(serving("a", first, "search"), serving("b", second, "search"), held=held)
    assert shown(result) == [("search", owner)]
    assert refused(result) == [("search", "b" if owner == "a" else "a")]
    assert f"the pool {owner} has that name" in result.refusals[0].reason


def test_a_name_that_one_pool_may_not_show_can_be_shown_by_a_later_pool() -> None:
    endpoint = Endpoint(path="/mcp", names={"a": ("read",)})
    result = merged(serving("a", 1, "search", "read"), serving("b", 2, "search"), endpoint=endpoint)
    assert shown(result) == [("read", "a"), ("search", "b")]
    assert refused(result) == [("search", "a")]


def test_pools_that_the_endpoint_does_not_admit_do_not_count() -> None:
    endpoint = Endpoint(path="/mcp", pools=("a",))
    result = merged(serving("a", 2, "search"), serving("b", 1, "search"), endpoint=endpoint)
    assert shown(result) == [("search", "a")]
    assert refused(result) == []
    assert result.snapshot.name == "a-app"


def test_one_pools_endpoint_is_its_application() -> None:
    about = {"name": "library", "version": "2.1", "title": "Library", "instructions": "Read."}
    snapshot = merged(serving("a", 1, "search", **about)).snapshot
    assert (snapshot.name, snapshot.version, snapshot.title, snapshot.instructions) == (
        "library",
        "2.1",
        "Library",
        "Read.",
    )


def test_the_endpoints_own_title_and_instructions_go_first() -> None:
    endpoint = Endpoint(path="/mcp", title="Ours", instructions="Ask.")
    about = {"title": "Library", "instructions": "Read."}
    snapshot = merged(serving("a", 1, **about), endpoint=endpoint).snapshot
    assert (snapshot.name, snapshot.title, snapshot.instructions) == ("a-app", "Ours", "Ask.")


def test_an_endpoint_of_several_pools_is_itself() -> None:
    """No pool's instructions reach the callers of another."""
    endpoint = Endpoint(path="/mcp", title="Ours", version="7")
    about = {"title": "Library", "instructions": "Read."}
    snapshot = merged(serving("a", 1, **about), serving("b", 1, **about), endpoint=endpoint).snapshot
    assert (snapshot.name, snapshot.version, snapshot.title, snapshot.instructions) == ("mcp", "7", "Ours", None)


def test_what_does_not_fit_is_left_out_by_whole_pools() -> None:
    size = len(merged(serving("a", 1, "search")).snapshot.listed[0].model_dump_json(exclude_defaults=True))
    result = merged(
        serving("a", 1, "search"), serving("b", 2, "other1", "other2"), serving("c", 3, "third1"), limit=2 * size + 9
    )
    assert shown(result) == [("search", "a"), ("third1", "c")]
    assert refused(result) == [("other1", "b"), ("other2", "b")]
    assert "MCPFLEET_SNAPSHOT_LIMIT" in result.refusals[0].reason


def test_the_holdings_of_a_snapshot() -> None:
    result = merged(serving("a", 1, "search"), serving("b", 2, "read"))
    sizes = {listed.pool: len(listed.model_dump_json(exclude_defaults=True)) for listed in result.snapshot.listed}
    assert holdings(result.snapshot) == {
        ("search", "tool"): ShownDefinition("a", sizes["a"]),
        ("read", "tool"): ShownDefinition("b", sizes["b"]),
    }


def after(*pools: PoolManifest) -> dict[Key, ShownDefinition]:
    """The definitions that a snapshot of these pools shows."""
    return holdings(merged(*pools).snapshot)


def size_of(definition: Definition) -> int:
    (listed,) = merged(offering("a", 1, definition)).snapshot.listed
    return len(listed.model_dump_json(exclude_defaults=True))


ROOM = size_of(tool("search"))
"""The bytes of one tool with a name of six letters."""


def test_a_pool_that_adds_tools_evicts_nobody() -> None:
    """However early it came: what is shown keeps its room, and its own new tools are refused."""
    before = after(serving("a", 1, "search"), serving("b", 2, "browse"))
    grown = serving("a", 1, "search", "sketch")
    result = merged(grown, serving("b", 2, "browse"), held=before, limit=2 * ROOM)
    assert shown(result) == [("browse", "b"), ("search", "a")]
    assert refused(result) == [("sketch", "a")]
    assert "MCPFLEET_SNAPSHOT_LIMIT" in result.refusals[0].reason


def test_a_pool_whose_tool_grows_evicts_nobody() -> None:
    before = after(serving("a", 1, "search"), serving("b", 2, "browse"))
    grown = offering("a", 1, tool("search", "at length"))
    result = merged(grown, serving("b", 2, "browse"), held=before, limit=2 * ROOM)
    assert shown(result) == [("browse", "b")]
    assert refused(result) == [("search", "a")]


def test_a_tool_that_grows_takes_the_room_that_nobody_else_has() -> None:
    before = after(serving("a", 1, "search"), serving("b", 2, "browse"))
    grown = offering("a", 1, tool("search", "at length"))
    result = merged(grown, serving("b", 2, "browse"), held=before, limit=2 * ROOM + 9)
    assert shown(result) == [("browse", "b"), ("search", "a")]


def test_a_limit_that_was_lowered_is_kept_by_the_pools_that_came_later() -> None:
    pools = serving("a", 1, "search"), serving("b", 2, "browse")
    result = merged(*pools, held=after(*pools), limit=2 * ROOM - 1)
    assert shown(result) == [("search", "a")]


def test_a_definition_goes_by_the_digest_of_the_text_that_was_announced() -> None:
    """A newer release's field is not known here, and the calls still go where its workers listen."""
    text = json.dumps({**json.loads(tool("search").text), "added_later": True})
    result = merge(
        "mcp", ENDPOINT, [PoolManifest("a", 1, Manifest(name="a", version="1", definitions=(text,)))], {}, limit=9999
    )
    (listed,) = result.snapshot.listed
    assert listed.digest == digest_of(text.encode()) != tool("search").digest
    assert Snapshot.model_validate_json(result.snapshot.model_dump_json()).listed[0].digest == listed.digest


def test_equal_catalogs_have_equal_digests_and_others_do_not() -> None:
    one, other = serving("a", 1, "search", "read"), serving("b", 2, "scan")
    assert merged(one, other).digest == merged(other, one).digest
    assert merged(one).digest != merged(one, other).digest
    assert merged(one).digest != merged(serving("a", 1, "search", "read", version="2")).digest


@pytest.mark.parametrize(
    ("number", "digest", "pools", "is_new"),
    [
        pytest.param(0, "", [serving("a", 1, "search")], True, id="the first pool"),
        pytest.param(0, "", [], False, id="nobody came yet"),
        pytest.param(3, "other", [], True, id="the last pool went"),
        pytest.param(3, merged(serving("a", 1, "search")).digest, [serving("a", 1, "search")], False, id="as before"),
        pytest.param(3, "other", [serving("a", 1)], True, id="a pool that offers nothing"),
    ],
)
def test_what_is_a_new_snapshot(number: int, digest: str, pools: list[PoolManifest], is_new: bool) -> None:
    book = EndpointState("mcp", number, 0, "", "", digest)
    assert is_change(book, merged(*pools)) is is_new


def test_inputs_are_what_every_pool_lists_whatever_the_settings() -> None:
    a, b = Pool("a", "0" * 32, 1.0), Pool("b", "1" * 32, 2.0)
    assert inputs_digest([a, b]) == inputs_digest([b, a])
    assert inputs_digest([a, b]) != inputs_digest([a])
    assert inputs_digest([a]) != inputs_digest([Pool("a", "3" * 32, 1.0)])
    assert inputs_digest([a]) == inputs_digest([Pool("a", "0" * 32, 1.0, is_empty=True)])


# -- own extensions ---------------------------------------------------------------------------------------------------

STOCK = "com.example/stock"


def extending(pool: str, since: float, *own: Definition) -> PoolManifest:
    """A pool with one tool, and definitions of own extensions."""
    return offering(pool, since, tool(f"{pool}_tool"), extensions=tuple(each.text for each in own))


def extension(name: str = STOCK) -> Definition:
    return Definition(kind="extension", name=name, wire={})


def method(name: str, of: str = STOCK) -> Definition:
    return Definition(kind="method", name=name, wire={}, extension=of)


def notification(name: str, field: str, of: str = STOCK) -> Definition:
    return Definition(kind="notification", name=name, wire={}, extension=of, filter=field)


def extended(result: Merged) -> list[tuple[str, str]]:
    return [(listed.definition.name, listed.pool) for listed in result.snapshot.extensions]


@pytest.mark.rule("X42")
def test_own_extensions_stand_apart_from_lists_and_two_pools_share_no_name() -> None:
    told = "notifications/stock/changed"
    first = extending("a", 1, extension(), method("stock/count"), notification(told, "items"))
    other = "com.example/other"
    second = extending(
        "b", 2, extension(other), method("stock/count", other), method("other/count", other),
        notification("notifications/other/changed", "items", other), notification(told, "others", other),
    )  # fmt: skip
    result = merged(first, second)
    assert shown(result) == [("a_tool", "a"), ("b_tool", "b")]
    assert extended(result) == [
        (other, "b"), (STOCK, "a"), (told, "a"), ("other/count", "b"), ("stock/count", "a"),
    ]  # fmt: skip
    reasons = {(refusal.kind, refusal.name): refusal.reason for refusal in result.refusals}
    assert reasons == {
        ("method", "stock/count"): "the pool a has that name",
        ("notification", told): "the pool a has that name",
        ("notification", "notifications/other/changed"): "the pool a has the filter 'items'",
    }
    assert merged(second, first, held=holdings(result.snapshot)).digest == result.digest


@pytest.mark.rule("X42")
def test_what_belongs_to_another_pools_extension_is_refused_with_it() -> None:
    result = merged(extending("a", 1, extension()), extending("b", 2, extension(), method("stock/count")))
    assert extended(result) == [(STOCK, "a")]
    assert [(each.name, each.reason) for each in result.refusals] == [
        (STOCK, "the pool a has that name"),
        ("stock/count", f"the pool a has its extension '{STOCK}'"),
    ]


# -- the description of a server ---------------------------------------------------------------------------------------


@pytest.mark.rule("X65")
def test_one_pools_application_describes_the_server() -> None:
    about = {"description": "Lends books.", "icons": ({"src": "https://a.example/i.png"},), "website_url": "https://a"}
    alone = merged(serving("a", 1, "search", **about)).snapshot
    assert {name: getattr(alone, name) for name in about} == about
    shared = merged(serving("a", 1, **about), serving("b", 1, **about)).snapshot
    assert (shared.description, shared.icons, shared.website_url) == (None, (), None)


@pytest.mark.rule("X66")
def test_an_endpoint_logs_if_one_of_its_pools_does() -> None:
    assert merged(serving("a", 1, "search", logs=False), serving("b", 1, "find")).snapshot.logs
    assert not merged(serving("a", 1, "search", logs=False), serving("b", 1, "find", logs=False)).snapshot.logs


@pytest.mark.rule("X74")
def test_the_least_ttl_of_all_pools_counts_unless_the_endpoint_has_its_own() -> None:
    pools = (
        serving("a", 1, "search", ttl={"tools": 30.0, "discover": 600.0, "prompts": 7.0}),
        serving("b", 1, "find", ttl={"tools": 60.0, "discover": 300.0}),
    )
    snapshot = merged(*pools).snapshot
    assert (snapshot.ttl, snapshot.partly) == ({"tools": 30.0, "discover": 300.0, "prompts": 7.0}, ("prompts",))
    own = Endpoint(path="/mcp", ttl={"tools": 90.0, "prompts": 1.0})
    snapshot = merged(*pools, endpoint=own).snapshot
    assert (snapshot.ttl, snapshot.partly) == ({"tools": 90.0, "discover": 300.0, "prompts": 1.0}, ())
