"""Starts processes as forks of one that has imported everything: imports are most of a process's start.

`python -m mcpfleet.cli.fork_server FD MODULE…` is that process, or a fork of ours. It has one thread and no event loop,
so a fork is safe. It never sees what an order says: a fork reads its own.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from typing import Any, Final

import anyio

from mcpfleet.cli.child import ProcessCommand, Started, die_with_parent, execute
from mcpfleet.process.names import MODULE

_MOST_DESCRIPTORS: Final = 16
"""Descriptors that come with an order at most."""
_DEAD: Final = -signal.SIGKILL
"""The exit code of a fork whose end nobody could tell."""
_FORKED_WITHIN: Final = 60.0
"""Seconds in which a server has imported everything and forks; otherwise a new interpreter is started in its place."""
_PR_SET_NAME: Final = 15
_CONTROLS: Final[list[socket.socket]] = []
"""Our ends of the servers' sockets: a server that is forked later keeps none of them."""


class ForkServer:
    """A process that forks, seen from the one that gives orders."""

    def __init__(self, control: socket.socket, wait: Callable[[], object]) -> None:
        """Take a server; `executed` and `forked` start one.

        Args:
            control: orders go through it, and the server ends once it is closed.
            wait: waits for the end of the server.
        """
        self._control = control
        self._wait = wait
        _CONTROLS.append(control)

    @classmethod
    def executed(cls, modules: Iterable[str]) -> ForkServer:
        """Start a server as a new interpreter, for a process that may have threads.

        Args:
            modules: what every fork has imported; an order that is given meanwhile waits.
        """
        control, theirs = _pair()
        with theirs:
            process = subprocess.Popen(  # noqa: S603  # this interpreter
                [*MODULE, __spec__.name, str(theirs.fileno()), *modules],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        return cls(control, process.wait)

    @classmethod
    def forked(cls, modules: Iterable[str]) -> ForkServer:
        """Start a server as a fork of this process, which has one thread, no event loop, and nothing to clean up.

        A fork of the server ends with the code of its module by a SystemExit, which passes through the caller.

        Args:
            modules: what every fork has imported, beside what this process has.
        """
        control, theirs = _pair()
        gc.freeze()  # pages of what is imported are shared until somebody writes to them
        pid = os.fork()
        if pid:
            theirs.close()
            return cls(control, partial(os.waitpid, pid, 0))
        for each in (control, *_CONTROLS):
            each.close()
        os.setsid()
        for number, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY)):
            nothing = os.open(os.devnull, flags)
            os.dup2(nothing, number)
            os.close(nothing)
        if not sys.flags.safe_path:
            del sys.path[0]  # the folder of the command
        if not _serve(theirs, modules):
            os._exit(0)
        raise AssertionError  # a fork has ended by a SystemExit

    async def launch(self, command: ProcessCommand) -> Started:
        """Start a process: a fork where its command runs a module with this interpreter, else a new interpreter."""
        run = _module_and_words(command.words)
        if run is not None and _interpreter(command.environment) == _interpreter(os.environ):
            try:
                return await self._fork(run, command)
            except OSError:  # the server has gone, or hangs: a start takes its time
                pass
        return await execute(command)

    async def _fork(self, run: dict[str, Any], command: ProcessCommand) -> Started:
        own = {"environment": dict(command.environment), "descriptors": list(command.passing)}
        order = json.dumps({**run, **own})
        said, stdout = os.pipe()
        ours, theirs = socket.socketpair()
        try:
            given = [theirs.fileno(), stdout, 2 if command.stderr is None else command.stderr, *command.passing]
            socket.send_fds(self._control, [b"fork"], given)
        except OSError:
            os.close(said)
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(stdout)
        return await _Forked.hear(ours, order.encode(), said, command.unread)

    def close(self) -> None:
        """End it, and with it what still runs."""
        _CONTROLS.remove(self._control)
        self._control.close()
        self._wait()


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
    async def hear(cls, server: socket.socket, order: bytes, said: int, unread: int) -> _Forked:
        """Wait until a fork is there, give it its order, and hear what it says from then on.

        Raises:
            OSError: none came in time, or the server has gone. One that comes later finds no order, and ends.
        """
        loop = asyncio.get_running_loop()
        with anyio.CancelScope(shield=True):  # somebody must know which process was forked
            transport, fork = await loop.create_unix_connection(cls, sock=server)
            with anyio.move_on_after(_FORKED_WITHIN):
                await fork.forked.wait()
            if not fork.pid:
                transport.close()
                os.close(said)
                raise TimeoutError
            transport.write(order)
            transport.write_eof()
            reader = fork.stdout = StreamReader(unread)
            await loop.connect_read_pipe(lambda: StreamReaderProtocol(reader), os.fdopen(said, "rb", 0))
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


