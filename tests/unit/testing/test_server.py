"""HTTP without sockets: answers stream, and each side notices when the other leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import anyio
import httpx2
import pytest

from mcpfleet.testing.server import Application, LocalServer, LocalTransport

HEAD = {"type": "http.response.start", "status": 200, "headers": [(b"x-from", b"test")]}
END = {"type": "http.response.body", "body": b"end"}


@asynccontextmanager
async def served(application: Application) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of an application that is served, for the length of a block."""
    server, stop = LocalServer(), anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve, application, stop)
        await anyio.lowlevel.checkpoint()
        async with httpx2.AsyncClient(transport=LocalTransport(server), base_url="http://localhost") as client:
            yield client
        stop.set()


async def test_a_request_arrives_whole_and_its_answer_comes_back() -> None:
    scopes: list[Any] = []
    bodies: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)
        bodies.append(await receive())
        await send(HEAD)
        await send(END)

    async with served(application) as client:
        answer = await client.post("/mcp?a=b", content=b"body", headers={"X-Some": "thing"})
    assert (answer.status_code, answer.headers["x-from"], answer.content) == (200, "test", b"end")
    assert bodies == [{"type": "http.request", "body": b"body", "more_body": False}]
    scope = scopes[0]
    assert (scope["method"], scope["path"], scope["query_string"]) == ("POST", "/mcp", b"a=b")
    assert (b"x-some", b"thing") in scope["headers"]
    assert (b"host", b"localhost") in scope["headers"]


async def test_an_answer_streams() -> None:
    go_on = anyio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send(HEAD)
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await go_on.wait()
        await send(END)

    async with served(application) as client, client.stream("GET", "/") as answer:
        parts = answer.aiter_bytes()
        assert await anext(parts) == b"first"
        go_on.set()
        assert await anext(parts) == b"end"


async def test_a_client_that_leaves_is_noticed_and_what_is_sent_to_it_is_dropped() -> None:
    gone = anyio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send(HEAD)
        assert await receive() == {"type": "http.disconnect"}
        await send(END)
        gone.set()

    async with served(application) as client:
        async with client.stream("GET", "/"):
            assert not gone.is_set()
        with anyio.fail_after(2):
            await gone.wait()


async def test_a_client_that_leaves_before_the_answer_begins_is_noticed() -> None:
    asked, gone = anyio.Event(), anyio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        asked.set()
        assert await receive() == {"type": "http.disconnect"}
        gone.set()

    async with served(application) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.get, "/")
            await asked.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(2):
            await gone.wait()


async def test_an_application_waits_for_a_client_that_reads_slowly() -> None:
    sent: list[int] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send(HEAD)
        for number in range(100):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            sent.append(number)
        await send(END)

    async with served(application) as client, client.stream("GET", "/") as answer:
        await anyio.wait_all_tasks_blocked()
        assert len(sent) < 100
        assert len(await answer.aread()) == 103


async def test_an_answer_that_breaks_off_is_an_error_to_its_client() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/half":
            await send({**HEAD, "headers": [(b"content-length", b"1")]})

    async with served(application) as client:
        for path in ("/half", "/none"):
            with pytest.raises(httpx2.RemoteProtocolError):
                await client.get(path)


async def test_requests_that_are_left_when_the_server_stops_are_cut_off() -> None:
    stop, asked = anyio.Event(), anyio.Event()
    server = LocalServer()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        asked.set()
        await anyio.sleep_forever()

    async def ask(client: httpx2.AsyncClient) -> None:
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.get("/")

    async with httpx2.AsyncClient(transport=LocalTransport(server), base_url="http://localhost") as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, application, stop)
            await anyio.lowlevel.checkpoint()
            tasks.start_soon(ask, client)
            await asked.wait()
            stop.set()
        with pytest.raises(httpx2.ConnectError):
            await client.get("/")


async def test_what_a_client_has_set_in_its_context_stays_with_it() -> None:
    """It would not cross a socket either, the current trace least of all."""
    variable: ContextVar[str] = ContextVar("variable", default="of nobody")
    seen: list[str] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        seen.append(variable.get())
        await send(HEAD)
        await send(END)

    async with served(application) as client:
        variable.set("of the client")
        await client.get("/")
    assert seen == ["of nobody"]
