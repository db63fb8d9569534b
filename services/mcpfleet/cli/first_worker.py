"""The first worker of `mcpfleet dev`: it imports the application before anything else starts, and then waits.

So a mistake is told at once, NATS has a user for the application's pool, and a start imports no more than its workers
do. `dev_worker` is the other side.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import anyio

from mcpfleet.cli.child import Child, Launch, ProcessCommand, Started, execute, inherited
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.names import MODULE

if TYPE_CHECKING:  # it costs start-up time
    from mcpfleet.cli.import_report import ImportReport

WITHIN: Final = 60.0
"""Seconds that the import may take."""
_GRACE: Final = 10.0
"""Seconds beyond that for the process to start, and to tell; code outside of Python never does."""
_UNREAD: Final = 16 << 20
"""Bytes that an application may print while it is imported, before somebody reads them."""
_PART: Final = 64 * 1024
_CLOSES_WITHIN: Final = 5.0


class FirstWorker:
    """A process that imports an application, and becomes a worker once it is told where NATS is."""

    report: ImportReport
    """The result of its import, from `hear` on."""

    def __init__(self, target: str, process: Started, reader: StreamReader, writer: StreamWriter) -> None:
        self._target = target
        self._process = process
        self._reader = reader
        self._writer = writer
        self._is_taken = False

    async def hear(self) -> None:
        """Wait for the report.

        Raises:
            ConfigurationError: the application cannot be imported; it says why.
        """
        from mcpfleet.cli.import_report import ImportReport  # noqa: PLC0415

        said, why = b"", f"the import is not finished after {WITHIN:g} s, outside of Python's code"
        with anyio.move_on_after(WITHIN + _GRACE):
            said = await self._reader.read(-1)
            if not said:
                why = f"the import ends its process with code {await self._process.wait()}"
        if not said:
            await self._show_printed()
            raise ConfigurationError(f"{self._target}: {why}")
        self.report = ImportReport.model_validate_json(said)
        if self.report.mistake is not None:
            await self._show_printed()
            raise ConfigurationError(self.report.mistake.text)

    async def _show_printed(self) -> None:
        """Print what the application has printed: no fleet will read it any more."""
        assert self._process.stdout is not None
        with anyio.move_on_after(_CLOSES_WITHIN):
            while part := await self._process.stdout.read(_PART):
                sys.stdout.write(part.decode(errors="replace"))
        sys.stdout.flush()

    def stand_for(self, worker: Child) -> None:
        """Become a worker of a fleet when it starts for the first time."""
        worker.launch = self._launching(worker.launch)

    def _launching(self, others: Launch) -> Launch:
        async def launch(command: ProcessCommand) -> Started:
            if self._is_taken:
                return await others(command)
            self._is_taken = True
            self._writer.write(json.dumps(dict(command.environment)).encode())
            with suppress(OSError):  # it has ended: whoever keeps the worker sees that
                await self._writer.drain()
                self._writer.write_eof()
            return self._process

        return launch

    async def close(self) -> None:
        """End it, if no fleet has taken it."""
        self._writer.close()
        if not self._is_taken:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
            with anyio.move_on_after(_CLOSES_WITHIN, shield=True):
                await self._process.wait()


@asynccontextmanager
async def importing(target: str, launch: Launch = execute) -> AsyncIterator[FirstWorker]:
    """Start a worker that imports an application, for the length of a block; `launch` starts its process."""
    ours, theirs = socket.socketpair()
    with theirs:
        words = [*MODULE, "mcpfleet.cli.dev_worker", target, os.devnull, str(theirs.fileno())]
        process = await launch(ProcessCommand(words, inherited(), passing=[theirs.fileno()], unread=_UNREAD))
    reader, writer = await asyncio.open_connection(sock=ours)
    first = FirstWorker(target, process, reader, writer)
    try:
        yield first
    finally:
        await first.close()
