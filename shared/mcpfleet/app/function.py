"""Runs an author's function, on the event loop or in a thread, and runs a step of it once."""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import typing
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final

import anyio
import anyio.from_thread
import anyio.to_thread
from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError, from_json, to_json, to_jsonable_python

from mcpfleet.app.errors import AskError, Mistake
from mcpfleet.app.input import NOBODY, Asker
from mcpfleet.app.outcome import ends_a_call
from mcpfleet.app.site import callee
from mcpfleet.app.unawaited import AsyncCall, check_awaited, noting
from mcpfleet.app.values import carrying_bytes


async def when_sure(function: Callable[[], Awaitable[Any]], asker: Asker) -> Any:
    """Run an async function once its effects may begin (K26)."""
    if not asker.is_sure:
        await asker.make_sure()
    return await function()


async def in_thread(
    function: Callable[[], Any], threads: anyio.CapacityLimiter | None, asker: Asker | None = None
) -> Any:
    """Run a plain function. It is never abandoned: its thread, and so its slot, is taken until it returns (P8).

    Args:
        function: takes no arguments.
        threads: bounds the threads; it waits for a free one.
        asker: tells in the thread, after that wait, whether effects may begin.

    Raises:
        NotAwaited: it called an async method of its Context without `await`.
        Exception: the function raised it.
    """
    calls: list[AsyncCall] = []
    try:
        value = await anyio.to_thread.run_sync(functools.partial(_run_plain, function, asker, calls), limiter=threads)
        if inspect.isawaitable(value):  # a plain decorator around an async function returns its coroutine
            value = await value
    except BaseException as error:
        check_awaited(calls, error)
        raise
    check_awaited(calls)
    return value


def _run_plain(function: Callable[[], Any], asker: Asker | None, calls: list[AsyncCall]) -> Any:
    if asker is not None and not asker.is_sure:
        on_loop(asker.make_sure)
    try:
        return noting(function, calls)
    except GeneratorExit as error:
        # A waiting coroutine would be closed by it, and not told.
        raise RuntimeError("the handler raised GeneratorExit") from error


def on_loop(function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    """Run an async function of a plain one's on the event loop, and wait for it; cancelled once the call is."""
    return anyio.from_thread.run(_while_wanted, function, *arguments)


def on_any_loop(function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    """Run an async function of a plain one's on the event loop of this thread's call.

    A test calls a plain function itself, in a thread of no call. Then it runs on an event loop of its own, in another
    thread: the test may have a loop in this one.
    """
    has_begun = False

    async def begin() -> Any:
        nonlocal has_begun
        has_begun = True
        return await _while_wanted(function, *arguments)

    try:
        return anyio.from_thread.run(begin)
    except RuntimeError:  # no thread of a call; anyio has no question for that
        if has_begun:
            raise
    with anyio.from_thread.start_blocking_portal() as portal:
        return portal.call(begin)


async def _while_wanted(function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    # A cancel reaches what runs then: work that a thread begins later would never hear of it, and wait without end.
    if anyio.current_effective_deadline() == -math.inf:
        raise asyncio.CancelledError
    return await function(*arguments)


def is_async(handler: Callable[..., Any]) -> bool:
    """Return whether calling the handler gives an awaitable.

    Raises:
        Mistake: it gives a generator, which is no result.
    """
    function = callee(handler)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise Mistake("is a generator: return the result, and report what precedes it with `ctx.progress`")
    return inspect.iscoroutinefunction(function)


running_step: Final[ContextVar[str | None]] = ContextVar("mcpfleet_step", default=None)
"""The key of the running step, in a task."""


async def run_step(
    asker: Asker,
    name: str,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    threads: anyio.CapacityLimiter | None,
) -> Any:
    """Run a step, or return its result of an earlier run.

    Raises:
        AskError: an argument or the result is not JSON, or the result is one of MCP's own without a declaration.
    """

    def work() -> Awaitable[Any]:
        begun = functools.partial(function, *arguments)
        return when_sure(begun, asker) if is_async(function) else in_thread(begun, threads, asker)

    if asker is NOBODY:
        return await work()
    return await _remembered(asker, name, function, arguments, work)


async def _remembered(
    asker: Asker,
    name: str,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    work: Callable[[], Awaitable[Any]],
) -> Any:
    adapter = _adapter(function)
    fresh: list[Any] = []
    made: Any = None

    async def written() -> Any:
        nonlocal made
        value = await work()
        if adapter is None and ends_a_call(value):  # as JSON its error flag would be data of a success (K29)
            kind = type(value).__name__
            raise AskError(f"the step {name!r} gave a {kind}: say so in its function's return annotation")
        fresh.append(value)
        made = _written(f"the result of the step {name!r}", value, adapter)
        return made

    known = _written(f"an argument of the step {name!r}", arguments, None)
    result = await asker.once(name, to_json(known), written)
    if adapter is None:  # the same in every run, as JSON gives it
        return result
    # Another attempt's result may have been remembered first, and counts.
    return fresh[0] if fresh and result is made else adapter.validate_python(result)


def _written(what: str, value: Any, adapter: TypeAdapter[Any] | None) -> Any:
    try:
        if adapter is not None:
            value = adapter.dump_python(value, mode="json")
        return from_json(to_json(to_jsonable_python(value)), allow_inf_nan=False)
    except (PydanticSerializationError, ValueError) as error:
        raise AskError(f"{what} cannot be written as JSON, so no later run could have it") from error


@functools.lru_cache(256)
def _adapter(function: Callable[..., Any]) -> TypeAdapter[Any] | None:
    """Return the adapter that reads a result back into the function's return type."""
    try:
        annotation = typing.get_type_hints(inspect.unwrap(function)).get("return", Any)
        return None if annotation is Any else carrying_bytes(TypeAdapter(annotation))
    except Exception:  # an annotation may be anything; without a usable one, JSON remains
        return None
