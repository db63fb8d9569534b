"""The rules that a manifest must meet before the catalog stores it: a mistake names the field and the rule."""

from __future__ import annotations

import re
from typing import Final, TypeVar

from pydantic import ValidationError

from mcpfleet.app.definition_rules import faults
from mcpfleet.bus.errors import Failed, Fault
from mcpfleet.bus.rpc import broken_rules
from mcpfleet.catalog.settings import CatalogSettings
from mcpfleet.contracts.base import Message
from mcpfleet.contracts.catalog import Listed, Snapshot, SnapshotAnswer
from mcpfleet.contracts.manifest import (
    DIGEST_LENGTH,
    LARGEST_MESSAGES,
    OWN_KINDS,
    Definition,
    Manifest,
    digest_of,
)

_PROCESS: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DIGEST: Final = re.compile(rf"[0-9a-f]{{{DIGEST_LENGTH}}}")
_MOST_OBJECTS: Final = 100_000
"""Opening braces in a manifest's definitions: each may be a subschema, which takes some ten microseconds to check."""
_LONGEST_RULE: Final = 1000
"""Characters of the sentence that a worker gets, since the worker chose some of the names in it."""

Read = TypeVar("Read", bound=Message)


def check_names(process: str, digest: str) -> None:
    """Refuse malformed names of a process or a manifest.

    Raises:
        Failed: `contract`, with the field and the rule.
    """
    if not _PROCESS.fullmatch(process):
        raise _broken("process: 1 to 64 letters, digits, - and _")
    if not _DIGEST.fullmatch(digest):
        raise _broken(f"digest: {DIGEST_LENGTH} hexadecimal digits")


def read_manifest(text: str, digest: str, settings: CatalogSettings) -> Manifest:
    """Read an announced manifest, and check everything that a list needs of it.

    One malformed tool would make clients refuse the whole list, so one pool could harm the callers of all pools. The
    largest manifest takes a second to check, so this runs in a thread.

    Args:
        text: the manifest's exact JSON text.
        digest: the digest in the announcement.
        settings: the bounds of manifests and files.

    Raises:
        Failed: `contract`, with the field and the rule, never the value.
    """
    body, limit = text.encode(), settings.manifest_limit
    if len(body) > limit:
        raise _broken(f"manifest: {len(body)} bytes are over the limit of {limit} (MCPFLEET_MANIFEST_LIMIT)")
    if digest_of(body) != digest:
        raise _broken("digest: must be the digest of the manifest's text")
    manifest = _read(Manifest, text, "manifest")
    texts = [("definitions", index, text) for index, text in enumerate(manifest.definitions)]
    texts += [("extensions", index, text) for index, text in enumerate(manifest.extensions)]
    if sum(text.count("{") for _, _, text in texts) > _MOST_OBJECTS:
        raise _broken(f"manifest.definitions: at most {_MOST_OBJECTS} JSON objects")
    seen = set()
    for member, index, each in texts:
        where = f"manifest.{member}.{index}"
        definition = _read(Definition, each, where)
        if (definition.kind in OWN_KINDS) != (member == "extensions"):
            raise _broken(f"{where}.kind: {definition.kind} belongs to the other member")
        for fault in faults(definition):
            raise _broken(f"{where}.{fault}")
        if not _is_handed_on_whole(definition):
            raise _broken(f"{where}.wire: must nest less deeply, and have finite numbers only")
        if (definition.kind, definition.name) in seen:
            raise _broken(f"{where}.name: another {definition.kind} of the manifest has this name")
        seen.add((definition.kind, definition.name))
    _check_files(manifest, settings)
    return manifest


def _check_files(manifest: Manifest, settings: CatalogSettings) -> None:
    """Check the sizes of the files that a manifest names: edges hold what they fetch (X5)."""
    sizes = [ref.size for ref in manifest.files.values()]
    if sizes and max(sizes) > settings.file_limit:
        raise _broken(f"manifest.files: a file is over {settings.file_limit} bytes (MCPFLEET_FILE_LIMIT)")
    if sum(sizes) > settings.files_limit:
        raise _broken(f"manifest.files: they are over {settings.files_limit} bytes together (MCPFLEET_FILES_LIMIT)")
    messages = () if manifest.languages is None else manifest.languages.files.values()
    if any(ref.size > LARGEST_MESSAGES for ref in messages):
        raise _broken(f"manifest.languages.files: a file is over {LARGEST_MESSAGES} bytes")


def _read(kind: type[Read], text: str, where: str) -> Read:
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise _broken(f"{where}: {broken_rules(error)}") from None


def _is_handed_on_whole(definition: Definition) -> bool:
    """Whether an edge reads what the catalog would write: a definition that it cannot read would stop the endpoint."""
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
