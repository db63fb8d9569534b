"""`mcpfleet install`: what each client's file gets, and what it keeps."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from mcpfleet.cli.install import CLIENTS, ClientName, absolute_target, install, place_of, server_of
from mcpfleet.process.errors import ConfigurationError

URL = "https://shop.example/mcp"
FILES: dict[ClientName, str] = {
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".config/Code/User/mcp.json",
}
MEMBERS = {"claude-desktop": "mcpServers", "cursor": "mcpServers", "vscode": "servers"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with an application, and no client's program."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").touch()
    (tmp_path / "token").write_text("s3cret")
    return tmp_path


def write(client: ClientName, where: str = URL, name: str | None = None, token: str | None = None) -> int:
    return install(client, where, name=name, token=token, prints=False)


@pytest.mark.parametrize("client", ["cursor", "vscode"])
def test_a_client_that_speaks_http_gets_the_url(client: ClientName, home: Path) -> None:
    assert write(client) == 0
    [server] = json.loads((home / FILES[client]).read_text())[MEMBERS[client]].values()
    assert server == ({"type": "http", "url": URL} if client == "vscode" else {"url": URL})


def test_a_client_without_http_gets_the_command(home: Path) -> None:
    write("claude-desktop")
    written = json.loads((home / FILES["claude-desktop"]).read_text())
    command = {"command": sys.executable, "args": ["-P", "-m", "mcpfleet.cli", "stdio", URL]}
    assert written == {"mcpServers": {"shop": command}}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_token_and_an_application_are_named_by_absolute_paths(client: ClientName, home: Path) -> None:
    server = server_of(client, URL, "@token")
    assert server["args"][-4:] == ["stdio", URL, "--token", f"@{home}/token"]
    assert server_of(client, "shop.py:app", None)["args"][-2:] == ["stdio", f"{home}/shop.py:app"]
    assert "s3cret" not in str(server)


def test_a_token_as_it_is_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="give @FILE") as raised:
        write("cursor", token="s3cret")
    assert "s3cret" not in str(raised.value)
    with pytest.raises(ConfigurationError, match="there is no file"):
        write("cursor", token="@none")


@pytest.mark.parametrize("client", FILES)
def test_all_else_in_a_file_is_kept(client: ClientName, home: Path) -> None:
    file, member = home / FILES[client], MEMBERS[client]
    file.parent.mkdir(parents=True)
    content: dict[str, Any] = {"theme": "dark", member: {"other": {"command": "x", "env": {"A": "é"}}}, "n": [1, None]}
    file.write_text("\ufeff" + json.dumps(content, indent="\t"), encoding="utf-8")
    file.chmod(0o640)
    write(client, name="mine")
    after = json.loads(file.read_text())
    assert after[member].pop("mine")
    assert after == content
    assert list(after) == list(content)
    assert "\n\t" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_server_is_added_once_and_replaced_by_name(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for where, said in ((URL, "was added"), (URL, "was there already"), ("https://new.example/mcp", "was replaced")):
        write("cursor", where, name="mine")
        assert said in capsys.readouterr().out
    written = json.loads((home / FILES["cursor"]).read_text())
    assert written == {"mcpServers": {"mine": {"url": "https://new.example/mcp"}}}


@pytest.mark.parametrize(
    "text",
    ['{"servers": {}} // mine', '{"servers": {},}', "[]", '{"servers": []}', '{"servers": {}, "servers": {}}', "\x00"],
)
def test_a_file_that_cannot_be_merged_is_left_and_the_text_to_paste_is_said(text: str, home: Path) -> None:
    file = home / FILES["vscode"]
    file.parent.mkdir(parents=True)
    file.write_text(text)
    with pytest.raises(ConfigurationError, match="left as it is") as raised:
        write("vscode")
    assert file.read_text() == text
    _, snippet = raised.value.problems
    assert json.loads(snippet) == {"servers": {"shop": {"type": "http", "url": URL}}}


def test_a_link_stays_one(home: Path) -> None:
    real = home / "dotfiles.json"
    real.write_text("{}")
    (home / ".cursor").mkdir()
    (home / FILES["cursor"]).symlink_to(real)
    write("cursor")
    assert (home / FILES["cursor"]).is_symlink()
    assert URL in real.read_text()


def test_nothing_is_written_where_it_is_to_be_printed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install("vscode", URL, name="mine", token=None, prints=True)
    assert json.loads(capsys.readouterr().out) == {"servers": {"mine": {"type": "http", "url": URL}}}
    assert not (home / ".config").exists()


def test_the_program_of_claude_code_is_told_where_it_is(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write("claude-code")
    said = capfd.readouterr()
    assert said.out == f"claude mcp add --transport http shop {URL}\n"
    assert "not on the path" in said.err
    program = home / "bin" / "claude"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "told $*"\nexit $CODE\n')
    program.chmod(0o755)
    for code in (0, 1):
        os.environ["CODE"] = str(code)
        assert write("claude-code", "shop.py") == code
        told = capfd.readouterr().out
        assert told == (
            f"told mcp add --transport stdio shop -- {sys.executable} -P -m mcpfleet.cli stdio {home}/shop.py\n"
        )


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("http://127.0.0.1:8000/mcp", "mcpfleet"),
        ("http://localhost:8000/mcp", "mcpfleet"),
        ("https://api.shop.example/mcp", "api"),
        ("shop.py", "shop"),
        ("shop:app", "shop"),
    ],
)
def test_a_name_is_derived(where: str, name: str, home: Path) -> None:
    write("cursor", where)
    assert list(json.loads((home / FILES["cursor"]).read_text())["mcpServers"]) == [name]


def test_a_name_that_clients_refuse_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="--name my shop"):
        write("cursor", name="my shop")


def test_a_module_is_found_without_importing_it(home: Path) -> None:
    package = home / "mypkg"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "server.py").touch()
    assert absolute_target("mypkg.server:app") == f"{package}/server.py:app"
    assert absolute_target("mypkg") == f"{package}/__init__.py"
    with pytest.raises(ConfigurationError, match="no such application"):
        absolute_target("mypkg.none")
    with pytest.raises(ConfigurationError, match="no such application"):
        absolute_target("none.py")


@pytest.mark.parametrize(
    ("platform", "client", "place"),
    [
        ("darwin", "claude-desktop", "Library/Application Support/Claude/claude_desktop_config.json"),
        ("darwin", "vscode", "Library/Application Support/Code/User/mcp.json"),
        ("win32", "claude-desktop", "AppData/Roaming/Claude/claude_desktop_config.json"),
        ("win32", "vscode", "AppData/Roaming/Code/User/mcp.json"),
        ("linux", "vscode", ".config/Code/User/mcp.json"),
        ("win32", "cursor", ".cursor/mcp.json"),
    ],
)
def test_each_system_has_its_own_places(platform: str, client: ClientName, place: str, home: Path) -> None:
    assert place_of(client, platform, {}) == home / place


def test_files_of_servers_are_named_by_absolute_paths_and_their_folders(home: Path) -> None:
    folder = home / "work" / ".vscode"
    folder.mkdir(parents=True)
    for name in ("mcp.json", "fleet.toml", "api.yaml"):
        (folder / name).touch()
    for target, last, name in (
        ("work/.vscode/mcp.json", f"{folder}/mcp.json", "work"),
        ("work/.vscode/fleet.toml:notes", f"{folder}/fleet.toml:notes", "notes"),
        ("openapi:work/.vscode/api.yaml", f"openapi:{folder}/api.yaml", "api"),
    ):
        write("cursor", target)
        written = json.loads((home / FILES["cursor"]).read_text())["mcpServers"]
        assert written[name]["args"][-2:] == ["stdio", last]
    with pytest.raises(ConfigurationError, match="there is no file none"):
        absolute_target("none.json")
