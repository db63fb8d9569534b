"""Documents of MCP Apps as an author declares them: their policy, their `_meta.ui`, and data in them (X9, X17)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from mcpfleet.app.errors import DeclarationError, Mistake
from mcpfleet.app.site import Site
from mcpfleet.app.uri import check_uri
from mcpfleet.contracts.apps import MODEL, UI_SCHEME, VISIBLE
from mcpfleet.contracts.manifest import Definition
from mcpfleet.wire.reply import written

Function = TypeVar("Function", bound=Callable[..., Any])

PERMISSIONS: Final[Mapping[str, str]] = {
    "camera": "camera",
    "microphone": "microphone",
    "geolocation": "geolocation",
    "clipboard-write": "clipboardWrite",
}
"""The permissions that a document may ask for, and their names in `_meta.ui`."""
CSP_MEMBERS: Final[Mapping[str, str]] = {
    "connect": "connectDomains",
    "resources": "resourceDomains",
    "frames": "frameDomains",
    "base": "baseUriDomains",
}
"""The arguments of `Csp`, and their names in `_meta.ui.csp`."""
_MOST_ORIGINS: Final = 64
_LONGEST_DOMAIN: Final = 255
_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_PORT: Final = r"(?::(?:[1-9]\d{0,4}))?"
_ORIGIN: Final = re.compile(rf"(?:https|wss)://(?:\*\.)?{_LABEL}(?:\.{_LABEL})*{_PORT}")
_LOCAL: Final = re.compile(rf"http://localhost{_PORT}")
_DOMAIN: Final = re.compile(r"[\x21-\x7e]+")
_CANNOT_CLOSE: Final = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}
"""Characters by which a text could end a `<script>`, begin a comment, or break a line of JavaScript."""

_local: set[str] = set()


def allow_localhost() -> None:
    """Let documents connect to `http://localhost` in this process, as `mcpfleet dev` does (X17)."""
    _local.add("localhost")


class Csp:
    """The origins that a document may use: hosts block all others.

    Each is an `https:` or `wss:` origin, such as `https://api.example.com`; one `*.` may stand before the host's name.
    `mcpfleet dev` also takes `http://localhost`, with a port or without.

    Args:
        connect: origins for `fetch`, XMLHttpRequest and WebSocket.
        resources: origins of scripts, styles, images, fonts and media.
        frames: origins of nested frames.
        base: origins that `<base>` may name.

    Raises:
        DeclarationError: one is no such origin.
    """

    def __init__(
        self,
        *,
        connect: Collection[str] = (),
        resources: Collection[str] = (),
        frames: Collection[str] = (),
        base: Collection[str] = (),
    ) -> None:
        site = Site.of_caller()
        given = {"connect": connect, "resources": resources, "frames": frames, "base": base}
        try:
            for name, origins in given.items():
                _check_origins(name, origins)
        except Mistake as mistake:
            raise DeclarationError(f"Csp: {mistake.why}", site) from None
        self.connect = tuple(connect)
        self.resources = tuple(resources)
        self.frames = tuple(frames)
        self.base = tuple(base)

    def members(self) -> dict[str, list[str]]:
        """Return `_meta.ui.csp`."""
        return {member: list(origins) for name, member in CSP_MEMBERS.items() if (origins := getattr(self, name))}


def _check_origins(name: str, origins: object) -> None:
    if isinstance(origins, str) or not isinstance(origins, Collection):
        raise Mistake(f'{name} is a list of origins, such as ["https://api.example.com"], not {origins!r}')
    if len(origins) > _MOST_ORIGINS:
        raise Mistake(f"{name} has over {_MOST_ORIGINS} origins")
    for origin in origins:
        if isinstance(origin, str) and (_ORIGIN.fullmatch(origin) or (_local and _LOCAL.fullmatch(origin))):
            continue
        why = "must be an `https:` or `wss:` origin in small letters, with at most one `*.` before the host"
        if isinstance(origin, str) and _LOCAL.fullmatch(origin):
            why = "is taken under `mcpfleet dev` alone: name the `https:` origin of the service"
        raise Mistake(f"{name} has {origin!r}, which {why}")


class Ui:
    """A declared document, which tools name by `ui=`. Without a file it is used as a decorator."""

    def __init__(self, uri: str, declare: Callable[[Callable[..., Any]], None] | None) -> None:
        """Name a document.

        Args:
            uri: its own.
            declare: declares the function that makes it; None where it is a file.
        """
        self.uri = uri
        self._declare = declare

    def __call__(self, function: Function) -> Function:
        """Declare the function that makes the document; the function itself stays as it is.

        Raises:
            DeclarationError: the document is a file, or a rule is broken.
        """
        if self._declare is None:
            raise DeclarationError(f"{self.uri!r} is a file already: take `file=` away", Site.of(function))
        self._declare(function)
        return function

    def __repr__(self) -> str:
        return f"Ui({self.uri!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentOptions:
    """The options of a document that hosts read.

    Raises:
        Mistake: it breaks a rule.
    """

    uri: str
    csp: Csp | None = None
    permissions: Collection[str] = ()
    domain: str | None = None
    border: bool | None = None

    def __post_init__(self) -> None:
        check_document_uri(self.uri)
        if self.csp is not None and not isinstance(self.csp, Csp):
            raise Mistake(f"csp must be a Csp, such as Csp(connect=[…]), not {self.csp!r}")
        _check_words("permissions", self.permissions, PERMISSIONS)
        if self.domain is not None and not (len(self.domain) <= _LONGEST_DOMAIN and _DOMAIN.fullmatch(self.domain)):
            raise Mistake(f"domain must have 1 to {_LONGEST_DOMAIN} characters without spaces, not {self.domain!r}")
        if self.border not in (True, False, None):
            raise Mistake(f"border must be True, False or None, not {self.border!r}")

    def members(self) -> dict[str, Any]:
        """Return `_meta.ui`."""
        found: dict[str, Any] = {}
        if self.csp is not None and (csp := self.csp.members()):
            found["csp"] = csp
        if self.permissions:
            found["permissions"] = {wire: {} for name, wire in PERMISSIONS.items() if name in self.permissions}
        if self.domain is not None:
            found["domain"] = self.domain
        if self.border is not None:
            found["prefersBorder"] = self.border
        return found


def check_document_uri(uri: object) -> None:
    """Check the URI of a document (X9).

    Raises:
        Mistake: it is no exact `ui://` URI.
    """
    if not isinstance(uri, str):
        raise Mistake(f'write `@app.ui("ui://…")`, with the URI of the document, not {uri!r}')
    if "{" in uri:
        raise Mistake(f"{uri!r} has variables: the URI of a document is exact")
    if not uri.startswith(UI_SCHEME):
        raise Mistake(f"{uri!r} must begin with {UI_SCHEME}")
    check_uri(uri)


def check_no_package(package: str | None) -> None:
    """Check that a document without a file names no package; raises `Mistake`."""
    if package is not None:
        raise Mistake("package is for a file: name one by `file=`")


def tool_members(uri: str | None, visibility: Collection[str] | None) -> dict[str, Any] | None:
    """Return a tool's `_meta.ui`; None where it says nothing of Apps (X10).

    Raises:
        Mistake: the visibility is none.
    """
    if visibility is not None:
        _check_words("visibility", visibility, VISIBLE)
        if not visibility:
            raise Mistake('visibility is empty, so nobody could see the tool: name "model", "app" or both')
    if uri is None and visibility is None:
        return None
    seen = VISIBLE if visibility is None else visibility
    found: dict[str, Any] = {} if uri is None else {"resourceUri": uri}
    return found | {"visibility": sorted(seen, key=lambda each: each != MODEL)}


def _check_words(name: str, given: object, known: Iterable[str]) -> None:
    if isinstance(given, str) or not isinstance(given, Collection):
        raise Mistake(f"{name} is a set of strings, not {given!r}")
    for each in given:
        if each not in known:
            raise Mistake(f"{name} has {each!r}; known are {', '.join(map(repr, sorted(known)))}")


def check_visible(tool: Definition, document: Definition | None, uri: str) -> None:
    """Check that all who see a tool see its document, too (X10).

    Raises:
        Mistake: there is no such document in the App, or somebody may see the tool alone.
    """
    if document is None:
        raise Mistake(
            f"its ui {uri!r} is no document of this App: declare it by `app.ui` first, or include its Router first"
        )
    why = ""
    if document.only_for and not (tool.only_for and set(tool.only_for) <= set(document.only_for)):
        why = "only_for"
    elif not set(document.scopes) <= set(tool.scopes):
        why = "scopes"
    elif document.revisions and not (tool.revisions and set(tool.revisions) <= set(document.revisions)):
        why = "revisions"
    elif document.permit:
        why = "permit"
    if why:
        raise Mistake(
            f"its ui {uri!r} is hidden by its {why} from callers who see the tool: each of them must see the document"
        )


def embed(value: Any) -> str:
    """Return a value as JSON for a `<script>` of a document: no text in it can end the script (X18).

    `f"<script>const stock = {ui.embed(stock)};</script>"` is safe, whatever `stock` has in it. The JSON is JavaScript
    as well.

    Args:
        value: data, a dataclass, or a model of Pydantic.

    Raises:
        ValueError: a part of it is not JSON: an unknown type, a lone surrogate, NaN or Infinity.
    """
    return written(value).decode().translate(_CANNOT_CLOSE)
