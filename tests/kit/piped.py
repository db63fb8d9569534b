"""A process that speaks the protocol on its two pipes, as the client that started it sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio

from tests.kit.waiting import until

WITHIN: Final = 60.0
"""Seconds for whatever is awaited, on a machine that has much else to do."""
STDIO: Final = ("-m", "mcpfleet.cli", "stdio")


class Piped:
    """A running process, by default of `mcpfleet stdio`."""

    def __init__(self, words: Sequence[str], directory: Path | None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=directory,
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.input, self.output, self.log = self.process.stdin, self.process.stdout, self.process.stderr

    def ask(self, identifier: int, method: str, **params: Any) -> None:
        """Send a modern request."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "progressToken": identifier,
        }
        message = {"jsonrpc": "2.0", "id": identifier, "method": method, "params": {**params, "_meta": meta}}
        self.input.write(json.dumps(message).encode() + b"\n")
        self.input.flush()

    async def hear(self) -> Any:
        """Return the next message."""
        with anyio.fail_after(WITHIN):
            line = await anyio.to_thread.run_sync(self.output.readline, abandon_on_cancel=True)
        assert line, self.log.read()
        return json.loads(line)

    async def end(self) -> tuple[float, bytes, bytes]:
        """Close its input; returns the seconds until it has ended, and the rest of what it said on both pipes."""
        began = time.monotonic()
        self.input.close()
        return await self.ended(began)

    async def ended(self, began: float) -> tuple[float, bytes, bytes]:
        """Wait until it has ended; returns as `end`."""
        await until(lambda: self.process.poll() is not None, within=WITHIN)
        return time.monotonic() - began, self.output.read(), self.log.read()

    def close(self) -> None:
        """Leave nothing behind."""
        self.process.kill()
        self.process.wait()
        for stream in (self.output, self.log, self.input):
            try:
                stream.close()
            except BrokenPipeError:
                continue


@asynccontextmanager
async def piped(*words: str, directory: Path | None = None) -> AsyncIterator[Piped]:
    """Run a process for the length of a block: this interpreter with these words."""
    process = Piped(words, directory)
    try:
        yield process
    finally:
        process.close()
