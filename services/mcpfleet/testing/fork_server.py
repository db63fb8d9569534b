"""Starts the processes of a test's fleet as forks of one that has imported everything: imports are most of a start.

`python -m mcpfleet.testing.fork_server FD` is that process. It has one thread and no event loop, so a fork is safe.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
from asyncio import StreamReader, StreamReaderProtocol
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from importlib import import_module
from typing import Any, Final

import anyio

from mcpfleet.cli.child import Launch, Started, die_with_parent, execute

_PRELOADED: Final = (
    "alembic.command",
    "mcpfleet.authorization.__main__",
    "mcpfleet.catalog.__main__",
    "mcpfleet.cli.call",
    "mcpfleet.cli.listing",
    "mcpfleet.cli.operate_tasks",
    "mcpfleet.cli.services",
    "mcpfleet.cli.task_commands",
    "mcpfleet.cli.watch",
    "mcpfleet.edge.__main__",
    "mcpfleet.store.migrate",
    "mcpfleet.subscriptions.__main__",
    "mcpfleet.tasks.__main__",
    "mcpfleet.worker.__main__",
)
"""The modules that every fork has imported."""
_ORDER: Final = 1 << 20
"""Bytes that an order has at most; its environment is most of it."""
_DEAD: Final = -signal.SIGKILL
"""The exit code of a fork whose end nobody could tell."""


def launcher() -> Launch:
    """Return what starts the processes of a fleet here: the fork server on Linux, a new interpreter elsewhere."""
    return _server().launch if sys.platform == "linux" else execute


class ForkServer:
    """The process that forks, seen from the test."""

    def __init__(self) -> None:
        """Start it; an order that is given while it imports waits."""
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603  # this interpreter
                [sys.executable, "-m", __spec__.name, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    async def launch(self, command: Sequence[str], environment: Mapping[str, str], stderr: int | None) -> Started:
        """Start a process: a fork where its command runs a module with this interpreter, else a new interpreter."""
        if command[:2] != [sys.executable, "-m"] or _interpreter(environment) != _interpreter(os.environ):
            return await execute(command, environment, stderr)
        order = json.dumps({"argv": command[2:], "environment": dict(environment), "directory": os.getcwd()})  # noqa: PTH109  # a str
        said, stdout = os.pipe()
        ours, theirs = socket.socketpair()
        try:
            socket.send_fds(self._control, [order.encode()], [theirs.fileno(), stdout, 2 if stderr is None else stderr])
        finally:
            theirs.close()
            os.close(stdout)
        return await _Forked.hear(ours, said)

    def close(self) -> None:
        """End it, and with it what still runs."""
        self._control.close()
        self._process.wait()


class _Forked(asyncio.Protocol):
    """A fork, as asyncio would give a process: the server tells its id, and later its exit code."""

    def __init__(self) -> None:
        self.pid = 0
        self.returncode: int | None = None
        self.stdout: StreamReader | None = None
        self.forked = asyncio.Event()
        self._ended = asyncio.Event()
        self._told = b""
        self._transport: asyncio.BaseTransport | None = None

    @classmethod
    async def hear(cls, server: socket.socket, said: int) -> _Forked:
        """Wait until it runs, and hear what it says from then on."""
        loop = asyncio.get_running_loop()
        _, fork = await loop.create_unix_connection(cls, sock=server)
        reader = fork.stdout = StreamReader()
        await loop.connect_read_pipe(lambda: StreamReaderProtocol(reader), os.fdopen(said, "rb", 0))
        with anyio.CancelScope(shield=True):  # somebody must know which process runs from now on
            await fork.forked.wait()
        return fork

    async def wait(self) -> int:
        """Wait until it has ended; returns its exit code."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep it."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Note what the server tells."""
        *lines, self._told = (self._told + data).split(b"\n")
        for line in lines:
            if not self.pid:
                self.pid = int(line)
                self.forked.set()
            else:
                self.returncode = int(line)
                self._ended.set()
                if self._transport is not None:  # the loop may end before the server closes its side
                    self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio's
        """Note that nobody will tell any more."""
        if self.returncode is None:
            self.returncode = _DEAD
        self.forked.set()
        self._ended.set()


@cache
def _server() -> ForkServer:
    """The server of this process, from its first fleet to its end."""
    server = ForkServer()
    atexit.register(server.close)
    return server


def _interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that the interpreter itself reads when it starts."""
    return {name: value for name, value in environment.items() if name.startswith("PYTHON")}


class _Server:
    """Forks when it is told to, and tells how each fork ended."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._tellers: dict[int, socket.socket] = {}
        """Where the test hears of each fork, by the fork's id."""

    def serve(self) -> dict[str, Any] | None:
        """Serve until the test has ended; returns None then, and in a fork at once the order that it carries out."""
        with ExitStack() as stack:  # a fork keeps nothing open of ours
            stack.callback(self._close)
            woken, waker = os.pipe()
            for fd in (woken, waker):
                stack.callback(os.close, fd)
                os.set_blocking(fd, False)
            signal.signal(signal.SIGCHLD, lambda *_: None)
            signal.set_wakeup_fd(waker)
            stack.callback(signal.set_wakeup_fd, -1)
            selector = stack.enter_context(selectors.DefaultSelector())
            selector.register(stack.enter_context(self._control), selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fd == woken:
                        os.read(woken, 1024)
                        self._bury()
                        continue
                    raw, fds, _, _ = socket.recv_fds(self._control, _ORDER, 3)
                    if not raw:
                        return None
                    if self._fork(*fds) == 0:
                        return json.loads(raw)  # type: ignore[no-any-return]  # an order of ours

    def _fork(self, teller: int, stdout: int, stderr: int) -> int:
        """Fork; returns 0 in the fork, whose standard streams are those of the order."""
        pid = os.fork()
        if pid:
            self._tellers[pid] = socket.socket(fileno=teller)
            self._tell(pid, pid)
        else:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            die_with_parent()  # who forks lives as long as the test
            os.dup2(stdout, 1)
            os.dup2(stderr, 2)
            os.close(teller)
        os.close(stdout)
        os.close(stderr)
        return pid

    def _bury(self) -> None:
        """Tell of each fork that has ended."""
        while self._tellers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            self._tell(pid, os.waitstatus_to_exitcode(status))
            self._tellers.pop(pid).close()

    def _close(self) -> None:
        for teller in self._tellers.values():
            teller.close()

    def _tell(self, pid: int, number: int) -> None:
        try:
            self._tellers[pid].sendall(b"%d\n" % number)
        except OSError:  # the test hears no more of it
            return


def main() -> None:
    """Import what is preloaded, and serve; a fork goes on to run its module."""
    for name in _PRELOADED:
        import_module(name)
    gc.collect()
    gc.freeze()
    order = _Server(socket.socket(fileno=int(sys.argv[1]))).serve()
    if order is None:
        return
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["directory"])
    sys.path[0] = order["directory"]
    module, *sys.argv[1:] = order["argv"]
    sys.modules.pop(module, None)  # it is run under another name
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
