"""What an announced manifest must be before the catalog keeps it: a mistake names the field and the rule."""

from __future__ import annotations

import re
from typing import Final, TypeVar

from pydantic import ValidationError

from mcpfleet.bus.errors import Failed, Fault
from mcpfleet.bus.rpc import broken_rules
from mcpfleet.catalog.definitions import faults
from mcpfleet.contracts.base import Message
from mcpfleet.contracts.catalog import Listed, Snapshot, SnapshotAnswer
from mcpfleet.contracts.manifest import DIGEST_LENGTH, Definition, Manifest, digest_of

_PROCESS: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DIGEST: Final = re.compile(rf"[0-9a-f]{{{DIGEST_LENGTH}}}")
_MOST_OBJECTS: Final = 100_000
"""Opening braces in a manifest's definitions: each may be a subschema, which takes some ten microseconds to check."""
_LONGEST_RULE: Final = 1000
"""Characters of what a worker is told: parts of it are names that the worker chose."""

Read = TypeVar("Read", bound=Message)


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

    One malformed tool would make clients refuse the whole list, so that one pool could harm the callers of all. The
    worst of manifests takes a second, so it is read in a thread.

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
    manifest = _read(Manifest, text, "manifest")
    if sum(each.count("{") for each in manifest.definitions) > _MOST_OBJECTS:
        raise _broken(f"manifest.definitions: at most {_MOST_OBJECTS} JSON objects")
    seen = set()
    for index, each in enumerate(manifest.definitions):
        where = f"manifest.definitions.{index}"
        definition = _read(Definition, each, where)
        for fault in faults(definition):
            raise _broken(f"{where}.{fault}")
        if not _is_handed_on_whole(definition):
            raise _broken(f"{where}.wire: JSON that nests less deeply, of finite numbers")
        if (definition.kind, definition.name) in seen:
            raise _broken(f"{where}.name: another {definition.kind} of the manifest has it")
        seen.add((definition.kind, definition.name))
    return manifest


def _read(kind: type[Read], text: str, where: str) -> Read:
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise _broken(f"{where}: {broken_rules(error)}") from None


def _is_handed_on_whole(definition: Definition) -> bool:
    """Whether an edge reads what the catalog would write: one that does not come back would stop its whole endpoint."""
    listed = Listed(pool="pool", digest="", definition=definition)
    answer = SnapshotAnswer(
        number=1, snapshot=Snapshot(endpoint="endpoint", number=1, name="name", version="1", listed=(listed,))
    )
    try:
        return SnapshotAnswer.model_validate_json(answer.model_dump_json()) == answer
    except ValueError:
        return False


def _broken(rule: str) -> Failed:
    return Failed(Fault.CONTRACT, f"catalog.announce: {rule}"[:_LONGEST_RULE])
