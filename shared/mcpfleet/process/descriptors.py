"""How many descriptors this process may have, and how many of them connections from outside may use."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Final

RESERVE: Final = 128
"""Descriptors that connections leave for NATS, the store, the admin port and files."""
_SHARE: Final = 2
"""Where the limit is low, connections leave one descriptor in so many."""


def raise_limit() -> None:
    """Raise the soft limit to the hard one, where the system lets us."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_within(wanted: int) -> int:
    """Say how many of the connections that are wanted fit below the soft limit, with the reserve left."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, soft - min(RESERVE, soft // _SHARE)))
