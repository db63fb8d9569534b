"""The command `mcpfleet`: what it says to whoever mistypes."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mcpfleet.cli import __main__ as cli
from mcpfleet.cli.commands.group import app
from mcpfleet.edge import settings
from mcpfleet.process.names import MISCONFIGURED
from mcpfleet.wire import scan

NOTHING: Mapping[str, str] = {}


def run(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *arguments: str,
    environ: Mapping[str, str] = NOTHING,
) -> tuple[int, str]:
    """Run the command, and return its exit code and what it said on standard error."""
    monkeypatch.setattr("sys.argv", ["mcpfleet", *arguments])
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0), capsys.readouterr().err


def test_without_arguments_it_says_what_it_can_do() -> None:
    shown = CliRunner().invoke(app, []).output
    for command in (
        "dev",
        "check",
        "edge",
        "authorization",
        "catalog",
        "tasks",
        "worker",
        "call",
        "watch",
        "publish",
        "subscriptions",
        "withdraw",
        "revoke",
        "settings",
        "nats",
        "migrate",
    ):
        assert command in shown


def test_it_says_its_version() -> None:
    shown = CliRunner().invoke(app, ["--version"])
    assert (shown.exit_code, shown.output) == (0, f"mcpfleet {version('mcpfleet')}\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(["nats", "--pools", "My App"], "'My App' is not a valid pool's name", id="a pool's name"),
        pytest.param(["settings", "egde"], "there is no service 'egde'", id="a service's name"),
        pytest.param(["revoke"], "exactly one of --subject", id="nobody to revoke"),
        pytest.param(["revoke", "--subject", "ann", "--policy"], "exactly one of --subject", id="two to revoke"),
        pytest.param(["call", "127.0.0.1:9/mcp", "a"], "did you mean http://127.0.0.1:9/mcp?", id="no scheme"),
        pytest.param(["tasks", "get", "ws://a/mcp", "a"], "did you mean http://a/mcp?", id="another scheme"),
        pytest.param(["list", "http://:80/mcp"], "is not a URL such as", id="no host"),
        pytest.param(["call", "http://127.0.0.1:9/mcp", "a", "b"], "'b' is not name=value", id="an argument"),
        pytest.param(["call", "http://127.0.0.1:9/mcp", "a", "--out", "/nowhere/file"], "--out", id="a file"),
        pytest.param(["publish", "books/1"], "'books/1' is not an absolute URI", id="a URI"),
        pytest.param(
            ["watch", "http://127.0.0.1:9/mcp", "books"], "'books' is not an absolute URI", id="what to watch"
        ),
        pytest.param(
            ["publish", "a:b", "--endpoint", "My"], "'My' is not a valid endpoint's name", id="an endpoint's name"
        ),
        pytest.param(["dev", __file__, "--port", "99999"], "--port 99999: there is no port 99999", id="a port"),
        pytest.param(["dev", "missing/app.py"], "missing/app.py: the file does not exist", id="a target"),
    ],
)
def test_a_mistake_is_a_line_on_standard_error_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    code, said = run(monkeypatch, capsys, *arguments)
    assert code == MISCONFIGURED == 2
    assert sentence in said
    assert "Traceback" not in said


def test_a_setting_that_nobody_knows_is_an_error_with_the_nearest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = run(monkeypatch, capsys, "dev", __file__, environ={"MCPFLEET_QUEUE_WAITT": "1"})
    assert code == MISCONFIGURED
    assert "did you mean MCPFLEET_QUEUE_WAIT?" in said


def test_a_token_that_is_none_is_not_quoted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["call", "http://127.0.0.1:9/mcp", "search"], ["tasks", "get", "http://127.0.0.1:9/mcp", "a"]):
        code, said = run(monkeypatch, capsys, *words, environ={"MCPFLEET_TOKEN": "my secret\n"})
        assert (code, "MCPFLEET_TOKEN" in said, "secret" in said) == (MISCONFIGURED, True, False)


def test_a_port_that_is_taken_is_named_by_the_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = run(monkeypatch, capsys, "dev", __file__, "--port", str(port))
    assert (code, said) == (MISCONFIGURED, f"--port {port}: cannot listen on port {port}: Address already in use\n")


def test_an_endpoint_that_the_settings_do_not_have_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # where no `dev` runs
    environ = {"MCPFLEET_ENDPOINTS": '{"staff": {"path": "/staff"}}'}
    code, said = run(monkeypatch, capsys, "publish", "shop://terms", "--endpoint", "nope", environ=environ)
    assert (code, said) == (MISCONFIGURED, "MCPFLEET_ENDPOINTS has no endpoint 'nope': use one of staff\n")


@pytest.mark.parametrize("words", [["call", "http://127.0.0.1:9/mcp", "search"], ["watch", "http://127.0.0.1:9/mcp"]])
def test_without_a_server_a_command_ends_and_says_which_address_does_not_answer(words: list[str]) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    assert "http://127.0.0.1:9/mcp" in done.stderr
    assert "Traceback" not in done.output


def test_a_command_starts_without_the_types_of_mcp() -> None:
    """They are a quarter of a second, which most commands do not need."""
    program = "import sys; from mcpfleet.cli import __main__; sys.exit('mcp_types' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_default_of_values_is_that_of_the_scan() -> None:
    assert settings.MAX_VALUES == scan.MAX_VALUES


@pytest.mark.parametrize("words", [("list",), ("tasks", "get")])
def test_a_server_that_does_not_run_is_told_apart_from_one_that_is_no_mcp_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    with socket.socket() as taken:  # it does not listen, so that connecting is refused
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"
        code, said = run(monkeypatch, capsys, *words, url, *(["some-task"] * (len(words) - 1)))
    assert (code, said.startswith(f"{url} cannot be reached: ")) == (1, True), said
    assert "Is the server running?" in said
