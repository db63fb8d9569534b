"""Shows each reader of a task a result that its tool's sanitizer has cleared for them (K13).

A sanitizer is code of the application, so a worker runs it, as a call that runs nothing else. The task's row stays as
it is: what cannot be cleared is told to nobody, and may be read later (K12).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Any

from structlog.typing import FilteringBoundLogger

from mcpfleet.contracts.call import SHOWS, CallBody
from mcpfleet.contracts.principal import Principal
from mcpfleet.contracts.task_payloads import is_kept
from mcpfleet.contracts.tasks import Status, TaskView
from mcpfleet.edge.calls.in_flight import Call, End, Order
from mcpfleet.edge.calls.large_results import LargeResults, ResultLost
from mcpfleet.edge.calls.queue import CallQueue, MakeOrder
from mcpfleet.edge.catalog.snapshot_cache import Snapshots
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.wire.errors import Rejection, internal, no_capacity


class Sanitizer:
    """Has workers sanitize results."""

    def __init__(
        self,
        queue: CallQueue,
        large_results: LargeResults,
        snapshots: Snapshots,
        *,
        settings: EdgeSettings,
        log: FilteringBoundLogger,
    ) -> None:
        self._queue = queue
        self._large_results = large_results
        self._snapshots = snapshots
        self._settings = settings
        self._log = log

    async def shown(
        self, view: TaskView, principal: Principal, capabilities: Mapping[str, Any], trace: TraceContext | None = None
    ) -> TaskView:
        """The task as a reader may see it; itself, where no sanitizer has to look.

        Raises:
            Rejection: 503 where no worker can clear it now, 200 with -32603 where the sanitizer could not.
        """
        if view.status is not Status.COMPLETED or view.end is None or not is_kept(view.end):
            return view
        body = CallBody({}, dict(capabilities), principal=principal, showing=view.end).write()
        tries = itertools.count()

        def make_order() -> Order:
            pool, definition = view.pool, view.definition
            if next(tries) % 2:  # its own definition may be gone with a rollout: the tool's newer one has its sanitizer
                definition = self._newer(view, principal) or definition
            deadline = time.monotonic() + self._settings.task_shown_within
            return Order(pool, definition, body, deadline, trace, SHOWS)

        cleared = await self._cleared(view, make_order)
        return view.model_copy(update={"end": cleared.decode()})

    def _newer(self, view: TaskView, principal: Principal) -> str | None:
        """What the tool of this name is for the reader now, where it has a sanitizer of its tasks."""
        seen = self._snapshots.view(view.endpoint, principal)
        target = None if seen is None else seen.find("tool", view.name)
        if target is None or target.listed.pool != view.pool or not target.listed.definition.sanitizes:
            return None
        return target.listed.digest

    async def _cleared(self, view: TaskView, make_order: MakeOrder) -> bytes:
        try:
            async with self._queue.ended(make_order) as call:
                if call.remote is None:
                    return _result(call)
                async with self._large_results.fetched(call.remote) as body:
                    return body
        except ResultLost as error:
            self._log.warning("a cleared result was lost", pool=view.pool, error=str(error))
            raise no_capacity(1) from None
        except Rejection as rejection:
            self._log.warning(
                "a task's result is not shown",
                tool=view.name,
                pool=view.pool,
                definition=view.definition,
                status=rejection.status,
            )
            raise


def _result(call: Call) -> bytes:
    """What came of clearing it: reading is safe to repeat, so what was lost with a worker is asked for again."""
    match call.end:
        case End.RESULT:
            return call.body
        case End.LOST | End.UNACCEPTED | End.GIVEN_UP:
            raise no_capacity(1)
        case _:
            reference = call.order.trace.trace_id if call.order.trace is not None else call.id
            raise internal(reference, 200)
