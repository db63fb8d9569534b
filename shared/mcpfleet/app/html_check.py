"""The check of a document's HTML: a missing doctype, and addresses that its CSP does not cover (X19)."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from html.parser import HTMLParser
from typing import Final
from urllib.parse import urlsplit

from mcpfleet.app.errors import DeclarationWarning
from mcpfleet.app.ui import CSP_MEMBERS
from mcpfleet.contracts.apps import ui_of
from mcpfleet.contracts.manifest import Definition

_MOST_SHOWN: Final = 3
"""Addresses in one warning."""

_LOADING: Final[Mapping[str, tuple[str, str]]] = {
    "script": ("src", "resources"),
    "img": ("src", "resources"),
    "audio": ("src", "resources"),
    "video": ("src", "resources"),
    "source": ("src", "resources"),
    "track": ("src", "resources"),
    "link": ("href", "resources"),
    "iframe": ("src", "frames"),
    "base": ("href", "base"),
}
"""For elements that load something: the attribute with its address, and the argument of `Csp` that must cover it."""
_ABSOLUTE: Final = re.compile(r"\s*(?:https?:|wss?:)?//", re.IGNORECASE)
_IN_STYLES: Final = re.compile(r"""(?:url\(\s*|@import\s+)["']?((?:https?:)?//[^"')\s]+)""", re.IGNORECASE)
_IN_SCRIPTS: Final = re.compile(
    r"""\b(?:fetch|WebSocket|EventSource|sendBeacon)\s*\(\s*["'`]((?:https?|wss?)://[^"'`\s]+)""", re.IGNORECASE
)
_IMPORTED: Final = re.compile(r"""\b(?:import|from|importScripts)\b\s*\(?\s*["'](https?://[^"'\s]+)""", re.IGNORECASE)


def warn_of_html(text: str, definition: Definition, place: str) -> None:
    """Warn of what hosts would block or show differently in a document.

    Args:
        text: the document.
        definition: its own.
        place: for the warning.
    """
    for fault in html_faults(text, (ui_of(definition) or {}).get("csp", {})):
        warnings.warn(f"{place}: {fault}", DeclarationWarning, stacklevel=2)


def html_faults(text: str, csp: Mapping[str, Collection[str]]) -> Iterator[str]:
    """Yield sentences on a missing doctype, and on addresses outside of a CSP."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    if not reader.has_doctype:
        yield "the document has no doctype, so browsers guess how to show it: begin with `<!doctype html>`"
    for argument, member in CSP_MEMBERS.items():
        origins = csp.get(member, ())
        outside = [each for each in dict.fromkeys(reader.found.get(argument, ())) if not _covers(origins, each)]
        if outside:
            more = f" and {len(outside) - _MOST_SHOWN} more" if len(outside) > _MOST_SHOWN else ""
            shown = ", ".join(outside[:_MOST_SHOWN])
            yield f"hosts block {shown}{more}, since no origin in `{argument}` of its `csp` covers it"


class _Reader(HTMLParser):
    """Collects the addresses that a document loads from, as far as its text shows them; links to follow are none."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.has_doctype = False
        self.found: dict[str, list[str]] = {}
        """By the argument of `Csp`."""
        self._inside = ""

    def handle_decl(self, decl: str) -> None:
        self.has_doctype = self.has_doctype or decl.lower().startswith("doctype html")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag if tag in ("script", "style") else ""
        for name, value in attrs:
            if name == "style" and value:
                self._note("resources", _IN_STYLES.findall(value))
            elif name == _LOADING.get(tag, ("", ""))[0] and value and _ABSOLUTE.match(value):
                self._note(_LOADING[tag][1], [value.strip()])
            elif name == "poster" and value and _ABSOLUTE.match(value):
                self._note("resources", [value.strip()])

    def handle_endtag(self, tag: str) -> None:
        del tag
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "style":
            self._note("resources", _IN_STYLES.findall(data))
        elif self._inside == "script":
            self._note("connect", _IN_SCRIPTS.findall(data))
            self._note("resources", _IMPORTED.findall(data))

    def _note(self, argument: str, addresses: list[str]) -> None:
        if addresses:
            self.found.setdefault(argument, []).extend(addresses)


def _covers(origins: Collection[str], address: str) -> bool:
    """Return whether one of a CSP's origins is that of an address, as browsers compare them."""
    try:
        asked = urlsplit(address if not address.startswith("//") else f"https:{address}")
        host, port = asked.hostname or "", asked.port
    except ValueError:
        return False
    for origin in origins:
        scheme, _, rest = origin.partition("://")
        name, _, number = rest.partition(":")
        fits = host == name if not name.startswith("*.") else host.endswith(name[1:]) and host != name[2:]
        if fits and asked.scheme == scheme and (port == int(number) if number else port in (None, 80, 443)):
            return True
    return False
