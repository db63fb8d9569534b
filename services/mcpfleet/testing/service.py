"""A service of a local fleet, in the test's event loop: a test can kill it, cut it off, or set its clock wrong."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeAlias, TypeVar

import anyio
import anyio.to_thread
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus import header
from mcpfleet.bus.bus import Bus
from mcpfleet.bus.memory.switch import Switch
from mcpfleet.bus.service import bus_of
from mcpfleet.process.lifecycle import Health, Stopping
from mcpfleet.process.service import Process
from mcpfleet.process.settings import ProcessSettings
from mcpfleet.process.shutdown import Shutdown

S = TypeVar("S", bound=ProcessSettings)

Serve: TypeAlias = Callable[[Process[S], Bus], Awaitable[None]]
"""Runs a service over a bus until its process is told to stop."""

_TELEMETRY_CLOSES_WITHIN: Final = 1.0


class LocalService(Generic[S]):
    """A service that runs until it is stopped or killed."""

    def __init__(
        self,
        name: str,
        user: str,
        settings: S,
        serve: Serve[S],
        *,
        switch: Switch | None,
        log: FilteringBoundLogger,
        write_composed: Callable[[str], None],
    ) -> None:
        """Describe a service.

        Args:
            name: the service's name.
            user: its NATS user.
            settings: its settings.
            serve: runs it.
            switch: connects it; None for NATS.
            log: takes its log lines.
            write_composed: takes lines that it has composed itself.
        """
        self.process = Process(name, settings)
        self.process.log = self.process.observers.log = log.bind(service=name, process=self.process.id)
        self.process.write_composed = write_composed
        self.process.health = self._health = _Watched(self.process.stopping, self.process.log)
        self.ended = anyio.Event()
        """Set when it no longer runs."""
        self.error: Exception | None = None
        """The error with which it ended, if it failed."""
        self.clock_ahead = 0.0
        """Seconds by which its wall clock is ahead; negative if it is behind."""
        self._serve = serve
        self._switch = switch
        self._user = user
        self._scope = anyio.CancelScope()

    @property
    def name(self) -> str:
        """The service's name."""
        return self.process.name

    @property
    def id(self) -> str:
        """The process's id, as log lines name it."""
        return self.process.id

    @property
    def shutdown(self) -> Shutdown | None:
        """The record of its end; None while it runs, and if it was killed."""
        return self.process.departure.shutdown

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return not self.ended.is_set()

    async def run(self) -> None:
        """Run to the end; a failure is kept in `error`."""
        header.clock.set(lambda: time.time() + self.clock_ahead)  # for all tasks that start from here
        try:
            with self._scope:
                async with self.process.observers.during(self.process.settings.observer):
                    await self._serve(self.process, self._bus())
        except Exception as error:  # the fleet tells it to the test
            self.process.log.exception("service failed")
            self.error = error
            self.process.departure.cut("a failure")
        finally:
            if self.process.stopping.is_set():  # a process that was killed tells nothing
                self.process.departure.record(self.process.stopping.cause, self.process.log)
            self.process.departure.forget()  # a fleet keeps its ended services
            with anyio.CancelScope(shield=True):  # `close` has its own time limit
                await anyio.to_thread.run_sync(self.process.telemetry.close, _TELEMETRY_CLOSES_WITHIN)
            self.ended.set()

    async def wait_ready(self) -> None:
        """Wait until it has been ready once, or has ended."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_then_cancel, self.ended, tasks.cancel_scope)
            tasks.start_soon(_then_cancel, self._health.was_ready, tasks.cancel_scope)

    def why_not_ready(self) -> str:
        """Say why it is not ready."""
        conditions = self.process.health.conditions.items()
        return f"{self.name}: " + "; ".join(f"{name}: {each.why}" for name, each in conditions if not each.ok)

    async def stop(self) -> None:
        """Drain it, and wait until it has ended; after its last deadline it is killed."""
        self.process.stopping.set()
        with anyio.move_on_after(self.process.settings.last_deadline):
            await self.ended.wait()
        await self._end_now("the last deadline, MCPFLEET_LAST_DEADLINE")

    async def stop_now(self) -> None:
        """Cancel what still runs, as a second signal does, and wait until it has ended."""
        self.process.stopping.set()
        await self._end_now("a second signal")

    async def _end_now(self, why: str) -> None:
        if self.is_running:
            self.process.departure.cut(why)
        await self.kill()

    async def kill(self) -> None:
        """End it at once: it sends nothing more. A handler's thread ends with its next `await`."""
        self._scope.cancel()
        if self._switch is not None:
            self._switch.end(self.id)
        await self.ended.wait()

    def cut(self) -> None:
        """Cut it off from the other services without notice; its own clients still reach it."""
        self._on_switch.cut(self.id)

    def heal(self) -> None:
        """Undo `cut`."""
        self._on_switch.heal(self.id)

    def _bus(self) -> Bus:
        if self._switch is None:
            return bus_of(self.process, self._user)
        return bus_of(
            self.process, self._user, self._switch.connector(self._user, self.process.settings, process=self.id)
        )

    @property
    def _on_switch(self) -> Switch:
        if self._switch is None:
            raise RuntimeError("a service cannot be cut off a real NATS server: omit `nats`")
        return self._switch


class _Watched(Health):
    """Health that sets an event when the service is ready for the first time."""

    def __init__(self, stopping: Stopping, log: FilteringBoundLogger) -> None:
        super().__init__(stopping, log)
        self.was_ready = anyio.Event()

    def set(self, name: str, ok: bool, why: str = "") -> None:
        """Say whether a condition holds."""
        super().set(name, ok, why)
        if self.ready:
            self.was_ready.set()


async def _then_cancel(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


AnyService = LocalService[Any]
