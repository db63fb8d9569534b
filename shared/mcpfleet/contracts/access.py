"""How callers are admitted: settings of edges and authorization, URLs of tokens, and where an edge may serve."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from mcpfleet.process.host import is_loopback
from mcpfleet.process.settings import Settings, host_and_port

Mode: TypeAlias = Literal["none", "static", "jwt", "introspection", "custom"]
_SCOPE: Final = re.compile(r"[\x21\x23-\x5B\x5D-\x7E]{1,256}")
"""A scope in the form of RFC 6749: it needs no escape in a header."""


def _web_url(value: str) -> str:
    parts = urlsplit(value)
    if value and (parts.scheme not in {"http", "https"} or not parts.hostname):
        raise ValueError("is an address that begins with https://")
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("has neither a user, nor a query, nor a fragment")
    return value


def _secure_url(value: str) -> str:
    if _web_url(value) and not is_secure(value):
        raise ValueError("must begin with https://, unless it is on this machine")
    return value


WebUrl = Annotated[str, AfterValidator(_web_url)]
"""An HTTP address without query and fragment, or an empty text."""
SecureUrl = Annotated[str, AfterValidator(_secure_url)]
"""The same, if nobody on the way can read or change its content."""


class AccessSettings(Settings):
    """Settings that edges and authorization share."""

    authorization: Mode = Field("none", description="the way of admitting callers; none admits everybody")
    issuer: SecureUrl = Field("", description="the issuer of tokens: the URL of the authorization server")


def is_secure(url: str) -> bool:
    """Return whether a URL is sure to lead to its owner: by TLS, or on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))


def resource_of(public_url: str, path: str) -> str:
    """Return an endpoint's URL as clients know it, without a slash at its end (M62)."""
    return f"{public_url.rstrip('/')}{path}".rstrip("/")


def is_for(audiences: tuple[str, ...], resource: str) -> bool:
    """Return whether one of a token's audiences is the resource; a slash at the end makes no difference."""
    return any(audience.rstrip("/") == resource for audience in audiences)


def is_scope(word: str) -> bool:
    """Return whether a word is a scope that a token may have and a header may carry."""
    return _SCOPE.fullmatch(word) is not None


def refuse_exposed(bind: str, mode: str, *, allow_anonymous: bool) -> str | None:
    """Refuse to serve callers without credentials beyond this host, unless the operator said so.

    Args:
        bind: MCPFLEET_BIND, `host:port` or `[IPv6]:port`; no host is every address.
        mode: MCPFLEET_AUTHORIZATION.
        allow_anonymous: MCPFLEET_ALLOW_ANONYMOUS.

    Returns:
        The sentence for the operator, which names the settings; None if serving is fine.
    """
    if mode != "none" or allow_anonymous or is_loopback(host_and_port(bind)[0]):
        return None
    return (
        f"MCPFLEET_BIND: {bind} can be reached from other hosts, and MCPFLEET_AUTHORIZATION=none admits everyone: "
        "bind to 127.0.0.1, or set MCPFLEET_ALLOW_ANONYMOUS=true where something in front decides who may call"
    )


def is_exposed(bind: str, public_names: Iterable[str]) -> bool:
    """Return whether others than this host may reach an edge: at its address, or under a public name.

    Args:
        bind: MCPFLEET_BIND.
        public_names: the hosts of MCPFLEET_PUBLIC_URL and MCPFLEET_PUBLIC_HOSTS, perhaps with ports.
    """
    hosts = (urlsplit(f"//{name}").hostname or "" for name in public_names if name)
    return not is_loopback(host_and_port(bind)[0]) or not all(map(is_loopback, hosts))


def refuse_nameless(bind: str, mode: str, public_url: str) -> str | None:
    """Refuse to check tokens beyond this host without the name that they must be issued for (M61).

    Args:
        bind: MCPFLEET_BIND.
        mode: MCPFLEET_AUTHORIZATION.
        public_url: MCPFLEET_PUBLIC_URL.

    Returns:
        The sentence for the operator; None if serving is fine.
    """
    if mode == "none" or public_url or is_loopback(host_and_port(bind)[0]):
        return None
    return (
        f"MCPFLEET_PUBLIC_URL: must be set, for example to https://mcp.example.com: clients reach {bind} by a "
        "name that is not known here, and a token is good for the endpoints under that name alone"
    )
