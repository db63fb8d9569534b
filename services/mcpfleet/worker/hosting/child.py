"""Children of a worker: started by the reaper, with pipes of the worker, and ended in steps."""

from __future__ import annotations

import asyncio
import itertools
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
_REAPER_ENDS_WITHIN: Final = 5.0
"""Seconds in which the reaper ends all descendants and itself; it is killed then."""
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
        if self.stdin.transport.get_write_buffer_size():  # a descendant may hold the other end, and read nothing
            self.stdin.transport.abort()
        for transport in self._transports:
            transport.close()

    async def end(self) -> None:
        """End it, with all its descendants: close its input, then SIGTERM to its group, then SIGKILL to all."""
        self.stdin.close()
        for step in ("terminate", "kill", "kill"):
            with anyio.move_on_after(STEP):
                await self._ended.wait()
                return
            await self._reaping.ask({"do": step, "pid": self.pid})

    async def wait(self) -> None:
        """Wait until it has ended."""
        await self._ended.wait()


class _Start:
    """A child that was asked for, until the answer."""

    def __init__(self, number: int, child: HostedChild) -> None:
        self.number = number
        self.child = child
        self.failure: str | None = None
        """Why it was not started."""
        self.answered = anyio.Event()

    def fail(self, why: str) -> None:
        self.failure = why
        self.answered.set()


class Reaping:
    """The worker's side of its reaper, on one event loop. The reaper starts with the first child."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._children: dict[int, HostedChild] = {}
        self._turn = anyio.Lock()
        self._sending = anyio.Lock()
        self._numbers = itertools.count(1)
        self._reader: asyncio.Task[None] | None = None
        self._starting: _Start | None = None

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
        number = next(self._numbers)
        request = {"do": "start", "number": number, "words": list(words), "env": dict(env)}
        body = json.dumps({**request, "cwd": str(cwd) if cwd else None}).encode() + b"\n"
        if len(body) > _LARGEST_REQUEST:
            raise StartError(f"the command and its environment have {len(body)} bytes, over {_LARGEST_REQUEST}")
        async with self._turn:  # one at a time: the pipes that come belong to the newest request
            with anyio.CancelScope(shield=True):  # a cancel here would leave a child that nobody knows of
                try:
                    ours, theirs = _pipes()
                except OSError as error:
                    raise StartError(f"there are no pipes for it: {error.strerror}") from error
                child = HostedChild(self, *await _streams(ours, limit))
                try:
                    await self._ask_to_start(_Start(number, child), body, theirs)
                except StartError:
                    child.close_pipes()
                    raise
                finally:
                    _close(theirs)
        return child

    async def _ask_to_start(self, wanted: _Start, body: bytes, fds: Sequence[int]) -> None:
        try:
            with anyio.fail_after(_REAPER_ANSWERS_WITHIN):
                connection = await self._connected()
                self._starting = wanted
                await self._send(connection, body, fds)
                await wanted.answered.wait()
        except (OSError, TimeoutError) as error:
            raise StartError(f"the process that starts children does not answer: {error!r}") from error
        finally:
            self._starting = None
        if wanted.failure is not None:
            raise StartError(wanted.failure)

    async def _send(self, connection: socket.socket, body: bytes, fds: Sequence[int] = ()) -> None:
        """Send a whole request: after a part of one, the connection is of no use, and ends.

        Raises:
            OSError: the reaper has ended.
        """
        async with self._sending:
            is_whole = False
            try:
                sent = socket.send_fds(connection, [body], fds) if fds else 0
                await asyncio.get_running_loop().sock_sendall(connection, body[sent:])
                is_whole = True
            finally:
                if not is_whole:
                    with suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)

    async def _connected(self) -> socket.socket:
        """Return the socket to the reaper, which is started if it does not run."""
        if self._socket is not None and self._reader is not None and not self._reader.done():
            return self._socket
        await self.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        try:
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
        except BaseException:
            ours.close()
            raise
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
                    await self._hear(json.loads(line))
        except OSError:  # it has ended
            return
        finally:
            if self._starting is not None:
                self._starting.fail("the process that starts children has ended")
            for child in self._children.values():
                child.ended(None)
            self._children.clear()

    async def _hear(self, answer: dict[str, Any]) -> None:
        if "number" in answer:
            await self._answer(answer)
        elif (child := self._children.pop(answer["ended"], None)) is not None:
            child.ended(answer["status"])

    async def _answer(self, answer: dict[str, Any]) -> None:
        """Take the answer to a start."""
        wanted = self._starting
        if wanted is None or wanted.number != answer["number"]:  # it came too late: nobody has this child
            if "pid" in answer:
                await self.ask({"do": "kill", "pid": answer["pid"]})
        elif "failed" in answer:
            wanted.fail(answer["failed"])
        else:
            wanted.child.pid = answer["pid"]
            self._children[answer["pid"]] = wanted.child
            wanted.answered.set()

    async def ask(self, request: dict[str, Any]) -> None:
        """Ask for something that has no answer; a reaper that has ended has done it."""
        if self._socket is not None:
            with suppress(OSError), anyio.move_on_after(STEP):
                await self._send(self._socket, json.dumps(request).encode() + b"\n")

    async def close(self) -> None:
        """Have the reaper end, and every descendant with it."""
        if self._socket is None or self._process is None:
            return
        with suppress(OSError):  # it may have ended
            self._socket.shutdown(socket.SHUT_WR)
        await asyncio.to_thread(_wait_for, self._process)
        if self._reader is not None:
            await self._reader
        self._socket.close()
        self._socket = None


def _wait_for(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_REAPER_ENDS_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _pipes() -> tuple[list[int], list[int]]:
    """Make the pipes of a child: our ends and its ends, for its input, its output and its errors.

    Raises:
        OSError: this process may open no more descriptors.
    """
    made: list[tuple[int, int]] = []
    try:
        for _ in range(3):
            made.append(os.pipe())  # noqa: PERF401  # those before a failure are closed
    except OSError:
        _close([fd for pair in made for fd in pair])
        raise
    (in_read, in_write), (out_read, out_write), (err_read, err_write) = made
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
