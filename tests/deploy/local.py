"""A fleet's manifests as processes of this machine: the same commands, variables, files and permissions.

What differs is said here: addresses and ports, since all share one machine, and folders, since none has a root of its
own. A workload whose sub-command does not exist yet is left out, and joins by existing.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, chdir, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
from anyio.abc import SocketAttribute, SocketStream, TaskStatus

from mcpfleet.cli.child import Child
from mcpfleet.cli.embedded_nats import find_server
from mcpfleet.cli.services import SETTINGS
from mcpfleet.process.names import MODULE
from mcpfleet.testing.fleet import launcher
from tests.deploy import manifests
from tests.deploy.manifests import ROOT
from tests.kit.kustomize import Resource, containers, pod
from tests.kit.ports import free_port

READY_WITHIN: Final = 60.0
STARTS_WITHIN: Final = 60.0
COMMANDS: Final = {"mcpfleet": [*MODULE, "mcpfleet.cli"], "nats-server": [find_server()]}
"""The programs on the images' paths."""
EXAMPLES: Final = ROOT / "examples"
"""The image's working folder is that of the examples; the rest is this machine's own."""


@dataclass
class Running:
    """One pod's process."""

    name: str
    child: Child
    admin: str
    """The address of its probes and figures."""
    bind: int = 0
    """An edge's port."""

    async def get(self, path: str) -> httpx2.Response:
        """Ask its admin port."""
        async with httpx2.AsyncClient(timeout=5) as client:
            return await client.get(f"{self.admin}{path}")

    async def is_ready(self) -> bool:
        """Whether it is ready, or why not."""
        try:
            return (await self.get("/readyz")).status_code == 200
        except httpx2.TransportError:
            return False


