"""One process of a fleet on this machine."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from mcpfleet.cli.child import Child
from mcpfleet.cli.embedded_nats import EmbeddedNats
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.settings import ProcessSettings
from tests.kit.waiting import until

SLEEP = "import time; time.sleep(60)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
)


def python(script: str, log: Path | None = None) -> Child:
    return Child("child", [sys.executable, "-c", script], log=log)


async def test_what_it_says_is_heard_until_its_end() -> None:
    child = python("print('hello'); print('ready http://127.0.0.1:1/mcp'); raise SystemExit(3)")
    await child.start()
    assert await child.listen() == 3
    assert child.ready.is_set()
    assert child.url == "http://127.0.0.1:1/mcp"
    assert not child.is_running


async def test_an_application_may_begin_its_lines_with_ready(capfd: pytest.CaptureFixture[str]) -> None:
    child = python("print('ready for customers'); print('ready http://127.0.0.1:1/mcp'); print('ready')")
    await child.start()
    await child.listen()
    assert child.url == "http://127.0.0.1:1/mcp"
    assert capfd.readouterr().out.splitlines() == ["ready for customers", "ready"]


async def test_a_very_long_line_is_no_end_of_hearing() -> None:
    """An application may print whatever it likes."""
    child = python("print('x' * 1_000_000); print('ready', flush=True)")
    await child.start()
    assert await child.listen() == 0
    assert child.ready.is_set()


async def test_bytes_that_are_no_text_are_no_end_of_hearing() -> None:
    child = python(r"import sys; sys.stdout.buffer.write(b'\xff\xfe\nready\n')")
    await child.start()
    assert await child.listen() == 0
    assert child.ready.is_set()


async def test_its_standard_error_is_kept_where_one_wants_it(tmp_path: Path) -> None:
    log = tmp_path / "child.log"
    for _ in range(2):
        child = python("import sys; print('why', file=sys.stderr)", log)
        await child.start()
        await child.listen()
    assert log.read_text() == "why\nwhy\n"


async def test_it_is_stopped_by_a_signal() -> None:
    child = python(SLEEP)
    await child.start()
    with anyio.fail_after(5):
        await child.stop(within=5)
    assert child.exit_code == -signal.SIGTERM


async def test_a_signal_to_one_that_has_just_ended_takes_no_exit_code_away(caplog: pytest.LogCaptureFixture) -> None:
    """asyncio warns of an unknown child if somebody else asks the system for the exit code before it does."""
    for _ in range(20):
        child = python("raise SystemExit(3)")
        await child.start()
        until_dead(child.pid)
        child.signal(signal.SIGCONT)
        assert await child.listen() == 3
    assert [record.getMessage() for record in caplog.records] == []


def until_dead(pid: int) -> None:
    """Wait until a process has ended, without giving the event loop a turn and without taking its exit code."""
    with suppress(ChildProcessError):  # asyncio's thread has taken it
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


async def test_one_that_does_not_stop_is_killed_after_a_while() -> None:
    child = python(STUBBORN)
    await child.start()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(child.listen)
        await child.ready.wait()
        began = time.monotonic()
        await child.stop(within=0.2)
        assert 0.2 <= time.monotonic() - began < 30
    assert child.exit_code == -signal.SIGKILL


async def test_one_that_is_paused_can_be_stopped() -> None:
    child = python(SLEEP)
    await child.start()
    child.signal(signal.SIGSTOP)
    with anyio.fail_after(5):
        await child.stop(within=5)
    assert child.exit_code == -signal.SIGTERM


async def test_one_that_never_started_needs_no_stopping() -> None:
    child = python(SLEEP)
    await child.stop(within=1)
    await child.kill()
    child.signal(signal.SIGTERM)
    assert not child.is_running


async def test_one_that_is_started_again_has_to_become_ready_again() -> None:
    child = python("print('ready', flush=True)")
    await child.start()
    await child.listen()
    await child.start()
    assert not child.ready.is_set()
    await child.listen()
    assert child.ready.is_set()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent died")
async def test_it_does_not_outlive_its_parent() -> None:
    script = f"""
import anyio, sys, time
from mcpfleet.cli.child import Child

async def main():
    child = Child("child", [sys.executable, "-c", {SLEEP!r}])
    await child.start()
    print(f"ready http://child/{{child.pid}}", flush=True)
    time.sleep(60)

anyio.run(main)
"""
    parent = python(script)
    await parent.start()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(parent.listen)
        with anyio.fail_after(10):
            await parent.ready.wait()
        assert parent.url is not None
        grandchild = Path("/proc") / parent.url.rpartition("/")[2]
        assert grandchild.exists()
        await parent.kill()
    await until(lambda: not grandchild.exists() or "Z" in (grandchild / "stat").read_text().split()[2], within=5)


def modes(folder: Path, text: str) -> list[int]:
    """The modes of the files that hold a text."""
    return [path.stat().st_mode for path in folder.iterdir() if text in path.read_text()]


# -- the embedded server ---------------------------------------------------------------------------------------------


async def test_an_embedded_server_that_is_started_again_keeps_its_port(tmp_path: Path) -> None:
    server = EmbeddedNats(tmp_path, [], ProcessSettings(), lambda user: user)
    await server.start()
    url = server.url
    await server.child.kill()
    await server.start()
    try:
        assert server.url == url
        assert url.startswith("nats://127.0.0.1:")
    finally:
        await server.child.kill()


async def test_its_passwords_are_read_by_nobody_else(tmp_path: Path) -> None:
    server = EmbeddedNats(tmp_path, [], ProcessSettings(), lambda user: f"secret of {user}")
    await server.start()
    await server.child.kill()
    assert {mode & 0o077 for mode in modes(tmp_path, "secret of")} == {0}


async def test_a_server_that_cannot_start_says_what_to_do(tmp_path: Path) -> None:
    settings = ProcessSettings(bus_max_payload=10**12)  # more than any server takes
    server = EmbeddedNats(tmp_path, [], settings, lambda user: user)
    with anyio.fail_after(15), pytest.raises(ConfigurationError, match="--nats"):
        await server.start()
