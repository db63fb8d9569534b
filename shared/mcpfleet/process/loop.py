"""The event loop that every process runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Make uvloop's loops where it exists, and asyncio's own elsewhere."""
    try:
        import uvloop  # noqa: PLC0415  # it exists on some platforms only
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
