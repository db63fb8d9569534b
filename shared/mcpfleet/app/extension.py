"""An application's own extension of MCP: its methods, its notifications and what clients read of it (X41 to X47)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Final, TypedDict, TypeVar, Unpack

import anyio
from mcp_types import Result

from mcpfleet.app.arguments import TypedArguments
from mcpfleet.app.context import Context
from mcpfleet.app.declaration import Declaration, NoOptions, OnDisconnect, check_keywords, check_revisions
from mcpfleet.app.declared import Declarations
from mcpfleet.app.dependency import DependencyPlan
from mcpfleet.app.errors import DeclarationError, Mistake, OutputError
from mcpfleet.app.extension_names import check_identifier, check_method, check_settings
from mcpfleet.app.handler import Answer, Function, Handler, HandlerRequest
from mcpfleet.app.inspection import with_visible_questions
from mcpfleet.app.notification import Notification
from mcpfleet.app.outcome import Outcome
from mcpfleet.app.result import BLOCKS, ReturnKind, Returns
from mcpfleet.app.signature import Signature, read_signature
from mcpfleet.app.site import Site
from mcpfleet.app.tool import rate_limit
from mcpfleet.contracts.manifest import LONGEST_TIMEOUT, Definition
from mcpfleet.wire.protocol import MODERN

_EDGES_OWN: Final = frozenset({"_meta", "cacheScope", "resultType", "ttlMs"})
"""Members of a result that the framework writes."""
_NOTHING: Final = (None, type(None))

DeclaredAs = TypeVar("DeclaredAs", bound=Callable[..., Any])


class MethodOptions(TypedDict, total=False):
    """The options of a method besides its names."""

    timeout: float
    """Seconds that a call may take, whatever progress it reports; at most a day."""
    on_disconnect: OnDisconnect
    """The effect of a client's leaving: "cancel" stops the work, "continue" lets it go on (D12)."""
    scopes: Collection[str]
    """The scopes that a caller's token needs: without them it is refused (D10)."""
    only_for: Collection[str]
    """The callers it exists for, as for a tool; for all others it is unknown (D10)."""
    per_caller: bool
    """Its results depend on the caller, so no shared cache keeps them (M46)."""


_OPTIONS: Final = frozenset(MethodOptions.__annotations__)


class MethodHandler(Handler):
    """One method of an extension."""

    def __init__(
        self,
        handler: Callable[..., Any],
        declaration: Declaration,
        signature: Signature,
        *,
        extension: str,
        mirrors: str | None,
        needs_client: bool,
        rate: tuple[int, float] | None,
        ttl: float,
    ) -> None:
        check_method(declaration.name)
        if not 0 <= ttl <= LONGEST_TIMEOUT:
            raise Mistake(f"ttl must be 0 to {LONGEST_TIMEOUT:.0f} seconds, not {ttl}")
        _refuse_questions(handler, signature)
        self._arguments = TypedArguments(signature.parameters)
        self._returns = _object_returns(signature.returns)
        if mirrors is not None:
            _check_mirrored(mirrors, self._arguments.schema)
        described = {"params": self._arguments.schema, "result": self._returns and self._returns.schema}
        definition = declaration.define(
            None,
            extension=extension,
            mirrors=mirrors,
            needs_client=needs_client,
            rate=None if rate is None else rate_limit(rate),
            ttl=ttl,
        ).model_copy(update={"wire": {name: schema for name, schema in described.items() if schema is not None}})
        super().__init__(definition, Function(handler, signature))

    def _value(
        self, request: HandlerRequest, arguments: dict[str, Any], ctx: Context, threads: anyio.CapacityLimiter | None
    ) -> Awaitable[Any]:
        del request
        return self._function.start(self._arguments.read(arguments), ctx, threads)

    def _finish(self, value: Any, request: HandlerRequest) -> Answer:
        del request
        if value is None:
            return Answer({})
        if self._returns is None or isinstance(value, (*BLOCKS, Outcome, Result)):
            raise OutputError(f"returned {type(value).__name__}: a method's result is an object of your own")
        data = self._returns.data(value)
        if not isinstance(data, dict):
            raise OutputError(f"returned {type(value).__name__}, which is no object as JSON: a method's result is one")
        if taken := sorted(_EDGES_OWN & data.keys()):
            raise OutputError(f"returned the member {taken[0]!r}, which mcpfleet writes itself")
        return Answer(data)


