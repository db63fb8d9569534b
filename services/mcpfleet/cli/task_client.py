"""`mcpfleet tasks start`, `get`, `answer`, `cancel` and `watch`: a client's commands on its tasks, over MCP."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any, Final, Self, TypeAlias

import anyio
import httpx2
import typer
from rich.console import Console

from mcpfleet.cli.endpoint_client import not_a_server, refusal
from mcpfleet.cli.options import authorization, read_arguments
from mcpfleet.contracts.tasks import Status
from mcpfleet.wire.protocol import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    IDEMPOTENCY_KEY,
    MODERN,
    PROTOCOL_VERSION_META_KEY,
)

EXTENSION: Final = "io.modelcontextprotocol/tasks"
_LONGEST_PAUSE: Final = 60.0
"""Seconds between two polls at most."""


class NoResult(Exception):
    """Raised when a server did not answer with a result; the sentence says what came instead."""


class TaskClient:
    """Sends requests about tasks to an endpoint, as a client that declares the extension."""

    def __init__(
        self, url: str, *, timeout: float, token: str | None = None, transport: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        self._url = url
        self._http = httpx2.AsyncClient(headers=authorization(token), timeout=timeout, transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def ask(self, method: str, task: str, **members: Any) -> dict[str, Any]:
        """Send a request about one task; raises as `post`."""
        return await self.post(method, task, {"taskId": task, **members})

    async def post(self, method: str, name: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request, and return its result.

        Args:
            method: the MCP method.
            name: the task's id, or the tool's name.
            params: the method's parameters.

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
            "Mcp-Name": name,
        }
        try:
            answer = await self._http.post(self._url, json=message, headers=headers)
            refused = refusal(self._url, answer.status_code, answer.headers)
            if refused is not None:
                raise NoResult(refused)
            body: dict[str, Any] = answer.json()
            if "error" in body:
                raise NoResult(f"{body['error']['message']} ({body['error']['code']})")
            result: dict[str, Any] = body["result"]
        except (httpx2.HTTPError, ValueError, KeyError, TypeError) as error:
            raise NoResult(not_a_server(self._url, error)) from error
        return result

    async def watch(self, task: str, show: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Poll at the server's interval until the task has ended, and show each change."""
        seen: tuple[Any, ...] = ()
        while True:
            result = await self.ask("tasks/get", task)
            now = (result.get("status"), result.get("statusMessage"), sorted(result.get("inputRequests", ())))
            if now != seen:
                show(result)
            seen = now
            if Status(result["status"]).is_end:
                return result
            await anyio.sleep(min(result.get("pollIntervalMs", 1000) / 1000, _LONGEST_PAUSE))


_Work: TypeAlias = Callable[[TaskClient], Awaitable[dict[str, Any]]]


def run_get(url: str, task: str, *, token: str | None, timeout: float, as_json: bool) -> int:
    """Show a task; returns the exit code."""
    return _run(lambda client: client.ask("tasks/get", task), url, token=token, timeout=timeout, as_json=as_json)


def run_start(
    url: str, tool: str, pairs: list[str], *, key: str | None, token: str | None, timeout: float, as_json: bool
) -> int:
    """Call a tool as a task, and print the task's id; returns the exit code."""
    try:
        params: dict[str, Any] = {"name": tool, "arguments": read_arguments(pairs)}
    except ValueError as error:
        typer.echo(str(error), err=True)
        return 1
    if key is not None:
        params["_meta"] = {IDEMPOTENCY_KEY: key}

    async def start(client: TaskClient) -> dict[str, Any]:
        return await client.post("tools/call", tool, params)

    def tell(result: dict[str, Any]) -> int:
        if "taskId" not in result:
            show({"status": "no task: the call returned at once", "result": result})
            return 1 if result.get("isError") else 0
        typer.echo(result["taskId"])
        return 0

    return _run(start, url, tell=tell, token=token, timeout=timeout, as_json=as_json)


def run_answer(
    url: str, task: str, key: str, pairs: list[str], *, token: str | None, timeout: float, declines: bool
) -> int:
    """Answer or decline one question of a task, by its key; returns the exit code."""
    try:
        given = {"action": "decline"} if declines else _answer(read_arguments(pairs))
    except ValueError as error:
        typer.echo(str(error), err=True)
        return 1

    async def answer(client: TaskClient) -> dict[str, Any]:
        await client.ask("tasks/update", task, inputResponses={key: given})
        return await client.ask("tasks/get", task)

    return _run(answer, url, tell=_tell_state, token=token, timeout=timeout)


def _answer(given: dict[str, Any]) -> dict[str, Any]:
    """Compose an answer: fields fill in a form, and an object with the members of another answer is sent unchanged."""
    return given if given.keys() & {"action", "roots", "role"} else {"action": "accept", "content": given}


def run_cancel(url: str, task: str, *, token: str | None, timeout: float) -> int:
    """Cancel a task; returns the exit code, which says whether the server took the request, not how the task ended."""

    async def cancel(client: TaskClient) -> dict[str, Any]:
        await client.ask("tasks/cancel", task)
        return await client.ask("tasks/get", task)

    return _run(cancel, url, tell=_tell_state, token=token, timeout=timeout)


def run_watch(url: str, task: str, *, token: str | None, timeout: float, as_json: bool) -> int:
    """Show a task until it has ended; returns the exit code."""
    show_each = (lambda _: None) if as_json else _show_state

    def tell(result: dict[str, Any]) -> int:
        _show_parts(result)
        return 1 if failed(result) else 0

    async def watch(client: TaskClient) -> dict[str, Any]:
        return await client.watch(task, show_each)

    return _run(watch, url, tell=tell, token=token, timeout=timeout, as_json=as_json)


def _tell_state(result: dict[str, Any]) -> int:
    _show_state(result)
    return 0


def _tell(result: dict[str, Any]) -> int:
    show(result)
    return 1 if failed(result) else 0


def _run(
    work: _Work,
    url: str,
    *,
    token: str | None,
    timeout: float,
    as_json: bool = False,
    tell: Callable[[dict[str, Any]], int] = _tell,
) -> int:
    async def ask() -> dict[str, Any]:
        async with TaskClient(url, timeout=timeout, token=token) as client:
            return await work(client)

    try:
        result = anyio.run(ask)
    except NoResult as error:
        typer.echo(str(error), err=True)
        return 1
    if as_json:
        typer.echo(json.dumps(result))
        return 1 if failed(result) else 0
    return tell(result)


def failed(result: dict[str, Any]) -> bool:
    """Whether a task has ended without a good result."""
    is_error = bool(result.get("result", {}).get("isError"))
    return result.get("status") in {Status.FAILED, Status.CANCELLED} or is_error


def show(result: dict[str, Any]) -> None:
    """Print a task for people."""
    _show_state(result)
    _show_parts(result)


def _show_parts(result: dict[str, Any]) -> None:
    """Print a task's questions, and its result or error."""
    console = Console(highlight=False)
    for part in ("inputRequests", "result", "error"):
        if part in result:
            console.print_json(data=result[part])


def _show_state(result: dict[str, Any]) -> None:
    words = [str(result.get("lastUpdatedAt", "")), str(result.get("status")), result.get("statusMessage") or ""]
    if result.get("inputRequests"):
        words.append(f"waits for: {', '.join(result['inputRequests'])}")
    typer.echo(" ".join(word for word in words if word))
