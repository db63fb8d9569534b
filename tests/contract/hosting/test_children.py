"""Children of a worker end with it, whatever they do, and a reaper that has ended takes nobody along but them."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpfleet.worker.hosting.child import HostedChild, Reaping, StartError, environment
from mcpfleet.worker.hosting.reaper import descendants

DEAF = """
import signal, time
for number in (1, 2, 15):
    signal.signal(number, signal.SIG_IGN)
print("up", flush=True)
time.sleep(99)
"""
"""Hears neither the end of its input nor SIGTERM."""
ORPHAN = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {DEAF!r}], start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
"""
"""Leaves a deaf process in a session of its own."""


class KnownChildren(Reaping):
    """Knows the children that it started, whose pipes are their starter's to close."""

    def __init__(self) -> None:
        super().__init__()
        self.children: list[HostedChild] = []

    async def start(self, *words: Any, **options: Any) -> HostedChild:
        """Start a child, and know it."""
        self.children.append(await super().start(*words, **options))
        return self.children[-1]


@asynccontextmanager
async def reaping() -> AsyncIterator[Reaping]:
    made = KnownChildren()
    try:
        yield made
    finally:
        await made.close()
        for child in made.children:
            child.close_pipes()


async def started(made: Reaping, script: str, **env: str) -> HostedChild:
    return await made.start([sys.executable, "-c", script], environment(env), limit=1024)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def gone(*pids: int) -> bool:
    """Whether processes end within five seconds."""
    with anyio.move_on_after(5):
        while any(map(is_running, pids)):  # noqa: ASYNC110  # no event tells it: they are no children of ours
            await anyio.sleep(0.02)
        return True
    return False


async def test_a_child_reads_writes_and_ends_with_its_input() -> None:
    async with reaping() as made:
        child = await started(made, "import sys; print(sys.stdin.readline(), file=sys.stderr); print('out')")
        child.stdin.write(b"hello\n")
        assert await child.stdout.readline() == b"out\n"
        assert await child.stderr.readline() == b"hello\n"
        await child.end()
        assert child.status == 0


@pytest.mark.rule("B27")
async def test_a_child_has_its_own_variables_and_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCPFLEET_BUS_PASSWORD", "s3cret")
    monkeypatch.setenv("https_proxy", "http://proxy.example")
    async with reaping() as made:
        child = await started(made, "import os; print(sorted(os.environ))", TOKEN="x")
        names = (await child.stdout.readline()).decode()
        assert "'TOKEN'" in names
        assert "'https_proxy'" in names
        assert "MCPFLEET" not in names
        await child.end()


async def test_a_program_that_does_not_exist_is_named() -> None:
    async with reaping() as made:
        with pytest.raises(StartError, match="no-such-program"):
            await made.start(["no-such-program"], environment({}), limit=1024)
        assert (await started(made, "")).pid > 0


@pytest.mark.rule("B19")
async def test_a_deaf_child_is_killed_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpfleet.worker.hosting.child.STEP", 0.2)
    async with reaping() as made:
        child = await started(made, DEAF)
        await child.stdout.readline()
        await child.end()
        assert child.status == -signal.SIGKILL
        assert not is_running(child.pid)


@pytest.mark.rule("B19")
async def test_descendants_in_other_sessions_are_killed_with_their_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpfleet.worker.hosting.child.STEP", 0.2)
    async with reaping() as made:
        child = await started(made, ORPHAN + DEAF)
        grandchild = int(await child.stdout.readline())
        await child.stdout.readline()
        await child.end()
        assert await gone(child.pid, grandchild)


@pytest.mark.rule("B19")
async def test_closing_ends_what_children_left_behind() -> None:
    async with reaping() as made:
        child = await started(made, ORPHAN)
        orphan = int(await child.stdout.readline())
        await child.wait()
        assert is_running(orphan)
    assert not is_running(orphan)


WORKER = """
import asyncio, os, sys
from mcpfleet.worker.hosting.child import Reaping, environment

async def main():
    reaping = Reaping()
    for script in sys.argv[1:]:
        shell = ["sh", "-c", f"exec {sys.executable} -c \\"$0\\"", script]
        child = await reaping.start(shell, environment({}), limit=1024)
        print(child.pid, (await child.stdout.readline()).decode().strip(), flush=True)
    await asyncio.sleep(99)

asyncio.run(main())
"""


@pytest.mark.rule("B19")
async def test_no_descendant_outlives_a_killed_worker() -> None:
    """A deaf child, and one that has left a deaf process in another session."""
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, DEAF, ORPHAN, stdout=subprocess.PIPE, start_new_session=True
    )
    assert worker.stdout is not None
    deaf, _ = (await worker.stdout.readline()).split()
    _, orphan = (await worker.stdout.readline()).split()
    began = time.monotonic()
    os.kill(worker.pid, signal.SIGKILL)
    await worker.wait()
    assert await gone(int(deaf), int(orphan)), time.monotonic() - began


async def test_a_reaper_that_ended_is_started_again() -> None:
    async with reaping() as made:
        child = await started(made, DEAF)
        await child.stdout.readline()
        os.kill(parent_of(child.pid), signal.SIGKILL)
        with anyio.fail_after(5):
            await child.wait()
        assert await gone(child.pid)
        again = await started(made, "print('again')")
        assert await again.stdout.readline() == b"again\n"
        await again.end()
        assert again.status == 0


async def test_a_child_that_starts_too_late_is_killed_and_no_other_has_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with reaping() as made:
        first = await started(made, DEAF)
        reaper = parent_of(first.pid)
        monkeypatch.setattr("mcpfleet.worker.hosting.child._REAPER_ANSWERS_WITHIN", 0.1)
        os.kill(reaper, signal.SIGSTOP)
        with pytest.raises(StartError, match="does not answer"):
            await started(made, DEAF)
        os.kill(reaper, signal.SIGCONT)
        monkeypatch.undo()
        other = await started(made, DEAF)
        assert await other.stdout.readline() == b"up\n"
        with anyio.fail_after(5):
            while {*descendants(reaper)} != {first.pid, other.pid}:  # noqa: ASYNC110  # it is no child of ours
                await anyio.sleep(0.02)


async def test_a_child_without_descriptors_is_a_failed_start() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    async with reaping() as made:
        await started(made, "")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 2, limits[1]))  # noqa: PTH208
        try:
            with suppress(OSError):
                while True:
                    held.append(os.dup(0))
            os.close(held.pop())  # a pipe needs two
            os.close(held.pop())
            with pytest.raises(StartError, match="no pipes"):
                await started(made, "")
            held += [os.dup(0), os.dup(0)]  # the first pipe was closed again
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            for fd in held:
                os.close(fd)
        assert (await started(made, "")).pid > 0
