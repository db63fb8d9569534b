"""The common part of everything that is declared: a function, its interceptors, and an answer to a request."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import anyio

from mcpfleet.app.context import Context
from mcpfleet.app.errors import ClientLacks, NotFound, OutputError, ProtocolError, ToolError, TryAgain
from mcpfleet.app.function import in_thread, is_async, when_sure
from mcpfleet.app.outcome import Kept, Outcome
from mcpfleet.app.site import Site
from mcpfleet.contracts.manifest import Definition

InvocationKind = Literal["tool", "resource", "template", "prompt", "lister", "completion"]


@dataclass(frozen=True, slots=True)
class Invocation:
    """A request on its way to its handler. `dataclasses.replace` makes one with other arguments."""

    kind: InvocationKind
    name: str
    """The tool's or prompt's name, the resource's URI, the template, or the list's name."""
    arguments: dict[str, Any]
    """As they came: the handler's schema has not been looked at yet."""
    ctx: Context
    uri: str | None = None
    """What is read, of a resource or a template."""


CallNext = Callable[[Invocation], Awaitable[Any]]
"""Goes on to the next interceptor, or to the handler; answers with what the handler returned."""
Interceptor = Callable[[Invocation, CallNext], Awaitable[Any]]
"""Stands before and after every handler: returns what `call_next` returned, or something in its place."""


def through(interceptors: Sequence[Interceptor], invocation: Invocation, handler: CallNext) -> Awaitable[Any]:
    """Call the first interceptor, which calls the next, and the last one the handler."""
    inner = handler
    for interceptor in reversed(interceptors):
        inner = _around(interceptor, inner)
    return inner(invocation)


def _around(interceptor: Interceptor, inner: CallNext) -> CallNext:
    return lambda invocation: interceptor(invocation, inner)


Sanitizer = Callable[[Any, Context], Any]
"""Takes what a handler returned and the call's Context, gives what this caller may see; plain or async."""


class Function:
    """A function that an author has declared.

    Args:
        handler: the function, or anything that can be called.
        context: its parameter that takes the Context.

    Raises:
        Mistake: it is a generator, which is no result.
    """

    def __init__(self, handler: Callable[..., Any], context: str | None = None) -> None:
        self.site = Site.of(handler)
        self._handler = handler
        self._is_async = is_async(handler)
        self._context = context

    def start(self, values: dict[str, Any], ctx: Context, threads: anyio.CapacityLimiter | None) -> Awaitable[Any]:
        """Call it with these arguments; `threads` bounds the threads that plain functions run in."""
        if self._context is not None:
            values[self._context] = ctx
        if not self._is_async:
            return in_thread(functools.partial(self._handler, **values), threads, ctx.asker)
        if not ctx.asker.is_sure:
            return when_sure(functools.partial(self._handler, **values), ctx.asker)
        started: Awaitable[Any] = self._handler(**values)
        return started


class Completion(Protocol):
    """What a completer is asked."""

    @property
    def argument(self) -> str:
        """Of the prompt, or the template's variable."""

    @property
    def value(self) -> str:
        """What the user has typed of it."""

    @property
    def context(self) -> dict[str, str]:
        """The arguments that are settled already."""


class HandlerRequest(Protocol):
    """What a handler is asked, as a call's body says it."""

    @property
    def arguments(self) -> dict[str, Any]:
        """Of a tool or a prompt."""

    @property
    def uri(self) -> str | None:
        """That is read."""

    @property
    def cursor(self) -> str | None:
        """Where a list goes on."""

    @property
    def completing(self) -> Completion | None:
        """Where a completer is asked, and not the prompt or the template itself."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request as a test makes one."""

    arguments: dict[str, Any] = field(default_factory=dict)
    uri: str | None = None
    cursor: str | None = None
    completing: Completion | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a request that was no tool call."""

    members: Mapping[str, Any]
    meta: Mapping[str, Any] | None = None

    @property
    def is_error(self) -> bool:
        """Whether a model should read it as a failure: only a tool's result says so."""
        return False

    def fields(self) -> dict[str, Any]:
        """The members of the result on the wire, without `_meta` and `resultType`."""
        return dict(self.members)


