"""An edge's side of calls, and a worker that says just what a test has it say."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup
from pydantic_core import to_json

from mcpfleet.bus import header
from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import Fault
from mcpfleet.bus.header import Sent
from mcpfleet.bus.port import Incoming
from mcpfleet.bus.rpc import ask
from mcpfleet.contracts.call import (
    ALIVE,
    Alive,
    AliveAnswer,
    Cancel,
    FrameKind,
    Pull,
    call_subject,
    frame_subject,
    pool_cancel_subject,
    process_cancel_subject,
    pull_subject,
    replies_to_edge,
)
from mcpfleet.contracts.catalog import Listed, Snapshot
from mcpfleet.contracts.manifest import Definition
from mcpfleet.contracts.principal import ANONYMOUS
from mcpfleet.edge.calls import relay
from mcpfleet.edge.calls.call_request import CallRequest
from mcpfleet.edge.calls.end import CallEnds
from mcpfleet.edge.calls.in_flight import Call, InFlightCalls, Order
from mcpfleet.edge.calls.large_results import LargeResults
from mcpfleet.edge.calls.queue import CallQueue
from mcpfleet.edge.calls.relay import CallParts
from mcpfleet.edge.protocol.continuation import Continuation
from mcpfleet.edge.protocol.revision import NEWEST
from mcpfleet.edge.protocol.sealer import KeySealer
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.transport.memory_budget import MemoryBudget
from mcpfleet.telemetry.instruments import EdgeInstruments
from mcpfleet.telemetry.metrics import Metrics
from mcpfleet.telemetry.spans import Span
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.views.rights import Policy, Rights
from mcpfleet.views.view import Target, view_of
from mcpfleet.wire.envelope import Envelope
from mcpfleet.wire.reply import result_body
from tests.contract.bus.fabric import Fabric, by_edges, heard
from tests.kit.waiting import until
from tests.unit.edge.asgi import Exchange, Post

POOL: Final = "library"
DEFINITION: Final = "d1"
REFERENCE: Final = "4bf92f3577b34da6a3ce929d0e0e4736"

_TOOL: Final = Definition(kind="tool", name="search", wire={"name": "search", "inputSchema": {"type": "object"}})
_LISTED: Final = Listed(pool=POOL, digest=_TOOL.digest, definition=_TOOL)
_SNAPSHOT: Final = Snapshot(endpoint="mcp", number=1, name="library", version="1", listed=(_LISTED,))
VIEW: Final = view_of(_SNAPSHOT, Policy.of(_SNAPSHOT, hides_uncovered=False), Rights(is_named=False))
TARGET: Final = Target(_LISTED)

PATIENT: Final = {"unaccepted_after": 5.0, "lost_after": 5.0, "silent_after": 5.0, "keepalive": 5.0, "queue_wait": 5.0}
"""Nothing runs out by itself, unless a test has it so."""


@dataclass
class Taken:
    """A call that reached the worker."""

    message: Incoming
    sent: Sent

    @property
    def id(self) -> str:
        """The name that the edge gave it."""
        return self.sent.extra[0]

    @property
    def edge(self) -> str:
        """The edge's process."""
        return self.sent.extra[1]

    @property
    def flags(self) -> str:
        """The flags of the edge."""
        return self.sent.extra[2]


class PlayedWorker:
    """Speaks frames as a worker does, when the test says so."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.name = bus.process
        self.taken: list[Taken] = []
        self.cancels: list[tuple[str, Cancel]] = []
        """With the subject by which each came."""
        self.results: dict[str, bytes] = {}
        """Large ones, by their calls, for who pulls them."""
        self.is_deaf = False
        """It does not answer who pulls."""
        self.on_call: Callable[[Taken], None] = lambda _: None

    async def listen(self) -> None:
        """Hear what a worker hears."""
        await self.bus.subscribe(pool_cancel_subject(POOL), self._on_cancel)
        await self.bus.subscribe(process_cancel_subject(POOL, self.name), self._on_cancel)
        await self.bus.subscribe(pull_subject(POOL, self.name), self._on_pull, asked_by=by_edges)
        await self.bus.subscribe(call_subject(POOL, DEFINITION), self._on_call, "workers", asked_by=replies_to_edge)

    def _on_call(self, message: Incoming) -> None:
        sent = header.read(message.header)
        assert sent is not None
        self.taken.append(Taken(message, sent))
        self.on_call(self.taken[-1])

    def _on_cancel(self, message: Incoming) -> None:
        self.cancels.append((message.subject, Cancel.model_validate_json(message.body)))

    def _on_pull(self, message: Incoming) -> None:
        if self.is_deaf:
            return
        body = self.results.get(Pull.model_validate_json(message.body).call)
        if body is None:
            self.bus.respond(message, b"", header.fault(Fault.UNKNOWN))
        else:
            self.bus.respond(message, body)

    async def call(self, number: int = 0) -> Taken:
        """Wait for a call, counted from the first."""
        await until(lambda: len(self.taken) > number, within=5)
        return self.taken[number]

    async def cancelled(self, number: int = 0) -> tuple[str, Cancel]:
        """Wait for a cancel, counted from the first."""
        await until(lambda: len(self.cancels) > number, within=5)
        return self.cancels[number]

    def frame(self, taken: Taken, kind: FrameKind, body: bytes = b"", line: str | None = None) -> None:
        """Send a frame."""
        self.bus.publish(frame_subject(taken.edge, POOL, taken.id, kind), body, header=line)

    def accept(self, taken: Taken) -> None:
        """Say that the call is here."""
        self.frame(taken, FrameKind.ACCEPTED, b"", f"1 {self.name}")

    def report(self, taken: Taken, value: int) -> None:
        """Say how far the call is."""
        self.frame(taken, FrameKind.PROGRESS, b'{"progress":%d}' % value)

    def finish(self, taken: Taken, text: str = "done") -> None:
        """End the call with a result."""
        self.frame(taken, FrameKind.RESULT, result(text))

    def busy(self, taken: Taken) -> None:
        """Refuse the call."""
        self.bus.respond(taken.message, b"", header.BUSY)

    async def alive(self, edge: Bus, *calls: str, worker: str | None = None) -> AliveAnswer:
        """Tell an edge which of its calls are here."""
        question = Alive(worker=worker or self.name, calls=calls)
        return await ask(self.bus, ALIVE, question, timeout=5, edge=edge.process, pool=POOL)

    def lie(self, edge: Bus, name: str, *calls: str) -> None:
        """Tell an edge under a name of one's own choosing."""
        body = to_json({"worker": name, "calls": calls})
        self.bus.publish(ALIVE.subject_for(edge=edge.process, pool=POOL), body)


