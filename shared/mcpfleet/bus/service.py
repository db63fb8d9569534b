"""A service on the bus: its bus by its settings, its readiness, and its life from connecting to draining."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, Protocol

import anyio
from anyio.abc import TaskStatus

from mcpfleet.bus.actor import Actor
from mcpfleet.bus.bus import Bus
from mcpfleet.bus.discovery import Discovery
from mcpfleet.bus.errors import BusError
from mcpfleet.bus.nats import NatsConnector
from mcpfleet.bus.port import Connector
from mcpfleet.process.service import Process
from mcpfleet.process.settings import ProcessSettings
from mcpfleet.process.shutdown import BUS
from mcpfleet.telemetry.instruments import BusInstruments

_DRAINS_WITHIN: Final = 1.0
"""Seconds for the bus's last messages to reach NATS."""


class Handlers(Protocol):
    """Handlers of a service's questions."""

    async def register(self, actor: Actor) -> None:
        """Answer from now on."""


class Loop(Protocol):
    """The service's own work, beside its questions."""

    def __call__(self, *, task_status: TaskStatus[None]) -> Coroutine[Any, Any, None]:
        """Run until cancelled; started once there is something to answer with."""


async def run_service(
    process: Process[Any],
    bus: Bus,
    *handlers: Handlers,
    loop: Loop,
    concurrency: int,
    outage: tuple[type[Exception], ...],
    beside: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    """Answer until told to stop, and finish all questions that arrived by then.

    Args:
        process: the process of the service.
        bus: its bus, which does not run yet.
        handlers: answer once the loop has started.
        loop: the service's own work.
        concurrency: the most questions at once.
        outage: errors that handlers raise while their store does not answer.
        beside: runs all the while, from when the bus runs.
    """
    settings: ProcessSettings = process.settings
    watch_link(process, bus)
    tracer, log = process.telemetry.tracer, process.log
    actor = Actor(bus, settings, tracer=tracer, log=log, concurrency=concurrency, outage=outage)
    async with anyio.create_task_group() as tasks:
        await tasks.start(bus.run)
        await Discovery(bus, process.name).listen()
        tasks.start_soon(beside)
        await tasks.start(actor.run)
        tasks.start_soon(_begin, loop, handlers, actor)
        departure = process.departure
        departure.watch("question", actor.open_questions)
        departure.expect(BUS)
        await process.stopping.wait()
        answered = actor.answered
        with departure.phase("questions"):
            with anyio.move_on_after(settings.drain) as patience:
                await actor.drain()
            if patience.cancelled_caught:
                departure.remain()
        departure.calls_finished = actor.answered - answered
        departure.calls_cut = len(list(actor.open_questions()))
        await prove_drained(process, bus)
        tasks.cancel_scope.cancel()


async def prove_drained(process: Process[Any], bus: Bus) -> None:
    """Prove that NATS has all that was sent: a question to ourselves comes back behind it (X72)."""
    with process.departure.phase("bus"):
        try:
            await bus.flush(timeout=_DRAINS_WITHIN)
        except BusError as error:
            process.log.debug("bus not drained", error=str(error))
        else:
            process.departure.prove(BUS)


async def _begin(loop: Loop, handlers: Iterable[Handlers], actor: Actor) -> None:
    """Run the loop until cancelled, and answer once it has started."""
    async with anyio.create_task_group() as tasks:
        await tasks.start(loop)
        for each in handlers:
            await each.register(actor)


def bus_of(process: Process[Any], user: str, connector: Connector | None = None) -> Bus:
    """Make the bus of a process.

    Args:
        process: the owner of the bus.
        user: the user of the role in the table of permissions. MCPFLEET_NATS_USER may name another user with the same
            permissions.
        connector: makes links; by default to NATS, as the settings say.
    """
    settings: ProcessSettings = process.settings
    connector = connector or NatsConnector(
        settings, user=settings.nats_user or user, name=f"{process.name} {process.id}", log=process.log
    )
    return Bus(
        connector,
        settings,
        user=user,
        process=process.id,
        instruments=BusInstruments(process.telemetry.metrics),
        log=process.log,
    )


def watch_link(process: Process[Any], bus: Bus) -> None:
    """Make the process ready only while its bus has a link."""

    def tell(is_up: bool) -> None:
        process.health.set("nats", is_up, "no link to NATS (MCPFLEET_NATS_URL)")

    bus.on_link(tell)
    tell(bus.is_up)