class Extension:
    """An extension of MCP that an application declares itself, and adds by `app.add(…)`.

    Args:
        identifier: a domain backwards, a slash and a name, such as `com.example/stock`.
        settings: what clients read of it among the server's capabilities, equal for all; up to 4 KiB as JSON.
        needs_client: clients that do not declare it are refused with -32021, which names it.
        revisions: the revisions of MCP in whose requests it exists; those of 2025 hear of it by `initialize`.

    Raises:
        DeclarationError: one of these breaks a rule.
    """

    def __init__(
        self,
        identifier: str,
        *,
        settings: Mapping[str, Any] | None = None,
        needs_client: bool = False,
        revisions: Collection[str] = (MODERN,),
        **unknown: Unpack[NoOptions],
    ) -> None:
        self.site = Site.of_caller()
        check_keywords("Extension", unknown, ("identifier", "settings", "needs_client", "revisions"), self.site)
        try:
            check_identifier(identifier)
            wire = check_settings(f"the settings of {identifier}", {} if settings is None else settings)
            self._revisions = _checked_revisions(revisions)
        except Mistake as mistake:
            raise DeclarationError(mistake.why, self.site) from mistake.__cause__
        self.identifier = identifier
        self.needs_client = needs_client
        self.definition = Definition(
            kind="extension", name=identifier, wire=wire, revisions=self._revisions, needs_client=needs_client
        )
        self.declared = Declarations()
        """Its methods; for the package's own use."""
        self.declared.extension = self
        self.notifications: list[Notification] = []

    def method(
        self,
        method: str,
        *,
        name: str | None = None,
        rate: tuple[int, float] | None = None,
        ttl: float = 0.0,
        **options: Unpack[MethodOptions],
    ) -> Callable[[DeclaredAs], DeclaredAs]:
        """Declare a function as a method; used as `@stock.method("stock/reserve", name="sku")`.

        Its parameters are those of the request, checked by their types (-32602). It returns an object: a model, a
        dataclass, a TypedDict, a dict, or None for an empty one. A `ProtocolError` is the client's error; any other
        exception is -32603 with a reference. Progress, cancel, deadline and interceptors are as for tools. It asks the
        client nothing, and becomes no task.

        Args:
            method: two parts or more with slashes between them; the first is none of MCP's own.
            name: the parameter that the header `Mcp-Name` must repeat, for proxies; a text without default.
            rate: `(calls, seconds)`: how often a caller, or its tenant, may call it.
            ttl: seconds for which a client may keep a result; 0 tells nothing of it.
            options: see `MethodOptions`.

        Raises:
            DeclarationError: a rule is broken, or the name is taken.
        """

        def declare(handler: DeclaredAs) -> DeclaredAs:
            site = Site.of(handler)
            check_keywords("@ext.method()", options, {"method", "name", "rate", "ttl", *_OPTIONS}, site)
            try:
                made = MethodHandler(
                    handler,
                    Declaration(kind="method", name=method, revisions=self._revisions, **options),
                    read_signature(handler),
                    extension=self.identifier,
                    mirrors=name,
                    needs_client=self.needs_client,
                    rate=rate,
                    ttl=ttl,
                )
                self.declared.add(handler, made)
            except Mistake as mistake:
                raise DeclarationError(mistake.why, site, mistake.parameter) from mistake.__cause__
            return handler

        return declare

    def notification(
        self,
        name: str,
        *,
        filter: str,  # noqa: A002  # the word of MCP's listen streams
        scopes: Collection[str] = (),
        only_for: Collection[str] = (),
    ) -> Notification:
        """Declare a notification about keys; `await ctx.tell(changed, "lamp")` sends it.

        A client names up to 256 keys in its listen stream's filter, and hears of those alone: `params.key` is the key,
        and nothing else, since a hint is no state.

        Args:
            name: begins with `notifications/`, and goes on with none of MCP's own names.
            filter: the field of the filter with an array of keys.
            scopes: the scopes that a caller's token needs to listen: without them the stream is refused.
            only_for: the callers it exists for, as for a tool.

        Raises:
            DeclarationError: a rule is broken, or a name is taken.
        """
        site = Site.of_caller()
        try:
            made = Notification(
                self.identifier, name, filter, scopes=scopes, only_for=only_for, revisions=self._revisions,
                is_added=lambda: bool(self.declared.includers), changed=self.declared.changed,
            )  # fmt: skip
            for place in self.declared.outer():
                _refuse_taken(made, extensions_of(place))
        except Mistake as mistake:
            raise DeclarationError(mistake.why, site) from mistake.__cause__
        self.notifications.append(made)
        self.declared.changed()
        return made

    @property
    def definitions(self) -> list[Definition]:
        """The definitions that are announced of it besides its methods."""
        return [self.definition, *(each.definition for each in self.notifications)]

    def __str__(self) -> str:
        return f"{self.identifier} ({self.site.file}:{self.site.line})"


