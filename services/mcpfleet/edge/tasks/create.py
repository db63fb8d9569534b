"""Creates tasks from calls. A client gets a task's handle only once it can read the task (K4, K5)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import BusError, Failed, Fault, is_undone
from mcpfleet.contracts.call import CallBody, Deferring
from mcpfleet.contracts.catalog import Listed
from mcpfleet.contracts.endpoints import Endpoint
from mcpfleet.contracts.manifest import Definition
from mcpfleet.contracts.task_payloads import Origin
from mcpfleet.contracts.tasks import Binding, KeyOutcome, NewTask, Once, TasksClient, new_task_id
from mcpfleet.edge.calls.end import CallEnd, tool_failed
from mcpfleet.edge.protocol.exchange import Exchange
from mcpfleet.edge.tasks import results
from mcpfleet.edge.tasks.read import SERVICE, declares, policy_of, read
from mcpfleet.views.view import Target
from mcpfleet.wire import texts
from mcpfleet.wire.errors import not_answered
from mcpfleet.wire.protocol import REPEAT

if TYPE_CHECKING:
    from mcpfleet.app.validation import Validator

_MOST_VALIDATORS: Final = 256
"""Compiled schemas that are kept."""


class TaskCreation:
    """Creates tasks."""

    def __init__(self, client: TasksClient, endpoints: Mapping[str, Endpoint], *, log: FilteringBoundLogger) -> None:
        self._client = client
        self._endpoints = endpoints
        self._checks = ArgumentChecks()
        self._log = log

    def deferring(self, exchange: Exchange, definition: Definition) -> Deferring | None:
        """Return what lets a worker turn a call into a task; None where the client or the endpoint has no tasks."""
        endpoint = exchange.endpoint
        if not self._endpoints[endpoint].tasks or not declares(exchange):
            return None
        return Deferring(endpoint, policy_of(definition, exchange.language))

    async def create(self, exchange: Exchange, target: Target, call: CallBody, once: Once | None = None) -> str | None:
        """Answer a call whose tool creates a task for each call; return the error's type, or None for a result.

        Raises:
            Rejection: 504 where no task was created.
        """
        if not exchange.revision.takes_tasks:
            return await self._send(exchange, tool_failed(exchange, texts.NO_TASKS, "no_tasks"))
        problems = self._checks.problems(target.listed, call.arguments)
        if problems is not None:
            return await self._send(exchange, tool_failed(exchange, problems, "tool_error"))
        try:
            created = await self._client.create(self._task(exchange, target, call), once)
        except BusError as error:
            return await self._send(exchange, self._failure(exchange, error))
        if created.outcome is KeyOutcome.MISMATCH:
            return await self._send(exchange, tool_failed(exchange, texts.KEY_MISMATCH, "key_mismatch"))
        if created.task is None:
            return await self._send(exchange, tool_failed(exchange, texts.UNCERTAIN_TASK, "uncertain_task"))
        meta = {REPEAT: True} if created.outcome is KeyOutcome.REPEAT else None
        return await self._send(exchange, CallEnd(200, exchange.response(results.created(created.task, meta)), None))

    def _task(self, exchange: Exchange, target: Target, call: CallBody) -> NewTask:
        listed = target.listed
        definition = listed.definition
        endpoint = exchange.endpoint
        return NewTask(
            id=new_task_id(),
            binding=Binding.of(endpoint, exchange.caller),
            pool=listed.pool,
            definition=listed.digest,
            name=definition.name,
            origin=Origin(endpoint, call, exchange.trace).write(),
            policy=policy_of(definition, call.language),
            run_limit=definition.run_limit,
            retention=definition.retention,
        )

    def _failure(self, exchange: Exchange, error: BusError) -> CallEnd:
        self._log.warning("task not created", error=str(error))
        if isinstance(error, Failed) and error.kind == Fault.TOO_LARGE:
            return tool_failed(exchange, str(error), "too_large")
        if is_undone(error):
            raise not_answered(SERVICE) from error
        return tool_failed(exchange, texts.UNCERTAIN_TASK, "uncertain_task")

    async def handle(self, exchange: Exchange, task: bytes) -> bytes:
        """Return the result of a call that a worker has turned into a task, once its caller can read the task (K5).

        Raises:
            Rejection: the task cannot be read.
        """
        view = await read(self._client, exchange, task.decode("ascii", "replace"))
        return results.created(view)

    @staticmethod
    async def _send(exchange: Exchange, end: CallEnd) -> str | None:
        await exchange.answer(end.status, end.body)
        return end.error_type


class ArgumentChecks:
    """Checks arguments against their tools' schemas, before a task is created (K4)."""

    def __init__(self) -> None:
        self._compiled: OrderedDict[str, Validator | None] = OrderedDict()

    def problems(self, listed: Listed, arguments: dict[str, Any]) -> str | None:
        """Return how arguments break a tool's schema, without repeating them; None where they do not.

        A source checks its own (B4).
        """
        if listed.definition.hosted is not None:
            return None
        validator = self._validator(listed)
        if validator is None or validator.accepts(arguments):
            return None
        return "Invalid arguments: " + "; ".join(map(str, validator.problems(arguments)))

    def _validator(self, listed: Listed) -> Validator | None:
        if listed.digest not in self._compiled:
            self._compiled[listed.digest] = _compile(listed.definition.wire.get("inputSchema"))
            if len(self._compiled) > _MOST_VALIDATORS:
                self._compiled.popitem(last=False)
        return self._compiled[listed.digest]


def _compile(schema: Any) -> Validator | None:
    """Compile a schema; return None for an unusable one, since the worker checks again."""
    # Imported here, since an edge without tasks does not need it.
    from mcpfleet.app.errors import Mistake  # noqa: PLC0415
    from mcpfleet.app.validation import Validator  # noqa: PLC0415

    try:
        return Validator(schema) if isinstance(schema, dict) else None
    except Mistake:
        return None
