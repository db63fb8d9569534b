"""One caller's view of an endpoint's snapshot: what is listed for it, and what a name means to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeAlias

from pydantic_core import to_json

from mcpfleet.contracts.catalog import Listed, Snapshot
from mcpfleet.contracts.principal import Principal
from mcpfleet.wire.parameters import Mirrored, mirrored
from mcpfleet.wire.reply import result_body, server_info


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as a caller may call it."""

    listed: Listed
    mirrored: tuple[Mirrored, ...]
    """Its arguments that stand in headers too."""


@dataclass(frozen=True)
class View:
    """What callers of equal rights see; computed once for each snapshot and set of rights.

    A list depends on the snapshot and the caller's authorization only, never on the edge (M35).
    """

    snapshot: Snapshot
    tools: Mapping[str, Tool]
    private: bool
    """Whether another caller could see something else, so that no shared cache may keep a list (M46)."""

    @cached_property
    def server(self) -> bytes:
        """The server's name, as it is spliced into every result."""
        return server_info(self.snapshot.name, self.snapshot.version, self.snapshot.title)

    @cached_property
    def capabilities(self) -> dict[str, Any]:
        """What the endpoint offers, from what was announced, not from who is alive (M33)."""
        return {"tools": {}} if self.tools else {}

    def tools_list(self, ttl_ms: int) -> bytes:
        """The result of `tools/list`, by name, in one page (M34, M45)."""
        scope = "private" if self.private else "public"
        head = to_json({"_meta": {}, "resultType": "complete", "ttlMs": ttl_ms, "cacheScope": scope})
        return head[:-1] + b',"tools":' + self._tools + b"}"

    @cached_property
    def _tools(self) -> bytes:
        return to_json([tool.listed.definition.wire for tool in self.tools.values()])

    def discover(self, versions: tuple[str, ...], ttl_ms: int) -> bytes:
        """The result of `server/discover`: it tells nothing that depends on the caller (D15, M29)."""
        fields: dict[str, Any] = {
            "resultType": "complete",
            "supportedVersions": list(versions),
            "capabilities": self.capabilities,
            "ttlMs": ttl_ms,
            "cacheScope": "public",
        }
        if self.snapshot.instructions:
            fields["instructions"] = self.snapshot.instructions
        return result_body(fields)


Rights: TypeAlias = bool
"""What of a principal decides what it sees: whether it is somebody."""


def rights_of(principal: Principal) -> Rights:
    """Tell what a principal's view depends on; equal rights share a view."""
    return principal.subject is not None


def view_of(snapshot: Snapshot, rights: Rights) -> View:
    """Work out what callers of these rights see of a snapshot."""
    tools = {
        listed.definition.name: Tool(listed, tuple(mirrored(listed.definition.wire["inputSchema"])))
        for listed in snapshot.listed
    }
    return View(snapshot, MappingProxyType(tools), private=rights)
