"""Clients see every member that a source declares, and the changes of the configuration."""

from __future__ import annotations

from typing import Any

import pytest

from mcpfleet.contracts.manifest import MOST_DEFINITIONS, Rate
from mcpfleet.sources.overlay import LARGEST, Overlaid, SourceLists, overlay, together
from mcpfleet.sources.source import Command, Source

SCHEMA = {"type": "object", "properties": {"id": {"type": "string"}, "deep": {"type": "object"}}}


def source(name: str = "memory", **members: Any) -> Source:
    return Source.model_validate({"name": name, "way": Command(words=("memory",)), "prefix": "memory_", **members})


def tool(name: str, **members: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": SCHEMA, **members}


def names(laid: Overlaid) -> list[str]:
    return [offer.definition.name for offer in laid.offers]


def reasons(laid: Overlaid) -> list[str]:
    return [str(each) for each in laid.left_out]


@pytest.mark.rule("B1")
def test_every_member_stays_unknown_ones_and_nulls_too() -> None:
    raw = tool("add", title=None, description="Adds.", x={"y": [None, 12345678901234567890]}, _meta={"a/b": 1})
    (offer,) = overlay(source(), SourceLists(tools=(raw,))).offers
    assert offer.definition.wire == {**raw, "name": "memory_add"}
    assert (offer.source, offer.declared, offer.is_renamed) == ("memory", "add", True)


def test_a_prefix_stands_before_tools_and_prompts_and_no_uri() -> None:
    lists = SourceLists(
        tools=(tool("a"),),
        prompts=({"name": "p", "arguments": [{"name": "x"}]},),
        resources=({"uri": "memo://a", "name": "a"},),
        templates=({"uriTemplate": "memo://{id}", "name": "t"},),
    )
    laid = overlay(source(), lists)
    assert names(laid) == ["memory_a", "memory_p", "memo://a", "memo://{id}"]
    assert [offer.definition.completes for offer in laid.offers] == [(), (), (), ()]
    laid = overlay(source(), SourceLists(lists.tools, lists.prompts, lists.resources, lists.templates, completes=True))
    assert [offer.definition.completes for offer in laid.offers] == [(), ("x",), (), ("id",)]


def test_a_tools_settings_change_what_they_name_and_nothing_else() -> None:
    settings = {
        "name": "forget",
        "description": "Forgets.",
        "annotations": {"destructiveHint": True},
        "scopes": ["write"],
        "only_for": ["tenant:acme"],
        "rate": {"calls": 3, "seconds": 60},
        "timeout": 5,
        "asks": ["sampling"],
        "task": "required",
        "era": "2026",
        "idempotency_key": "id",
    }
    raw = tool("delete", annotations={"readOnlyHint": False}, title="Delete")
    (changed, other) = overlay(
        source(tools={"delete": settings}, scopes=["memory"]), SourceLists(tools=(raw, tool("add")))
    ).offers
    definition = changed.definition
    assert definition.wire == {
        **raw, "name": "forget", "description": "Forgets.",
        "annotations": {"readOnlyHint": False, "destructiveHint": True},
    }  # fmt: skip
    assert definition.scopes == ("memory", "write")
    assert (definition.only_for, definition.rate) == (("tenant:acme",), Rate(calls=3, seconds=60))
    assert (definition.timeout, definition.may_ask, definition.task) == (5, ("sampling",), "required")
    assert (definition.idempotency_key, changed.era) == ("id", "2026")
    assert other.definition.wire == {**tool("add"), "name": "memory_add"}
    assert (other.definition.scopes, other.definition.timeout, other.era) == (("memory",), 60.0, "auto")


def test_patterns_and_hiding_choose_tools_alone() -> None:
    lists = SourceLists(tools=tuple(map(tool, ("get_a", "get_b", "get_c", "set_a"))), prompts=({"name": "set_p"},))
    laid = overlay(source(only=["get_*"], leave_out=["*_b"], tools={"get_c": {"hide": True}}), lists)
    assert names(laid) == ["memory_get_a", "memory_set_p"]
    assert all(each.is_wanted for each in laid.left_out)
    assert reasons(laid) == [
        "memory: the tool 'get_b' is left out: a pattern of `except` has it",
        "memory: the tool 'get_c' is left out: it is hidden",
        "memory: the tool 'set_a' is left out: no pattern of `only` has it",
    ]


@pytest.mark.rule("B25")
@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (tool("a b"), "name: 1 to 128 letters, digits, _ - and ."),
        (tool("x" * 128), "name: 1 to 128 letters, digits, _ - and ."),
        (tool("a", inputSchema={"type": "array"}), "wire.inputSchema"),
        (
            tool("a", inputSchema={"type": "object", "properties": {"a": {"$ref": "https://x/y"}}}),
            "that refers to itself",
        ),
        ({"name": "a"}, "wire: inputSchema"),
        ({"name": 3}, "name must be a text"),
        (tool("a", execution={"taskSupport": "required"}), "its calls must be tasks of the source"),
        (tool("a", x=float("nan")), "numbers or texts that JSON cannot carry"),
        (tool("a", x="y" * LARGEST), f"it has over {LARGEST} bytes"),
        (tool("a", x="\ud800"), "texts that JSON cannot carry"),
    ],
)
def test_what_clients_could_not_read_is_left_out_and_the_rest_served(raw: dict[str, Any], why: str) -> None:
    laid = overlay(source(), SourceLists(tools=(raw, tool("good"))))
    assert names(laid) == ["memory_good"]
    (left_out,) = laid.left_out
    assert why in left_out.why
    assert not left_out.is_wanted


