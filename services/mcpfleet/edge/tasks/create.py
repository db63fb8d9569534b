"""Makes tasks of calls, and hands their handles out once their callers can read them (K4, K5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import BusError, Failed, Fault, is_undone
from mcpfleet.contracts.call import CallBody, Deferring
from mcpfleet.contracts.endpoints import Endpoint
from mcpfleet.contracts.manifest import Definition
from mcpfleet.contracts.task_payloads import Origin
from mcpfleet.contracts.tasks import Binding, KeyOutcome, NewTask, Once, TasksClient, new_task_id
from mcpfleet.edge.calls.end import Told, tool_failed
from mcpfleet.edge.protocol.exchange import Inquiry
from mcpfleet.edge.tasks import policy, results
from mcpfleet.edge.tasks.arguments import Checks
from mcpfleet.edge.tasks.extension import declares
from mcpfleet.edge.tasks.idempotency import MISMATCH
from mcpfleet.edge.tasks.read import SERVICE, read
from mcpfleet.views.view import Target
from mcpfleet.wire.errors import not_answered
from mcpfleet.wire.protocol import REPEAT

_LEGACY: Final = "Each call of this tool is a durable task, which clients of this protocol revision cannot take."
_UNCERTAIN: Final = (
    "The task may have been made, and nobody can say: it may run, in whole or in part. Find out, by a tool that reads, "
    "before calling this again."
)


class Creation:
    """Makes tasks."""

    def __init__(self, client: TasksClient, endpoints: Mapping[str, Endpoint], *, log: FilteringBoundLogger) -> None:
        self._client = client
        self._endpoints = endpoints
        self._checks = Checks()
        self._log = log

    def deferring(self, inquiry: Inquiry, definition: Definition) -> Deferring | None:
        """What lets a worker make a task of a call; none where the caller takes none, or the endpoint has none."""
        endpoint = inquiry.request.endpoint
        if not self._endpoints[endpoint].tasks or not declares(inquiry):
            return None
        return Deferring(endpoint, policy.written(definition))

    async def create(self, inquiry: Inquiry, target: Target, call: CallBody, once: Once | None = None) -> str | None:
        """Answer a call whose tool makes a task of each; returns the error's type, or None for a result.

        Raises:
            Rejection: 504 where nothing was made.
        """
        if inquiry.request.envelope.is_legacy:
            return await self._send(inquiry, tool_failed(inquiry, _LEGACY, "no_tasks"))
        problems = self._checks.problems(target.listed, call.arguments)
        if problems is not None:
            return await self._send(inquiry, tool_failed(inquiry, problems, "tool_error"))
        try:
            created = await self._client.create(self._task(inquiry, target, call), once)
        except BusError as error:
            return await self._send(inquiry, self._not_made(inquiry, error))
        if created.outcome is KeyOutcome.MISMATCH:
            return await self._send(inquiry, tool_failed(inquiry, MISMATCH, "key_mismatch"))
        if created.task is None:
            return await self._send(inquiry, tool_failed(inquiry, _UNCERTAIN, "uncertain_task"))
        meta = {REPEAT: True} if created.outcome is KeyOutcome.REPEAT else None
        return await self._send(inquiry, Told(200, inquiry.response(results.created(created.task, meta)), None))

    def _task(self, inquiry: Inquiry, target: Target, call: CallBody) -> NewTask:
        listed = target.listed
        definition = listed.definition
        endpoint = inquiry.request.endpoint
        return NewTask(
            id=new_task_id(),
            binding=Binding.of(endpoint, inquiry.principal),
            pool=listed.pool,
            definition=listed.digest,
            name=definition.name,
            origin=Origin(endpoint, call, inquiry.request.trace).write(),
            policy=policy.written(definition),
            run_limit=definition.run_limit,
            retention=definition.retention,
        )

    def _not_made(self, inquiry: Inquiry, error: BusError) -> Told:
        self._log.warning("a task was not made", error=str(error))
        if isinstance(error, Failed) and error.kind == Fault.TOO_LARGE:
            return tool_failed(inquiry, str(error), "too_large")
        if is_undone(error):
            raise not_answered(SERVICE) from error
        return tool_failed(inquiry, _UNCERTAIN, "uncertain_task")

    async def handle(self, inquiry: Inquiry, task: bytes) -> bytes:
        """The result of a call that has become a task while it ran, which is read as its caller first (K5).

        Raises:
            Rejection: it cannot be read.
        """
        view = await read(self._client, inquiry, task.decode("ascii", "replace"))
        return results.created(view)

    @staticmethod
    async def _send(inquiry: Inquiry, told: Told) -> str | None:
        await inquiry.request.client.answer(told.status, told.body)
        return told.error_type
