"""Requests that a worker answers: tools, resources, prompts and completions, from the target in the view to the order.

The checks are those of T11's group 11 that the target decides: whether it exists for this caller, its scopes, its
custom headers, the request's state, the client's capabilities, and the limits, in this order.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from mcpfleet.contracts.call import WANTS_PROGRESS, CallBody, Completing, Deferring
from mcpfleet.contracts.manifest import Definition
from mcpfleet.contracts.tasks import Once, Reservation
from mcpfleet.edge.calls.end import CANNOT_ANSWER, Finish, NoAnswer, Use, as_it_is
from mcpfleet.edge.calls.in_flight import Call, Order
from mcpfleet.edge.calls.queue import MakeOrder
from mcpfleet.edge.calls.relay import CLIENT_GONE, Answering, Asked, Listening
from mcpfleet.edge.catalog.snapshot_cache import Snapshots
from mcpfleet.edge.identity.admission import Admission
from mcpfleet.edge.identity.limits import Limits
from mcpfleet.edge.protocol.continuation import FIRST, Round, Rounds, TooManyRounds
from mcpfleet.edge.protocol.exchange import Inquiry
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.tasks.create import Creation
from mcpfleet.edge.tasks.idempotency import OnceCalls, key_of, once_of
from mcpfleet.edge.transport.client import ClientGone
from mcpfleet.views.view import Target, View
from mcpfleet.wire import mirror, projection, reply
from mcpfleet.wire.capabilities import TASKS, missing
from mcpfleet.wire.envelope import RequestId
from mcpfleet.wire.errors import Rejection, bad_params, missing_capabilities, unknown_resource
from mcpfleet.wire.protocol import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, LOG_LEVEL_META_KEY
from mcpfleet.wire.uri_template import UriTemplate

_INTERRUPTED: Final = (
    "This call could not go on after what it had asked. Nothing more was run, and what it did before it asked is done: "
    "find out, by a tool that reads, before calling it again."
)
Find = Callable[[View], Target]
"""Finds the target in a view; raises `Rejection` where it does not exist for the caller, or not any more."""


class Asks(Protocol):
    """Asks the client of a session, within its request, what a handler asks."""

    async def ask(self, session: str, inquiry: Inquiry, before: Round, body: bytes) -> Round:
        """Ask, and bring back the answers.

        Raises:
            NoAnswer: there is none to go on with.
            TooManyRounds: it was asked often enough.
            NotSpliceable: the worker's frame is malformed.
            ClientGone: nobody is left to be asked.
        """


class _Wish(NamedTuple):
    """What is asked of a target."""

    inquiry: Inquiry
    find: Find
    target: Target
    """What `find` gives for the inquiry's own view."""
    arguments: dict[str, Any]
    round: Round = FIRST
    uri: str | None = None
    completing: Completing | None = None
    cursor: str | None = None
    deferring: Deferring | None = None
    once: Reservation | None = None
    on_placed: Callable[[Call], None] | None = None


