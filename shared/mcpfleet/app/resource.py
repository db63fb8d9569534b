"""Declared resources, templates, and lists of resources."""

from __future__ import annotations

import base64
import types
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Union, get_args, get_origin

import anyio
from mcp_types import Annotations, BlobResourceContents, ListResourcesResult, ReadResourceResult, TextResourceContents
from mcp_types import Resource as WireResource
from mcp_types import ResourceTemplate as WireTemplate
from pydantic import TypeAdapter
from pydantic_core import to_json

from mcpfleet.app.arguments import Texts
from mcpfleet.app.completion import Completer, Completes, completed
from mcpfleet.app.context import Context
from mcpfleet.app.declaration import Declaration, check_icons
from mcpfleet.app.errors import InvalidArguments, Mistake, NotFound, OutputError, Problem
from mcpfleet.app.handler import Answer, CallNext, CompletionRequest, Function, Handler, HandlerRequest, Invocation
from mcpfleet.app.outcome import mentions, refuse_foreign
from mcpfleet.app.permit import Caller, Permit, PermitFailed, Variables
from mcpfleet.app.schema import MISSING, adapter_for
from mcpfleet.app.signature import Signature
from mcpfleet.app.uri import check_template, check_uri, escapes_folder, warn_of_https
from mcpfleet.contracts.hints import is_uri
from mcpfleet.contracts.manifest import LONGEST_TIMEOUT, Definition
from mcpfleet.wire.reply import written
from mcpfleet.wire.uri_template import UriTemplate

_CONTENTS: Final = (TextResourceContents, BlobResourceContents)
_OPEN: Final = (MISSING, Any, object, None, type(None))


class Contents:
    """Makes the contents of a resource from a handler's result.

    `str` is text and `bytes` a blob. Contents blocks, or a list with these, stay as they are. `None` means that nothing
    exists under the URI. A `ReadResourceResult` is the result itself. Any other value becomes JSON text.

    Args:
        annotation: the return annotation.
        mime_type: the declared media type.

    Raises:
        Mistake: the annotation has no JSON form.
    """

    def __init__(self, annotation: Any, mime_type: str | None) -> None:
        self._adapter: TypeAdapter[Any] | None = None
        annotation, inferred = _bare(annotation), None
        self._is_listed = _speaks_of_contents(annotation)
        if annotation is str:
            inferred = "text/plain"
        elif annotation is bytes:
            inferred = "application/octet-stream"
        elif annotation not in _OPEN and not self._is_listed and not mentions(annotation, ReadResourceResult):
            self._adapter = adapter_for(annotation, "serialization", "return")
            inferred = "application/json"
        self.mime_type = mime_type or inferred
        """Shown in the list, and given to contents without their own."""

    def members(self, value: Any, uri: str) -> list[dict[str, Any]]:
        """Compose `contents`.

        Raises:
            NotFound: the handler found nothing.
            OutputError: the value cannot be written.
        """
        if value is None or (self._is_listed and not value):
            raise NotFound(uri)
        parts = value if isinstance(value, list | tuple) and _is_listed(value) else [value]
        return self.written(parts, uri)

    def written(self, parts: Iterable[Any], uri: str) -> list[dict[str, Any]]:
        """Compose `contents`, one member of each part."""
        return [self._part(part, uri) for part in parts]

    def _part(self, value: Any, uri: str) -> dict[str, Any]:
        if isinstance(value, _CONTENTS):
            _check_blob(value)
            return value.model_dump(mode="json", by_alias=True, exclude_none=True)
        if isinstance(value, str):
            return {"uri": uri, "mimeType": self.mime_type or "text/plain", "text": value}
        if isinstance(value, bytes | bytearray | memoryview):
            kind = self.mime_type or "application/octet-stream"
            return {"uri": uri, "mimeType": kind, "blob": base64.b64encode(value).decode()}
        try:
            if self._adapter is not None:
                value = self._adapter.dump_python(value, mode="json", by_alias=True, warnings=False)
            text = written(value).decode()
        except ValueError as error:  # pydantic's own error is one
            raise OutputError(f"returned a value that cannot be written as JSON: {error}") from error
        return {"uri": uri, "mimeType": self.mime_type or "application/json", "text": text}


