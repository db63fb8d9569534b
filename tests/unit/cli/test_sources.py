"""Targets on the command line: an App, sources, or a command behind two dashes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from mcpfleet.cli.commands.group import DashedCommand
from mcpfleet.cli.dev_sources import described
from mcpfleet.cli.sources import Isolation, Only, Python, Targets, chosen_target, source_target, words_of
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.sources.source import Object
from mcpfleet.sources.target import SourceTarget

ENTRY = {"command": "npx", "args": ["-y", "server", "--token", "${TOKEN}"]}


def chosen(*words: str) -> str:
    """The target that a command with these words would serve."""
    found: list[str] = []
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

    @app.command(cls=DashedCommand)
    def serve(  # noqa: PLR0917  # options are parameters
        ctx: typer.Context,
        targets: Targets = None,
        port: int = 0,
        only: Only = None,
        isolation: Isolation = None,
        python: Python = None,
    ) -> None:
        found.append(chosen_target(ctx, targets, only=only, isolation=isolation, python=python))

    result = CliRunner().invoke(app, words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return found[0]


def sources(*words: str) -> SourceTarget:
    target = source_target(chosen(*words))
    assert target is not None
    return target


def test_an_app_is_told_as_it_was_typed(tmp_path: Path) -> None:
    (tmp_path / "shop.py").touch()
    assert chosen(f"{tmp_path}/shop.py:app") == f"{tmp_path}/shop.py:app"
    assert chosen("shop.module:app") == "shop.module:app"
    assert source_target("shop.module:app") is None


def test_files_and_commands_are_sources() -> None:
    assert sources(".mcp.json", "--only", "memory", "--port", "3") == SourceTarget(
        targets=(".mcp.json",), only=("memory",)
    )
    assert sources("--isolation", "call", "a.json", "b.toml:x") == SourceTarget(
        targets=("a.json", "b.toml:x"), isolation="call"
    )


def test_all_words_behind_two_dashes_are_the_command() -> None:
    assert sources("--", "npx", "-y", "server", "--port", "3", "--", "x").command == (
        "npx", "-y", "server", "--port", "3", "--", "x"
    )  # fmt: skip
    assert sources("a.json", "--", "npx", "a.json") == SourceTarget(targets=("a.json",), command=("npx", "a.json"))
    assert sources("--", "shop.py").command == ("shop.py",)


@pytest.mark.parametrize(
    ("text", "is_server"),
    [
        ("from fastmcp import FastMCP\nmcp = FastMCP('x')\n", True),
        ("def make():\n    from mcp.server import MCPServer\n", True),
        ("from mcpfleet.app import App\nfrom fastmcp import FastMCP\n", False),
        ("import shop\n", False),
        ("import (\n", False),
    ],
)
def test_a_python_file_is_a_server_if_it_imports_one_and_no_app(tmp_path: Path, text: str, is_server: bool) -> None:
    """Nothing of it is run."""
    file = tmp_path / "shop.py"
    file.write_text(text)
    assert (source_target(chosen(f"{file}:mcp")) is not None) is is_server
    assert source_target(chosen(str(file), "--python", "python3")) is not None


def test_a_server_of_a_python_file_is_told_with_its_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text("import fastmcp\n")
    report, hosting = described(sources("shop.py:mcp", "--python", ".venv/bin/python"))
    assert hosting is not None
    assert hosting.sources[0].way == Object(target=f"{tmp_path}/shop.py:mcp", python=".venv/bin/python")
    assert report.runs == ("shop: .venv/bin/python shop.py:mcp",)
    assert report.files == (f"{tmp_path}/shop.py",)


def test_a_target_is_handed_on_to_another_command_as_it_was_typed() -> None:
    assert words_of(chosen("a.json", "--", "npx", "-y")) == ["a.json", "--", "npx", "-y"]
    assert words_of("shop.module:app") == ["shop.module:app"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "name what to serve"),
        (("none.py",), "none.py: the file does not exist"),
        (("shop.module", "a.json"), "shop.module: an application is served alone"),
        (("shop.module", "--only", "x"), "--only: is for MCP servers that exist"),
        (("shop.module", "--python", "python"), "--python: is for a server in a Python file"),
        (("shop.module", "--isolation", "call"), "--isolation: is for MCP servers that exist"),
        (("a.json", "--isolation", "all"), "--isolation: 'all' is unknown"),
    ],
)
def test_words_that_do_not_fit_together_are_told(words: tuple[str, ...], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        chosen(*words)


def written(folder: Path, **members: Any) -> SourceTarget:
    file = folder / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"memory": ENTRY}, **members}))
    return SourceTarget(targets=(str(file),))


@pytest.mark.rule("B28")
def test_a_worker_tells_what_it_runs_without_values_of_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    report, hosting = described(written(tmp_path))
    assert hosting is not None
    assert (report.name, report.runs) == ("memory", ("memory: npx -y server --token ${TOKEN}",))
    assert report.files == (str(tmp_path / ".mcp.json"),)
    assert "s3cret" not in report.model_dump_json()
    assert hosting.sources[0].isolation == "shared"


def test_a_mistake_of_the_configuration_is_the_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOKEN", raising=False)
    report, hosting = described(written(tmp_path))
    assert hosting is None
    assert report.mistake is not None
    assert report.mistake.message.endswith("mcpServers.memory.args[3]: the variable TOKEN is not set")


def test_endpoints_of_the_configuration_are_the_fleets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "x")
    report, _ = described(written(tmp_path, mcpfleet={"endpoints": {"all": {"title": "All"}}}))
    assert report.endpoints is not None
    assert json.loads(report.endpoints) == {"all": {"path": "/all", "title": "All"}}
    report, hosting = described(written(tmp_path, mcpfleet={"endpoints": {"a": {"sources": ["memory"]}}}))
    assert hosting is None
    assert report.mistake is not None
    assert "no endpoint can have some of them alone" in report.mistake.message
