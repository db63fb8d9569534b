"""The worker's side of calls on the bus: takes them or says busy, sends frames, hears cancels, says what is alive."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Final

import anyio
from pydantic import ValidationError
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus import header
from mcpfleet.bus.actor import is_fresh
from mcpfleet.bus.bus import Bus, Subscription
from mcpfleet.bus.errors import BusError
from mcpfleet.bus.exchange import ask
from mcpfleet.bus.fault import Fault
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.call import (
    ALIVE,
    WANTS_ACCEPTED,
    WANTS_PROGRESS,
    Alive,
    Cancel,
    FrameKind,
    Pull,
    call_subject,
    frame_subject,
    pool_cancel_subject,
    process_cancel_subject,
    pull_subject,
)
from mcpfleet.telemetry.instruments import WorkerInstruments
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.worker.ends import Ends
from mcpfleet.worker.frames import Ended, Report
from mcpfleet.worker.progress_rate import ProgressRate
from mcpfleet.worker.settings import WorkerSettings
from mcpfleet.worker.table import Held, Key, Table, Verdict

_TICK: Final = 0.1
_GROUP: Final = "workers"


class CallActor:
    """Holds calls. It lives on the bus's loop; handlers run elsewhere, take orders, and are heard by `hear`."""

    def __init__(
        self,
        bus: Bus,
        pool: str,
        settings: WorkerSettings,
        *,
        order: Callable[[Held | Key], None],
        instruments: WorkerInstruments,
        log: FilteringBoundLogger,
    ) -> None:
        """Describe the worker.

        Args:
            bus: the worker's bus.
            pool: the pool whose calls it takes.
            settings: slots, intervals and bounds.
            order: tells the handlers' side to run a call, or to cancel the one of this name.
            instruments: where slots and refusals are counted.
            log: for what an operator should know.
        """
        self._bus = bus
        self._pool = pool
        self._settings = settings
        self._order = order
        self._instruments = instruments
        self._log = log
        self._table = Table(slots=settings.slots, queue=settings.queue)
        self._ends = Ends(settings.ends_limit)
        self._edges_heard: dict[str, float] = {}
        self._groups: list[Subscription] = []
        self._idle = anyio.Event()
        instruments.slots.set(settings.slots)

    async def listen(self, definitions: list[str]) -> None:
        """Hear cancels, then take calls of these definitions."""
        await self._bus.subscribe(pool_cancel_subject(self._pool), self._on_cancel)
        await self._bus.subscribe(process_cancel_subject(self._pool, self._bus.process), self._on_cancel)
        await self._bus.subscribe(pull_subject(self._pool, self._bus.process), self._on_pull)
        for definition in definitions:
            subject = call_subject(self._pool, definition)
            self._groups.append(await self._bus.subscribe(subject, self._on_call, _GROUP))

    async def drain(self) -> None:
        """Take no new call, and wait until those that are held have ended."""
        async with anyio.create_task_group() as tasks:
            for subscription in self._groups:
                tasks.start_soon(self._bus.leave, subscription)
        self._log.info("takes no new calls", held=len(self._table))
        while len(self._table):
            self._idle = anyio.Event()
            await self._idle.wait()

    # -- what arrives -------------------------------------------------------------------------------------------------

    def _on_call(self, message: Incoming) -> None:
        """Decide about a call without waiting."""
        sent = header.read(message.header)
        if sent is None or len(sent.extra) < 3 or not is_fresh(sent, self._settings):
            self._log.warning("expired call", subject=message.subject, sent=sent and sent.at)
            self._bus.respond(message, b"", header.expired())
            return
        call, edge, flags = sent.extra[:3]
        now = time.monotonic()
        held = Held(
            key=Key(edge, call),
            definition=message.subject.split(".")[2],
            subject=message.subject,
            body=message.body,
            deadline=now + sent.left - self._settings.bus_hop_margin,
            trace=sent.trace or TraceContext.fresh(sampled=False),
            wants_progress=WANTS_PROGRESS in flags,
            progress=ProgressRate(self._settings.progress_rate, now),
        )
        verdict = Verdict.DROP if self._ends.get(held.key) else self._table.take(held)
        if verdict is Verdict.BUSY:
            self._instruments.busy.add(1)
            self._bus.respond(message, b"", header.BUSY)
            return
        if verdict is Verdict.DROP:
            return
        if WANTS_ACCEPTED in flags:
            self._accept(held)
        if verdict is Verdict.RUN:
            self._start(held)

    def _on_cancel(self, message: Incoming) -> None:
        try:
            cancel = Cancel.model_validate_json(message.body)
        except ValidationError:
            self._log.warning("malformed cancel")
            return
        self._cancel(Key(cancel.edge, cancel.call))

    def _on_pull(self, message: Incoming) -> None:
        """Answer with a result that an edge has room for now."""
        try:
            pull = Pull.model_validate_json(message.body)
        except ValidationError:
            self._bus.respond(message, b"", header.fault(Fault.CONTRACT))
            return
        ended = self._ends.get(Key(pull.edge, pull.call))
        if ended is None:
            self._bus.respond(message, b"the result is not kept any more", header.fault(Fault.UNKNOWN))
        else:
            self._bus.respond(message, ended.body)

    def _cancel(self, key: Key) -> None:
        if self._ends.get(key) is None and self._table.cancel(key) is not None:
            self._order(key)

    # -- what the handlers' loop says ---------------------------------------------------------------------------------

    def hear(self, frame: Report | Ended) -> None:
        """Hear of a call what its handler's side says."""
        if isinstance(frame, Ended):
            self._end(frame)
        else:
            self._report(frame)

    def _report(self, report: Report) -> None:
        """Send a call's progress, or keep it until its rate lets it go."""
        held = self._table.get(report.key)
        if held is not None and not held.is_cancelled:
            due = held.progress.offer(report.body, time.monotonic())
            if due is not None:
                self._send(held, FrameKind.PROGRESS, due)

    def _end(self, ended: Ended) -> None:
        """Send a call's end and free its slot."""
        held = self._table.get(ended.key)
        if held is None:
            return
        if not held.is_cancelled:
            last = held.progress.last()
            if last is not None:
                self._send(held, FrameKind.PROGRESS, last)
            self._ends.keep(ended, time.monotonic())
            self._send_end(ended)
        following = self._table.end(held)
        if following is not None:
            self._start(following)
        elif not len(self._table):
            self._idle.set()
        self._instruments.slots_used.set(self._table.running)

    def _start(self, held: Held) -> None:
        self._instruments.slots_used.set(self._table.running)
        self._order(held)

    # -- frames -------------------------------------------------------------------------------------------------------

    def _accept(self, held: Held) -> None:
        self._send(held, FrameKind.ACCEPTED, b"", f"1 {self._bus.process}")

    def _send(self, held: Held, kind: FrameKind, body: bytes, line: str | None = None) -> None:
        held.has_spoken = True
        self._publish(held.key, kind, body, line)

    def _send_end(self, ended: Ended) -> None:
        """Send an end; a large result stays here, and its frame says where it is and how large."""
        body, line = ended.body, ended.header
        if ended.kind is FrameKind.RESULT and len(body) > self._settings.inline_result:
            body, line = b"", f"1 {self._bus.process} {len(body)}"
        self._publish(ended.key, ended.kind, body, line)

    def _publish(self, key: Key, kind: FrameKind, body: bytes, line: str | None) -> None:
        """Send a frame; one that is lost is made good by `alive`, which finds the difference."""
        try:
            self._bus.publish(frame_subject(key.edge, self._pool, key.call, kind), body, header=line)
        except BusError as error:
            self._log.debug("frame not sent", kind=kind, error=str(error))

    # -- timers -------------------------------------------------------------------------------------------------------

    async def tick(self) -> None:
        """Say `accepted` for calls that said nothing, and let progress go whose time has come, until cancelled."""
        while True:
            await anyio.sleep(min(_TICK, self._settings.accepted_after / 2))
            now = time.monotonic()
            for held in self._table.all():
                if not held.has_spoken and now - held.taken >= self._settings.accepted_after:
                    self._accept(held)
                due = held.progress.due(now)
                if due is not None and not held.is_cancelled:
                    self._send(held, FrameKind.PROGRESS, due)

    async def keep_alive(self) -> None:
        """Tell each edge at every interval which of its calls are here, until cancelled."""
        while True:
            await anyio.sleep(self._settings.alive_interval)
            since = self._bus.proven_since
            if since is None:
                continue  # silence counts only while our own link is proven, and so does the time that an end is kept
            self._ends.forget_before(time.monotonic() - self._settings.end_kept)
            calls: defaultdict[str, list[str]] = defaultdict(list)
            for held in self._table.all():
                if not held.is_cancelled:
                    calls[held.key.edge].append(held.key.call)
            async with anyio.create_task_group() as tasks:
                for edge in calls.keys() | self._ends.edges():
                    tasks.start_soon(self._tell_alive, edge, tuple(calls[edge]))
            self._edges_heard = {edge: heard for edge, heard in self._edges_heard.items() if edge in calls}

    async def _tell_alive(self, edge: str, calls: tuple[str, ...]) -> None:
        heard = self._edges_heard.setdefault(edge, time.monotonic())
        question = Alive(worker=self._bus.process, calls=calls)
        try:
            answer = await ask(
                self._bus, ALIVE, question, timeout=self._settings.alive_interval, edge=edge, pool=self._pool
            )
        except BusError as error:
            if self._bus.silence(heard) > self._settings.lost_after:
                self._log.warning("edge lost", edge=edge, calls=len(calls), error=str(error))
                for call in calls:
                    self._cancel(Key(edge, call))
            return
        self._edges_heard[edge] = time.monotonic()
        for call in answer.unwanted:
            self._cancel(Key(edge, call))
        for call in answer.missing:
            ended = self._ends.get(Key(edge, call))
            if ended is not None:
                self._send_end(ended)
