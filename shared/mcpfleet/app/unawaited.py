"""Finds async methods of a Context that a plain function calls and does not await: its calls would do nothing."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from mcpfleet.app.errors import NotAwaited

Method = TypeVar("Method", bound=Callable[..., Coroutine[Any, Any, Any]])


@dataclass(frozen=True, slots=True)
class AsyncCall:
    """A call of an async method in a plain function's thread."""

    name: str
    coroutine: Coroutine[Any, Any, Any]
    where: str


class _Thread(threading.local):
    calls: list[AsyncCall] | None = None


_thread: Final = _Thread()
"""The calls in this thread, while it runs a plain function of an author."""


def noted(method: Method) -> Method:
    """Note that an async method of the Context was called; and where a plain function calls it, note the call."""

    @functools.wraps(method)
    def call(*arguments: Any, **named: Any) -> Coroutine[Any, Any, Any]:
        arguments[0].is_used = True
        coroutine = method(*arguments, **named)
        if _thread.calls is not None:
            frame = inspect.currentframe()
            caller = frame.f_back if frame is not None else None
            where = f"{caller.f_code.co_qualname} ({caller.f_code.co_filename}:{caller.f_lineno})" if caller else ""
            _thread.calls.append(AsyncCall(method.__name__, coroutine, where))
        return coroutine

    return cast("Method", call)


def noting(function: Callable[[], Any], calls: list[AsyncCall]) -> Any:
    """Run a plain function in this thread, and note its calls of async methods."""
    _thread.calls = calls
    try:
        return function()
    finally:
        _thread.calls = None


def check_awaited(calls: list[AsyncCall], error: BaseException | None = None) -> None:
    """Check that the noted calls were awaited, once the function has ended.

    Args:
        calls: those that it made.
        error: the error with which it ended; it may follow from the missing value.

    Raises:
        NotAwaited: one was not awaited.
    """
    left = [each for each in calls if inspect.getcoroutinestate(each.coroutine) == inspect.CORO_CREATED]
    for each in left:
        each.coroutine.close()
    if left and (error is None or isinstance(error, Exception)):
        raise NotAwaited(
            f"{left[0].where}: `ctx.{left[0].name}` is async, and a plain function does not await it: call "
            f"`ctx.sync.{left[0].name}`"
        ) from error
