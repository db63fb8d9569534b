"""A session of a client of 2025 at the endpoint: begun by the client, made again after the server has forgotten it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, Final

import anyio

from mcpfleet.cli.stdio.endpoint import Events, HttpFailure, RemoteEndpoint, content_type, log, read_body, refusal
from mcpfleet.cli.stdio.messages import (
    INVALID_REQUEST,
    NotAMessage,
    RawMessage,
    notification_line,
    read_message,
    to_line,
)

SESSION: Final = "Mcp-Session-Id"
VERSION: Final = "MCP-Protocol-Version"
LAST_EVENT: Final = "Last-Event-ID"
_ANSWERED_WITHIN: Final = 30.0
"""Seconds for an answer to a notification, and to the messages of a session that is made again."""
_LONGEST_PAUSE: Final = 30.0
"""Seconds between two attempts to open the GET stream."""
_MOST_WATCHED: Final = 1_000
"""Subscriptions that a new session takes over."""
_PASSING: Final = (408, 425, 429)
"""The 4xx statuses that may pass."""
_LISTS: Final = ("tools", "prompts", "resources")

Write = Callable[[bytes], Awaitable[None]]


class RemoteSession:
    """The agreement of a client with the server."""

    def __init__(self, endpoint: RemoteEndpoint, write: Write, begun: RawMessage) -> None:
        """Describe a session that is being begun.

        Args:
            endpoint: the server's.
            write: writes a line to the client.
            begun: the client's `initialize`.
        """
        self.lock = anyio.Lock()
        """Held while the session is made again."""
        self.number = 0
        """How often the session was made again."""
        self._endpoint = endpoint
        self._write = write
        self._begun = begun
        self._id: str | None = None
        self._version: str | None = None
        self._agreed: Any = None
        self._initialized: RawMessage | None = None
        self._level: RawMessage | None = None
        self._watched: dict[str, RawMessage] = {}
        self.is_heard = anyio.Event()
        """Set once the server has answered whether it has a GET stream, or could not."""
        self._hearing = anyio.CancelScope()
        self._reading = anyio.CancelScope()
        """The reading of the GET stream that is open."""

    @property
    def is_open(self) -> bool:
        """Whether the server has agreed."""
        return self._version is not None

    @property
    def has_id(self) -> bool:
        """Whether the server keeps a session; without an id it has no state."""
        return self._id is not None

    def headers(self) -> dict[str, str]:
        """The headers of the session's requests."""
        found = {VERSION: self._version, SESSION: self._id}
        return {name: value for name, value in found.items() if value is not None}

    def agree(self, answer: RawMessage, identifier: str | None) -> None:
        """Take the server's answer to `initialize`, with the id that its head has."""
        result = answer.value.get("result")
        if isinstance(result, dict) and isinstance(version := result.get("protocolVersion"), str):
            self._id, self._version, self._agreed = identifier, version, result

    def heed(self, message: RawMessage) -> None:
        """Remember what a message of the client has set, so that a new session can have it too."""
        uri = message.params.get("uri")
        match message.method:
            case "notifications/initialized":
                self._initialized = message
            case "logging/setLevel":
                self._level = message
            case "resources/subscribe" if isinstance(uri, str) and len(self._watched) < _MOST_WATCHED:
                self._watched[uri] = message
            case "resources/unsubscribe" if isinstance(uri, str):
                self._watched.pop(uri, None)
            case _:
                pass

    async def renew(self, number: int) -> None:
        """Make the session again, as its client must after a 404; nothing if that has been done since `number`.

        The request that met the 404 has not run. The new session gets the log level and the subscriptions of the old
        one. What has changed meanwhile is unknown, so the client hears that everything it watches has changed.

        Raises:
            HttpFailure: the server cannot be reached, or offers something else than what the client has been told.
        """
        async with self.lock:
            if self.number != number:
                return
            answer, identifier = await self._initialize()
            self._check(answer)
            self.agree(answer, identifier)
            self.number += 1
            self._reading.cancel()
            log("the server has forgotten the session: a new one goes on in its place")
            kept = [self._initialized, self._level, *self._watched.values()]
            for message in kept:
                if message is not None:
                    await self._repeat(message)
            await self._announce()

    def _check(self, answer: RawMessage) -> None:
        result = answer.value.get("result")
        if not isinstance(result, dict):
            raise HttpFailure("the server has ended the session and refuses a new one: start this connection again")
        changed = [name for name in ("protocolVersion", "capabilities") if result.get(name) != self._agreed.get(name)]
        if changed:
            raise HttpFailure(
                f"the server has ended the session, and its {' and '.join(changed)} changed:"
                " start this connection again",
                code=INVALID_REQUEST,
            )

    async def _initialize(self) -> tuple[RawMessage, str | None]:
        with anyio.move_on_after(_ANSWERED_WITHIN):
            async with self._endpoint.request("POST", {}, self._begun.line) as response:
                if response.status_code != 200:
                    raise refusal(response)
                identifier = response.headers.get(SESSION)
                if content_type(response) != "text/event-stream":
                    with suppress(NotAMessage):
                        return read_message(await read_body(response)), identifier
                async with aclosing(Events().messages(response)) as messages:
                    async for message in messages:
                        if message.is_response:
                            return message, identifier
        raise HttpFailure("the server has ended the session and does not begin a new one: start this connection again")

    async def _repeat(self, message: RawMessage) -> None:
        """Send a message once more for the new session; its answer is for nobody."""
        line = message.line if message.id is None else to_line({**message.value, "id": f"again-{message.id}"})
        with anyio.move_on_after(_ANSWERED_WITHIN):
            async with self._endpoint.request("POST", self.headers(), line) as response:
                if response.is_success:
                    with suppress(HttpFailure):
                        await read_body(response)
                else:
                    log(f"the new session did not take {message.method} (HTTP {response.status_code})")

    async def _announce(self) -> None:
        capabilities = self._agreed.get("capabilities")
        for name in _LISTS:
            own = capabilities.get(name) if isinstance(capabilities, dict) else None
            if isinstance(own, dict) and own.get("listChanged") is True:
                await self._write(notification_line(f"notifications/{name}/list_changed"))
        for uri in list(self._watched):
            await self._write(notification_line("notifications/resources/updated", {"uri": uri}))

    async def hear(self) -> None:
        """Pass on what the server says beside its answers, for as long as the session lasts: its GET stream."""
        with self._hearing:
            await self._hear()

    async def _hear(self) -> None:
        number, events, pause = self.number, Events(), 0.0
        while True:
            if number != self.number:
                number, events = self.number, Events()
            resumed = {LAST_EVENT: events.last_id} if events.last_id else {}
            with suppress(HttpFailure):
                async with self._endpoint.request("GET", {**self.headers(), **resumed}) as response:
                    self.is_heard.set()
                    if response.is_success and content_type(response) == "text/event-stream":
                        pause = 0.0
                        with anyio.CancelScope() as self._reading:
                            async for message in events.messages(response):
                                await self._write(message.line)
                    elif response.status_code == 404 and self.has_id:
                        await self.renew(number)
                    elif not (response.is_server_error or response.status_code in _PASSING):
                        return  # a server need not offer this stream
            self.is_heard.set()
            pause = min(max(events.retry, 2 * pause), _LONGEST_PAUSE)
            await anyio.sleep(pause)

    async def end(self) -> None:
        """Hear no more, and tell the server that the session ends."""
        self._hearing.cancel()
        if self.has_id:
            with suppress(HttpFailure):
                async with self._endpoint.request("DELETE", self.headers()):
                    pass