def add(declared: Declarations, extension: Extension, site: Site) -> None:
    """Let an extension appear among declarations, and wherever these appear.

    Raises:
        Mistake: it is added already, or a name of it is taken.
    """
    for place in declared.outer():
        for known in extensions_of(place):
            if known is extension:
                raise Mistake(f"the extension {extension} is added already: add it once")
            if known.identifier == extension.identifier:
                raise Mistake(
                    f"the extension {extension} is declared twice, first as {known}: one identifier, one object"
                )
            for told in extension.notifications:
                _refuse_taken(told, [known])
    declared.include(extension.declared, "", site)


def extensions_of(declared: Declarations) -> list[Extension]:
    """Return the extensions that appear among declarations."""
    return [part.extension for part in declared.parts() if isinstance(part.extension, Extension)]


def _refuse_taken(told: Notification, extensions: Iterable[Extension]) -> None:
    """Refuse a notification whose name or filter another one has (X42)."""
    for extension in extensions:
        for other in extension.notifications:
            if told.name == other.name:
                raise Mistake(f"the notification {told.name!r} is taken by the extension {extension}")
            if told.filter == other.filter:
                raise Mistake(f"the filter {told.filter!r} is taken by {other.name} of the extension {extension}")


def _checked_revisions(revisions: Collection[str]) -> tuple[str, ...]:
    if isinstance(revisions, str) or not revisions:
        raise Mistake(f"revisions is a collection of at least one revision, such as {MODERN!r}, not {revisions!r}")
    check_revisions(revisions)
    return tuple(sorted(set(revisions)))


def _refuse_questions(handler: Callable[..., Any], signature: Signature) -> None:
    plan = DependencyPlan.of(signature)
    dependencies = plan.functions() if plan is not None else ()
    if with_visible_questions({}, [(handler, signature.context), *dependencies]):
        raise Mistake("a method asks the client nothing: a tool can, and clients answer it in its next round (X44)")


def _object_returns(annotation: Any) -> Returns | None:
    """Return how a result becomes an object; None where it is always empty.

    Raises:
        Mistake: the annotation says something else than an object.
    """
    if annotation in _NOTHING:
        return None
    returns = Returns(annotation, None)
    if returns.kind is ReturnKind.CONTENT:
        raise Mistake("a method's result is an object, such as a dict, a TypedDict or a model: no text", "return")
    schema = returns.schema or {}
    if schema.get("type", "object") != "object":
        raise Mistake(f"a method's result is an object, and this is of type {schema['type']!r} as JSON", "return")
    if taken := sorted(_EDGES_OWN & schema.get("properties", {}).keys()):
        raise Mistake(
            f"the result has the member {taken[0]!r}, which mcpfleet writes itself: name it otherwise", "return"
        )
    return returns


def _check_mirrored(name: str, schema: Mapping[str, Any]) -> None:
    stated = schema.get("properties", {}).get(name)
    if stated is None:
        raise Mistake(f"name={name!r} is no parameter of the function: name the one that `Mcp-Name` repeats")
    if stated.get("type") != "string" or name not in schema.get("required", ()):
        raise Mistake("`Mcp-Name` repeats a text that every request has: annotate it with `str`, without default", name)