class Reads(Handler):
    """The common part of a resource and a template."""

    _contents: Contents

    def permit_by(self, permit: Permit) -> None:
        """Let a function decide who may read it: from now on the definition says so, and has another digest.

        Raises:
            Mistake: it has a permit already.
        """
        if self.permit is not None:
            raise Mistake(f"{self.definition.name!r} has a permit already: {self.permit.site}")
        self.permit, self.guard = permit, self._if_permitted
        members = self.definition.model_dump() | {"permit": True, "per_caller": True}
        self.definition = Definition(**members)  # a new one, since the text and digest of the old one are cached

    def variables(self, uri: str) -> Variables:
        """Return the variables of a URI, for the permit.

        Raises:
            NotFound: the URI is none of this resource.
        """
        return Variables(uri, {})

    async def _if_permitted(
        self, invocation: Invocation, call_next: CallNext, threads: anyio.CapacityLimiter | None
    ) -> Any:
        """Run the rest of a read only if the permit lets the caller read."""
        uri = invocation.uri or self.definition.name
        if invocation.kind != "completion" and await self.permits(invocation.ctx.principal, [uri], threads) != [True]:
            raise NotFound(uri)
        return await call_next(invocation)

    async def permits(
        self, caller: Caller, uris: Sequence[str], threads: anyio.CapacityLimiter | None = None
    ) -> list[bool]:
        """Return for each URI whether a caller may read it, as the permit says; not a URI of another resource.

        Raises:
            PermitFailed: the permit gave no answer.
        """
        asked: dict[int, Variables] = {}
        for place, uri in enumerate(uris):
            with suppress(NotFound):
                asked[place] = self.variables(uri)
        answers = dict(zip(asked, await self._permit_of(caller, [*asked.values()], threads), strict=True))
        return [answers.get(place, False) for place in range(len(uris))]

    async def _permit_of(
        self, caller: Caller, asked: Sequence[Variables], threads: anyio.CapacityLimiter | None
    ) -> list[bool]:
        if self.permit is None:
            raise PermitFailed(f"{self.site} has no permit")
        return await self.permit.ask(caller, asked, threads)

    def _finish(self, value: Any, request: HandlerRequest) -> Answer:
        if request.completing is not None:
            return completed(value)
        uri = request.uri or self.definition.name
        if isinstance(value, ReadResourceResult):
            return Answer({"contents": self._contents.written(value.contents, uri)}, value.meta)
        refuse_foreign(value, ReadResourceResult)
        return Answer({"contents": self._contents.members(value, uri)})


class Resource(Reads):
    """One resource of an App, under one URI."""

    def __init__(
        self,
        handler: Callable[..., Any],
        declaration: Declaration,
        signature: Signature,
        *,
        name: str,
        mime_type: str | None,
        annotations: Annotations | None,
        size: int | None,
        ttl: float,
        unlisted: bool = False,
    ) -> None:
        check_uri(declaration.name)
        warn_of_https(declaration.name)
        if signature.parameters:
            raise Mistake(
                "is not a variable of the URI: write `{…}` into it, or give no parameters but the Context",
                signature.parameters[0].name,
            )
        self._contents = Contents(signature.returns, mime_type)
        wire = WireResource(
            uri=declaration.name,
            name=name,
            mime_type=self._contents.mime_type,
            annotations=annotations,
            size=size,
            **declaration.described(handler),
        )
        super().__init__(declaration.define(wire, ttl=ttl, unlisted=unlisted), Function(handler, signature))

    def _value(
        self, request: HandlerRequest, arguments: dict[str, Any], ctx: Context, threads: anyio.CapacityLimiter | None
    ) -> Awaitable[Any]:
        del arguments
        if request.completing is not None:
            raise InvalidArguments([Problem(request.completing.argument, "has no completions")])
        return self._function.start({}, ctx, threads)


class Template(Reads, Completes):
    """Resources of an App whose URIs match a template."""

    def __init__(
        self,
        handler: Callable[..., Any],
        declaration: Declaration,
        signature: Signature,
        *,
        name: str,
        mime_type: str | None,
        annotations: Annotations | None,
        ttl: float,
    ) -> None:
        self.template: UriTemplate = check_template(declaration.name)
        warn_of_https(declaration.name)
        self._texts = Texts(signature.parameters)
        _check_variables(self.template, self._texts)
        self._contents = Contents(signature.returns, mime_type)
        self._completers: dict[str, Completer] = {}
        wire = WireTemplate(
            uri_template=declaration.name,
            name=name,
            mime_type=self._contents.mime_type,
            annotations=annotations,
            **declaration.described(handler),
        )
        super().__init__(declaration.define(wire, ttl=ttl), Function(handler, signature))

    @property
    def _completable(self) -> tuple[str, ...]:
        """The variables."""
        return self.template.variables

    def _value(
        self, request: HandlerRequest, arguments: dict[str, Any], ctx: Context, threads: anyio.CapacityLimiter | None
    ) -> Awaitable[Any]:
        del arguments
        if request.completing is not None:
            completing = request.completing
            if self.permit is not None:
                return self._complete_permitted(completing, ctx, threads)
            return self._complete(completing, ctx, threads)
        return self._function.start(self._variables(request.uri or ""), ctx, threads)

    async def _complete_permitted(
        self, asked: CompletionRequest, ctx: Context, threads: anyio.CapacityLimiter | None
    ) -> Any:
        """Offer only values whose resource the caller may read, as far as all other variables are settled."""
        offer = await self._complete(asked, ctx, threads)
        completion = offer.members["completion"] if isinstance(offer, Answer) else offer
        settled = {**asked.context, asked.argument: ""}
        if not set(self.template.variables) <= settled.keys():
            return offer  # no URI is known, so the completer itself decides for the caller
        uris = [self.template.expand({**settled, asked.argument: value}) for value in completion["values"]]
        permitted = await self.permits(ctx.principal, uris, threads)
        values = [value for value, may_read in zip(completion["values"], permitted, strict=True) if may_read]
        if len(values) < len(uris):  # a total would tell how much is hidden
            completion.pop("total", None)
        completion["values"] = values
        return offer

    def variables(self, uri: str) -> Variables:
        """Return the variables of a URI; raises `NotFound`."""
        return Variables(uri, self._variables(uri))

    def _variables(self, uri: str) -> dict[str, Any]:
        """Parse the variables of the URI.

        Raises:
            NotFound: it does not match, a variable does not parse (M42), or it leads out of its folder (M43).
        """
        values = self.template.match(uri)
        if values is None or escapes_folder(self.template.scheme, values):
            raise NotFound(uri)
        try:
            return self._texts.read(values)
        except InvalidArguments as error:
            raise NotFound(uri) from error


