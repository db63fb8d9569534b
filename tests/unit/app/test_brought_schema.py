"""Schemas that the author brings along: kept whole, obeyed, and nothing fetched for them."""

import copy
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mcpfleet.app import DeclarationError, InvalidArguments, Outcome, OutputError, Problem, Tool
from mcpfleet.app.validation import DIALECTS, MAX_SCHEMA_DEPTH, MAX_SUBSCHEMAS

Declare = Callable[..., Tool]
Call = Callable[..., Awaitable[Outcome]]

CONTACT: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"street": {"$anchor": "street", "type": ["string", "null"], "default": None}},
    "properties": {"kind": {"enum": ["home", "work", None]}, "street": {"$ref": "#street"}, "floor": {"minimum": 1.0}},
    "allOf": [{"anyOf": [{"required": ["street"]}, {"required": ["floor"]}]}],
    "if": {"properties": {"kind": {"const": None}}, "required": ["kind"]},
    "then": {"required": ["floor"]},
    "else": {"required": ["street"]},
    "additionalProperties": False,
}


async def whole(arguments: dict[str, Any]) -> dict[str, Any]:
    return arguments


def test_a_schema_is_announced_whole(declare: Declare) -> None:
    """`$defs`, anchors, composition, conditions and null values inside stay."""
    definition = declare(whole, input_schema=CONTACT, output_schema=CONTACT).definition
    assert definition.wire["inputSchema"] == CONTACT
    assert definition.wire["outputSchema"] == CONTACT


def test_a_schema_is_a_copy_of_the_authors(declare: Declare) -> None:
    schema = copy.deepcopy(CONTACT)
    tool = declare(whole, input_schema=schema)
    schema["properties"]["late"] = {}
    assert tool.definition.wire["inputSchema"] == CONTACT


async def test_the_handler_gets_all_arguments_as_one_dict(call: Call) -> None:
    outcome = await call(whole, {"street": "Main", "floor": 2**70}, input_schema=CONTACT)
    assert outcome.structured == {"street": "Main", "floor": 2**70}


async def test_arguments_are_held_to_the_schema(call: Call) -> None:
    with pytest.raises(InvalidArguments) as caught:
        await call(whole, {"street": 5, "floor": 0}, input_schema=CONTACT)
    assert set(caught.value.problems) == {
        Problem("street", "must be string or null"),
        Problem("floor", "must be at least 1.0"),
    }


@pytest.mark.rule("M27")
@pytest.mark.parametrize("dialect", [*DIALECTS, DIALECTS[2] + "#"])
def test_known_dialects_are_obeyed(declare: Declare, dialect: str) -> None:
    declare(whole, input_schema={"$schema": dialect, "type": "object"})


