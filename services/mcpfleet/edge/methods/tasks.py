"""`tasks/get`, `tasks/update` and `tasks/cancel`: each admitted afresh, for an id grants nothing (K8)."""

from __future__ import annotations

from pydantic_core import to_json
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import BusError, Failed, Fault, is_undone
from mcpfleet.contracts.tasks import KEY_LENGTH, MOST_ANSWERS, Binding, TasksClient, TaskView
from mcpfleet.edge.identity.limits import Limits
from mcpfleet.edge.protocol.exchange import Exchange
from mcpfleet.edge.tasks import results
from mcpfleet.edge.tasks.inputs import check_answerable, check_answers
from mcpfleet.edge.tasks.read import SERVICE, declares, language_of, read, unknown_task
from mcpfleet.edge.tasks.sanitize import Sanitizer
from mcpfleet.wire.errors import Rejection, bad_params, internal, maybe_done, missing_capabilities, unchanged
from mcpfleet.wire.protocol import CLIENT_CAPABILITIES_META_KEY, TASKS
from mcpfleet.wire.reply import NotSpliceable


class TaskMethods:
    """Answers requests for tasks."""

    def __init__(self, client: TasksClient, limits: Limits, sanitizer: Sanitizer, *, log: FilteringBoundLogger) -> None:
        self._client = client
        self._limits = limits
        self._sanitizer = sanitizer
        self._log = log

    async def get(self, exchange: Exchange) -> None:
        """Answer `tasks/get`.

        Raises:
            Rejection: -32021, -32602 or 504; -32603 for a malformed end, or one that its sanitizer refuses; 503 where
                no worker can sanitize it now (K12).
        """
        view = await self._find(exchange)
        capabilities = exchange.message.meta[CLIENT_CAPABILITIES_META_KEY]
        check_answerable(view.requests, capabilities)
        view = await self._sanitizer.sanitize(view, exchange.caller, capabilities, exchange.trace)
        try:
            body = results.got(view)
        except NotSpliceable as error:
            self._log.error("malformed task end", pool=view.pool, error=str(error))
            raise internal(exchange.trace.trace_id, 200) from None
        exchange.language = language_of(view.policy)
        await exchange.reply(body)

    async def update(self, exchange: Exchange) -> None:
        """Answer `tasks/update`: keys that are not outstanding are ignored, and a bad answer takes nothing (K9)."""
        view = await self._find(exchange)
        answers = exchange.params["inputResponses"]
        given = {key: answers[key] for key in view.requests if key in answers and len(key) <= KEY_LENGTH}
        check_answers(view.requests, given)
        if given:
            try:
                texts = {key: to_json(answer).decode() for key, answer in list(given.items())[:MOST_ANSWERS]}
                updated = await self._client.update(view.id, _binding(exchange), texts)
            except BusError as error:
                raise _refused(error) from None
            if not updated.known:
                raise unknown_task()
        await self._acknowledge(exchange)

    async def cancel(self, exchange: Exchange) -> None:
        """Answer `tasks/cancel`: the wish is kept, and an end that is there already stays (K10)."""
        view = await self._find(exchange)
        if not view.status.is_end:
            try:
                cancelled = await self._client.cancel(view.id, _binding(exchange))
            except BusError as error:
                raise _refused(error) from None
            if not cancelled.known:
                raise unknown_task()
        await self._acknowledge(exchange)

    async def _find(self, exchange: Exchange) -> TaskView:
        """Read the task. A client that did not declare the extension is refused before any look-up (D2)."""
        if not declares(exchange):
            raise missing_capabilities((TASKS,))
        await self._limits.take_request(exchange.endpoint, exchange.caller)
        return await read(self._client, exchange, exchange.params["taskId"])

    async def _acknowledge(self, exchange: Exchange) -> None:
        await exchange.reply(results.ACKNOWLEDGED)


def _binding(exchange: Exchange) -> Binding:
    return Binding.of(exchange.endpoint, exchange.caller)


def _refused(error: BusError) -> Rejection:
    if isinstance(error, Failed) and error.kind == Fault.TOO_LARGE:
        return bad_params("the input responses are too large")
    return (unchanged if is_undone(error) else maybe_done)(SERVICE)
