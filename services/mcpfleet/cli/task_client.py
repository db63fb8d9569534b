"""A client of the extension of tasks, which the official client has no methods for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from types import MappingProxyType
from typing import Any, Final, Self, TypeAlias

import anyio
import httpx2

from mcpfleet.cli.credentials import Credentials
from mcpfleet.cli.endpoint import checked_url, not_a_server, refusal, trust, with_path
from mcpfleet.contracts.tasks import Status
from mcpfleet.wire.protocol import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    MODERN,
    PROTOCOL_VERSION_META_KEY,
)

EXTENSION: Final = "io.modelcontextprotocol/tasks"
_LONGEST_PAUSE: Final = 60.0
"""Seconds between two polls at most."""
_MOST_PAGES: Final = 1000
"""Pages that are read of a list."""
Answering: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[None]]
"""Answers a question, by its key and its request, if it can."""


class NoResult(Exception):
    """Raised when a server did not answer with a result; the sentence says what came instead."""


class TaskClient:
    """Sends requests about tasks to an endpoint, as a client that declares the extension."""

    def __init__(
        self, url: str, *, timeout: float, token: str | None = None, transport: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        """Describe the endpoint.

        Args:
            url: the endpoint's URL.
            timeout: seconds for each answer.
            token: the caller's token, or `@` and a file that has it; it is read again for each request.
            transport: takes the requests; by default the network's.

        Raises:
            ConfigurationError: the token or the URL is malformed, or the file cannot be read.
        """
        self.url = checked_url(url)
        credentials = Credentials(token)

        async def identify(request: httpx2.Request) -> None:
            request.headers.update(credentials.headers())

        self._http = httpx2.AsyncClient(
            timeout=timeout, transport=transport, verify=trust(url), event_hooks={"request": [identify]}
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def ask(self, method: str, task: str, **members: Any) -> dict[str, Any]:
        """Send a request about one task; raises as `post`."""
        return await self.post(method, task, {"taskId": task, **members})

    async def tool(self, name: str) -> tuple[dict[str, Any], list[str]]:
        """Find a tool; returns its entry, or nothing, and the names that were read on the way. Raises as `post`."""
        names: list[str] = []
        cursor: dict[str, Any] = {}
        for _ in range(_MOST_PAGES):
            page = await self.post("tools/list", None, cursor)
            for entry in page["tools"]:
                names.append(str(entry.get("name")))
                if names[-1] == name:
                    return entry, names
            if page.get("nextCursor") is None:
                break
            cursor = {"cursor": page["nextCursor"]}
        return {}, names

    async def post(
        self, method: str, name: str | None, params: dict[str, Any], further: Mapping[str, str] = MappingProxyType({})
    ) -> dict[str, Any]:
        """Send a request, and return its result.

        A URL without a path that is no endpoint is tried with `/mcp`, and `url` is then that one.

        Args:
            method: the MCP method.
            name: the task's id, or the tool's name; None for a method without a target.
            params: the method's parameters.
            further: further headers.

        Raises:
            NoResult: the answer is an error, or is not an MCP server's.
        """
        meta = params.get("_meta", {}) | {
            PROTOCOL_VERSION_META_KEY: MODERN,
            CLIENT_INFO_META_KEY: {"name": "mcpfleet", "version": version("mcpfleet")},
            # Every kind of question is declared: this command only shows questions, and `answer` answers them.
            CLIENT_CAPABILITIES_META_KEY: {
                "extensions": {EXTENSION: {}}, "elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}},
                "roots": {},
            },
        }  # fmt: skip
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": method,
            **further,
        }
        if name is not None:
            headers["Mcp-Name"] = name
        try:
            answer = await self._http.post(self.url, json=message, headers=headers)
            if (other := with_path(self.url, answer.status_code)) is not None:
                self.url = other
                answer = await self._http.post(self.url, json=message, headers=headers)
            refused = refusal(self.url, answer.status_code, answer.headers)
            if refused is not None:
                raise NoResult(refused)
            body: dict[str, Any] = answer.json()
            if "error" in body:
                raise NoResult(f"{body['error']['message']} ({body['error']['code']})")
            result: dict[str, Any] = body["result"]
        except (httpx2.HTTPError, ValueError, KeyError, TypeError) as error:
            raise NoResult(not_a_server(self.url, error)) from error
        return result

    async def watch(
        self, task: str, show: Callable[[dict[str, Any]], object], answering: Answering | None = None
    ) -> dict[str, Any]:
        """Poll at the server's interval until the task has ended, and show each change.

        Args:
            task: the task's id.
            show: shows a state.
            answering: runs for each question while the task waits for it. It is cancelled when somebody else answers.
        """
        seen: tuple[Any, ...] = ()
        open_questions: dict[str, anyio.CancelScope] = {}
        async with anyio.create_task_group() as questions:
            while not Status((result := await self.ask("tasks/get", task))["status"]).is_end:
                asked: Mapping[str, Any] = result.get("inputRequests") or {}
                if (now := _told(result)) != seen:
                    show(result)
                seen = now
                for key in open_questions.keys() - asked.keys():
                    open_questions.pop(key).cancel()
                if answering is not None:
                    for key in asked.keys() - open_questions.keys():
                        scope = open_questions[key] = anyio.CancelScope()
                        questions.start_soon(_answer, scope, answering, key, asked[key])
                await anyio.sleep(min(result.get("pollIntervalMs", 1000) / 1000, _LONGEST_PAUSE))
            questions.cancel_scope.cancel()
        if _told(result) != seen:
            show(result)
        return result


def _told(state: Mapping[str, Any]) -> tuple[Any, ...]:
    """The members of a state that are shown when they change."""
    return (state.get("status"), state.get("statusMessage"), sorted(state.get("inputRequests") or ()))


async def _answer(scope: anyio.CancelScope, answering: Answering, key: str, request: Mapping[str, Any]) -> None:
    with scope:
        await answering(key, request)
