"""The reaper: a process that starts a worker's children, and ends all their descendants when the worker is gone (B19).

A worker that is killed cannot end its children, and a process group does not reach those that left it. So the worker
starts this one process, which is the subreaper of all others (Linux): whatever a child leaves behind becomes its child.
It ends them all when its socket to the worker ends, for whatever reason. It has no setting and no secret of the worker.
The file is run by itself, `python -I -S reaper.py FD`, so it imports nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

GRACE: Final = 1.5
"""Seconds between SIGTERM and SIGKILL where nobody waits: the worker is gone, or a child left others behind."""
_PAUSE: Final = 0.02
"""Seconds between two looks at processes that are ending."""
_MOST_FDS: Final = 3
_CHUNK: Final = 64 * 1024
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_CHILD_SUBREAPER: Final = 36


class Reaper:
    """Serves one worker over a socket: a line of JSON is a request, and each `start` brings the child's three pipes."""

    def __init__(self, worker: socket.socket) -> None:
        self._worker = worker
        self._buffer = b""
        self._fds: list[int] = []
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._left_behind: dict[int, float] = {}
        """When a process group whose leader has ended is killed, by monotonic seconds."""
        self._families: dict[int, Iterable[int]] = {}
        """The descendants of a child that was told to end."""
        self._orphans: list[tuple[float, Iterable[int]]] = []
        """Those of a child that has ended so, in other groups, too, and when they are killed."""

    def run(self) -> None:
        """Serve until the socket ends; then end every descendant."""
        wakes, woken = os.pipe()
        for end in (wakes, woken):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(woken)
        # Functions, and no SIG_IGN, which children would inherit. A terminal's ^C is for the worker, which tells us.
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, lambda *_: None)
        poll = select.poll()
        poll.register(self._worker, select.POLLIN)
        poll.register(wakes, select.POLLIN)
        try:
            while True:
                ready = {fd for fd, _ in poll.poll(100 if self._left_behind or self._orphans else None)}
                if wakes in ready:
                    os.read(wakes, _CHUNK)
                if self._worker.fileno() in ready and not self._read():
                    return
                self._reap()
                self._kill_left_behind(time.monotonic())
        except OSError:  # the worker is gone
            return
        finally:
            end_all()

    def _read(self) -> bool:
        """Read requests; return False once the worker has gone."""
        body, fds, _, _ = socket.recv_fds(self._worker, _CHUNK, _MOST_FDS)
        self._fds += fds
        if not body:
            return False
        *lines, self._buffer = (self._buffer + body).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))
        return True

    def _obey(self, request: dict[str, Any]) -> None:
        match request["do"]:
            case "start":
                fds, self._fds = self._fds, []
                self._tell({"number": request["number"], **self._start(request, fds)})
            case "terminate" if request["pid"] in self._children:  # the number of another is another process by now
                self._families[request["pid"]] = descendants(request["pid"])  # nobody knows them once it has ended
                signal_group(request["pid"], signal.SIGTERM)
            case "kill" if request["pid"] in self._children:
                kill_tree(request["pid"])

    def _start(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Start a child; the answer has its pid, or why there is none."""
        try:
            stdin, stdout, stderr = fds
            child = subprocess.Popen(  # noqa: S603  # the operator's command, without a shell
                request["words"],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=request["cwd"],
                env=request["env"],
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509  # this process has one thread
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return {"failed": str(error)}
        finally:
            for fd in fds:
                os.close(fd)
        self._children[child.pid] = child
        return {"pid": child.pid}

    def _reap(self) -> None:
        """Take the ends of processes: tell those of children, and have the rest of their groups end, too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self._children.pop(pid, None)
            if child is not None:
                child.returncode = os.waitstatus_to_exitcode(status)  # it is taken already
                self._tell({"ended": pid, "status": child.returncode})
                if signal_group(pid, signal.SIGTERM):
                    self._left_behind[pid] = time.monotonic() + GRACE
                if family := _still_ours(self._families.pop(pid, ())):
                    _signal_each(family, signal.SIGTERM)
                    self._orphans.append((time.monotonic() + GRACE, family))

    def _kill_left_behind(self, now: float) -> None:
        for group, due in list(self._left_behind.items()):
            if now >= due:
                del self._left_behind[group]
                signal_group(group, signal.SIGKILL)
        while self._orphans and now >= self._orphans[0][0]:
            _signal_each(_still_ours(self._orphans.pop(0)[1]), signal.SIGKILL)

    def _tell(self, answer: dict[str, Any]) -> None:
        self._worker.sendall(json.dumps(answer).encode() + b"\n")


def die_with_parent() -> None:
    """Have a new child die if the reaper itself is killed."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process; on other systems than Linux it does nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def signal_group(group: int, number: int) -> bool:
    """Signal a process group; return False if it has no member."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # of a member that has become somebody else's
        return True
    return True


def _still_ours(pids: Iterable[int]) -> list[int]:
    """Return those that are descendants of this process: a number may be another's by now."""
    wanted = {*pids}
    return [pid for pid in descendants(os.getpid()) if pid in wanted] if wanted else []


def _signal_each(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill_tree(pid: int) -> None:
    """Kill a child, its group and its descendants, those in other groups, too."""
    for _ in range(5):  # one may fork while it is looked for
        found = descendants(pid)
        signal_group(pid, signal.SIGKILL)
        _signal_each([pid, *found], signal.SIGKILL)
        if not found:
            return
        time.sleep(_PAUSE / 4)


def descendants(of: int) -> list[int]:
    """Return the living descendants of a process; none where the system does not tell them."""
    children: dict[int, list[int]] = {}
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208  # pathlib takes 10 ms to import
    except OSError:
        return []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123
                state, parent = stat.read().rpartition(b")")[2].split()[:2]
        except OSError:
            continue
        if state != b"Z":
            children.setdefault(int(parent), []).append(pid)
    found, ahead = [], [of]
    while ahead:
        ahead = [child for parent in ahead for child in children.get(parent, ())]
        found += ahead
    return found


def end_all() -> None:
    """End every descendant of this process: by SIGTERM, and by SIGKILL after the grace."""
    began, own = time.monotonic(), os.getpid()
    _signal_each(descendants(own), signal.SIGTERM)
    while True:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        left = descendants(own)
        if not left:
            return
        if time.monotonic() - began > GRACE:
            _signal_each(left, signal.SIGKILL)
        time.sleep(_PAUSE)


if __name__ == "__main__":
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    prctl(_PR_SET_DUMPABLE, 0)
    Reaper(socket.socket(fileno=int(sys.argv[1]))).run()
