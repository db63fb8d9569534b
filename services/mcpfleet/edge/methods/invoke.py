"""Handlers of methods that a worker answers: tools, resources, prompts and completions.

Each finds the target in the caller's view, and makes the checks that the target decides (T11, group 11). Their order:
whether it exists for this caller, its scopes, its custom headers. Then come the request's state, the client's
capabilities, and the limits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from mcpfleet.contracts.call import Completing
from mcpfleet.contracts.manifest import Definition, FileRef
from mcpfleet.contracts.tasks import Once, Reservation
from mcpfleet.edge.calls import relay
from mcpfleet.edge.calls.call_request import CallRequest, Finish
from mcpfleet.edge.calls.end import NoAnswer
from mcpfleet.edge.calls.in_flight import Call, Order
from mcpfleet.edge.calls.relay import CLIENT_GONE, CallParts
from mcpfleet.edge.calls.updates import Elicited
from mcpfleet.edge.catalog.files import Files
from mcpfleet.edge.catalog.snapshot_cache import Snapshots
from mcpfleet.edge.identity.admission import Admission
from mcpfleet.edge.identity.limits import Limits
from mcpfleet.edge.identity.step_up import ConditionalScopes
from mcpfleet.edge.protocol.continuation import Continuation, TooManyRounds
from mcpfleet.edge.protocol.exchange import Exchange
from mcpfleet.edge.protocol.revision import Input
from mcpfleet.edge.sessions.elicitation import Elicitation
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.tasks.create import TaskCreation
from mcpfleet.edge.tasks.idempotency import Idempotency, key_of, once_of
from mcpfleet.edge.transport.http_exchange import ClientGone
from mcpfleet.views.view import Target, View
from mcpfleet.wire import file_contents, mirror, reply, texts
from mcpfleet.wire.errors import (
    Rejection,
    bad_params,
    missing_capabilities,
    not_answered,
    unknown_method,
    unknown_resource,
)
from mcpfleet.wire.protocol import CLIENT_CAPABILITIES_META_KEY, TASKS, missing
from mcpfleet.wire.uri_template import UriTemplate

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class Callers(NamedTuple):
    """The parts that say who calls, how often, and what they see."""

    admission: Admission
    limits: Limits
    snapshots: Snapshots

    def view(self, exchange: Exchange) -> View:
        """Return the view of an admitted caller.

        Raises:
            Rejection: 504 while the edge knows no snapshot of the endpoint.
        """
        view = self.find_view(exchange)
        if view is None:
            raise not_answered("the catalog")
        return view

    def find_view(self, exchange: Exchange) -> View | None:
        """Return the view of an admitted caller by what its request says of its client; None before a snapshot."""
        return self.snapshots.view(
            exchange.endpoint,
            exchange.caller,
            exchange.revision.name,
            has_apps=exchange.has_apps,
            preference=exchange.preference,
        )


class Invoker:
    """Answers exchanges by their targets."""

    def __init__(
        self,
        calls: CallParts,
        callers: Callers,
        continuation: Continuation,
        elicitation: Elicitation,
        *,
        tasks: TaskCreation,
        idempotency: Idempotency,
        files: Files,
    ) -> None:
        self._calls = calls
        self._settings: EdgeSettings = calls.settings
        self._callers = callers
        self._admission, self._limits, _ = callers
        self._continuation = continuation
        self._elicitation = elicitation
        self._tasks = tasks
        self._idempotency = idempotency
        self._scopes = ConditionalScopes()
        self._files = files

    # -- the methods --------------------------------------------------------------------------------------------------

    async def call_tool(self, exchange: Exchange) -> str | None:
        """Answer `tools/call`."""
        params = exchange.params
        arguments: dict[str, Any] = params.get("arguments", {})

        def find(view: View) -> Target:
            target = view.find("tool", params["name"])
            if target is None:
                raise bad_params("unknown tool")
            self._check_scopes(exchange, target, arguments)
            if exchange.revision.mirrors_arguments:
                mirror.check_parameters(exchange.headers, target.mirrored, arguments)
                if self._settings.strict_headers:
                    mirror.refuse_unknown_parameters(exchange.headers, target.mirrored)
            return target

        return await self._invoke(CallRequest(exchange, find(exchange.view), find, arguments))

    async def get_prompt(self, exchange: Exchange) -> str | None:
        """Answer `prompts/get`."""
        params = exchange.params

        def find(view: View) -> Target:
            target = view.find("prompt", params["name"])
            if target is None:
                raise bad_params("unknown prompt")
            return self._check_scopes(exchange, target)

        return await self._invoke(CallRequest(exchange, find(exchange.view), find, params.get("arguments", {})))

    async def read_resource(self, exchange: Exchange) -> str | None:
        """Answer `resources/read`."""
        uri = exchange.params["uri"]

        def find(view: View) -> Target:
            target = view.find_resource(uri)
            if target is None:
                raise unknown_resource(uri)
            return self._check_scopes(exchange, target)

        target = find(exchange.view)
        if target.file is not None:
            await self._answer_file(exchange, target, target.file, uri)
            return None
        request = CallRequest(exchange, target, find, uri=uri)
        request.finish = _with_cache_hints(exchange, request.definition)
        return await self._invoke(request)

    async def _answer_file(self, exchange: Exchange, target: Target, file: FileRef, uri: str) -> None:
        """Answer a read with a file, without a worker (X3)."""
        if "requestState" in exchange.params:
            await self._continuation.begin(exchange)  # no file asks, so no state is one of its own
        await self._limits.take_request(exchange.endpoint, exchange.caller)
        definition = target.listed.definition
        member = await self._files.member(target.listed.pool, file)
        exchange.language = None  # no file is translated (X34)
        meta = definition.wire.get("_meta") if file is definition.file else None
        contents = file_contents.block(uri, file.mime, meta, member)
        finish = _with_cache_hints(exchange, definition)
        await exchange.reply(finish(b'{"_meta":{},"resultType":"complete","contents":[%b]}' % contents))

    async def call_method(self, exchange: Exchange) -> str | None:
        """Answer a method of an own extension: in one run, without rounds and tasks (X44)."""

        def find(view: View) -> Target:
            target = view.find("method", exchange.message.method)
            if target is None:
                raise unknown_method()
            return self._check_scopes(exchange, target)

        target = find(exchange.view)
        definition = target.listed.definition
        if definition.needs_client and definition.extension is not None:
            needed = f"extensions.{definition.extension}"
            if missing((needed,), exchange.message.meta[CLIENT_CAPABILITIES_META_KEY]):
                raise missing_capabilities((needed,))
        arguments = {name: value for name, value in exchange.params.items() if name != "_meta"}
        request = CallRequest(exchange, target, find, arguments)
        if definition.ttl:
            request.finish = _with_cache_hints(exchange, definition)
        await self._limits.take_request(exchange.endpoint, exchange.caller)
        await self._limits.take_tool(exchange.endpoint, exchange.caller, definition)
        return await self._place(request, None)

    async def complete(self, exchange: Exchange) -> str | None:
        """Answer `completion/complete`; a declared argument without a completer has no values (L17)."""
        params = exchange.params
        asked = Completing(
            params["argument"]["name"], params["argument"]["value"], params.get("context", {}).get("arguments", {})
        )

        def find(view: View) -> Target:
            target = _referenced(view, params["ref"])
            if target is None or asked.argument not in _arguments(target.listed.definition):
                raise bad_params("unknown reference or argument")
            return self._check_scopes(exchange, target)

        request = CallRequest(exchange, find(exchange.view), find, completing=asked)
        await self._limits.take_request(exchange.endpoint, exchange.caller)
        await self._limits.take_completion(exchange.endpoint, exchange.caller)
        if asked.argument not in request.definition.completes:
            completion = {"values": [], "total": 0, "hasMore": False}
            await exchange.reply(reply.result_body({"resultType": "complete", "completion": completion}))
            return None
        return await relay.answer(self._calls, request, partial(self._order, request))

    async def list_resources(
        self, exchange: Exchange, lister: Target, cursor: str | None, *, of_several: bool
    ) -> bytes:
        """Have a lister list, and return the worker's result.

        Its progress goes to the client, unless it is one of several: then the number of ended ones does (X63).
        """
        request = CallRequest(exchange, lister, lambda _view: lister, cursor=cursor)
        request.is_one_of_several = of_several
        return await relay.fetch(self._calls, request, partial(self._order, request))

    # -- one request --------------------------------------------------------------------------------------------------

    async def _invoke(self, request: CallRequest) -> str | None:
        """Make the checks that the target decides, and answer by a task, or by a call within a session or without."""
        exchange, definition, params = request.exchange, request.definition, request.exchange.params
        request.scopes = self._scopes.needed(request.target.listed, request.arguments)
        if "requestState" in params or "inputResponses" in params:
            request.round = await self._continuation.begin(exchange)
        lacking = _lacking(exchange, definition)
        await self._limits.take_request(exchange.endpoint, exchange.caller)
        if definition.kind == "tool":
            await self._limits.take_tool(exchange.endpoint, exchange.caller, definition)
        once = _once(request)
        if lacking:
            return await self._refuse(request, NoAnswer(f"{texts.CANNOT_ANSWER}{', '.join(lacking)}."))
        if definition.task == "required":
            return await self._tasks.create(exchange, self._newest_target(request), request.body(), once)
        capabilities = exchange.message.meta[CLIENT_CAPABILITIES_META_KEY]
        request.asks = definition.may_be_asked
        request.may_stream = not definition.may_ask or not missing(definition.may_ask, capabilities)
        if definition.task is not None:
            request.deferring = self._tasks.deferring(exchange, definition)
            request.asks |= {TASKS}
            request.handle = partial(self._tasks.handle, exchange)
        if exchange.revision.input is Input.OWN_RESPONSE:
            return await self._converse(request, once)
        return await self._place(request, once)

    async def _converse(self, request: CallRequest, once: Once | None) -> str | None:
        """Answer within a session: its client gives the input that the handler needs, which runs again with it."""
        elicited, has_run = Elicited(), False
        while True:
            try:
                error_type = await self._place(request, once, elicited)
            except Rejection as rejection:
                if not has_run:
                    raise
                # A rejection is about this round alone, and says nothing of the rounds that ran before.
                return await self._refuse(request, NoAnswer(f"{texts.INTERRUPTED} ({rejection.message})"))
            if elicited.body is None:
                return error_type
            has_run = True
            body, elicited.body = elicited.body, None
            try:
                request.round = await self._elicitation.ask(request.exchange, request.round, body)
            except (NoAnswer, TooManyRounds, reply.NotSpliceable) as error:
                return await self._refuse(request, error)
            except ClientGone:
                return CLIENT_GONE

    async def _place(self, request: CallRequest, once: Once | None, elicited: Elicited | None = None) -> str | None:
        """Place a call, once under its key where it has one."""
        order = partial(self._order, request)
        if once is None:
            return await relay.answer(self._calls, request, order, elicited)

        async def run(reservation: Reservation, see: Callable[[Call], None]) -> str | None:
            request.once, request.on_placed = reservation, see
            return await relay.answer(self._calls, request, order, elicited)

        target = self._newest_target(request)
        return await self._idempotency.answer(
            request.exchange, target, once, run, goes_on=lambda: request.goes_on_without_client
        )

    async def _refuse(self, request: CallRequest, error: Exception) -> str | None:
        """Answer a call that cannot go on after its question, or was not begun; return the error's type."""
        return await relay.send_end(request, self._calls.ends.unanswered(request, error))

    def _order(self, request: CallRequest) -> Order:
        """Make the order from what the caller sees now: while a call waits, a rollout may replace the definition."""
        return request.order(self._view(request.exchange), self._settings.deadline_grace)

    def _newest_target(self, request: CallRequest) -> Target:
        return request.newest_target(self._view(request.exchange))

    def _view(self, exchange: Exchange) -> View | None:
        return self._callers.find_view(exchange)

    def _check_scopes(self, exchange: Exchange, target: Target, arguments: Mapping[str, Any] = _NOTHING) -> Target:
        """Check the caller's scopes (group 11); a tool may need more of them for some arguments (X55)."""
        self._admission.require(exchange.endpoint, exchange.caller, self._scopes.needed(target.listed, arguments))
        return target


