"""The command `mcpfleet` at a terminal of its own, which a test types into and reads."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import anyio
import anyio.to_thread

WITHIN = 60.0
"""Seconds for whatever is awaited, on a machine that has much else to do."""


class TypedCommand:
    """A running command; what it prints on its terminal is in `said`."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.said = ""
        """All that it has printed, on standard output and standard error alike."""
        self._process = process
        self._terminal = terminal
        self._read = 0

    async def until(self, sentence: str) -> str:
        """Wait until it has printed a sentence since the last wait; returns what it has printed since then."""
        with anyio.fail_after(WITHIN):
            while sentence not in self.said[self._read :]:
                await self._hear()
        end = self.said.index(sentence, self._read) + len(sentence)
        heard, self._read = self.said[self._read : end], end
        return heard

    async def type(self, prompt: str, line: str) -> str:
        """Wait for a prompt, and type a line; returns what was printed up to the prompt."""
        heard = await self.until(prompt)
        os.write(self._terminal, f"{line}\n".encode())
        return heard

    async def press(self, prompt: str, keys: bytes) -> None:
        """Wait for a prompt, and press keys such as `\\x04` for ^D."""
        await self.until(prompt)
        os.write(self._terminal, keys)

    async def ended(self) -> int:
        """Wait until it has ended, and all that it printed is read; returns its exit code."""
        with anyio.fail_after(WITHIN), suppress(OSError):
            while await self._hear():
                pass
        return await anyio.to_thread.run_sync(self._process.wait)

    async def _hear(self) -> bool:
        await anyio.wait_readable(self._terminal)
        part = os.read(self._terminal, 64 * 1024)  # a closed terminal raises on Linux
        self.said += part.decode().replace("\r\n", "\n")
        return bool(part)


@contextmanager
def typed(*words: str, **variables: str) -> Iterator[TypedCommand]:
    """Run the command with these words at a new terminal, and end it with the block."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "mcpfleet.cli", *words],
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            env={**os.environ, "TERM": "dumb", "COLUMNS": "200", **variables},
        )  # fmt: skip
    finally:
        os.close(theirs)
    try:
        yield TypedCommand(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
