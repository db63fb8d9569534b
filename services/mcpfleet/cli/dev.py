"""`mcpfleet dev`: the whole system in one terminal; processes restart when they die or their file changes."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext
from typing import Final

import anyio

from mcpfleet.cli.child import Child, Launch, ProcessCommand, Started, execute
from mcpfleet.cli.dev_note import NOTE, noted
from mcpfleet.cli.dev_screen import say, say_ready
from mcpfleet.cli.embedded_nats import EmbeddedNats
from mcpfleet.cli.fleet import OPERATOR, FleetProcesses, Keep, Plan, StartFailed, running
from mcpfleet.cli.fork_server import ForkServer
from mcpfleet.cli.signatures import printable
from mcpfleet.contracts.endpoints import EndpointSettings
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.names import MISCONFIGURED, MODULE
from mcpfleet.process.retry import pauses

_FIRST_PAUSE: Final = 0.5
"""Seconds before a process that died restarts for the first time."""
_LONGEST_PAUSE: Final = 10.0
"""Seconds before it restarts at the latest."""
_STABLE_AFTER: Final = 30.0
"""Seconds that a process must run before its pauses begin anew."""
_LISTED_WITHIN: Final = 120.0
"""Seconds in which MCP servers should have been started and listed."""
_OF_WORKERS: Final = "mcpfleet.cli.dev_worker"
_OF_OTHERS: Final = (
    "mcpfleet.authorization.__main__",
    "mcpfleet.catalog.__main__",
    "mcpfleet.edge.__main__",
    "mcpfleet.store.migrate",
    "mcpfleet.subscriptions.__main__",
    "mcpfleet.tasks.__main__",
)
"""The modules that edges and services import, and workers do not."""
_LAST_PORT: Final = 65_535
LOCALHOST: Final = "127.0.0.1"
_CONSOLE_BESIDE: Final = 1_000
"""The console's port minus the first edge's: two systems on one machine have different ones."""


class Development:
    """A fleet that is kept running while somebody works on its application."""

    def __init__(self, plan: Plan, *, reload: bool, note: bool = True) -> None:
        """Describe the fleet.

        Args:
            plan: its processes.
            reload: restart the workers when a file changes.
            note: leave a note for operators' commands in this folder, and say how to use the fleet.
        """
        self._plan = plan
        self._note = note
        self._reload = reload
        self._fleet: FleetProcesses | None = None
        self._released: dict[Child, anyio.Event] = {}
        self._work = anyio.CancelScope()

    async def run(self) -> None:
        """Run until ^C or SIGTERM, then drain; a second signal kills the remaining processes.

        Raises:
            ConfigurationError: a process could not start, or the application cannot be imported.
        """
        for command in () if self._plan.first is None else self._plan.first.report.runs:
            say(f"runs     {printable(command)}", "cyan")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._hear_signals)
            with self._work:
                async with (
                    running(self._plan, self._keeper) as fleet,
                    _note(fleet) if self._note else nullcontext(),
                    anyio.create_task_group() as beside,
                ):
                    await _listed(fleet)
                    report = fleet.report_of(fleet.workers[0])
                    say_ready(fleet.urls, fleet.edges[0].console, report, hints=self._note)
                    if fleet.nats is not None:
                        beside.start_soon(self._keep_nats, fleet.nats)
                    await (self._replace_workers(fleet) if self._reload else anyio.sleep_forever())
            tasks.cancel_scope.cancel()

    async def _replace_workers(self, fleet: FleetProcesses) -> None:
        """Replace the workers whenever a file of the application changes, until cancelled."""
        from mcpfleet.cli.dev_reload import Reload  # noqa: PLC0415  # it costs start-up time

        await Reload(fleet, self).run()

    def _keeper(self, fleet: FleetProcesses) -> Keep:
        self._fleet = fleet
        return self._keep

    async def _keep(self, child: Child) -> None:
        """Run a process, and restart it with back-off when it dies, until it is released.

        Raises:
            ConfigurationError: it ended before the fleet was up.
        """
        assert self._fleet is not None
        try:
            started = anyio.current_time()
            await self._fleet.keep(child)
        except StartFailed as error:
            report = self._fleet.report_of(child)
            if report is not None and report.mistake is not None:
                raise ConfigurationError(report.mistake.text) from error
            raise
        await self.keep_on(child, anyio.current_time() - started)

    async def keep_on(self, child: Child, ran: float = _STABLE_AFTER) -> None:
        """Start a process that has ended again, with back-off, and whenever it dies, until it is released.

        Args:
            child: the process.
            ran: the seconds for which it ran.
        """
        assert self._fleet is not None
        released = self._released.setdefault(child, anyio.Event())
        waits = pauses(_FIRST_PAUSE, _LONGEST_PAUSE)
        while not self._work.cancel_called and not released.is_set():
            if ran > _STABLE_AFTER:
                waits = pauses(_FIRST_PAUSE, _LONGEST_PAUSE)
            if self._reload and child in self._fleet.workers and child.exit_code == MISCONFIGURED:
                say(f"{child.name} cannot load the application; it starts again when a file changes", "yellow")
                await released.wait()
                return
            pause = next(waits)
            say(f"{child.name} has ended{_how(child.exit_code)}; it starts again in {pause:g} s", "yellow")
            with anyio.move_on_after(pause):
                await released.wait()
                return
            started = anyio.current_time()
            await self._fleet.keep(child)
            ran = anyio.current_time() - started

    def release(self, child: Child) -> None:
        """Start a process no more once it has ended."""
        self._released.setdefault(child, anyio.Event()).set()

    async def _keep_nats(self, nats: EmbeddedNats) -> None:
        """Restart NATS on its port whenever it dies; the processes reconnect by themselves."""
        while True:
            code = await nats.child.listen()
            say(f"nats has ended{_how(code)}; it starts again", "yellow")
            await nats.start()
            await anyio.sleep(_FIRST_PAUSE)

    async def _hear_signals(self) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async for _ in signals:
                if not self._work.cancel_called:
                    say("draining; press ^C again to stop at once", "cyan")
                    self._work.cancel()
                elif self._fleet is not None:
                    await self._fleet.kill()


async def _listed(fleet: FleetProcesses) -> None:
    """Wait until the first worker has listed the MCP servers that it starts; an application is listed already."""
    report = fleet.report_of(fleet.workers[0])
    if report is None or not report.runs:
        return
    with anyio.move_on_after(_LISTED_WITHIN) as patience:
        is_ready = False
        while not is_ready:
            is_ready = await fleet.workers[0].wait_ready()
            await anyio.sleep(0 if is_ready else _FIRST_PAUSE)  # it is started again
    if patience.cancelled_caught:
        say(f"the worker is not ready after {_LISTED_WITHIN:g} s: the lines above say what it waits for", "yellow")


def _how(code: int | None) -> str:
    """How a process ended, for the end of a clause."""
    if code is None:
        return ""
    if code >= 0:
        return f" with exit code {code}"
    try:
        return f" by {signal.Signals(-code).name}"
    except ValueError:
        return f" by signal {-code}"


@contextmanager
def launching() -> Iterator[Launch]:
    """Start two fork servers for the length of a block, one for workers; call it before any event loop.

    A worker has imported what a worker of its own interpreter would: an application finds the same names free.
    """
    if sys.platform != "linux":
        yield execute
        return
    workers = ForkServer.forked([_OF_WORKERS, "mcpfleet.worker.__main__"])
    others = ForkServer.forked(_OF_OTHERS)

    async def launch(command: ProcessCommand) -> Started:
        server = workers if command.words[len(MODULE)] == _OF_WORKERS else others
        return await server.launch(command)

    try:
        yield launch
    finally:
        others.close()
        workers.close()


def check_ports(first: int, number: int, host: str = LOCALHOST) -> None:
    """Refuse ports that do not exist or are in use, and an address that is not of this machine; 0 takes free ports.

    Raises:
        ConfigurationError: an edge could not listen.
    """
    for port in range(first, first + number) if first else ():
        if port > _LAST_PORT:
            raise ConfigurationError(f"--port {first}: there is no port {port}")
        why = _why_taken(port, host)
        if why:
            where = f"port {port}" if host == LOCALHOST else f"port {port} of {host}"
            raise ConfigurationError(f"--port {first}: cannot listen on {where}: {why}")


def console_port(first: int) -> int:
    """Return the port of the console: a fixed one beside the first edge's, or 0 for a free one where that is taken."""
    port = first + _CONSOLE_BESIDE
    return port if first and port <= _LAST_PORT and not _why_taken(port) else 0


def _why_taken(port: int, host: str = LOCALHOST) -> str:
    """Why nobody can listen on a port; empty if somebody can."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
            trial.listen()
        except OSError as error:
            return error.strerror or str(error)
    return ""


@asynccontextmanager
async def _note(fleet: FleetProcesses) -> AsyncIterator[None]:
    """Leave the note for operators' commands, if NATS is embedded and the folder can be written."""
    with ExitStack() as stack:
        if fleet.nats is not None:
            try:
                stack.enter_context(noted(fleet.nats_settings(OPERATOR), list(EndpointSettings.load().endpoints)))
            except OSError as error:
                say(
                    f"operator commands like `mcpfleet publish` cannot find this fleet: {NOTE}: {error.strerror}",
                    "yellow",
                )
        yield