def result(text: str) -> bytes:
    """A result as a worker writes it."""
    return result_body({"resultType": "complete", "content": [{"type": "text", "text": text}], "isError": False})


@dataclass
class Answering:
    """A `tools/call` that is being answered."""

    exchange: Exchange
    outcome: str | None = "not yet"
    error: Exception | None = None

    async def run(self, answer: Callable[[], Awaitable[str | None]]) -> None:
        """Answer it in a task of its own."""
        try:
            self.outcome = await answer()
        except Exception as error:
            self.error = error

    async def over(self) -> None:
        """Wait until nothing more is done for it."""
        await until(lambda: self.outcome != "not yet" or self.error is not None, within=8)


class EdgeHarness:
    """An edge that has calls to place, and a worker that hears them."""

    def __init__(self, fabric: Fabric, edge: Bus, pool: Bus, settings: EdgeSettings, tasks: TaskGroup) -> None:
        self.fabric = fabric
        self.edge = edge
        self.settings = settings
        self.worker = PlayedWorker(pool)
        self.instruments = EdgeInstruments(Metrics())
        self.calls = InFlightCalls(edge, settings, fabric.logger)
        self.queue = CallQueue(self.calls, settings, self.instruments)
        self.budget = MemoryBudget(settings.result_room, "MCPFLEET_RESULT_ROOM")
        self.tasks = tasks
        self._ids = itertools.count(1)

    def order(self, *, lasts: float = 10.0, **fields: Any) -> Order:
        """An order of the one definition."""
        chosen: dict[str, Any] = {"pool": POOL, "definition": DEFINITION, "body": b"{}", "trace": None} | fields
        return Order(deadline=time.monotonic() + lasts, **chosen)

    async def accepted(self, **fields: Any) -> tuple[Call, Taken]:
        """A call that the worker has accepted."""
        call = self.calls.place(self.order(**fields))
        taken = await self.worker.call(len(self.worker.taken))
        self.worker.accept(taken)
        await until(lambda: call.worker, within=5)
        return call, taken

    def answer(self, *, token: Any = None, post: Post | None = None, **fields: Any) -> Answering:
        """Begin to answer a client's `tools/call`."""
        exchange = Exchange(post or Post(), parts=[])
        served = exchange.client()
        meta = {} if token is None else {"progressToken": token}
        served.message = Envelope(next(self._ids), "tools/call", {"name": "search"}, meta)
        served.endpoint, served.id, served.revision = "mcp", served.message.id or 0, NEWEST
        served.span = Span(TraceContext(REFERENCE, "0" * 15 + "1", sampled=False))
        served.caller, served.view = ANONYMOUS, VIEW
        log = self.fabric.logger
        parts = CallParts(
            self.calls,
            self.queue,
            LargeResults(self.edge, self.budget, self.settings),
            CallEnds(Continuation(KeySealer("", adopted_after=0, log=log), self.settings), log),
            self.settings,
            log,
        )
        request = CallRequest(served, TARGET, lambda _view: TARGET)
        order = functools.partial(self.order, **fields)
        answering = Answering(exchange)
        self.tasks.start_soon(answering.run, functools.partial(relay.answer, parts, request, order))
        return answering


@asynccontextmanager
async def edge_harness(fabric: Fabric, **settings: Any) -> AsyncIterator[EdgeHarness]:
    """An edge and a worker for the length of a block; what an edge decides by time is set by the test."""
    chosen = EdgeSettings(**(PATIENT | settings))
    async with fabric.buses("edge", "pool-library") as (edge, pool), anyio.create_task_group() as tasks:
        made = EdgeHarness(fabric, edge, pool, chosen, tasks)
        await made.calls.listen()
        await made.worker.listen()
        await heard(edge, pool)
        tasks.start_soon(made.calls.sweep)
        yield made
        tasks.cancel_scope.cancel()


def text_of(message: Any) -> str:
    """The one text of a result."""
    text: str = message["result"]["content"][0]["text"]
    return text


def assert_is_uncertain(answering: Answering) -> None:
    """A tool result that the model reads: it may have run, and how to find out."""
    message = answering.exchange.json
    assert answering.exchange.status == 200
    assert message["result"]["isError"] is True
    assert message["result"]["resultType"] == "complete"
    assert "uncertain" in text_of(message)
    assert REFERENCE in text_of(message)


def large(at: EdgeHarness, taken: Taken, text: str, *, size: int | None = None) -> None:
    """End a call with a result that stays with its worker until it is fetched."""
    body = result(text)
    at.worker.results[taken.id] = body
    at.worker.frame(taken, FrameKind.RESULT, b"", f"1 {at.worker.name} {len(body) if size is None else size}")
