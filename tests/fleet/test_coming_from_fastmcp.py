"""docs/coming-from-fastmcp.md: both columns of each row run, and their clients get the same."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import ElicitRequestParams, ElicitResult, TextContent, TextResourceContents

from mcpfleet.app import load
from mcpfleet.testing.fleet import Fleet
from mcpfleet.testing.local import LocalFleet
from tests.kit.commands import mcpfleet
from tests.kit.issuer import issuer
from tests.kit.pages import headings, section, titled
from tests.kit.ports import free_port
from tests.kit.venv import environment_of

PAGE: Final = "docs/coming-from-fastmcp.md"
FASTMCP: Final = Path(__file__).with_name("fastmcp")
TASKS: Final = Path(__file__).parents[1] / "benchmarks" / "fastmcp" / "requirements.lock"
"""The newest release of FastMCP that has tasks is another one."""
COLUMNS: Final = ("FastMCP", "mcpfleet")
URL: Final = "http://127.0.0.1:8000/mcp"
WITHIN: Final = 60.0
INSTALL: Final = 300.0
"""Seconds in which an environment with FastMCP is made, once."""
pytestmark = pytest.mark.timeout(INSTALL + 2 * WITHIN)

Operation = tuple[str, str, dict[str, Any]]
"""`call`, `read` or `prompt`; the name or URI; the arguments."""


@dataclass(frozen=True)
class Row:
    """A client's calls of both servers of a row, and the results of both."""

    operations: list[Operation]
    outcomes: list[Any]
    answer: dict[str, Any] | None = field(default=None)
    """To a question."""


def said(text: str, *, failed: bool = False, reports: list[Any] | None = None) -> dict[str, Any]:
    """The result of a tool's call."""
    return {"text": [text], "failed": failed, "reports": reports or []}


ROWS: Final = {
    "A tool": Row([("call", "add", {"left": 2, "right": 3})], [said("5")]),
    "A structured result": Row([("call", "weather", {"place": "Oslo"})], [said('{"place":"Oslo","degrees":21.5}')]),
    "An error for the model": Row(
        [("call", "divide", {"left": 3, "right": 2}), ("call", "divide", {"left": 1, "right": 0})],
        [said("1.5"), said("Nothing can be divided by 0.", failed=True)],
    ),
    "Progress": Row(
        [("call", "count", {"shelves": 2})], [said("counted", reports=[[1, 2, "shelf 1"], [2, 2, "shelf 2"]])]
    ),
    "A question to the user": Row(
        [("call", "deliver", {"item": 1})], [said("Item 1 goes to Oslo.")], answer={"city": "Oslo"}
    ),
    "A resource and a template": Row(
        [("read", "shop://terms", {}), ("read", "shop://items/2", {})],
        [["Goods are returned within 14 days."], ['{"name":"desk"}']],
    ),
    "A prompt": Row([("prompt", "describe", {"item": "a lamp", "words": "20"})], [["Describe a lamp in 20 words."]]),
    "A lifespan": Row([("call", "price", {"item": "lamp"})], [said("19")]),
    "A dependency": Row([("call", "price", {"item": "lamp"})], [said("19")]),
    "Composing": Row([("call", "voucher_redeem", {"code": "SPRING"})], [said("SPRING is redeemed.")]),
}


def code(heading: str, column: str) -> str:
    """One column of a row."""
    [found] = titled(section(PAGE, heading), column)
    return found


def plain(outcomes: list[Any]) -> list[Any]:
    """Outcomes, with JSON in texts read: white space in it is nobody's business."""

    def read(text: str) -> Any:
        try:
            return json.loads(text)
        except ValueError:
            return text

    return [
        {**each, "text": [read(text) for text in each["text"]]} if isinstance(each, dict) else [read(t) for t in each]
        for each in outcomes
    ]


@pytest.fixture(scope="module")
def python() -> Path:
    """FastMCP's Python."""
    return environment_of(FASTMCP / "requirements.lock", within=INSTALL)


