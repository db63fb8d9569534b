"""A source: one existing MCP server, how it is reached, and what its configuration changes of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel, ConfigDict, Field

from mcpfleet.contracts.manifest import (
    LONGEST_TIMEOUT,
    MOST_WORDS,
    POOL_PATTERN,
    Rate,
    Tasking,
    canonical,
    digest_of,
)

Isolation: TypeAlias = Literal["shared", "caller", "session", "call"]
"""The callers that share a connection to the source: all, one caller, one client session, or one call."""
Era: TypeAlias = Literal["auto", "2025", "2026"]
"""The revisions that are spoken with the source; `auto` asks it."""

_Seconds = Annotated[float, Field(gt=0, le=LONGEST_TIMEOUT, allow_inf_nan=False)]
_Words = Annotated[tuple[str, ...], Field(max_length=MOST_WORDS)]
_Secrets = Annotated[tuple[str, ...], Field(repr=False, exclude=True)]
"""Texts of variables that stand in a larger text: its source may write them without the rest."""
_MASK: Final = "***"
_SHORTEST: Final = 4
"""Characters of such a text; a shorter one is no secret, and would mask half of the words."""


class _Model(BaseModel):
    """A frozen value of the configuration; an unknown member is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Value(_Model):
    """A value of a variable or a header."""

    text: str = Field(repr=False)
    """It is never logged or printed."""
    is_secret: bool = True
    """It came by a reference, so it is masked in the source's own output, and no digest depends on it."""
    secrets: _Secrets = ()


class Command(_Model):
    """A child process that speaks MCP over stdio."""

    kind: Literal["command"] = "command"
    words: tuple[str, ...] = Field(min_length=1)
    """The program and its arguments; no shell reads them."""
    shown: tuple[str, ...] = ()
    """The words as the configuration has them, with references in the place of their values: what is printed and
    digested; empty where they are the same."""
    secrets: _Secrets = ()
    env: Mapping[str, Value] = Field(default_factory=dict)
    """Variables of the child beside those that every child has."""
    cwd: Path | None = None
    """The directory where it runs; this process's own by default."""


class Url(_Model):
    """A server that speaks MCP over HTTP."""

    kind: Literal["url"] = "url"
    url: str = Field(pattern=r"^https?://")
    shown: str = ""
    """The URL as the configuration has it, as with a command's words."""
    secrets: _Secrets = ()
    headers: Mapping[str, Value] = Field(default_factory=dict)
    auth: Mapping[str, Any] | None = Field(default=None, repr=False)
    """The table `auth`, with its references read as `Value`s."""

    @property
    def without_secrets(self) -> str:
        """The URL for people: a password and a query may be secrets, though nothing says so."""
        parts = urlsplit(self.shown or self.url)
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit((parts.scheme, host, parts.path, "…" if parts.query else "", ""))


class Object(_Model):
    """A server object in a Python file or module."""

    kind: Literal["object"] = "object"
    target: str = Field(min_length=1)
    """`path/to/server.py`, `path/to/server.py:name` or `module:name`."""
    python: str | None = None
    """Another interpreter, in which a child process holds the object."""
    env: Mapping[str, Value] = Field(default_factory=dict)
    """Variables of that child."""


class OpenApi(_Model):
    """An HTTP API that is described by an OpenAPI document."""

    kind: Literal["openapi"] = "openapi"
    document: str = Field(min_length=1)
    """A path or a URL."""
    base_url: str | None = None
    headers: Mapping[str, Value] = Field(default_factory=dict)
    auth: Mapping[str, Any] | None = Field(default=None, repr=False)


Way: TypeAlias = Annotated[Command | Url | Object | OpenApi, Field(discriminator="kind")]


class ToolSettings(_Model):
    """The changes of one tool, by the name that its source gave it. None changes nothing."""

    name: str | None = None
    """Its name for clients; the source's prefix is not put before it."""
    hide: bool = False
    description: str | None = None
    annotations: Mapping[str, Any] | None = None
    """Members of the tool's annotations; others stay as the source declared them."""
    scopes: _Words | None = None
    only_for: _Words | None = None
    rate: Rate | None = None
    timeout: _Seconds | None = None
    asks: _Words | None = None
    task: Tasking | None = None
    era: Era | None = None
    idempotency_key: str | None = Field(default=None, min_length=1, max_length=128)


