"""An upgrade: every process is drained and started again, the application changes, and clients call and listen on.

    .venv/bin/python -m tests.chaos.upgrade --rounds 10
    .venv/bin/python -m tests.chaos.upgrade --rounds 10 --store postgresql

Clients are official ones of every revision that is served, but for tasks, which those do not know. They keep their
connections alive, through a balancer that knows connections alone. None of their calls may fail, and no task or attempt
of one is lost. Each stream ends by its result. A client whose list changed hears so once.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ResourceUpdated, SubscriptionLost, ToolsListChanged
from mcp.shared.exceptions import MCPError
from rich.console import Console

from mcpfleet.cli.child import Child
from mcpfleet.testing.fleet import Fleet
from mcpfleet.wire.protocol import LEGACY
from tests.chaos.versions import write
from tests.kit.postgres import postgres_server
from tests.kit.proxy import TcpProxy, proxied
from tests.kit.restarting import restart_services
from tests.kit.tasks import TaskClient, text_of
from tests.kit.waiting import until

ENVIRONMENT: Final = {"MCPFLEET_LAME": "1", "MCPFLEET_LOG_LEVEL": "info"}
_LIMITS: Final = httpx2.Limits(keepalive_expiry=0.5)
"""Clients forget an unused connection before a draining edge closes it: by default after 5 s, and it drains for 10 s.
A request that meets the close of its connection gets no answer, and nobody can help it."""
_UNREADY_SEEN: Final = 0.3
"""Seconds until the balancer knows that an edge is not ready any more."""
_PAUSE: Final = 0.02
_TASK_ENDS_WITHIN: Final = 15.0
"""Seconds. A worker gives its tasks back when it leaves, so that no lease need run out."""
_LATER_HINTS: Final = 10
_LOST_ATTEMPTS: Final = {
    "leases lapsed",
    "task lost",
    "task end refused",
}
"""Log events of an attempt of a task that did not come to its end."""
_CALLERS: Final = 2
"""Clients for each kind of call."""


@dataclass
class Heard:
    """The messages of one listening client, counted."""

    changes: int = 0
    """Changes of its list."""
    updates: int = 0
    """Updates of the resource."""
    streams: int = 0
    """That it opened."""
    ended: int = 0
    """Streams that the server ended by a result."""
    is_open: bool = False
    tools: list[str] = field(default_factory=list)
    """As it listed them last."""


@dataclass
class Findings:
    """The clients' view of an upgrade."""

    calls: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """Streams that ended without a result."""
    attempts: list[str] = field(default_factory=list)
    """Log lines of attempts of tasks that were lost."""
    streams: int = 0
    """Those that the server ended by a result."""
    told: int = 0
    """Changes of a list that clients heard of."""
    miscounted: list[str] = field(default_factory=list)
    """Steps after which a client had heard of its list not as often as it changed."""


