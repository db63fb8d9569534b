"""`mcpfleet dev`: the whole system in one terminal, and the commands that people use with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO

import anyio
import httpx2
import pytest
from mcp import Client
from mcp_types import CallToolResult
from psutil import Process as Children

from tests.kit.commands import mcpfleet
from tests.kit.raw import connected
from tests.kit.waiting import until

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "examples" / "library.py"
APP = Path(__file__).with_name("app.py")
BROKEN = "from mcpfleet.app import App\napp = App('broken', version='1')\n@app.tool()\ndef f(x): ...\n"
WITHIN = 60.0
"""Seconds for whatever is awaited, on a machine that has much else to do."""


class Terminal:
    """A running `mcpfleet dev`, as the one at the terminal sees it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []
        """Lines of standard output."""
        self.errors: list[str] = []
        """Lines of standard error."""
        assert process.stdout is not None
        assert process.stderr is not None
        self._readers = [_reader(process.stdout, self.said), _reader(process.stderr, self.errors)]

    async def ready(self, number: int) -> list[str]:
        """Wait for a line `ready <url>` of each edge."""
        await until(lambda: len(self.said) >= number, within=WITHIN)
        words = [line.split() for line in self.said[:number]]
        assert {word for word, _ in words} == {"ready"}
        return [url for _, url in words]

    async def say(self, sentence: str) -> None:
        """Wait until standard error has a sentence."""
        await until(lambda: any(sentence in line for line in self.errors), within=WITHIN)

    async def ended(self) -> int:
        """Wait until it has ended, and all that it said was read; returns its exit code."""
        await until(lambda: self.process.poll() is not None, within=WITHIN)
        await until(lambda: not any(reader.is_alive() for reader in self._readers), within=WITHIN)
        return self.process.wait()

    def close(self) -> None:
        """Have it drain."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(WITHIN)
        finally:
            self.process.kill()
        for reader in self._readers:
            reader.join(WITHIN)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


def _reader(stream: IO[str], lines: list[str]) -> threading.Thread:
    thread = threading.Thread(target=lambda: lines.extend(map(str.rstrip, stream)), daemon=True)
    thread.start()
    return thread


@contextmanager
def dev(
    *arguments: object, directory: Path | None = None, environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Terminal]:
    command = [sys.executable, "-m", "mcpfleet.cli", "dev", *map(str, arguments), "--port", "0"]
    process = subprocess.Popen(
        command, cwd=directory, env={**os.environ, **environment}, text=True, errors="replace",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    terminal = Terminal(process)
    try:
        yield terminal
    finally:
        terminal.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `library` is run in."""
    return tmp_path_factory.mktemp("library")


@pytest.fixture(scope="module")
def library(folder: Path) -> Iterator[Terminal]:
    """The README's first command, with an edge more; no test ends a part of it."""
    with dev(LIBRARY, "--edges", 2, "--no-reload", directory=folder) as terminal:
        yield terminal


@pytest.fixture(scope="module")
def mortal() -> Iterator[Terminal]:
    """A system whose parts are killed, and come back by themselves."""
    with dev(APP, "--no-reload") as terminal:
        yield terminal


async def test_the_log_names_a_console_that_shows_the_fleet(library: Terminal) -> None:
    await library.ready(2)
    await library.say("/console")
    url = next(word.removeprefix("url=") for line in library.errors for word in line.split() if "/console" in word)
    async with httpx2.AsyncClient() as http:
        assert "console/console.js" in (await http.get(url)).text


async def test_the_library_answers_people_and_programs(library: Terminal) -> None:
    """A result for eyes and one for pipes, by either edge, and an error apart from both."""
    urls = await library.ready(2)
    for url in urls:
        shown = await mcpfleet("call", url, "search", "query=moby")
        assert (shown.returncode, "Melville" in shown.stdout) == (0, True), shown.stderr
    piped = await mcpfleet("call", urls[0], "search", "query=moby", "--json")
    assert json.loads(piped.stdout)["isError"] is False
    listed = (await mcpfleet("list", urls[0])).stdout
    assert "tools:" in listed
    assert "  search(query: str, limit: int = 10)" in listed
    failed = await mcpfleet("call", urls[0], "read_book", "book=9999")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr


