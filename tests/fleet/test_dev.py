"""`mcpfleet dev`: the whole system in one terminal, and the commands that people use with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import httpx2
import pytest
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp import Client
from mcp_types import CallToolResult
from psutil import Process as Children

from tests.kit.raw import connected
from tests.kit.waiting import until

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "examples" / "library.py"
APP = Path(__file__).with_name("app.py")
MCPFLEET = [sys.executable, "-m", "mcpfleet.cli"]
BROKEN = "from mcpfleet.app import App\napp = App('broken', version='1')\n@app.tool()\ndef f(x): ...\n"


@dataclass
class Terminal:
    """A running `mcpfleet dev`, as the one at the terminal sees it."""

    process: Process
    errors: list[str] = field(default_factory=list)

    async def ready(self, number: int) -> list[str]:
        """Wait for a line `ready <url>` of each edge."""
        assert self.process.stdout is not None
        lines = BufferedByteReceiveStream(self.process.stdout)
        said = [(await lines.receive_until(b"\n", 4096)).decode().split() for _ in range(number)]
        assert {word for word, _ in said} == {"ready"}
        return [url for _, url in said]

    async def say(self, sentence: str) -> None:
        """Wait until standard error has a sentence."""
        while not any(sentence in line for line in self.errors):  # noqa: ASYNC110  # a list has no event
            await anyio.sleep(0.02)

    async def collect(self) -> None:
        """Keep what is said on standard error."""
        assert self.process.stderr is not None
        async for data in self.process.stderr:
            self.errors += data.decode(errors="replace").splitlines()


@asynccontextmanager
async def dev(*arguments: object, environment: Mapping[str, str] | None = None) -> AsyncIterator[Terminal]:
    command = [*MCPFLEET, "dev", *map(str, arguments), "--port", "0"]
    async with await anyio.open_process(command, env={**os.environ, **(environment or {})}) as process:
        terminal = Terminal(process)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(terminal.collect)
            try:
                with anyio.fail_after(60):
                    yield terminal
            finally:
                if process.returncode is None:
                    process.send_signal(signal.SIGTERM)
                    await process.wait()


async def mcpfleet(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    with anyio.fail_after(30):
        return await anyio.run_process([*MCPFLEET, *arguments], check=False, stdin=subprocess.DEVNULL)


async def test_the_log_names_a_console_that_shows_the_fleet() -> None:
    async with dev(LIBRARY) as terminal:
        await terminal.ready(1)
        await terminal.say("/console")
        url = next(word.removeprefix("url=") for line in terminal.errors for word in line.split() if "/console" in word)
        async with httpx2.AsyncClient() as http:
            assert "console/console.js" in (await http.get(url)).text


async def test_the_library_answers_people_and_programs_and_control_c_drains() -> None:
    """The README's first command, an edge each, a result for eyes and one for pipes, and exit code 0."""
    async with dev(LIBRARY, "--edges", 2, "--no-reload") as terminal:
        urls = await terminal.ready(2)
        for url in urls:
            shown = await mcpfleet("call", url, "search", "query=moby")
            assert (shown.returncode, b"Melville" in shown.stdout) == (0, True), shown.stderr
        piped = await mcpfleet("call", urls[0], "search", "query=moby", "--json")
        assert json.loads(piped.stdout)["isError"] is False
        listed = (await mcpfleet("list", urls[0])).stdout.decode()
        assert "tools:" in listed
        assert "  search " in listed
        failed = await mcpfleet("call", urls[0], "read_book", "book=9999")
        assert (failed.returncode, failed.stdout) == (1, b"")
        assert failed.stderr

        terminal.process.send_signal(signal.SIGINT)
        assert await terminal.process.wait() == 0


