"""The tasks service as it is run: over a real NATS with its users, on both databases, in several replicas."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from pydantic import SecretStr

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError, Failed, Refused
from mcpfleet.bus.port import Incoming
from mcpfleet.bus.rpc import ask
from mcpfleet.contracts.operator_tasks import ListTasks, OperatorTasksClient, Why
from mcpfleet.contracts.pool_tasks import (
    Ask,
    Claimed,
    ClaimTasks,
    Extend,
    PoolTasksClient,
    Release,
    Remember,
    Settle,
    Step,
    TaskLease,
    notify_subject,
    step_key,
    work_subject,
)
from mcpfleet.contracts.tasks import (
    GET,
    Get,
    KeyOutcome,
    Once,
    Owned,
    Reserve,
    Status,
    TasksClient,
    TaskView,
    once_key,
    task_hint_subject,
    task_key,
)
from mcpfleet.process.errors import ConfigurationError, leaves
from mcpfleet.process.service import Process
from mcpfleet.store.engine import Store
from mcpfleet.tasks.__main__ import serve
from mcpfleet.tasks.settings import TasksSettings
from tests.contract.store.serving import POOLS, connect, nats_server, password, why_not_ready
from tests.contract.store.task_harness import DONE, OTHERS, OWNER, POOL, REPORT, a_task, question, token
from tests.kit.postgres import Postgres
from tests.kit.waiting import until

WORKER = "w1"


@dataclass
class Running:
    """Replicas that run, and the way to ask them as any user."""

    processes: list[Process[TasksSettings]]
    buses: dict[str, Bus] = field(default_factory=dict)
    told: list[tuple[str, bytes]] = field(default_factory=list)
    """The subjects and bodies that edges and workers heard."""

    @property
    def edge(self) -> TasksClient:
        return TasksClient(self.buses["edge"])

    @property
    def operator(self) -> OperatorTasksClient:
        return OperatorTasksClient(self.buses["operator"])

    def worker(self, pool: str = POOL) -> PoolTasksClient:
        return PoolTasksClient(self.buses[f"pool-{pool}"], pool)

    async def made(self, **fields: Any) -> TaskView:
        created = await self.edge.create(a_task(**fields))
        assert created.task is not None
        return created.task

    async def claim(self, most: int = 1, pool: str = POOL) -> tuple[Claimed, ...]:
        wanted = ClaimTasks(claim=token(), process=WORKER, definitions=(REPORT,), most=most)
        return (await self.worker(pool).claim(wanted)).tasks

    async def taken(self) -> Claimed:
        (task,) = await self.claim()
        return task

    async def settle(self, task: Claimed, pool: str = POOL) -> bool:
        wanted = Settle(id=task.id, fence=task.fence, status=Status.COMPLETED, end=DONE)
        return not (await self.worker(pool).settle(wanted)).lost

    async def extend(self, *tasks: Claimed) -> tuple[str, ...]:
        held = tuple(TaskLease(id=task.id, fence=task.fence) for task in tasks)
        return (await self.worker().extend(Extend(process=WORKER, tasks=held))).lost

    async def hears(self, subject: str, body: bytes) -> None:
        await until(lambda: (subject, body) in self.told)


@asynccontextmanager
async def service(url: str, folder: Path, replicas: int = 1, **settings: Any) -> AsyncIterator[Running]:
    """Run NATS and replicas of the service, and connect an edge, an operator and two pools."""
    async with nats_server(folder, POOLS) as nats, anyio.create_task_group() as tasks:
        own = TasksSettings(
            nats_url=nats.url,
            nats_password=SecretStr(password("tasks")),
            store_url=SecretStr(url),
            embedded=True,
            **{"tasks_sweep": 0.1, **settings},
        )
        running = Running([Process("tasks", own) for _ in range(replicas)])
        for user in ("edge", "operator", *(f"pool-{pool}" for pool in POOLS)):
            running.buses[user] = await connect(tasks.start, nats, user)

        def hear(message: Incoming) -> None:
            running.told.append((message.subject, message.body))

        await running.buses["edge"].subscribe(task_hint_subject(), hear)
        await running.buses["pool-library"].subscribe(work_subject(POOL), hear, "workers")
        await running.buses["pool-library"].subscribe(notify_subject(POOL, WORKER), hear)
        async with anyio.create_task_group() as serving:
            for process in running.processes:
                serving.start_soon(serve, process)
            await until(lambda: all(process.health.ready for process in running.processes))
            yield running
            for process in running.processes:
                process.stopping.set()
        tasks.cancel_scope.cancel()


@pytest.mark.rule("K4")
async def test_to_k15_a_task_from_its_creation_to_its_end(url: str, store: Store, tmp_path: Path) -> None:
    """Work is signalled after the commit, each change is hinted at by version, and the owner reads the exact end."""
    async with service(url, tmp_path) as running:
        view = await running.made()
        await running.hears(work_subject(POOL), REPORT.encode())
        task = await running.taken()
        assert task.id == view.id
        assert await running.extend(task) == ()
        assert await running.settle(task)
        await running.hears(task_hint_subject(task_key(task.id)), b"2")
        read = await running.edge.get(task.id, OWNER)
        assert read is not None
        assert (read.status, read.end, read.version) == (Status.COMPLETED, DONE, 2)
        assert await running.edge.versions([task.id, "x" * 32]) == {task.id: 2}
        assert not any(task.id in subject for subject, _ in running.told), "an id is no part of a subject"


async def test_questions_and_steps_over_the_bus(url: str, store: Store, tmp_path: Path) -> None:
    async with service(url, tmp_path) as running:
        await running.made()
        task = await running.taken()
        key = step_key(task.id, "load", token(), 0)
        await running.worker().step(Step(id=task.id, fence=task.fence, key=key, name="load", result="3"))
        asked = await running.worker().ask(Ask(id=task.id, fence=task.fence, questions=(question("month"),)))
        assert asked.waiting
        await running.hears(task_hint_subject(task_key(task.id)), b"2")
        running.told.clear()
        updated = await running.edge.update(task.id, OWNER, {"month": '{"action":"accept"}'})
        assert updated.consumed == ("month",)
        await running.hears(work_subject(POOL), REPORT.encode())
        again = await running.taken()
        assert [each.key for each in again.steps] == [key]
        assert [each.answer for each in again.answers] == ['{"action":"accept"}']
        released = await running.worker().release(Release(id=again.id, fence=again.fence))
        assert (released.lost, released.status) == (False, Status.WORKING)


@pytest.mark.rule("K10")
async def test_a_holder_is_notified_of_a_cancel(url: str, store: Store, tmp_path: Path) -> None:
    async with service(url, tmp_path) as running:
        await running.made()
        task = await running.taken()
        assert (await running.edge.cancel(task.id, OWNER)).status is Status.WORKING
        await running.hears(notify_subject(POOL, WORKER), task.id.encode())


async def test_invariant_13_a_pool_touches_its_own_tasks_alone(url: str, store: Store, tmp_path: Path) -> None:
    async with service(url, tmp_path) as running:
        await running.made()
        assert await running.claim(pool="archive") == ()
        task = await running.taken()
        assert not await running.settle(task, pool="archive")
        assert await running.settle(task)
        stranger = PoolTasksClient(running.buses["pool-archive"], POOL, timeout=1)
        with pytest.raises(BusError) as raised:
            await stranger.settle(Settle(id=task.id, fence=task.fence, status=Status.CANCELLED))
        assert isinstance(raised.value, Refused)


@pytest.mark.rule("K8")
async def test_tasks_that_are_read_together_are_each_read_as_their_own_caller(
    url: str, store: Store, tmp_path: Path
) -> None:
    """Many polls become one question, and one of them is told no more for that."""
    async with service(url, tmp_path) as running:
        made = [await running.made() for _ in range(3)]
        wanted = [Owned(id=task.id, binding=OWNER) for task in made]
        wanted[1:1] = [Owned(id=made[0].id, binding=other) for other in OTHERS]
        wanted.append(Owned(id="x" * 32, binding=OWNER))
        first, *others = wanted
        question = Get(id=first.id, binding=first.binding, others=tuple(others))
        found = await ask(running.buses["edge"], GET, question, timeout=5)
        assert [view and view.id for view in (found.task, *found.others)] == [
            made[0].id, *[None] * len(OTHERS), made[1].id, made[2].id, None,
        ]  # fmt: skip
        client, told = running.edge, dict[int, TaskView | None]()

        async def poll(number: int) -> None:
            told[number] = await client.get(wanted[number].id, wanted[number].binding)

        async with anyio.create_task_group() as tasks:
            for number in range(len(wanted)):
                tasks.start_soon(poll, number)
        assert [told[number] for number in range(len(wanted))] == [found.task, *found.others]


async def test_large_ends_are_read_by_themselves(url: str, store: Store, tmp_path: Path) -> None:
    """An answer has a bound: what does not fit is asked for again, and comes whole."""
    async with service(url, tmp_path) as running:
        ends = []
        for _ in range(3):
            task = (await running.made()).id
            held = await running.taken()
            end = '{"content":[{"type":"text","text":"%s"}]}' % ("x" * 200_000)
            await running.worker().settle(Settle(id=held.id, fence=held.fence, status=Status.COMPLETED, end=end))
            ends.append((task, end))
        first, *others = (Owned(id=task, binding=OWNER) for task, _ in ends)
        question = Get(id=first.id, binding=first.binding, others=tuple(others))
        assert (await ask(running.buses["edge"], GET, question, timeout=5)).others == ()
        client, told = running.edge, dict[str, str | None]()

        async def poll(task: str) -> None:
            view = await client.get(task, OWNER)
            assert view is not None
            told[task] = view.end

        async with anyio.create_task_group() as tasks:
            for task, _ in ends:
                tasks.start_soon(poll, task)
        assert told == dict(ends)


@pytest.mark.rule("D9")
async def test_a_result_that_is_remembered_wakes_its_repeats(url: str, store: Store, tmp_path: Path) -> None:
    async with service(url, tmp_path, replicas=2) as running:
        once = Once(key=once_key(OWNER, "hold", "k1"), arguments=token())
        first = await running.edge.reserve(Reserve(once=once, pool=POOL, lasts=60, holder=token()))
        repeat = Reserve(once=once, pool=POOL, lasts=60, holder=token())
        assert (first.outcome, (await running.edge.reserve(repeat)).outcome) == (KeyOutcome.NEW, KeyOutcome.RUNNING)
        assert not (await running.worker().remember(Remember(key=once.key, fence=first.fence, result=DONE))).lost
        await running.hears(task_hint_subject(once.key), b"")
        assert (await running.edge.reserve(repeat)).result == DONE


async def test_an_operator_sees_what_is_stuck_and_ends_it(url: str, store: Store, tmp_path: Path) -> None:
    async with service(url, tmp_path, task_stuck=0.2) as running:
        view = await running.made()
        assert [task.id for task in (await running.operator.list(ListTasks())).tasks] == [view.id]

        async def stuck() -> int:
            return len((await running.operator.list(ListTasks(why=Why.STUCK))).tasks)

        with anyio.fail_after(10):
            while not await stuck():  # noqa: ASYNC110  # the store's clock has no event
                await anyio.sleep(0.05)
        task = await running.taken()
        assert await stuck() == 0
        (listed,) = (await running.operator.list(ListTasks(pool=POOL, most=1))).tasks
        assert (listed.holder, listed.status, listed.name) == (WORKER, Status.WORKING, "report")
        assert (await running.operator.list(ListTasks(pool="archive"))).tasks == ()
        for why in (Why.WAITING, Why.RETRIED):
            assert (await running.operator.list(ListTasks(why=why))).tasks == ()
        assert (await running.operator.stop(task.id)).status is Status.CANCELLED
        assert not await running.settle(task)
        assert not (await running.operator.stop("x" * 32)).known


@pytest.mark.rule("D8")
async def test_the_task_of_a_silent_worker_is_offered_again(url: str, store: Store, tmp_path: Path) -> None:
    async with service(url, tmp_path, replicas=2, task_lease=0.5) as running:
        await running.made()
        first = await running.taken()
        running.told.clear()
        await running.hears(work_subject(POOL), REPORT.encode())
        again = await running.taken()
        assert (again.id, again.attempts) == (first.id, 1)
        assert await running.extend(first) == (first.id,)
        assert await running.settle(again)


async def test_an_outage_of_the_store_starts_no_live_task_again(postgres: Postgres, tmp_path: Path) -> None:
    """Longer than a lease; its holder goes on, and is heard within the grace."""
    async with (
        postgres.migrated() as url,
        service(url, tmp_path, replicas=2, task_lease=1.0, tasks_away=0.5) as running,
    ):
        await running.made()
        task = await running.taken()
        assert await running.extend(task) == ()
        await postgres.shut(url)
        await until(lambda: all("MCPFLEET_STORE_URL" in why_not_ready(each) for each in running.processes))
        with pytest.raises(Failed) as raised:
            await running.extend(task)
        assert (raised.value.kind, "store" in str(raised.value)) == ("unavailable", True)
        await anyio.sleep(1.5)  # the length of the outage is what is tested
        await postgres.open(url)
        await until(lambda: all(process.health.ready for process in running.processes))
        assert await running.claim() == ()
        assert await running.extend(task) == ()
        assert await running.settle(task)
        view = await running.edge.get(task.id, OWNER)
        assert view is not None
        assert view.status is Status.COMPLETED


async def test_a_replica_that_stops_answers_what_it_took_and_the_others_go_on(
    url: str, store: Store, tmp_path: Path
) -> None:
    async with service(url, tmp_path, replicas=3) as running:
        made: list[str] = []

        async def make() -> None:
            made.append((await running.made()).id)

        async with anyio.create_task_group() as tasks:
            for number in range(60):
                tasks.start_soon(make)
                if number in {20, 40}:
                    await anyio.lowlevel.checkpoint()
                    running.processes[number // 20 - 1].stopping.set()
        taken = await running.claim(most=100)
        assert sorted(task.id for task in taken) == sorted(made)
        async with anyio.create_task_group() as tasks:
            for task in taken:
                tasks.start_soon(running.settle, task)
        for each in made:
            view = await running.edge.get(each, OWNER)
            assert view is not None
            assert view.status is Status.COMPLETED


@pytest.mark.rule("K20")
async def test_metrics_tell_kinds_and_never_whose(url: str, store: Store, tmp_path: Path) -> None:
    async with service(url, tmp_path) as running:
        view = await running.made(message="secret words")
        task = await running.taken()
        end = Settle(id=task.id, fence=task.fence, status=Status.FAILED, end="{}", failure="handler")
        await running.worker().settle(end)
        assert not await running.settle(task)
        families = {family.name: family for family in running.processes[0].telemetry.metrics.read()}
        points = {name: {p.labels: p.value for p in families[f"mcpfleet.tasks.{name}"].points} for name in NAMES}
        assert points["created"] == {("created",): 1}
        assert points["ended"] == {("failed", "handler"): 1}
        assert (points["claimed"], points["refused"]) == ({(): 1}, {(): 1})
        labels = {label for family in families.values() for point in family.points for label in point.labels}
        assert not any(word in label for label in labels for word in (view.id, "ann", "acme", "secret"))


NAMES = ("created", "ended", "claimed", "refused")


async def test_tables_that_are_older_than_the_release_end_the_service(empty: str, tmp_path: Path) -> None:
    with pytest.raises(BaseExceptionGroup) as raised:
        async with service(empty, tmp_path):
            pass
    (leaf,) = leaves(raised.value)
    assert isinstance(leaf, ConfigurationError)
    assert "mcpfleet migrate" in str(leaf)
