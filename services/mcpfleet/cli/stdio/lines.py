"""Lines of two file descriptors, read and written by threads: a pipe, a file and a terminal all work alike.

A thread may hang in a call of the system that nothing can interrupt. So both are daemons, which delay no exit.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Final

import anyio

LONGEST: Final = 64 << 20
"""Bytes of the longest message, in either direction."""
_CHUNK: Final = 64 << 10
"""Bytes that are read at once."""
_AHEAD: Final = 8
"""Chunks that are read before somebody takes them."""
_EDGE: Final = 4 << 10
"""Bytes at the beginning and at the end of a line in which its id is looked for."""

_ID: Final = rb'"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?[0-9]{1,18})\s*'
_ID_FIRST: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID + rb",")
_ID_LAST: Final = re.compile(rb"(?<!\\)" + _ID + rb"\}\s*$")


class OutputClosed(Exception):
    """Raised when nobody reads the output any more."""


@dataclass(frozen=True, slots=True)
class TooLong:
    """A line that was too long, and was dropped."""

    id: bytes | None
    """The JSON of its id, if the line begins or ends with it as the official clients write it."""


class LineReader:
    """The lines of a file descriptor, without their ends; empty ones are left out."""

    def __init__(self, descriptor: int, longest: int = LONGEST) -> None:
        self._descriptor = descriptor
        self._longest = longest
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self._room = threading.Semaphore(_AHEAD)

    async def lines(self) -> AsyncIterator[bytes | TooLong]:
        """Yield each line until the end of the input. Nothing is read ahead of its taker but a few chunks."""
        threading.Thread(target=self._read, name="stdin", daemon=True).start()
        line = _Line(self._longest)
        while chunk := await self._chunks.get():
            self._room.release()
            *ended, rest = chunk.split(b"\n")
            for part in ended:
                line.add(part)
                if whole := line.take():
                    yield whole
            line.add(rest)
        if whole := line.take():
            yield whole

    def _read(self) -> None:
        chunk = b"first"
        while chunk:
            self._room.acquire()
            try:
                chunk = os.read(self._descriptor, _CHUNK)
            except OSError:
                chunk = b""
            with suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)


class _Line:
    """A line that still arrives. One that is too long keeps its two ends alone."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self._length = 0

    def add(self, part: bytes) -> None:
        self._length += len(part)
        self._parts.append(part)
        if self._length > self._longest:
            kept = b"".join(self._parts)
            self._parts = [kept[:_EDGE], kept[max(_EDGE, len(kept) - _EDGE) :]]

    def take(self) -> bytes | TooLong | None:
        """Return the line, and begin the next one; None for an empty line."""
        line, length = b"".join(self._parts), self._length
        self._parts, self._length = [], 0
        if length > self._longest:
            found = _ID_FIRST.match(line) or _ID_LAST.search(line)
            return TooLong(found[1] if found else None)
        return line.strip() or None


class LineWriter:
    """Writes lines to a file descriptor, each one whole."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._lock = anyio.Lock()
        self._lines: SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = SimpleQueue()
        threading.Thread(target=self._write, name="stdout", daemon=True).start()

    async def write(self, line: bytes) -> None:
        """Write a line; returns once it is written, so that a slow reader slows down whoever has more for it.

        Raises:
            OutputClosed: nobody reads.
        """
        async with self._lock:
            done: asyncio.Future[None] = self._loop.create_future()
            self._lines.put((line + b"\n", done))
            try:
                # A line that has begun is written to its end, even if its sender is cancelled.
                await asyncio.shield(done)
            except OSError:
                raise OutputClosed from None

    def close(self) -> None:
        """Write no more than what has begun."""
        self._lines.put(None)

    def _write(self) -> None:
        while (order := self._lines.get()) is not None:
            line, done = order
            error: OSError | None = None
            try:
                view = memoryview(line)
                while view:
                    view = view[os.write(self._descriptor, view) :]
            except OSError as raised:
                error = raised
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_settle, done, error)


def _settle(done: asyncio.Future[None], error: OSError | None) -> None:
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
        done.exception()  # its sender may have been cancelled, and asyncio would log an error that nobody took