async def test_an_operators_command_finds_the_fleet_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NATS has a free port and a password that nobody knows: a note for this user alone tells both, until the end."""
    monkeypatch.chdir(tmp_path)
    note = tmp_path / ".mcpfleet" / "dev.json"
    async with dev(LIBRARY, "--no-reload") as terminal:
        await terminal.ready(1)
        assert note.stat().st_mode & 0o777 == 0o600
        listed = await mcpfleet("tasks", "list")
        assert (listed.returncode, listed.stdout) == (0, b"no tasks\n"), listed.stderr
        published = await mcpfleet("publish", "library://books/1")
        assert published.returncode == 0, published.stderr
        strange = await mcpfleet("publish", "library://books/1", "--endpoint", "nope")
        assert (strange.returncode, b"has no endpoint 'nope': use one of mcp" in strange.stderr) == (2, True)
    assert not note.exists()


async def test_a_changed_file_is_served_without_a_word(tmp_path: Path) -> None:
    """The worker starts again when its file changes, and the edges show what it offers now."""
    application = tmp_path / "shop.py"
    text = LIBRARY_LIKE.format(answer="before")
    application.write_text(text)
    async with dev(application) as terminal:
        [url] = await terminal.ready(1)
        first = await mcpfleet("call", url, "answer")
        application.write_text(text.replace("before", "after"))
        await terminal.say("restarting the workers")
        with anyio.fail_after(30):
            while b"after" not in (await mcpfleet("call", url, "answer")).stdout:
                pass
        assert b"before" in first.stdout


async def test_a_mistake_made_meanwhile_is_said_once_and_its_mending_awaited(tmp_path: Path) -> None:
    application = tmp_path / "shop.py"
    text = LIBRARY_LIKE.format(answer="before")
    application.write_text(text)
    async with dev(application) as terminal:
        [url] = await terminal.ready(1)
        assert b"before" in (await mcpfleet("call", url, "answer")).stdout
        application.write_text(text + "def broken(:\n")
        await terminal.say("it starts again when a file changes")
        await anyio.sleep(2)  # in which it would have been started again, and failed
        assert sum("SyntaxError" in line for line in terminal.errors) == 1
        application.write_text(text.replace("before", "after"))
        while b"after" not in (await mcpfleet("call", url, "answer")).stdout:
            pass


async def test_a_mistake_in_the_application_ends_dev_and_is_named(tmp_path: Path) -> None:
    """What cannot start is said: the process, the function and the parameter."""
    application = tmp_path / "broken.py"
    application.write_text(BROKEN)
    async with dev(application) as terminal:
        assert await terminal.process.wait() == 2
    said = "\n".join(terminal.errors)
    assert "worker 1 ended" in said
    assert "broken.py:3" in said
    assert "'x'" in said


async def test_an_application_that_cannot_be_imported_is_told_as_python_tells_it(tmp_path: Path) -> None:
    """Its author's own lines, without ours and the import system's that led there."""
    application = tmp_path / "broken.py"
    application.write_text("import json\n\ndef helper():\n    return json.loads('{')\n\nhelper()\n")
    async with dev(application) as terminal:
        assert await terminal.process.wait() == 2
    said = "\n".join(terminal.errors)
    assert "broken.py cannot be imported" in said
    assert f'File "{application}", line 6, in <module>' in said
    assert "JSONDecodeError" in said
    assert "loading.py" not in said
    assert "frozen importlib" not in said


async def test_an_unknown_setting_ends_dev_with_the_nearest_name() -> None:
    """A setting that nobody reads is a mistake that would otherwise be silent."""
    async with dev(LIBRARY, environment={"MCPFLEET_SLOT": "4"}) as terminal:
        assert await terminal.process.wait() == 2
    assert any("MCPFLEET_SLOT:" in line and "MCPFLEET_SLOTS" in line for line in terminal.errors)


async def test_what_dies_later_is_started_again_and_named() -> None:
    """A killed worker comes back by itself, and the next call succeeds."""
    async with dev(Path(__file__).with_name("app.py"), "--no-reload") as terminal:
        [url] = await terminal.ready(1)
        first = int((await mcpfleet("call", url, "whoami")).stdout)
        os.kill(first, signal.SIGKILL)
        await terminal.say("worker 1 has ended")
        second = int((await mcpfleet("call", url, "whoami")).stdout)
        assert second != first


async def test_a_nats_that_dies_is_started_again_and_the_same_processes_use_it() -> None:
    async with dev(Path(__file__).with_name("app.py"), "--no-reload") as terminal:
        [url] = await terminal.ready(1)
        first = (await mcpfleet("call", url, "whoami")).stdout
        [nats] = [child for child in Children(terminal.process.pid).children() if child.name() == "nats-server"]
        nats.kill()
        await terminal.say("nats has ended")
        while not (again := await mcpfleet("call", url, "whoami")).stdout:
            pass
        assert again.stdout == first


async def held(url: str, folder: Path, results: list[CallToolResult]) -> None:
    """Call what is held until it is released, by the official client: it asks for the tool list before it returns."""
    async with Client(url) as client:
        results.append(await client.call_tool("hold", {"folder": str(folder)}))


async def test_s23_control_c_of_one_edge_costs_a_running_call_nothing(tmp_path: Path) -> None:
    """The handler's prints are read meanwhile: nobody else would read them, and the worker would wait for that."""
    results: list[CallToolResult] = []
    application = tmp_path / "app.py"
    application.write_text(HOLDING)
    async with dev(application, "--no-reload") as terminal, anyio.create_task_group() as tasks:
        [url] = await terminal.ready(1)
        tasks.start_soon(held, url, tmp_path, results)
        await until((tmp_path / "started").exists)
        terminal.process.send_signal(signal.SIGINT)
        await terminal.say("stopping")
        (tmp_path / "release").touch()
        assert terminal.process.stdout is not None
        printed = 0
        async for data in terminal.process.stdout:
            printed += len(data)
        assert await terminal.process.wait() == 0
        assert printed >= 1_000_000
    assert ["released" in str(result.content) for result in results] == [True], results


async def test_a_second_control_c_ends_dev_at_once(tmp_path: Path) -> None:
    async with dev(APP, "--no-reload") as terminal:
        [url] = await terminal.ready(1)
        async with connected(url) as connection:
            await connection.send("tools/call", {"name": "hold", "arguments": {"folder": str(tmp_path)}})
            await until((tmp_path / "started").exists)
            terminal.process.send_signal(signal.SIGINT)
            await terminal.say("again to stop at once")
            began = time.monotonic()
            terminal.process.send_signal(signal.SIGINT)
            await terminal.process.wait()
            assert time.monotonic() - began < 8


HOLDING = """
from pathlib import Path

import anyio

from mcpfleet.app import App

app = App("holding", version="1.0.0")


@app.tool()
async def hold(folder: str) -> str:
    '''Wait to be released, and print much.'''
    (Path(folder) / "started").touch()
    while not (Path(folder) / "release").exists():
        await anyio.sleep(0.02)
    for _ in range(1_000):
        print("x" * 1_000)
    return "released"
"""
LIBRARY_LIKE = """
from mcpfleet.app import App

app = App("shop", version="1.0.0")


@app.tool()
async def answer() -> str:
    '''Answer.'''
    return "{answer}"
"""
