"""The protocol revisions and capabilities, and the `_meta` keys of MCP and of this server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
)

__all__ = [
    "CLIENT_CAPABILITIES_META_KEY",
    "CLIENT_INFO_META_KEY",
    "CONNECTION_META_KEY",
    "IDEMPOTENCY_KEY",
    "LEGACY",
    "LOG_LEVEL_META_KEY",
    "LONGEST_ECHO",
    "LONGEST_KEY",
    "MODERN",
    "OLDEST",
    "PROTOCOL_VERSION_META_KEY",
    "REPEAT",
    "SERVED",
    "SERVED_WITH_LEGACY",
    "SERVER_INFO_META_KEY",
    "TASKS",
    "TASKS_EXTENSION",
    "for_source",
    "missing",
]

MODERN: Final = "2026-07-28"
SERVED: Final = (MODERN,)
"""The revisions that `server/discover` lists for an endpoint without those of 2025, and -32022 repeats (M30)."""
LEGACY: Final = ("2025-11-25", "2025-06-18")
"""The revisions of 2025 that an endpoint may also serve, the newest first."""
OLDEST: Final = LEGACY[-1]
SERVED_WITH_LEGACY: Final = (*SERVED, *LEGACY)
LONGEST_ECHO: Final = 64
"""Characters that an error repeats of an unsupported version (T16)."""

_PREFIX: Final = "io.mcpfleet/"
_RESERVED: Final = (_PREFIX, "io.modelcontextprotocol/")
_BARE: Final = frozenset({"progressToken", "traceparent", "tracestate", "baggage"})
"""The protocol's keys without a prefix."""
IDEMPOTENCY_KEY: Final = f"{_PREFIX}idempotency-key"
"""In a call: names it over its retries. In a tool's declaration: the tool takes such a key (D9)."""
LONGEST_KEY: Final = 256
"""Characters of such a key."""
REPEAT: Final = f"{_PREFIX}repeat"
"""In a result: nothing ran for it, and it repeats the result of an earlier call under the same key (I2)."""
CONNECTION_META_KEY: Final = f"{_PREFIX}connection"
"""In a hosted server's result: names the caller's own connection to it. Another name means a new state."""

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
TASKS: Final = f"extensions.{TASKS_EXTENSION}"
"""The name of the Tasks extension among required capabilities."""


def for_source(meta: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the members of a request's `_meta` that are for a source: neither the protocol's own nor ours (B4)."""
    own = {key: value for key, value in meta.items() if key not in _BARE and not key.startswith(_RESERVED)}
    return own or None


def missing(asks: Iterable[str], capabilities: dict[str, Any]) -> list[str]:
    """List the questions that a handler may ask and the capabilities do not cover, in the order of `asks`.

    An `elicitation` capability without modes means forms alone.
    """
    return [name for name in asks if not _covers(capabilities, name)]


def _covers(capabilities: dict[str, Any], name: str) -> bool:
    head, _, mode = name.partition(".")
    held = capabilities.get(head)
    if not isinstance(held, dict):
        return False
    if name == "elicitation.form":
        return "form" in held or "url" not in held
    return not mode or isinstance(held.get(mode), dict)
