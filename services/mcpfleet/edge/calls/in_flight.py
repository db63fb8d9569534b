"""The calls in flight at this edge: placed on the bus, answered by frames, and ended whichever process dies."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

import anyio
from pydantic import ValidationError
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus import header
from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError, Expired, NotRun
from mcpfleet.bus.header import ending
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.call import (
    ALIVE,
    NO_FLAGS,
    Alive,
    AliveAnswer,
    Cancel,
    FrameKind,
    call_subject,
    edge_subjects,
    pool_cancel_subject,
    process_cancel_subject,
    reply_subject,
)
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.telemetry.trace import TraceContext

_SWEEP_INTERVAL: Final = 0.25
_PROCESS: Final = re.compile(r"[0-9a-f]{16}")


class End(StrEnum):
    """How a call ended."""

    RESULT = "result"
    ERROR = "error"
    """A JSON-RPC error that the application or its worker gave."""
    ASK = "ask"
    """The handler asks its caller, and runs again with the answers."""
    TASK = "task"
    """The call has become a durable task."""
    UNACCEPTED = "unaccepted"
    """No worker said that it had the call; one may have it. Uncertain."""
    LOST = "lost"
    """The worker that had the call is not heard any more. Uncertain."""
    RESULT_LOST = "result_lost"
    """The call ended, and its result could not be fetched. Uncertain, as far as the caller can tell."""
    GIVEN_UP = "given_up"
    """This edge had to leave before the call ended. Uncertain."""
    OVERDUE = "overdue"
    """The worker that has the call did not end it in time. Uncertain."""


_NOTICES: Final = {FrameKind.PROGRESS.value: FrameKind.PROGRESS, FrameKind.LOG.value: FrameKind.LOG}
_OTHER_ENDS: Final = {FrameKind.ERROR.value: End.ERROR, FrameKind.ASK.value: End.ASK, FrameKind.TASK.value: End.TASK}


class Order(NamedTuple):
    """A call to be placed, as often as it is refused without having run."""

    pool: str
    definition: str
    body: bytes
    deadline: float
    """Monotonic seconds at which the caller has its answer, whatever happens."""
    trace: TraceContext | None
    flags: str = ""
    outlives_client: bool = False
    """The work goes on when its client leaves (D12: `on_disconnect="continue"`)."""
    may_be_taken_back: bool = True
    """It ends where its client says that it wants no answer (D12)."""
    on_placed: Callable[[Call], None] | None = None
    """Sees each placing that was sent."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A result that stays with its worker until it is fetched."""

    pool: str
    worker: str
    call: str
    size: int


