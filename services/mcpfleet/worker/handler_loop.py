"""The handlers' loop, on a thread of its own: a handler that blocks it silences nothing. A watch names what blocks.

The application's lifespans are entered on it before the first handler, and left after the last one (X68).
"""

from __future__ import annotations

import asyncio
import math
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any, Final

import anyio
from anyio.abc import TaskStatus
from structlog.typing import FilteringBoundLogger

from mcpfleet.app.lifespan import LifespanFailed, Lifespans, LifespanValues
from mcpfleet.process.host import loop_factory
from mcpfleet.process.logs import reporting
from mcpfleet.worker.loop_bridge import LoopBridge
from mcpfleet.worker.runner import Runner
from mcpfleet.worker.work import Order

_STOP_WITHIN: Final = 2.0
"""Seconds that the thread gets to end; a thread that a handler still blocks ends with the process."""
_LATE: Final = 2.0
"""Seconds beyond a lifespan's own bound, after which it blocks the loop: its bound cannot be heard there."""
_STACK: Final = 8
"""Frames of a blocked handler that the log shows."""


class HandlerLoop:
    """Runs a runner on a loop of its own, within the lifespans of an application."""

    def __init__(
        self, lifespans: Lifespans | None = None, on_failure: Callable[[LifespanFailed], None] = lambda _: None
    ) -> None:
        """Run nothing yet.

        Args:
            lifespans: entered before the runner runs, and left after it.
            on_failure: hears, on the handlers' loop, of a lifespan that fails once all are entered.
        """
        self._lifespans = lifespans or Lifespans((), None)
        self._on_failure = on_failure
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._orders: Future[LoopBridge[Order]] = Future()
        self._idle: Future[None] = Future()
        self._left: Future[None] = Future()
        self._done: Future[None] = Future()
        self._scope: anyio.CancelScope | None = None
        self._may_end = asyncio.Event()
        self._is_stopping = False
        self._beat = time.monotonic()

    @property
    def lifespan(self) -> LifespanValues:
        """The values of the lifespans, once they are entered."""
        return self._lifespans.values

    def order(self, order: Order) -> None:
        """Have the runner obey an order, after those before it; once `run` has started."""
        self._orders.result(0).put(order)

    async def run(
        self,
        runner: Runner,
        *beside: Callable[[], Coroutine[Any, Any, None]],
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Run a runner on the loop until cancelled, and other functions beside it.

        Raises:
            LifespanFailed: a lifespan could not be entered.
            RuntimeError: the thread ended by itself; or the error that ended it.
        """
        main = partial(self._main, runner, beside)
        self._thread = threading.Thread(target=main, name="handlers", daemon=True)
        self._thread.start()
        try:
            limit = self._lifespans.enter_within + _LATE if self._lifespans else math.inf
            with anyio.move_on_after(limit) as entering:
                await asyncio.shield(asyncio.wrap_future(self._orders))
            if entering.cancelled_caught:
                raise self._lifespans.failed("blocks the handlers' loop as it is entered")
            task_status.started()
            await asyncio.shield(asyncio.wrap_future(self._done))
            raise RuntimeError("the handlers' thread has ended by itself")
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_STOP_WITHIN):
                self._stop(runner)
                await asyncio.shield(asyncio.wrap_future(self._done))

    async def leave(self, runner: Runner) -> None:
        """End the handlers that still run, and leave the lifespans; the loop itself goes on.

        Raises:
            LifespanFailed: the lifespans were not left in time, or not at all: a handler does not end.
        """
        if not self._lifespans:
            return
        self._call(self._cancel, runner)
        with anyio.move_on_after(_STOP_WITHIN) as ending:
            await asyncio.shield(asyncio.wrap_future(self._idle))
        if ending.cancelled_caught:
            raise self._lifespans.failed("was not left: a handler does not end")
        with anyio.move_on_after(self._lifespans.leave_within + _LATE) as leaving:
            await asyncio.shield(asyncio.wrap_future(self._left))
        if leaving.cancelled_caught:
            raise self._lifespans.failed("blocks the handlers' loop as it is left")

    async def watch(self, limit: float, log: FilteringBoundLogger, tell: Callable[[bool], Awaitable[None]]) -> None:
        """Watch whether anything holds the loop for longer than `limit` seconds, until cancelled.

        Args:
            limit: in seconds.
            log: gets the name of the function that holds the loop.
            tell: hears that the loop is blocked (True), and that it runs again (False).
        """
        is_blocked, turns = False, 0
        while True:
            asked = time.monotonic()
            self._call(self._touch)
            await anyio.sleep(limit / 2)
            # Counted in turns of ours: a process that was stopped for a while has stopped both threads.
            turns = 0 if self._beat >= asked else turns + 1
            if (turns > 1) is is_blocked:
                continue
            held = time.monotonic() - self._beat
            is_blocked = not is_blocked
            if is_blocked:
                with reporting(log, "what blocks the handlers' loop"):
                    log.warning("handlers' loop blocked", seconds=round(held, 1), **_where(self._innermost()))
            await tell(is_blocked)

    def _innermost(self) -> FrameType | None:
        ident = self._thread.ident if self._thread is not None else None
        return sys._current_frames().get(ident or 0)  # noqa: SLF001  # the only way to look

    def _touch(self) -> None:
        self._beat = time.monotonic()

    def _main(self, runner: Runner, beside: tuple[Callable[[], Coroutine[Any, Any, None]], ...]) -> None:
        try:
            anyio.run(self._serve, runner, beside, backend_options={"loop_factory": loop_factory()})
        except BaseException as error:
            if not self._orders.done():
                self._orders.set_exception(error)
            self._done.set_exception(error)
        else:
            self._done.set_result(None)

    async def _serve(self, runner: Runner, beside: tuple[Callable[[], Coroutine[Any, Any, None]], ...]) -> None:
        self._loop = asyncio.get_running_loop()
        if self._is_stopping:
            return
        async with anyio.create_task_group() as within:
            await within.start(self._lifespans.run, self._on_failure)
            if self._lifespans.failure is None and not self._is_stopping:
                await self._run_handlers(runner, beside)
                self._idle.set_result(None)
                self._lifespans.leave()
        if self._scope is None and self._lifespans.failure is not None:
            raise self._lifespans.failure
        self._left.set_result(None)
        await self._may_end.wait()

    async def _run_handlers(self, runner: Runner, beside: tuple[Callable[[], Coroutine[Any, Any, None]], ...]) -> None:
        with anyio.CancelScope() as self._scope:
            async with anyio.create_task_group() as tasks:
                await tasks.start(runner.run)
                for each in beside:
                    tasks.start_soon(each)
                self._touch()
                self._orders.set_result(LoopBridge(asyncio.get_running_loop(), runner.obey))

    def _stop(self, runner: Runner) -> None:
        self._is_stopping = True
        self._call(self._end, runner)

    def _call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Have the loop call a function, if it runs."""
        if self._loop is not None and not self._done.done():
            with suppress(RuntimeError):  # the loop may end between the look and the call
                self._loop.call_soon_threadsafe(function, *arguments)

    def _end(self, runner: Runner) -> None:
        self._may_end.set()
        if self._scope is None:  # the lifespans are being entered
            self._lifespans.give_up()
        else:
            self._cancel(runner)

    def _cancel(self, runner: Runner) -> None:
        assert self._scope is not None
        runner.cancel_all()
        self._scope.cancel()


def _where(frame: FrameType | None) -> dict[str, str]:
    """Name the application's function that a thread is in, and the calls that led there."""
    if frame is None:
        return {}
    stack = traceback.extract_stack(frame)
    library = sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"]
    own = [entry for entry in stack if not entry.filename.startswith((*library, "<"))]
    innermost = (own or list(stack))[-1]
    way = " > ".join(f"{entry.name}:{entry.lineno}" for entry in list(stack)[-_STACK:])
    return {"function": innermost.name, "file": f"{innermost.filename}:{innermost.lineno}", "stack": way}
