"""Processes of a fleet that are forks of one that has imported everything."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpfleet.cli.child import Child
from mcpfleet.testing.fork_server import launcher

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each process has its own interpreter")

COMMAND = [sys.executable, "-m", "tests.fleet.told_by_fork"]


def child(*words: str, command: list[str] = COMMAND, log: Path | None = None, **variables: str) -> Child:
    return Child("fork", [*command, *words], {**os.environ, **variables}, log=log, launch=launcher())


async def ran(process: Child, capfd: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    """Run a process to its end; returns its exit code, and what it told."""
    await process.start()
    with anyio.fail_after(30):
        code = await process.listen()
    return code, json.loads(capfd.readouterr().out)


async def test_a_fork_is_started_as_an_interpreter_would_be(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Arguments, environment, directory, session and exit code are its own, and no descriptor is the server's."""
    process = child("hello", log=tmp_path / "log", MCPFLEET_POOL="books")
    code, told = await ran(process, capfd)
    assert (code, process.exit_code, process.is_running, process.ready.is_set()) == (3, 3, False, True)
    assert (told["argv"], told["variables"]["MCPFLEET_POOL"]) == (["hello"], "books")
    assert told["directory"] == told["path"] == str(Path.cwd())
    assert told["descriptors"] == [0, 1, 2]
    assert told["leads"]
    assert told["preloaded"]
    assert (tmp_path / "log").read_text() == "an error\n"


async def test_a_fork_that_is_killed_says_by_which_signal(tmp_path: Path) -> None:
    process = child("wait", log=tmp_path / "log")
    async with anyio.create_task_group() as tasks:
        await process.start()
        tasks.start_soon(process.listen)
        with anyio.fail_after(30):
            await process.ready.wait()
            await process.kill()
    assert process.exit_code == -signal.SIGKILL


async def test_a_fork_drains_at_sigterm_and_may_be_started_again(tmp_path: Path) -> None:
    process = child("wait", log=tmp_path / "log")
    pids = set()
    for _ in range(2):
        async with anyio.create_task_group() as tasks:
            await process.start()
            tasks.start_soon(process.listen)
            with anyio.fail_after(30):
                await process.ready.wait()
                await process.stop(within=30)
        assert process.exit_code == -signal.SIGTERM
        pids.add(process.pid)
    assert len(pids) == 2


async def test_another_command_or_interpreter_is_executed_as_it_is(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A shell around it, or a variable that the interpreter reads when it starts."""
    shell = child("hello", command=["sh", "-c", 'exec "$@"', "sh", *COMMAND], log=tmp_path / "log")
    varied = child("hello", log=tmp_path / "log", PYTHONDONTWRITEBYTECODE="x")
    for process in (shell, varied):
        code, told = await ran(process, capfd)
        assert (code, told["argv"], told["preloaded"]) == (3, ["hello"], False)
