"""Definitions and manifests are named by their exact bytes, alike in every process."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from mcpfleet.contracts.manifest import POOL_PATTERN, Definition, Manifest, default_pool, digest_of

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


def test_a_digest_is_the_first_32_digits_of_the_sha256_of_the_exact_bytes() -> None:
    assert digest_of(b"abc") == "ba7816bf8f01cfea414140de5dae2223"
    definition = tool()
    assert definition.digest == hashlib.sha256(definition.body).hexdigest()[:32]


@settings(deadline=None)
@given(st.dictionaries(st.text(), JSON))
def test_a_digest_does_not_depend_on_the_order_of_keys(wire: dict[str, Any]) -> None:
    assert tool(wire=wire).digest == tool(wire=turned(wire)).digest


@settings(deadline=None)
@given(st.dictionaries(st.text(), JSON))
def test_a_digest_survives_the_way_over_the_bus(wire: dict[str, Any]) -> None:
    definition = tool(wire=wire)
    assert Definition.model_validate_json(definition.model_dump_json(exclude_none=True)).digest == definition.digest


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
    manifest = Manifest(name="library", version="1", definitions=(tool(),))
    assert digest_of(manifest.body) == manifest.digest
    assert Manifest.model_validate_json(manifest.body) == manifest
    assert Manifest(name="library", version="2", definitions=(tool(),)).digest != manifest.digest


def test_a_newer_workers_definition_keeps_its_name_in_an_older_catalog() -> None:
    """A field may be added: calls go by the digest, so the process that does not know the field must not rename it."""
    newer = {**json.loads(tool().body), "added_later": True}
    name = digest_of(json.dumps(newer, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())
    assert Definition.model_validate_json(json.dumps(newer)).digest == name


@pytest.mark.parametrize("fields", [{"name": ""}, {"name": "n" * 129}, {"timeout": 0}, {"kind": "prompt"}])
def test_what_is_no_definition_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        tool(**fields)


@pytest.mark.parametrize(
    ("target", "pool"),
    [
        ("examples/library.py", "library"),
        ("library.py", "library"),
        ("./library.py", "library"),
        ("/srv/apps/My_App.py", "my-app"),
        ("library.py:app", "library"),
        ("library:app", "library"),
        ("acme.tools.library:app", "library"),
        ("acme.tools.library", "library"),
        ("apps/library.v2.py", "library-v2"),
        ("apps/library/", "library"),
        ("Bücherei.py", "b-cherei"),
        ("_private_.py", "private"),
        ("___.py", "application"),
        ("書.py", "application"),
        ("", "application"),
    ],
)
def test_a_pool_is_named_after_its_application(target: str, pool: str) -> None:
    assert default_pool(target) == pool


@given(st.text())
def test_every_target_gives_a_name_that_is_a_token_of_a_subject(target: str) -> None:
    assert re.fullmatch(POOL_PATTERN, default_pool(target))


def test_a_long_name_is_cut() -> None:
    assert default_pool("a" * 100 + ".py") == "a" * 63