async def test_an_operators_command_finds_the_fleet_of_its_folder(
    library: Terminal, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NATS has a free port and a password that nobody knows: a note for this user alone tells both."""
    await library.ready(2)
    monkeypatch.chdir(folder)
    assert (folder / ".mcpfleet" / "dev.json").stat().st_mode & 0o777 == 0o600
    listed = await mcpfleet("tasks", "list")
    assert (listed.returncode, listed.stdout) == (0, "no tasks\n"), listed.stderr
    published = await mcpfleet("publish", "library://books/1")
    assert published.returncode == 0, published.stderr
    told = json.loads((await mcpfleet("publish", "library://books/1", "--json")).stdout)
    assert told == {"endpoint": "mcp", "uris": ["library://books/1"]}
    assert json.loads((await mcpfleet("tasks", "list", "--json")).stdout)["tasks"] == []
    strange = await mcpfleet("publish", "library://books/1", "--endpoint", "nope")
    assert (strange.returncode, "has no endpoint 'nope': use one of mcp" in strange.stderr) == (2, True)


async def test_a_changed_file_is_served_and_a_mistake_in_it_is_said_once(tmp_path: Path) -> None:
    """The worker starts again when its file changes; one that cannot start is awaited until the mistake is mended."""
    application = tmp_path / "shop.py"
    text = LIBRARY_LIKE.format(answer="first")
    application.write_text(text)
    with dev(application, environment={"MCPFLEET_QUEUE_WAIT": "1"}) as terminal:
        [url] = await terminal.ready(1)
        assert "first" in (await mcpfleet("call", url, "answer")).stdout
        application.write_text(text.replace("first", "second"))
        await terminal.say("restarting the workers")
        await becomes(url, "second")
        application.write_text(text + "def broken(:\n")
        await terminal.say("it starts again when a file changes")
        # That takes as long as a worker that is started again would need to fail once more.
        assert (await mcpfleet("call", url, "answer")).returncode == 1
        assert sum("SyntaxError" in line for line in terminal.errors) == 1
        application.write_text(text.replace("first", "third"))
        await becomes(url, "third")


async def becomes(url: str, answer: str) -> None:
    """Wait until a tool answers so."""
    with anyio.fail_after(WITHIN):
        while answer not in (await mcpfleet("call", url, "answer")).stdout:
            pass


async def test_a_mistake_in_the_application_ends_dev_and_is_named(tmp_path: Path) -> None:
    """It names the process, the function and the parameter."""
    application = tmp_path / "broken.py"
    application.write_text(BROKEN)
    with dev(application) as terminal:
        assert await terminal.ended() == 2
    said = "\n".join(terminal.errors)
    assert "worker 1 ended" in said
    assert "broken.py:3" in said
    assert "'x'" in said


async def test_an_application_that_cannot_be_imported_is_told_as_python_tells_it(tmp_path: Path) -> None:
    """Its author's own lines, without ours and the import system's that led there."""
    application = tmp_path / "broken.py"
    application.write_text("import json\n\ndef helper():\n    return json.loads('{')\n\nhelper()\n")
    with dev(application) as terminal:
        assert await terminal.ended() == 2
    said = "\n".join(terminal.errors)
    assert "broken.py cannot be imported" in said
    assert f'File "{application}", line 6, in <module>' in said
    assert "JSONDecodeError" in said
    assert "loading.py" not in said
    assert "frozen importlib" not in said


async def test_an_unknown_setting_ends_dev_with_the_nearest_name() -> None:
    """A setting that nobody reads is a mistake that would otherwise be silent."""
    with dev(LIBRARY, environment={"MCPFLEET_SLOT": "4"}) as terminal:
        assert await terminal.ended() == 2
    assert any("MCPFLEET_SLOT:" in line and "MCPFLEET_SLOTS" in line for line in terminal.errors)


async def test_what_dies_later_is_started_again_and_named(mortal: Terminal) -> None:
    """A killed worker comes back by itself, and the next call succeeds."""
    [url] = await mortal.ready(1)
    first = int((await mcpfleet("call", url, "whoami")).stdout)
    os.kill(first, signal.SIGKILL)
    await mortal.say("worker 1 has ended")
    second = int((await mcpfleet("call", url, "whoami")).stdout)
    assert second != first


async def test_a_nats_that_dies_is_started_again_and_the_same_processes_use_it(mortal: Terminal) -> None:
    [url] = await mortal.ready(1)
    first = (await mcpfleet("call", url, "whoami")).stdout
    [nats] = [child for child in Children(mortal.process.pid).children() if child.name() == "nats-server"]
    nats.kill()
    await mortal.say("nats has ended")
    with anyio.fail_after(WITHIN):
        while not (again := await mcpfleet("call", url, "whoami")).stdout:
            pass
    assert again.stdout == first


async def held(url: str, folder: Path, results: list[CallToolResult]) -> None:
    """Call what is held until it is released, by the official client: it asks for the tool list before it returns."""
    async with Client(url) as client:
        results.append(await client.call_tool("hold", {"folder": str(folder)}))


async def test_s23_control_c_of_one_edge_costs_a_running_call_nothing(tmp_path: Path) -> None:
    """The handler's prints are read meanwhile: nobody else would read them, and the worker would wait for that.

    The note for operators is gone at the end.
    """
    results: list[CallToolResult] = []
    application, note = tmp_path / "app.py", tmp_path / ".mcpfleet" / "dev.json"
    application.write_text(HOLDING)
    with dev(application, "--no-reload", directory=tmp_path) as terminal:
        async with anyio.create_task_group() as tasks:
            [url] = await terminal.ready(1)
            tasks.start_soon(held, url, tmp_path, results)
            await until((tmp_path / "started").exists)
            assert note.exists()
            terminal.process.send_signal(signal.SIGINT)
            await terminal.say("stopping")
            (tmp_path / "release").touch()
            assert await terminal.ended() == 0
        assert sum(map(len, terminal.said)) >= 1_000_000
        assert not note.exists()
    assert ["released" in str(result.content) for result in results] == [True], results


async def test_a_second_control_c_ends_dev_at_once(tmp_path: Path) -> None:
    with dev(APP, "--no-reload") as terminal:
        [url] = await terminal.ready(1)
        async with connected(url) as connection:
            await connection.send("tools/call", {"name": "hold", "arguments": {"folder": str(tmp_path)}})
            await until((tmp_path / "started").exists)
            terminal.process.send_signal(signal.SIGINT)
            await terminal.say("again to stop at once")
            began = time.monotonic()
            terminal.process.send_signal(signal.SIGINT)
            await terminal.ended()
            assert time.monotonic() - began < 20


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
