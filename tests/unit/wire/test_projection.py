"""Messages of 2026-07-28 in the forms of the revisions of 2025 (M78)."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from mcpfleet.wire.projection import NotInRevision, capabilities, declaration, question, result
from mcpfleet.wire.protocol import LEGACY
from mcpfleet.wire.reply import MOST_READ, result_body
from tests.kit.cost import cost

ICONS = [{"src": "https://example.com/i.png"}]
TOOL = {"name": "search", "inputSchema": {"type": "object"}, "icons": ICONS}


def projected(fields: dict[str, Any], revision: str = "2025-11-25", *, wraps: bool = False) -> Any:
    return json.loads(result(result_body(fields), revision, wraps=wraps))


@pytest.mark.rule("M78")
@pytest.mark.parametrize("revision", LEGACY)
def test_what_is_modern_goes(revision: str) -> None:
    fields = {"resultType": "complete", "ttlMs": 1, "cacheScope": "public", "tools": []}
    assert projected(fields, revision) == {"tools": []}


@pytest.mark.rule("M78")
def test_what_an_application_put_into_meta_stays() -> None:
    body = result_body({"resultType": "complete", "content": []}, {"example.com/x": 1})
    assert json.loads(result(body, "2025-11-25", wraps=False)) == {"_meta": {"example.com/x": 1}, "content": []}


@pytest.mark.rule("M78")
@pytest.mark.parametrize(("value", "wraps"), [([1, 2], True), (5, True), (None, True), ("x", False), ({"a": 1}, True)])
def test_a_value_that_is_no_object_or_whose_schema_is_none_stands_below_a_member(value: Any, wraps: bool) -> None:
    assert projected({"content": [], "structuredContent": value}, wraps=wraps)["structuredContent"] == {"result": value}


@pytest.mark.rule("M78")
def test_an_object_of_an_objects_schema_stays_as_it_is() -> None:
    assert projected({"content": [], "structuredContent": {"a": 1}})["structuredContent"] == {"a": 1}


@pytest.mark.rule("M78")
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "array", "items": {"type": "integer"}}, [1]),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, None),
        (
            {"$defs": {"Book": {"type": "object", "required": ["title"]}}, "items": {"$ref": "#/$defs/Book"}},
            [{"title": 1}],
        ),
    ],
    ids=["array", "any of", "references"],
)
def test_the_wrapped_schema_fits_the_wrapped_value(schema: dict[str, Any], value: Any) -> None:
    shown = declaration("tool", {**TOOL, "outputSchema": schema}, "2025-11-25")["outputSchema"]
    assert shown["type"] == "object"
    validator = jsonschema_rs.validator_for(shown)
    assert validator.is_valid({"result": value})
    assert not validator.is_valid({"result": {"no": "value"}}) or "items" in schema
    assert not validator.is_valid(value)


@pytest.mark.rule("M78")
def test_a_schema_that_refers_to_its_own_root_is_left_out() -> None:
    schema = {"type": "array", "items": {"$ref": "#"}}
    assert "outputSchema" not in declaration("tool", {**TOOL, "outputSchema": schema}, "2025-11-25")


@pytest.mark.rule("M78")
def test_an_objects_schema_stays_as_it_is() -> None:
    schema = {"type": "object", "properties": {"a": {}}}
    assert declaration("tool", {**TOOL, "outputSchema": schema}, "2025-11-25")["outputSchema"] == schema


@pytest.mark.rule("M78")
def test_the_oldest_revision_has_no_icons() -> None:
    assert "icons" not in declaration("tool", TOOL, "2025-06-18")
    assert declaration("tool", TOOL, "2025-11-25")["icons"] == ICONS
    link = {"type": "resource_link", "uri": "x:y", "name": "y", "icons": ICONS}
    assert "icons" not in projected({"content": [link]}, "2025-06-18")["content"][0]
    message = {"role": "user", "content": link}
    assert "icons" not in projected({"messages": [message]}, "2025-06-18")["messages"][0]["content"]


FORM: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}}


def asked(revision: str, **params: Any) -> dict[str, Any]:
    return question("elicitation/create", {"message": "m", **params}, revision, "id")


@pytest.mark.rule("M78")
def test_the_oldest_revision_has_forms_without_a_mode() -> None:
    assert asked("2025-11-25", mode="form", requestedSchema=FORM)["mode"] == "form"
    assert asked("2025-06-18", mode="form", requestedSchema=FORM) == {"message": "m", "requestedSchema": FORM}


@pytest.mark.rule("M79")
def test_a_page_has_an_id_in_the_one_revision_that_knows_pages() -> None:
    assert asked("2025-11-25", mode="url", url="https://a")["elicitationId"] == "id"
    with pytest.raises(NotInRevision):
        asked("2025-06-18", mode="url", url="https://a")


@pytest.mark.rule("M78")
def test_the_titles_of_choices_stood_beside_their_values() -> None:
    choices = {"type": "string", "title": "T", "oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]}
    form = {"type": "object", "properties": {"one": choices}}
    shown = asked("2025-06-18", requestedSchema=form)["requestedSchema"]["properties"]["one"]
    assert shown == {"type": "string", "title": "T", "enum": ["a", "b"], "enumNames": ["A", "b"]}
    assert asked("2025-11-25", requestedSchema=form)["requestedSchema"] == form
    several = {"type": "object", "properties": {"some": {"type": "array", "items": {"enum": ["a"]}}}}
    with pytest.raises(NotInRevision):
        asked("2025-06-18", requestedSchema=several)


@pytest.mark.rule("M78")
def test_other_questions_stay_as_they_are() -> None:
    params = {"messages": [], "maxTokens": 1}
    for revision in LEGACY:
        assert question("sampling/createMessage", params, revision, "id") == params


@pytest.mark.rule("M78")
def test_what_a_client_of_the_oldest_revision_can_answer() -> None:
    declared = {"elicitation": {"url": {}}, "sampling": {"tools": {}}, "roots": {"listChanged": True}}
    assert capabilities(declared, "2025-11-25") == declared
    assert capabilities(declared, "2025-06-18") == {"elicitation": {}, "sampling": {}, "roots": {"listChanged": True}}
    assert capabilities({"elicitation": 5}, "2025-06-18") == {"elicitation": 5}


@pytest.mark.rule("M71")
@pytest.mark.parametrize("revision", LEGACY)
def test_an_extension_means_nothing_in_2025(revision: str) -> None:
    assert capabilities({"extensions": {"io.modelcontextprotocol/tasks": {}}, "roots": {}}, revision) == {"roots": {}}


@pytest.mark.rule("T31")
@pytest.mark.parametrize("unit", [b"[]", b"{}", b"1", b'""', b"9" * 4_000])
def test_a_result_of_more_values_than_an_edge_reads_is_refused_unread(unit: bytes) -> None:
    """A worker that was taken over must not hold the loop of an edge, which serves other pools too."""
    body = b'{"_meta":{},"structuredContent":{"a":[%b]}}' % b",".join([unit] * (7_000_000 // (len(unit) + 1)))

    def refuse() -> None:
        with pytest.raises(ValueError, match=f"more than {MOST_READ} values"):
            result(body, LEGACY[0], wraps=False)

    assert cost(refuse) < 20


def test_a_large_result_of_few_values_is_read() -> None:
    assert projected({"structuredContent": {"a": "[,]" * MOST_READ}}) == {"structuredContent": {"a": "[,]" * MOST_READ}}
