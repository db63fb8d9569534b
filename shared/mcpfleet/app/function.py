"""An author's function, and how it is run: on the event loop where it is async, in a thread where it is plain."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
import anyio.to_thread

from mcpfleet.app.errors import Mistake
from mcpfleet.app.site import Site, callee

if TYPE_CHECKING:  # they run functions by this module
    from mcpfleet.app.asking import Asker
    from mcpfleet.app.context import Context


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


async def when_sure(function: Callable[[], Awaitable[Any]], asker: Asker) -> Any:
    """Run an async function once what it does may begin (K26)."""
    if not asker.is_sure:
        await asker.make_sure()
    return await function()


async def in_thread(
    function: Callable[[], Any], threads: anyio.CapacityLimiter | None, asker: Asker | None = None
) -> Any:
    """Run a plain function. It is never abandoned: its thread, and so its slot, is taken until it returns (P8).

    Args:
        function: without arguments.
        threads: bounds the threads; it waits for a free one.
        asker: says in the thread, after that wait, whether what the function does may begin.
    """
    value = await anyio.to_thread.run_sync(functools.partial(_run_plain, function, asker), limiter=threads)
    # A plain decorator around an async function hands its coroutine on.
    return await value if inspect.isawaitable(value) else value


def _run_plain(function: Callable[[], Any], asker: Asker | None = None) -> Any:
    if asker is not None and not asker.is_sure:
        anyio.from_thread.run(asker.make_sure)
    try:
        return function()
    except GeneratorExit as error:
        # A coroutine that waits would be closed by it, and not told.
        raise RuntimeError("the handler raised GeneratorExit") from error


def is_async(handler: Callable[..., Any]) -> bool:
    """Whether calling the handler gives something to await.

    Raises:
        Mistake: it gives a generator, which is no result.
    """
    function = callee(handler)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise Mistake("is a generator: return the result, and report what precedes it with `ctx.progress`")
    return inspect.iscoroutinefunction(function)
