"""One use of a target by an exchange: everything that its worker is told, and that its client may hear."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mcpfleet.contracts.call import WANTS_PROGRESS, CallBody, Completing, Deferring
from mcpfleet.contracts.manifest import Definition
from mcpfleet.contracts.tasks import Reservation
from mcpfleet.edge.calls.in_flight import Call, Order
from mcpfleet.edge.protocol.continuation import FIRST, Round
from mcpfleet.edge.protocol.exchange import Exchange
from mcpfleet.views.view import Target, View
from mcpfleet.wire.protocol import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    for_source,
)

FindInView: TypeAlias = Callable[[View], Target]
"""Finds the target in a view; raises `Rejection` where it does not exist for the caller, or not any more."""
Finish: TypeAlias = Callable[[bytes], bytes]
"""Adds the edge's own members to a worker's result; raises `NotSpliceable` where the result is malformed."""
Handle: TypeAlias = Callable[[bytes], Awaitable[bytes]]
"""Makes the result of a call that has become a task, of its id, once its caller can read that task (K5)."""


def unchanged(body: bytes) -> bytes:
    """Return a result as its worker wrote it."""
    return body


@dataclass(slots=True, eq=False)
class CallRequest:
    """A use of a target. Rounds and reservations of an idempotency key change it."""

    exchange: Exchange
    target: Target
    """The target in the exchange's own view."""
    find: FindInView
    arguments: dict[str, Any] = field(default_factory=dict)
    uri: str | None = None
    completing: Completing | None = None
    scopes: tuple[str, ...] = ()
    """The scopes that the call needs by its declaration and its arguments."""
    cursor: str | None = None
    """A lister's own cursor."""
    round: Round = FIRST
    deferring: Deferring | None = None
    """Lets the worker make a task of the call."""
    once: Reservation | None = None
    """The reservation of its idempotency key."""
    on_placed: Callable[[Call], None] | None = None
    """Sees each call that is placed for it."""
    asks: frozenset[str] = frozenset()
    """The capabilities that the handler may ask of its client; a worker that asks more breaks its declaration."""
    may_stream: bool = True
    """The answer may become a stream. It may not while the client lacks a capability that is asked of it (D16, P4)."""
    is_one_of_several: bool = False
    """Its own progress would be another's for the client: it is not told (X63)."""
    finish: Finish = unchanged
    handle: Handle | None = None
    """None where a call must not become a task."""

    def __post_init__(self) -> None:
        """Note the language of its handler's texts; a list has the texts of several pools."""
        languages = self.exchange.view.languages
        if languages is not None and self.definition.kind != "lister":
            self.exchange.language = self.language

    @property
    def definition(self) -> Definition:
        """The target's definition."""
        return self.target.listed.definition

    @property
    def language(self) -> str | None:
        """The language of its handler's texts; None where the pool declares none."""
        view = self.exchange.view
        return None if view.languages is None else view.languages.of_pool(self.target.listed.pool, view.language)

    @property
    def goes_on_without_client(self) -> bool:
        """True where the work goes on when its client leaves: its tool says so (D12), or leaving is no cancel (P9)."""
        exchange = self.exchange
        only_left = not exchange.revision.leaving_cancels and not exchange.is_unwanted
        return only_left or self.definition.on_disconnect == "continue"

    @property
    def is_tool(self) -> bool:
        """True where a model reads a failure (D3)."""
        return self.exchange.message.method == "tools/call"

    @property
    def reference(self) -> str:
        """The trace id, which ties an error that the client reads to logs and trace."""
        return self.exchange.trace.trace_id

    @property
    def hears_progress(self) -> bool:
        """True where the client is sent progress."""
        return self.may_stream and self.exchange.progress_token is not None and not self.is_one_of_several

    @property
    def hears_logs(self) -> bool:
        """True where the client is sent log messages."""
        return self.may_stream and LOG_LEVEL_META_KEY in self.exchange.message.meta

    def newest_target(self, view: View | None) -> Target:
        """Return the target in the caller's newest view; it is looked for again only if the view changed."""
        return self.target if view is None or view is self.exchange.view else self.find(view)

    def body(self) -> CallBody:
        """Return what its worker is told."""
        meta, caller = self.exchange.message.meta, self.exchange.caller
        client = meta.get(CLIENT_INFO_META_KEY)
        return CallBody(
            arguments=self.arguments,
            capabilities=meta[CLIENT_CAPABILITIES_META_KEY],
            client=client if isinstance(client, dict) else {},
            principal=caller,
            uri=self.uri,
            completing=self.completing,
            cursor=self.cursor,
            answers=self.round.answers,
            memory=self.round.memory,
            baggage=self.exchange.baggage,
            log_level=meta.get(LOG_LEVEL_META_KEY),
            language=self.language,
            deferring=self.deferring,
            once=self.once,
            meta=for_source(meta) if self.definition.hosted else None,
        )

    def order(self, view: View | None, grace: float) -> Order:
        """Make the order for one try.

        Args:
            view: the caller's newest: a rollout may replace the definition while the call waits.
            grace: seconds beyond the tool's own time after which the caller has an answer.
        """
        listed, exchange = self.newest_target(view).listed, self.exchange
        return Order(
            pool=listed.pool,
            definition=listed.digest,
            body=self.body().write(),
            deadline=time.monotonic() + listed.definition.timeout + grace,
            trace=exchange.trace,
            flags=WANTS_PROGRESS if self.hears_progress else "",
            outlives_client=self.goes_on_without_client,
            may_be_taken_back=self.definition.on_disconnect != "continue",
            on_placed=self.on_placed,
        )
