"""Children of a worker: started by the reaper, with pipes of the worker, and ended in steps."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio

from mcpfleet.process.auto_reset_event import AutoResetEvent
from mcpfleet.worker.hosting import reaper

INHERITED: Final = (
    *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
)
"""The variables that every child has: those of the SDK, proxies, and bundles of certificates (B27)."""
STEP: Final = 2.0
"""Seconds that a child has to end after each step: its input ends, SIGTERM, SIGKILL."""
_REAPER_ANSWERS_WITHIN: Final = 10.0
"""Seconds in which the reaper starts, and starts a child."""
LONGEST_LINE: Final = 8 * 1024
"""Bytes of a line of a child's errors (B21)."""
_LARGEST_REQUEST: Final = 1024 * 1024
"""Bytes of a command with its environment."""


class StartError(Exception):
    """Raised when a child cannot be started; the text says why."""


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return a child's whole environment: what every child has, and its own variables (B27)."""
    inherited = {name: value for name in INHERITED if (value := os.environ.get(name)) is not None}
    return {**inherited, **own}


class HostedChild:
    """A running child."""

    def __init__(
        self,
        reaping: Reaping,
        stdin: asyncio.StreamWriter,
        outputs: Sequence[tuple[asyncio.StreamReader, asyncio.BaseTransport]],
    ) -> None:
        self.pid = 0
        """Known once it runs."""
        self.stdin = stdin
        (self.stdout, out), (self.stderr, errors) = outputs
        self._transports = (stdin.transport, out, errors)
        self.status: int | None = None
        """Its exit code, or the negative number of the signal that ended it; None while it runs."""
        self._reaping = reaping
        self._ended = asyncio.Event()

    def ended(self, status: int | None) -> None:
        """Hear of its end; None where nobody could see it."""
        self.status = status
        self._ended.set()

    def close_pipes(self) -> None:
        """Close its pipes: it has ended, or was not started."""
        for transport in self._transports:
            transport.close()

    async def end(self) -> None:
        """End it, with all its descendants: close its input, then SIGTERM to its group, then SIGKILL to all."""
        self.stdin.close()
        for step in ("terminate", "kill", "kill"):
            with anyio.move_on_after(STEP):
                await self._ended.wait()
                return
            self._reaping.ask({"do": step, "pid": self.pid})

    async def wait(self) -> None:
        """Wait until it has ended."""
        await self._ended.wait()