class Upgrade:
    """A fleet of two of everything under load, whose processes are replaced one by one."""

    def __init__(self, fleet: Fleet, balancer: TcpProxy, folder: Path) -> None:
        self.found = Findings()
        self._fleet = fleet
        self._balancer = balancer
        self._folder = folder
        self._version = 1
        self._listeners = {"tools": [Heard(), Heard()], "prompts": [Heard(), Heard()]}

    # -- clients ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def load(self) -> AsyncIterator[None]:
        """Have clients call and listen for the length of a block; all streams are open when it begins."""
        kinds: dict[str, Callable[[Client, int], Awaitable[Any]]] = {
            "plain call": lambda client, number: client.call_tool("same", {"number": number}),
            "call with progress": self._with_progress,
            "touch": lambda client, _: client.call_tool("touch", {}),
            "read": lambda client, _: client.read_resource("shop://stock", cache_mode="bypass"),
            "prompt": lambda client, _: client.get_prompt("advertise", {"what": "tea"}),
            "list": lambda client, _: client.list_tools(cache_mode="bypass"),
        }
        async with anyio.create_task_group() as tasks:
            for name, call in [*kinds.items()] * _CALLERS:
                tasks.start_soon(self._call, name, call)
            for revision in LEGACY:
                tasks.start_soon(self._call, f"calls of {revision}", self._as_in_2025, revision)
            for _ in range(_CALLERS):
                tasks.start_soon(self._order)
            for heard in self._listeners["tools"]:
                tasks.start_soon(self._listen, heard, {"tools_list_changed": True})
            for heard in self._listeners["prompts"]:
                watched = {"prompts_list_changed": True, "resource_subscriptions": ["shop://stock"]}
                tasks.start_soon(self._listen, heard, watched)
            await until(self._all_listen)
            yield
            tasks.cancel_scope.cancel()

    async def _call(
        self, name: str, call: Callable[[Client, int], Awaitable[Any]], revision: str | None = None
    ) -> None:
        """Call without a pause, and keep what went wrong."""
        async with client_of(self._balancer.url, revision) as client:
            while True:
                self.found.calls[name] += 1
                try:
                    result = await call(client, self.found.calls[name])
                except MCPError as error:
                    self.found.failed.append(f"{name}: {error}")
                else:
                    if getattr(result, "is_error", False):
                        self.found.failed.append(f"{name}: {result.content}")
                await anyio.sleep(_PAUSE)

    async def _order(self) -> None:
        """Have one task after the other done, and look at each without a pause until it has ended."""
        async with httpx2.AsyncClient(limits=_LIMITS) as http:
            client = TaskClient(http, self._balancer.url)
            while True:
                self.found.calls["task"] += 1
                number = self.found.calls["task"]
                try:
                    await self._order_once(client, number)
                except (AssertionError, KeyError, ValueError, TimeoutError, httpx2.HTTPError) as error:
                    self.found.failed.append(f"task {number}: {error!r}")

    @staticmethod
    async def _order_once(client: TaskClient, number: int) -> None:
        task = await client.start("order", number=number)
        with anyio.fail_after(_TASK_ENDS_WITHIN):
            while (found := await client.get(task))["status"] == "working":  # noqa: ASYNC110  # it is elsewhere
                await anyio.sleep(_PAUSE)
        assert text_of(found) == f"ordered {2 * number}", found

    async def _as_in_2025(self, client: Client, number: int) -> Any:
        """All that is served to clients of 2025, one after the other, in one session."""
        kinds = (
            lambda: self._with_progress(client, number),
            lambda: client.read_resource("shop://stock"),
            lambda: client.get_prompt("advertise", {"what": "tea"}),
            client.list_tools,
        )
        return await kinds[number % len(kinds)]()

    async def _with_progress(self, client: Client, number: int) -> Any:
        async def hear(progress: float, total: float | None, message: str | None) -> None:
            del progress, total, message

        return await client.call_tool("same", {"number": number}, progress_callback=hear)

    async def _listen(self, heard: Heard, watched: dict[str, Any]) -> None:
        """Listen, and again whenever the server ends the stream; what it means is read anew each time."""
        async with client_of(self._balancer.url) as client:
            while True:
                try:
                    async with client.listen(**watched) as stream:
                        heard.streams += 1
                        heard.tools = await self._tools(client)
                        heard.is_open = True
                        async for event in stream:
                            heard.updates += isinstance(event, ResourceUpdated)
                            if not isinstance(event, ResourceUpdated):
                                heard.changes += 1
                            if isinstance(event, ToolsListChanged):
                                heard.tools = await self._tools(client)
                    heard.ended += 1
                    self.found.streams += 1
                except (SubscriptionLost, MCPError) as error:
                    self.found.lost.append(f"{watched}: {error}")
                    await anyio.sleep(_PAUSE)
                finally:
                    heard.is_open = False

    async def _tools(self, client: Client) -> list[str]:
        return sorted(tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools)

    def _all_listen(self) -> bool:
        return all(heard.is_open for listeners in self._listeners.values() for heard in listeners)

    # -- what is done to the fleet ------------------------------------------------------------------------------------

    async def restart_services(self) -> None:
        """Restart the processes of the services, one after the other."""
        for child in self._fleet.service_processes:
            await restart_services(self._fleet, child)
        await self._settle({"tools": 0, "prompts": 0})

    async def restart_edges(self) -> None:
        """Restart the edges, one after the other; the balancer learns late that one leaves."""
        for child in list(self._fleet.edges):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._lead_away, child.url or "")
                await self._fleet.restart(child)
            self._balancer.ready = self._fleet.urls
        await self._settle({"tools": 0, "prompts": 0})
        unended = [heard for each in self._listeners.values() for heard in each if not heard.ended]
        if unended:
            self.found.lost.append(f"{len(unended)} clients listened on though every edge was restarted")

    async def _lead_away(self, url: str) -> None:
        await anyio.sleep(_UNREADY_SEEN)
        self._balancer.ready = [each for each in self._balancer.ready if each != url]

    async def restart_workers(self) -> None:
        """Restart the workers of the same version, one after the other."""
        for child in self._serving():
            await self._fleet.restart(child)
        await self._settle({"tools": 0, "prompts": 0})

    async def replace_application(self) -> None:
        """Replace each worker by one of the next version, which adds, removes and changes a tool."""
        leaving = self._serving()
        self._version += 1
        path = write(self._folder, self._version)
        for child in leaving:
            await self._fleet.add_worker(path)
            await child.stop(within=60)
        await self._settle({"tools": 1, "prompts": 0})
        async with Client(self._balancer.url) as client:
            result = await client.call_tool("changed", {f"argument_{self._version}": 7})
            if result.is_error or result.structured_content != 7:
                self.found.failed.append(f"the changed tool: {result}")

    def _serving(self) -> list[Child]:
        return [worker for worker in self._fleet.workers if worker.is_running]

    async def _settle(self, changes: dict[str, int]) -> None:
        """Wait until all clients listen and have the newest list, and look how often each heard that it changed."""
        newest = f"only_in_{self._version}"
        await until(self._all_listen, within=20)
        await until(lambda: all(newest in heard.tools for heard in self._listeners["tools"]), within=20)
        told = sum(heard.updates for heard in self._listeners["prompts"])
        # A message that came twice, or to the wrong client, would come before later hints on the same streams.
        await until(lambda: sum(heard.updates for heard in self._listeners["prompts"]) > told + _LATER_HINTS)
        for kind, listeners in self._listeners.items():
            self.found.miscounted += [
                f"version {self._version}: {kind}_list_changed {heard.changes} times instead of {changes[kind]}"
                for heard in listeners
                if heard.changes != changes[kind]
            ]
            for heard in listeners:
                self.found.told += heard.changes
                heard.changes = heard.updates = 0


