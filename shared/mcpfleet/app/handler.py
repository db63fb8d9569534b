"""The common part of all declarations: a function, its interceptors, and an answer to a request."""

from __future__ import annotations

import copy
import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self

import anyio

from mcpfleet.app.context import Context
from mcpfleet.app.declaration import check_name
from mcpfleet.app.dependency import DependencyPlan, InjectedCall
from mcpfleet.app.errors import ClientLacks, NotFound, OutputError, ProtocolError, ScopeNeeded, ToolError, TryAgain
from mcpfleet.app.function import in_thread, is_async, when_sure
from mcpfleet.app.lifespan import Scope
from mcpfleet.app.outcome import Kept, Outcome
from mcpfleet.app.permit import Permit
from mcpfleet.app.signature import Signature
from mcpfleet.app.site import Site
from mcpfleet.contracts.manifest import Definition, Kind

InvocationKind = Literal[Kind, "completion"]


@dataclass(frozen=True, slots=True)
class Invocation:
    """A request on its way to its handler. `dataclasses.replace` makes one with other arguments."""

    kind: InvocationKind
    name: str
    """The tool's, prompt's or method's name, the resource's URI, the template, or the list's name."""
    arguments: dict[str, Any]
    """As they came, not yet checked by the handler's schema."""
    ctx: Context
    uri: str | None = None
    """The URI to read, for a resource or a template."""


CallNext = Callable[[Invocation], Awaitable[Any]]
"""Calls the next interceptor, or the handler; returns the handler's result."""
Interceptor = Callable[[Invocation, CallNext], Awaitable[Any]]
"""Runs before and after every handler; returns the result of `call_next`, or another result in its place."""


def through(interceptors: Sequence[Interceptor], invocation: Invocation, handler: CallNext) -> Awaitable[Any]:
    """Call the first interceptor, which calls the next, and the last one the handler."""
    inner = handler
    for interceptor in reversed(interceptors):
        inner = _around(interceptor, inner)
    return inner(invocation)


def _around(interceptor: Interceptor, inner: CallNext) -> CallNext:
    return lambda invocation: interceptor(invocation, inner)


Guard = Callable[[Invocation, CallNext, "anyio.CapacityLimiter | None"], Awaitable[Any]]
"""As an interceptor, with the bound of threads for plain functions."""
Sanitizer = Callable[[Any, Context], Any]
"""Takes a handler's result and the call's Context; returns the part that this caller may see. Plain or async."""


class Function:
    """A function of a declaration.

    Args:
        handler: the function, or anything that can be called.
        signature: its parameters; none by default.

    Raises:
        Mistake: it is a generator, which is no result, or its dependencies cannot be filled.
    """

    def __init__(self, handler: Callable[..., Any], signature: Signature | None = None) -> None:
        self.site = Site.of(handler)
        self.handler = handler
        self.scope = Scope()
        """Where it is declared."""
        self.plan = DependencyPlan.of(signature) if signature is not None else None
        """The dependencies that it takes; None without any."""
        self._is_async = is_async(handler)
        self._context = signature.context if signature is not None else None

    def start(self, values: dict[str, Any], ctx: Context, threads: anyio.CapacityLimiter | None) -> Awaitable[Any]:
        """Call it with these arguments, and what is injected; `threads` bounds the threads for plain functions."""
        if self.plan is not None:
            call = InjectedCall(self.plan, self.handler, self.site, self.scope, self._is_async)
            return call.run(values, ctx, threads)
        ctx.begin()
        if self._context is not None:
            values[self._context] = ctx
        if not self._is_async:
            return in_thread(functools.partial(self.handler, **values), threads, ctx.asker)
        if not ctx.asker.is_sure:
            return when_sure(functools.partial(self.handler, **values), ctx.asker)
        started: Awaitable[Any] = self.handler(**values)
        return started


class CompletionRequest(Protocol):
    """The question to a completer."""

    @property
    def argument(self) -> str:
        """The argument of the prompt, or the variable of the template."""

    @property
    def value(self) -> str:
        """The text that the user has typed."""

    @property
    def context(self) -> dict[str, str]:
        """The arguments that are settled already."""


