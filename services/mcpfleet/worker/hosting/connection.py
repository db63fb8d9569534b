"""One connection to a source: the handshake in either era, requests, and what the source says by itself.

This is the one module that uses the SDK's dispatcher, whose lifecycle the SDK calls provisional.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from importlib.metadata import version
from secrets import token_hex
from typing import Any, Final, Literal

import anyio
from anyio.abc import TaskStatus
from mcp.shared.dispatcher import CallOptions, DispatchContext
from mcp.shared.exceptions import MCPError
from mcp.shared.transport_context import TransportContext
from mcp_types import METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION, RequestId

from mcpfleet.process.auto_reset_event import AutoResetEvent
from mcpfleet.process.errors import leaves
from mcpfleet.sources.source import Source
from mcpfleet.wire.protocol import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LEGACY,
    MODERN,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
)
from mcpfleet.worker.hosting.change_streams import LISTEN, ChangeStreams
from mcpfleet.worker.hosting.link import Facts, Listener, OpenLink, SourceFailed, SourceLink, Turned
from mcpfleet.worker.upstream import NotSent, UpstreamError, UpstreamLost

OnProgress = Callable[[Mapping[str, Any]], None]
"""Takes the parameters of a progress notification, in the order of the wire."""

_LISTS: Final = frozenset(f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources"))
"""The notifications that a list has changed."""
_WATCHES_WITHIN: Final = 10.0
"""Seconds in which a source of 2025 must answer that it watches a resource, or does no more."""


class SourceConnection:
    """A connection; `run` makes it and holds it."""

    def __init__(self, source: Source, open_link: OpenLink, listener: Listener, era: Literal["auto", "2025", "2026"]):
        self._source = source
        self._open_link = open_link
        self._listener = listener
        self._era = era
        self._ids = itertools.count(1)
        self._progress: dict[RequestId, OnProgress] = {}
        self._over = anyio.Event()
        self._running = 0
        self._is_idle = anyio.Event()
        self._watched: frozenset[str] = frozenset()
        self._changes = ChangeStreams(self, listener)
        self._link: SourceLink
        self.facts: Facts
        """Known once `run` has started."""
        self.has_started = False
        """Whether its handshake was made."""
        self.name = token_hex(8)
        """Names it among all connections; another state of the source has another name."""
        self.label: str | None = None
        """The name that results show; None where none is shown."""

    @property
    def is_over(self) -> bool:
        """Whether it takes no request any more; those that run may go on."""
        return self._over.is_set() or self._link.is_over

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Connect, and hold the connection until its source ends it; started when requests can be made.

        Raises:
            SourceFailed: it could not be made.
        """
        with anyio.CancelScope() as starting:
            starting.deadline = anyio.current_time() + self._source.start_within
            async with self._open_link() as self._link, anyio.create_task_group() as tasks:
                await tasks.start(self._pump)
                self.facts = await self._handshake()
                starting.deadline = float("inf")
                self.has_started = True
                task_status.started()
                tasks.start_soon(self._end_with_link)
                if self.facts.is_modern:
                    tasks.start_soon(self._changes.run)
                await self._over.wait()
                await self.drained()
                tasks.cancel_scope.cancel()
        if starting.cancelled_caught:
            raise SourceFailed(f"did not answer within {self._source.start_within:g} s", is_era=self._era == "auto")

    async def ended(self) -> None:
        """Wait until it takes no request any more."""
        await self._over.wait()

    async def drained(self) -> None:
        """Wait until no request runs but those that wait for changes."""
        while self._running:
            self._is_idle = anyio.Event()
            await self._is_idle.wait()

    async def _end_with_link(self) -> None:
        await self._link.ended()
        self._over.set()

    async def why_over(self) -> str:
        """Say why it has ended, for the operator."""
        return await self._link.why_over()

    async def _pump(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        try:
            await self._link.dispatcher.run(self._answer, _ignore, self._hear, task_status=task_status)
        finally:
            self._over.set()

    # -- the handshake ------------------------------------------------------------------------------------------------

    async def _handshake(self) -> Facts:
        is_auto = self._era == "auto"
        try:
            if self._era != "2025" and (facts := await self._discover()) is not None:
                return facts
            is_auto = False
            return await self._initialize()
        except NotSent:
            raise SourceFailed(await self._link.why_over()) from None
        except UpstreamLost:
            raise SourceFailed(await self._link.why_over(), is_era=is_auto and self._link.is_process) from None
        except Turned as error:
            raise SourceFailed(error.why, is_refused=True) from error
        except UpstreamError as error:
            raise SourceFailed(f"refused the handshake: {error} ({error.code})", is_refused=True) from error

    async def _discover(self) -> Facts | None:
        """Ask as a client of 2026-07-28; None where the source knows only the revisions of 2025."""
        self.facts = Facts(MODERN)
        try:
            answer = await self.request("server/discover", {})
        except UpstreamError as error:
            if self._era == "2026" or _is_modern_only(error):
                raise
            return None
        except UpstreamLost:  # a server of 2025 over HTTP may fail at what it does not know
            if self._era == "2026" or self.is_over:
                raise
            return None
        if MODERN not in _list(answer.get("supportedVersions")):
            if self._era == "2026":
                raise SourceFailed(f"does not serve {MODERN}")
            return None
        named = _dict(_dict(answer.get("_meta")).get(SERVER_INFO_META_KEY))
        return Facts(MODERN, named, _dict(answer.get("capabilities")), _text(answer.get("instructions")))

    async def _initialize(self) -> Facts:
        self.facts = Facts(LEGACY[0])
        capabilities: dict[str, Any] = {"roots": {}} if self._source.roots else {}
        params = {"protocolVersion": LEGACY[0], "capabilities": capabilities, "clientInfo": client_info()}
        answer = await self.request("initialize", params)
        revision = _text(answer.get("protocolVersion"))
        if revision is None:
            raise SourceFailed("answered `initialize` without a protocolVersion")
        await self._link.dispatcher.notify("notifications/initialized", None)
        server, told = _dict(answer.get("serverInfo")), _dict(answer.get("capabilities"))
        return Facts(revision, server, told, _text(answer.get("instructions")))

    # -- requests -----------------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        on_progress: OnProgress | None = None,
    ) -> dict[str, Any]:
        """Make a request, and return its result with every member. A cancellation tells the source of it.

        Args:
            method: the method.
            params: its parameters, without `_meta`.
            meta: the members of `_meta` that its caller gave.
            headers: those that repeat arguments, for a source over HTTP (M6).
            on_progress: takes its progress.

        Raises:
            UpstreamError: the source's own error.
            Unheard: the source has not run it; it may be sent once more on a new connection (B8).
            NotSent: no byte of it was sent.
            UpstreamLost: the connection ended after that.
        """
        if self.is_over:
            raise NotSent
        identifier = next(self._ids)
        own = dict(meta or {})
        if self.facts.is_modern:
            own |= {
                PROTOCOL_VERSION_META_KEY: MODERN,
                CLIENT_INFO_META_KEY: client_info(),
                CLIENT_CAPABILITIES_META_KEY: {},
            }
        if on_progress is not None:
            own["progressToken"] = identifier
            self._progress[identifier] = on_progress
        sent = {**params, "_meta": own} if own else params
        opts: CallOptions = {"request_id": identifier, "cancel_on_abandon": method != "initialize"}
        if headers and self.facts.is_modern:
            opts["headers"] = dict(headers)
        is_counted = method != LISTEN
        self._running += is_counted
        try:
            return await self._link.dispatcher.send_raw_request(method, sent, opts)
        except MCPError as error:
            if (refusal := self._link.refusal(identifier, error.error)) is not None:
                raise refusal from None
            if not self._link.was_begun(identifier):
                raise NotSent from None
            raise UpstreamLost from None
        finally:
            self._running -= is_counted
            if not self._running:
                self._is_idle.set()
            self._progress.pop(identifier, None)
            self._link.forget(identifier)

    async def pages(self, method: str, member: str) -> AsyncIterator[list[Any]]:
        """Walk the pages of a list, and yield the entries of each.

        Raises:
            UpstreamError, NotSent, UpstreamLost: as `request`.
            SourceFailed: a page is malformed, or the list comes round to a page that was there.
        """
        cursor: str | None = None
        seen: set[str] = set()
        while True:
            page = await self.request(method, {} if cursor is None else {"cursor": cursor})
            entries = page.get(member)
            if not isinstance(entries, list):
                raise SourceFailed(f"answered {method} without a list of {member}")
            yield entries
            following = page.get("nextCursor")
            if following is None:
                return
            if not isinstance(following, str) or following in seen:
                raise SourceFailed(f"answered {method} with a cursor that leads nowhere")
            seen.add(following)
            cursor = following

    # -- what the source says by itself -------------------------------------------------------------------------------

    def _hear(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """Hear a notification, in the order of the wire; True where nobody else need hear it."""
        params = params or {}
        if method == "notifications/progress":
            token = params.get("progressToken")
            if isinstance(token, str | int) and (take := self._progress.get(token)) is not None:
                take(params)
        elif method in _LISTS:
            self._listener.lists_changed()
        elif method == "notifications/resources/updated":
            if isinstance(uri := params.get("uri"), str):
                self._listener.resource_updated(uri)
        elif method == "notifications/subscriptions/acknowledged":
            self._changes.acknowledged()
        elif method == "notifications/message":
            self._listener.logged(params)
        else:
            return False
        return True

    async def _answer(
        self, context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Answer `ping`, and `roots/list` where roots are configured. Refuse the rest: no capability was told."""
        del context, params
        if method == "ping":
            return {}
        if method == "roots/list" and self._source.roots:
            return {"roots": [{"uri": uri} for uri in self._source.roots]}
        raise MCPError(METHOD_NOT_FOUND, f"Method not found: this client declared nothing that {method} needs")

    async def keep_watch(
        self,
        watched: Callable[[], frozenset[str]],
        watches_others: AutoResetEvent,
        missed: frozenset[str],
        on_update: Callable[[str], None],
    ) -> None:
        """Watch resources, and others whenever they change, until the connection ends.

        Args:
            watched: returns the resources that clients watch now.
            watches_others: tells that those have changed.
            missed: resources that may have changed before; each is reported once, when all are watched.
            on_update: takes them.
        """
        while True:
            try:
                await self.watch(watched())
            except (NotSent, UpstreamLost):
                return
            for uri in missed:
                on_update(uri)
            missed = frozenset()
            await watches_others.wait()

    async def watch(self, uris: frozenset[str]) -> None:
        """Hear of changes of these resources, and of no others, as far as the source tells them.

        Raises:
            NotSent, UpstreamLost: as `request`.
        """
        if not self.facts.has("resources", "subscribe"):
            return
        if self.facts.is_modern:
            self._changes.watch(uris)
            return
        before, self._watched = self._watched, uris
        for method, changed in (("subscribe", uris - before), ("unsubscribe", before - uris)):
            for uri in sorted(changed):
                # A source need not take every URI, and a silent one must not keep others from being watched.
                with suppress(UpstreamError), anyio.move_on_after(_WATCHES_WITHIN):
                    await self.request(f"resources/{method}", {"uri": uri})


@asynccontextmanager
async def running(connection: SourceConnection) -> AsyncIterator[SourceConnection]:
    """Run a connection for the length of a block.

    Raises:
        SourceFailed: it cannot be made.
    """
    try:
        async with anyio.create_task_group() as tasks:
            await tasks.start(connection.run)
            yield connection
            tasks.cancel_scope.cancel()
    except ExceptionGroup as group:  # each error here is one: the block's own, or that of the connection
        raise leaves(group)[0] from None


async def _ignore(context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None) -> None:
    """Ignore a notification that nobody knows."""


@cache
def client_info() -> dict[str, Any]:
    """Name this client to sources; read once, since the version stands in a file."""
    return {"name": "mcpfleet", "version": version("mcpfleet")}


def _is_modern_only(error: UpstreamError) -> bool:
    """Return whether a source that refuses our revision names only others that are no revision of 2025 either."""
    supported = _list(_dict(error.data).get("supported"))
    return error.code == UNSUPPORTED_PROTOCOL_VERSION and bool(supported) and not {*supported} & {*LEGACY}


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
