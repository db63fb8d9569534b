"""Documents of MCP Apps: files and functions as resources, and what is warned of in their HTML (X9, X19)."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from html.parser import HTMLParser
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

from mcp_types import Resource as WireResource

from mcpfleet.app.declaration import Declaration
from mcpfleet.app.errors import DeclarationWarning, Mistake, NotFound, OutputError
from mcpfleet.app.file_source import OneFile
from mcpfleet.app.folder import FileContent, Folder, check_path
from mcpfleet.app.handler import Answer, HandlerRequest
from mcpfleet.app.resource import Resource
from mcpfleet.app.schema import MISSING
from mcpfleet.app.signature import Signature
from mcpfleet.app.site import Site
from mcpfleet.contracts.apps import APP_TYPE
from mcpfleet.contracts.manifest import Definition, FileRef

_OF_HANDLERS: Final = frozenset({"timeout", "on_disconnect", "asks", "may_ask", "per_caller"})
"""Options of functions, which no file has."""
_TEXTS: Final = (str, str | None, MISSING, Any, object)
"""The return annotations of a function that makes a document."""
_MOST_SHOWN: Final = 3
"""Addresses in one warning."""

_LOADING: Final[Mapping[str, tuple[str, str]]] = {
    "script": ("src", "resourceDomains"),
    "img": ("src", "resourceDomains"),
    "audio": ("src", "resourceDomains"),
    "video": ("src", "resourceDomains"),
    "source": ("src", "resourceDomains"),
    "track": ("src", "resourceDomains"),
    "link": ("href", "resourceDomains"),
    "iframe": ("src", "frameDomains"),
    "base": ("href", "baseUriDomains"),
}
"""For elements that load something: the attribute with its address, and the member of the CSP that must have it."""
_ABSOLUTE: Final = re.compile(r"\s*(?:https?:|wss?:)?//", re.IGNORECASE)
_IN_STYLES: Final = re.compile(r"""(?:url\(\s*|@import\s+)["']?((?:https?:)?//[^"')\s]+)""", re.IGNORECASE)
_IN_SCRIPTS: Final = re.compile(
    r"""\b(?:fetch|WebSocket|EventSource|sendBeacon)\s*\(\s*["'`]((?:https?|wss?)://[^"'`\s]+)""", re.IGNORECASE
)
_IMPORTED: Final = re.compile(r"""\b(?:import|from|importScripts)\b\s*\(?\s*["'](https?://[^"'\s]+)""", re.IGNORECASE)


class UiDocument(Resource):
    """A document that a function makes."""

    def __init__(
        self,
        handler: Callable[..., Any],
        declaration: Declaration,
        signature: Signature,
        *,
        name: str,
        ttl: float,
        unlisted: bool,
    ) -> None:
        if signature.returns not in _TEXTS:
            raise Mistake("a document is one text of HTML: annotate the function with `-> str`")
        super().__init__(
            handler, declaration, signature,
            name=name, mime_type=APP_TYPE, annotations=None, size=None, ttl=ttl, unlisted=unlisted,
        )  # fmt: skip
        self._is_checked = False

    def _finish(self, value: Any, request: HandlerRequest) -> Answer:
        if request.completing is not None:
            return super()._finish(value, request)
        uri = request.uri or self.definition.name
        if value is None:
            raise NotFound(uri)
        if not isinstance(value, str):
            raise OutputError(f"a document is one text of HTML, and the function returned {type(value).__name__}")
        meta = self.definition.wire.get("_meta")
        if not self._is_checked:
            self._is_checked = True
            warn_of_html(value, meta, str(self.site))
        block = {"uri": uri, "mimeType": APP_TYPE, "text": value}
        return Answer({"contents": [block | ({"_meta": meta} if meta else {})]})


def document_file(
    root: Folder, path: str, site: Site, declared: Mapping[str, Any], *, name: str | None, ttl: float, unlisted: bool
) -> OneFile:
    """Return the source of a document that is a file.

    Args:
        root: the folder that its path begins at.
        path: the file's.
        site: the declaration.
        declared: the members of `Declaration`, without its kind.
        name: for programs; the file's name without its ending by default.
        ttl: seconds for which a client may keep it.
        unlisted: no list has it.

    Raises:
        Mistake: the path or an option is none of a file.
    """
    if wrong := sorted(_OF_HANDLERS & declared.keys()):
        raise Mistake(f"{wrong[0]} is for functions: a file is answered without one")
    check_path(path)
    declaration = Declaration(kind="resource", **declared)
    wire = WireResource(
        uri=declaration.name,
        name=name or PurePosixPath(path).stem,
        mime_type=APP_TYPE,
        **declaration.described(None),
    )

    def define(content: FileContent, ref: FileRef) -> Definition:
        file = ref.model_copy(update={"mime": APP_TYPE})
        definition = declaration.define(wire, ttl=ttl, unlisted=unlisted, file=file)
        warn_of_html(content.body.decode(errors="replace"), definition.wire.get("_meta"), root.shown(path))
        return definition

    return OneFile(root, path, site, define)


def warn_of_html(text: str, meta: Mapping[str, Any] | None, place: str) -> None:
    """Warn of what hosts would block or show differently in a document.

    Args:
        text: the document.
        meta: the `_meta` of its declaration.
        place: for the warning.
    """
    for fault in html_faults(text, (meta or {}).get("ui", {}).get("csp", {})):
        warnings.warn(f"{place}: {fault}", DeclarationWarning, stacklevel=2)


def html_faults(text: str, csp: Mapping[str, Collection[str]]) -> Iterator[str]:
    """Yield sentences on a missing doctype, and on addresses outside of a CSP."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    if not reader.has_doctype:
        yield "the document has no doctype, so browsers guess how to show it: begin with `<!doctype html>`"
    for member in ("resourceDomains", "connectDomains", "frameDomains", "baseUriDomains"):
        outside = [
            each for each in dict.fromkeys(reader.found.get(member, ())) if not _covers(csp.get(member, ()), each)
        ]
        if outside:
            more = f" and {len(outside) - _MOST_SHOWN} more" if len(outside) > _MOST_SHOWN else ""
            shown = ", ".join(outside[:_MOST_SHOWN])
            yield f"hosts block {shown}{more}, since no origin in {_ARGUMENTS[member]} of its `csp` covers it"


_ARGUMENTS: Final = {
    "resourceDomains": "`resources`",
    "connectDomains": "`connect`",
    "frameDomains": "`frames`",
    "baseUriDomains": "`base`",
}


class _Reader(HTMLParser):
    """Collects the addresses that a document loads from, as far as its text shows them; links to follow are none."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.has_doctype = False
        self.found: dict[str, list[str]] = {}
        self._inside = ""

    def handle_decl(self, decl: str) -> None:
        self.has_doctype = self.has_doctype or decl.lower().startswith("doctype html")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag if tag in ("script", "style") else ""
        for name, value in attrs:
            if name == "style" and value:
                self._note("resourceDomains", _IN_STYLES.findall(value))
            elif name == _LOADING.get(tag, ("", ""))[0] and value and _ABSOLUTE.match(value):
                self._note(_LOADING[tag][1], [value.strip()])
            elif name == "poster" and value and _ABSOLUTE.match(value):
                self._note("resourceDomains", [value.strip()])

    def handle_endtag(self, tag: str) -> None:
        del tag
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "style":
            self._note("resourceDomains", _IN_STYLES.findall(data))
        elif self._inside == "script":
            self._note("connectDomains", _IN_SCRIPTS.findall(data))
            self._note("resourceDomains", _IMPORTED.findall(data))

    def _note(self, member: str, addresses: list[str]) -> None:
        if addresses:
            self.found.setdefault(member, []).extend(addresses)


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
