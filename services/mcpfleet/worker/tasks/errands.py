"""What the handlers' side asks of the bus, and waits for: errands run on its loop, and their ends cross back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, TypeAlias, TypeVar

import anyio
from anyio.abc import TaskGroup, TaskStatus

from mcpfleet.worker.loop_bridge import LoopBridge

Result = TypeVar("Result")
Errand: TypeAlias = Callable[[], Awaitable[Any]]


class Errands:
    """Runs errands in a task group of its own; each is bounded by what it asks."""

    def __init__(self) -> None:
        """Be made on the bus's loop."""
        self._crossing: LoopBridge[tuple[Errand, Future[Any]]] = LoopBridge(asyncio.get_running_loop(), self._start)
        self._tasks: TaskGroup | None = None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run errands until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            task_status.started()
            try:
                await anyio.sleep_forever()
            finally:
                self._tasks = None

    async def do(self, errand: Callable[[], Awaitable[Result]]) -> Result:
        """Have an errand run, and wait for its end, on any other loop; raises what it raises."""
        done: Future[Result] = Future()
        self._crossing.put((errand, done))
        return await asyncio.wrap_future(done)

    def _start(self, order: tuple[Errand, Future[Any]]) -> None:
        if self._tasks is None:
            order[1].cancel()
        elif order[1].set_running_or_notify_cancel():
            self._tasks.start_soon(_run, *order)


async def _run(errand: Errand, done: Future[Any]) -> None:
    try:
        result = await errand()
    except Exception as error:
        done.set_exception(error)
    except BaseException:
        done.set_exception(ConnectionAbortedError("the worker ends"))
        raise
    else:
        done.set_result(result)
