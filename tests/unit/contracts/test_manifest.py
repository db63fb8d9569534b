"""Definitions and manifests are named by their exact texts, alike in every process."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from mcpfleet.contracts.manifest import (
    MOST_DEFINITIONS,
    MOST_WORDS,
    POOL_PATTERN,
    Definition,
    Manifest,
    Named,
    digest_of,
    pool_named,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


def tool(**fields: Any) -> Definition:
    wire = {"name": "search", "inputSchema": {"type": "object", "properties": {"a": {}, "b": {"default": None}}}}
    return Definition.model_validate({"kind": "tool", "name": "search", "wire": wire, **fields})


def turned(value: Any) -> Any:
    """The same value, its keys the other way round at every depth."""
    if isinstance(value, dict):
        return {key: turned(value[key]) for key in reversed(value)}
    return [turned(item) for item in value] if isinstance(value, list) else value


def test_a_digest_is_the_first_32_digits_of_the_sha256_of_the_exact_text() -> None:
    assert digest_of(b"abc") == "ba7816bf8f01cfea414140de5dae2223"
    definition = tool()
    assert definition.digest == hashlib.sha256(definition.text.encode()).hexdigest()[:32]


def test_a_text_is_what_differs_from_the_defaults_in_the_order_of_keys() -> None:
    """So a release that adds fields writes the same text for what does not use them, and its workers share calls."""
    assert tool(wire={"name": "search", "inputSchema": {"type": "object", "a": None}}, timeout=5).text == (
        '{"kind":"tool","name":"search","timeout":5.0,"wire":{"inputSchema":{"a":null,"type":"object"},"name":"search"}}'
    )
    assert Manifest(name="library", version="1", definitions=("{}",)).text == (
        '{"definitions":["{}"],"name":"library","version":"1"}'
    )


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.text(), JSON))
def test_a_digest_does_not_depend_on_the_order_of_keys(wire: dict[str, Any]) -> None:
    assert tool(wire=wire).digest == tool(wire=turned(wire)).digest


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.text(), JSON))
def test_a_definition_and_its_digest_survive_the_way_over_the_bus(wire: dict[str, Any]) -> None:
    definition = tool(wire=wire)
    written = Manifest(name="library", version="1", definitions=(definition.text,))
    assert Manifest.model_validate_json(written.text).named == (Named(definition.digest, definition),)


@pytest.mark.parametrize(
    "other",
    [
        {"name": "find"},
        {"wire": {"name": "search"}},
        {"timeout": 61.0},
        {"on_disconnect": "continue"},
        {"asks": ("sampling",)},
        {"scopes": ("read",)},
    ],
)
def test_another_definition_has_another_digest(other: dict[str, Any]) -> None:
    assert tool(**other).digest != tool().digest


def test_the_order_of_a_list_is_part_of_a_definition() -> None:
    assert tool(wire={"enum": [1, 2]}).digest != tool(wire={"enum": [2, 1]}).digest


def test_a_manifest_is_named_by_the_text_that_is_announced() -> None:
    manifest = Manifest(name="library", version="1", definitions=(tool().text,))
    assert digest_of(manifest.text.encode()) == manifest.digest
    assert Manifest.model_validate_json(manifest.text) == manifest
    assert Manifest(name="library", version="2", definitions=(tool().text,)).digest != manifest.digest


def test_a_text_of_another_release_keeps_its_digest() -> None:
    """Calls go by it: who does not know a field, or would write the text otherwise, must not rename the definition."""
    text = json.dumps({"added_later": True, **json.loads(tool().text)}, indent=1)
    (named,) = Manifest(name="library", version="1", definitions=(text,)).named
    assert named == (digest_of(text.encode()), tool())
    assert named.digest != tool().digest


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"name": "n" * 2049},
        {"kind": "nonsense"},
        {"timeout": 0},
        {"timeout": 86_401},
        {"timeout": float("inf")},
        {"timeout": float("nan")},
        {"asks": ["sampling"] * (MOST_WORDS + 1)},
        {"scopes": ["read"] * (MOST_WORDS + 1)},
    ],
)
def test_what_is_no_definition_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        tool(**fields)


def test_a_manifest_has_a_most_of_definitions_and_one_mistake_is_enough() -> None:
    with pytest.raises(ValidationError):
        Manifest(name="library", version="1", definitions=("{}",) * (MOST_DEFINITIONS + 1))
    with pytest.raises(ValidationError) as raised:
        Manifest.model_validate({"name": "library", "version": "1", "definitions": [1] * MOST_DEFINITIONS})
    assert raised.value.error_count() == 1


@pytest.mark.parametrize(
    ("name", "pool"),
    [
        ("library", "library"),
        ("My Shop", "my-shop"),
        ("my_app", "my-app"),
        ("library.v2", "library-v2"),
        ("Bücherei", "b-cherei"),
        ("_private_", "private"),
        ("a" * 100, "a" * 63),
        ("a" * 62 + " b", "a" * 62),
        ("書", "app-d48e61f5"),
        ("___", "app-bda25155"),
    ],
)
def test_a_pool_is_named_after_its_application(name: str, pool: str) -> None:
    assert pool_named(name) == pool


@given(st.text())
def test_every_name_gives_a_name_that_is_a_token_of_a_subject(name: str) -> None:
    assert re.fullmatch(POOL_PATTERN, pool_named(name))


def test_names_of_which_nothing_is_left_give_different_pools() -> None:
    assert pool_named("書店") != pool_named("図書館")
