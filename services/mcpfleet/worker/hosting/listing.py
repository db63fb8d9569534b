"""Walks the lists of a source page by page: a list that breaks off is no list (B23)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mcp_types import METHOD_NOT_FOUND

from mcpfleet.contracts.manifest import MOST_DEFINITIONS
from mcpfleet.sources.overlay import Overlaid, SourceLists, overlay
from mcpfleet.sources.source import Source
from mcpfleet.worker.hosting.connection import SourceConnection
from mcpfleet.worker.hosting.link import Facts, SourceFailed
from mcpfleet.worker.upstream import UpstreamError

_LISTS: Final = (
    ("tools", "tools/list", "tools"),
    ("prompts", "prompts/list", "prompts"),
    ("resources", "resources/list", "resources"),
    ("resources", "resources/templates/list", "resourceTemplates"),
)
"""The capability, the method, and the member of a page, of each list in the order of `SourceLists`."""
_MOST: Final = 2 * MOST_DEFINITIONS
"""Entries of a list, those that cannot be served, too."""


@dataclass(frozen=True, slots=True)
class SourceListing:
    """A source's description of itself, and its offers."""

    facts: Facts
    overlaid: Overlaid


async def list_source(connection: SourceConnection, source: Source) -> SourceListing:
    """Walk all lists of a source, and lay its configuration over them.

    Raises:
        SourceFailed: a list is malformed or does not end.
        UpstreamError, NotSent, UpstreamLost: as `SourceConnection.request`.
    """
    facts = connection.facts
    tools, prompts, resources, templates = [
        await _walk(connection, method, member) if facts.has(capability) else ()
        for capability, method, member in _LISTS
    ]
    declared = SourceLists(tools, prompts, resources, templates, completes=facts.has("completions"))
    return SourceListing(facts, overlay(source, declared, hosted=source.digest, per_caller=True))


async def _walk(connection: SourceConnection, method: str, member: str) -> tuple[Mapping[str, Any], ...]:
    found: list[Mapping[str, Any]] = []
    try:
        async for entries in connection.pages(method, member):
            found += [each if isinstance(each, dict) else {} for each in entries]
            if len(found) > _MOST:
                raise SourceFailed(f"lists over {_MOST} {member}")
    except UpstreamError as error:
        if error.code != METHOD_NOT_FOUND:  # templates are a part of the capability that many lack
            raise
    return tuple(found)
