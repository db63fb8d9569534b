"""Asks a resource's handler whether a caller may read a URI, and so may hear of its changes (S21).

The handler decides reads, so it runs as for `resources/read`: for the caller's principal, in a worker's slot, behind
the application's interceptors. Its result stays with the worker. A resource's permit, where it has one, is asked
instead: it decides without reading, for many callers in one message (`permit_check`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import anyio
from structlog.typing import FilteringBoundLogger

from mcpfleet.contracts.call import (
    AUTHORED_ERROR,
    BAD_PARAMS,
    LACKING,
    NOT_FOUND,
    OUTCOME_ONLY,
    REFUSED,
    SCOPES_NEEDED,
    CallBody,
)
from mcpfleet.contracts.catalog import Listed
from mcpfleet.contracts.hints import OwnChange
from mcpfleet.edge.calls.end import read_line
from mcpfleet.edge.calls.in_flight import Call, End, Order
from mcpfleet.edge.calls.permit_check import Decision, PermitCheck, ReadQuestion
from mcpfleet.edge.calls.queue import CallQueue
from mcpfleet.edge.catalog.snapshot_cache import Snapshots
from mcpfleet.edge.identity.limits import Limits
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.telemetry.instruments import StreamInstruments
from mcpfleet.views.view import Target
from mcpfleet.wire.errors import Rejection, unknown_resource

_REFUSALS: Final = frozenset({AUTHORED_ERROR, BAD_PARAMS, LACKING, NOT_FOUND, REFUSED, SCOPES_NEEDED})
"""The lines of errors by which a handler says no; any other error is a failure, which decides nothing."""


class Undecided(Exception):
    """Raised when no handler decided whether a caller may read: no worker, no room, no answer in time, a failure."""


class ReadCheck:
    """Asks workers. It bounds one question; `ReadQueue` bounds how many are asked at once."""

    def __init__(
        self,
        queue: CallQueue,
        snapshots: Snapshots,
        limits: Limits,
        settings: EdgeSettings,
        *,
        permits: PermitCheck,
        instruments: StreamInstruments,
        log: FilteringBoundLogger,
    ) -> None:
        self._queue = queue
        self._snapshots = snapshots
        self._limits = limits
        self._permits = permits
        self._within = settings.read_checked_within
        self._durations = instruments.read_checks
        self._log = log

    def find(self, question: ReadQuestion) -> Target | None:
        """Find what serves a URI or key to a caller now; none where its view has nothing there.

        Raises:
            Undecided: the caller's view is not known now.
        """
        view = self._snapshots.view(question.endpoint, question.principal)
        if view is None:
            raise Undecided("the caller's view is not known")
        if isinstance(question.uri, OwnChange):
            return view.find("notification", question.uri.notification)
        return view.find_resource(question.uri)

    async def ask_permit(self, listed: Listed, questions: Sequence[ReadQuestion]) -> list[Decision | None]:
        """Ask the permit of a definition about many; None where it gave no answer."""
        return await self._permits.ask(listed, questions)

    async def ask(self, question: ReadQuestion, *, counts: bool) -> Decision:
        """Ask whether a caller may read a URI.

        Args:
            question: the caller and the URI.
            counts: take it from the rate of the caller's requests.

        Raises:
            Undecided: nobody could say so in time.
        """
        target = self.find(question)
        if target is None:
            return Decision(may_read=False, definition=None)
        if not question.principal.holds(target.listed.definition.scopes):
            return Decision(may_read=False, definition=target.listed.digest)
        if target.file is not None or isinstance(question.uri, OwnChange):  # it is in the view; no handler decides
            return Decision(may_read=True, definition=target.listed.digest)
        began, outcome = time.monotonic(), "undecided"
        try:
            with anyio.fail_after(self._within):
                decision = await self._ask(question, counts=counts)
            outcome = "permitted" if decision.may_read else "refused"
        except (Undecided, TimeoutError) as error:
            why = str(error) or "no answer in time"
            self._log.warning(
                "read check not answered", resource=target.listed.definition.name, pool=target.listed.pool, why=why
            )
            raise Undecided from error
        finally:
            self._durations.record(time.monotonic() - began, outcome)
        return decision

    async def _ask(self, question: ReadQuestion, *, counts: bool) -> Decision:
        body = CallBody({}, principal=question.principal, uri=question.word).write()
        definition = ""

        def make_order() -> Order:
            nonlocal definition
            target = self.find(question)
            if target is None:
                raise unknown_resource(question.word)
            definition = target.listed.digest
            lasts = min(target.listed.definition.timeout, self._within)
            return Order(target.listed.pool, definition, body, time.monotonic() + lasts, None, OUTCOME_ONLY)

        try:
            if counts:
                await self._limits.take_read(question.endpoint, question.principal)
            with self._queue.placement(make_order) as placement:
                call = await placement.ended()
                if call.remote is not None:  # a worker from before this flag would keep it for a while
                    self._queue.drop_result(call)
                return Decision(_may_read(call), definition)
        except Rejection as rejection:
            raise Undecided(rejection.message) from rejection


def _may_read(call: Call) -> bool:
    """Read the decision out of a call's end.

    Raises:
        Undecided: it failed, or was lost.
    """
    match call.end:
        case End.RESULT:
            return True
        case End.ASK | End.TASK:  # it would read on with an answer, which nobody is there to give
            return False
        case End.ERROR if read_line(call.line)[0] in _REFUSALS:
            return False
    raise Undecided(str(call.end))