@pytest.fixture(scope="module")
def theirs(python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """The outcomes of FastMCP's column, by heading; one process runs them all."""
    folder, asked, names = tmp_path_factory.mktemp("theirs"), {}, {}
    for place, (heading, row) in enumerate(ROWS.items()):
        file = folder / f"row_{place}.py"
        file.write_text(code(heading, "FastMCP"))
        # FastMCP's `elicit` asks clients of 2025 alone.
        mode = "auto" if row.answer is None else "legacy"
        asked[str(file)], names[str(file)] = [mode, row.operations, row.answer], heading
    done = subprocess.run(
        [python, FASTMCP / "drive.py", "operate"],
        input=json.dumps(asked), capture_output=True, text=True, timeout=WITHIN, check=False, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {names[file]: outcomes for file, outcomes in json.loads(done.stdout).items()}


async def ours(file: Path, row: Row) -> list[Any]:
    """The outcomes of mcpfleet's column."""

    async def answer(context: Any, params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content=row.answer)

    async with LocalFleet(load(str(file))) as fleet, fleet.client(elicitation_callback=answer) as client:
        return [await one(client, *operation) for operation in row.operations]


async def one(client: Client, kind: str, name: str, arguments: dict[str, Any]) -> Any:
    reports: list[Any] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        reports.append([progress, total, message])

    if kind == "read":
        contents = (await client.read_resource(name)).contents
        return [content.text for content in contents if isinstance(content, TextResourceContents)]
    if kind == "prompt":
        messages = (await client.get_prompt(name, arguments)).messages
        return [each.content.text for each in messages if isinstance(each.content, TextContent)]
    result = await client.call_tool(name, arguments, progress_callback=report)
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    return {"text": texts, "failed": result.is_error, "reports": reports}


@pytest.mark.parametrize("heading", ROWS)
async def test_both_columns_do_the_same(heading: str, theirs: dict[str, list[Any]], tmp_path: Path) -> None:
    file = tmp_path / f"{heading.replace(' ', '_')}.py"  # a module name of its own
    file.write_text(code(heading, "mcpfleet"))
    assert plain(theirs[heading]) == plain(ROWS[heading].outcomes)
    assert plain(await ours(file, ROWS[heading])) == plain(ROWS[heading].outcomes)


@asynccontextmanager
async def served_by_fastmcp(python: Path, file: Path) -> AsyncIterator[str]:
    """FastMCP's column, over HTTP; its URL."""
    port = free_port()
    command = [str(python), str(FASTMCP / "drive.py"), "serve", str(file), str(port)]
    quiet = subprocess.DEVNULL

    async def answers() -> bool:
        try:
            await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
        except OSError:
            return False
        return True

    async with await anyio.open_process(command, stdin=quiet, stdout=quiet, stderr=quiet, env=dict(os.environ)) as it:
        try:
            with anyio.fail_after(WITHIN):
                while not await answers():
                    assert it.returncode is None, f"{command} ended"
                    await anyio.sleep(0.05)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            it.terminate()


async def test_tokens_and_scopes(python: Path, tmp_path: Path) -> None:
    """Nobody without a token; no token without the scope; the others get the result."""
    heading = "Tokens and scopes"
    file = tmp_path / "served.py"
    [exported] = re.findall(r"^export (.*)$", section(PAGE, heading), re.MULTILINE)
    async with issuer() as made:
        settings = dict(pair.split("=") for pair in exported.split()) | {"MCPFLEET_ISSUER": made.url}
        good, poor = made.token("https://mcp.example.com/mcp"), made.token("https://mcp.example.com/mcp", scope="other")

        async def check(url: str) -> None:
            words = ("call", url, "search", "query=ulysses")
            assert "(401)" in (await mcpfleet(*words)).stderr
            assert (await mcpfleet(*words, MCPFLEET_TOKEN=poor)).returncode == 1
            assert "Nothing is called ulysses." in (await mcpfleet(*words, MCPFLEET_TOKEN=good)).stdout

        file.write_text(code(heading, "FastMCP").replace("https://auth.example.com", made.url))
        async with served_by_fastmcp(python, file) as url:
            await check(url)
        file.write_text(code(heading, "mcpfleet"))
        async with Fleet(file, environment=settings) as fleet:
            await check(fleet.urls[0])


async def test_a_background_task(tmp_path: Path) -> None:
    """A client gets a handle at once, and later the result."""
    heading = "A background task"
    file = tmp_path / "served.py"

    async def check(url: str) -> None:
        started = await mcpfleet("tasks", "start", url, "report", "shelf=7")
        assert started.returncode == 0, started.stderr
        watched = await mcpfleet("tasks", "watch", url, started.stdout.strip())
        assert "Shelf 7 is counted." in watched.stdout, watched.stderr

    file.write_text(code(heading, "mcpfleet"))
    async with Fleet(file) as fleet:
        await check(fleet.urls[0])
    python = await anyio.to_thread.run_sync(partial(environment_of, TASKS, within=INSTALL))
    file.write_text(code(heading, "FastMCP"))
    async with served_by_fastmcp(python, file) as url:
        await check(url)


@pytest.mark.parametrize("column", COLUMNS)
def test_a_test_in_memory_passes(column: str, python: Path, tmp_path: Path) -> None:
    """Run as a function: a test needs no more than its runner."""
    (tmp_path / "test_it.py").write_text(code("A test in memory", column))
    runner = python if column == "FastMCP" else sys.executable
    command = [runner, "-c", "import test_it; test_it.test_it_adds()"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=WITHIN, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder for each column, with the first row's server in it."""
    folders = {column: tmp_path_factory.mktemp(column) for column in COLUMNS}
    for column, folder in folders.items():
        (folder / "server.py").write_text(code("A tool", column))
    return folders


def command(line: str, python: Path) -> list[str]:
    """A line of the page, as words; the program is that of its environment."""
    program, *words = shlex.split(line)
    return [str((python if program == "fastmcp" else Path(sys.executable)).with_name(program)), *words]


@contextmanager
def running(words: list[str], folder: Path) -> Iterator[str]:
    """Run a server on a free port until the end of the block; its URL."""
    port, quiet = free_port(), subprocess.DEVNULL
    path = f"{Path(words[0]).parent}{os.pathsep}{os.environ['PATH']}"  # FastMCP's reloader starts `fastmcp` by its name
    with subprocess.Popen(
        [*words, "--port", str(port)], cwd=folder, stdout=quiet, stderr=quiet, env={**os.environ, "PATH": path}
    ) as process:
        try:
            last = time.monotonic() + WITHIN
            while not _listens(port):
                assert process.poll() is None, f"{words} ended"
                assert time.monotonic() < last, f"{words} does not listen"
                time.sleep(0.1)  # it says nowhere that both programs share when it is ready
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.terminate()


def _listens(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("column", COLUMNS)
def test_a_file_is_served_and_called_from_a_terminal(column: str, servers: dict[str, Path], python: Path) -> None:
    """The row about HTTP has the server, the row about a terminal the client."""
    serve = command(code("Running over HTTP", column), python)
    with running(serve, servers[column]) as url:
        for line, expected in zip(code("Calling from a terminal", column).splitlines(), ("add", "5"), strict=True):
            words = command(line.replace(URL, url), python)
            done = subprocess.run(words, capture_output=True, text=True, timeout=WITHIN, check=False)
            assert (done.returncode, expected in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.mark.parametrize("column", COLUMNS)
async def test_a_file_is_served_over_stdio(column: str, servers: dict[str, Path], python: Path) -> None:
    """The official client starts the program that the page shows."""
    await adds_over_stdio(command(code("Running over stdio", column), python), servers[column])


@pytest.mark.parametrize("column", COLUMNS)
async def test_a_program_serves_itself_over_stdio(column: str, python: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(code("Running as a program", column))
    runner = str(python) if column == "FastMCP" else sys.executable
    await adds_over_stdio([runner, "program.py"], tmp_path)


async def adds_over_stdio(words: list[str], folder: Path) -> None:
    program, *rest = words
    with open(os.devnull, "w") as log:  # noqa: ASYNC230, PTH123  # it never blocks
        started = StdioServerParameters(command=program, args=rest, cwd=folder, env=dict(os.environ))
        async with Client(stdio_client(started, errlog=log)) as client:
            assert await one(client, "call", "add", {"left": 2, "right": 3}) == said("5")


def test_no_row_is_left_out() -> None:
    others = {
        "Tokens and scopes", "A background task", "A test in memory",
        "Running over HTTP", "Running over stdio", "Running as a program", "Calling from a terminal",
    }  # fmt: skip
    assert set(headings(PAGE)) == ROWS.keys() | others
