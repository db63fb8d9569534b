"""Arguments that a tool wants mirrored in headers (M6)."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from mcpfleet.wire.errors import Rejection
from mcpfleet.wire.headers import Headers
from mcpfleet.wire.mirror import Mirrored, check_parameters, mirrored

SCHEMA = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "dry": {"type": "boolean", "x-mcp-header": "Dry-Run"},
        "shelf": {"type": "object", "properties": {"row": {"type": "integer", "x-mcp-header": "Row"}}},
        "free": {"type": "string"},
    },
}
PARAMETERS = tuple(mirrored(SCHEMA))

Pairs = list[tuple[bytes, bytes]]


def headers(**values: str | bytes) -> Pairs:
    return [
        (f"mcp-param-{name.replace('_', '-')}".encode(), value if isinstance(value, bytes) else value.encode())
        for name, value in values.items()
    ]


def base64_form(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def agrees(sent: Pairs, arguments: dict[str, Any]) -> bool:
    try:
        check_parameters(Headers(sent), PARAMETERS, arguments)
    except Rejection as rejection:
        if rejection.code != -32020:
            raise
        return False
    return True


@pytest.mark.rule("M6")
def test_annotated_properties_are_found_at_their_exact_path() -> None:
    assert set(PARAMETERS) == {
        Mirrored("mcp-param-region", ("region",)),
        Mirrored("mcp-param-count", ("count",)),
        Mirrored("mcp-param-dry-run", ("dry",)),
        Mirrored("mcp-param-row", ("shelf", "row")),
    }


@pytest.mark.rule("M7")
@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}]},
        {"properties": {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}}},
        {"$defs": {"A": {"type": "string", "x-mcp-header": "A"}}, "properties": {"a": {"$ref": "#/$defs/A"}}},
        {"properties": {"a": True}},
        {"properties": {"x-mcp-header": {"type": "string"}}},
        {"type": "object"},
    ],
)
def test_only_a_chain_of_properties_leads_to_one(schema: dict[str, Any]) -> None:
    assert list(mirrored(schema)) == []


@pytest.mark.rule("M6")
@pytest.mark.parametrize(
    ("sent", "arguments"),
    [
        (headers(region="eu"), {"region": "eu"}),
        (headers(region=" eu\t"), {"region": "eu"}),
        (headers(region=""), {"region": ""}),
        (headers(region=base64_form("Zürich")), {"region": "Zürich"}),
        (headers(region=base64_form(" eu ")), {"region": " eu "}),
        (headers(count="42"), {"count": 42}),
        (headers(count="42.0"), {"count": 42}),
        (headers(count="42"), {"count": 42.0}),
        (headers(count="-7"), {"count": -7}),
        (headers(dry_run="true"), {"dry": True}),
        (headers(dry_run="false"), {"dry": False}),
        (headers(row="3"), {"shelf": {"row": 3}}),
        (headers(), {"free": "x"}),
        (headers(), {"region": None, "shelf": {"row": None}}),
        (headers(), {"shelf": {}}),
        (headers(), {"shelf": "no object"}),
        (headers(other="x"), {}),
    ],
)
def test_header_and_argument_are_both_there_and_equal_or_neither(sent: Pairs, arguments: dict[str, Any]) -> None:
    """Integers are compared as numbers, booleans in lower case; a header that no parameter knows says nothing."""
    assert agrees(sent, arguments)


@pytest.mark.rule("M6")
@pytest.mark.parametrize(
    ("sent", "arguments"),
    [
        pytest.param(headers(), {"region": "eu"}, id="header missing"),
        pytest.param(headers(region="eu"), {}, id="argument missing"),
        pytest.param(headers(region="null"), {"region": None}, id="argument null"),
        pytest.param(headers(region="us"), {"region": "eu"}, id="another text"),
        pytest.param(headers(region="EU"), {"region": "eu"}, id="another case"),
        pytest.param(headers(region="eu", row="3"), {"region": "eu", "row": 3}, id="another path"),
        pytest.param(headers(count="43"), {"count": 42}, id="another number"),
        pytest.param(headers(count="forty"), {"count": 42}, id="no number"),
        pytest.param(headers(count=""), {"count": 0}, id="empty for a number"),
        pytest.param(headers(count="1"), {"count": True}, id="a number for a boolean"),
        pytest.param(headers(dry_run="True"), {"dry": True}, id="a boolean in upper case"),
        pytest.param(headers(dry_run="1"), {"dry": True}, id="one for true"),
        pytest.param(headers(region="['eu']"), {"region": ["eu"]}, id="a list"),
        pytest.param(headers(count="nan"), {"count": 1}, id="nan"),
    ],
)
def test_all_else_is_a_mismatch(sent: Pairs, arguments: dict[str, Any]) -> None:
    assert not agrees(sent, arguments)


@pytest.mark.rule("M6")
@pytest.mark.parametrize(
    ("text", "number"),
    [
        pytest.param("4_2", 42, id="digits grouped as Python groups them"),
        pytest.param(base64_form("٤٢"), 42, id="digits of another alphabet"),
        pytest.param(base64_form(" 42"), 42, id="a space before"),
    ],
)
def test_a_number_is_spelled_as_in_json(text: str, number: int) -> None:
    assert not agrees(headers(count=text), {"count": number})


@pytest.mark.rule("M6")
@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1, 12345678901234567890])
def test_integers_that_no_double_holds_are_compared_exactly(number: int) -> None:
    """D18: numbers stay exact, and the argument itself is not refused here."""
    assert agrees(headers(count=str(number)), {"count": number})
    assert not agrees(headers(count=str(number - 1)), {"count": number})


@pytest.mark.rule("M5")
def test_a_repeated_parameter_header_is_a_mismatch() -> None:
    assert not agrees(headers(region="eu") * 2, {"region": "eu"})


@pytest.mark.rule("M5")
def test_a_parameter_header_with_invalid_characters_is_a_mismatch() -> None:
    assert not agrees(headers(region="Zürich".encode()), {"region": "Zürich"})


@pytest.mark.rule("T16")
def test_a_mismatch_repeats_no_value() -> None:
    with pytest.raises(Rejection) as raised:
        check_parameters(Headers(headers(region="secret-1")), PARAMETERS, {"region": "secret-2"})
    assert "secret" not in raised.value.message
