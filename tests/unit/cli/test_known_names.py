"""The names that a shell completes: those that an endpoint listed last."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mcpfleet.cli.commands.group import app
from mcpfleet.cli.known_names import KnownNames, complete_argument, complete_tool, complete_url

URL, OTHER = "http://127.0.0.1:8000/mcp", "https://example.com/mcp"
ADD = {"name": "add", "inputSchema": {"properties": {"left": {}, "right": {}}}}


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KnownNames:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return KnownNames.of_user()


def test_the_names_of_the_last_url_are_completed(names: KnownNames) -> None:
    names.replace(URL, [ADD])
    names.replace(OTHER, [{"name": "ask"}])
    assert complete_url("http") == [OTHER, URL]
    assert complete_tool(URL, "a") == ["add"]
    assert complete_tool("http://elsewhere/mcp", "a") == ["ask"]
    assert complete_argument(URL, "add", ["left=1"], "") == ["right="]


def test_a_list_replaces_what_is_known_and_a_call_adds_to_it(names: KnownNames) -> None:
    names.replace(URL, [ADD])
    names.add(URL, [{"name": "more"}])
    assert list(names.tools(URL)) == ["add", "more"]
    names.replace(URL, [{"name": "new"}])
    assert list(names.tools(URL)) == ["new"]


def test_only_this_user_reads_the_file_and_no_secret_is_in_it(names: KnownNames, tmp_path: Path) -> None:
    names.replace(URL, [ADD])
    names.replace("https://ann:secret@example.com/mcp", [ADD])
    names.replace("https://example.com/mcp?key=secret", [ADD])
    file = tmp_path / "mcpfleet" / "names.json"
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o600, 0o700)
    assert "secret" not in file.read_text()
    file.chmod(0o666)
    assert names.urls() == []


def test_a_name_that_a_shell_would_not_take_as_it_is_is_never_proposed(names: KnownNames) -> None:
    """A shell puts a completion into the command line."""
    evil = ["x; reboot", "$(reboot)", "a\nb", "\x1b[2J", "x" * 129, ""]
    names.replace(URL, [ADD, *({"name": each, "inputSchema": {"properties": {"a": {}}}} for each in evil)])
    names.add(URL, [{"name": "ask", "inputSchema": {"properties": {each: {} for each in (*evil, "fine")}}}])
    assert complete_tool(URL, "") == ["add", "ask"]
    assert complete_argument(URL, "ask", [], "") == ["fine="]


def test_a_broken_file_or_folder_is_no_error(names: KnownNames, tmp_path: Path) -> None:
    (tmp_path / "mcpfleet").mkdir()
    for content in ("{", "[]", '{"a": 5}', '{"a": {"b": 5}}'):
        (tmp_path / "mcpfleet" / "names.json").write_text(content)
        assert names.urls() == []
    (tmp_path / "mcpfleet" / "names.json").unlink()
    (tmp_path / "mcpfleet").rmdir()
    (tmp_path / "mcpfleet").write_text("a file in its place")
    names.replace(URL, [ADD])
    assert names.urls() == []


def test_a_shell_gets_commands_tools_and_arguments(names: KnownNames) -> None:
    names.replace(URL, [ADD])

    def completed(line: str) -> list[str]:
        variables = {"_MCPFLEET_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        return CliRunner().invoke(app, [], env=variables, prog_name="mcpfleet").output.split()

    assert completed("mcpfleet with") == ["withdraw"]
    assert completed(f"mcpfleet call {URL} a") == ["add"]
    assert completed(f"mcpfleet call {URL} add left=1 ri") == ["right="]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_the_shell_is_shown(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")  # the test's own parent is no shell
    shown = CliRunner().invoke(app, ["--show-completion", shell], prog_name="mcpfleet")
    assert (shown.exit_code, "_MCPFLEET_COMPLETE" in shown.output) == (0, True), shown.output
