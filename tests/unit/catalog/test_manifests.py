"""The rules of announced manifests."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic_core import to_json

from mcpfleet.app.validation import MAX_SCHEMA_DEPTH
from mcpfleet.bus.errors import Failed
from mcpfleet.catalog.manifests import check_names, read_manifest
from mcpfleet.catalog.settings import CatalogSettings
from mcpfleet.contracts.manifest import MOST_DEFINITIONS, Definition, Manifest, digest_of

SECRET = "hunter2"
WIRE = {"name": "search", "inputSchema": {"type": "object"}}
DEEP = 200
"""Levels of nesting that no parser here follows."""


def manifest(*definitions: Definition) -> str:
    return announcing(*(definition.text for definition in definitions))


def announcing(*definitions: str) -> str:
    """A manifest of texts that need not be what a worker of this release writes."""
    return to_json({"name": "library", "version": "1", "definitions": definitions}).decode()


def search(name: str = "search", **wire: Any) -> Definition:
    return Definition(kind="tool", name=name, wire=WIRE | {"name": name} | wire)


def schema(**members: Any) -> Definition:
    """A tool whose input schema has these members too."""
    return search(inputSchema={"type": "object", **members})


def text(**members: Any) -> str:
    """A definition's text with these members: JSON texts, so that they may be what no JSON is."""
    known = {"kind": '"tool"', "name": '"search"', "wire": json.dumps(WIRE)}
    return "{" + ",".join(f'"{name}":{value}' for name, value in (known | members).items()) + "}"


def wire_with(value: str) -> str:
    return '{"name":"search","inputSchema":{"type":"object","default":' + value + "}}"


def read(text: str, digest: str | None = None, limit: int = 1 << 23) -> Manifest:
    return read_manifest(text, digest or digest_of(text.encode()), CatalogSettings(manifest_limit=limit))


def refusal(text: str) -> str:
    with pytest.raises(Failed) as raised:
        read(text)
    assert raised.value.kind == "contract"
    assert SECRET not in str(raised.value)
    assert len(str(raised.value)) <= 1000
    return str(raised.value)


def test_a_manifest_is_read_as_it_was_written() -> None:
    written = Manifest(name="library", version="1", definitions=(search().text, search("read").text))
    assert read(written.text) == written


def test_a_definition_of_a_later_release_is_read_as_far_as_it_is_known() -> None:
    newer = text(added_later='{"a":1}')
    (named,) = read(announcing(newer)).named
    assert named.digest == digest_of(newer.encode())
    assert named.definition == search()


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (manifest(search(), search()), "definitions.1.name: another tool"),
        (manifest(search("no spaces")), "definitions.0.name: 1 to 128"),
        (manifest(Definition(kind="tool", name="read", wire=WIRE)), "definitions.0.wire.name"),
        (manifest(search(inputSchema=SECRET)), "definitions.0.wire: inputSchema: dict_type"),
        (manifest(search(description={SECRET: 1})), "definitions.0.wire: description: string_type"),
        (
            manifest(
                Definition(kind="tool", name="search", wire={"name": "search", "input_schema": {"type": "object"}})
            ),
            "definitions.0.wire: inputSchema: missing",
        ),
        (manifest(search(icons=[{"src": SECRET}] * 65)), "definitions.0.wire: icons: too_long"),
    ],
)
def test_a_definition_that_would_spoil_a_list_is_refused_by_field_and_rule(broken: str, rule: str) -> None:
    assert rule in refusal(broken)


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (search(inputSchema={"type": "string"}), '"type": "object"'),
        (search(inputSchema={}), '"type": "object"'),
        (schema(properties=[SECRET]), "`properties`"),
        (schema(properties={"a": True}), "`properties`"),
        (schema(required=SECRET), "`required`"),
        (schema(required=[1]), "`required`"),
        (schema(minProperties=SECRET), "valid JSON Schema"),
        (schema(properties={"a": {"type": SECRET}}), "valid JSON Schema"),
        (schema(properties={"a": {"pattern": "("}}), "valid JSON Schema"),
        (schema(properties={"a": {"$ref": f"https://example.com/{SECRET}"}}), "valid JSON Schema"),
        (schema(**{"$ref": f"file:///{SECRET}"}), "valid JSON Schema"),
        (schema(**{"$schema": f"https://example.com/{SECRET}"}), "valid JSON Schema"),
        (schema(allOf=[{}] * 10_000), "valid JSON Schema"),
    ],
)
@pytest.mark.rule("M26", "M27", "M37")
def test_an_input_schema_that_no_client_could_use_is_refused(broken: Definition, rule: str) -> None:
    told = refusal(manifest(broken))
    assert "definitions.0.wire.inputSchema: " in told
    assert rule in told