@dataclass(slots=True, eq=False)
class Call:
    """One placing of an order."""

    id: str
    order: Order
    placed: float
    notices: deque[tuple[FrameKind, bytes]]
    """Progress and log messages that the client has not been sent; when full, the newest win."""
    worker: str | None = None
    heard: float | None = None
    """When the call's worker last spoke of it (monotonic); None before the call is accepted."""
    end: End | None = None
    body: bytes = b""
    """The end's body: the result, the questions or the error object."""
    line: str | None = None
    """The header line of the frame that ended it."""
    remote: Remote | None = None
    """The place of a result that is too large for its frame."""
    refusal: NotRun | None = None
    """Why the call has not run and never will."""
    missed: int = 0
    """How many times in a row its worker did not list it."""
    is_abandoned: bool = False
    """Nobody waits for it any more, and it goes on."""
    _news: bool = False
    _wake: asyncio.Future[bool] | None = field(default=None)

    @property
    def is_settled(self) -> bool:
        """True where nothing more will come."""
        return self.end is not None or self.refusal is not None

    async def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for news since the last wait; False where there are none."""
        if not self._news:
            loop = asyncio.get_running_loop()
            self._wake = loop.create_future()
            timer = loop.call_later(timeout, self._tell, False)
            try:
                await self._wake
            finally:
                timer.cancel()
                self._wake = None
        news, self._news = self._news, False
        return news

    def notify(self) -> None:
        """Let the one who waits know of news."""
        self._news = True
        self._tell(True)

    def _tell(self, news: bool) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(news)


class InFlightCalls:
    """The table of calls in flight. Frames from the bus change it."""

    def __init__(self, bus: Bus, settings: EdgeSettings, log: FilteringBoundLogger) -> None:
        self._bus = bus
        self._settings = settings
        self._log = log
        self._edge = bus.process
        self._open: dict[str, Call] = {}
        self._on_end: Callable[[str], None] = lambda _pool: None
        self.finished = self.cancelled = self.cut = 0
        """Calls that have ended, that nobody wanted any more, and that this edge ended itself."""

    def on_end(self, hear: Callable[[str], None]) -> None:
        """Have somebody hear the pool of each call that ends, which frees a slot there."""
        self._on_end = hear

    def __len__(self) -> int:
        return len(self._open)

    async def listen(self) -> None:
        """Hear all that is addressed to this edge, by one subscription, so that frames and `alive` keep their order."""
        await self._bus.subscribe(edge_subjects(self._edge), self._on_message, asked_by=_alive_sender)

    def place(self, order: Order, flags: str = "") -> Call:
        """Send an order to its pool; the returned call shows its progress and end.

        Raises:
            NotRun: nothing was sent.
        """
        now = time.monotonic()
        call = Call(secrets.token_hex(8), order, now, deque(maxlen=self._settings.notices_kept))
        line = header.write(order.deadline - now, order.trace, call.id, self._edge, order.flags + flags or NO_FLAGS)
        self._open[call.id] = call
        try:
            self._bus.publish(
                call_subject(order.pool, order.definition), order.body, reply_subject(self._edge, call.id), line
            )
        except NotRun:
            del self._open[call.id]
            raise
        if order.on_placed is not None:
            order.on_placed(call)
        return call

    def release(self, call: Call, *, taken_back: bool = False) -> None:
        """Stop waiting for a call. One that is not settled is cancelled, unless it is to go on.

        Args:
            call: one of ours.
            taken_back: its client asked for the cancellation, and did not just leave.
        """
        goes_on = call.order.outlives_client and not (taken_back and call.order.may_be_taken_back)
        if goes_on and not call.is_settled:
            call.is_abandoned = True  # kept until its end, so that `alive` does not count it as unwanted
        elif self._open.pop(call.id, None) is not None and not call.is_settled:
            self.cancelled += 1
            self._cancel(call)

    def drop_result(self, call: Call) -> None:
        """Have a worker drop the result that it keeps for an ended call."""
        self._cancel(call)

    def end_all(self) -> None:
        """End every call as uncertain: this edge leaves."""
        for call in list(self._open.values()):
            if not call.is_settled:
                self._cancel(call)
                self._finish(call, End.GIVEN_UP, b"")

    async def sweep(self) -> None:
        """End calls that will not end by themselves, until cancelled."""
        while True:
            await anyio.sleep(_SWEEP_INTERVAL)
            now = time.monotonic()
            for call in list(self._open.values()):
                if not call.is_settled and (end := self._overdue(call, now)):
                    self._cancel(call)
                    self._finish(call, end, b"")

    def _overdue(self, call: Call, now: float) -> End | None:
        if call.heard is None and now - call.placed > self._settings.unaccepted_after:
            return End.UNACCEPTED
        if call.heard is not None and self._bus.silence(call.heard) > self._settings.lost_after:
            return End.LOST
        return End.OVERDUE if now > call.order.deadline else None

    def _cancel(self, call: Call) -> None:
        """Tell the workers that may have the call; `alive` makes good a cancel that is lost."""
        pool = call.order.pool
        subject = process_cancel_subject(pool, call.worker) if call.worker else pool_cancel_subject(pool)
        body = Cancel(edge=self._edge, call=call.id).model_dump_json().encode()
        try:
            self._bus.publish(subject, body, header=header.write(0, call.order.trace))
        except BusError as error:
            self._log.debug("cancel not sent", call=call.id, error=str(error))

    def _on_message(self, message: Incoming) -> None:
        match message.subject.split("."):
            case [_, _, "frames", pool, identifier, kind]:
                self._on_frame(pool, identifier, kind, message)
            case [_, _, "reply", identifier]:
                self._on_reply(identifier, message)
            case [_, _, "alive", pool]:
                self._on_alive(pool, message)

    def _on_frame(self, pool: str, identifier: str, kind: str, message: Incoming) -> None:
        call = self._open.get(identifier)
        if call is None or call.order.pool != pool or call.is_settled:
            return  # late, doubled, or from a pool that was not asked
        call.heard = time.monotonic()
        if kind != FrameKind.RESULT and len(message.body) > self._settings.frame_limit:
            self._log.error("frame too large", pool=pool, kind=kind, bytes=len(message.body))
            message.body = b""
        if kind == FrameKind.RESULT:
            call.line, call.remote = message.header, _remote(call, message.header)
            self._finish(call, End.RESULT, message.body)
        elif kind == FrameKind.ACCEPTED:
            call.worker = _accepting(message.header)
            call.notify()
        elif kind in _NOTICES:
            call.worker = call.worker or _worker((message.header or "").partition(" ")[2])
            call.notices.append((_NOTICES[kind], message.body))
            call.notify()
        elif kind in _OTHER_ENDS:
            call.line = message.header
            self._finish(call, _OTHER_ENDS[kind], message.body)

    def _on_reply(self, identifier: str, message: Incoming) -> None:
        call = self._open.get(identifier)
        refusal = ending(call_subject(call.order.pool, call.order.definition), message) if call else None
        if call is None or call.is_settled or call.heard is not None or not isinstance(refusal, NotRun):
            return  # whoever has accepted it runs it
        if isinstance(refusal, Expired):
            self._log.warning("clock differs", skew=round(refusal.skew, 1), pool=call.order.pool)
        call.refusal = refusal
        self._settle(call)

    def _finish(self, call: Call, end: End, body: bytes) -> None:
        call.end, call.body = end, body
        if end is End.GIVEN_UP:
            self.cut += 1
        else:
            self.finished += 1
        self._settle(call)
        self._on_end(call.order.pool)

    def _settle(self, call: Call) -> None:
        if call.is_abandoned:
            del self._open[call.id]
        call.notify()

    def _on_alive(self, pool: str, message: Incoming) -> None:
        """Compare a worker's list of our calls with our own, and tell it the difference."""
        try:
            alive = Alive.model_validate_json(message.body)
        except ValidationError:
            self._log.warning("malformed alive", pool=pool)
            return
        if _worker(alive.worker) is None:
            self._log.warning("malformed alive", pool=pool)
            return
        unwanted = self._hear_of(pool, alive.worker, alive.calls)
        missing = self._missing(pool, alive.worker, frozenset(alive.calls))
        answer = AliveAnswer(unwanted=tuple(unwanted), missing=tuple(missing))
        self._bus.respond(message, answer.model_dump_json().encode())

    def _hear_of(self, pool: str, worker: str, listed: Iterable[str]) -> list[str]:
        unwanted = []
        now = time.monotonic()
        for identifier in listed:
            call = self._open.get(identifier)
            if call is None or call.order.pool != pool or call.is_settled:
                unwanted.append(identifier)
            else:
                call.heard, call.worker, call.missed = now, worker, 0
        return unwanted

    def _missing(self, pool: str, worker: str, listed: frozenset[str]) -> list[str]:
        missing = []
        for call in list(self._open.values()):
            if call.worker != worker or call.order.pool != pool or call.is_settled or call.id in listed:
                continue
            call.missed += 1
            if call.missed > 1:  # its end was asked for once, and did not come: the worker does not have it any more
                self._finish(call, End.LOST, b"")
            else:
                missing.append(call.id)
        return missing


def _alive_sender(subject: str) -> str:
    """Return the inbox of an `alive`'s pool; an edge answers nothing else that is addressed to it."""
    return ALIVE.replies(subject) if subject.split(".")[2:3] == ["alive"] else "inbox.nobody."


def _worker(name: str) -> str | None:
    """A worker's id, where it is one: it becomes a part of subjects, and a worker may say anything."""
    return name if _PROCESS.fullmatch(name) else None


def _accepting(line: str | None) -> str | None:
    """Read who has accepted a call from the frame's line; a later release may add words."""
    match (line or "").split(" "):
        case [_, worker, *_]:
            return _worker(worker)
    return None


def _remote(call: Call, line: str | None) -> Remote | None:
    """Read where a result is from its frame's line; none where it is in the frame."""
    match (line or "").split(" "):
        case [_, worker, size, *_] if size.isdecimal() and len(size) <= 10 and _worker(worker):
            return Remote(call.order.pool, worker, call.id, int(size))
    return None