class Service:
    """A Service of Kubernetes: each connection goes to the next of the pods that accept one."""

    def __init__(self, targets: Sequence[int]) -> None:
        self._targets = itertools.cycle(targets)
        self._tries = len(targets)
        self.port = 0

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Pass connections on until cancelled."""
        async with await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0) as listener:
            self.port = listener.extra(SocketAttribute.local_port)
            task_status.started()
            await listener.serve(self._pass_on)

    async def _pass_on(self, client: SocketStream) -> None:
        async with client:
            for _ in range(self._tries):
                with suppress(OSError):
                    async with await anyio.connect_tcp("127.0.0.1", next(self._targets)) as server:
                        await _joined(client, server)
                    return


async def _joined(one: SocketStream, other: SocketStream) -> None:
    """Carry bytes both ways until one side ends."""
    async with anyio.create_task_group() as tasks:

        async def carry(source: SocketStream, target: SocketStream) -> None:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while True:
                    await target.send(await source.receive())
            tasks.cancel_scope.cancel()

        tasks.start_soon(carry, one, other)
        tasks.start_soon(carry, other, one)


@dataclass
class LocalFleet:
    """The pods of an overlay, as far as they run here."""

    overlay: str
    folder: Path
    secrets: Mapping[str, Mapping[str, str]]
    store: str
    """The database's address."""
    addresses: Mapping[str, str]
    """Settings of what is reached elsewhere than in a cluster: the collector, the issuer of tokens."""
    routes: list[int] = field(default_factory=lambda: [free_port() for _ in range(3)])
    clients: list[int] = field(default_factory=lambda: [free_port() for _ in range(3)])
    monitors: list[int] = field(default_factory=lambda: [free_port() for _ in range(3)])
    servers: list[Child] = field(default_factory=list)
    nats: Service = field(init=False)
    """The service by which the processes reach NATS."""
    processes: dict[str, Running] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.nats = Service(self.clients)

    async def start_nats(self) -> None:
        """Start the servers of the component, with its own files."""
        workload = manifests.workloads(self.overlay)["nats"]
        assert workload["spec"]["replicas"] == len(self.clients)
        for number in range(len(self.clients)):
            folder = self.folder / f"nats-{number}"
            self._write_files(workload, folder, partial(self._nats_text, folder=folder, number=number))
            command = [COMMANDS.get(word, [word])[0] for word in containers(workload)[0]["command"]]
            variables = {**self.secrets["nats-passwords"], "POD_NAME": f"nats-{number}"}
            child = Child(f"nats-{number}", [_moved(word, folder) for word in command], variables, log=folder / "log")
            await child.start()
            self.servers.append(child)
        for port in self.monitors:
            await self._healthy(port)

    async def migrate(self) -> str:
        """Run the migration's own command; returns what it says."""
        workload = manifests.ours(self.overlay)["migrate"]
        child = self._child("migrate", workload, {})
        with anyio.fail_after(STARTS_WITHIN):
            with chdir(EXAMPLES):
                await child.start()
            assert await child.listen() == 0, (self.folder / "migrate" / "log").read_text()
        return (self.folder / "migrate" / "log").read_text()

    async def start(self) -> None:
        """Start every process that exists, and wait until all are ready."""
        for name, workload in startable(self.overlay).items():
            await self._start(name, workload)
        with anyio.move_on_after(READY_WITHIN) as patience:
            for running in self.processes.values():
                while not await running.is_ready():
                    assert running.child.is_running, self.log(running.name)
                    await anyio.sleep(0.1)
        assert not patience.cancelled_caught, {
            name: (await running.get("/readyz")).text for name, running in self.processes.items()
        }

    def log(self, name: str) -> str:
        """Return the log of a process."""
        return (self.folder / name / "log").read_text()

    async def stop(self) -> None:
        """End whatever still runs."""
        with anyio.CancelScope(shield=True):
            for child in [*(running.child for running in self.processes.values()), *self.servers]:
                await child.kill()

    async def _start(self, name: str, workload: Resource) -> None:
        admin, bind = free_port(), free_port()
        changes = {
            "MCPFLEET_NATS_URL": f"tls://127.0.0.1:{self.nats.port}",
            "MCPFLEET_ADMIN_BIND": f"127.0.0.1:{admin}",
            "MCPFLEET_BIND": f":{bind}",
            **self.addresses,
        }
        child = self._child(name, workload, changes)
        with chdir(EXAMPLES):
            await child.start()
        self.processes[name] = Running(name, child, f"http://127.0.0.1:{admin}", bind)

    def _child(self, name: str, workload: Resource, changes: Mapping[str, str]) -> Child:
        folder = self.folder / name
        self._write_files(workload, folder, str)
        variables = manifests.environment(workload, manifests.config_maps(self.overlay))
        assert changes.keys() <= variables.keys(), "an address that no manifest sets"
        variables = {key: _moved(value, folder) for key, value in (variables | dict(changes)).items()}
        kept = {key: value for key, value in os.environ.items() if key in ("PATH", "LANG") or key.startswith("PYTHON")}
        command = [*COMMANDS["mcpfleet"], *manifests.command(workload)]
        return Child(name, command, {**kept, **variables}, log=folder / "log", launch=launcher())

    def _write_files(self, workload: Resource, folder: Path, change: Callable[[str], str]) -> None:
        """Lay out what the pod mounts."""
        volumes = {volume["name"]: volume for volume in (pod(workload) or {}).get("volumes", [])}
        for mount in containers(workload)[0].get("volumeMounts", []):
            place = folder / mount["mountPath"].lstrip("/")
            place.mkdir(parents=True, exist_ok=True)
            for name, text in self._contents(volumes.get(mount["name"], {})).items():
                (place / name).write_text(change(text))

    def _contents(self, volume: Mapping[str, Any]) -> dict[str, str]:
        found: dict[str, str] = {}
        if "configMap" in volume:
            found |= manifests.config_maps(self.overlay)[volume["configMap"]["name"]]
        for each in [volume, *volume.get("projected", {}).get("sources", [])]:
            if "secret" in each:
                secret = each["secret"]
                name = secret.get("secretName") or secret["name"]
                content = {"url": self.store} if name == "store" else self.secrets[name]
                items = secret.get("items") or [{"key": key, "path": key} for key in content]
                found |= {item["path"]: content[item["key"]] for item in items}
        return found

    def _nats_text(self, text: str, folder: Path, number: int) -> str:
        for other, port in enumerate(self.routes):
            text = text.replace(f"nats-{other}.nats-routes:6222", f"127.0.0.1:{port}")
        ports = {4222: self.clients, 6222: self.routes, 8222: self.monitors}
        for port, own in ports.items():
            text = text.replace(f'"0.0.0.0:{port}"', f'"127.0.0.1:{own[number]}"')
        return _moved(text, folder)

    async def _healthy(self, port: int) -> None:
        async with httpx2.AsyncClient(timeout=2) as client:
            with anyio.fail_after(STARTS_WITHIN):
                while True:
                    try:
                        if (await client.get(f"http://127.0.0.1:{port}/healthz")).status_code == 200:
                            return
                    except httpx2.TransportError:
                        await anyio.sleep(0.05)


def startable(overlay: str) -> dict[str, Resource]:
    """The fleet's Deployments whose sub-command exists."""
    return {key: each for key, each in manifests.fleet(overlay).items() if manifests.command(each)[0] in SETTINGS}


def _moved(text: str, folder: Path) -> str:
    """A pod's paths on this machine."""
    for own in ("/run/", "/etc/nats"):
        text = text.replace(f'"{own}', f'"{folder}{own}')
        if text.startswith(own):
            text = f"{folder}{text}"
    return text


@asynccontextmanager
async def local_fleet(
    overlay: str, folder: Path, secrets: Mapping[str, Mapping[str, str]], *, store: str, addresses: Mapping[str, str]
) -> AsyncIterator[LocalFleet]:
    """Run an overlay's pods for the length of a block; all are ready when it begins."""
    fleet = LocalFleet(overlay, folder, secrets, store, addresses)
    async with anyio.create_task_group() as tasks:
        try:
            await fleet.start_nats()
            await tasks.start(fleet.nats.run)
            await fleet.migrate()
            await fleet.start()
            yield fleet
        finally:
            await fleet.stop()
            tasks.cancel_scope.cancel()
