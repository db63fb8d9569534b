"""The parts of a declaration besides its function, and the rules for them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypedDict

from mcp_types import Icon
from pydantic import BaseModel
from pydantic_core import to_json

from mcpfleet.app.errors import DeclarationError, Mistake
from mcpfleet.app.site import Site, innermost
from mcpfleet.contracts.apps import FORMER, UI, UI_SCHEME
from mcpfleet.contracts.manifest import CACHED, LONGEST_TIMEOUT, MOST_WORDS, Definition, Kind
from mcpfleet.wire.protocol import SERVED_WITH_LEGACY

ASKS: Final = frozenset({"elicitation.form", "elicitation.url", "sampling", "sampling.tools", "roots"})
"""The questions that a handler may declare to ask of a client (D16)."""

OnDisconnect = Literal["cancel", "continue"]

MOST_ICONS: Final = 64 * 1024
"""Bytes of a server's icons (X65)."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


_PATTERN: Final = re.compile(r"(tenant|client|subject):[\x21-\x7e]{1,256}")


class Options(TypedDict, total=False):
    """The options of every kind of declaration."""

    title: str | None
    """The name for people."""
    description: str | None
    """A text for the model about its effect or content; the docstring by default."""
    icons: Sequence[Icon]
    """https or data URIs (M28)."""
    meta: Mapping[str, Any] | None
    """Members of the declaration's `_meta`."""
    timeout: float
    """Seconds that a call may take, whatever progress it reports; at most a day."""
    on_disconnect: OnDisconnect
    """The effect of a client's leaving: "cancel" stops the work, "continue" lets it go on (D12). Tools with an
    idempotency key continue by default."""
    asks: Collection[str]
    """The questions that the handler needs: "elicitation.form", "elicitation.url", "sampling", "sampling.tools" or
    "roots". A client without them is refused before the call (D16). Questions that the handler's own code shows count
    without it."""
    may_ask: Collection[str]
    """The questions that it asks only of clients that can answer: `ctx.can_ask` tells."""
    scopes: Collection[str]
    """The scopes that a caller's token needs: without them it is listed, but refused (D10)."""
    only_for: Collection[str]
    """The callers it exists for: `tenant:`, `client:` or `subject:` and a pattern with `*` and `?`. For all others it
    is unknown; empty is everybody (D10)."""
    per_caller: bool
    """Its answers depend on the caller, so no shared cache keeps them (M46)."""
    revisions: Collection[str]
    """The revisions of MCP in whose requests it exists: "2026-07-28", "2025-11-25", "2025-06-18". In all others it is
    unknown; empty is all (X61)."""


OPTIONS: Final = frozenset(Options.__annotations__)


class NoOptions(TypedDict):
    """Nothing: a mistyped argument is an error for type checkers, and reaches `check_keywords` at run time."""


def check_keywords(what: str, given: Iterable[str], known: Iterable[str], site: Site) -> None:
    """Check the names of keyword arguments.

    Raises:
        DeclarationError: one is unknown; the text offers the one that was meant.
    """
    names = sorted(set(known) - {"unknown"})
    for name in given:
        if name not in names:
            from difflib import get_close_matches  # noqa: PLC0415  # few declarations need it

            close = get_close_matches(name, names, 1)
            remedy = f"did you mean {close[0]!r}?" if close else f"it has {_listed(names)}"
            raise DeclarationError(f"{what} has no argument {name!r}: {remedy}", site)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The parts of a declaration besides its function, checked when it is made.

    Raises:
        Mistake: a rule below is broken.
    """

    kind: Kind
    name: str
    """The definition's name: a tool's or a prompt's name, or a URI."""
    title: str | None = None
    description: str | None = None
    icons: Sequence[Icon] = ()
    meta: Mapping[str, Any] | None = None
    timeout: float = 60.0
    on_disconnect: OnDisconnect = "cancel"
    asks: Collection[str] = ()
    may_ask: Collection[str] = ()
    scopes: Collection[str] = ()
    only_for: Collection[str] = ()
    per_caller: bool = False
    revisions: Collection[str] = ()
    ui: Mapping[str, Any] | None = None
    """The `_meta.ui` of a document, or of a tool with one; None for everything else."""

    def __post_init__(self) -> None:
        if self.name.startswith(UI_SCHEME) and (self.kind != "resource" or self.ui is None):
            raise Mistake(f"{self.name!r} is the URI of a document: declare it by `app.ui`")
        if reserved := {UI, FORMER} & (self.meta or {}).keys():
            raise Mistake(
                f"meta has {reserved.pop()!r}, which is MCP Apps': write `ui=` and `visibility=` of a tool, or `app.ui`"
            )
        if self.kind in ("tool", "prompt"):
            check_name(self.kind, self.name)
        if not 0 < self.timeout <= LONGEST_TIMEOUT:
            raise Mistake(f"timeout must be over 0 and up to {LONGEST_TIMEOUT:.0f} seconds, not {self.timeout}")
        if self.on_disconnect not in ("cancel", "continue"):
            raise Mistake(f'on_disconnect must be "cancel" or "continue", not {self.on_disconnect!r}')
        for name in ("asks", "may_ask", "scopes", "only_for", "revisions"):
            words = getattr(self, name)
            if isinstance(words, str):
                raise Mistake(f"{name} is a collection of strings, not one string")
            if len(words) > MOST_WORDS:
                raise Mistake(f"{name} has over {MOST_WORDS} entries")
        check_asks("asks", self.asks)
        check_asks("may_ask", self.may_ask)
        if self.kind == "lister" and (self.asks or self.may_ask):
            raise Mistake("a list asks nothing of the client: only tools, prompts and resources do (M50)")
        check_scopes(self.scopes)
        check_only_for(self.only_for)
        check_revisions(self.revisions)
        check_icons(self.icons)

    def define(self, wire: BaseModel | None, **members: Any) -> Definition:
        """Return the definition that is announced.

        Args:
            wire: the declaration as 2026-07-28 lists it.
            members: further members of the definition.
        """
        # None in the declaration is left out; null inside a schema stays, since it has a meaning there.
        written = {} if wire is None else wire.model_dump(mode="json", by_alias=True, exclude_none=True)
        asks = frozenset(self.asks)
        return Definition(
            kind=self.kind,
            name=self.name,
            wire=written,
            timeout=self.timeout,
            on_disconnect=self.on_disconnect,
            asks=tuple(sorted(asks)),
            may_ask=tuple(sorted(set(self.may_ask) - asks)),
            scopes=tuple(dict.fromkeys(self.scopes)),
            only_for=tuple(sorted(set(self.only_for))),
            revisions=tuple(sorted(set(self.revisions))),
            **{"per_caller": self.per_caller} | members,
        )

    def described(self, handler: Callable[..., Any] | None) -> dict[str, Any]:
        """Return the members that every kind shows in its list: title, description, icons and `_meta`.

        Args:
            handler: its docstring is the description, if nothing else is; None for a file.
        """
        docstring = innermost(handler).__doc__ if handler is not None else None
        meta = dict(self.meta or {}) | ({UI: dict(self.ui)} if self.ui else {})
        return {
            "title": self.title,
            "description": self.description or inspect.cleandoc(docstring or "") or None,
            "icons": list(self.icons) or None,
            "meta": meta or None,
        }