class Source(_Model):
    """One configured server."""

    name: str = Field(pattern=POOL_PATTERN)
    """Its name in its file, in the form of pool names."""
    way: Way
    place: str = ""
    """The file and line that describe it, such as `fleet.toml:12`; empty for one of the command line."""
    prefix: str = Field(default="", max_length=64)
    """Stands before the names of its tools and prompts."""
    isolation: Isolation | None = None
    """As it is written; `shared_by` has the default too."""
    asks: _Words | None = None
    """The questions to clients that the source may ask; None leaves that to the isolation."""
    era: Era = "auto"
    roots: tuple[str, ...] = ()
    """`file:` URIs that the source is told; the client's own roots are never its."""
    children: int = Field(default=8, gt=0, le=1_000)
    """The most connections of one worker."""
    idle: _Seconds = 300.0
    """Seconds after which an unused connection ends."""
    start_within: _Seconds = 60.0
    """Seconds in which a connection must be ready."""
    timeout: _Seconds = 60.0
    """Seconds that a call may take, where no tool says otherwise."""
    message_limit: int = Field(default=8 * 1024 * 1024, ge=64 * 1024, le=64 * 1024 * 1024)
    """Bytes of a message from the source; a longer one ends the connection."""
    check: bool = False
    """Arguments are checked by the tool's schema before the source has them, and results after."""
    scopes: _Words = ()
    """The scopes that every tool, prompt and resource of it needs."""
    only: tuple[str, ...] | None = None
    """Patterns (`*`, `?`) of the tools that are served; None serves all."""
    leave_out: tuple[str, ...] = ()
    """Patterns of tools that are not served; the key `except` of a file."""
    tools: Mapping[str, ToolSettings] = Field(default_factory=dict)

    @property
    def shared_by(self) -> Isolation:
        """The callers that share a connection: as written, or objects all, and what has a state of its own one."""
        if self.isolation is not None:
            return self.isolation
        return "shared" if isinstance(self.way, Object | OpenApi) else "caller"

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts that its output must not show, the longest first."""
        values: list[Value] = []
        if isinstance(self.way, Command | Object):
            values += self.way.env.values()
        if isinstance(self.way, Url | OpenApi):
            values += [*self.way.headers.values(), *_values(self.way.auth)]
        texts = {value.text for value in values if value.is_secret and value.text}
        holders = [*values, *([self.way] if isinstance(self.way, Command | Url) else [])]
        texts.update(part for each in holders for part in each.secrets if len(part) >= _SHORTEST)
        return tuple(sorted(texts, key=len, reverse=True))

    def masked(self, text: str) -> str:
        """Return a text of the source without its secrets (B21)."""
        for secret in self.secrets:
            text = text.replace(secret, _MASK)
        return text

    @property
    def digest(self) -> str:
        """Names the server behind it: its way without the values of secrets, and its isolation."""
        way = self.way.model_dump(mode="json")
        if way.get("shown"):
            way["words" if isinstance(self.way, Command) else "url"] = way["shown"]
        way.pop("shown", None)
        return digest_of(canonical({"way": _without_secrets(way), "isolation": self.shared_by}))


def _values(table: Any) -> list[Value]:
    """Find the values in a table, at any depth."""
    if isinstance(table, Value):
        return [table]
    if isinstance(table, Mapping):
        return [value for each in table.values() for value in _values(each)]
    return []


def _without_secrets(dumped: Any) -> Any:
    """Blank the texts of secret values in dumped members."""
    if isinstance(dumped, dict):
        if dumped.get("is_secret") is True and "text" in dumped:
            return {**dumped, "text": ""}
        return {name: _without_secrets(value) for name, value in dumped.items()}
    return [_without_secrets(each) for each in dumped] if isinstance(dumped, list) else dumped
