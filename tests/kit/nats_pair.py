"""Two NATS servers that are one cluster, with a route between them that a test can cut: each still has its clients."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
from pydantic import SecretStr

from mcpfleet.cli.child import Child
from mcpfleet.cli.embedded_nats import find_server
from mcpfleet.contracts.permissions import server_settings
from mcpfleet.process.settings import ProcessSettings
from tests.kit.proxy import TcpProxy, proxied
from tests.kit.waiting import until

PASSWORD: Final = "secret of everybody"
_CLUSTER: Final = """
listen: "127.0.0.1:-1"
server_name: {name}
ports_file_dir: "{folder}"
log_file: "{folder}/{name}.log"
cluster {{
  name: "pair"
  listen: "127.0.0.1:-1"
  no_advertise: true
  routes: {routes}
  ping_interval: "2s"
  ping_max: 1
  write_deadline: "2s"
}}
"""
"""The deployed component's configuration, for one machine: each server knows one way to the other."""


@dataclass(frozen=True)
class NatsPair:
    """Both servers, and the way between them."""

    urls: tuple[str, str]
    route: TcpProxy
    environment: dict[str, str]
    """The settings that each process needs to connect, beside a URL."""

    def settings(self, number: int) -> ProcessSettings:
        """The settings by which any user connects to one of them."""
        return ProcessSettings(nats_url=self.urls[number], nats_password=SecretStr(PASSWORD))


@asynccontextmanager
async def nats_pair(folder: Path, pools: Iterable[str]) -> AsyncIterator[NatsPair]:
    """Run them for the length of a block, with the users and permissions of a fleet."""
    rest = server_settings(pools, ProcessSettings(), lambda _: PASSWORD)
    async with AsyncExitStack() as stack:
        first = await _start(stack, folder, "one", [], rest)
        route = await stack.enter_async_context(proxied(first["cluster"][0].replace("nats-route:", "nats:")))
        second = await _start(stack, folder, "two", [route.url], rest)
        with anyio.fail_after(10):
            while "Route connection created" not in (folder / "two.log").read_text():  # noqa: ASYNC110  # no event of ours
                await anyio.sleep(0.05)
        yield NatsPair((first["nats"][0], second["nats"][0]), route, {"MCPFLEET_NATS_PASSWORD": PASSWORD})


async def _start(stack: AsyncExitStack, folder: Path, name: str, routes: list[str], rest: str) -> dict[str, list[str]]:
    """Start one server; returns its addresses."""
    configuration = folder / f"{name}.conf"
    configuration.write_text(_CLUSTER.format(name=name, folder=folder, routes=json.dumps(routes)) + rest)
    child = Child(name, [find_server(), "--config", str(configuration)])
    await child.start()
    stack.push_async_callback(child.kill)
    note = folder / f"nats-server_{child.pid}.ports"
    await until(lambda: note.exists() and note.read_text().endswith("}"))
    addresses: dict[str, list[str]] = json.loads(note.read_text())
    return addresses
