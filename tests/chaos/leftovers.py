"""Hosted children that are started, crash, are reaped, or lose their worker: no process of them is left.

    .venv/bin/python -m tests.chaos.leftovers [--starts 500]

Each round is a process that starts children as a worker does. Some children hear the end of their input. Others hear
neither that nor SIGTERM, are behind `sh -c` or `npx`, or leave a process in a session of its own. A third of them is
ended, a third crashes and is ended. Then SIGKILL ends the round's process, with the last third of its children. The
program says which processes are there five seconds later, and ends with 1 if there are any.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
import psutil

from mcpfleet.worker.hosting.child import Reaping, environment

WITHIN: Final = 5.0
"""Seconds after which nothing may be left (B19)."""
OF_A_ROUND: Final = 36
"""Children of one process."""
ENDINGS: Final = ("ended", "crashed", "orphaned")
LONGER: Final = "crashed and left others"
"""A child that crashes takes its group along. What it has left in another session, ends with the worker."""
MARK: Final = "LEFTOVER_MARK"
"""The variable by which processes of a round are found; it has the way of their end, too."""

_WAITS: Final = "import sys; print('up', flush=True); sys.stdin.read()"
_DEAF: Final = """
import signal, time
for number in (1, 2, 15):
    signal.signal(number, signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
"""
_LEAVES: Final = """
import subprocess, sys
subprocess.Popen([sys.executable, sys.argv[1]], start_new_session=True).wait()
"""
_BREAKS: Final = "print('up', flush=True); raise SystemExit(3)"


def kinds(folder: Path) -> dict[str, list[str]]:
    """Return the commands of children by kind; each child, or a process of it, prints a line once it is up."""
    deaf = folder / "deaf.py"
    deaf.write_text(_DEAF)
    words = shlex.join([sys.executable, str(deaf)])
    found = {
        "waits": [sys.executable, "-c", _WAITS],
        "deaf": [sys.executable, str(deaf)],
        "breaks": [sys.executable, "-c", _BREAKS],
        "leaves": [sys.executable, "-c", _LEAVES, str(deaf)],
        "shell": ["sh", "-c", f"{words}; true"],
        "background": ["sh", "-c", f"{words} & wait"],
    }
    if shutil.which("npx") is not None:
        found["npx"] = ["npx", "-c", words]
    return found


@dataclass
class Outcome:
    """What the rounds have shown."""

    starts: int = 0
    left: list[str] = field(default_factory=list)
    """A line for each process that was there too long."""


async def rounds(starts: int, of_a_round: int = OF_A_ROUND) -> Outcome:
    """Start so many children in rounds."""
    outcome = Outcome()
    while outcome.starts < starts:
        number = min(of_a_round, starts - outcome.starts)
        await _round(number, outcome)
        outcome.starts += number
    return outcome


async def _round(number: int, outcome: Outcome) -> None:
    mark = f"{os.getpid()}-{outcome.starts}"
    words = [sys.executable, "-m", "tests.chaos.leftovers", "--host", mark, "--starts", str(number)]
    with tempfile.TemporaryDirectory() as folder:
        async with _hosting([*words, "--folder", folder]) as host:
            outcome.left += await _left([f"{mark} {each}" for each in ("ended", "crashed")])
            family = psutil.Process(host).children(recursive=True)
            os.kill(host, signal.SIGKILL)
        outcome.left += await _left([f"{mark} {each}" for each in (*ENDINGS, LONGER)], family)


@asynccontextmanager
async def _hosting(words: list[str]) -> AsyncIterator[int]:
    """Run a process that hosts, until the end of the block, which begins when it has done all but the last third."""
    async with await anyio.open_process(words, stderr=None) as process:
        assert process.stdout is not None
        with anyio.fail_after(120):
            assert await process.stdout.receive() == b"ready\n"
        yield process.pid
        await process.wait()


async def _left(marks: list[str], family: list[psutil.Process] | None = None) -> list[str]:
    """Wait until these processes are gone; return those that are not in time."""
    found: list[str] = []
    with anyio.move_on_after(WITHIN):
        while found := [*_marked(marks), *map(_named, filter(_runs, family or []))]:  # noqa: ASYNC110  # no event tells it
            await anyio.sleep(0.05)
    return found


def _marked(marks: list[str]) -> list[str]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if (mark := process.environ().get(MARK, "")) in marks and _runs(process):
                found.append(f"{mark.partition(' ')[2]}: parent {process.ppid()}: {_named(process)}")
    return found


def _runs(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _named(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return f"{process.pid} {shlex.join(process.cmdline())[:120]}"
    return str(process.pid)


async def host(mark: str, starts: int, folder: Path) -> None:
    """Start children as a worker does, end two thirds of them, say so, and keep the others."""
    made = Reaping()
    commands = list(kinds(folder).items())
    async with anyio.create_task_group() as tasks:
        for number in range(starts):
            kind, words = commands[number % len(commands)]
            ending = ENDINGS[number // len(commands) % len(ENDINGS)]
            known = LONGER if kind == "leaves" and ending == "crashed" else ending
            tasks.start_soon(_child, made, words, f"{mark} {known}", ending)
    sys.stdout.write("ready\n")  # by one write: the round reads once
    sys.stdout.flush()
    await anyio.sleep_forever()


async def _child(made: Reaping, words: list[str], mark: str, ending: str) -> None:
    child = await made.start(words, environment({MARK: mark}), limit=64 * 1024)
    with anyio.fail_after(60):
        await child.stdout.readline()
    if ending == "crashed":
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
    if ending != "orphaned":
        await child.end()


def main() -> None:
    """Run the rounds, and print what is left."""
    parser = argparse.ArgumentParser(description="Start hosted children in all ways, and look for what is left.")
    parser.add_argument("--starts", type=int, default=500)
    parser.add_argument("--host", metavar="MARK", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.host is not None:
        anyio.run(host, options.host, options.starts, options.folder)
    outcome = anyio.run(rounds, options.starts)
    for line in outcome.left:
        print(f"left: {line}")  # noqa: T201
    print(f"{outcome.starts} children started, {len(outcome.left)} processes left")  # noqa: T201
    sys.exit(bool(outcome.left))


if __name__ == "__main__":
    main()
