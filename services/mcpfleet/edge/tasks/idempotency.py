"""Runs a call with an idempotency key once; repeats get the result of the first call (D9, I1 to I3).

Repeats wait here, and never in a worker's slot. Of those that wait for one key at this edge, one asks for all: a flood
of repeats costs the store a few questions. The worker stores the first call's result before it sends it. Where that is
unknown, the key stays uncertain, and each repeat is told so.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio
from pydantic_core import to_json
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.call import BAD_ARGUMENTS, LACKING, NOT_BEGUN, NOT_RUN, SCOPES_NEEDED, UNCERTAIN
from mcpfleet.contracts.manifest import Definition, canonical, digest_of
from mcpfleet.contracts.tasks import (
    Binding,
    KeyOutcome,
    Once,
    Reservation,
    Reserve,
    Reserved,
    TasksClient,
    TaskView,
    once_key,
    task_hint_subject,
)
from mcpfleet.edge.calls.end import CallEnd, tool_failed
from mcpfleet.edge.calls.in_flight import Call, End
from mcpfleet.edge.protocol.exchange import Exchange
from mcpfleet.edge.tasks import results
from mcpfleet.edge.tasks.read import SERVICE, declares, read
from mcpfleet.edge.transport.http_exchange import while_there
from mcpfleet.process.auto_reset_event import AutoResetEvent
from mcpfleet.process.retry import pauses
from mcpfleet.views.view import Target
from mcpfleet.wire import texts
from mcpfleet.wire.errors import Rejection, bad_params, missing_capabilities, no_capacity, not_answered
from mcpfleet.wire.protocol import IDEMPOTENCY_KEY, LONGEST_KEY, REPEAT, TASKS
from mcpfleet.wire.reply import RESULT_HEAD, NotSpliceable

_REFUSALS: Final = {
    KeyOutcome.MISMATCH: (texts.KEY_MISMATCH, "key_mismatch"),
    KeyOutcome.UNCERTAIN: (texts.KEY_UNCERTAIN, "key_uncertain"),
}
_NOT_BEGUN: Final = frozenset({BAD_ARGUMENTS, NOT_BEGUN})
"""The lines of failures from before the handler began."""
_MARGIN: Final = 15.0
"""Seconds that a reservation lasts beyond its call's timeout, since the call may wait for a worker first."""
_POLL: Final = 1.0
"""Seconds after which a waiting repeat first asks without a hint; doubled each time."""
_LONGEST_POLL: Final = 8.0
"""Seconds between two such questions, at most."""
_END_TIMEOUT: Final = 5.0
"""Seconds to record how the first call has ended."""

Run = Callable[[Reservation, Callable[[Call], None]], Awaitable[str | None]]
"""Runs the call itself under its reservation, passes each attempt to the callback, and returns the error's type."""


def key_of(definition: Definition, arguments: Mapping[str, Any], meta: Mapping[str, Any]) -> str | None:
    """Return the idempotency key of a call: from its argument, or else from `_meta`; None where it has none.

    Raises:
        Rejection: -32602 for a malformed key in `_meta`, since its client relies on the key.
    """
    value = None if definition.idempotency_key is None else _whole(arguments.get(definition.idempotency_key))
    if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
        return str(value)
    if IDEMPOTENCY_KEY not in meta:
        return None
    key = meta[IDEMPOTENCY_KEY]
    if not isinstance(key, str) or not 0 < len(key) <= LONGEST_KEY:
        raise bad_params(f"{IDEMPOTENCY_KEY} must have 1 to {LONGEST_KEY} characters")
    return key


