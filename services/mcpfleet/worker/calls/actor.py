"""The worker's side of calls on the bus: takes them or says busy, sends frames, hears cancels, says what is alive."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import anyio
from pydantic import ValidationError
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus import header
from mcpfleet.bus.actor import is_fresh
from mcpfleet.bus.bus import Bus, Subscription
from mcpfleet.bus.errors import BusError, Fault, TooLarge
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.call import (
    OUTCOME_ONLY,
    SHOWS,
    WANTS_ACCEPTED,
    WANTS_PROGRESS,
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
from mcpfleet.contracts.manifest import Kind
from mcpfleet.telemetry.instruments import WorkerInstruments
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.worker.calls.liveness import Liveness
from mcpfleet.worker.calls.recent_ends import RecentEnds
from mcpfleet.worker.calls.table import Held, Key, Placement, Table
from mcpfleet.worker.frames import Ended, Frame, Logged, Report
from mcpfleet.worker.progress_rate import ProgressRate
from mcpfleet.worker.result_encoder import given_up
from mcpfleet.worker.settings import WorkerSettings

_TICK: Final = 0.1
_GROUP: Final = "workers"


def _nobody(_said: Frame) -> None:
    pass


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
        self._ends = RecentEnds(settings.ends_limit)
        self._alive = Liveness(bus, pool, settings, table=self._table, ends=self._ends, holder=self, log=log)
        self._offered: Mapping[str, Kind] = {}
        self._kinds: Mapping[str, Kind] = {}
        """Of what is offered, and of what is not any more and whose calls are still held."""
        self._groups: dict[str, Subscription] = {}
        self._hear_tasks: Callable[[Frame], None] = _nobody
        self.is_blocked = False
        """A handler holds the loop, so that nothing starts here."""
        self._is_leaving = False
        self._idle = anyio.Event()
        instruments.slots.set(settings.slots)

    async def listen(self, definitions: Mapping[str, Kind]) -> None:
        """Hear cancels, then take calls of these definitions: their digests, and what kind each is."""
        await self._bus.subscribe(pool_cancel_subject(self._pool), self._on_cancel)
        await self._bus.subscribe(process_cancel_subject(self._pool, self._bus.process), self._on_cancel)
        pulls = pull_subject(self._pool, self._bus.process)
        await self._bus.subscribe(pulls, self._on_pull, asked_by=lambda _subject: "inbox.edge.")
        await self.join(definitions)

    async def join(self, definitions: Mapping[str, Kind]) -> None:
        """Take calls of these definitions too, and go on with the others until `leave_others`."""
        self._offered = definitions
        self._kinds = {**self._kinds, **definitions}
        if not self.is_blocked:
            await self._join()

    async def leave_others(self) -> None:
        """Take no new call of what is not offered any more."""
        gone = [self._groups.pop(definition) for definition in self._groups.keys() - self._offered.keys()]
        await self._leave(gone)
        kept = {*self._offered, *self.held_definitions()}
        self._kinds = {definition: kind for definition, kind in self._kinds.items() if definition in kept}

    def held_definitions(self) -> set[str]:
        """The definitions whose calls are held, running or waiting."""
        return {held.definition for held in self._table.all()}

    async def hear_blocked(self, is_blocked: bool) -> None:  # it is a callback
        """Leave the groups while nothing can start here, so that new calls go to the pool's other workers."""
        self.is_blocked = is_blocked
        if is_blocked:
            await self._leave_all()
            self._log.warning("takes no new calls until its handlers' loop runs again", held=len(self._table))
        else:
            await self._join()

    async def _join(self) -> None:
        for definition in list(self._offered):
            if self._is_leaving:  # which may have begun meanwhile
                await self._leave_all()
                return
            if definition not in self._groups:
                subject = call_subject(self._pool, definition)
                joined = await self._bus.subscribe(subject, self._on_call, _GROUP, asked_by=replies_to_edge)
                self._groups[definition] = joined

    async def _leave_all(self) -> None:
        groups, self._groups = self._groups, {}
        await self._leave(groups.values())

    async def _leave(self, groups: Iterable[Subscription]) -> None:
        async with anyio.create_task_group() as tasks:
            for subscription in groups:
                tasks.start_soon(self._bus.leave, subscription)

    async def drain(self) -> None:
        """Take no new call, and wait until those that are held have ended."""
        self._is_leaving = True
        await self._leave_all()
        self._log.info("takes no new calls", held=len(self._table))
        while len(self._table):
            self._idle = anyio.Event()
            await self._idle.wait()
        # A large result is still here when its call has ended: its edge fetches it when it has room.
        with anyio.move_on_after(self._settings.end_kept):
            while not self._ends.are_fetched:
                self._idle = anyio.Event()
                await self._idle.wait()

    def give_up(self) -> None:
        """Tell the edges that what is still held will not end: this worker has no more time to drain."""
        held = self._table.all()
        if held:
            self._log.error("calls are given up", held=len(held), setting="MCPFLEET_DRAIN")
        for call in held:
            self._send_end(given_up(call, self._kinds[call.definition]))

    def send_again(self, key: Key) -> None:
        """Send the end of a call again, if it is still kept."""
        ended = self._ends.get(key)
        if ended is not None:
            self._send_end(ended)

    async def keep_alive(self) -> None:
        """Tell each edge at every interval which of its calls are here, until cancelled."""
        await self._alive.run()

    def _look_idle(self) -> None:
        if not len(self._table):
            self._idle.set()

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
            outcome_only=OUTCOME_ONLY in flags,
            shows=SHOWS in flags,
        )
        verdict = Placement.DROP if self._ends.get(held.key) else self._table.take(held)
        if verdict is Placement.BUSY:
            self._instruments.busy.add(1)
            self._bus.respond(message, b"", header.BUSY)
            return
        if verdict is Placement.DROP:
            return
        if WANTS_ACCEPTED in flags:
            self._accept(held)
        if verdict is Placement.RUN:
            self._start(held)

    def _on_cancel(self, message: Incoming) -> None:
        try:
            cancel = Cancel.model_validate_json(message.body)
        except ValidationError:
            self._log.warning("malformed cancel")
            return
        self.cancel(Key(cancel.edge, cancel.call))

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
            self._ends.fetched(ended.key)
            self._look_idle()

    def cancel(self, key: Key) -> None:
        """Cancel a call, or remember the cancel of one that has not come."""
        if self._ends.get(key) is not None:
            self._ends.fetched(key)
            self._look_idle()
        elif self._table.cancel(key) is not None:
            self._order(key)

    # -- what the handlers' loop says ---------------------------------------------------------------------------------

    def hear(self, frame: Frame) -> None:
        """Hear of a call what its handler's side says."""
        if isinstance(frame, Ended):
            self._end(frame)
        elif isinstance(frame, Logged):
            held = self._table.get(frame.key)
            if held is not None and not held.is_cancelled:
                self._send(held, FrameKind.LOG, frame.body)
        else:
            self._report(frame)

    def _report(self, report: Report) -> None:
        """Send a call's progress, or keep it until its rate lets it go."""
        held = self._table.get(report.key)
        if held is not None and not held.is_cancelled:
            due = held.progress.offer(report.body, time.monotonic())
            if due is not None:
                self._send(held, FrameKind.PROGRESS, due)
        elif held is None:
            self._hear_tasks(report)

    def _end(self, ended: Ended) -> None:
        """Send a call's end and free its slot."""
        held = self._table.get(ended.key)
        if held is None:
            self._hear_tasks(ended)
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
        self._look_idle()
        self._instruments.slots_used.set(self._table.running)

    def _start(self, held: Held) -> None:
        self._instruments.slots_used.set(self._table.running)
        self._order(held)

    # -- tasks --------------------------------------------------------------------------------------------------------

    def on_task(self, hear: Callable[[Frame], None]) -> None:
        """Have somebody hear what the handlers' side says of what is no call."""
        self._hear_tasks = hear

    @property
    def free_slots(self) -> int:
        """Slots that nothing runs in."""
        return self._table.free

    def occupy(self) -> None:
        """Take a slot for a task."""
        self._table.occupy()
        self._instruments.slots_used.set(self._table.running)

    def vacate(self) -> None:
        """Free it."""
        following = self._table.vacate()
        if following is not None:
            self._start(following)
        self._instruments.slots_used.set(self._table.running)

    def hand_over(self, held: Held, task: str) -> bool:
        """Tell a call's edge that it has become a task, which goes on in its slot.

        Returns:
            False where nobody waits for the call any more.
        """
        self._table.hand_over(held)
        if not held.is_cancelled:
            ended = Ended(held.key, FrameKind.TASK, task.encode())
            self._ends.keep(ended, time.monotonic())
            self._send_end(ended)
        self._look_idle()
        return not held.is_cancelled

    # -- frames -------------------------------------------------------------------------------------------------------

    def _accept(self, held: Held) -> None:
        self._send(held, FrameKind.ACCEPTED, b"", f"1 {self._bus.process}")

    def _send(self, held: Held, kind: FrameKind, body: bytes, line: str | None = None) -> None:
        if not held.has_spoken:
            line = line or f"1 {self._bus.process}"  # whoever speaks first says who it is, for whoever asks later
        held.has_spoken = True
        self._publish(held.key, kind, body, line)

    def _send_end(self, ended: Ended) -> None:
        """Send an end; a large result stays here, and its frame says where it is and how large."""
        body, line = ended.body, ended.header
        if ended.kind is FrameKind.RESULT and len(body) > self._settings.inline_result:
            self._ends.await_fetch(ended.key)
            body, line = b"", f"1 {self._bus.process} {len(body)}"
        self._publish(ended.key, ended.kind, body, line)

    def _publish(self, key: Key, kind: FrameKind, body: bytes, line: str | None) -> None:
        """Send a frame; one that is lost is made good by `alive`, which finds the difference."""
        try:
            self._bus.publish(frame_subject(key.edge, self._pool, key.call, kind), body, header=line)
        except TooLarge as error:
            self._log.error("frame not sent", kind=kind, error=str(error))
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
