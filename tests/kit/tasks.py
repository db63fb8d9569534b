"""A client of tasks: modern requests as JSON over any HTTP client, for what the official client does not know yet."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import httpx2

from tests.kit.wire_bytes import VERSION, meta

EXTENSION: Final = "io.modelcontextprotocol/tasks"
CAPABLE: Final[Mapping[str, Any]] = {"elicitation": {}, "extensions": {EXTENSION: {}}}
"""A client that fills in forms and takes tasks."""

_numbers = itertools.count(1)


@dataclass
class TaskClient:
    """Asks one endpoint."""

    http: httpx2.AsyncClient
    url: str = "/mcp"
    capabilities: Mapping[str, Any] = field(default_factory=lambda: CAPABLE)
    headers: Mapping[str, str] = field(default_factory=dict)

    async def post(self, method: str, params: Mapping[str, Any], **said: Any) -> httpx2.Response:
        """Send a request as a conforming client would; `said` are its capabilities, where they are others."""
        about = meta("tasks", said.get("capabilities", self.capabilities))
        headers = {
            "MCP-Protocol-Version": VERSION,
            "Mcp-Method": method,
            "Accept": "application/json, text/event-stream",
            **self.headers,
        }
        name = params.get("name", params.get("taskId"))
        if name is not None:
            headers["Mcp-Name"] = name
        own = params.get("_meta") or {}
        body = {"jsonrpc": "2.0", "id": next(_numbers), "method": method, "params": {**params, "_meta": about | own}}
        return await self.http.post(self.url, json=body, headers=headers, timeout=60)

    async def ask(self, method: str, params: Mapping[str, Any], **said: Any) -> dict[str, Any]:
        """Send a request, and take its result."""
        answer = (await self.post(method, params, **said)).json()
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def refusal(self, method: str, params: Mapping[str, Any], **said: Any) -> dict[str, Any]:
        """Send a request, and take its error."""
        answer = (await self.post(method, params, **said)).json()
        assert "error" in answer, answer
        error: dict[str, Any] = answer["error"]
        return error

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None, **members: Any) -> dict[str, Any]:
        """Call a tool."""
        return await self.ask("tools/call", {"name": tool, "arguments": dict(arguments or {}), **members})

    async def start(self, tool: str, **arguments: Any) -> str:
        """Call a tool, and take the handle of its task."""
        result = await self.call(tool, arguments)
        assert result["resultType"] == "task", result
        task: str = result["taskId"]
        return task

    async def get(self, task: str, **said: Any) -> dict[str, Any]:
        """Read a task."""
        return await self.ask("tasks/get", {"taskId": task}, **said)

    async def update(self, task: str, **answers: Any) -> dict[str, Any]:
        """Fill in forms that a task shows, by their keys."""
        responses = {key: {"action": "accept", "content": content} for key, content in answers.items()}
        return await self.ask("tasks/update", {"taskId": task, "inputResponses": responses})

    async def cancel(self, task: str) -> dict[str, Any]:
        """Have a task end."""
        return await self.ask("tasks/cancel", {"taskId": task})

    async def until(self, task: str, *statuses: str, within: float = 20.0) -> dict[str, Any]:
        """Poll a task until it has one of these statuses; until it has ended, where none is named.

        As a client would, it goes on where the server could not answer for a moment.
        """
        wanted = statuses or ("completed", "failed", "cancelled")
        with anyio.fail_after(within):
            while True:
                answer = await self.post("tasks/get", {"taskId": task})
                if answer.status_code not in (503, 504):
                    found: dict[str, Any] = answer.json()["result"]
                    if found["status"] in wanted:
                        return found
                await anyio.sleep(0.05)


def text_of(task: Mapping[str, Any]) -> str:
    """The one text of a task's result."""
    text: str = task["result"]["content"][0]["text"]
    return text
