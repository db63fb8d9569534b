"""How callers are admitted: settings that edges and authorization read alike, and the URLs that tokens are for."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from mcpfleet.process.address import is_loopback
from mcpfleet.process.settings import Settings

Mode: TypeAlias = Literal["none", "static", "jwt", "introspection", "custom"]
_SCOPE: Final = re.compile(r"[\x21\x23-\x5B\x5D-\x7E]{1,256}")
"""A scope as RFC 6749 spells one: it needs no escape in a header."""


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
"""An address of HTTP without query and fragment, or nothing."""
SecureUrl = Annotated[str, AfterValidator(_secure_url)]
"""The same, and nobody on the way can read or change what is fetched from it."""


class AccessSettings(Settings):
    """What edges and authorization read alike."""

    authorization: Mode = Field("none", description="how callers are admitted; none admits everybody")
    issuer: SecureUrl = Field("", description="who issues tokens: the URL of the authorization server")


def is_secure(url: str) -> bool:
    """Whether what is fetched from a URL can be trusted to be its owner's."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))


def resource_of(public_url: str, path: str) -> str:
    """An endpoint's URL as clients know it, without a slash at its end (M62)."""
    return f"{public_url.rstrip('/')}{path}".rstrip("/")


def is_for(audiences: tuple[str, ...], resource: str) -> bool:
    """Whether one of a token's audiences is the resource; a slash at the end makes no difference."""
    return any(audience.rstrip("/") == resource for audience in audiences)


def is_scope(word: str) -> bool:
    """Whether a word is a scope that a token may have and a header may carry."""
    return _SCOPE.fullmatch(word) is not None
