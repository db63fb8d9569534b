"""A declared tool: what clients see of it, and how it is called."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
from mcp_types import Tool as WireTool

from mcpfleet.app.arguments import Arguments
from mcpfleet.app.context import Context
from mcpfleet.app.declaration import Declaration
from mcpfleet.app.errors import Mistake, ProtocolError, ToolError
from mcpfleet.app.outcome import Outcome
from mcpfleet.app.result import Returns
from mcpfleet.app.site import Site, callee, innermost
from mcpfleet.contracts.manifest import Definition


class Tool:
    """One tool of an App.

    Attributes:
        definition: what is announced, named by its digest.
        site: the function behind it.
    """

    def __init__(
        self,
        handler: Callable[..., Any],
        declaration: Declaration,
        arguments: Arguments,
        returns: Returns,
        context: str | None,
    ) -> None:
        self.site = Site.of(handler)
        self.definition = define(handler, declaration, arguments, returns)
        self._handler = handler
        self._is_async = is_async(handler)
        self._arguments = arguments
        self._returns = returns
        self._context = context

    async def call(self, arguments: dict[str, Any], ctx: Context, *, threads: anyio.CapacityLimiter) -> Outcome:
        """Run the handler once. Afterwards the Context is over, and reports no progress any more.

        Args:
            arguments: as they came, parsed from JSON.
            ctx: what the handler sees of the call.
            threads: bounds the threads that plain functions run in; a call waits for a free one.

        Returns:
            What the handler returned, or the text of the ToolError that it raised.

        Raises:
            InvalidArguments: the arguments break the input schema; the handler has not run.
            OutputError: the handler returned what its declaration does not allow.
            ProtocolError: the handler raised it.
            Exception: whatever else the handler raised.
        """
        try:
            values = self._arguments.read(arguments)
            if self._context is not None:
                values[self._context] = ctx
            value = await (self._handler(**values) if self._is_async else self._in_thread(values, threads))
        except ToolError as error:
            return Outcome.failed(str(error))
        except ExceptionGroup as group:
            meant = said_on_purpose(group)
            if isinstance(meant, ToolError):
                return Outcome.failed(str(meant))
            if meant is None:
                raise
            raise meant from group
        finally:
            ctx.end()
        return self._returns.outcome(value)

    async def _in_thread(self, values: dict[str, Any], threads: anyio.CapacityLimiter) -> Any:
        """Run a plain function. It is never abandoned: its thread, and so its slot, is taken until it returns (P8)."""
        value = await anyio.to_thread.run_sync(functools.partial(self._run_plain, values), limiter=threads)
        # A plain decorator around an async function hands its coroutine on.
        return await value if inspect.isawaitable(value) else value

    def _run_plain(self, values: dict[str, Any]) -> Any:
        try:
            return self._handler(**values)
        except GeneratorExit as error:
            # A coroutine that waits would be closed by it, and not told.
            raise RuntimeError("the handler raised GeneratorExit") from error


def define(handler: Callable[..., Any], declaration: Declaration, arguments: Arguments, returns: Returns) -> Definition:
    """Compose what is announced, in the form in which 2026-07-28 lists it."""
    wire = WireTool(
        name=declaration.name,
        title=declaration.title,
        description=declaration.description or inspect.cleandoc(innermost(handler).__doc__ or "") or None,
        input_schema=arguments.schema,
        output_schema=returns.schema,
        annotations=declaration.annotations,
        icons=list(declaration.icons) or None,
        meta=dict(declaration.meta) if declaration.meta else None,
    )
    return Definition(
        kind="tool",
        name=declaration.name,
        # What is None in the declaration goes; null inside a schema stays, since it means something there.
        wire=wire.model_dump(mode="json", by_alias=True, exclude_none=True),
        timeout=declaration.timeout,
        on_disconnect=declaration.on_disconnect,
        asks=tuple(sorted(declaration.asks)),
        scopes=tuple(dict.fromkeys(declaration.scopes)),
    )


def is_async(handler: Callable[..., Any]) -> bool:
    """Whether calling the handler gives something to await.

    Raises:
        Mistake: it gives a generator, which is no result.
    """
    function = callee(handler)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise Mistake("is a generator: return the result, and report what precedes it with `ctx.progress`")
    return inspect.iscoroutinefunction(function)


def said_on_purpose(group: ExceptionGroup[Exception]) -> ToolError | ProtocolError | None:
    """Find what a handler meant to say when it raised it within a task group; None where there is more in the group."""
    error: Exception = group
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error if isinstance(error, ToolError | ProtocolError) else None
