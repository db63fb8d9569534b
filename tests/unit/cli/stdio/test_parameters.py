"""The headers of arguments: which ones a schema names, and how a value stands in a header."""

from __future__ import annotations

from typing import Any

import pytest

from mcpfleet.cli.stdio.messages import read_message, to_line
from mcpfleet.cli.stdio.parameters import ToolHeaders
from mcpfleet.wire.mirror import decode
from mcpfleet.wire.parameter_headers import encode


@pytest.mark.rule("M3")
@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("", ""),
    ],
)
def test_values_are_encoded_as_the_specification_shows_and_as_an_edge_reads_them(value: str, header: str) -> None:
    assert encode(value) == header
    assert decode(header, "Mcp-Name") == value


def learn(schema: Any) -> tuple[ToolHeaders, list[str]]:
    headers = ToolHeaders()
    listed = {"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": "t", "inputSchema": schema}]}}
    return headers, headers.learn(read_message(to_line(listed)))


def call(headers: ToolHeaders, arguments: Any) -> dict[str, str]:
    params = {"name": "t", "arguments": arguments}
    return headers.of_call(read_message(to_line({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})))


@pytest.mark.rule("M6")
def test_nested_arguments_numbers_and_booleans_are_repeated_and_absent_ones_are_not() -> None:
    properties = {
        "a": {"type": "integer", "x-mcp-header": "A"},
        "b": {"type": "object", "properties": {"c": {"type": "boolean", "x-mcp-header": "C"}}},
        "x-mcp-header": {"type": "string"},
    }
    headers, refused = learn({"type": "object", "properties": properties})
    assert refused == []
    assert call(headers, {"a": 42.0, "b": {"c": True}}) == {"Mcp-Param-A": "42", "Mcp-Param-C": "true"}
    assert call(headers, {"a": None, "b": 7}) == {}
    assert call(headers, None) == {}


@pytest.mark.rule("M7")
@pytest.mark.parametrize(
    "properties",
    [
        {"a": {"type": "number", "x-mcp-header": "A"}},
        {"a": {"type": "string", "x-mcp-header": ""}},
        {"a": {"type": "string", "x-mcp-header": "a b"}},
        {"a": {"type": "string", "x-mcp-header": 7}},
        {"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}},
        {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}},
        {"a": {"anyOf": [{"type": "string", "x-mcp-header": "A"}]}},
    ],
)
def test_annotations_against_the_rules_are_named(properties: Any) -> None:
    _, refused = learn({"type": "object", "properties": properties})
    [sentence] = refused
    assert "'t' is left out" in sentence
