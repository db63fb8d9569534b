"""The actor of calls: it takes calls or answers busy, sends frames, and hears cancels. It lives on the bus's loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

import anyio
from pydantic import ValidationError

from mcpfleet.bus import header
from mcpfleet.bus.actor import is_fresh
from mcpfleet.bus.bus import Subscription
from mcpfleet.bus.errors import BusError, Fault, NotRun, TooLarge
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.call import (
    NO_FLAGS,
    OUTCOME_ONLY,
    SANITIZES,
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
from mcpfleet.contracts.permissions import pool_user
from mcpfleet.contracts.places import handed_call_subject
from mcpfleet.process.auto_reset_event import AutoResetEvent
from mcpfleet.process.task_owner import TaskOwner
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.worker.bus_side import BusSide
from mcpfleet.worker.calls.liveness import Liveness
from mcpfleet.worker.calls.recent_ends import RecentEnds
from mcpfleet.worker.calls.table import HeldCall, Placement, ProgressRate, Table
from mcpfleet.worker.result_encoder import given_up
from mcpfleet.worker.slots import Slots
from mcpfleet.worker.work import CallKey, Ended, HandedTo, Logged, Order, Purpose, Report

_TICK: Final = 0.1
"""Seconds between two looks at what is due, at most."""
_GROUP: Final = "workers"
_HANDED_WITHIN: Final = 5.0
"""Seconds in which a worker must say that it takes a call which is handed on to it."""


class CallActor:
    """Holds calls. Their handlers run on another loop, which takes orders and answers with frames."""

    def __init__(self, side: BusSide, slots: Slots, order: Callable[[Order], None]) -> None:
        """Take no call yet.

        Args:
            side: the worker on its bus.
            slots: the worker's.
            order: tells the handlers' loop to run a call, or to cancel its run.
        """
        self._side = side
        self._bus = side.bus
        self._settings = side.settings
        self._log = side.log
        self._slots = slots
        self._order = order
        self._table = Table(slots, queue=side.settings.queue)
        self._ends = RecentEnds(side.settings.ends_limit)
        self._liveness = Liveness(side, table=self._table, ends=self._ends, holder=self)
        self._offered: Mapping[str, Kind] = {}
        self._kinds: Mapping[str, Kind] = {}
        """The kinds of definitions that are offered, or whose calls are still held."""
        self._groups: dict[str, Subscription] = {}
        self._is_leaving = False
        self.finished = self.cancelled = self.cut = 0
        """Calls that ended, were cancelled, and were given up, since this worker leaves."""
        self._idle = AutoResetEvent()
        self._handing = TaskOwner()
        slots.on_free = self._start_next

    async def listen(self, definitions: Mapping[str, Kind]) -> None:
        """Hear cancels, then take calls of these definitions: the kind of each, by its digest."""
        await self._bus.subscribe(pool_cancel_subject(self._side.pool), self._on_cancel)
        await self._bus.subscribe(process_cancel_subject(self._side.pool, self._bus.process), self._on_cancel)
        pulls = pull_subject(self._side.pool, self._bus.process)
        await self._bus.subscribe(pulls, self._on_pull, asked_by=lambda _subject: "inbox.edge.")
        handed = handed_call_subject(self._side.pool, self._bus.process)
        own = f"inbox.{pool_user(self._side.pool)}."
        await self._bus.subscribe(handed, self._on_handed_call, asked_by=lambda _subject: own)
        await self.join(definitions)

    async def join(self, definitions: Mapping[str, Kind]) -> None:
        """Take calls of these definitions too, and go on with the others until `leave_others`."""
        self._offered = definitions
        self._kinds = {**self._kinds, **definitions}
        if not self._slots.is_blocked:
            await self._join()

    async def leave_others(self) -> None:
        """Take no new call of a definition that is not offered any more."""
        gone = [self._groups.pop(definition) for definition in self._groups.keys() - self._offered.keys()]
        await self._leave(gone)
        kept = {*self._offered, *self.held_definitions()}
        self._kinds = {definition: kind for definition, kind in self._kinds.items() if definition in kept}

    def held(self) -> list[tuple[str, float]]:
        """Return the definitions of the calls that are held, and since when."""
        return [(call.definition, call.taken) for call in self._table.all()]

    def held_definitions(self) -> set[str]:
        """The definitions whose calls are held, running or waiting."""
        return {call.definition for call in self._table.all()}

    async def hear_blocked(self, is_blocked: bool) -> None:  # it is a callback
        """Leave the groups while nothing can start here, so that new calls go to the pool's other workers."""
        self._slots.is_blocked = is_blocked
        if is_blocked:
            await self._leave_all()
            self._log.warning("calls left to other workers", held=len(self._table))
        else:
            await self._join()

    async def _join(self) -> None:
        for definition in list(self._offered):
            if self._is_leaving:  # it may have begun meanwhile
                await self._leave_all()
                return
            if definition not in self._groups:
                subject = call_subject(self._side.pool, definition)
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
        self._log.info("stopped taking calls", held=len(self._table))
        while len(self._table):
            await self._idle.wait()
        # A large result is still here when its call has ended: its edge fetches it when it has room.
        with anyio.move_on_after(self._settings.end_kept):
            while not self._ends.are_fetched:
                await self._idle.wait()

    def give_up(self) -> None:
        """Tell the edges that the calls which are still held will not end: this worker may not drain any longer."""
        held = self._table.all()
        self.cut = len(held)
        if held:
            self._log.error("calls given up", held=len(held), setting="MCPFLEET_DRAIN")
        for call in held:
            self._send_end(call.key, given_up(call, self._kinds[call.definition]))

    def send_again(self, key: CallKey) -> None:
        """Send the end of a call again, if it is still kept."""
        ended = self._ends.get(key)
        if ended is not None:
            self._send_end(key, ended)

    async def keep_alive(self) -> None:
        """Tell each edge at every interval which of its calls are here, and hand calls on, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._handing.run)
            await self._liveness.run()

    def _look_idle(self) -> None:
        if not len(self._table):
            self._idle.set()

    # -- messages from edges ------------------------------------------------------------------------------------------

    def _on_call(self, message: Incoming) -> None:
        """Decide about a call without waiting."""
        sent = header.read(message.header)
        if sent is None or len(sent.extra) < 3 or not is_fresh(sent, self._settings):
            self._log.warning("expired call", subject=message.subject, sent=sent and sent.at)
            self._bus.respond(message, b"", header.expired())
            return
        placement, call = self._place(sent, message.subject.split(".")[2], message.body)
        if placement is Placement.BUSY:
            self._side.instruments.busy.add(1)
            self._bus.respond(message, b"", header.BUSY)
        elif placement is not Placement.DROP:
            self._begin(call, placement)

    def _on_handed_call(self, message: Incoming) -> None:
        """Decide about a call that another worker hands on, since its caller's connection is here."""
        line, _, rest = message.body.partition(b"\n")
        named, _, body = rest.partition(b"\n")
        sent, definition = header.read(line.decode(errors="replace")), named.decode(errors="replace")
        request = header.read(message.header)
        is_ours = not self._is_leaving and definition in self._kinds
        if sent is None or len(sent.extra) < 3 or request is None or not is_fresh(request, self._settings):
            self._bus.respond(message, b"", header.expired())
            return
        placement, call = self._place(sent, definition, body) if is_ours else (Placement.BUSY, None)
        if call is None or placement in (Placement.BUSY, Placement.DROP):
            self._bus.respond(message, b"", header.BUSY)
            return
        self._bus.respond(message, b"")
        self._accept(call)
        self._begin(call, placement)

    def _place(self, sent: header.Sent, definition: str, body: bytes) -> tuple[Placement, HeldCall]:
        """Decide about a call, and hold it if it stays."""
        name, edge, flags = sent.extra[:3]
        now, wants_progress = time.monotonic(), WANTS_PROGRESS in flags
        call = HeldCall(
            key=CallKey(edge, name),
            definition=definition,
            subject=call_subject(self._side.pool, definition),
            body=body,
            deadline=now + sent.left - self._settings.bus_hop_margin,
            trace=sent.trace or TraceContext.fresh(sampled=False),
            purpose=_purpose(flags),
            wants_progress=wants_progress,
            progress=ProgressRate(self._settings.progress_rate, now) if wants_progress else None,
            taken=now,
            flags=flags,
        )
        placement = Placement.DROP if self._ends.get(call.key) else self._table.place(call)
        return placement, call

    def _begin(self, call: HeldCall, placement: Placement) -> None:
        """Say `accepted` where others wait for that, and run a call that has a slot."""
        if WANTS_ACCEPTED in call.flags and not call.has_spoken:
            self._accept(call)
        if placement is Placement.RUN:
            self._order(call)

    def _on_cancel(self, message: Incoming) -> None:
        try:
            cancel = Cancel.model_validate_json(message.body)
        except ValidationError:
            self._log.warning("malformed cancel")
            return
        self.cancel(CallKey(cancel.edge, cancel.call))

    def _on_pull(self, message: Incoming) -> None:
        """Answer with a result that an edge has room for now."""
        try:
            pull = Pull.model_validate_json(message.body)
        except ValidationError:
            self._bus.respond(message, b"", header.fault(Fault.CONTRACT))
            return
        key = CallKey(pull.edge, pull.call)
        ended = self._ends.get(key)
        if ended is None:
            self._bus.respond(message, b"the result is not kept any more", header.fault(Fault.UNKNOWN))
        else:
            self._bus.respond(message, ended.body)
            self._ends.fetched(key)
            self._look_idle()

    def cancel(self, key: CallKey) -> None:
        """Cancel a call, or remember the cancel of one that has not come."""
        if self._ends.get(key) is not None:
            self._ends.fetched(key)
            self._look_idle()
        elif self._table.cancel(key) is not None:
            self._order(key)

    # -- frames of handlers -------------------------------------------------------------------------------------------

    def report(self, report: Report) -> None:
        """Send a call's progress, or keep it until its rate lets it go."""
        call = self._table.get(report.key)
        if call is not None and call.progress is not None and not call.is_cancelled:
            due = call.progress.offer(report.body, time.monotonic())
            if due is not None:
                self._send(call, FrameKind.PROGRESS, due)

    def log(self, logged: Logged) -> None:
        """Send a message for the log of a call's client."""
        call = self._table.get(logged.key)
        if call is not None and not call.is_cancelled:
            self._send(call, FrameKind.LOG, logged.body)

    def end(self, key: CallKey, ended: Ended) -> None:
        """Send a call's end and free its slot."""
        call = self._table.get(key)
        if call is None:
            return
        if ended.handed_to is not None and not call.is_cancelled:
            if self._handing.start(self._hand_on, call, ended, ended.handed_to):
                return
            ended = replace(ended, handed_to=None)
        if self._is_leaving:
            self.cancelled += call.is_cancelled
            self.finished += not call.is_cancelled
        if not call.is_cancelled:
            if call.progress is not None and (last := call.progress.last()) is not None:
                self._send(call, FrameKind.PROGRESS, last)
            self._ends.keep(key, ended, time.monotonic())
            self._send_end(key, ended)
        self._table.end(call)
        self._look_idle()

    async def _hand_on(self, call: HeldCall, refused: Ended, to: HandedTo) -> None:
        """Hand a call on to the worker that has its caller's connection, and hold it until that one has it (B16)."""
        left = call.deadline - time.monotonic() + self._settings.bus_hop_margin
        line = header.write(left, call.trace, call.key.call, call.key.edge, call.flags or NO_FLAGS)
        body = b"%b\n%b\n%b" % (line.encode(), call.definition.encode(), call.body)
        subject = handed_call_subject(self._side.pool, to.worker)
        ended = refused
        try:
            await self._bus.request(subject, body, timeout=_HANDED_WITHIN)
            call.is_cancelled = True  # its frames come from there from now on, and none from here
        except NotRun as error:
            self._log.info("call not handed on", worker=to.worker, error=str(error))
        except BusError as error:
            self._log.warning("call lost where it was handed on", worker=to.worker, error=str(error))
            ended = Ended(call.key, *to.doubt)
        self.end(call.key, replace(ended, handed_to=None))

    def hand_over(self, key: CallKey, task: str) -> bool:
        """Tell a call's edge that the call has become a task, which goes on in its slot.

        Returns:
            False if nobody waits for the call any more.
        """
        call = self._table.get(key)
        if call is None:
            return False
        self._table.hand_over(call)
        if not call.is_cancelled:
            ended = Ended(key, FrameKind.TASK, task.encode())
            self._ends.keep(key, ended, time.monotonic())
            self._send_end(key, ended)
        self._look_idle()
        return not call.is_cancelled

    def _start_next(self) -> None:
        call = self._table.next()
        if call is not None:
            self._order(call)

    # -- frames to edges ----------------------------------------------------------------------------------------------

    def _accept(self, call: HeldCall) -> None:
        self._send(call, FrameKind.ACCEPTED, b"", f"1 {self._bus.process}")

    def _send(self, call: HeldCall, kind: FrameKind, body: bytes, line: str | None = None) -> None:
        if not call.has_spoken:
            line = line or f"1 {self._bus.process}"  # the first frame says who sends, so that a cancel finds us
        call.has_spoken = True
        self._publish(call.key, kind, body, line)

    def _send_end(self, key: CallKey, ended: Ended) -> None:
        """Send an end. A large result stays here, and its frame says where it is and how large."""
        body, line = ended.body, ended.header
        if ended.kind is FrameKind.RESULT and len(body) > self._settings.inline_result:
            self._ends.await_fetch(key)
            body, line = b"", f"1 {self._bus.process} {len(body)}"
        self._publish(key, ended.kind, body, line)

    def _publish(self, key: CallKey, kind: FrameKind, body: bytes, line: str | None) -> None:
        """Send a frame; `alive` finds a frame that is lost, and makes it good."""
        try:
            self._bus.publish(frame_subject(key.edge, self._side.pool, key.call, kind), body, header=line)
        except TooLarge as error:
            self._log.error("frame not sent", kind=kind, error=str(error))
        except BusError as error:
            self._log.debug("frame not sent", kind=kind, error=str(error))

    async def tick(self) -> None:
        """Say `accepted` for calls that said nothing, and send progress whose time has come, until cancelled."""
        while True:
            await anyio.sleep(min(_TICK, self._settings.accepted_after / 2))
            now = time.monotonic()
            for call in self._table.all():
                if not call.has_spoken and now - call.taken >= self._settings.accepted_after:
                    self._accept(call)
                if call.progress is None or call.is_cancelled:
                    continue
                due = call.progress.due(now)
                if due is not None:
                    self._send(call, FrameKind.PROGRESS, due)


def _purpose(flags: str) -> Purpose:
    if OUTCOME_ONLY in flags:
        return Purpose.OUTCOME
    return Purpose.SANITIZE if SANITIZES in flags else Purpose.RESULT
