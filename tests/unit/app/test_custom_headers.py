"""Arguments that a header repeats: what a declaration may say (M7)."""

import warnings
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from mcpfleet.app import DeclarationError, DeclarationWarning, Tool

Declare = Callable[..., Tool]


async def whole(arguments: dict[str, Any]) -> None: ...


def properties(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def header(name: Any, kind: Any = "string", **more: Any) -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": name, **more}


@pytest.mark.rule("M7")
@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(properties(region=header("Region")), id="string"),
        pytest.param(properties(shard=header("Shard", "integer")), id="integer"),
        pytest.param(properties(dry=header("Dry-Run", "boolean")), id="boolean"),
        pytest.param(properties(a=header("A"), b=header("B")), id="two names"),
        pytest.param(properties(a=properties(b=header("B"))), id="nested in properties alone"),
        pytest.param(properties(a=header("!#$%&'*+.^_`|~09")), id="every kind of token character"),
        pytest.param(properties(a=header("A", "integer", maximum=2**53 - 1)), id="safe integers"),
        pytest.param(properties(**{"x-mcp-header": {"type": "string"}}), id="a property of that name"),
        pytest.param(properties(a={"default": {"x-mcp-header": ""}}), id="data that looks like one"),
    ],
)
def test_a_good_header_is_taken(declare: Declare, schema: dict[str, Any]) -> None:
    assert declare(whole, input_schema=schema).definition.wire["inputSchema"] == schema


@pytest.mark.rule("M7")
@pytest.mark.parametrize(
    ("schema", "why"),
    [
        pytest.param(properties(a=header("")), "name", id="empty"),
        pytest.param(properties(a=header("two words")), "name", id="space"),
        pytest.param(properties(a=header("line\r\n")), "name", id="line end"),
        pytest.param(properties(a=header("Größe")), "name", id="other letters"),
        pytest.param(properties(a=header("Key:")), "name", id="colon"),
        pytest.param(properties(a=header(5)), "name", id="no text"),
        pytest.param(properties(a=header("Region"), b=header("rEGION")), "taken", id="taken, ignoring case"),
        pytest.param(properties(a=header("A", "number")), "type", id="number"),
        pytest.param(properties(a=header("A", "object")), "type", id="object"),
        pytest.param(properties(a=header("A", "array")), "type", id="array"),
        pytest.param(properties(a=header("A", ["string", "null"])), "type", id="two types"),
        pytest.param(properties(a={"x-mcp-header": "A"}), "type", id="no type"),
        pytest.param(properties(a=header("A", "integer", maximum=2**53)), "integers", id="unsafe maximum"),
        pytest.param(properties(a=header("A", "integer", minimum=-(2**53))), "integers", id="unsafe minimum"),
        pytest.param(properties(a=header("A", "integer", enum=[1, 2**60])), "integers", id="unsafe value"),
        pytest.param({"type": "object", "x-mcp-header": "A"}, "properties alone", id="at the root"),
        pytest.param(properties(a={"type": "array", "items": header("A")}), "properties alone", id="in items"),
        pytest.param(properties(a={"prefixItems": [header("A")]}), "properties alone", id="in prefixItems"),
        pytest.param({"type": "object", "anyOf": [properties(a=header("A"))]}, "properties alone", id="in anyOf"),
        pytest.param({"type": "object", "not": properties(a=header("A"))}, "properties alone", id="in not"),
        pytest.param({"type": "object", "then": properties(a=header("A"))}, "properties alone", id="in then"),
        pytest.param(
            {**properties(a={"$ref": "#/$defs/a"}), "$defs": {"a": header("A")}}, "properties alone", id="behind $ref"
        ),
        pytest.param({"type": "object", "additionalProperties": header("A")}, "properties alone", id="any name"),
        pytest.param(
            {"type": "object", "patternProperties": {"^a": header("A")}}, "properties alone", id="patterned name"
        ),
    ],
)
def test_a_bad_header_is_refused(declare: Declare, schema: dict[str, Any], why: str) -> None:
    with pytest.raises(DeclarationError, match=why):
        declare(whole, input_schema=schema)


@pytest.mark.rule("M7")
@pytest.mark.parametrize(
    ("parameter", "name"), [("password", "P"), ("a", "Api-Key"), ("access_token", "T"), ("a", "Session")]
)
def test_a_name_that_looks_secret_is_warned_of(declare: Declare, parameter: str, name: str) -> None:
    with pytest.warns(DeclarationWarning, match="secret"):
        declare(whole, input_schema=properties(**{parameter: header(name)}))


Region = Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]


class Location(BaseModel):
    region: Region


@pytest.mark.rule("M7")
def test_a_parameter_asks_for_a_header_by_its_field(declare: Declare) -> None:
    async def query(region: Region) -> None: ...

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wire = declare(query).definition.wire
    assert wire["inputSchema"]["properties"]["region"] == {"type": "string", "x-mcp-header": "Region"}


@pytest.mark.rule("M7")
def test_a_model_may_ask_for_a_header_of_one_of_its_fields(declare: Declare) -> None:
    async def query(place: Location) -> None: ...

    place = declare(query).definition.wire["inputSchema"]["properties"]["place"]
    assert place["properties"]["region"]["x-mcp-header"] == "Region"


@pytest.mark.rule("M7")
def test_a_header_in_a_list_of_models_has_no_place_of_its_own(declare: Declare) -> None:
    async def query(places: list[Location]) -> None: ...

    with pytest.raises(DeclarationError, match="properties alone") as caught:
        declare(query)
    assert caught.value.parameter == "region"