def _pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _module_and_words(words: Sequence[str]) -> dict[str, Any] | None:
    """Return what a fork runs, and whether it may import from its folder; None for another command."""
    for interpreter, imports in ((MODULE, False), ([sys.executable, "-m"], True)):
        if list(words[: len(interpreter)]) == interpreter:
            directory = os.getcwd()  # noqa: PTH109  # a str
            return {"argv": list(words[len(interpreter) :]), "directory": directory, "imports": imports}
    return None


def _interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that the interpreter itself reads when it starts."""
    return {name: value for name, value in environment.items() if name.startswith("PYTHON")}


class _Server:
    """Forks when it is told to, and tells how each fork ended."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._tellers: dict[int, socket.socket] = {}
        """Where each fork's end is told, by the fork's id."""

    def serve(self) -> list[int]:
        """Serve until no order can come any more; returns nothing then, and in a fork at once its descriptors."""
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
                    said, fds, _, _ = socket.recv_fds(self._control, 16, _MOST_DESCRIPTORS)
                    if not said or self._fork(fds) == 0:
                        return fds

    def _fork(self, fds: list[int]) -> int:
        """Fork; returns 0 in the fork, whose process group is its own."""
        pid = os.fork()
        if pid:
            self._tellers[pid] = socket.socket(fileno=fds[0])
            self._tell(pid, pid)
            for fd in fds[1:]:
                os.close(fd)
        else:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            die_with_parent()  # who forks lives as long as the one who gives orders
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
        except OSError:  # nobody hears any more of it
            return


def _serve(control: socket.socket, modules: Iterable[str]) -> bool:
    """Import what is preloaded, and serve; a fork goes on to run its module, and ends with its code."""
    for name in modules:
        import_module(name)
    gc.freeze()
    if not (fds := _Server(control).serve()):
        return False
    # A file that is saved twice in a second, at the same length, would be run as it was first.
    sys.dont_write_bytecode = True
    teller, stdout, stderr, *passed = fds
    with socket.socket(fileno=teller) as giver, giver.makefile("rb") as order:
        if not (text := order.read()):  # the one who wanted a fork has given up
            return False
        said = json.loads(text)
    _take(dict(zip((1, 2, *said["descriptors"]), (stdout, stderr, *passed), strict=True)))
    os.environ.clear()
    os.environ.update(said["environment"])
    os.chdir(said["directory"])
    if said["imports"]:
        sys.path.insert(0, said["directory"])
    module, *sys.argv[1:] = said["argv"]
    _show_as(module, sys.argv[1:])
    for name in (module, f"{module}.__main__"):
        sys.modules.pop(name, None)  # it is run under another name
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit:
        raise
    except BaseException:
        sys.excepthook(*sys.exc_info())
        raise SystemExit(1) from None
    raise SystemExit(0)


def _take(places: Mapping[int, int]) -> None:
    """Give descriptors the numbers that an order names."""
    above = max(places) + 1
    kept = {number: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for number, fd in places.items()}
    for fd in places.values():
        os.close(fd)
    for number, fd in kept.items():
        os.dup2(fd, number)
        os.close(fd)


def _show_as(module: str, words: Sequence[str]) -> None:
    """Name this process in `top` and `ps -o comm` after what it runs: its command line is that of the first process."""
    role = words[0] if words and module == "mcpfleet.cli" else module.rpartition(".")[2].removeprefix("dev_")
    ctypes.CDLL(None).prctl(_PR_SET_NAME, role.encode())


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
