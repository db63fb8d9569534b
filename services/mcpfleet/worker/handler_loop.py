"""The handlers' loop, on a thread of its own: a handler that blocks it silences nothing. A watch names what blocks."""

from __future__ import annotations

import asyncio
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

from mcpfleet.process.host import loop_factory
from mcpfleet.process.logs import reporting
from mcpfleet.worker.loop_bridge import LoopBridge
from mcpfleet.worker.runner import Runner
from mcpfleet.worker.work import Order

_STOP_WITHIN: Final = 2.0
"""Seconds that the thread gets to end; a thread that a handler still blocks ends with the process."""
_STACK: Final = 8
"""Frames of a blocked handler that the log shows."""


class HandlerLoop:
    """Runs a runner on a loop of its own."""

    def __init__(self) -> None:
        """Run nothing yet."""
        self._thread: threading.Thread | None = None
        self._orders: Future[LoopBridge[Order]] = Future()
        self._done: Future[None] = Future()
        self._scope: anyio.CancelScope | None = None
        self._beat = time.monotonic()

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
            RuntimeError: the thread ended by itself; or the error that ended it.
        """
        main = partial(self._main, runner, beside)
        self._thread = threading.Thread(target=main, name="handlers", daemon=True)
        self._thread.start()
        await asyncio.wrap_future(self._orders)
        task_status.started()
        try:
            await asyncio.shield(asyncio.wrap_future(self._done))
            raise RuntimeError("the handlers' thread has ended by itself")
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_STOP_WITHIN):
                self._stop(runner)
                await asyncio.shield(asyncio.wrap_future(self._done))

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
            self._loop.call_soon_threadsafe(self._touch)
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
        with anyio.CancelScope() as self._scope:
            async with anyio.create_task_group() as tasks:
                await tasks.start(runner.run)
                for each in beside:
                    tasks.start_soon(each)
                self._touch()
                self._loop = asyncio.get_running_loop()
                self._orders.set_result(LoopBridge(self._loop, runner.obey))

    def _stop(self, runner: Runner) -> None:
        if self._done.done() or self._scope is None:
            return
        with suppress(RuntimeError):  # the loop may end between the look and the call
            self._loop.call_soon_threadsafe(self._cancel, runner)

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
