"""A running `mcpfleet dev`, as the one at the terminal sees it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO

from tests.kit.waiting import until

WITHIN = 60.0
"""Seconds for whatever is awaited, on a machine that has much else to do."""


class Terminal:
    """A running `mcpfleet dev`, as the one at the terminal sees it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []
        """Lines of standard output."""
        self.errors: list[str] = []
        """Lines of standard error."""
        assert process.stdout is not None
        assert process.stderr is not None
        self._readers = [_reader(process.stdout, self.said), _reader(process.stderr, self.errors)]

    async def ready(self, number: int) -> list[str]:
        """Wait for a line `ready <url>` of each edge."""
        await until(lambda: len(self.said) >= number, within=WITHIN)
        words = [line.split() for line in self.said[:number]]
        assert {word for word, _ in words} == {"ready"}
        return [url for _, url in words]

    async def say(self, sentence: str) -> None:
        """Wait until standard error has a sentence."""
        await until(lambda: any(sentence in line for line in self.errors), within=WITHIN)

    async def ended(self) -> int:
        """Wait until it has ended, and all that it said was read; returns its exit code."""
        await until(lambda: self.process.poll() is not None, within=WITHIN)
        await until(lambda: not any(reader.is_alive() for reader in self._readers), within=WITHIN)
        return self.process.wait()

    def close(self) -> None:
        """Have it drain."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(WITHIN)
        finally:
            self.process.kill()
        for reader in self._readers:
            reader.join(WITHIN)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


def _reader(stream: IO[str], lines: list[str]) -> threading.Thread:
    thread = threading.Thread(target=lambda: lines.extend(map(str.rstrip, stream)), daemon=True)
    thread.start()
    return thread


@contextmanager
def dev(
    *arguments: object, directory: Path | None = None, environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Terminal]:
    command = [sys.executable, "-m", "mcpfleet.cli", "dev", *map(str, arguments), "--port", "0"]
    process = subprocess.Popen(
        command, cwd=directory, env={**os.environ, **environment}, text=True, errors="replace",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    terminal = Terminal(process)
    try:
        yield terminal
    finally:
        terminal.close()