@pytest.mark.rule("M27")
async def test_an_older_dialect_has_its_own_meaning(call: Call) -> None:
    """A list under `items` is a tuple in draft 7, and no schema at all in 2020-12."""
    tuples = {"type": "object", "properties": {"pair": {"items": [{"type": "integer"}, {"type": "string"}]}}}
    with pytest.raises(InvalidArguments, match="integer"):
        await call(whole, {"pair": ["x", "y"]}, input_schema={"$schema": DIALECTS[2], **tuples})
    with pytest.raises(DeclarationError):
        await call(whole, {"pair": ["x", "y"]}, input_schema=tuples)


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("schema", "match"),
    [
        pytest.param({"$schema": "https://example.com/mine", "type": "object"}, "dialect", id="M27 unknown dialect"),
        pytest.param(
            {"type": "object", "$defs": {"a": {"$schema": "https://example.com/mine"}}}, "dialect", id="M27 inside"
        ),
        pytest.param(
            {"type": "object", "properties": {"a": {"$ref": "https://example.com/a.json"}}},
            "nothing is fetched",
            id="M26 http",
        ),
        pytest.param({"type": "object", "$ref": "file:///etc/passwd"}, "nothing is fetched", id="M26 file"),
        pytest.param(
            {"type": "object", "$defs": {"a": {"$ref": "https://example.com/a.json"}}},
            "nothing is fetched",
            id="M26 where nothing leads",
        ),
        pytest.param({"type": "object", "$ref": "#/$defs/lost"}, "lost", id="reference to nothing"),
        pytest.param({"type": "objekt"}, "object", id="not an object's schema"),
        pytest.param({}, "object", id="M37 no type"),
        pytest.param({"type": "object", "properties": 5, "required": {}}, "properties", id="not even of its form"),
        pytest.param({"type": "object", "properties": {"a": True}}, "properties", id="what some clients cannot read"),
        pytest.param({"type": "object", "required": [1]}, "required", id="names that are none"),
        pytest.param({"type": "object", "minProperties": "2"}, "minProperties", id="not valid in its dialect"),
        pytest.param({"type": "object", "properties": {"a": {"pattern": "("}}}, "pattern", id="bad pattern"),
        pytest.param({"type": "object", "default": object()}, "JSON", id="not JSON"),
        pytest.param({"type": "object", "default": float("nan")}, "JSON", id="not finite"),
        pytest.param({"type": "object", **nested(MAX_SCHEMA_DEPTH + 1)}, "levels deep", id="M27 too deep"),
        pytest.param({"type": "object", "allOf": [{}] * MAX_SUBSCHEMAS}, "subschemas", id="M27 too many"),
    ],
)
@pytest.mark.rule("M26", "M27", "M37")
def test_an_unusable_schema_is_refused_when_declared(declare: Declare, schema: dict[str, Any], match: str) -> None:
    with pytest.raises(DeclarationError, match=match) as caught:
        declare(whole, input_schema=schema)
    assert "whole" in str(caught.value)


@pytest.mark.parametrize("schema", [{"type": "object", **nested(MAX_SCHEMA_DEPTH)}, {"type": "object", "$id": "urn:a"}])
def test_a_schema_within_the_bounds_is_taken(declare: Declare, schema: dict[str, Any]) -> None:
    declare(whole, input_schema=schema)


def test_words_of_the_schema_language_are_ordinary_in_data(declare: Declare) -> None:
    """`$schema` or `$ref` inside a default, an example or an enum is no keyword."""
    data = {"$schema": "https://example.com/mine", "$ref": "https://example.com/a.json"}
    schema = {"type": "object", "properties": {"$schema": {"default": data, "examples": [data], "enum": [data]}}}
    declare(whole, input_schema=schema)


@pytest.mark.rule("M27")
async def test_a_pattern_that_never_ends_counts_as_no_match(call: Call) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": r"^(a|aa)+\1$"}}}
    with pytest.raises(InvalidArguments, match="pattern"):
        await call(whole, {"a": "a" * 60 + "b"}, input_schema=schema)


async def two(arguments: dict[str, Any], other: int) -> None: ...


async def named(query: str) -> None: ...


async def none() -> None: ...


@pytest.mark.parametrize("handler", [two, named, none])
def test_a_handler_that_cannot_take_all_arguments_is_refused(declare: Declare, handler: Any) -> None:
    with pytest.raises(DeclarationError, match="arguments: dict"):
        declare(handler, input_schema={"type": "object"})


@pytest.mark.rule("M39")
async def test_the_authors_output_schema_is_the_contract(call: Call) -> None:
    async def tool() -> dict[str, Any]:
        return {"pages": -1}

    schema = {"type": "object", "properties": {"pages": {"minimum": 0}}}
    with pytest.raises(OutputError, match="pages: must be at least 0"):
        await call(tool, output_schema=schema)


@pytest.mark.rule("M38")
async def test_an_output_schema_may_describe_any_value(call: Call) -> None:
    async def tool() -> str:
        return "plain"

    outcome = await call(tool, output_schema={"type": "string"})
    assert outcome.fields()["structuredContent"] == "plain"


def test_an_output_schema_and_no_structured_content_exclude_each_other(declare: Declare) -> None:
    async def tool() -> dict[str, Any]:
        return {}

    with pytest.raises(DeclarationError, match="structured=False"):
        declare(tool, output_schema={"type": "object"}, structured=False)
