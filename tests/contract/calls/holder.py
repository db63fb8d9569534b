"""A worker that holds tasks, and a tasks service that says just what a test has it say."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio

from mcpfleet.app import App
from mcpfleet.bus.actor import Actor
from mcpfleet.bus.errors import Failed, Fault
from mcpfleet.contracts import pool_tasks as contract
from mcpfleet.contracts.call import CallBody
from mcpfleet.contracts.pool_tasks import (
    Claimed,
    ClaimTasks,
    Extend,
    Extended,
    Release,
    Released,
    Serve,
    Served,
    Settle,
    Settled,
    Step,
    Stepped,
    TasksClaimed,
)
from mcpfleet.contracts.task_payloads import Origin
from mcpfleet.telemetry.spans import Tracer
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.worker.settings import WorkerSettings
from mcpfleet.worker.tasks.actor import TaskActor
from tests.contract.bus.fabric import Fabric, heard
from tests.contract.calls.worker_harness import wired

TASK = "t" * 32
QUICK: dict[str, Any] = {"task_looks": 0.1, "task_extends": 0.1, "task_says": 0.05, "alive_interval": 5.0}


def away(*_: Any) -> Any:
    """Answer that the store does not answer."""
    raise Failed(Fault.UNAVAILABLE, "no store")


def broken(*_: Any) -> Any:
    """Answer that something of ours is broken."""
    raise Failed(Fault.INTERNAL, "the log has the reason")


@dataclass
class Service:
    """A tasks service of one task."""

    definition: str
    lease: float
    has: bool = True
    """The task waits for a worker."""
    settles: list[Settle] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    extends: list[Extend] = field(default_factory=list)
    on_settle: Callable[[Settle], Settled] = lambda _: Settled()
    on_step: Callable[[Step], Stepped] = lambda _: Stepped()
    on_extend: Callable[[Extend], Extended] | None = None
    may_answer_claims: anyio.Event = field(default_factory=anyio.Event)
    may_answer_extends: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self.may_answer_claims.set()
        self.may_answer_extends.set()

    async def register(self, actor: Actor) -> None:
        """Answer from now on."""
        await actor.answer(contract.CLAIM, self.claim, group="tasks")
        await actor.answer(contract.EXTEND, self.extend, group="tasks")
        await actor.answer(contract.SETTLE, self.settle, group="tasks")
        await actor.answer(contract.RELEASE, self.release, group="tasks")
        await actor.answer(contract.STEP, self.step, group="tasks")
        await actor.answer(contract.SERVE, self.serve, group="tasks")

    async def claim(self, _question: ClaimTasks, _asked: Any) -> TasksClaimed:
        if not self.has:
            return TasksClaimed(lease=self.lease)
        self.has = False
        await self.may_answer_claims.wait()
        origin = Origin("mcp", CallBody({}, {}), TraceContext.fresh(sampled=False)).write()
        task = Claimed(id=TASK, fence=1, definition=self.definition, name="work", origin=origin, attempts=0, limit=60.0)
        return TasksClaimed(tasks=(task,), lease=self.lease)

    async def extend(self, question: Extend, _asked: Any) -> Extended:
        self.extends.append(question)
        await self.may_answer_extends.wait()
        return self.on_extend(question) if self.on_extend is not None else Extended(lease=self.lease)

    async def settle(self, question: Settle, _asked: Any) -> Settled:
        self.settles.append(question)
        return self.on_settle(question)

    async def release(self, question: Release, _asked: Any) -> Released:
        self.releases.append(question)
        return Released()

    async def step(self, question: Step, _asked: Any) -> Stepped:
        self.steps.append(question)
        return self.on_step(question)

    async def serve(self, _question: Serve, _asked: Any) -> Served:
        return Served()

    def lose(self, question: Extend) -> Extended:
        """Answer that all is another's."""
        return Extended(lease=self.lease, lost=tuple(each.id for each in question.tasks))


@dataclass
class Holder:
    """A worker that holds the service's one task."""

    service: Service
    actor: TaskActor
    fabric: Fabric

    @property
    def losses(self) -> int:
        """How many tasks were lost."""
        return len(self.fabric.lines("task lost"))


@asynccontextmanager
async def holder(fabric: Fabric, app: App, *, lease: float = 10.0, **settings: Any) -> AsyncIterator[Holder]:
    """A worker of an application for the length of a block; the task is of its tool `work`."""
    chosen = WorkerSettings(**(QUICK | settings))
    tools = {each.definition.name: each.definition.digest for each in app.handlers}
    service = Service(tools["work"], lease)
    async with fabric.buses("pool-library", "tasks") as (pool, tasks_bus), anyio.create_task_group() as tasks:
        answering = Actor(tasks_bus, fabric.settings, tracer=Tracer(), log=fabric.logger)
        await tasks.start(answering.run)
        await service.register(answering)
        worker = wired(fabric, pool, app, chosen)
        await heard(tasks_bus)
        await tasks.start(worker.thread.run, worker.runner)
        await tasks.start(worker.tasks.run)
        made = Holder(service, worker.tasks, fabric)
        await worker.tasks.offer(tools)
        yield made
        await answering.drain()
        tasks.cancel_scope.cancel()