class Uses:
    """Answers requests for targets."""

    def __init__(
        self,
        answering: Answering,
        rounds: Rounds,
        snapshots: Snapshots,
        settings: EdgeSettings,
        *,
        admission: Admission,
        limits: Limits,
        creation: Creation,
        once: OnceCalls,
        asking: Asks,
    ) -> None:
        self._asking = asking
        self._creation = creation
        self._once = once
        self._answering = answering
        self._rounds = rounds
        self._snapshots = snapshots
        self._settings = settings
        self._admission = admission
        self._limits = limits

    async def call_tool(self, inquiry: Inquiry) -> str | None:
        """Answer `tools/call`."""
        params = inquiry.request.params
        arguments: dict[str, Any] = params.get("arguments", {})

        def find(view: View) -> Target:
            target = view.find("tool", params["name"])
            if target is None:
                raise bad_params("unknown tool")
            self._check_scopes(inquiry, target)
            if inquiry.request.envelope.is_legacy:
                return target  # L6: its headers mirror nothing
            mirror.check_parameters(inquiry.request.client.headers, target.mirrored, arguments)
            if self._settings.strict_headers:
                mirror.refuse_unknown_parameters(inquiry.request.client.headers, target.mirrored)
            return target

        return await self._use(inquiry, find, arguments)

    async def get_prompt(self, inquiry: Inquiry) -> str | None:
        """Answer `prompts/get`."""
        params = inquiry.request.params

        def find(view: View) -> Target:
            target = view.find("prompt", params["name"])
            if target is None:
                raise bad_params("unknown prompt")
            return self._check_scopes(inquiry, target)

        return await self._use(inquiry, find, params.get("arguments", {}))

    async def read_resource(self, inquiry: Inquiry) -> str | None:
        """Answer `resources/read`."""
        uri = inquiry.request.params["uri"]

        def find(view: View) -> Target:
            target = view.find_resource(uri)
            if target is None:
                raise unknown_resource(uri)
            return self._check_scopes(inquiry, target)

        return await self._use(inquiry, find, {}, uri=uri)

    async def complete(self, inquiry: Inquiry) -> str | None:
        """Answer `completion/complete`; an argument that is declared and has no completer has no values (L17)."""
        params = inquiry.request.params
        asked = Completing(
            params["argument"]["name"], params["argument"]["value"], params.get("context", {}).get("arguments", {})
        )

        def find(view: View) -> Target:
            target = _referenced(view, params["ref"])
            if target is None or asked.argument not in _arguments(target.listed.definition):
                raise bad_params("unknown reference or argument")
            return self._check_scopes(inquiry, target)

        target = find(inquiry.view)
        definition = target.listed.definition
        await self._limits.take_request(inquiry.request.endpoint, inquiry.principal)
        await self._limits.take_completion(inquiry.request.endpoint, inquiry.principal)
        if asked.argument not in definition.completes:
            completion = {"values": [], "total": 0, "hasMore": False}
            result = reply.result_body({"resultType": "complete", "completion": completion})
            await inquiry.request.client.answer(200, inquiry.response(result))
            return None
        wish = _Wish(inquiry, find, target, {}, completing=asked)
        return await self._answering.answer(Use(inquiry), Listening(may_stream=False), lambda: self._order(wish))

    async def list_resources(self, inquiry: Inquiry, lister: Target, cursor: str | None) -> bytes:
        """Have a lister list: the worker's result."""
        wish = _Wish(inquiry, lambda _view: lister, lister, {}, cursor=cursor)
        return await self._answering.fetch(Use(inquiry), lambda: self._order(wish))

    async def _use(
        self,
        inquiry: Inquiry,
        find: Find,
        arguments: dict[str, Any],
        *,
        uri: str | None = None,
    ) -> str | None:
        target = find(inquiry.view)
        definition = target.listed.definition
        params = inquiry.request.params
        brought = self._rounds.begin(inquiry) if "requestState" in params or "inputResponses" in params else FIRST
        lacking = _lacking(inquiry, definition)
        await self._limits.take_request(inquiry.request.endpoint, inquiry.principal)
        if definition.kind == "tool":
            await self._limits.take_tool(inquiry.request.endpoint, inquiry.principal, definition)
        wish = _Wish(inquiry, find, target, arguments, brought, uri)
        takes_key = definition.idempotency_key is not None or definition.idempotency_meta
        key = key_of(definition, arguments, inquiry.request.envelope.meta) if takes_key else None
        once = None if key is None else once_of(inquiry, definition.name, key, arguments)
        if lacking:
            return await self._answering.refuse(Use(inquiry), NoAnswer(f"{CANNOT_ANSWER}{', '.join(lacking)}."))
        if definition.task == "required":
            return await self._creation.create(inquiry, self._target(wish), self._body(wish), once)
        finish = as_it_is if uri is None else _with_cache_hints(inquiry, definition)
        use = Use(inquiry, definition.may_be_asked, finish, brought, _wraps(inquiry, definition))
        if definition.task is not None:
            wish = wish._replace(deferring=self._creation.deferring(inquiry, definition))
            use = use._replace(asks=use.asks | {TASKS}, handle=functools.partial(self._creation.handle, inquiry))
        if inquiry.session is None:
            return await self._answer(wish, use, once)
        return await self._converse(inquiry.session, wish, use, once)

    async def _converse(self, session: str, wish: _Wish, use: Use, once: Once | None) -> str | None:
        """Answer within a session: the client is asked what the handler asks, which runs again with the answers."""
        asked, has_run = Asked(), False
        while True:
            try:
                error_type = await self._answer(wish, use, once, asked)
            except Rejection as rejection:
                if not has_run:
                    raise
                # What a rejection says holds of this round alone, and not of what ran before the question.
                return await self._answering.refuse(use, NoAnswer(f"{_INTERRUPTED} ({rejection.message})"))
            if asked.body is None:
                return error_type
            has_run = True
            body, asked.body = asked.body, None
            try:
                wish = wish._replace(round=await self._asking.ask(session, wish.inquiry, wish.round, body))
            except (NoAnswer, TooManyRounds, reply.NotSpliceable) as error:
                return await self._answering.refuse(use, error)
            except ClientGone:
                return CLIENT_GONE

    async def _answer(self, wish: _Wish, use: Use, once: Once | None, asked: Asked | None = None) -> str | None:
        """Place a call, once under its key where it has one."""
        if once is None:
            return await self._answering.answer(use, *self._ordered(wish), asked)

        async def run(reservation: Reservation, see: Callable[[Call], None]) -> str | None:
            ordered = self._ordered(wish._replace(once=reservation, on_placed=see))
            return await self._answering.answer(use, *ordered, asked)

        inquiry, definition = wish.inquiry, wish.target.listed.definition

        def goes_on() -> bool:
            is_left = inquiry.request.envelope.is_legacy and not inquiry.request.client.is_unwanted
            return is_left or definition.on_disconnect == "continue"

        return await self._once.answer(inquiry, self._target(wish), once, run, goes_on=goes_on)

    def _ordered(self, wish: _Wish) -> tuple[Listening, MakeOrder]:
        """What the client hears of a call meanwhile, and how its order is made."""
        meta, may_ask = wish.inquiry.request.envelope.meta, wish.target.listed.definition.may_ask
        may_stream = not may_ask or not missing(may_ask, meta[CLIENT_CAPABILITIES_META_KEY])
        listening = Listening(progress_token(meta), LOG_LEVEL_META_KEY in meta, may_stream)
        flags = WANTS_PROGRESS if may_stream and listening.token is not None else ""
        return listening, lambda: self._order(wish, flags)

    def _check_scopes(self, inquiry: Inquiry, target: Target) -> Target:
        self._admission.require(inquiry.request.endpoint, inquiry.principal, target.listed.definition.scopes)
        return target

    def _order(self, wish: _Wish, flags: str = "") -> Order:
        """Make the order from what the caller sees now: while a call waits, a rollout may replace the definition."""
        inquiry = wish.inquiry
        listed = self._target(wish).listed
        return Order(
            pool=listed.pool,
            definition=listed.digest,
            body=self._body(wish).write(),
            deadline=time.monotonic() + listed.definition.timeout + self._settings.deadline_grace,
            trace=inquiry.request.trace,
            flags=flags,
            # P9: a client of 2025 that leaves has not cancelled.
            outlives_client=listed.definition.on_disconnect == "continue" or inquiry.request.envelope.is_legacy,
            may_be_taken_back=listed.definition.on_disconnect != "continue",
            on_placed=wish.on_placed,
        )

    def _target(self, wish: _Wish) -> Target:
        """Look again only where the view is another by now: the same one has the same target, and the same checks."""
        inquiry = wish.inquiry
        newest = self._snapshots.view(inquiry.request.endpoint, inquiry.principal)
        return wish.target if newest is None or newest is inquiry.view else wish.find(newest)

    @staticmethod
    def _body(wish: _Wish) -> CallBody:
        meta = wish.inquiry.request.envelope.meta
        client_info = meta.get(CLIENT_INFO_META_KEY)
        return CallBody(
            arguments=wish.arguments,
            capabilities=meta[CLIENT_CAPABILITIES_META_KEY],
            client=client_info if isinstance(client_info, dict) else {},
            principal=wish.inquiry.principal,
            uri=wish.uri,
            completing=wish.completing,
            cursor=wish.cursor,
            answers=wish.round.answers,
            memory=wish.round.memory,
            log_level=meta.get(LOG_LEVEL_META_KEY),
            deferring=wish.deferring,
            once=wish.once,
        )


