"""What an announced manifest must be."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_core import to_json

from mcpfleet.bus.errors import Failed
from mcpfleet.catalog.manifests import check_names, read_manifest
from mcpfleet.contracts.manifest import Definition, Manifest, digest_of

SECRET = "hunter2"
WIRE = {"name": "search", "inputSchema": {"type": "object"}}


def manifest(*definitions: Definition) -> Manifest:
    return Manifest(name="library", version="1", definitions=definitions)


def search(name: str = "search", **wire: Any) -> Definition:
    return Definition(kind="tool", name=name, wire=WIRE | {"name": name} | wire)


def read(text: str, digest: str | None = None, limit: int = 1 << 20) -> Manifest:
    return read_manifest(text, digest or digest_of(text.encode()), limit)


def test_a_manifest_is_read_as_it_was_written() -> None:
    written = manifest(search(), search("read"))
    assert read(written.body.decode()).digest == written.digest


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (manifest(search(), search()), "definitions.1.name: another tool"),
        (manifest(search("no spaces")), "definitions.0.name: 1 to 128"),
        (manifest(search("search", inputSchema={"type": "string"})), "definitions.0.wire.inputSchema.type: object"),
        (manifest(search("search", inputSchema=SECRET)), "definitions.0.wire: inputSchema: dict_type"),
        (manifest(search("search", description={SECRET: 1})), "definitions.0.wire: description: string_type"),
        (manifest(Definition(kind="tool", name="read", wire=WIRE)), "definitions.0.wire.name"),
    ],
)
def test_a_definition_that_would_spoil_a_list_is_refused_by_field_and_rule(broken: Manifest, rule: str) -> None:
    with pytest.raises(Failed) as raised:
        read(broken.body.decode())
    assert raised.value.kind == "contract"
    assert rule in str(raised.value)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        "{}",
        to_json({"name": "a", "version": "1", "definitions": [{"kind": SECRET}]}).decode(),
        to_json({"name": SECRET, "version": 1}).decode(),
    ],
)
def test_a_text_that_is_no_manifest_is_refused_without_its_values(text: str) -> None:
    with pytest.raises(Failed, match="manifest: ") as raised:
        read(text)
    assert raised.value.kind == "contract"
    assert SECRET not in str(raised.value)


def test_a_text_that_its_digest_does_not_name_is_refused() -> None:
    with pytest.raises(Failed, match="digest"):
        read(manifest(search()).body.decode(), "0" * 32)


def test_a_manifest_over_its_limit_names_the_setting() -> None:
    with pytest.raises(Failed, match="MCPFLEET_MANIFEST_LIMIT"):
        read(manifest(search()).body.decode(), limit=50)


@pytest.mark.parametrize(
    ("process", "digest", "field"),
    [("", "0" * 32, "process"), ("a\0", "0" * 32, "process"), ("a" * 65, "0" * 32, "process"), ("a", "A", "digest")],
)
def test_names_that_no_row_could_hold_are_refused(process: str, digest: str, field: str) -> None:
    with pytest.raises(Failed, match=field):
        check_names(process, digest)