def test_an_output_schema_is_held_to_its_dialect_too() -> None:
    assert "definitions.0.wire.outputSchema: " in refusal(manifest(search(outputSchema={"type": SECRET})))
    read(manifest(search(outputSchema={"type": ["string", "null"]})))


@pytest.mark.parametrize("timeout", ["Infinity", "-Infinity", "NaN", "1e400", "86401", "1e300", "0", "-1", "null"])
def test_a_timeout_that_never_ends_is_refused(timeout: str) -> None:
    assert "definitions.0: timeout" in refusal(announcing(text(timeout=timeout)))


@pytest.mark.parametrize("number", ["Infinity", "NaN", "1e400", "-1e999"])
def test_a_number_that_no_snapshot_can_carry_is_refused(number: str) -> None:
    assert "finite numbers" in refusal(announcing(text(wire=wire_with(number))))


def test_what_nests_so_deeply_that_a_snapshot_could_not_be_read_is_refused() -> None:
    """Alone it is read: but a snapshot has levels of its own."""
    depths = [depth for depth in range(DEEP) if not is_refused(announcing(text(wire=wire_with(nested(depth)))))]
    assert MAX_SCHEMA_DEPTH * 2 < depths[-1] < DEEP - 4
    assert "nest less deeply" in refusal(announcing(text(wire=wire_with(nested(depths[-1] + 1)))))


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def is_refused(text: str) -> bool:
    try:
        read(text)
    except Failed:
        return True
    return False


def test_a_manifest_has_a_most_of_definitions() -> None:
    assert "definitions: too_long" in refusal(announcing(*["{}"] * (MOST_DEFINITIONS + 1)))


def test_a_manifest_that_would_take_long_to_check_is_refused() -> None:
    many = schema(properties={f"p{number}": {} for number in range(9_000)})
    assert "100000 JSON objects" in refusal(manifest(*[many] * 12))


@pytest.mark.parametrize("field", ["asks", "scopes"])
def test_words_have_a_most(field: str) -> None:
    assert f"definitions.0: {field}: too_long" in refusal(announcing(text(**{field: json.dumps([SECRET] * 65)})))


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        "{}",
        announcing(SECRET),
        announcing("{}"),
        announcing("[]"),
        announcing(json.dumps({"kind": SECRET})),
        to_json({"name": "a", "version": "1", "definitions": [{"kind": SECRET}]}).decode(),
        to_json({"name": "a", "version": "1", "definitions": SECRET}).decode(),
        to_json({"name": SECRET, "version": 1}).decode(),
    ],
)
def test_a_text_that_is_no_manifest_is_refused_without_its_values(text: str) -> None:
    assert "manifest" in refusal(text)


def test_what_a_worker_is_told_is_short_whatever_it_sent() -> None:
    refusal(to_json({"name": "a", "version": "1", "definitions": [1] * 1_000_000}).decode())
    refusal(manifest(search(icons=[1] * 1_000_000)))
    refusal(manifest(search(icons=[{"src": "data:,", "sizes": [1] * 1_000_000}])))
    refusal(announcing(text(asks=json.dumps([1] * 1_000_000))))


def test_a_text_that_its_digest_does_not_name_is_refused() -> None:
    with pytest.raises(Failed, match="digest"):
        read(manifest(search()), "0" * 32)


def test_a_manifest_over_its_limit_names_the_setting() -> None:
    with pytest.raises(Failed, match="MCPFLEET_MANIFEST_LIMIT"):
        read(manifest(search()), limit=50)


@pytest.mark.parametrize(
    ("process", "digest", "field"),
    [("", "0" * 32, "process"), ("a\0", "0" * 32, "process"), ("a" * 65, "0" * 32, "process"), ("a", "A", "digest")],
)
def test_names_that_no_row_could_hold_are_refused(process: str, digest: str, field: str) -> None:
    with pytest.raises(Failed, match=field):
        check_names(process, digest)
