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
from mcpfleet.cli.sources import Isolation, Only, Targets, chosen_target, source_target, words_of
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.sources.target import SourceTarget

ENTRY = {"command": "npx", "args": ["-y", "server", "--token", "${TOKEN}"]}


def chosen(*words: str) -> str:
    """What a command with these words would serve."""
    found: list[str] = []
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

    @app.command(cls=DashedCommand)
    def serve(
        ctx: typer.Context, targets: Targets = None, port: int = 0, only: Only = None, isolation: Isolation = None
    ) -> None:
        found.append(chosen_target(ctx, targets, only, isolation))

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
