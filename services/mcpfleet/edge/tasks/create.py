"""Makes tasks of calls, and hands their handles out once their callers can read them (K4, K5)."""

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
"""Schemas that are kept ready."""


class TaskCreation:
    """Makes tasks."""

    def __init__(self, client: TasksClient, endpoints: Mapping[str, Endpoint], *, log: FilteringBoundLogger) -> None:
        self._client = client
        self._endpoints = endpoints
        self._checks = ArgumentChecks()
        self._log = log

    def deferring(self, exchange: Exchange, definition: Definition) -> Deferring | None:
        """What lets a worker make a task of a call; none where the caller takes none, or the endpoint has none."""
        endpoint = exchange.endpoint
        if not self._endpoints[endpoint].tasks or not declares(exchange):
            return None
        return Deferring(endpoint, policy_of(definition))

    async def create(self, exchange: Exchange, target: Target, call: CallBody, once: Once | None = None) -> str | None:
        """Answer a call whose tool makes a task of each; returns the error's type, or None for a result.

        Raises:
            Rejection: 504 where nothing was made.
        """
        if not exchange.revision.takes_tasks:
            return await self._send(exchange, tool_failed(exchange, texts.NO_TASKS, "no_tasks"))
        problems = self._checks.problems(target.listed, call.arguments)
        if problems is not None:
            return await self._send(exchange, tool_failed(exchange, problems, "tool_error"))
        try:
            created = await self._client.create(self._task(exchange, target, call), once)
        except BusError as error:
            return await self._send(exchange, self._not_made(exchange, error))
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
            policy=policy_of(definition),
            run_limit=definition.run_limit,
            retention=definition.retention,
        )

    def _not_made(self, exchange: Exchange, error: BusError) -> CallEnd:
        self._log.warning("a task was not made", error=str(error))
        if isinstance(error, Failed) and error.kind == Fault.TOO_LARGE:
            return tool_failed(exchange, str(error), "too_large")
        if is_undone(error):
            raise not_answered(SERVICE) from error
        return tool_failed(exchange, texts.UNCERTAIN_TASK, "uncertain_task")

    async def handle(self, exchange: Exchange, task: bytes) -> bytes:
        """The result of a call that has become a task while it ran, which is read as its caller first (K5).

        Raises:
            Rejection: it cannot be read.
        """
        view = await read(self._client, exchange, task.decode("ascii", "replace"))
        return results.created(view)

    @staticmethod
    async def _send(exchange: Exchange, told: CallEnd) -> str | None:
        await exchange.answer(told.status, told.body)
        return told.error_type


class ArgumentChecks:
    """Checks arguments against their tools' schemas, before a task is made of them (K4)."""

    def __init__(self) -> None:
        self._ready: OrderedDict[str, Validator | None] = OrderedDict()

    def problems(self, listed: Listed, arguments: dict[str, Any]) -> str | None:
        """Say how arguments break a tool's schema, and repeat nothing of them; None where they do not."""
        validator = self._validator(listed)
        if validator is None or validator.accepts(arguments):
            return None
        return "Invalid arguments: " + "; ".join(map(str, validator.problems(arguments)))

    def _validator(self, listed: Listed) -> Validator | None:
        if listed.digest not in self._ready:
            self._ready[listed.digest] = _made(listed.definition.wire.get("inputSchema"))
            if len(self._ready) > _MOST_VALIDATORS:
                self._ready.popitem(last=False)
        return self._ready[listed.digest]


def _made(schema: Any) -> Validator | None:
    """Make a schema ready; one that is not usable is left to the worker, which checks again."""
    # Imported where it is used: an edge without tasks needs none of it.
    from mcpfleet.app.errors import Mistake  # noqa: PLC0415
    from mcpfleet.app.validation import Validator  # noqa: PLC0415

    try:
        return Validator(schema) if isinstance(schema, dict) else None
    except Mistake:
        return None