def _lacking(inquiry: Inquiry, definition: Definition) -> list[str]:
    """What a client of 2025 cannot answer in a call that asks it, so that it is not begun (D16).

    Without a session nothing is known of one, and a handler that asks it something is told so.

    Raises:
        Rejection: -32021, which names what is missing, for a client of 2026-07-28.
    """
    capabilities = inquiry.request.envelope.meta[CLIENT_CAPABILITIES_META_KEY]
    if inquiry.session is not None:
        return missing(definition.asks, capabilities)
    asks = definition.asks if definition.task != "required" else (TASKS, *definition.asks)
    if asks and not inquiry.request.envelope.is_legacy:
        lacking = missing(asks, capabilities)
        if lacking:
            raise missing_capabilities(lacking)
    return []


def _with_cache_hints(inquiry: Inquiry, definition: Definition) -> Finish:
    """Say of what was read how long it may be kept, and by whom: nothing of what a retry brought (M45)."""
    is_first = not inquiry.request.params.keys() & {"requestState", "inputResponses"}
    ttl = round(definition.ttl * 1000) if is_first else 0
    is_public = is_first and inquiry.view.scope == "public" and not definition.per_caller
    return lambda body: reply.with_cache_hints(body, ttl, "public" if is_public else "private")


def _wraps(inquiry: Inquiry, definition: Definition) -> bool:
    """Whether the client sees the structured content below a member, as in the revisions of 2025."""
    if not inquiry.request.envelope.is_legacy or definition.kind != "tool":
        return False
    return projection.needs_wrapping(definition.wire.get("outputSchema"))


def progress_token(meta: dict[str, Any]) -> RequestId | None:
    """The token under which the client hears progress, where it is a valid one (P1)."""
    token = meta.get("progressToken")
    return token if isinstance(token, (str, int)) and not isinstance(token, bool) else None


def _referenced(view: View, ref: dict[str, Any]) -> Target | None:
    """The prompt, or the template, given by itself or by a URI that it fits (M48)."""
    if ref["type"] == "ref/prompt":
        return view.find("prompt", ref["name"])
    template = view.find("template", ref["uri"])
    return template if template is not None else view.find_resource(ref["uri"])


def _arguments(definition: Definition) -> set[str]:
    """The names that may be completed."""
    if definition.kind == "prompt":
        return {argument["name"] for argument in definition.wire.get("arguments") or ()}
    return set(UriTemplate.parse(definition.name).variables) if definition.kind == "template" else set()
