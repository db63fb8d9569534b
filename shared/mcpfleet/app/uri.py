"""The rules for declared URIs (M43), and for values of a template's variables."""

from __future__ import annotations

import re
import warnings
from typing import Final

from mcpfleet.app.errors import DeclarationWarning, Mistake
from mcpfleet.contracts.hints import abnormality, is_uri
from mcpfleet.contracts.manifest import LONGEST_NAME
from mcpfleet.wire.uri_template import BadTemplate, UriTemplate

_ABSOLUTE: Final = re.compile(r"[/\\]|[A-Za-z]:")
_SEPARATORS: Final = re.compile(r"[/\\]")


def check_uri(uri: str) -> None:
    """Check a URI by RFC 3986: absolute, and normalized.

    Raises:
        Mistake: it is not.
    """
    if not is_uri(uri):
        raise Mistake(f"{uri!r} is not an absolute URI (RFC 3986) of up to {LONGEST_NAME} characters")
    _check_normal(uri)


def check_template(text: str) -> UriTemplate:
    """Check a template by RFC 6570, as far as it can be matched, and by the rules of URIs.

    Raises:
        Mistake: it breaks one.
    """
    try:
        template = UriTemplate.parse(text)
    except BadTemplate as error:
        raise Mistake(f"the URI template {text!r}: {error}") from None
    if not template.scheme or len(text) > LONGEST_NAME:
        raise Mistake(f"the URI template {text!r} must begin with a scheme, and have up to {LONGEST_NAME} characters")
    _check_normal(text)
    return template


def escapes_folder(scheme: str, values: dict[str, str]) -> bool:
    """Return whether a variable's value could lead a handler that joins it to a path out of its folder (M43).

    `..` is refused in every scheme, since any handler may read files; an absolute path is refused in `file:` alone.
    """
    for value in values.values():
        if ".." in _SEPARATORS.split(value):
            return True
        if scheme == "file" and _ABSOLUTE.match(value):
            return True
    return False


def _check_normal(uri: str) -> None:
    if fault := abnormality(uri):
        raise Mistake(f"{uri!r}: {fault}")


def warn_of_https(uri: str) -> None:
    """Warn of `https:`: clients expect to fetch it themselves (M43)."""
    if uri.startswith("https:"):
        warnings.warn(
            f"{uri!r}: https: is for what clients can fetch themselves; use a scheme of your own otherwise",
            DeclarationWarning,
            stacklevel=2,
        )