class _Older(httpx2.AsyncHTTPTransport):
    """Has the official client ask for an older revision than it does by itself."""

    def __init__(self, revision: str) -> None:
        super().__init__(limits=_LIMITS)
        self._revision = revision.encode()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; a handshake with the revision's name in the place of the newest, which is as long."""
        body = await request.aread()
        if b'"initialize"' in body:
            body = body.replace(LEGACY[0].encode(), self._revision)
            request = httpx2.Request(
                request.method, request.url, headers=request.headers, content=body, extensions=request.extensions
            )
        return await super().handle_async_request(request)


@asynccontextmanager
async def client_of(url: str, revision: str | None = None) -> AsyncIterator[Client]:
    """The official client, of a revision of 2025 or of the newest one."""
    transport = httpx2.AsyncHTTPTransport(limits=_LIMITS) if revision is None else _Older(revision)
    async with (
        httpx2.AsyncClient(transport=transport, timeout=httpx2.Timeout(30, read=None)) as http,
        Client(streamable_http_client(url, http_client=http), mode="auto" if revision is None else "legacy") as client,
    ):
        assert revision is None or client.session.protocol_version == revision
        yield client


async def upgrade(rounds: int, store: str | None = None) -> Findings:
    """Replace everything so many times; the store is SQLite, where no URL of another is given."""
    with tempfile.TemporaryDirectory(prefix="upgrade-") as folder:
        first = write(Path(folder), 1)
        async with (
            Fleet(first, edges=2, workers=2, services=2, environment=ENVIRONMENT, store=store) as fleet,
            proxied(*fleet.urls) as balancer,
        ):
            going = Upgrade(fleet, balancer, Path(folder))
            async with going.load():
                for _ in range(rounds):
                    await going.restart_services()
                    await going.restart_edges()
                    await going.restart_workers()
                    await going.replace_application()
            going.found.attempts = _attempts_lost(fleet)
            return going.found


async def upgrade_on(rounds: int, *, postgresql: bool) -> Findings:
    """The same, on a PostgreSQL of its own or on SQLite."""
    if not postgresql:
        return await upgrade(rounds)
    with postgres_server() as server:
        async with server.database() as url:
            return await upgrade(rounds, url)


def _attempts_lost(fleet: Fleet) -> list[str]:
    """Return the log lines of attempts that did not come to their end."""
    lines = [line for line in fleet.logs().splitlines() if line.startswith("{")]
    return [line for line in lines if json.loads(line)["event"] in _LOST_ATTEMPTS]


def is_clean(found: Findings) -> bool:
    """Whether nobody noticed."""
    return not (found.failed or found.lost or found.attempts or found.miscounted)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--store", choices=("sqlite", "postgresql"), default="sqlite")
    given = parser.parse_args()
    findings = anyio.run(partial(upgrade_on, given.rounds, postgresql=given.store == "postgresql"))
    console = Console(width=120, highlight=False)
    for kind, count in findings.calls.items():
        console.print(f"{kind}: {count:,}")
    console.print(
        f"streams that ended by a result: {findings.streams}; changes of lists that were heard: {findings.told}"
    )
    for line in (*findings.failed, *findings.lost, *findings.attempts, *findings.miscounted):
        console.print(line, markup=False)
    sys.exit(not is_clean(findings))