class Handler(ABC):
    """One declared thing of an App.

    Attributes:
        definition: what is announced, named by its digest.
        questions: what the function may ask of the client.
        site: the function behind it.
    """

    def __init__(self, definition: Definition, function: Function, *, sanitize: Sanitizer | None = None) -> None:
        self.definition = definition
        self.questions = (*definition.asks, *definition.may_ask)
        self._function = function
        self._sanitize = sanitize

    @property
    def site(self) -> Site:
        """The function behind it."""
        return self._function.site

    async def answer(
        self,
        request: HandlerRequest,
        ctx: Context,
        *,
        threads: anyio.CapacityLimiter | None = None,
        interceptors: Sequence[Interceptor] = (),
    ) -> Answer | Outcome | Kept:
        """Run the handler once. Afterwards the Context is over, and reports no progress any more.

        Args:
            request: what is asked.
            ctx: what the handler sees of the call.
            threads: bounds the threads that plain functions run in; a call waits for a free one.
            interceptors: stand around the handler, the first one outermost.

        Raises:
            InvalidArguments: the arguments are not what the declaration says; the handler has not run.
            OutputError: the handler returned what its declaration does not allow.
            NotFound: there is nothing under the URI.
            ClientLacks: the handler asked what the client cannot answer.
            ProtocolError, ToolError: the handler raised it; a tool makes a result of the second.
            Exception: whatever else the handler raised.
        """
        try:
            if interceptors:
                value = await through(interceptors, self._invocation(request, ctx), self._inner(request, threads))
            else:
                value = await self._value(request, request.arguments, ctx, threads)
            if self._sanitize is not None and not ctx.is_task:
                value = await self._cleared(value, ctx)
        except ToolError as error:
            if isinstance(error, TryAgain) and ctx.is_task:
                raise
            return self._failed(error)
        except ExceptionGroup as group:
            meant = said_on_purpose(group)
            if isinstance(meant, ToolError) and not (isinstance(meant, TryAgain) and ctx.is_task):
                return self._failed(meant)
            if meant is None:
                raise
            raise meant from group
        finally:
            ctx.end()
        if self._sanitize is not None and ctx.is_task:  # whoever reads the task has it cleared for themselves (K13)
            return self._keep(value)
        return self._finish(value, request)

    async def show(self, kept: str, ctx: Context) -> Answer | Outcome:
        """Answer with what a task has kept, as the caller of the Context may see it (K13).

        Raises:
            OutputError: it cannot be read back, or is not what the declaration allows once it is cleared.
            Exception: whatever else the sanitizer raised.
        """
        try:
            value = await self._cleared(self._read_back(kept), ctx)
        except ToolError as error:
            return self._failed(error)
        finally:
            ctx.end()
        return self._finish(value, Request())

    async def _cleared(self, value: Any, ctx: Context) -> Any:
        """Have the sanitizer take out what its reader may not see."""
        if self._sanitize is None:
            raise OutputError("a task's result was kept for a sanitizer, and there is none")
        cleared = self._sanitize(value, ctx)
        return await cleared if inspect.isawaitable(cleared) else cleared

    def _keep(self, value: Any) -> Kept:
        """Make what a task keeps for its sanitizer; only tools have tasks."""
        raise NotImplementedError

    def _read_back(self, kept: str) -> Any:
        """Make of that what the handler returned."""
        raise NotImplementedError

    @abstractmethod
    def _value(
        self, request: HandlerRequest, arguments: dict[str, Any], ctx: Context, threads: anyio.CapacityLimiter | None
    ) -> Awaitable[Any]:
        """Check the request, and start the function: what it returns is for `_finish`."""

    @abstractmethod
    def _finish(self, value: Any, request: HandlerRequest) -> Answer | Outcome:
        """Make the answer of what the function returned.

        Raises:
            OutputError: it is not what the declaration allows.
        """

    def _failed(self, error: ToolError) -> Answer | Outcome:
        """Answer with what a handler says on purpose; where the kind has no such answer, it stays an error."""
        raise error

    def _invocation(self, request: HandlerRequest, ctx: Context) -> Invocation:
        kind = "completion" if request.completing is not None else self.definition.kind
        return Invocation(kind, self.definition.name, request.arguments, ctx, request.uri)

    def _inner(
        self, request: HandlerRequest, threads: anyio.CapacityLimiter | None
    ) -> Callable[[Invocation], Awaitable[Any]]:
        return lambda invocation: self._value(request, invocation.arguments, invocation.ctx, threads)


def said_on_purpose(group: ExceptionGroup[Exception]) -> ToolError | ProtocolError | NotFound | ClientLacks | None:
    """Find what a handler meant to say when it raised it within a task group; None where there is more in the group."""
    error: Exception = group
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error if isinstance(error, ToolError | ProtocolError | NotFound | ClientLacks) else None
