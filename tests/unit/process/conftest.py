"""Shared by tests of processes: restores logging, and starts children that run real services."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import structlog

from mcpfleet.process import logs

Start = Callable[..., AbstractAsyncContextManager["Child"]]


@pytest.fixture
def logging_put_back() -> Iterator[None]:
    """Logging is the one thing that a process sets up for the whole of itself."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    try:
        yield
    finally:
        logs.flush()
        root.handlers = handlers
        root.setLevel(level)
        logging.captureWarnings(False)
        structlog.reset_defaults()


class Child:
    """A Python process under test, and the log lines that it has written so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self.texts: list[str] = []
        """Lines that are no JSON."""

    async def until(self, event: str, **values: object) -> dict[str, Any]:
        """Read its lines up to one with this event and these values."""
        async with asyncio.timeout(60):
            while line := await self._read():
                if line.get("event") == event and values.items() <= line.items():
                    return line
        raise AssertionError(f"ended without {event!r}: {self.lines} {self.texts}")

    async def ended(self) -> int:
        """Read the rest of its lines, and return its exit code."""
        async with asyncio.timeout(60):
            while await self._read():
                pass
            return await self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    async def _read(self) -> dict[str, Any]:
        """The next log line, or nothing at the end."""
        assert self.process.stderr is not None
        while text := (await self.process.stderr.readline()).decode():
            try:
                self.lines.append(json.loads(text))
            except ValueError:
                self.texts.append(text.rstrip("\n"))
            else:
                return self.lines[-1]
        return {}


@pytest.fixture
def child() -> Start:
    """Start a script in a Python of its own; it is killed at the end of the block."""

    @contextlib.asynccontextmanager
    async def start(script: str, **environ: str) -> AsyncIterator[Child]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MCPFLEET_", "OTEL_"))}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-W", "error", "-c", textwrap.dedent(script),
            stderr=asyncio.subprocess.PIPE, env=inherited | environ,
        )  # fmt: skip
        try:
            yield Child(process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    return start
