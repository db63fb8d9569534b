"""What an announced manifest must be before the catalog keeps it: a mistake names the field and the rule."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from mcp_types import Tool
from pydantic import ValidationError

from mcpfleet.bus.errors import Failed
from mcpfleet.bus.exchange import broken_rules
from mcpfleet.bus.fault import Fault
from mcpfleet.contracts.manifest import DIGEST_LENGTH, Definition, Manifest, digest_of

_PROCESS: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DIGEST: Final = re.compile(rf"[0-9a-f]{{{DIGEST_LENGTH}}}")
_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")


def check_names(process: str, digest: str) -> None:
    """Refuse what cannot name a process or a manifest.

    Raises:
        Failed: `contract`, with the field and the rule.
    """
    if not _PROCESS.fullmatch(process):
        raise _broken("process: 1 to 64 letters, digits, - and _")
    if not _DIGEST.fullmatch(digest):
        raise _broken(f"digest: {DIGEST_LENGTH} hexadecimal digits")


def read_manifest(text: str, digest: str, limit: int) -> Manifest:
    """Read an announced manifest, and check all that a list made of it relies on.

    One malformed tool would make clients refuse the whole list, so that one pool could harm the callers of all.

    Args:
        text: the manifest's exact JSON text.
        digest: what the announcement calls it.
        limit: bytes that it may have (MCPFLEET_MANIFEST_LIMIT).

    Raises:
        Failed: `contract`, with the field and the rule, never the value.
    """
    body = text.encode()
    if len(body) > limit:
        raise _broken(f"manifest: {len(body)} bytes are over the limit of {limit} (MCPFLEET_MANIFEST_LIMIT)")
    if digest_of(body) != digest:
        raise _broken("digest: it does not name the manifest's text")
    try:
        manifest = Manifest.model_validate_json(body)
    except ValidationError as error:
        raise _broken(f"manifest: {broken_rules(error)}") from None
    for fault in _faults(manifest):
        raise _broken(f"manifest.definitions.{fault}")
    return manifest


def _faults(manifest: Manifest) -> Iterator[str]:
    seen = set()
    for index, definition in enumerate(manifest.definitions):
        if (definition.kind, definition.name) in seen:
            yield f"{index}.name: another {definition.kind} of the manifest has it"
        seen.add((definition.kind, definition.name))
        for fault in _tool_faults(definition):
            yield f"{index}.{fault}"


def _tool_faults(definition: Definition) -> Iterator[str]:
    """The rules of a tool in a list (M36, M37), beside those of its schema."""
    if not _TOOL_NAME.fullmatch(definition.name):
        yield "name: 1 to 128 letters, digits, _ - and ."
    try:
        tool = Tool.model_validate(definition.wire)
    except ValidationError as error:
        yield f"wire: {broken_rules(error)}"
        return
    if tool.name != definition.name:
        yield "wire.name: it is the definition's name"
    if tool.input_schema.get("type") != "object":
        yield "wire.inputSchema.type: object"


def _broken(rule: str) -> Failed:
    return Failed(Fault.CONTRACT, f"catalog.announce: {rule}")
