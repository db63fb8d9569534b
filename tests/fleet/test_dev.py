"""`mcpfleet dev`: the whole system in one terminal, and the commands that people use with it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp import Client
from mcp_types import CallToolResult
from psutil import Process as Children

from tests.kit.commands import mcpfleet
from tests.kit.dev_terminal import WITHIN, Terminal, dev
from tests.kit.raw import connected
from tests.kit.waiting import until

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "examples" / "library.py"
APP = Path(__file__).with_name("app.py")
BROKEN = "from mcpfleet.app import App\napp = App('broken', version='1')\n@app.tool()\ndef f(x): ...\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `library` is run in."""
    return tmp_path_factory.mktemp("library")


@pytest.fixture(scope="module")
def library(folder: Path) -> Iterator[Terminal]:
    """The README's first command, with an edge more; no test ends a part of it."""
    with dev(LIBRARY, "--edges", 2, "--no-reload", directory=folder) as terminal:
        yield terminal


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing forks")
async def test_processes_of_dev_are_forks_of_servers_and_are_named(library: Terminal) -> None:
    """A start imports once: none has an interpreter of its own, and `top` tells them apart."""
    await library.ready(2)
    servers = [child for child in Children(library.process.pid).children() if child.name() != "nats-server"]
    forks = {tuple(sorted(fork.name() for fork in server.children())) for server in servers}
    assert forks == {("worker",), ("edge", "edge", "services")}


@pytest.fixture(scope="module")
def mortal() -> Iterator[Terminal]:
    """A system whose parts are killed, and come back by themselves."""
    with dev(APP, "--no-reload") as terminal:
        yield terminal


async def test_a_normal_start_is_a_few_lines_that_say_how_to_use_it(library: Terminal) -> None:
    """Where the clients' ports are, where the console is, what is offered, and a call that works; nothing else."""
    urls = await library.ready(2)
    await library.say("try ")
    words = [line.split(maxsplit=1)[0] for line in library.errors[:3]]
    assert words == ["console", "offers", "try"], library.errors
    assert len(library.said) + len(library.errors) <= 6
    async with httpx2.AsyncClient() as http:
        assert "console/console.js" in (await http.get(library.errors[0].split()[1])).text
    assert library.errors[1].split(maxsplit=1)[1].startswith("place_hold, read_book, report, search, ")
    command, *words = shlex.split(library.errors[2].split(maxsplit=1)[1])
    assert (command, words[1]) == ("mcpfleet", urls[0])
    tried = await mcpfleet(*words)
    assert tried.returncode == 0, tried.stderr


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


async def test_calls_and_errors_of_handlers_are_short_lines_and_the_authors_own_frames(tmp_path: Path) -> None:
    application = tmp_path / "shop.py"
    application.write_text(FAILING)
    with dev(application, "--no-reload") as terminal:
        [url] = await terminal.ready(1)
        await terminal.say("try ")
        assert (await mcpfleet("call", url, "fail")).returncode == 1
        assert (await mcpfleet("call", url, "succeed")).returncode == 0
        await terminal.say("tools/call succeed: ok in ")
        await terminal.say("tools/call fail: tool_error in ")
        await terminal.say("json.decoder.JSONDecodeError")
        assert not any(line.startswith("{") for line in terminal.errors)
        frames = [line.strip() for line in terminal.errors if 'File "' in line]
        assert frames == [f'File "{application}", line 11, in fail', f'File "{application}", line 20, in helper']
        assert "\x1b[" not in "".join(terminal.errors)


async def test_a_mistake_in_the_application_ends_dev_and_is_one_line(tmp_path: Path) -> None:
    """It names the function and the parameter. One process alone has imported the application."""
    application = tmp_path / "broken.py"
    application.write_text(COUNTING + BROKEN)
    with dev(application, "--workers", 2) as terminal:
        assert await terminal.ended() == 2
    assert terminal.errors == [
        f"{application}:7: broken.f, parameter 'x': has no annotation: its type is the schema that clients see"
    ]
    assert terminal.said == []
    assert (tmp_path / "imports").read_text() == "."


async def test_a_start_imports_once_for_each_worker_and_warns_once(tmp_path: Path) -> None:
    application = tmp_path / "silent.py"
    application.write_text(COUNTING + SILENT)
    with dev(application, "--workers", 2, "--no-reload") as terminal:
        await terminal.ready(1)
        await terminal.say("warning ")
        assert (tmp_path / "imports").read_text() == ".."
        warned = [line for line in terminal.errors if "description" in line]
        assert warned == [f"warning  {application}:7: the tool 'mute' has no description: models choose by it"]


async def test_an_application_that_cannot_be_imported_is_told_with_its_own_frames(tmp_path: Path) -> None:
    """Its author's own lines, without ours and the import system's that led there."""
    application = tmp_path / "broken.py"
    application.write_text("import json\n\ndef helper():\n    return json.loads('{')\n\nhelper()\n")
    with dev(application) as terminal:
        assert await terminal.ended() == 2
    assert terminal.errors[0].startswith(f"{application}:4: json.decoder.JSONDecodeError: ")
    frames = [line.strip() for line in terminal.errors if 'File "' in line]
    assert frames == [f'File "{application}", line 6, in <module>', f'File "{application}", line 4, in helper']


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
    await mortal.say("worker 1 has ended by SIGKILL; it starts again in ")
    with anyio.fail_after(WITHIN):
        while not (again := await mcpfleet("call", url, "whoami")).stdout:
            pass
    assert int(again.stdout) != first


async def test_a_nats_that_dies_is_started_again_and_the_same_processes_use_it(mortal: Terminal) -> None:
    [url] = await mortal.ready(1)
    first = (await mcpfleet("call", url, "whoami")).stdout
    [nats] = [child for child in Children(mortal.process.pid).children() if child.name() == "nats-server"]
    nats.kill()
    await mortal.say("nats has ended by SIGKILL; it starts again")
    with anyio.fail_after(WITHIN):
        while not (again := await mcpfleet("call", url, "whoami")).stdout:
            pass
    assert again.stdout == first


async def held(url: str, folder: Path, results: list[CallToolResult]) -> None:
    """Call what is held until it is released, by the official client: it asks for the tool list before it returns."""
    async with Client(url) as client:
        results.append(await client.call_tool("hold", {"folder": str(folder)}))


@pytest.mark.rule("S23")
async def test_control_c_of_one_edge_costs_a_running_call_nothing(tmp_path: Path) -> None:
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
            await terminal.say("draining")
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


COUNTING = """
import pathlib
with pathlib.Path(__file__).with_name("imports").open("a") as file:
    file.write(".")
"""
SILENT = "from mcpfleet.app import App\napp = App('silent', version='1')\n@app.tool()\nasync def mute() -> None: ...\n"
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
FAILING = """
import json

from mcpfleet.app import App

app = App("failing", version="1.0.0")

@app.tool()
async def fail() -> str:
    '''Fail.'''
    return helper("{")

@app.tool()
async def succeed() -> str:
    '''Succeed.'''
    return "ok"

def helper(text):
    '''Fail in a library.'''
    return json.loads(text)
"""