def _bare(annotation: Any) -> Any:
    """Return an annotation without `None`, which means that there is nothing."""
    if get_origin(annotation) in (Union, types.UnionType):
        left = [each for each in get_args(annotation) if each is not types.NoneType]
        return left[0] if len(left) == 1 else annotation
    return annotation


def _speaks_of_contents(annotation: Any) -> bool:
    return annotation in _CONTENTS or any(map(_speaks_of_contents, get_args(annotation)))


def _check_blob(value: TextResourceContents | BlobResourceContents) -> None:
    """Check that clients can read a blob that the author wrote (M43)."""
    if isinstance(value, BlobResourceContents):
        try:
            base64.b64decode(value.blob, validate=True)
        except ValueError as error:
            raise OutputError("returned a blob that is not Base64: give `bytes`, which become one") from error


def _is_listed(value: list[Any] | tuple[Any, ...]) -> bool:
    return (
        bool(value)
        and all(isinstance(each, (*_CONTENTS, str, bytes)) for each in value)
        and any(isinstance(each, _CONTENTS) for each in value)
    )


def _check_variables(template: UriTemplate, texts: Texts) -> None:
    names = set(texts.names)
    if missing := [name for name in template.variables if name not in names]:
        raise Mistake(f"the template has the variable {missing[0]!r}, and the function no such parameter")
    if unknown := [name for name in texts.required if name not in template.variables]:
        raise Mistake("is not a variable of the template, and has no default", unknown[0])


CURSOR: Final = "cursor"
"""The parameter that takes the place where a list goes on."""
LONGEST_CURSOR: Final = 1_024
"""Bytes of a cursor as JSON; the client gets it sealed."""
MOST_RESOURCES: Final = 1_000
"""Resources of one page."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list, and the place of the next one."""

    resources: list[WireResource]
    next_cursor: str | None = None
    """The lister's own words; None on the last page."""


class Lister(Handler):
    """One list of an App's resources."""

    def __init__(
        self, handler: Callable[..., Any], declaration: Declaration, signature: Signature, *, ttl: float | None = None
    ) -> None:
        if ttl is not None and not 0 <= ttl <= LONGEST_TIMEOUT:
            raise Mistake(f"ttl must be 0 to {LONGEST_TIMEOUT:.0f} seconds, not {ttl}")
        names = [parameter.name for parameter in signature.parameters]
        if names not in ([], [CURSOR]):
            raise Mistake(f"a list takes the Context, and perhaps `{CURSOR}: str | None`: nothing else")
        self._takes_cursor = bool(names)
        super().__init__(declaration.define(None, list_ttl=ttl), Function(handler, signature))

    def _value(
        self, request: HandlerRequest, arguments: dict[str, Any], ctx: Context, threads: anyio.CapacityLimiter | None
    ) -> Awaitable[Any]:
        del arguments
        return self._function.start({CURSOR: request.cursor} if self._takes_cursor else {}, ctx, threads)

    def _finish(self, value: Any, request: HandlerRequest) -> Answer:
        del request
        if isinstance(value, ListResourcesResult):
            value = Page(value.resources, value.next_cursor)
        page = value if isinstance(value, Page) else Page(list(value or ()))
        _check(page)
        if page.next_cursor is not None and not self._takes_cursor:
            raise OutputError(f"returned a next cursor, and takes no `{CURSOR}`")
        listed = [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in page.resources]
        return Answer({"resources": listed} | ({} if page.next_cursor is None else {"nextCursor": page.next_cursor}))


def _check(page: Page) -> None:
    """Check a page by the rules of clients' lists: one bad entry would spoil all of it.

    Raises:
        OutputError: it breaks a rule.
    """
    if len(page.resources) > MOST_RESOURCES or len(to_json(page.next_cursor or "")) > LONGEST_CURSOR + 2:  # its quotes
        raise OutputError(f"a page has up to {MOST_RESOURCES} resources, and a cursor up to {LONGEST_CURSOR} bytes")
    for each in page.resources:
        if not isinstance(each, WireResource):
            raise OutputError(f"listed {type(each).__name__}, and a list is made of `Resource`s")
        if not is_uri(each.uri):
            raise OutputError(f"listed {each.uri!r}, which is not an absolute URI")
        try:
            check_icons(each.icons or ())
        except Mistake as mistake:
            raise OutputError(f"listed {each.uri!r}, whose {mistake.why}") from mistake