class Reaping:
    """The worker's side of its reaper, on one event loop. The reaper starts with the first child."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._children: dict[int, HostedChild] = {}
        self._turn = anyio.Lock()
        self._reader: asyncio.Task[None] | None = None
        self._starting: HostedChild | None = None
        """The child that is asked for, until the answer."""
        self._failure: str | None = None
        """Why it was not started."""
        self._answered = AutoResetEvent()

    async def start(
        self, words: Sequence[str], env: Mapping[str, str], cwd: Path | None = None, *, limit: int
    ) -> HostedChild:
        """Start a child.

        Args:
            words: the program and its arguments.
            env: its whole environment.
            cwd: where it runs; this process's own directory by default.
            limit: bytes of a line that its output may have.

        Raises:
            StartError: it cannot be started.
        """
        request = {"do": "start", "words": list(words), "env": dict(env), "cwd": str(cwd) if cwd else None}
        body = json.dumps(request).encode() + b"\n"
        if len(body) > _LARGEST_REQUEST:
            raise StartError(f"the command and its environment have {len(body)} bytes, over {_LARGEST_REQUEST}")
        with anyio.CancelScope(shield=True):  # a cancel here would leave a child that nobody knows of
            async with self._turn:  # one at a time: the pipes that come belong to the newest request
                ours, theirs = _pipes()
                child = HostedChild(self, *await _streams(ours, limit))
                try:
                    await self._ask_to_start(child, body, theirs)
                except StartError:
                    child.close_pipes()
                    raise
                finally:
                    _close(theirs)
        return child

    async def _ask_to_start(self, child: HostedChild, body: bytes, fds: Sequence[int]) -> None:
        try:
            with anyio.fail_after(_REAPER_ANSWERS_WITHIN):
                connection = await self._connected()
                self._starting, self._failure = child, None
                sent = socket.send_fds(connection, [body], fds)
                await asyncio.get_running_loop().sock_sendall(connection, body[sent:])
                await self._answered.wait()
        except (OSError, TimeoutError) as error:
            raise StartError(f"the process that starts children does not answer: {error!r}") from error
        finally:
            self._starting = None
        if self._failure is not None:
            raise StartError(self._failure)

    async def _connected(self) -> socket.socket:
        """Return the socket to the reaper, which is started if it does not run."""
        if self._socket is not None and self._reader is not None and not self._reader.done():
            return self._socket
        await self.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        with theirs:
            command = [sys.executable, "-I", "-S", reaper.__file__, str(theirs.fileno())]
            self._process = await asyncio.to_thread(
                subprocess.Popen,  # a thread: starting a process takes milliseconds
                command,
                env={name: os.environ[name] for name in ("PATH",) if name in os.environ},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._socket = ours
        self._reader = asyncio.create_task(self._read(ours), name="reaper")
        return ours

    async def _read(self, connection: socket.socket) -> None:
        """Hear the reaper until it ends; then its children have ended with it."""
        loop, buffer = asyncio.get_running_loop(), b""
        try:
            while body := await loop.sock_recv(connection, 64 * 1024):
                *lines, buffer = (buffer + body).split(b"\n")
                for line in lines:
                    self._hear(json.loads(line))
        except OSError:  # it has ended
            return
        finally:
            self._fail("it has ended")
            for child in self._children.values():
                child.ended(None)
            self._children.clear()

    def _hear(self, answer: dict[str, Any]) -> None:
        if "failed" in answer:
            self._fail(answer["failed"])
        elif "pid" in answer:
            if self._starting is not None:
                self._starting.pid = answer["pid"]
                self._children[answer["pid"]] = self._starting
            self._answered.set()
        elif (child := self._children.pop(answer["ended"], None)) is not None:
            child.ended(answer["status"])

    def _fail(self, why: str) -> None:
        self._failure = why
        self._answered.set()

    def ask(self, request: dict[str, Any]) -> None:
        """Ask for something that has no answer; a reaper that has ended has done it."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.send(json.dumps(request).encode() + b"\n")

    async def close(self) -> None:
        """Have the reaper end, and every descendant with it."""
        if self._socket is None or self._process is None:
            return
        with suppress(OSError):  # it may have ended
            self._socket.shutdown(socket.SHUT_WR)
        await asyncio.to_thread(self._process.wait)
        if self._reader is not None:
            await self._reader
        self._socket.close()
        self._socket = None


def _pipes() -> tuple[list[int], list[int]]:
    """Make the pipes of a child: our ends and its ends, for its input, its output and its errors."""
    (in_read, in_write), (out_read, out_write), (err_read, err_write) = os.pipe(), os.pipe(), os.pipe()
    return [in_write, out_read, err_read], [in_read, out_write, err_write]


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


async def _streams(
    fds: Sequence[int], limit: int
) -> tuple[asyncio.StreamWriter, list[tuple[asyncio.StreamReader, asyncio.BaseTransport]]]:
    """Make streams of our ends of a child's pipes; they close them."""
    loop = asyncio.get_running_loop()
    stdin, *outputs = (os.fdopen(fd, mode, buffering=0) for fd, mode in zip(fds, ("wb", "rb", "rb"), strict=True))
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, stdin)
    readers: list[tuple[asyncio.StreamReader, asyncio.BaseTransport]] = []
    for file, most in zip(outputs, (limit, LONGEST_LINE), strict=True):
        reader = asyncio.StreamReader(limit=most, loop=loop)
        made = asyncio.StreamReaderProtocol(reader, loop=loop)
        readers.append((reader, (await loop.connect_read_pipe(lambda made=made: made, file))[0]))  # type: ignore[misc]
    return asyncio.StreamWriter(transport, protocol, None, loop), readers
