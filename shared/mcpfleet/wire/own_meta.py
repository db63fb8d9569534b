"""The members of `_meta` that are this server's own, under a prefix of ours (M22)."""

from __future__ import annotations

from typing import Final

_PREFIX: Final = "io.mcpfleet/"
IDEMPOTENCY_KEY: Final = f"{_PREFIX}idempotency-key"
"""Of a call, what names it over its retries; of a tool's declaration, that it takes this (D9)."""
LONGEST_KEY: Final = 256
"""Characters of such a key."""
REPEAT: Final = f"{_PREFIX}repeat"
"""Of a result: nothing has run for it, and it is what an earlier call under the same key gave (I2)."""
