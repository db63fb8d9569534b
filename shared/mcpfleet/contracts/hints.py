"""Hints that a resource, or a list of them, has changed: their subjects, and the form of URIs."""

from __future__ import annotations

import re
from typing import Final, NamedTuple, TypeAlias

from mcpfleet.contracts.manifest import LONGEST_NAME, digest_of

OPERATOR_TOKEN: Final = "_operator"  # noqa: S105  # of a subject
"""Stands for the pool in the subject of an operator's hint. Pool names have no underscore; an operator speaks for
all."""
LISTS: Final = ""
"""Stands for an application's lists in place of a URI, which is never empty."""

LONGEST_KEY: Final = 2_048
"""Characters of a key of an own notification."""

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+")
_ENCODED: Final = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class OwnChange(NamedTuple):
    """A change that a notification of an own extension tells: its key alone, for a hint is no state (X46)."""

    notification: str
    """The notification's name."""
    key: str
    """The string of the client's filter."""

    @property
    def text(self) -> str:
        """Both in one text, which names it among an endpoint's changes, and is a hint's body."""
        return f"{self.notification} {self.key}"

    @classmethod
    def read(cls, text: str) -> OwnChange:
        """Read it from its text; a notification's name has no space."""
        notification, _, key = text.partition(" ")
        return cls(notification, key)


Change: TypeAlias = str | OwnChange
"""The change: the resource of a URI, an application's lists (`LISTS`), or a key of an own notification."""


class BadUri(ValueError):
    """Raised when a URI to be published is not absolute and normalized (S5)."""


def resource_key(uri: str) -> str:
    """Return the name of a URI in subjects."""
    return digest_of(uri.encode())


def resource_hint_subject(endpoint: str, pool: str, key: str) -> str:
    """Return the subject of a hint; its body is the URI."""
    return f"hint.resource.{endpoint}.{pool}.{key}"


def resource_hints(endpoint: str, key: str = "*") -> str:
    """Return the pattern that hears the hints of one URI, or of all, from every sender."""
    return f"hint.resource.{endpoint}.*.{key}"


def list_hint_subject(endpoint: str, pool: str) -> str:
    """Return the subject of the hint that a pool's lists return something else; it has no body.

    The answer may depend on the caller, so only the client can tell whether it changed for it.
    """
    return f"hint.list.{endpoint}.{pool}"


def list_hints(endpoint: str) -> str:
    """Return the pattern that hears these hints of all pools."""
    return list_hint_subject(endpoint, "*")


def extension_hint_subject(endpoint: str, pool: str, key: str) -> str:
    """Return the subject of the hint that a key of an own notification has changed; its body is `OwnChange.text`."""
    return f"hint.extension.{endpoint}.{pool}.{key}"


def extension_hints(endpoint: str, key: str = "*") -> str:
    """Return the pattern that hears the hints of one such key, or of all, from every pool."""
    return extension_hint_subject(endpoint, "*", key)


def check_published(uri: str) -> None:
    """Check a URI to be published by RFC 3986: absolute and normalized, since clients' URIs are compared as they are.

    Raises:
        BadUri: it is not; the sentence gives the reason.
    """
    if not is_uri(uri):
        raise BadUri(f"{uri!r} is not an absolute URI (RFC 3986) of up to {LONGEST_NAME} characters")
    if fault := abnormality(uri):
        raise BadUri(f"{uri!r}: {fault}")


def is_uri(uri: str) -> bool:
    """Return whether it is an absolute URI, normalized or not."""
    return _URI.fullmatch(uri) is not None and len(uri) <= LONGEST_NAME


def abnormality(uri: str) -> str:
    """Return how a URI, or a template, breaks the normalized form (RFC 3986, section 6); empty if it does not."""
    scheme, _, rest = uri.partition(":")
    if scheme != scheme.lower():
        return "the scheme is written in small letters"
    if rest.startswith("//") and (host := re.split(r"[/?#{]", rest[2:], maxsplit=1)[0]) != host.lower():
        return "the host is written in small letters"
    for encoded in _ENCODED.findall(uri):
        if encoded != encoded.upper() or chr(int(encoded, 16)) in _UNRESERVED:
            return f"%{encoded} is written otherwise in a normalized URI (RFC 3986, section 6)"
    path = re.split(r"[?#]", rest, maxsplit=1)[0]
    return "a normalized URI has no . or .. among its segments" if {".", ".."} & set(path.split("/")) else ""
