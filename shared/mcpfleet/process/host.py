"""The host below a process: file descriptors, the event loop, and the names of hosts."""

from __future__ import annotations

import asyncio
import re
import resource
from collections.abc import Callable, Container
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from typing import Final

RESERVE: Final = 128
"""Descriptors that connections leave for NATS, the store, the admin port and files."""
_AUTHORITY: Final = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::(?P<port>[0-9]{0,5}))?")
"""A host, and optionally a port; nothing that another parser could read as a user or a path."""
_USUAL: Final = ("80", "443")
"""The ports of `http` and `https`, which clients leave out."""
HOSTS_WANTED: Final = "takes a host, or host:port: without scheme, path or *, and in ASCII"
"""The form of a setting of hosts, behind its name."""
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


def authority_of(text: str) -> tuple[str, str | None] | None:
    """Return a host and its port in one spelling of all that mean the same; None for what is no authority.

    Letters are small, a name has no dot at its end, an IPv6 address is short, and an empty port is none.
    """
    parts = _AUTHORITY.fullmatch(text.lower())
    if parts is None:
        return None
    port = str(int(parts["port"])) if parts["port"] else None
    if parts["name"]:
        return parts["name"].removesuffix("."), port
    try:
        return f"[{IPv6Address(parts['v6'])}]", port
    except ValueError:
        return None


def forms_of_host(configured: str) -> tuple[str, ...]:
    """Return the forms in which a configured host is looked up: `host` for any port, `host:` for none, or `host:port`.

    There are none for what no client can send.
    """
    parts = authority_of(configured) or authority_of(f"[{configured}]")  # an IPv6 address may come without brackets
    if parts is None:
        return ()
    host, port = parts
    if port is None:
        return (host,)
    return (f"{host}:{port}", f"{host}:") if port in _USUAL else (f"{host}:{port}",)


def is_among(authority: tuple[str, str | None], forms: Container[str]) -> bool:
    """Return whether a host with its port is one of the configured hosts, which `forms_of_host` has spelled."""
    host, port = authority
    return host in forms or f"{host}:{port or ''}" in forms