def _whole(value: Any) -> Any:
    """Return a whole number as an integer: JSON Schema takes `5.0` for the integer 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def once_of(exchange: Exchange, definition: Definition, key: str, arguments: Mapping[str, Any]) -> Once:
    """Return a key with its endpoint, principal and tool, and the digest of its arguments."""
    binding, name = Binding.of(exchange.endpoint, exchange.caller), definition.idempotency_key
    if name is not None and isinstance(arguments.get(name), float):
        arguments = {**arguments, name: _whole(arguments[name])}
    return Once(key=once_key(binding, definition.name, key), arguments=digest_of(canonical(arguments)))


@dataclass(slots=True, eq=False)
class _First:
    """The first call under a key, as far as its edge knows."""

    call: Call | None = None
    """The newest attempt that was sent."""

    def see(self, call: Call) -> None:
        self.call = call

    def ended(self, *, goes_on: bool) -> str | None:
        """Return how the call has ended, to be recorded under its key; None where its worker stores a result.

        Args:
            goes_on: the call goes on when its client leaves, so its worker stores the result later (D12).
        """
        call = self.call
        if call is None or call.refusal is not None:
            return "not_run"
        if call.end is End.RESULT and call.line in _NOT_BEGUN:
            return "not_run"  # that changes nothing where its worker stored a result all the same
        if call.end is End.RESULT and call.line == UNCERTAIN:
            return "uncertain"
        if call.end in (End.RESULT, End.TASK, End.RESULT_LOST) or (call.end is None and goes_on):
            return None
        is_refused = call.end is End.ERROR and (call.line or "").startswith((LACKING, NOT_RUN, SCOPES_NEEDED))
        return "not_run" if is_refused or call.end is End.ASK else "uncertain"


@dataclass(slots=True, eq=False)
class _Asking:
    """The requests at this edge that want to know of one key."""

    turn: anyio.Lock = field(default_factory=anyio.Lock)
    """The one who has it asks for all."""
    news: AutoResetEvent = field(default_factory=AutoResetEvent)
    """The first call may have ended, or another request has come, to whom the last answer may be too old."""
    number: int = 0
    told: Reserved | None = None
    """The answer that holds for all of them."""

    def tell(self, reserved: Reserved) -> Reserved:
        """Keep an answer for the others if it holds for them, too; return it."""
        if reserved.outcome not in {KeyOutcome.NEW, KeyOutcome.RUNNING}:
            self.told = reserved
        return reserved


@dataclass(slots=True, eq=False)
class Idempotency:
    """Runs each call under a key once."""

    bus: Bus
    client: TasksClient
    log: FilteringBoundLogger
    most: int
    """Repeats that may wait at this edge."""
    _waiting: int = field(default=0)
    _asking: dict[tuple[str, str, bool], _Asking] = field(default_factory=dict)
    """By key, digest of the arguments, and whether the tool may run again."""

    async def answer(
        self, exchange: Exchange, target: Target, once: Once, run: Run, *, goes_on: Callable[[], bool]
    ) -> str | None:
        """Run a call, or answer with the result of the first call under its key; return the error's type.

        Args:
            exchange: the request.
            target: the tool.
            once: the key.
            run: runs the call, where it is the first.
            goes_on: returns whether the call goes on when nobody waits for it.

        Raises:
            Rejection: 504 where the key cannot be reserved, 503 where too many repeats wait (MCPFLEET_REPEATS_WAITING).
                -32021 where the first call became a task, and the client has no tasks.
            ClientGone: the client has left.
        """
        definition, holder = target.listed.definition, secrets.token_hex(16)
        wanted = Reserve(
            once=once,
            pool=target.listed.pool,
            lasts=min(definition.timeout + _MARGIN, 86_400.0),
            holder=holder,
            again_is_safe=definition.again_is_safe,
        )
        reserved = await self._outcome(exchange, wanted, definition.timeout + _MARGIN)
        if reserved.outcome is KeyOutcome.NEW:
            return await self._run(wanted, once.reserved(reserved.fence), run, goes_on=goes_on)
        end = await self._repeat_end(exchange, reserved, definition)
        await exchange.end(end.status, end.body)
        return end.error_type

    async def _outcome(self, exchange: Exchange, wanted: Reserve, seconds: float) -> Reserved:
        """Reserve a key, or wait for the outcome of its first call."""
        key = wanted.once.key, wanted.once.arguments, wanted.again_is_safe
        asking = self._asking.setdefault(key, _Asking())
        is_first = not asking.number
        asking.number += 1
        try:
            if is_first or self._waiting >= self.most:
                async with asking.turn if is_first else nullcontext():
                    reserved = asking.tell(await self._reserve(wanted))
                if reserved.outcome is not KeyOutcome.RUNNING:
                    return reserved
            if not is_first:
                asking.news.set()
            return await self._wait(exchange, wanted, asking, seconds)
        finally:
            asking.number -= 1
            if (not asking.number or asking.told is not None) and self._asking.get(key) is asking:
                del self._asking[key]

    async def _reserve(self, wanted: Reserve) -> Reserved:
        try:
            return await self.client.reserve(wanted)
        except BusError as error:
            self.log.warning("idempotency key not reserved", error=str(error))
            raise not_answered(SERVICE) from None
        except BaseException:
            # Its client has left. The key may be reserved by now, and no call will ever run under this reservation.
            with anyio.move_on_after(_END_TIMEOUT, shield=True):
                await self._end(wanted.model_copy(update={"ended": "not_run"}))
            raise

    async def _run(
        self, wanted: Reserve, reservation: Reservation, run: Run, *, goes_on: Callable[[], bool]
    ) -> str | None:
        first = _First()
        try:
            return await run(reservation, first.see)
        finally:
            if (ended := first.ended(goes_on=goes_on())) is not None:
                with anyio.move_on_after(_END_TIMEOUT, shield=True):
                    await self._end(wanted.model_copy(update={"ended": ended}))

    async def _end(self, wanted: Reserve) -> None:
        """Record how the first call has ended; otherwise its key becomes uncertain at the end of its time."""
        try:
            await self.client.reserve(wanted)
        except BusError as error:
            self.log.warning("idempotency key not released", error=str(error))

    async def _wait(self, exchange: Exchange, wanted: Reserve, asking: _Asking, seconds: float) -> Reserved:
        """Wait for the first call's end: by hints, and by asking, since hints may be lost."""
        if self._waiting >= self.most:
            raise no_capacity(1)
        self._waiting += 1
        deadline = time.monotonic() + seconds
        try:
            return await while_there(exchange, partial(self._ask_in_turn, wanted, asking, deadline))
        finally:
            self._waiting -= 1

    async def _ask_in_turn(self, wanted: Reserve, asking: _Asking, deadline: float) -> Reserved:
        async with asking.turn:
            return asking.told or asking.tell(await self._ask_until(wanted, asking.news, deadline))

    async def _ask_until(self, wanted: Reserve, news: AutoResetEvent, deadline: float) -> Reserved:
        def on_hint(_message: Incoming) -> None:
            news.set()

        subscription = await self.bus.subscribe(task_hint_subject(wanted.once.key), on_hint)
        try:
            for pause in pauses(_POLL, _LONGEST_POLL):
                try:
                    reserved = await self._reserve(wanted)
                except Rejection:  # a short absence of the service does not end the wait
                    reserved = Reserved(outcome=KeyOutcome.RUNNING)
                    if time.monotonic() > deadline:
                        raise
                if reserved.outcome is not KeyOutcome.RUNNING or time.monotonic() > deadline:
                    return reserved
                await news.wait(pause * random.uniform(0.5, 1.0))  # noqa: S311  # no secret
            raise AssertionError("pauses have no end")
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(2.0):
                await self.bus.leave(subscription)

    async def _repeat_end(self, exchange: Exchange, reserved: Reserved, definition: Definition) -> CallEnd:
        """Return how a repeat ends."""
        if reserved.task is not None:
            return await self.handle(exchange, reserved.task)
        if reserved.outcome is KeyOutcome.REPEAT:
            if reserved.result is None:
                return tool_failed(exchange, texts.KEY_TOO_LARGE, "key_result_too_large")
            return CallEnd(200, exchange.response(marked(reserved.result.encode()), definition), None)
        text, error_type = _REFUSALS.get(reserved.outcome, _REFUSALS[KeyOutcome.UNCERTAIN])
        return tool_failed(exchange, text, error_type)

    async def handle(self, exchange: Exchange, task: str) -> CallEnd:
        """Return the handle of the first call's task."""
        view = await read(self.client, exchange, task)
        return handle_again(exchange, view)


def handle_again(exchange: Exchange, view: TaskView) -> CallEnd:
    """Return a task's handle for a repeat.

    Raises:
        Rejection: -32021 where the client has no tasks.
    """
    if not declares(exchange):
        raise missing_capabilities((TASKS,))
    return CallEnd(200, exchange.response(results.created(view, {REPEAT: True})), None)


def marked(result: bytes) -> bytes:
    """Mark a result as a repeat (I2).

    Raises:
        NotSpliceable: the result does not have our form.
    """
    if not result.startswith(RESULT_HEAD):
        raise NotSpliceable("a result must begin with its _meta")
    rest = result[len(RESULT_HEAD) :]
    comma = b"" if rest.startswith(b"}") else b","
    return b"%b%b:true%b%b" % (RESULT_HEAD, to_json(REPEAT), comma, rest)