@pytest.mark.rule("B25")
def test_resources_and_templates_that_no_uri_can_match_are_left_out() -> None:
    lists = SourceLists(
        resources=({"uri": "no uri", "name": "a"}, {"uri": "memo://a", "name": "a"}),
        templates=({"uriTemplate": "memo://{?q}", "name": "t"}, {"uriTemplate": "memo://{id}", "name": "t"}),
    )
    laid = overlay(source(), lists)
    assert names(laid) == ["memo://a", "memo://{id}"]
    assert [each.name for each in laid.left_out] == ["no uri", "memo://{?q}"]


def test_a_declaration_that_nests_without_end_is_left_out() -> None:
    deep: Any = {}
    for _ in range(5_000):
        deep = {"x": deep}
    laid = overlay(source(), SourceLists(tools=(tool("a", x=deep), tool("good"))))
    assert names(laid) == ["memory_good"]


def test_an_icon_that_no_client_loads_is_dropped_alone() -> None:
    icons = [{"src": "http://x/a.png"}, {"src": "https://x/a.png"}]
    laid = overlay(source(), SourceLists(tools=(tool("a", icons=icons),)))
    assert laid.offers[0].definition.wire["icons"] == icons[1:]
    assert laid.notes == ("memory: icons of the tool 'a' must be https: or data:",)


def test_two_tools_of_one_name_and_an_unknown_tool_are_named() -> None:
    laid = overlay(
        source(tools={"b": {"name": "memory_a"}, "delet": {"hide": True}}, place="fleet.toml:3"),
        SourceLists(tools=(tool("a"), tool("b"), tool("a"), tool("delete"))),
    )
    assert names(laid) == ["memory_a", "memory_delete"]
    assert [each.why for each in laid.left_out] == ["'a' is called 'memory_a' too", "another tool has its name"]
    assert laid.notes == ("fleet.toml:3: tools.delet: the source has no such tool: did you mean 'delete'?",)


def test_a_long_name_is_noted_and_an_idempotency_key_must_be_an_argument() -> None:
    laid = overlay(source(tools={"a": {"idempotency_key": "deep"}}), SourceLists(tools=(tool("a"), tool("y" * 60))))
    assert [each.why for each in laid.left_out] == [
        "idempotency_key must name an argument that is a text or an integer"
    ]
    assert "over 64 characters" in laid.notes[0]


@pytest.mark.rule("B24")
def test_of_two_sources_with_one_name_the_first_is_served_and_no_other_name_changes() -> None:
    one = overlay(
        source("one", prefix=""), SourceLists(tools=(tool("a"), tool("b")), resources=({"uri": "x://a", "name": "a"},))
    )
    two = overlay(
        source("two", prefix=""), SourceLists(tools=(tool("b"), tool("c")), resources=({"uri": "x://a", "name": "a"},))
    )
    both = together([one, two])
    assert names(both) == ["a", "b", "x://a", "c"]
    assert reasons(both) == [
        "two: the tool 'b' is left out: one has a tool 'b' too, and stands first",
        "two: the resource 'x://a' is left out: one has a resource 'x://a' too, and stands first",
    ]


def test_what_is_over_a_pools_bounds_is_left_out() -> None:
    lists = SourceLists(tools=tuple(tool(f"t{number}") for number in range(MOST_DEFINITIONS + 2)))
    laid = together([overlay(source(), lists)])
    assert len(laid.offers) == MOST_DEFINITIONS
    assert [each.name for each in laid.left_out] == ["t2000", "t2001"]
    large = SourceLists(tools=tuple(tool(f"t{number}", x="y" * (LARGEST - 1_000)) for number in range(14)))
    laid = together([overlay(source(), large)])
    assert (len(laid.offers), len(laid.left_out)) == (12, 2)