def _once(request: CallRequest) -> Once | None:
    """Return the idempotency key of a call; None where its tool takes none, or it brings none."""
    exchange, definition = request.exchange, request.definition
    if definition.idempotency_key is None and not definition.idempotency_meta:
        return None
    key = key_of(definition, request.arguments, exchange.message.meta)
    return None if key is None else once_of(exchange, definition, key, request.arguments)


def _lacking(exchange: Exchange, definition: Definition) -> list[str]:
    """Return the capabilities that a session's client lacks for a handler that always asks for input (D16).

    Nothing is known of a client that cannot be asked: a handler that asks it is told so.

    Raises:
        Rejection: -32021, which names what is missing, for a client that answers in its next request.
    """
    capabilities = exchange.message.meta[CLIENT_CAPABILITIES_META_KEY]
    match exchange.revision.input:
        case Input.OWN_RESPONSE:
            return missing(definition.asks, capabilities)
        case Input.NEXT_REQUEST:
            asks = definition.asks if definition.task != "required" else (TASKS, *definition.asks)
            if asks and (lacking := missing(asks, capabilities)):
                raise missing_capabilities(lacking)
    return []


def _with_cache_hints(exchange: Exchange, definition: Definition) -> Finish:
    """Add how long a resource may be kept, and by whom; nothing that came of a retry may be kept (M45)."""
    is_first = definition.kind == "method" or not exchange.params.keys() & {"requestState", "inputResponses"}
    ttl = round(definition.ttl * 1000) if is_first else 0
    is_private = exchange.view.is_private_text if definition.file is None else exchange.view.is_private
    is_public = is_first and not is_private and not definition.per_caller
    return lambda body: reply.with_cache_hints(body, ttl, "public" if is_public else "private")


def _referenced(view: View, ref: dict[str, Any]) -> Target | None:
    """Return the prompt, or the template, given by itself or by a URI that it fits (M48)."""
    if ref["type"] == "ref/prompt":
        return view.find("prompt", ref["name"])
    template = view.find("template", ref["uri"])
    return template if template is not None else view.find_resource(ref["uri"])


def _arguments(definition: Definition) -> set[str]:
    """Return the names that may be completed."""
    if definition.kind == "prompt":
        return {argument["name"] for argument in definition.wire.get("arguments") or ()}
    return set(UriTemplate.parse(definition.name).variables) if definition.kind == "template" else set()
