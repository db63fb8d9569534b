"""The bus of a process: subscriptions that outlive links, and requests with five ends."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.abc import TaskStatus
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus import header as lines
from mcpfleet.bus.connection_manager import ConnectionManager, Hooks
from mcpfleet.bus.errors import (
    BusError,
    Busy,
    Failed,
    Fault,
    NoResponders,
    NotRun,
    Refused,
    TooLarge,
    Unanswered,
    Unavailable,
    is_undone,
)
from mcpfleet.bus.header import answer
from mcpfleet.bus.port import Connector, Deliver, Incoming, Link, LinkSubscription
from mcpfleet.process.settings import ProcessSettings
from mcpfleet.telemetry.instruments import BusInstruments
from mcpfleet.telemetry.trace import TraceContext, current

_REPEAT_AFTER: Final = 0.5
"""Seconds after which a request that is safe to repeat is sent once more."""
_SELF: Final = "self"

AskedBy = Callable[[str], str]
"""Returns the prefix that a reply to a subject's messages must have: an inbox that only the permitted sender can hear.

NATS permits subjects, but an answer goes wherever its question says. Without this check, an asker could direct our
answers into another's inbox, in our name.
"""


@dataclass(slots=True, eq=False)
class Subscription:
    """A subject that this process hears over its current link."""

    subject: str
    deliver: Deliver
    group: str
    asked_by: AskedBy | None = None
    """The permitted askers; None answers nobody."""
    absolute: bool = False
    """The subject has no prefix of the fleet."""
    link: Link | None = None
    interest: LinkSubscription | None = None
    received: int = 0
    failed: int = 0
    """Messages whose handling failed."""
    seconds: float = 0.0
    """Seconds spent on handling."""


@dataclass(slots=True, eq=False)
class _Waiting:
    subject: str
    answer: asyncio.Future[Incoming]


class Bus:
    """Publishes, asks and hears, over one link after another.

    Subjects are given and delivered without the fleet's prefix. Call the methods on the bus's own loop only.
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
        """Describe the bus; nothing connects before `run`.

        Args:
            connector: makes links.
            settings: intervals and bounds.
            user: the user of the role in the table of permissions, which names the inbox.
            process: the random id of this process; the inbox is the same over all its links.
            instruments: count links, losses and refusals.
            log: tells of them.
        """
        self.user = user
        self.process = process
        self._instruments = instruments
        self._log = log
        self._where = connector.where
        self._prefix = f"{settings.subject_prefix}."
        self._inbox = f"inbox.{user}.{process}"
        self._table: list[Subscription] = []
        self._waiting: dict[str, _Waiting] = {}
        hooks = Hooks(hear=self._hear_all, ask=self._ask_self, lost=self._lose, refused=self._refused)
        self._connection = ConnectionManager(connector, settings, hooks, instruments=instruments, log=log)

    # -- the link -----------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Keep a link until cancelled; starts at once, whether or not NATS answers."""
        await self._connection.run(task_status=task_status)

    @property
    def is_up(self) -> bool:
        """Whether a link exists over which the whole table is heard."""
        return self._connection.is_up

    async def wait_up(self) -> None:
        """Wait for such a link. The caller bounds the wait."""
        await self._connection.wait_up()

    @property
    def proven_since(self) -> float | None:
        """Since when (monotonic seconds) the link has been proven without a gap; None while it is not proven.

        Silence counts within this time only: a peer that was not heard before it may have spoken in vain.
        """
        return self._connection.proven_since

    def silence(self, heard: float) -> float:
        """Return the seconds of silence, over a proven link, of a peer that was last heard at `heard` (monotonic)."""
        since = self.proven_since
        return 0.0 if since is None else time.monotonic() - max(heard, since)

    def on_link(self, hear: Callable[[bool], None]) -> None:
        """Call `hear` with True for each link that comes up, and with False for each that is lost."""
        self._connection.on_link(hear)

    def _ask_self(self, link: Link) -> None:
        link.publish(f"{self._prefix}{self._inbox}.{_SELF}", b"")

    def _lose(self) -> None:
        """Fail all requests that wait on the link, at once, as uncertain."""
        for waiting in self._waiting.values():
            if not waiting.answer.done():
                waiting.answer.set_exception(Unanswered(f"{waiting.subject}: the link to NATS was lost"))

    def _refused(self, verb: str, subject: str) -> None:
        """Turn a refusal, which NATS tells to the client's error callback only, into the error of its request."""
        error = Refused(subject.removeprefix(self._prefix), verb)
        self._instruments.refusals.add(1)
        self._log.error("refused by NATS", subject=error.subject, error=str(error))
        for waiting in self._waiting.values():
            if waiting.subject == error.subject and not waiting.answer.done():
                waiting.answer.set_exception(error)

    # -- sending ------------------------------------------------------------------------------------------------------

    def publish(self, subject: str, body: bytes, reply: str = "", header: str | None = None) -> None:
        """Send a message that may be lost. This is a plain call, so messages leave in the order of the calls.

        Raises:
            Unavailable: nothing was sent.
            TooLarge: nothing was sent, nor ever will be.
        """
        if not self._connection.is_up:
            # A link that is being made does not hear everything yet, so an answer would be lost.
            raise Unavailable(f"{subject}: no link to NATS at {self._where()} (MCPFLEET_NATS_URL)")
        self._send(self._prefix + subject, body, self._prefix + reply if reply else "", header)

    def hint(self, subject: str, body: bytes, cause: TraceContext | None) -> None:
        """Publish a hint with its cause, if that is recorded, so that receivers can show the two together.

        Raises:
            Unavailable, TooLarge: as `publish` does.
        """
        self.publish(subject, body, header=lines.write(0, cause) if cause is not None and cause.sampled else None)

    def _send(self, subject: str, body: bytes, reply: str, header: str | None) -> None:
        link = self._connection.link
        if link is None:
            raise Unavailable(f"{subject}: no link to NATS")
        link.publish(subject, body, reply, header)

    def respond(self, question: Incoming, body: bytes, header: str | None = None) -> None:
        """Answer a message, if it may be answered over a link. The asker asks again for a lost answer."""
        if not question.reply:
            return
        if question.link is not None and question.link is not self._connection.link:
            # NATS would refuse it, and the log would blame the user's permissions (K31).
            self._log.debug("answer not sent", subject=question.subject)
            return
        try:
            self._send(question.reply, body, "", header)
        except Unavailable:
            self._log.debug("answer not sent", subject=question.subject)
        except TooLarge as error:
            self._log.error("answer too large", subject=question.subject, error=str(error))
            self.respond(question, str(error).encode(), lines.fault(Fault.TOO_LARGE))

    async def request(self, subject: str, body: bytes, *, timeout: float, repeat: bool = False) -> Incoming:
        """Ask, and wait at most `timeout` seconds; `repeat` asks once more after half a second without an answer.

        Raises:
            Unavailable, NoResponders, Busy, Expired, Refused: it has not run.
            Unanswered: it was sent, and the time or the link ended first: it may have run.
            Failed: the answer is a fault.
        """
        deadline = time.monotonic() + timeout
        if not repeat or timeout <= _REPEAT_AFTER:
            return await self._request_once(subject, body, timeout, deadline)
        first, again = secrets.token_hex(8), deadline - timeout + _REPEAT_AFTER
        try:
            return await self._request_once(subject, body, _REPEAT_AFTER, deadline, first)
        except Unanswered as error:
            uncertain = error
        except (Unavailable, NoResponders, Busy):
            await anyio.sleep(max(0.0, again - time.monotonic()))
            return await self._request_once(subject, body, deadline - time.monotonic(), deadline)
        late = self._waiting[first] = _Waiting(subject, asyncio.get_running_loop().create_future())
        try:
            await anyio.sleep(max(0.0, again - time.monotonic()))
            return await self._request_once(subject, body, deadline - time.monotonic(), deadline)
        except NotRun:
            raise uncertain from None  # the second did not run; the first may have
        except Failed as error:
            # The answer to the second says nothing of the first, which may have an answer by now.
            return await self._first_of(late, error, deadline)
        finally:
            del self._waiting[first]
            if not late.answer.cancel() and not late.answer.cancelled():
                late.answer.exception()  # mark it as retrieved

    @staticmethod
    async def _first_of(late: _Waiting, second: Failed, deadline: float) -> Incoming:
        """Return the late answer to a first request whose repeat was refused.

        Raises:
            Failed: the error of the second request; undone only if the first certainly is as well.
        """
        if second.is_undone:
            second.is_undone = False
            with anyio.move_on_after(max(0.0, deadline - time.monotonic())):
                try:
                    return answer(late.subject, await late.answer)
                except BusError as error:
                    second.is_undone = is_undone(error)
        raise second

    async def _request_once(self, subject: str, body: bytes, wait: float, deadline: float, token: str = "") -> Incoming:
        token = token or secrets.token_hex(8)  # nobody else can name it
        waiting = _Waiting(subject, asyncio.get_running_loop().create_future())
        self._waiting[token] = waiting
        try:
            line = lines.write(deadline - time.monotonic(), current.get())
            self.publish(subject, body, f"{self._inbox}.{token}", line)
            with anyio.move_on_after(wait):
                return answer(subject, await waiting.answer)
            self._instruments.unanswered.add(1)
            raise Unanswered(f"{subject}: no answer within {wait:.1f} s")
        finally:
            del self._waiting[token]

    async def flush(self, *, timeout: float) -> None:
        """Wait until all earlier subscriptions are heard: a question to ourselves comes back after them.

        Raises:
            Unavailable: the link is down.
            Unanswered: the time or the link ended first.
        """
        token = secrets.token_hex(8)
        subject = f"{self._inbox}.{_SELF}"
        waiting = _Waiting(subject, asyncio.get_running_loop().create_future())
        self._waiting[token] = waiting
        try:
            self.publish(subject, token.encode())
            with anyio.move_on_after(timeout):
                await waiting.answer
                return
            raise Unanswered(f"{subject}: no answer within {timeout:.1f} s")
        finally:
            del self._waiting[token]

    def _on_inbox(self, message: Incoming) -> None:
        token = message.subject.rpartition(".")[2]
        if token == _SELF and not message.body:
            self._connection.heard_self()
            return
        if token == _SELF:
            token = message.body.decode()
        waiting = self._waiting.get(token)
        if waiting is not None and not waiting.answer.done():
            waiting.answer.set_result(message)

    # -- hearing ------------------------------------------------------------------------------------------------------

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """The subscriptions of this process."""
        return tuple(self._table)

    async def subscribe(
        self,
        subject: str,
        deliver: Deliver,
        group: str = "",
        *,
        asked_by: AskedBy | None = None,
        absolute: bool = False,
    ) -> Subscription:
        """Hear a subject from now on, over this and every later link, until `leave`.

        Args:
            subject: without the fleet's prefix, unless it is `absolute`.
            deliver: takes each message, without waiting.
            group: a queue group; one member of it gets each message.
            asked_by: the askers that may be answered; by default nobody.
            absolute: the subject has no prefix.
        """
        subscription = Subscription(subject, deliver, group, asked_by, absolute)
        self._table.append(subscription)
        if self._connection.link is not None:
            try:
                await self._hear(subscription, self._connection.link)
            except Unavailable:
                self._log.debug("subscription deferred", subject=subject)
            except BaseException:  # nobody else could leave it
                self._table.remove(subscription)
                raise
        return subscription

    async def leave(self, subscription: Subscription) -> None:
        """Hear no new message of the subject, but all those on their way."""
        self._table.remove(subscription)
        await self._leave(subscription)

    async def _leave(self, subscription: Subscription) -> None:
        """Leave on the current link. A subscription that is being heard is left once `_hear` returns."""
        link, interest = subscription.link, subscription.interest
        if link is not None and link is self._connection.link and interest is not None:
            subscription.interest = None
            await link.leave(interest)

    async def _hear_all(self, link: Link) -> None:
        """Hear on a new link: the inbox first, then all other subjects."""
        await link.subscribe(f"{self._prefix}{self._inbox}.*", self._on_inbox)
        for subscription in list(self._table):
            await self._hear(subscription, link)

    async def _hear(self, subscription: Subscription, link: Link) -> None:
        if subscription.link is link:
            return
        subscription.link, subscription.interest = link, None
        subject = subscription.subject if subscription.absolute else self._prefix + subscription.subject
        subscription.interest = await link.subscribe(subject, self._delivery(subscription, link), subscription.group)
        if subscription not in self._table:  # it was left meanwhile
            await self._leave(subscription)

    def _delivery(self, subscription: Subscription, link: Link) -> Deliver:
        """Strip the prefix, and let no failing handler end the subscription."""
        length = 0 if subscription.absolute else len(self._prefix)

        def on_message(message: Incoming) -> None:
            message.subject, message.link = message.subject[length:], link
            subscription.received += 1
            if message.reply and not self._may_answer(subscription, message):
                self._log.warning("reply refused", subject=message.subject, reply=message.reply)
                message.reply = ""
            try:
                subscription.deliver(message)
            except Exception as error:
                subscription.failed += 1
                self._instruments.undelivered.add(1)
                ours = isinstance(error, BusError)
                self._log.warning("message dropped", subject=message.subject, error=str(error), exc_info=not ours)

        return on_message

    def _may_answer(self, subscription: Subscription, message: Incoming) -> bool:
        asked_by = subscription.asked_by
        return asked_by is not None and message.reply.startswith(self._prefix + asked_by(message.subject))
