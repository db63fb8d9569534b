"""A process's one way to the others: links that are replaced, a table of subscriptions, requests with five ends."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.abc import TaskStatus
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus import header
from mcpfleet.bus.errors import BusError, Busy, Expired, Failed, NoResponders, NotRun, Refused, Unanswered, Unavailable
from mcpfleet.bus.port import ConnectFailed, Connector, Deliver, Incoming, Interest, Link
from mcpfleet.process.settings import ProcessSettings
from mcpfleet.telemetry.instruments import BusInstruments
from mcpfleet.telemetry.trace import current

_REPEAT_AFTER: Final = 0.5
"""Seconds after which a request that is safe to repeat is asked once more."""
_COMPLAIN_EVERY: Final = 10.0
"""Seconds between two lines that say that NATS cannot be reached."""
_SLEPT: Final = 1.0
"""A wait that ended this much later than it was told to: this process itself was not running."""
_SELF: Final = "self"


@dataclass(slots=True, eq=False)
class Subscription:
    """A subject that this process hears over whichever link it has."""

    subject: str
    deliver: Deliver
    group: str
    absolute: bool = False
    """The subject stands under no prefix."""
    link: Link | None = None
    interest: Interest | None = None
    received: int = 0
    failed: int = 0
    """Messages whose handling failed."""
    seconds: float = 0.0
    """Spent on handling."""


@dataclass(slots=True, eq=False)
class _Waiting:
    subject: str
    answer: asyncio.Future[Incoming]


class Bus:
    """Publishes, asks and hears, over one link after another.

    Subjects are given and delivered without the fleet's prefix. The methods may be used on the bus's own loop only.
    """

    def __init__(
        self,
        connector: Connector,
        settings: ProcessSettings,
        *,
        user: str,
        process: str,
        instruments: BusInstruments,
        log: FilteringBoundLogger,
    ) -> None:
        """Describe the process; nothing is connected before `run`.

        Args:
            connector: makes links.
            settings: intervals and bounds.
            user: the NATS user, which names the inbox.
            process: this process's random id; the inbox is the same over all its links.
            instruments: where the link's fate is counted.
            log: where the link's fate is told.
        """
        self.user = user
        self.process = process
        self._instruments = instruments
        self._connector = connector
        self._settings = settings
        self._log = log
        self._prefix = f"{settings.subject_prefix}."
        self._inbox = f"inbox.{user}.{process}"
        self._link: Link | None = None
        self._up = anyio.Event()
        self._table: list[Subscription] = []
        self._waiting: dict[str, _Waiting] = {}
        self._tokens = itertools.count(1)
        self._heard_self = anyio.Event()
        self._last_proof = -math.inf
        self._proven_since = -math.inf
        self._on_link: list[Callable[[bool], None]] = []
        self._next_complaint = -math.inf

    # -- the link's life ------------------------------------------------------------------------------------------

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Keep a link until cancelled; started at once, whether or not NATS answers."""
        task_status.started()
        delay = 0.05
        while True:
            link = await self._establish()
            if link is None:
                await anyio.sleep(random.uniform(0, delay))  # noqa: S311
                delay = min(delay * 2, self._settings.bus_reconnect_jitter)
                continue
            delay = 0.05
            try:
                await self._watch(link)
                self._log.warning("link lost", nats=self._connector.where())
            finally:
                await self._discard(link)

    @property
    def is_up(self) -> bool:
        """Whether a link exists over which everything in the table is heard."""
        return self._up.is_set()

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """What this process hears."""
        return tuple(self._table)

    async def wait_up(self) -> None:
        """Wait for such a link; without bound, so that the caller says for how long."""
        await self._up.wait()

    @property
    def proven_since(self) -> float | None:
        """Since when (monotonic seconds) the link has been proven without a gap; none where it is not proven now.

        Silence counts only within this time: who was not heard before it may have spoken in vain.
        """
        fresh = time.monotonic() - self._last_proof <= self._settings.bus_question_every + self._settings.bus_dead_after
        return self._proven_since if fresh and self._link is not None else None

    def silence(self, heard: float) -> float:
        """Seconds of silence that count against a peer last heard at `heard` (monotonic): those of a proven link."""
        since = self.proven_since
        return 0.0 if since is None else time.monotonic() - max(heard, since)

    def on_link(self, hear: Callable[[bool], None]) -> None:
        """Be told of each link that comes up (True) and is lost (False)."""
        self._on_link.append(hear)

    async def _establish(self) -> Link | None:
        try:
            link = await self._connector.connect(self._refused)
        except (OSError, ConnectFailed, TimeoutError) as error:
            self._complain(error)
            return None
        try:
            # The inbox first, then the way to answer, then all that may ask something of us.
            await link.subscribe(f"{self._prefix}{self._inbox}.*", self._on_inbox)
            self._link = link
            for subscription in list(self._table):
                await self._hear(subscription, link)
            if await self._question(link):
                self._come_up()
                return link
            self._complain(TimeoutError("it accepts connections, and does not answer through them"))
        except Unavailable as error:
            self._complain(error)
        except BaseException:
            await self._discard(link)
            raise
        await self._discard(link)
        return None

    async def _discard(self, link: Link) -> None:
        self._lose(link)
        await link.close()

    async def _watch(self, link: Link) -> None:
        """Ask ourselves through NATS at every interval; return when no answer comes, whatever the client says."""
        while not link.lost.is_set():
            with anyio.move_on_after(self._settings.bus_question_every):
                await link.lost.wait()
                return
            if not await self._question(link):
                return

    async def _question(self, link: Link) -> bool:
        """Ask ourselves once; where our own clock shows that this process slept, once more before we believe it."""
        limit = self._settings.bus_dead_after
        for _ in range(2):
            asked = time.monotonic()
            self._heard_self = anyio.Event()
            try:
                link.publish(f"{self._prefix}{self._inbox}.{_SELF}", b"")
            except Unavailable:
                return False
            with anyio.move_on_after(limit):
                await self._heard_self.wait()
                self._prove()
                return not link.lost.is_set()
            if link.lost.is_set() or time.monotonic() - asked < limit + _SLEPT:
                return False
        return False

    def _prove(self) -> None:
        if self.proven_since is None:
            self._proven_since = time.monotonic()
        self._last_proof = time.monotonic()

    def _come_up(self) -> None:
        self._instruments.links.add(1)
        self._instruments.link_up.set(1)
        self._next_complaint = -math.inf
        self._up.set()
        self._log.info("link up", nats=self._connector.where())
        for hear in self._on_link:
            hear(True)

    def _lose(self, link: Link) -> None:
        """Forget the link: everybody who waits on it is told at once that the outcome is uncertain."""
        if self._link is not link:
            return
        self._link = None
        self._last_proof = -math.inf
        for waiting in self._waiting.values():
            if not waiting.answer.done():
                waiting.answer.set_exception(Unanswered(f"{waiting.subject}: the link to NATS was lost"))
        if not self._up.is_set():
            return
        self._up = anyio.Event()
        self._instruments.link_up.set(0)
        for hear in self._on_link:
            hear(False)

    def _complain(self, error: Exception) -> None:
        if time.monotonic() < self._next_complaint:
            return
        self._next_complaint = time.monotonic() + _COMPLAIN_EVERY
        self._log.warning(
            "waiting for NATS",
            nats=self._connector.where(),
            setting="MCPFLEET_NATS_URL" if not isinstance(error, ConnectFailed) else "MCPFLEET_NATS_USER",
            error=str(error) or type(error).__name__,
        )

    def _refused(self, verb: str, subject: str) -> None:
        """NATS tells a refusal only to the client's error callback: turn it into the error of who asked."""
        error = Refused(subject.removeprefix(self._prefix), verb)
        self._instruments.refusals.add(1)
        self._log.error("refused by NATS", subject=error.subject, error=str(error))
        for waiting in self._waiting.values():
            if waiting.subject == error.subject and not waiting.answer.done():
                waiting.answer.set_exception(error)

    # -- messages ---------------------------------------------------------------------------------------------------

    def publish(self, subject: str, body: bytes, reply: str = "", header: str | None = None) -> None:
        """Send a message that may be lost; a plain call, so messages leave in the order of the calls.

        Raises:
            Unavailable: nothing was sent.
            TooLarge: nothing was sent, nor ever will be.
        """
        self._send(self._prefix + subject, body, self._prefix + reply if reply else "", header)

    def _send(self, subject: str, body: bytes, reply: str, header: str | None) -> None:
        """Send to a whole subject: a reply's is whole as it came, and may be of another fleet's prefix or none."""
        link = self._link
        if link is None:
            raise Unavailable(f"{subject}: no link to NATS at {self._connector.where()} (MCPFLEET_NATS_URL)")
        link.publish(subject, body, reply, header)

    def respond(self, question: Incoming, body: bytes, header: str | None = None) -> None:
        """Answer a message, if it wants an answer and we have a link; an answer that is lost is asked for again."""
        if not question.reply:
            return
        try:
            self._send(question.reply, body, "", header)
        except Unavailable:
            self._log.debug("answer not sent", subject=question.subject)

    async def request(
        self, subject: str, body: bytes, *, timeout: float, repeat: bool = False, extra: tuple[str, ...] = ()
    ) -> Incoming:
        """Ask, and wait at most `timeout` seconds; `repeat` asks once more after half a second without an answer.

        Raises:
            Unavailable, NoResponders, Busy, Expired, Refused: it has not run.
            Unanswered: it was sent, and the time or the link ended first: it may have run.
            Failed: the answer is a fault.
        """
        deadline = time.monotonic() + timeout
        if repeat and timeout > _REPEAT_AFTER:
            try:
                return await self._request_once(subject, body, _REPEAT_AFTER, deadline, extra)
            except (Unanswered, Unavailable, NoResponders, Busy):
                await anyio.sleep(max(0.0, _REPEAT_AFTER - (timeout - (deadline - time.monotonic()))))
        return await self._request_once(subject, body, deadline - time.monotonic(), deadline, extra)

    async def _request_once(
        self, subject: str, body: bytes, wait: float, deadline: float, extra: tuple[str, ...]
    ) -> Incoming:
        token = format(next(self._tokens), "x")
        waiting = _Waiting(subject, asyncio.get_running_loop().create_future())
        self._waiting[token] = waiting
        line = header.write(deadline - time.monotonic(), current.get(), *extra)
        try:
            self.publish(subject, body, f"{self._inbox}.{token}", line)
            with anyio.move_on_after(wait):
                return _answer(subject, await waiting.answer)
            self._instruments.unanswered.add(1)
            raise Unanswered(f"{subject}: no answer within {wait:.1f} s")
        finally:
            del self._waiting[token]

    async def subscribe(
        self, subject: str, deliver: Deliver, group: str = "", *, absolute: bool = False
    ) -> Subscription:
        """Hear a subject from now on, over this and every later link, until `leave`.

        Args:
            subject: without the fleet's prefix, unless it is `absolute`.
            deliver: takes each message, without waiting.
            group: where it is given, each message goes to one of those who hear the subject in the group.
            absolute: the subject stands under no prefix.
        """
        subscription = Subscription(subject, deliver, group, absolute)
        self._table.append(subscription)
        if self._link is not None:
            try:
                await self._hear(subscription, self._link)
            except Unavailable:
                self._log.debug("heard from the next link on", subject=subject)
        return subscription

    async def leave(self, subscription: Subscription) -> None:
        """Hear no new message of the subject, but all that were on their way to us."""
        self._table.remove(subscription)
        if subscription.interest is not None and subscription.link is self._link and self._link is not None:
            await self._link.leave(subscription.interest)

    async def _hear(self, subscription: Subscription, link: Link) -> None:
        if subscription.link is link:
            return
        subscription.link = link
        subject = subscription.subject if subscription.absolute else self._prefix + subscription.subject
        subscription.interest = await link.subscribe(subject, self._delivery(subscription), subscription.group)

    def _delivery(self, subscription: Subscription) -> Deliver:
        """Strip the prefix, and let no handler's mistake end the subscription."""
        length = 0 if subscription.absolute else len(self._prefix)

        def on_message(message: Incoming) -> None:
            message.subject = message.subject[length:]
            subscription.received += 1
            try:
                subscription.deliver(message)
            except Exception as error:
                subscription.failed += 1
                self._instruments.undelivered.add(1)
                ours = isinstance(error, BusError)
                self._log.warning("message dropped", subject=message.subject, error=str(error), exc_info=not ours)

        return on_message

    def _on_inbox(self, message: Incoming) -> None:
        token = message.subject.rpartition(".")[2]
        if token == _SELF:
            self._heard_self.set()
            return
        waiting = self._waiting.get(token)
        if waiting is not None and not waiting.answer.done():
            waiting.answer.set_result(message)


def _answer(subject: str, reply: Incoming) -> Incoming:
    """Return a plain answer, and raise what any other line says."""
    error = ending(subject, reply)
    if error is not None:
        raise error
    return reply


def ending(subject: str, reply: Incoming) -> NotRun | Failed | None:
    """Read how a request ended from its answer: none where the answer is a plain one."""
    if reply.no_responders:
        return NoResponders(f"no process hears {subject}")
    words = reply.header.split(" ") if reply.header else []
    match words[1:]:
        case ["busy", *_]:
            return Busy(f"{subject}: the receiver has no room")
        case ["expired", clock, *_]:
            return Expired(subject, int(clock) / 1000 - time.time())
        case ["fault", kind, *_]:
            return Failed(kind, reply.body.decode(errors="replace"))
        case _:
            return None
