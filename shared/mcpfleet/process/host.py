"""The host below a process: file descriptors, the event loop, and loopback addresses."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from typing import Final

RESERVE: Final = 128
"""Descriptors that connections leave for NATS, the store, the admin port and files."""
_SHARE: Final = 2
"""With a low limit, connections leave one descriptor in this many."""


def raise_limit() -> None:
    """Raise the soft limit to the hard one, if the system allows it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_within(wanted: int) -> int:
    """Return how many of the wanted connections fit below the soft limit, with the reserve left."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, soft - min(RESERVE, soft // _SHARE)))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the maker of event loops: uvloop's if it is installed, else asyncio's."""
    try:
        import uvloop  # noqa: PLC0415  # it exists on some platforms only
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def is_loopback(host: str) -> bool:
    """Return whether only this host reaches a name or an address; of names, only `localhost` counts."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
