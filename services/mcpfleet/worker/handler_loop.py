"""The handlers' thread and loop, so that a handler that blocks silences nothing; and the watch over what blocks it."""

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
from types import FrameType
from typing import Any, Final

import anyio
from anyio.abc import TaskStatus
from structlog.typing import FilteringBoundLogger

from mcpfleet.process.host import loop_factory
from mcpfleet.process.logs import reporting
from mcpfleet.worker.calls.table import Held, Key
from mcpfleet.worker.loop_bridge import LoopBridge
from mcpfleet.worker.runner import Runner

_STOP_WITHIN: Final = 2.0
"""Seconds that the thread gets to end; one that a handler still blocks ends with the process."""
_STACK: Final = 8
"""Frames of a blocked handler that the log shows."""


class HandlerLoop:
    """Runs a runner on a thread of its own."""

    def __init__(self, runner: Runner, *beside: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Describe the thread; what runs beside the runner on its loop goes on until the thread ends."""
        self._runner = runner
        self._beside = beside
        self._thread = threading.Thread(target=self._main, name="handlers", daemon=True)
        self._orders: Future[LoopBridge[Held | Key]] = Future()
        self._done: Future[None] = Future()
        self._scope: anyio.CancelScope | None = None
        self._beat = time.monotonic()

    def order(self, order: Held | Key) -> None:
        """Have the runner obey an order, after those before it; once `run` has started."""
        self._orders.result(0).put(order)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Keep the thread until cancelled; what ends it by itself is raised here."""
        self._thread.start()
        await asyncio.wrap_future(self._orders)
        task_status.started()
        try:
            await asyncio.shield(asyncio.wrap_future(self._done))
            raise RuntimeError("the handlers' thread has ended by itself")
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_STOP_WITHIN):
                self._stop()
                await asyncio.shield(asyncio.wrap_future(self._done))

    async def watch(self, limit: float, log: FilteringBoundLogger, tell: Callable[[bool], Awaitable[None]]) -> None:
        """Look whether anything holds the handlers' loop for longer than `limit` seconds, until cancelled.

        Args:
            limit: in seconds.
            log: where what holds the loop is named.
            tell: hears that the loop is blocked (True), and that it runs again (False).
        """
        is_blocked = False
        while True:
            self._loop.call_soon_threadsafe(self._touch)
            await anyio.sleep(limit / 2)
            held = time.monotonic() - self._beat
            if (held > limit) is is_blocked:
                continue
            is_blocked = not is_blocked
            if is_blocked:
                with reporting(log, "what blocks the handlers' loop"):
                    frame = sys._current_frames().get(self._thread.ident or 0)  # noqa: SLF001  # the only way to look
                    log.warning("a handler blocks its loop", seconds=round(held, 1), **_where(frame))
            await tell(is_blocked)

    def _touch(self) -> None:
        self._beat = time.monotonic()

    def _main(self) -> None:
        try:
            anyio.run(self._serve, backend_options={"loop_factory": loop_factory()})
        except BaseException as error:
            if not self._orders.done():
                self._orders.set_exception(error)
            self._done.set_exception(error)
        else:
            self._done.set_result(None)

    async def _serve(self) -> None:
        with anyio.CancelScope() as self._scope:
            async with anyio.create_task_group() as tasks:
                await tasks.start(self._runner.run)
                for each in self._beside:
                    tasks.start_soon(each)
                self._touch()
                self._loop = asyncio.get_running_loop()
                self._orders.set_result(LoopBridge(self._loop, self._runner.obey))

    def _stop(self) -> None:
        if self._done.done() or self._scope is None:
            return
        with suppress(RuntimeError):  # the loop may end between the look and the call
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        assert self._scope is not None
        self._runner.cancel_all()
        self._scope.cancel()


def _where(frame: FrameType | None) -> dict[str, str]:
    """Name the application's function in which a thread is, and the way that led there."""
    if frame is None:
        return {}
    stack = traceback.extract_stack(frame)
    library = sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"]
    own = [entry for entry in stack if not entry.filename.startswith((*library, "<"))]
    innermost = (own or list(stack))[-1]
    way = " > ".join(f"{entry.name}:{entry.lineno}" for entry in list(stack)[-_STACK:])
    return {"function": innermost.name, "file": f"{innermost.filename}:{innermost.lineno}", "stack": way}
