"""`mcpfleet stdio` as a process: the pipes are kept for the protocol alone, and signals end it like a closed input."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import anyio

from mcpfleet.cli.child import Child
from mcpfleet.cli.stdio.endpoint import RemoteEndpoint, Secrets, Where, http_client
from mcpfleet.cli.stdio.lines import LineReader, LineWriter
from mcpfleet.cli.stdio.pump import Pump
from mcpfleet.process.names import DRAINED, FAILED, MODULE

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if sys.platform != "win32" else []))
_QUIET: Final[Mapping[str, str]] = {"MCPFLEET_LOG_LEVEL": "warning", "MCPFLEET_CONSOLE": "false"}
"""Settings of an application's fleet, unless the environment says otherwise."""
_BRIEF: Final[Mapping[str, str]] = {"MCPFLEET_DRAIN": "0", "MCPFLEET_LAST_DEADLINE": "0.3"}
"""Its fleet ends with its only client, which waits two seconds."""
_DRAINED_WITHIN: Final = 0.5
"""Seconds in which its fleet may drain."""
_KILLED_WITHIN: Final = 0.3
"""Seconds in which its fleet may kill what has not drained."""


def take_pipes() -> tuple[int, int]:
    """Take standard input and output for the protocol; whatever else prints, also a child, prints to standard error.

    Returns:
        The descriptors of the input and of the output.
    """
    taken = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout.flush()  # what a module printed before it was run
    return taken


def serve_url(url: str, secrets: Secrets) -> int:
    """Pass messages between the pipes and an endpoint; returns the exit code."""

    async def where() -> str:
        return url

    async def work(pump: Pump) -> int:
        await pump.run()
        return DRAINED

    return _run(where, secrets, work)


def serve_target(words: Sequence[str], secrets: Secrets) -> int:
    """Run an application as `mcpfleet dev` does, and pass messages between the pipes and it; returns the exit code.

    Args:
        words: further options of `dev`, and the target.
        secrets: returns headers for each request.
    """
    command = [*MODULE, "mcpfleet.cli", "dev", "--port", "0", "--no-note", *words]
    fleet = Child("dev", command, {**_QUIET, **os.environ, **_BRIEF})

    async def where() -> str:
        await fleet.ready.wait()
        assert fleet.url is not None
        return fleet.url

    async def work(pump: Pump) -> int:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_run_fleet, fleet, pump)
            try:
                await pump.run()
            finally:
                code = fleet.exit_code
                with anyio.CancelScope(shield=True):
                    await _end(fleet)
                tasks.cancel_scope.cancel()
        return DRAINED if code is None else code or FAILED

    return _run(where, secrets, work)


async def _run_fleet(fleet: Child, pump: Pump) -> None:
    await fleet.start()
    await fleet.listen()
    pump.stop("the application does not run any more: standard error of this server says why")


async def _end(fleet: Child) -> None:
    """End a fleet soon: it drains, then it kills its processes, then it is killed."""
    async with anyio.create_task_group() as hearing:
        hearing.start_soon(fleet.hear_on)
        fleet.signal(signal.SIGTERM)
        with anyio.move_on_after(_DRAINED_WITHIN):
            await fleet.wait()
        await fleet.stop(_KILLED_WITHIN)
        hearing.cancel_scope.cancel()


def _run(where: Where, secrets: Secrets, work: Callable[[Pump], Awaitable[int]]) -> int:
    """Take the pipes, make a pump, and have `work` run it; a signal stops the pump. Returns the exit code."""
    received, sent = take_pipes()

    async def main() -> int:
        async with http_client() as http, anyio.create_task_group() as tasks:
            pump = Pump(LineReader(received), LineWriter(sent), RemoteEndpoint(http, where, secrets))
            tasks.start_soon(_stop_on_signal, pump)
            code = await work(pump)
            tasks.cancel_scope.cancel()
        return code

    return anyio.run(main)


async def _stop_on_signal(pump: Pump) -> None:
    with anyio.open_signal_receiver(*_ENDING) as signals:
        async for _ in signals:
            pump.stop()