def server_description(
    description: str | None, icons: Sequence[Icon], website_url: str | None, ttl: Mapping[str, float] | None
) -> dict[str, Any]:
    """Return the members of a manifest by which an App describes its server (X65, X74).

    Raises:
        Mistake: a rule is broken.
    """
    check_icons(icons)
    shown = tuple(icon.model_dump(mode="json", by_alias=True, exclude_none=True) for icon in icons)
    if (size := len(to_json(shown))) > MOST_ICONS:
        raise Mistake(f"icons have {size} bytes; all together may have {MOST_ICONS}: give `https:` URIs")
    if website_url is not None and not website_url.lower().startswith(("https://", "http://")):
        raise Mistake(f"website_url {website_url!r} must be an https: or http: URL")
    for name, seconds in (ttl or {}).items():
        if name not in CACHED:
            raise Mistake(f"ttl has {name!r}; known are {_listed(CACHED)}")
        if not 0 <= seconds <= LONGEST_TIMEOUT:
            raise Mistake(f"ttl of {name!r} must be 0 to {LONGEST_TIMEOUT:.0f} seconds, not {seconds}")
    return {"description": description, "icons": shown, "website_url": website_url, "ttl": dict(ttl or {})}


def check_name(kind: str, name: str) -> None:
    """Check that a tool's or a prompt's name has the form that clients know (M36).

    Raises:
        Mistake: it has another form.
    """
    if not _NAME.fullmatch(name):
        raise Mistake(f"{kind} name {name!r} must have 1 to 128 characters of A-Z a-z 0-9 _ - .")


def check_asks(field: str, names: Iterable[str]) -> None:
    """Check that a client can declare each question of a handler.

    Raises:
        Mistake: one is unknown.
    """
    if unknown := set(names) - ASKS:
        raise Mistake(f"{field} has {_listed(unknown)}; known are {_listed(ASKS)}")


def check_only_for(patterns: Iterable[str]) -> None:
    """Check the form of patterns of callers.

    Raises:
        Mistake: one has another form.
    """
    for pattern in patterns:
        if not _PATTERN.fullmatch(pattern):
            raise Mistake(f"only_for has {pattern!r}: write `tenant:`, `client:` or `subject:` and a pattern")


def check_revisions(revisions: Iterable[str]) -> None:
    """Check that this release serves revisions of MCP (X61).

    Raises:
        Mistake: one is unknown.
    """
    if unknown := set(revisions) - set(SERVED_WITH_LEGACY):
        raise Mistake(f"revisions has {_listed(unknown)}; known are {_listed(SERVED_WITH_LEGACY)}")


def check_scopes(scopes: Iterable[str]) -> None:
    """Check that a challenge can name scopes (RFC 6749, section 3.3).

    Raises:
        Mistake: one has another form.
    """
    for scope in scopes:
        if not _SCOPE.fullmatch(scope):
            raise Mistake(f"scope {scope!r} is not a scope: it must have no space, quote or backslash")


def check_ttl(seconds: float) -> None:
    """Check the seconds for which clients may keep something.

    Raises:
        Mistake: they are out of bounds.
    """
    if not 0 <= seconds <= LONGEST_TIMEOUT:
        raise Mistake(f"ttl must be 0 to {LONGEST_TIMEOUT:.0f} seconds, not {seconds}")


def check_icons(icons: Iterable[Icon]) -> None:
    """Check that clients will load icons from their addresses (M28).

    Raises:
        Mistake: one has another scheme.
    """
    for icon in icons:
        if not icon.src.lower().startswith(("https:", "data:")):
            raise Mistake(f"icon {icon.src!r} must be an https: or data: URI")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(names)))
