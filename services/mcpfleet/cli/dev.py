"""`mcpfleet dev`: the whole system in one terminal; processes restart when they die or their file changes."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import anyio
import typer

from mcpfleet.cli.child import Child
from mcpfleet.cli.dev_note import NOTE, noted
from mcpfleet.cli.embedded_nats import EmbeddedNats
from mcpfleet.cli.fleet import OPERATOR, FleetProcesses, Keep, Plan, running
from mcpfleet.contracts.endpoints import EndpointSettings
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.names import MISCONFIGURED
from mcpfleet.process.retry import pauses

_FIRST_PAUSE: Final = 0.5
"""Seconds before a process that died restarts for the first time."""
_LONGEST_PAUSE: Final = 10.0
"""Seconds before it restarts at the latest."""
_STABLE_AFTER: Final = 30.0
"""Seconds that a process must run before its pauses begin anew."""
_LAST_PORT: Final = 65_535


class Development:
    """A fleet that is kept running while somebody works on its application."""

    def __init__(self, plan: Plan, *, reload: bool, note: bool = True) -> None:
        """Describe the fleet.

        Args:
            plan: its processes.
            reload: restart the workers when a file changes.
            note: leave a note for operators' commands in this folder.
        """
        self._plan = plan
        self._note = note
        self._reload = reload
        self._fleet: FleetProcesses | None = None
        self._again: dict[Child, anyio.Event] = {}
        self._work = anyio.CancelScope()
        self._is_watching = False

    async def run(self) -> None:
        """Run until ^C or SIGTERM, then drain; a second signal kills the remaining processes.

        Raises:
            StartFailed: a process could not start.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._hear_signals)
            with self._work:
                async with (
                    running(self._plan, self._keeper) as fleet,
                    _note(fleet) if self._note else nullcontext(),
                    anyio.create_task_group() as beside,
                ):
                    for url in fleet.urls:
                        typer.echo(f"ready {url}")
                    if fleet.nats is not None:
                        beside.start_soon(self._keep_nats, fleet.nats)
                    await self._reload_workers(fleet)
            tasks.cancel_scope.cancel()

    def _keeper(self, fleet: FleetProcesses) -> Keep:
        self._fleet = fleet
        return self._keep

    async def _keep(self, child: Child) -> None:
        """Run a process, and restart it with back-off when it dies."""
        assert self._fleet is not None
        waits = pauses(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            self._again[child] = anyio.Event()
            started = anyio.current_time()
            await self._fleet.keep(child)
            if self._work.cancel_called:
                return
            if anyio.current_time() - started > _STABLE_AFTER:
                waits = pauses(_FIRST_PAUSE, _LONGEST_PAUSE)
            if self._is_watching and child in self._fleet.workers and child.exit_code == MISCONFIGURED:
                say(f"{child.name} cannot load the application; it starts again when a file changes", "yellow")
                await self._again[child].wait()
            if not self._again[child].is_set():
                pause = next(waits)
                say(f"{child.name} has ended; it starts again in {pause:g} s", "yellow")
                with anyio.move_on_after(pause):
                    await self._again[child].wait()

    async def _keep_nats(self, nats: EmbeddedNats) -> None:
        """Restart NATS on its port whenever it dies; the processes reconnect by themselves."""
        while True:
            code = await nats.child.listen()
            say(f"nats has ended with code {code}; it starts again", "yellow")
            await nats.start()
            await anyio.sleep(_FIRST_PAUSE)

    async def _reload_workers(self, fleet: FleetProcesses) -> None:
        """Restart the workers whenever a Python file in the application's folder changes, until cancelled."""
        directory = application_directory(self._plan.target)
        if not self._reload or directory is None:
            await anyio.sleep_forever()
            return
        from watchfiles import PythonFilter, awatch  # noqa: PLC0415  # it costs start-up time

        self._is_watching = True
        async for changes in awatch(directory, watch_filter=PythonFilter(), debounce=200):
            names = sorted({Path(path).name for _, path in changes})
            say(f"{', '.join(names)} changed: restarting the workers", "cyan")
            for worker in fleet.workers:
                self._again[worker].set()
                worker.signal(signal.SIGTERM)

    async def _hear_signals(self) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async for _ in signals:
                if not self._work.cancel_called:
                    say("draining; press ^C again to stop at once", "cyan")
                    self._work.cancel()
                elif self._fleet is not None:
                    await self._fleet.kill()


def check_ports(first: int, number: int, host: str = "127.0.0.1") -> None:
    """Refuse ports that do not exist or are in use, and an address that is not of this machine; 0 takes free ports.

    Raises:
        ConfigurationError: an edge could not listen.
    """
    for port in range(first, first + number) if first else ():
        if port > _LAST_PORT:
            raise ConfigurationError(f"--port {first}: there is no port {port}")
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((host, port))
                trial.listen()
            except OSError as error:
                where = f"port {port}" if host == "127.0.0.1" else f"port {port} of {host}"
                raise ConfigurationError(f"--port {first}: cannot listen on {where}: {error.strerror}") from None


async def develop(plan: Plan, reload: bool, note: bool = True) -> None:
    """Run a fleet as `Development.run` does."""
    await Development(plan, reload=reload, note=note).run()


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


def say(sentence: str, colour: str) -> None:
    """Print a sentence on standard error, apart from the output."""
    typer.secho(sentence, fg=colour, err=True)


def application_directory(target: str) -> Path | None:
    """The folder of the application; a change in it restarts the workers."""
    path = target.partition(":")[0]
    if path.endswith(".py"):
        return Path(path).resolve().parent
    sys.path.insert(0, str(Path.cwd()))
    spec = find_spec(path.partition(".")[0])
    return Path(spec.origin).parent if spec is not None and spec.origin else None
