"""Schemas without `$ref`: definitions stand where they are used, unless they contain themselves or grow too much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from pydantic_core import to_json

from mcpfleet.app import Tool
from mcpfleet.app.inlining import FREE_SIZE, inlined
from mcpfleet.app.validation import Validator

Declare = Callable[..., Tool]


class Part(BaseModel):
    """A part of something."""

    weight: int


class Car(BaseModel):
    engine: Part = Field(description="What drives it.")
    seats: list[Part] = []
    spare: Part | None = None


class Node(BaseModel):
    part: Part
    children: list[Node] = []


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


async def drive(car: Car, spare: Part) -> Car:
    raise NotImplementedError


async def plant(root: Node) -> Node:
    raise NotImplementedError


async def feed(animal: Annotated[Cat | Dog, Field(discriminator="kind")]) -> None: ...


@pytest.mark.rule("M27", "M89")
def test_nested_models_are_written_out_in_both_schemas(declare: Declare) -> None:
    wire = declare(drive).definition.wire
    assert "$ref" not in str(wire)
    assert "$defs" not in str(wire)
    car = wire["inputSchema"]["properties"]["car"]
    assert car["properties"]["seats"]["items"]["properties"] == {"weight": {"type": "integer"}}
    assert wire["outputSchema"]["properties"]["spare"]["anyOf"][0]["required"] == ["weight"]


def test_a_fields_own_words_replace_those_of_its_type(declare: Declare) -> None:
    car = declare(drive).definition.wire["inputSchema"]["properties"]["car"]
    assert car["properties"]["engine"]["description"] == "What drives it."
    assert car["properties"]["seats"]["items"]["description"] == "A part of something."


def test_recursion_stays_a_reference_and_the_rest_is_written_out(declare: Declare) -> None:
    wire = declare(plant).definition.wire
    for schema in (wire["inputSchema"]["$defs"]["Node"], wire["outputSchema"]["$defs"]["Node"]):
        assert schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
        assert schema["properties"]["part"]["type"] == "object"
    assert set(wire["inputSchema"]["$defs"]) == {"Node"}
    assert wire["outputSchema"]["type"] == "object"  # and no `$ref` in its place


def test_openapis_mapping_to_definitions_goes_with_them(declare: Declare) -> None:
    animal = declare(feed).definition.wire["inputSchema"]["properties"]["animal"]
    assert animal["discriminator"] == {"propertyName": "kind"}
    assert [each["properties"]["kind"]["const"] for each in animal["oneOf"]] == ["cat", "dog"]


def test_rules_beside_a_reference_hold_together_with_those_of_its_target() -> None:
    schema = {"$ref": "#/$defs/Low", "minimum": 3, "$defs": {"Low": {"minimum": 1}}}
    assert inlined(schema) == {"allOf": [{"minimum": 1}], "minimum": 3}


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"type": "object"}, id="no definitions"),
        pytest.param({"$ref": "#/properties/a", "properties": {"a": {}}, "$defs": {"b": {}}}, id="a place elsewhere"),
        pytest.param({"$ref": "#/$defs/b/items", "$defs": {"b": {"items": {}}}}, id="a part of a definition"),
    ],
)
def test_what_is_not_ours_to_write_stays(schema: dict[str, Any]) -> None:
    assert inlined(schema) is schema


def test_names_and_data_that_look_like_references_are_neither() -> None:
    schema = {
        "properties": {"$ref": {"const": {"$ref": "#/$defs/a"}}, "b": {"$ref": "#/$defs/a~1b"}},
        "$defs": {"a/b": {"type": "null"}},
    }
    assert inlined(schema) == {"properties": {"$ref": {"const": {"$ref": "#/$defs/a"}}, "b": {"type": "null"}}}


def doubling(levels: int, words: str = "") -> dict[str, Any]:
    """A schema whose definitions each use the next one twice."""
    below = {f"L{level}": {"allOf": [{"$ref": f"#/$defs/L{level + 1}"}] * 2} for level in range(levels)}
    return {"$ref": "#/$defs/L0", "$defs": below | {f"L{levels}": {"description": words}}}


@pytest.mark.rule("M27", "M89")
def test_a_schema_that_would_grow_too_much_keeps_its_references() -> None:
    assert "$ref" not in str(inlined(doubling(5)))
    bomb = doubling(40)  # which would be a trillion times larger
    assert inlined(bomb) is bomb


def test_a_large_schema_may_double() -> None:
    words = "x" * FREE_SIZE
    once = {"allOf": [{"$ref": "#/$defs/D"}], "$defs": {"D": {"description": words}}}
    thrice = {"allOf": [{"$ref": "#/$defs/D"}] * 3, "$defs": {"D": {"description": words}}}
    assert "$ref" not in str(inlined(once))
    assert inlined(thrice) is thrice


@pytest.mark.rule("M27")
def test_a_schema_that_would_be_too_deep_keeps_its_references() -> None:
    chain: dict[str, Any] = {f"L{level}": {"items": {"$ref": f"#/$defs/L{level + 1}"}} for level in range(70)}
    schema = {"$ref": "#/$defs/L0", "$defs": chain | {f"L{len(chain)}": {}}}
    assert inlined(schema) is schema
    Validator(schema)


_NAMES = ["A", "B", "C"]
_REFS = st.sampled_from(_NAMES).map(lambda name: {"$ref": f"#/$defs/{name}"})
_SCHEMAS = st.recursive(
    st.one_of(_REFS, st.sampled_from([{"type": "integer"}, {"type": "null"}, {"minimum": 2}, {"required": ["a"]}])),
    lambda inner: st.one_of(
        inner.map(lambda each: {"type": "array", "items": each}),
        inner.map(lambda each: {"properties": {"a": each}}),
        st.lists(inner, min_size=1, max_size=2).map(lambda each: {"anyOf": each}),
        st.tuples(inner, inner).map(lambda pair: {**pair[0], "description": "d", "not": pair[1]}),
    ),
    max_leaves=4,
)
_VALUES = st.recursive(
    st.one_of(st.none(), st.integers(0, 4)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.just("a"), inner)),
    max_leaves=4,
)


def _is_grounded(schema: dict[str, Any]) -> bool:
    """Whether no definition is only a way round to itself, which no validator could follow."""
    return all("$ref" not in each and "anyOf" not in each and "not" not in each for each in schema["$defs"].values())


@given(_SCHEMAS, st.fixed_dictionaries(dict.fromkeys(_NAMES, _SCHEMAS)), st.lists(_VALUES, min_size=1, max_size=5))
def test_an_inlined_schema_accepts_the_same_values(
    root: dict[str, Any], shared: dict[str, Any], values: list[Any]
) -> None:
    schema = {**root, "$defs": shared}
    if not _is_grounded(schema):
        return
    before, after = Validator(schema), Validator(inlined(schema))
    for value in values:
        assert before.accepts(value) == after.accepts(value), to_json(inlined(schema))
