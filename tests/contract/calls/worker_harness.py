"""A worker with an application, and an edge that hears what it says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from mcpfleet.app import App, Context, ProtocolError
from mcpfleet.bus import header
from mcpfleet.bus.bus import Bus
from mcpfleet.bus.header import ending
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.call import (
    NO_FLAGS,
    Alive,
    AliveAnswer,
    CallBody,
    Cancel,
    call_subject,
    edge_subjects,
    pool_cancel_subject,
    process_cancel_subject,
    reply_subject,
)
from mcpfleet.process.run import Process
from mcpfleet.telemetry.instruments import WorkerInstruments
from mcpfleet.worker.calls.actor import CallActor
from mcpfleet.worker.settings import WorkerSettings
from mcpfleet.worker.wiring import Worker, wire
from tests.contract.bus.fabric import Fabric, heard
from tests.kit.waiting import until

POOL = "library"
CALM: dict[str, Any] = {"accepted_after": 5.0, "alive_interval": 5.0, "lost_after": 30.0}
"""The worker says nothing by itself, unless a test wants it."""
FETCHED_AT_ONCE: dict[str, Any] = {"result_wait": 0.1, "result_fetch": 0.1}
"""Short fetch times, so that an end may be kept for a short time."""


class HeldApplication:
    """An application whose handlers the test lets go."""

    def __init__(self) -> None:
        self.app = App("test", version="1")
        self.release = threading.Event()
        self.started: list[str] = []
        self.cancelled: list[str] = []
        for handler in (self.echo, self.hold, self.count, self.refuse, self.say):
            self.app.tool()(handler)
        self.app.tool(may_ask={"roots"})(self.ask)
        self.app.prompt()(self.wait)

    async def echo(self, text: str) -> str:
        self.started.append(text)
        return text

    async def hold(self, name: str) -> str:
        self.started.append(name)
        try:
            await until(self.release.is_set, within=30)
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        return name

    async def count(self, steps: int, ctx: Context) -> int:
        for number in range(steps):
            await ctx.progress(number)
        return steps

    async def say(self, ctx: Context) -> str:
        await ctx.log("info", "said", logger="site")
        return "done"

    async def ask(self, ctx: Context) -> str:
        roots = await ctx.roots(key="roots")
        return f"{len(roots)} roots"

    async def wait(self, name: str) -> str:
        return await self.hold(name)

    async def refuse(self) -> None:
        raise ProtocolError(-1, "Not now.")


class PlayedEdge:
    """Places calls, and hears what is addressed to it."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.frames: list[tuple[str, str, Incoming]] = []
        """Call, kind, message."""
        self.replies: dict[str, Incoming] = {}
        self.alive: list[Alive] = []
        self.answer: AliveAnswer | None = AliveAnswer()
        """To `alive`; None to stay silent."""

    async def listen(self) -> None:
        """Hear what an edge hears."""
        await self.bus.subscribe(
            edge_subjects(self.bus.process), self._on_message, asked_by=lambda _: "inbox.pool-library."
        )

    def _on_message(self, message: Incoming) -> None:
        match message.subject.split("."):
            case [_, _, "frames", _, call, kind]:
                self.frames.append((call, kind, message))
            case [_, _, "reply", call]:
                self.replies[call] = message
            case [_, _, "alive", _]:
                self.alive.append(Alive.model_validate_json(message.body))
                if self.answer is not None:
                    self.bus.respond(message, self.answer.model_dump_json().encode())

    def place(
        self,
        app: App,
        tool: str,
        arguments: dict[str, Any],
        *,
        call: str = "1",
        flags: str = NO_FLAGS,
        lasts: float = 10.0,
        line: str | None = None,
        **asked: Any,
    ) -> None:
        """Send a call, or a copy of it; `asked` are further parts of its body."""
        [digest] = [each.definition.digest for each in app.handlers if each.definition.name == tool]
        subject = call_subject(POOL, digest)
        line = header.write(lasts, None, call, self.bus.process, flags) if line is None else line
        self.bus.publish(subject, CallBody(arguments, **asked).write(), reply_subject(self.bus.process, call), line)

    def kinds(self, call: str = "1") -> list[str]:
        """The kinds of a call's frames, in order."""
        return [kind for name, kind, _ in self.frames if name == call]

    async def said(self, kind: str, call: str = "1", times: int = 1) -> Incoming:
        """Wait for a frame of a call."""
        await until(lambda: self.kinds(call).count(kind) >= times, within=5)
        return [message for name, sent, message in self.frames if (name, sent) == (call, kind)][times - 1]

    async def refused(self, call: str = "1") -> Any:
        """Wait until a call is told that it did not run."""
        await until(lambda: call in self.replies, within=5)
        return ending("call", self.replies[call])

    def cancel(self, call: str = "1", worker: str | None = None) -> None:
        """Cancel a call: at its worker, or in the whole pool."""
        subject = pool_cancel_subject(POOL) if worker is None else process_cancel_subject(POOL, worker)
        self.bus.publish(subject, Cancel(edge=self.bus.process, call=call).model_dump_json().encode())


class WorkerHarness:
    """A worker, its application, and an edge."""

    def __init__(self, edge: PlayedEdge, pool: Bus, application: HeldApplication, worker: Worker) -> None:
        self.edge = edge
        self.pool = pool
        self.application = application
        self.actor: CallActor = worker.calls
        self.instruments: WorkerInstruments = worker.side.instruments

    def place(self, tool: str, arguments: dict[str, Any], **options: Any) -> None:
        """Send a call of the application."""
        self.edge.place(self.application.app, tool, arguments, **options)

    async def running(self, *names: str) -> None:
        """Wait until these handlers have begun."""
        await until(lambda: set(names) <= set(self.application.started), within=5)


def wired(fabric: Fabric, bus: Bus, app: App, settings: WorkerSettings) -> Worker:
    """The parts of a worker on a bus of the fabric; nothing of it runs yet."""
    process = Process("worker", settings)
    process.log = fabric.logger
    return wire(process, bus, app, POOL)


@asynccontextmanager
async def worker_harness(fabric: Fabric, **settings: Any) -> AsyncIterator[WorkerHarness]:
    """A worker and an edge, for the length of a block."""
    chosen = WorkerSettings(**(CALM | FETCHED_AT_ONCE | settings))
    application = HeldApplication()
    async with fabric.buses("edge", "pool-library") as (edge_bus, pool), anyio.create_task_group() as tasks:
        worker, edge = wired(fabric, pool, application.app, chosen), PlayedEdge(edge_bus)
        actor = worker.calls
        await tasks.start(worker.thread.run, worker.runner)
        await edge.listen()
        await actor.listen({each.definition.digest: each.definition.kind for each in application.app.handlers})
        await heard(edge_bus, pool)
        tasks.start_soon(actor.tick)
        tasks.start_soon(actor.keep_alive)
        try:
            yield WorkerHarness(edge, pool, application, worker)
        finally:
            application.release.set()
            with anyio.move_on_after(3, shield=True):
                await until(lambda: not len(actor._table))
            tasks.cancel_scope.cancel()
