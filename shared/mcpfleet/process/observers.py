"""Tells an operator's and an application's functions what happens in a process; nothing waits for them (X69).

Each function has a thread of its own, and a queue: where that is full, events are dropped and counted. An async
function runs in a task of that thread's own event loop. A call has 5 s: an async one is cancelled then, and the log
tells of a plain one.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anyio
from structlog.typing import FilteringBoundLogger

from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.events import Event, ProcessBegan, ProcessEnded
from mcpfleet.process.named_object import import_named
from mcpfleet.process.shutdown import OBSERVERS, Departure
from mcpfleet.telemetry.metrics import Counter

WAITING: Final = 1_024
"""Events that wait for one observer."""
CALL_WITHIN: Final = 5.0
"""Seconds for one call of an observer."""
_GATHERS: Final = 0.01
"""Seconds for which a woken observer lets further events come: its thread takes the interpreter from the process."""
_LOOKS: Final = 0.02
"""Seconds between two looks at whether observers have heard the last events."""

Observe = Callable[[Any], Any]
"""Takes an event of `mcpfleet.process.events`; plain or async."""


class _Observer(ABC):
    """One function, the events that wait for it, and its thread, which ends with the process whatever blocks it."""

    def __init__(self, function: Observe, log: FilteringBoundLogger, dropped: Counter) -> None:
        self.name = str(getattr(function, "__qualname__", type(function).__qualname__))
        self._function = function
        self._log = log
        self._drops = 0
        self._lock = threading.Lock()
        dropped.observe(lambda: self._drops, self.name)
        self._waiting: deque[Event] = deque()
        self._is_busy = False
        self._is_over = False
        self._thread: threading.Thread | None = None

    @property
    def is_idle(self) -> bool:
        """Whether it has heard all."""
        return not self._waiting and not self._is_busy

    def offer(self, event: Event) -> None:
        """Let an event wait; on any thread."""
        self._waiting.append(event)
        if self._thread is None:
            self._start()
        self._wake()

    def _start(self) -> None:
        with self._lock:  # two threads may have the first events
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=f"observer {self.name}", daemon=True)
                self._thread.start()

    def drops(self) -> bool:
        """Return whether no other event may wait, and count one that it will not hear then; on any thread."""
        if len(self._waiting) < WAITING:
            return False
        with self._lock:
            self._drops += 1
        return True

    def end(self) -> int:
        """Tell it nothing more; return how many events it has not heard to the end."""
        missed = len(self._waiting) + self._is_busy
        with self._lock:
            self._drops += missed
        self._waiting.clear()
        self._is_over = True
        if self._thread is not None:
            self._wake()
        return missed

    def _next(self) -> Event | None:
        """Return the next event; None while none waits."""
        self._is_busy = True
        try:
            return self._waiting.popleft()
        except IndexError:
            self._is_busy = False
            return None

    def _failed(self, event: Event) -> None:
        self._log.exception("observer failed", observer=self.name, told=type(event).__name__)

    def _too_slow(self, seconds: float) -> None:
        self._log.warning("observer too slow", observer=self.name, seconds=round(seconds, 1), within=CALL_WITHIN)

    @abstractmethod
    def _wake(self) -> None:
        """Let the thread look at what waits; on any thread."""

    @abstractmethod
    def _work(self) -> None:
        """Call the function with each event, on the thread."""


class _PlainObserver(_Observer):
    """A plain function."""

    def __init__(self, function: Observe, log: FilteringBoundLogger, dropped: Counter) -> None:
        super().__init__(function, log, dropped)
        self._news = threading.Event()

    def _wake(self) -> None:
        if not self._news.is_set():
            self._news.set()

    def _work(self) -> None:
        while not self._is_over:
            self._news.wait()
            if not self._is_over:
                time.sleep(_GATHERS)
            self._news.clear()
            while (event := self._next()) is not None:
                began = time.monotonic()
                try:
                    self._function(event)
                except BaseException:  # a SystemExit would end the thread without a word
                    self._failed(event)
                self._is_busy = False
                if (seconds := time.monotonic() - began) > CALL_WITHIN:
                    self._too_slow(seconds)


class _AsyncObserver(_Observer):
    """An async function."""

    def __init__(self, function: Observe, log: FilteringBoundLogger, dropped: Counter) -> None:
        super().__init__(function, log, dropped)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news: asyncio.Event | None = None
        self._is_woken = False

    def _wake(self) -> None:
        if self._loop is not None and self._news is not None and not self._is_woken:
            self._is_woken = True
            with suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(self._news.set)

    def _work(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._news, self._loop = asyncio.Event(), asyncio.get_running_loop()
        self._news.set()  # for what came before
        while not self._is_over:
            await self._news.wait()
            if not self._is_over:
                await asyncio.sleep(_GATHERS)
            self._news.clear()
            self._is_woken = False
            while (event := self._next()) is not None:
                patience = asyncio.timeout(CALL_WITHIN)
                try:
                    async with patience:
                        await self._function(event)
                except BaseException:  # a SystemExit, or the CancelledError of its own task, would end the thread
                    if patience.expired():
                        self._too_slow(CALL_WITHIN)
                    else:
                        self._failed(event)
                self._is_busy = False


class Observers:
    """The observers of one process.

    Attributes:
        is_on: there are some; where there are none, nothing is done for them.
        log: hears of observers that fail.
    """

    def __init__(
        self,
        service: str,
        process: str,
        log: FilteringBoundLogger,
        dropped: Counter,
        *,
        departure: Departure | None = None,
    ) -> None:
        self.is_on = False
        self._departure = departure
        self._about = service, process
        self.log = log
        self._dropped = dropped
        self._observers: list[_Observer] = []
        self._begun: ProcessBegan | None = None

    def add(self, functions: Iterable[Observe]) -> None:
        """Tell functions of all further events, and that the process has begun."""
        for function in functions:
            kind = _AsyncObserver if _is_async(function) else _PlainObserver
            observer = kind(function, self.log, self._dropped)
            self._observers.append(observer)
            self.is_on = True
            if self._departure is not None:
                self._departure.expect(OBSERVERS)
            if self._begun is not None:
                observer.offer(self._begun)

    def tell(self, make: Callable[..., Event], *fields: Any) -> None:
        """Tell of an event, on any thread; it is made only if an observer has room for it.

        Args:
            make: the event's class.
            fields: its fields behind `service` and `process`.
        """
        event: Event | None = None
        for observer in self._observers:
            if observer.drops():
                continue
            if event is None:
                event = make(*self._about, *fields)
            observer.offer(event)

    @asynccontextmanager
    async def during(self, target: str) -> AsyncIterator[None]:
        """Tell that the process begins and ends around a block, to the operator's function and to those of the block.

        Args:
            target: MCPFLEET_OBSERVER.

        Raises:
            ConfigurationError: it cannot be imported, or is no function that takes an event.
        """
        self.add(observer_named(target))
        began, outcome = time.monotonic(), "cancelled"
        self._begun = ProcessBegan(*self._about)
        self.tell(ProcessBegan)
        try:
            yield
            outcome = "ended"
        except Exception:
            outcome = "failed"
            raise
        finally:
            self.tell(ProcessEnded, outcome, time.monotonic() - began)
            with anyio.CancelScope(shield=True):
                await self._finish()

    async def _finish(self) -> None:
        """Wait until all events are heard; what is not heard in time is dropped, counted and told to the log."""
        with anyio.move_on_after(CALL_WITHIN):
            while not all(each.is_idle for each in self._observers):  # noqa: ASYNC110  # other threads say nothing here
                await anyio.sleep(_LOOKS)
        missed = {each.name: count for each in self._observers if (count := each.end())}
        for name, count in missed.items():
            self.log.warning("observer missed the end", observer=name, events=count)
        if self._departure is not None and not missed:
            self._departure.prove(OBSERVERS)


def observer_named(target: str) -> tuple[Observe, ...]:
    """Import MCPFLEET_OBSERVER, `module:object`; nothing where it is empty.

    Raises:
        ConfigurationError: it cannot be imported, or cannot be called with an event.
    """
    if not target:
        return ()
    found = import_named("MCPFLEET_OBSERVER", target)
    if not callable(found):
        raise ConfigurationError(f"MCPFLEET_OBSERVER: {target} is no function that takes an event")
    return (found,)


def _is_async(function: Observe) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
