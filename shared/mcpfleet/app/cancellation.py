"""Tells a handler that its call is no longer wanted (P7, P8)."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import itertools
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

MAX_CALLBACKS: Final = 32
"""Callbacks of one call that may wait at a time."""

log = logging.getLogger(__name__)


class Registration:
    """A callback that waits for the cancel. As a context manager it closes at the end of the block."""

    def __init__(self, remove: Callable[[], object]) -> None:
        self._remove = remove

    def close(self) -> None:
        """Withdraw the callback: it never runs, unless it has begun."""
        self._remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Cancelled:
    """Whether the call is cancelled: true once nobody wants its result, and never false again.

    The deadline, a client that left, and a forced shutdown cancel. A normal end, or the start of a drain, does not
    (P7). Usable from any thread.
    """

    def __init__(self, executor: Executor | None = None) -> None:
        self._executor = executor
        self._lock = threading.Lock()
        self._fired = False
        self._keys = itertools.count()
        # A callback stays here until it begins, so that closing its registration can still take it back.
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._waiters: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._runs: set[Future[None]] = set()

    def __bool__(self) -> bool:
        return self._fired

    async def wait(self) -> None:
        """Wait until the call is cancelled; for ever, if it ends normally."""
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            if self._fired:
                waiter[1].set()
            self._waiters.add(waiter)
        try:
            await waiter[1].wait()
        finally:
            with self._lock:
                self._waiters.discard(waiter)

    def on_cancel(self, callback: Callable[[], object]) -> Registration:
        """Run a callback once when the call is cancelled; at once, if it already is.

        It runs on a thread of its own, with the context variables of the caller. The call's slot stays taken until it
        has returned. Its errors are logged.

        Raises:
            RuntimeError: `MAX_CALLBACKS` of this call wait already.
        """
        bound = functools.partial(contextvars.copy_context().run, callback)
        with self._lock:
            if len(self._callbacks) >= MAX_CALLBACKS:
                raise RuntimeError(f"a call may have at most {MAX_CALLBACKS} callbacks that wait for its cancel")
            key = next(self._keys)
            self._callbacks[key] = bound
            late = self._fired
        if late:
            self._start(key)
        return Registration(functools.partial(self._take, key))

    def _take(self, key: int) -> Callable[[], object] | None:
        with self._lock:
            return self._callbacks.pop(key, None)

    def _start(self, key: int) -> None:
        if self._executor is None:
            self._run(key)
            return
        run = self._executor.submit(self._run, key)
        self._runs.add(run)
        run.add_done_callback(self._runs.discard)

    def _run(self, key: int) -> None:
        callback = self._take(key)
        if callback is None:
            return
        try:
            callback()
        except Exception:
            log.exception("cancel callback failed")


class CancelSignal(Cancelled):
    """The cancelling side: the runner of the handler holds it, and the handler sees it as `ctx.cancelled`.

    Args:
        executor: runs the callbacks, bounded by its number of threads. Without one, `cancel` runs them itself, which
            suits a test.
    """

    def cancel(self) -> None:
        """Cancel the call; a repeat is harmless. Callable from any thread."""
        with self._lock:
            if self._fired:
                return
            self._fired = True
            keys, waiters = list(self._callbacks), list(self._waiters)
        for loop, event in waiters:
            # A closed loop has nobody left to wake.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(event.set)
        for key in keys:
            self._start(key)

    async def finished(self) -> None:
        """Wait until every started callback has returned; then the call's slot may be freed (P8)."""
        while runs := [asyncio.wrap_future(run) for run in list(self._runs)]:
            await asyncio.wait(runs)
