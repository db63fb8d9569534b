"""A process of a fleet on this machine: it is started, its output is read, and it never outlives the fleet."""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import signal
import sys
from asyncio import StreamReader
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

import anyio

from mcpfleet.process.names import TOKEN_VARIABLE

OF_SERVICES: Final = ("MCPFLEET_TOKENS", "MCPFLEET_INTROSPECTION_SECRET")
"""Prefixes of the variables that hold secrets which only the services need."""
_NOT_INHERITED: Final = (
    "MCPFLEET_NATS_PASSWORD", "MCPFLEET_NATS_USER", "MCPFLEET_STORE_URL", TOKEN_VARIABLE, *OF_SERVICES
)  # fmt: skip
_PR_SET_PDEATHSIG: Final = 1
_KILLED_WITHIN: Final = 5.0
"""Seconds to wait until a killed process is gone."""
CHUNK: Final = 64 * 1024
"""Bytes that are read at once, and characters of the longest line that is kept whole."""
_READY: Final = re.compile(r"ready(?: (?P<url>https?://\S+))?")
"""The line that a process of ours prints once it is ready. An application's own output may begin with the same word."""
_CONSOLE: Final = re.compile(r"console (?P<url>https?://\S+/console)")
"""The line that a process prints before that if it serves a console."""
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Started(Protocol):
    """A process that was started, as asyncio gives it."""

    stdout: StreamReader | None

    @property
    def pid(self) -> int:
        """Its id."""

    @property
    def returncode(self) -> int | None:
        """Its exit code; None while it runs."""

    async def wait(self) -> int:
        """Wait until it has ended; returns its exit code."""


@dataclass(frozen=True)
class ProcessCommand:
    """A command that starts as a process."""

    words: Sequence[str]
    environment: Mapping[str, str]
    """All of its variables."""
    stderr: int | None = None
    """The descriptor of its standard error; None for ours."""
    passing: Sequence[int] = ()
    """Further descriptors that it keeps."""
    unread: int = CHUNK
    """Bytes of its output that may wait here before it has to wait."""


Launch: TypeAlias = Callable[[ProcessCommand], Awaitable[Started]]
"""Starts commands as processes in process groups of their own, as `execute` does."""


def inherited() -> dict[str, str]:
    """Our own environment without variables for one process: a worker must not see the others' secrets."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}


def die_with_parent() -> None:
    """Have Linux end this process when its parent is killed, since a killed parent cannot drain it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


async def execute(command: ProcessCommand) -> Started:
    """Start a command as a process."""
    # It gets its own process group, so that ^C reaches only us, and we drain it.
    return await asyncio.create_subprocess_exec(
        *command.words,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=command.stderr,
        env=command.environment,
        pass_fds=command.passing,
        limit=command.unread,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


class Child:
    """A process that is started again under the same name, with the same command."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str] = _NOTHING,
        *,
        log: Path | None = None,
        launch: Launch = execute,
    ) -> None:
        """Describe the process.

        Args:
            name: for people, for example `edge 2`.
            command: the command.
            environment: all of its variables.
            log: the file to which its standard error is appended; None shows it on ours.
            launch: starts it.
        """
        self.name = name
        self.url: str | None = None
        """An edge's URL, once it is ready."""
        self.ready = anyio.Event()
        """Set when the process has printed `ready`."""
        self.console: str | None = None
        """The URL of its console, once it is ready."""
        self._command = list(command)
        self.environment = dict(environment)
        self.log = log
        self.launch = launch
        """Starts it."""
        self._process: Started | None = None
        self._unheard = anyio.Event()
        """Set while nobody reads the process's output."""
        self._unheard.set()

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process has been started and has not ended."""
        return self._process is not None and self._process.returncode is None

    @property
    def exit_code(self) -> int | None:
        """How the process ended; negative for a signal, None while it has not."""
        return self._process.returncode if self._process is not None else None

    async def start(self) -> None:
        """Start the process."""
        if self.ready.is_set():
            self.ready = anyio.Event()
        with self.log.open("ab") if self.log else nullcontext() as stderr:
            command = ProcessCommand(self._command, self.environment, stderr.fileno() if stderr else None)
            self._process = await self.launch(command)

    async def listen(self) -> int:
        """Read the process's standard output until it ends; returns its exit code."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        self._unheard = anyio.Event()
        try:
            await self._hear_all(process.stdout)
        finally:
            self._unheard.set()
        return await process.wait()

    async def wait(self) -> None:
        """Wait until the process has ended, if it was started."""
        if self._process is not None:
            await self._process.wait()

    async def wait_ready(self) -> bool:
        """Wait until the process is ready, or has ended; returns whether it is ready. Somebody reads its output."""
        async with anyio.create_task_group() as tasks:

            async def hear_end() -> None:
                await self.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(hear_end)
            await self.ready.wait()
            tasks.cancel_scope.cancel()
        return self.ready.is_set()

    async def hear_on(self) -> None:
        """Read the process's output once nobody else does: with a full pipe it could not finish."""
        await self._unheard.wait()
        if self.is_running:
            await self.listen()

    async def _hear_all(self, said: StreamReader) -> None:
        beginning = b""
        while part := await said.read(CHUNK):
            *lines, beginning = (beginning + part).split(b"\n")
            for line in lines:
                self._hear(line.decode(errors="replace"))
            # A line without an end is passed on in pieces, since an application's output has no bound.
            if len(beginning) > CHUNK:
                self._hear(beginning.decode(errors="replace"))
                beginning = b""

    def _hear(self, line: str) -> None:
        ready = _READY.fullmatch(line.strip())
        if ready and not self.ready.is_set():
            self.url = ready["url"]
            self.ready.set()
        elif (console := _CONSOLE.fullmatch(line.strip())) and not self.ready.is_set():
            self.console = console["url"]
        elif line.strip():
            print(line, flush=True)  # noqa: T201  # an application's output is for its author

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if the process still runs."""
        if self._process is not None and self._process.returncode is None:
            # Not by asyncio's `send_signal`: it asks whether the process has ended, and so takes the exit code away
            # from asyncio's own watcher, which then warns of an unknown child.
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    async def stop(self, within: float) -> None:
        """Have the process drain, and kill it if it has not ended within `within` seconds."""
        if self._process is None:
            return
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a paused process does not handle other signals
        with anyio.move_on_after(within):
            await self._process.wait()
        await self.kill()

    async def kill(self) -> None:
        """Kill the process, and wait until it is gone."""
        if self._process is None:
            return
        self.signal(signal.SIGKILL)
        with anyio.CancelScope(shield=True), anyio.move_on_after(_KILLED_WITHIN):
            await self._process.wait()
