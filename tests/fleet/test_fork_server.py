"""Processes of a fleet that are forks of one that has imported everything."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpfleet.cli import fork_server
from mcpfleet.cli.child import Child, ProcessCommand, execute
from mcpfleet.process.names import MODULE
from mcpfleet.testing.fleet import launcher

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


async def test_a_fork_whose_start_is_cancelled_is_known(tmp_path: Path) -> None:
    """It was forked before anybody could wait: an orphan would run until the fork server ends."""
    process = child("wait", log=tmp_path / "log")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await process.start()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(process.listen)
        with anyio.fail_after(30):
            await process.ready.wait()
            await process.kill()
    assert process.exit_code == -signal.SIGKILL


async def test_where_the_server_hangs_an_interpreter_starts_and_a_late_fork_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server, "_FORKED_WITHIN", 0.2)
    runs = tmp_path / "runs"
    program = f"import os; open({str(runs)!r}, 'a').write('run\\n')"
    (tmp_path / "effect.py").write_text(program)
    monkeypatch.chdir(tmp_path)
    server = fork_server.ForkServer.executed([])
    pid = getattr(server._wait, "__self__").pid  # noqa: B009  # nobody else needs to know
    os.kill(pid, signal.SIGSTOP)
    try:
        command = ProcessCommand([sys.executable, "-m", "effect"], dict(os.environ))
        with anyio.fail_after(30):
            assert await (await server.launch(command)).wait() == 0
            os.kill(pid, signal.SIGCONT)
            monkeypatch.setattr(fork_server, "_FORKED_WITHIN", 30.0)
            # Forks come in order: where this one has run, the late one would have run before.
            assert await (await server.launch(command)).wait() == 0
    finally:
        os.kill(pid, signal.SIGCONT)
        server.close()
    assert runs.read_text() == "run\n" * 2


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


async def test_a_process_of_ours_imports_nothing_from_the_folder_that_it_runs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file may have the name of a package that a process of ours imports; other modules have their folder."""
    (tmp_path / "pydantic.py").write_text("raise SystemExit('the folder')\n")
    monkeypatch.chdir(tmp_path)
    ours = child(command=[*MODULE, "mcpfleet.cli.told"], log=tmp_path / "log")
    await ours.start()
    with anyio.fail_after(30):
        assert await ours.listen() == 1
    assert "No module named mcpfleet.cli.told" in (tmp_path / "log").read_text()
    own = await execute(ProcessCommand([*MODULE, "mcpfleet.cli", "check", "none.py"], dict(os.environ)))
    with anyio.fail_after(30):
        assert await own.wait() == 2


async def test_a_module_that_is_saved_twice_in_a_second_is_run_as_it_was_saved_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python knows a file that it has compiled by its second and its length."""
    (tmp_path / "saved.py").write_text("import shelf\n\nraise SystemExit(shelf.CODE)\n")
    monkeypatch.chdir(tmp_path)
    for code in (3, 4):
        (tmp_path / "shelf.py").write_text(f"CODE = {code}\n")
        os.utime(tmp_path / "shelf.py", (1_000_000_000, 1_000_000_000))
        process = child(command=[sys.executable, "-m", "saved"], log=tmp_path / "log")
        await process.start()
        with anyio.fail_after(30):
            assert await process.listen() == code


@pytest.mark.skipif(not hasattr(os, "fork"), reason="elsewhere nothing forks")
def test_a_server_may_be_a_fork_itself_and_shares_what_is_imported(tmp_path: Path) -> None:
    """Its forks end with their own codes, none of them runs the caller's code on, and one dead server is no loss."""
    program = tmp_path / "program.py"
    program.write_text(FORKING)
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=60, check=False, cwd=Path.cwd(),
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["3 True", "3 True", "once"]


async def test_another_command_or_interpreter_is_executed_as_it_is(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A shell around it, or a variable that the interpreter reads when it starts."""
    shell = child("hello", command=["sh", "-c", 'exec "$@"', "sh", *COMMAND], log=tmp_path / "log")
    varied = child("hello", log=tmp_path / "log", PYTHONDONTWRITEBYTECODE="x")
    for process in (shell, varied):
        code, told = await ran(process, capfd)
        assert (code, told["argv"], told["preloaded"]) == (3, ["hello"], False)


FORKING = """
import json, os, signal, sys
import anyio
from mcpfleet.cli import fork_server
from mcpfleet.cli.child import ProcessCommand
from mcpfleet.cli.fork_server import ForkServer

servers = [ForkServer.forked(["mcpfleet.edge.server"]) for _ in range(2)]

async def main():
    for server in servers:
        words = [sys.executable, "-m", "tests.fleet.told_by_fork", "x"]
        process = await server.launch(ProcessCommand(words, dict(os.environ)))
        told = json.loads(await process.stdout.readline())
        print(await process.wait(), told["preloaded"])

anyio.run(main)
for server in reversed(servers):
    server.close()
print("once")
"""
