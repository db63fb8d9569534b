"""Has a task's result sanitized for each of its readers, by its tool's sanitizer (K13).

A sanitizer is code of the application, so a worker runs it, by a call of its own kind. The stored result stays as it
is: a result that cannot be sanitized now may be read later (K12).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Any

from structlog.typing import FilteringBoundLogger

from mcpfleet.contracts.call import SANITIZES, CallBody
from mcpfleet.contracts.principal import Principal
from mcpfleet.contracts.task_payloads import is_kept
from mcpfleet.contracts.tasks import Status, TaskView
from mcpfleet.edge.calls.in_flight import Call, End, Order
from mcpfleet.edge.calls.large_results import LargeResults, ResultLost
from mcpfleet.edge.calls.queue import CallQueue, MakeOrder
from mcpfleet.edge.catalog.snapshot_cache import Snapshots
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.tasks.read import language_of
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

    async def sanitize(
        self, view: TaskView, principal: Principal, capabilities: Mapping[str, Any], trace: TraceContext | None = None
    ) -> TaskView:
        """Return a task as its reader may see it; the same task, where its tool has no sanitizer.

        Raises:
            Rejection: 503 where no worker can run the sanitizer now, 200 with -32603 where the sanitizer failed.
        """
        if view.status is not Status.COMPLETED or view.end is None or not is_kept(view.end):
            return view
        language = language_of(view.policy)
        body = CallBody({}, dict(capabilities), principal=principal, language=language, showing=view.end).write()
        tries = itertools.count()

        def make_order() -> Order:
            pool, definition = view.pool, view.definition
            if next(tries) % 2:  # a rollout may have removed its definition; the tool's newer one has a sanitizer
                definition = self._newer(view, principal) or definition
            deadline = time.monotonic() + self._settings.task_shown_within
            return Order(pool, definition, body, deadline, trace, SANITIZES)

        sanitized = await self._run(view, make_order)
        return view.model_copy(update={"end": sanitized.decode()})

    def _newer(self, view: TaskView, principal: Principal) -> str | None:
        """Return the tool's definition of now, as the reader sees it; None where it has no sanitizer."""
        catalog_view = self._snapshots.view(view.endpoint, principal)
        target = None if catalog_view is None else catalog_view.find("tool", view.name)
        if target is None or target.listed.pool != view.pool or not target.listed.definition.sanitizes:
            return None
        return target.listed.digest

    async def _run(self, view: TaskView, make_order: MakeOrder) -> bytes:
        try:
            with self._queue.placement(make_order) as placement:
                call = await placement.ended()
                if call.remote is None:
                    return _result(call)
                async with self._large_results.fetched(call.remote) as body:
                    return body
        except ResultLost as error:
            self._log.warning("sanitized result lost", pool=view.pool, error=str(error))
            raise no_capacity(1) from None
        except Rejection as rejection:
            self._log.warning(
                "task result not sanitized",
                tool=view.name,
                pool=view.pool,
                definition=view.definition,
                status=rejection.status,
            )
            raise


def _result(call: Call) -> bytes:
    """Return the sanitized result. A sanitizer may run again, so a lost call is rejected with a retry."""
    match call.end:
        case End.RESULT:
            return call.body
        case End.LOST | End.UNACCEPTED | End.GIVEN_UP:
            raise no_capacity(1)
        case _:
            reference = call.order.trace.trace_id if call.order.trace is not None else call.id
            raise internal(reference, 200)
