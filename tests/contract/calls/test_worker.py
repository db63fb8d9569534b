"""A worker as edges see it: what it takes, what it says meanwhile, and how it ends."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from mcpfleet.app import App, Context, ProtocolError
from mcpfleet.bus import header
from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import Busy, Expired, NoResponders
from mcpfleet.bus.outcome import ending
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.call import (
    AUTHORED_ERROR,
    NO_FLAGS,
    WANTS_ACCEPTED,
    WANTS_PROGRESS,
    Alive,
    AliveAnswer,
    CallBody,
    Cancel,
    Pull,
    call_subject,
    edge_subjects,
    pool_cancel_subject,
    process_cancel_subject,
    pull_subject,
    reply_subject,
)
from mcpfleet.telemetry.instruments import WorkerInstruments
from mcpfleet.telemetry.metrics import Metrics
from mcpfleet.telemetry.spans import Tracer
from mcpfleet.worker.actor import CallActor
from mcpfleet.worker.crossing import Crossing
from mcpfleet.worker.frames import Ended, Report
from mcpfleet.worker.handlers import HandlerThread
from mcpfleet.worker.runner import Runner
from mcpfleet.worker.settings import WorkerSettings
from tests.contract.bus.fabric import Fabric, heard
from tests.kit.waiting import until

POOL = "library"
CALM: dict[str, Any] = {"accepted_after": 5.0, "alive_interval": 5.0, "lost_after": 30.0}
"""Nothing is said by itself, unless a test has it so."""


class Application:
    """An application whose handlers the test lets go."""

    def __init__(self) -> None:
        self.app = App("test", version="1")
        self.release = threading.Event()
        self.started: list[str] = []
        self.cancelled: list[str] = []
        for handler in (self.echo, self.hold, self.count, self.refuse):
            self.app.tool()(handler)

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

    async def refuse(self) -> None:
        raise ProtocolError(-1, "Not now.")


class Edge:
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
    ) -> None:
        """Send a call, or a copy of it."""
        subject = call_subject(POOL, app.tools[tool].definition.digest)
        line = header.write(lasts, None, call, self.bus.process, flags) if line is None else line
        self.bus.publish(subject, CallBody(arguments).write(), reply_subject(self.bus.process, call), line)

    def kinds(self, call: str = "1") -> list[str]:
        """What was said of a call, in order."""
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
        """Say that a call is not wanted: to its worker, or to the whole pool."""
        subject = pool_cancel_subject(POOL) if worker is None else process_cancel_subject(POOL, worker)
        self.bus.publish(subject, Cancel(edge=self.bus.process, call=call).model_dump_json().encode())


class Site:
    """A worker, its application, and an edge."""

    def __init__(self, edge: Edge, pool: Bus, application: Application, actor: CallActor, instruments: Any) -> None:
        self.edge = edge
        self.pool = pool
        self.application = application
        self.actor = actor
        self.instruments: WorkerInstruments = instruments

    def place(self, tool: str, arguments: dict[str, Any], **options: Any) -> None:
        """Send a call of the application."""
        self.edge.place(self.application.app, tool, arguments, **options)

    async def running(self, *names: str) -> None:
        """Wait until these handlers have begun."""
        await until(lambda: set(names) <= set(self.application.started), within=5)


@asynccontextmanager
async def site(fabric: Fabric, **settings: Any) -> AsyncIterator[Site]:
    """A worker and an edge, for the length of a block."""
    chosen = WorkerSettings(**(CALM | settings))
    application = Application()
    instruments = WorkerInstruments(Metrics())
    async with fabric.buses("edge", "pool-library") as (edge_bus, pool), anyio.create_task_group() as tasks:
        frames = Crossing[Report | Ended](asyncio.get_running_loop(), lambda frame: actor.hear(frame))  # noqa: PLW0108  # it is made below
        runner = Runner(
            application.app, chosen, tell=frames.put, tracer=Tracer(), instruments=instruments, log=fabric.logger
        )
        thread = HandlerThread(runner)
        actor = CallActor(pool, POOL, chosen, order=thread.order, instruments=instruments, log=fabric.logger)
        edge = Edge(edge_bus)
        await tasks.start(thread.run)
        await edge.listen()
        await actor.listen([tool.definition.digest for tool in application.app.tools.values()])
        await heard(edge_bus, pool)
        tasks.start_soon(actor.tick)
        tasks.start_soon(actor.keep_alive)
        try:
            yield Site(edge, pool, application, actor, instruments)
        finally:
            application.release.set()
            tasks.cancel_scope.cancel()


# -- taking ----------------------------------------------------------------------------------------------------------


async def test_a_call_is_answered_by_its_result_alone(fabric: Fabric) -> None:
    """What ends quickly needs no acceptance."""
    async with site(fabric) as at:
        at.place("echo", {"text": "hello"})
        end = await at.edge.said("result")
        assert json.loads(end.body)["content"][0]["text"] == "hello"
        assert at.edge.kinds() == ["result"]


async def test_m24_an_authored_error_says_so(fabric: Fabric) -> None:
    async with site(fabric) as at:
        at.place("refuse", {})
        assert (await at.edge.said("error")).header == AUTHORED_ERROR


async def test_a_call_that_said_nothing_for_a_while_is_accepted(fabric: Fabric) -> None:
    """So that its edge does not take it for lost; running or waiting."""
    async with site(fabric, accepted_after=0.3, slots=1) as at:
        at.place("hold", {"name": "a"}, call="1")
        at.place("hold", {"name": "b"}, call="2")
        for call in ("1", "2"):
            accepted = await at.edge.said("accepted", call)
            assert accepted.header == f"1 {at.pool.process}"
        await anyio.sleep(0.5)
        assert at.edge.kinds("1") == ["accepted"], "once"


async def test_a_call_that_others_wait_behind_is_accepted_at_once(fabric: Fabric) -> None:
    async with site(fabric) as at:
        at.place("hold", {"name": "a"}, flags=WANTS_ACCEPTED)
        await at.edge.said("accepted")


async def test_beyond_slots_and_queue_a_worker_is_busy(fabric: Fabric) -> None:
    async with site(fabric, slots=1, queue=1) as at:
        for call in ("1", "2", "3"):
            at.place("hold", {"name": call}, call=call)
        assert isinstance(await at.edge.refused("3"), Busy)
        assert at.instruments.busy.read().points[0].value == 1
        at.application.release.set()
        await at.edge.said("result", "2")
        assert "3" not in at.application.started


async def test_a_call_that_waits_runs_when_a_slot_is_free(fabric: Fabric) -> None:
    async with site(fabric, slots=1, queue=5) as at:
        for call in ("1", "2", "3"):
            at.place("hold", {"name": call}, call=call)
        await at.running("1")
        assert at.application.started == ["1"]
        at.application.release.set()
        await at.edge.said("result", "3")
        assert at.application.started == ["1", "2", "3"]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(f"1 10000 {(time.time() - 60) * 1000:.0f} - 1 e1 -", id="old"),
        pytest.param(f"1 10000 {(time.time() + 60) * 1000:.0f} - 1 e1 -", id="dated ahead"),
        pytest.param("nonsense", id="no line"),
        pytest.param(f"1 10000 {(time.time() + 600) * 1000:.0f} -", id="no call"),
    ],
)
async def test_a_call_that_is_too_old_is_expired_and_does_not_run(fabric: Fabric, line: str) -> None:
    async with site(fabric) as at:
        at.place("echo", {"text": "x"}, line=line)
        assert isinstance(await at.edge.refused(), Expired)
        assert at.application.started == []


async def test_a_call_that_comes_twice_runs_once(fabric: Fabric) -> None:
    async with site(fabric) as at:
        for _ in range(3):
            at.place("hold", {"name": "a"})
        at.application.release.set()
        await at.edge.said("result")
        at.place("hold", {"name": "a"})
        await heard(at.edge.bus, at.pool)
        assert at.application.started == ["a"]
        assert at.edge.kinds() == ["result"]


async def test_equal_names_of_two_edges_are_two_calls(fabric: Fabric) -> None:
    async with site(fabric) as at, fabric.buses("edge") as (second,):
        other = Edge(second)
        await other.listen()
        await heard(second)
        at.place("echo", {"text": "to the first"})
        other.place(at.application.app, "echo", {"text": "to the second"})
        assert b"first" in (await at.edge.said("result")).body
        assert b"second" in (await other.said("result")).body


# -- progress --------------------------------------------------------------------------------------------------------


async def test_m60_a_few_reports_at_once_all_leave_before_the_end(fabric: Fabric) -> None:
    async with site(fabric) as at:
        at.place("count", {"steps": 3}, flags=WANTS_PROGRESS)
        await at.edge.said("result")
        assert at.edge.kinds() == ["progress"] * 3 + ["result"]


async def test_p1_without_the_flag_no_report_leaves(fabric: Fabric) -> None:
    async with site(fabric) as at:
        at.place("count", {"steps": 3})
        await at.edge.said("result")
        assert at.edge.kinds() == ["result"]


async def test_of_a_burst_about_twenty_reports_leave_and_the_newest(fabric: Fabric) -> None:
    async with site(fabric) as at:
        at.place("count", {"steps": 1000}, flags=WANTS_PROGRESS)
        await at.edge.said("result")
        reports = [json.loads(message.body)["progress"] for _, kind, message in at.edge.frames if kind == "progress"]
        assert 20 <= len(reports) <= 45
        assert reports == sorted(reports)
        assert reports[-1] == 999


# -- cancels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to_pool", [True, False], ids=["to the pool", "to the worker"])
async def test_a_cancelled_call_is_stopped_and_says_nothing_more(fabric: Fabric, to_pool: bool) -> None:
    async with site(fabric, slots=1) as at:
        at.place("hold", {"name": "a"})
        await at.running("a")
        at.edge.cancel(worker=None if to_pool else at.pool.process)
        await until(lambda: at.application.cancelled == ["a"], within=1)
        at.place("echo", {"text": "next"}, call="2")
        await at.edge.said("result", "2")
        assert at.edge.kinds("1") == []


async def test_a_cancel_that_overtakes_its_call_keeps_it_from_running(fabric: Fabric) -> None:
    async with site(fabric) as at:
        at.edge.cancel("1")
        await heard(at.edge.bus, at.pool)
        at.place("echo", {"text": "a"}, call="1")
        at.place("echo", {"text": "b"}, call="2")
        await at.edge.said("result", "2")
        assert at.application.started == ["b"]


async def test_a_cancel_of_a_call_that_waits_frees_its_place(fabric: Fabric) -> None:
    async with site(fabric, slots=1, queue=1) as at:
        at.place("hold", {"name": "1"}, call="1")
        at.place("hold", {"name": "2"}, call="2")
        at.edge.cancel("2")
        await heard(at.edge.bus, at.pool)
        at.place("hold", {"name": "3"}, call="3")
        at.application.release.set()
        await at.edge.said("result", "3")
        assert at.application.started == ["1", "3"]


async def test_a_cancel_after_the_end_changes_nothing(fabric: Fabric) -> None:
    async with site(fabric) as at:
        at.place("echo", {"text": "a"})
        await at.edge.said("result")
        at.edge.cancel()
        await heard(at.edge.bus, at.pool)
        at.place("echo", {"text": "b"}, call="2")
        await at.edge.said("result", "2")


async def test_a_malformed_cancel_is_logged_and_costs_nothing(fabric: Fabric) -> None:
    async with site(fabric) as at:
        at.edge.bus.publish(pool_cancel_subject(POOL), b"{")
        await until(lambda: fabric.lines("malformed cancel"))
        at.place("echo", {"text": "a"})
        await at.edge.said("result")


# -- alive -----------------------------------------------------------------------------------------------------------


async def test_a_worker_tells_each_edge_which_calls_it_holds(fabric: Fabric) -> None:
    async with site(fabric, alive_interval=0.2, slots=1) as at:
        at.place("hold", {"name": "a"}, call="1")
        at.place("hold", {"name": "b"}, call="2")
        await until(lambda: at.edge.alive and len(at.edge.alive[-1].calls) == 2)
        assert at.edge.alive[-1] == Alive(worker=at.pool.process, calls=("1", "2"))


async def test_a_call_that_is_unwanted_is_cancelled(fabric: Fabric) -> None:
    """A cancel that was lost is made good."""
    async with site(fabric, alive_interval=0.2) as at:
        at.edge.answer = AliveAnswer(unwanted=("1",))
        at.place("hold", {"name": "a"})
        await until(lambda: at.application.cancelled == ["a"])


async def test_an_end_that_an_edge_missed_is_sent_again(fabric: Fabric) -> None:
    async with site(fabric, alive_interval=0.2, end_kept=5.0) as at:
        at.edge.answer = AliveAnswer(missing=("1",))
        at.place("echo", {"text": "a"})
        first = await at.edge.said("result", times=1)
        second = await at.edge.said("result", times=2)
        assert first.body == second.body
        assert at.application.started == ["a"]


async def test_an_end_is_kept_for_a_time(fabric: Fabric) -> None:
    """Then there is nothing to say to the edge any more."""
    async with site(fabric, alive_interval=0.2, end_kept=0.3) as at:
        at.place("echo", {"text": "a"})
        await at.edge.said("result")
        await until(lambda: at.edge.alive)
        await until(lambda: len(at.actor._ends) == 0)
        before = len(at.edge.alive)
        await anyio.sleep(0.5)
        assert len(at.edge.alive) <= before + 1


async def test_calls_of_an_edge_that_is_gone_are_cancelled(fabric: Fabric) -> None:
    async with site(fabric, alive_interval=0.2, lost_after=0.5) as at:
        at.edge.answer = None
        at.place("hold", {"name": "a"})
        await until(lambda: at.application.cancelled == ["a"])
    assert fabric.lines("edge lost")


async def test_an_edge_that_is_heard_again_in_time_loses_nothing(fabric: Fabric) -> None:
    async with site(fabric, alive_interval=0.2, lost_after=1.0) as at:
        at.place("hold", {"name": "a"})
        for _ in range(3):
            at.edge.answer = None
            heard_so_far = len(at.edge.alive)
            await until(lambda before=heard_so_far: len(at.edge.alive) > before)  # type: ignore[misc]  # a default
            at.edge.answer = AliveAnswer()
            heard_so_far = len(at.edge.alive)
            await until(lambda before=heard_so_far: len(at.edge.alive) > before)  # type: ignore[misc]  # a default
        assert at.application.cancelled == []


async def test_silence_counts_only_while_the_workers_own_link_is_proven(fabric: Fabric) -> None:
    """An outage of NATS cancels nothing."""
    async with site(fabric, alive_interval=0.2, lost_after=0.7) as at:
        at.place("hold", {"name": "a"})
        await until(lambda: at.edge.alive)
        await fabric.lose()
        await until(lambda: not at.pool.is_up)
        await anyio.sleep(1.0)  # longer than an edge may be silent
        await fabric.start()
        with anyio.fail_after(5):
            await at.edge.bus.wait_up()
            await at.pool.wait_up()
        at.application.release.set()
        await at.edge.said("result")
        assert at.application.cancelled == []


# -- large results ---------------------------------------------------------------------------------------------------


async def test_a_large_result_stays_with_its_worker_until_it_is_fetched(fabric: Fabric) -> None:
    text = "x" * 10_000
    async with site(fabric, inline_result=1000) as at:
        at.place("echo", {"text": text})
        end = await at.edge.said("result")
        assert end.body == b""
        worker, size = (end.header or "").split(" ")[1:]
        pull = Pull(edge=at.edge.bus.process, call="1").model_dump_json().encode()
        fetched = (await at.edge.bus.request(pull_subject(POOL, worker), pull, timeout=5)).body
        assert len(fetched) == int(size)
        assert text.encode() in fetched


async def test_a_result_that_is_not_kept_cannot_be_fetched(fabric: Fabric) -> None:
    async with site(fabric) as at:
        pull = Pull(edge=at.edge.bus.process, call="never").model_dump_json().encode()
        with pytest.raises(Exception, match="not kept"):
            await at.edge.bus.request(pull_subject(POOL, at.pool.process), pull, timeout=5)


# -- the end ---------------------------------------------------------------------------------------------------------


async def test_a_worker_that_drains_finishes_what_it_holds_and_takes_nothing_new(fabric: Fabric) -> None:
    drained = anyio.Event()
    async with site(fabric, slots=1) as at, anyio.create_task_group() as tasks:

        async def drain() -> None:
            await at.actor.drain()
            drained.set()

        at.place("hold", {"name": "1"}, call="1")
        at.place("hold", {"name": "2"}, call="2")
        await at.running("1")
        tasks.start_soon(drain)
        await until(lambda: fabric.lines("takes no new calls"))
        at.place("hold", {"name": "3"}, call="3")
        assert isinstance(await at.edge.refused("3"), NoResponders)
        too_early = drained.is_set()
        at.application.release.set()
        await at.edge.said("result", "1")
        await at.edge.said("result", "2")
        with anyio.fail_after(5):
            await drained.wait()
    assert not too_early
    assert at.application.started == ["1", "2"]


async def test_a_worker_without_calls_drains_at_once(fabric: Fabric) -> None:
    async with site(fabric) as at:
        with anyio.fail_after(5):
            await at.actor.drain()


async def test_slots_are_counted(fabric: Fabric) -> None:
    async with site(fabric, slots=3) as at:
        at.place("hold", {"name": "a"})
        await at.running("a")
        used = [gauge.read().points[0].value for gauge in (at.instruments.slots, at.instruments.slots_used)]
        at.application.release.set()
        await at.edge.said("result")
        await until(lambda: at.instruments.slots_used.read().points[0].value == 0)
    assert used == [3, 1]
