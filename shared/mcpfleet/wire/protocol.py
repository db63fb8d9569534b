"""The protocol revisions that this server speaks, and the `_meta` keys of MCP and of this server."""

from __future__ import annotations

from typing import Final

from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
)

MODERN: Final = "2026-07-28"
SERVED: Final = (MODERN,)
"""The revisions that `server/discover` lists for an endpoint without those of 2025, and -32022 repeats (M30)."""
LEGACY: Final = ("2025-11-25", "2025-06-18")
"""The revisions of 2025 that an endpoint may also serve, the newest first."""
OLDEST: Final = LEGACY[-1]
SERVED_WITH_LEGACY: Final = (*SERVED, *LEGACY)
LONGEST_ECHO: Final = 64
"""Characters that an error repeats of an unsupported version (T16)."""

__all__ = [
    "CLIENT_CAPABILITIES_META_KEY",
    "CLIENT_INFO_META_KEY",
    "LEGACY",
    "LOG_LEVEL_META_KEY",
    "LONGEST_ECHO",
    "MODERN",
    "OLDEST",
    "PROTOCOL_VERSION_META_KEY",
    "SERVED",
    "SERVED_WITH_LEGACY",
    "SERVER_INFO_META_KEY",
]


_PREFIX: Final = "io.mcpfleet/"
IDEMPOTENCY_KEY: Final = f"{_PREFIX}idempotency-key"
"""In a call: names it over its retries. In a tool's declaration: the tool takes such a key (D9)."""
LONGEST_KEY: Final = 256
"""Characters of such a key."""
REPEAT: Final = f"{_PREFIX}repeat"
"""In a result: nothing ran for it, and it repeats the result of an earlier call under the same key (I2)."""