class HandlerRequest(Protocol):
    """A request for a handler, as a call's body has it."""

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of a tool or a prompt, the parameters of a method."""

    @property
    def uri(self) -> str | None:
        """The URI to read."""

    @property
    def cursor(self) -> str | None:
        """The place where a list goes on."""

    @property
    def completing(self) -> CompletionRequest | None:
        """The question to a completer; None for the prompt or the template itself."""

    @property
    def meta(self) -> dict[str, Any] | None:
        """The members of `_meta` for a source, where its declaration is called."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request that a test makes."""

    arguments: dict[str, Any] = field(default_factory=dict)
    uri: str | None = None
    cursor: str | None = None
    completing: CompletionRequest | None = None
    meta: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a request that is not a tool call."""

    members: Mapping[str, Any]
    meta: Mapping[str, Any] | None = None

    @property
    def is_error(self) -> bool:
        """Whether a model should read it as a failure: only a tool's result can be one."""
        return False

    def fields(self) -> dict[str, Any]:
        """Return the members of the result on the wire, without `_meta` and `resultType`."""
        return dict(self.members)


class Handler(ABC):
    """One declaration of an App.

    Attributes:
        definition: the announced definition, named by its digest.
        questions: the questions that the function may ask of the client.
        site: the function behind it.
        inner_interceptors: of the included Routers that it comes from, the outermost first.
    """

    def __init__(self, definition: Definition, function: Function, *, sanitize: Sanitizer | None = None) -> None:
        self.definition = definition
        self.questions = (*definition.asks, *definition.may_ask)
        self._function = function
        self._sanitize = sanitize
        self.inner_interceptors: tuple[Callable[[], Sequence[Interceptor]], ...] = ()
        self.permit: Permit | None = None
        """Decides who may read it."""
        self.guard: Guard | None = None
        """Runs around everything else, and asks the permit."""

    @property
    def site(self) -> Site:
        """The function behind it."""
        return self._function.site

    def included(self, prefix: str, interceptors: Callable[[], Sequence[Interceptor]]) -> Self:
        """Return the same declaration as it appears where its Router is included.

        Args:
            prefix: the beginning of its name there.
            interceptors: returns what runs around it alone, within those of the place.

        Raises:
            Mistake: the name is too long with the prefix.
        """
        shown = copy.copy(self)
        if prefix:
            name = prefix + self.definition.name
            if self.definition.kind in ("tool", "prompt"):
                check_name(self.definition.kind, name)
            wire = self.definition.wire and {**self.definition.wire, "name": name}
            shown.definition = Definition(**(self.definition.model_dump() | {"name": name, "wire": wire}))
        shown.inner_interceptors = (interceptors, *self.inner_interceptors)
        return shown

    @property
    def function(self) -> Callable[..., Any]:
        """The author's function, as it was declared."""
        return self._function.handler

    @property
    def scope(self) -> Scope:
        """The App or Router that declares it."""
        return self._function.scope

    @scope.setter
    def scope(self, scope: Scope) -> None:
        self._function.scope = scope

    @property
    def plan(self) -> DependencyPlan | None:
        """The dependencies of its function; None without any."""
        return self._function.plan

    async def answer(
        self,
        request: HandlerRequest,
        ctx: Context,
        *,
        threads: anyio.CapacityLimiter | None = None,
        interceptors: Sequence[Interceptor] = (),
    ) -> Answer | Outcome | Kept:
        """Run the handler once, and end its Context.

        Args:
            request: the request.
            ctx: the call as the handler sees it.
            threads: bounds the threads for plain functions; a call waits for a free one.
            interceptors: run around the handler, the first one outermost.

        Raises:
            InvalidArguments: the arguments break the declaration; the handler has not run.
            OutputError: the handler's result breaks its declaration.
            NotFound: nothing exists under the URI, or its permit refuses the caller.
            PermitFailed: its permit gave no answer.
            ClientLacks: the handler asked a question that the client cannot answer.
            ScopeNeeded: the handler needs a scope that the caller lacks.
            ProtocolError, ToolError: the handler raised it; a tool makes a result of the second.
            Exception: any other error of the handler.
        """
        if self.inner_interceptors or self.guard is not None:
            interceptors = self._around(interceptors, threads)
        try:
            if interceptors:
                inner = self._inner(request, ctx, threads)
                value = await through(interceptors, self._invocation(request, ctx), inner)
            else:
                value = await self._value(request, request.arguments, ctx, threads)
            if self._sanitize is not None and not ctx.is_task:
                value = await self._sanitized(value, ctx)
        except ToolError as error:
            if isinstance(error, TryAgain) and ctx.is_task:
                raise
            return self._failed(error)
        except ExceptionGroup as group:
            meant = deliberate_error(group)
            if isinstance(meant, ToolError) and not (isinstance(meant, TryAgain) and ctx.is_task):
                return self._failed(meant)
            if meant is None:
                raise
            raise meant from group
        finally:
            ctx.end()
        if self._sanitize is not None and ctx.is_task:  # each reader of the task has it cleared for itself (K13)
            return self._keep(value)
        return self._finish(value, request)

    def _around(
        self, interceptors: Sequence[Interceptor], threads: anyio.CapacityLimiter | None
    ) -> Sequence[Interceptor]:
        """Return all that runs around the function, the outermost first."""
        inner = [each for inner in self.inner_interceptors for each in inner()]
        guard = self.guard
        if guard is None:
            return (*interceptors, *inner)
        return (lambda invocation, call_next: guard(invocation, call_next, threads), *interceptors, *inner)

    async def sanitize_kept(self, kept: str, ctx: Context) -> Answer | Outcome:
        """Return the answer for a task's kept result, as the caller of the Context may see it (K13).

        Raises:
            OutputError: it cannot be read back, or breaks the declaration once it is cleared.
            Exception: any other error of the sanitizer.
        """
        try:
            value = await self._sanitized(self._read_back(kept), ctx)
        except ToolError as error:
            return self._failed(error)
        finally:
            ctx.end()
        return self._finish(value, Request())

    async def _sanitized(self, value: Any, ctx: Context) -> Any:
        """Let the sanitizer remove the parts that its reader may not see."""
        if self._sanitize is None:
            raise OutputError("a task's result was kept for a sanitizer, and there is none")
        cleared = self._sanitize(value, ctx)
        return await cleared if inspect.isawaitable(cleared) else cleared

    def _keep(self, value: Any) -> Kept:
        """Return the form that a task keeps for its sanitizer; only tools have tasks."""
        raise NotImplementedError

    def _read_back(self, kept: str) -> Any:
        """Return the handler's result from that form."""
        raise NotImplementedError

    @abstractmethod
    def _value(
        self, request: HandlerRequest, arguments: dict[str, Any], ctx: Context, threads: anyio.CapacityLimiter | None
    ) -> Awaitable[Any]:
        """Check the request, and start the function; `_finish` takes its result."""

    @abstractmethod
    def _finish(self, value: Any, request: HandlerRequest) -> Answer | Outcome:
        """Return the answer for the function's result.

        Raises:
            OutputError: the result breaks the declaration.
        """

    def _failed(self, error: ToolError) -> Answer | Outcome:
        """Return the answer for an error that a handler raises on purpose; a kind without such an answer raises it."""
        raise error

    def _invocation(self, request: HandlerRequest, ctx: Context) -> Invocation:
        kind = "completion" if request.completing is not None else self.definition.kind
        return Invocation(kind, self.definition.name, request.arguments, ctx, request.uri)

    def _inner(
        self, request: HandlerRequest, ctx: Context, threads: anyio.CapacityLimiter | None
    ) -> Callable[[Invocation], Awaitable[Any]]:
        def begin(invocation: Invocation) -> Awaitable[Any]:
            invocation.ctx.begin_for(ctx)  # an interceptor may give its handler another Context
            return self._value(request, invocation.arguments, invocation.ctx, threads)

        return begin


def deliberate_error(
    group: ExceptionGroup[Exception],
) -> ToolError | ProtocolError | NotFound | ClientLacks | ScopeNeeded | None:
    """Return the error that a handler raised on purpose within a task group; None if the group holds more."""
    error: Exception = group
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error if isinstance(error, ToolError | ProtocolError | NotFound | ClientLacks | ScopeNeeded) else None
