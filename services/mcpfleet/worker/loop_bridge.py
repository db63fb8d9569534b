"""The ways between the two event loops of a worker, which run on two threads."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, TypeAlias, TypeVar

from mcpfleet.process.task_owner import TaskOwner

Value = TypeVar("Value")
Result = TypeVar("Result")


class LoopBridge(Generic[Value]):
    """Carries values into a loop, in order, with one wake-up for a burst; `act` takes each value there."""

    def __init__(self, loop: asyncio.AbstractEventLoop, act: Callable[[Value], None]) -> None:
        self._loop = loop
        self._act = act
        self._values: deque[Value] = deque()
        self._armed = False
        self._is_closed = False

    def put(self, value: Value) -> None:
        """Hand a value over, on any thread. A closed loop drops it, since nobody is left to take it."""
        if self._is_closed:
            return
        self._values.append(value)
        if self._armed:
            return
        self._armed = True
        try:
            self._loop.call_soon_threadsafe(self._drain)
        except RuntimeError:  # the loop is closed
            self._is_closed = True
            self._values.clear()

    def _drain(self) -> None:
        # Disarmed first: a value put while this runs arms the next wake-up.
        self._armed = False
        # Only the values that are here now: an endless producer must not hold the loop.
        for _ in range(len(self._values)):
            value = self._values.popleft()
            try:
                self._act(value)
            except Exception as error:  # one bad value must not hold up the others
                self._loop.call_exception_handler({"message": "a value was not taken", "exception": error})


_Function: TypeAlias = Callable[[], Coroutine[Any, Any, Result]]


class LoopCalls:
    """Lets coroutines on other loops await functions that run on this one.

    A function goes on if its caller is cancelled, unlike with `run_coroutine_threadsafe`: a step that has run must be
    remembered. It ends with the task owner.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, tasks: TaskOwner) -> None:
        """Run nothing yet.

        Args:
            loop: where functions run.
            tasks: owns their tasks.
        """
        self._tasks = tasks
        self._bridge: LoopBridge[tuple[_Function[Any], Future[Any]]] = LoopBridge(loop, self._start)

    async def run(self, function: _Function[Result]) -> Result:
        """Run a function on the other loop; returns what it returns, and raises what it raises."""
        done: Future[Result] = Future()
        self._bridge.put((function, done))
        return await asyncio.wrap_future(done)

    def _start(self, call: tuple[_Function[Any], Future[Any]]) -> None:
        function, done = call
        if not self._tasks.is_running:
            done.cancel()
        elif done.set_running_or_notify_cancel():
            self._tasks.start(_finish, function, done)


async def _finish(function: _Function[Result], done: Future[Result]) -> None:
    try:
        result = await function()
    except Exception as error:
        done.set_exception(error)
    except BaseException:
        done.set_exception(ConnectionAbortedError("the worker ends"))
        raise
    else:
        done.set_result(result)
