"""A client of 2025 of a test's own, over plain HTTP: each of its requests may go to another edge."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self

import anyio
import httpx2

from mcpfleet.testing.local import LocalFleet
from mcpfleet.wire.protocol import LEGACY
from tests.contract.fleet.listener import UPDATED
from tests.kit.waiting import until

ACCEPT = "application/json, text/event-stream"
FORM: Mapping[str, Any] = {"action": "accept", "content": {"copies": 3}}
"""How most forms are filled in."""
CAPABILITIES: Mapping[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}


class Watching:
    """A GET stream, and what came on it."""

    def __init__(self) -> None:
        self.status = 0
        self.messages: list[Any] = []
        self.is_over = False

    def kinds(self) -> list[str]:
        """The methods of what came, in order."""
        return [message["method"] for message in self.messages]

    def uris(self) -> list[str]:
        """The resources that were said to have changed."""
        return [each["params"]["uri"] for each in self.messages if each["method"] == UPDATED]


class Visitor:
    """A session's client; `edge` says where a request goes."""

    def __init__(
        self,
        https: Sequence[httpx2.AsyncClient],
        *,
        version: str = LEGACY[0],
        capabilities: Mapping[str, Any] = CAPABILITIES,
        token: str | None = None,
    ) -> None:
        self._https = https
        self.version = version
        self._capabilities = capabilities
        self.token = token
        self.session: str | None = None
        self._ids = itertools.count(1)
        self.asked: list[Any] = []
        """The server's requests, in order."""
        self.told: list[Any] = []
        """The notifications on the streams of calls."""
        self.answers: dict[str, Any] = {}
        """The client's answers, by the method of the request."""
        self.answering_edge = 0

    def headers(self, **others: str) -> dict[str, str]:
        """The headers of a request in the session."""
        headers = {"accept": ACCEPT, "content-type": "application/json", "mcp-protocol-version": self.version}
        if self.session is not None:
            headers["mcp-session-id"] = self.session
        if self.token is not None:
            headers["authorization"] = f"Bearer {self.token}"
        return headers | others

    async def begin(self, edge: int = 0) -> Any:
        """Shake hands; returns what the server says of itself."""
        params = {
            "protocolVersion": self.version,
            "capabilities": dict(self._capabilities),
            "clientInfo": {"name": "visitor", "version": "1"},
        }
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        headers = {name: value for name, value in self.headers().items() if name != "mcp-protocol-version"}
        response = await self._https[edge].post("/mcp", json=message, headers=headers)
        self.session = response.headers.get("mcp-session-id")
        assert (await self.notify("notifications/initialized", edge=edge)).status_code == 202
        return response.json()["result"]

    async def send(self, message: Any, edge: int = 0, **headers: str) -> httpx2.Response:
        """Post a message, and read the whole answer."""
        return await self._https[edge].post("/mcp", json=message, headers=self.headers(**headers))

    async def notify(self, method: str, params: Any = None, edge: int = 0) -> httpx2.Response:
        """Post a notification."""
        return await self.send({"jsonrpc": "2.0", "method": method, "params": params or {}}, edge)

    async def delete(self, edge: int = 0) -> int:
        """End the session; returns the status."""
        return (await self._https[edge].delete("/mcp", headers=self.headers())).status_code

    async def ask(self, method: str, params: Any = None, edge: int = 0, identifier: Any = None) -> Any:
        """Make a request, answer what is asked meanwhile, and return the response; None where there is none.

        Where the answer is no response to the request, its status is returned.
        """
        number = next(self._ids) if identifier is None else identifier
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}
        async with self._https[edge].stream("POST", "/mcp", json=message, headers=self.headers(), timeout=60) as found:
            if found.headers.get("content-type") != "text/event-stream":
                body = await found.aread()
                message = json.loads(body) if body else {}
                return message if "id" in message else found.status_code
            async for each in events(found):
                if "method" not in each:
                    assert each["id"] == number
                    return each
                if "id" in each:
                    self.asked.append(each)
                    if each["method"] in self.answers:
                        await self.answer(each["id"], self.answers[each["method"]])
                else:
                    self.told.append(each)
        return None

    async def answer(self, identifier: Any, result: Any) -> None:
        """Post a response to what was asked, at another edge where the test says so."""
        member = "error" if "code" in result else "result"
        response = await self.send({"jsonrpc": "2.0", "id": identifier, member: result}, self.answering_edge)
        assert response.status_code == 202

    async def call(self, name: str, arguments: Any = None, edge: int = 0, **params: Any) -> Any:
        """Call a tool; returns its result."""
        return (await self.ask("tools/call", {"name": name, "arguments": arguments or {}, **params}, edge))["result"]

    @asynccontextmanager
    async def calling(self, name: str, arguments: Any = None, edge: int = 0) -> AsyncIterator[list[Any]]:
        """A call that runs beside the block, which ends when both have; the list has its result by then."""
        results: list[Any] = []

        async def call() -> None:
            results.append(await self.call(name, arguments, edge))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            yield results

    async def watch(self, watching: Watching, edge: int = 0) -> None:
        """Read a GET stream to its end."""
        headers = self.headers(accept="text/event-stream")
        try:
            async with self._https[edge].stream("GET", "/mcp", headers=headers, timeout=None) as response:
                watching.status = response.status_code
                async for each in events(response):
                    watching.messages.append(each)
        finally:
            watching.is_over = True

    @asynccontextmanager
    async def watching(self, edge: int = 0) -> AsyncIterator[Watching]:
        """A GET stream that is open for the length of the block."""
        watching = Watching()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.watch, watching, edge)
            await until(lambda: watching.status)
            assert watching.status == 200
            yield watching
            tasks.cancel_scope.cancel()


async def events(response: httpx2.Response) -> AsyncIterator[Any]:
    """The messages of a stream."""
    async for line in response.aiter_lines():
        assert not line.startswith(("id:", "retry:")), "L10"
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


class Visitors:
    """Makes clients of a fleet, inside of `async with`."""

    def __init__(self, fleet: LocalFleet) -> None:
        self._fleet = fleet
        self._stack = AsyncExitStack()
        self.https: list[httpx2.AsyncClient] = []

    async def __aenter__(self) -> Self:
        for number in range(len(self._fleet.edges)):
            self.https.append(await self._stack.enter_async_context(self._fleet.http(number)))
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._stack.aclose()

    async def one(self, edge: int = 0, **options: Any) -> Visitor:
        """A client with a session, which began at an edge."""
        visitor = Visitor(self.https, **options)
        await visitor.begin(edge)
        return visitor
