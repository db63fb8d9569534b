"""Sources as the files of clients and fleet.toml describe them, and each mistake with its line."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from mcpfleet.process.errors import ConfigurationError
from mcpfleet.sources.reading import Configuration, read_configuration
from mcpfleet.sources.source import Command, Object, OpenApi, Source, Url, Value

CLAUDE = {
    "mcpServers": {
        "memory": {
            "command": "npx",
            "args": ["-y", "@modelcontextprotocol/server-memory"],
            "env": {"TOKEN": "${TOKEN}"},
        },
        "GitHub Cloud": {
            "type": "http",
            "url": "https://api.example/mcp",
            "headers": {"Authorization": "Bearer ${TOKEN}"},
            "timeout": 120_000,
        },
        "old": {"type": "sse", "url": "https://old.example/sse"},
        "off": {"command": "x", "disabled": True},
    }
}  # fmt: skip
VSCODE = """{
  // as Visual Studio Code writes it
  "inputs": [{ "type": "promptString", "id": "key", "description": "A key", "password": true }],
  "servers": {
    "files": {
      "type": "stdio",
      "command": "node",
      "args": ["server.js", "${workspaceFolder}/data"],
      "envFile": "${workspaceFolder}/.env",
      "env": { "KEY": "${input:key}" },
      "dev": { "watch": "src" },
    },
  },
}
"""


def read(folder: Path, name: str, content: Any, only: Collection[str] = (), **variables: str) -> Configuration:
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
    return read_configuration(file, {"TOKEN": "t0ken", **variables}, only)


def fault(folder: Path, name: str, content: Any, **variables: str) -> str:
    with pytest.raises(ConfigurationError) as told:
        read(folder, name, content, **variables)
    return "\n".join(told.value.problems).replace(f"{folder}/", "")


def toml(folder: Path, text: str, **variables: str) -> Configuration:
    return read(folder, "fleet.toml", text, **variables)


def test_the_entries_of_a_client_are_sources(tmp_path: Path) -> None:
    memory, github = read(tmp_path, ".mcp.json", CLAUDE).sources
    assert memory.way == Command(
        words=("npx", "-y", "@modelcontextprotocol/server-memory"),
        shown=("npx", "-y", "@modelcontextprotocol/server-memory"),
        env={"TOKEN": Value(text="t0ken")},
        cwd=tmp_path,
    )
    assert (memory.name, memory.prefix, memory.place) == ("memory", "memory_", f"{tmp_path}/.mcp.json:3")
    assert isinstance(github.way, Url)
    assert github.way.headers == {"Authorization": Value(text="Bearer t0ken", secrets=("t0ken",))}
    assert (github.name, github.prefix, github.timeout) == ("github-cloud", "github-cloud_", 120.0)


@pytest.mark.rule("B25")
def test_what_cannot_be_served_is_left_out_and_named(tmp_path: Path) -> None:
    notes = [str(note).replace(f"{tmp_path}/", "") for note in read(tmp_path, ".mcp.json", CLAUDE).notes]
    assert notes == [
        ".mcp.json:19: mcpServers.GitHub Cloud.timeout: is read as 120 s",
        ".mcp.json:21: old is left out: the old SSE transport is not served: use the server's Streamable HTTP",
        ".mcp.json:25: off is left out: it is disabled",
    ]


def test_the_file_of_vs_code_has_comments_inputs_and_files_of_variables(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("KEY=of the file\nMODE=fast\n")
    found = read(tmp_path, ".vscode/mcp.json", VSCODE, MCPFLEET_INPUT_KEY="k")
    (files,) = found.sources
    assert isinstance(files.way, Command)
    assert files.way.words == ("node", "server.js", f"{tmp_path}/data")
    assert files.way.env == {"KEY": Value(text="k"), "MODE": Value(text="fast")}
    assert files.way.cwd == tmp_path
    assert [note.text for note in found.notes] == ["servers.files.dev: is not used"]


def test_an_input_without_its_variable_is_told(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("")
    said = fault(tmp_path, ".vscode/mcp.json", VSCODE)
    assert said == (
        ".vscode/mcp.json:10: servers.files.env.KEY: ${input:key}: set MCPFLEET_INPUT_KEY, which answers for this input"
    )


def test_all_unset_variables_are_told_at_once_and_none_of_a_source_that_is_not_wanted(tmp_path: Path) -> None:
    entries = {name: {"command": "x", "env": {"A": f"${{{name.upper()}}}"}} for name in ("one", "two")}
    assert fault(tmp_path, ".mcp.json", {"mcpServers": entries}).splitlines() == [
        ".mcp.json:6: mcpServers.one.env.A: the variable ONE is not set",
        ".mcp.json:12: mcpServers.two.env.A: the variable TWO is not set",
    ]
    found = read(tmp_path, ".mcp.json", {"mcpServers": entries}, only=["two"], TWO="2")
    assert [source.name for source in found.sources] == ["two"]


def test_a_wanted_source_that_is_unknown_or_left_out_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no source 'memry': did you mean 'memory'"):
        read(tmp_path, ".mcp.json", CLAUDE, only=["memry"])
    with pytest.raises(ConfigurationError, match="old is left out: the old SSE transport"):
        read(tmp_path, ".mcp.json", CLAUDE, only=["old"])


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({}, "3: mcpServers.a: must have command or url"),
        ({"args": ["-y"]}, "3: mcpServers.a: must have command or url"),
        ({"comand": "npx"}, "3: mcpServers.a: must have command or url: 'comand' is not read: did you mean 'command'?"),
        ("npx", "3: mcpServers.a: must be a table, not a text"),
        ({"httpUrl": "https://x"}, "4: mcpServers.a.httpUrl: httpUrl is not read: write url"),
        ({"command": "x", "url": "https://x"}, "3: mcpServers.a: has both command and url: which one is meant?"),
        ({"command": "x", "type": "http"}, "4: mcpServers.a.command: the type http has a url, not a command"),
        ({"url": "x.example"}, "4: mcpServers.a.url: must begin with http:// or https://"),
        ({"command": 3}, "4: mcpServers.a.command: must be a text, not a number"),
        ({"command": ""}, "4: mcpServers.a.command: must name a program"),
        ({"command": "x", "args": "-y"}, "5: mcpServers.a.args: must be a list of texts, not a text"),
        ({"command": "x", "args": ["-y", 3]}, "7: mcpServers.a.args[1]: must be a text, not a number"),
        ({"command": "x", "cwd": "none"}, "5: mcpServers.a.cwd: none is no folder"),
        ({"command": "x", "env": ["A=1"]}, "5: mcpServers.a.env: must be a table, not a list"),
        ({"command": "x", "timeout": -1}, "5: mcpServers.a.timeout: must be a number over 0, not -1"),
    ],
)
def test_a_wrong_entry_is_told_with_its_line(tmp_path: Path, entry: Any, said: str) -> None:
    told = fault(tmp_path, ".mcp.json", {"mcpServers": {"a": entry}}).replace(str(tmp_path), "FOLDER")
    assert told == f".mcp.json:{said}"


def test_a_file_without_servers_is_told(tmp_path: Path) -> None:
    assert fault(tmp_path, "x.json", {"a": 1}) == (
        "x.json: the file has neither 'mcpServers' nor 'servers', which name servers"
    )


@pytest.mark.rule("B28")
def test_a_secret_that_stands_in_a_file_is_named_and_not_shown(tmp_path: Path) -> None:
    entry = {"command": "x", "env": {"API_TOKEN": "abcdef"}}
    found = read(tmp_path, ".mcp.json", {"mcpServers": {"a": entry}})
    (note,) = found.notes
    assert note.place == f"{tmp_path}/.mcp.json:6"
    assert note.text == "mcpServers.a.env.API_TOKEN: the secret stands in the file: write ${NAME} for a variable"
    assert found.sources[0].secrets == ("abcdef",)
    own = toml(tmp_path, '[sources.a]\ncommand = "x"\nenv.API_TOKEN = "abcdef"\n')
    assert [note.text for note in own.notes] == ['API_TOKEN: the secret stands in the file: write { env = "NAME" }']


FLEET = """\
include = [".mcp.json"]

[endpoints.mcp]
sources = ["*"]
title = "All"

[endpoints.notes]
sources = ["memory"]

[sources.memory]
prefix = ""
isolation = "caller"
asks = ["elicitation.form"]
scopes = ["memory"]
env.MORE = { env = "TOKEN" }

[sources.memory.tools.delete_entities]
name = "forget"
annotations = { destructiveHint = true }
rate = { calls = 3, seconds = 60 }
only_for = ["tenant:acme*"]

[sources.shop]
object = "server.py:mcp"
python = ".venv/bin/python"

[sources.api]
openapi = "api.yaml"
base_url = "https://api.example"
auth = { kind = "client_credentials", client_id = { env = "TOKEN" }, client_secret = { env = "TOKEN" }, scopes = ["x"] }
only = ["get_*"]
except = ["get_secret"]
"""


def fleet(folder: Path) -> Configuration:
    (folder / ".mcp.json").write_text(json.dumps(CLAUDE))
    (folder / "server.py").touch()
    (folder / "api.yaml").touch()
    return toml(folder, FLEET)


def named(found: Configuration) -> dict[str, Source]:
    return {source.name: source for source in found.sources}


def test_fleet_toml_refines_what_it_includes_and_adds_its_own(tmp_path: Path) -> None:
    found = fleet(tmp_path)
    sources = named(found)
    assert list(sources) == ["memory", "github-cloud", "shop", "api"]
    memory = sources["memory"]
    assert isinstance(memory.way, Command)
    assert memory.way.env.keys() == {"TOKEN", "MORE"}
    assert (memory.prefix, memory.isolation, memory.asks, memory.scopes) == (
        "", "caller", ("elicitation.form",), ("memory",)
    )  # fmt: skip
    forget = memory.tools["delete_entities"]
    assert (forget.name, forget.annotations, forget.only_for) == (
        "forget",
        {"destructiveHint": True},
        ("tenant:acme*",),
    )
    assert forget.rate is not None
    assert sources["shop"].way == Object(target=f"{tmp_path}/server.py:mcp", python=f"{tmp_path}/.venv/bin/python")
    api = sources["api"]
    assert isinstance(api.way, OpenApi)
    assert api.way.auth is not None
    assert api.way.auth["client_secret"] == Value(text="t0ken")
    assert (api.only, api.leave_out) == (("get_*",), ("get_secret",))


@pytest.mark.rule("B24")
def test_another_source_renames_nothing(tmp_path: Path) -> None:
    alone = toml(tmp_path, '[sources.a]\ncommand = "x"\n')
    beside = toml(tmp_path, '[sources.a]\ncommand = "x"\n[sources.b]\ncommand = "y"\nprefix = ""\n')
    assert [source.prefix for source in alone.sources] == ["a_"]
    assert [source.prefix for source in beside.sources] == ["a_", ""]


def test_endpoints_name_sources(tmp_path: Path) -> None:
    found = fleet(tmp_path)
    assert {name: (each.path, each.pools, each.title) for name, each in found.endpoints.items()} == {
        "mcp": ("/mcp", ("*",), "All"),
        "notes": ("/notes", ("memory",), None),
    }


def test_json_may_have_our_tables_too(tmp_path: Path) -> None:
    own = {"sources": {"memory": {"prefix": "m_"}, "two": {"command": ["x", "y"]}}}
    found = named(read(tmp_path, ".mcp.json", {**CLAUDE, "mcpfleet": own}, only=["memory", "two"]))
    assert found["memory"].prefix == "m_"
    assert isinstance(found["two"].way, Command)
    assert found["two"].way.words == ("x", "y")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("source = 1", "1: source: no such member: did you mean 'sources'?"),
        ('[sources.a]\ncomand = "x"', "2: sources.a.comand: no such member: did you mean 'command'?"),
        ('[sources.A]\ncommand = "x"', "1: sources.A: the name has other characters than a-z, 0-9 and -: write a"),
        ('[sources.a]\nprefix = "x"', "1: sources.a: no included file has this source, and the table has none of"),
        ('[sources.a]\ncommand = "x"\nurl = "https://x"', "1: sources.a: must have one of command, url"),
        ('[sources.a]\nurl = "https://x"\nenv.A = "1"', "3: sources.a.env: stands beside command or object"),
        ('[sources.a]\ncommand = "x"\nisolation = "all"', "3: sources.a.isolation: must be 'shared', 'caller'"),
        ('[sources.a]\ncommand = "x"\nchildren = 0', "3: sources.a.children: must be greater than 0"),
        ('[sources.a]\ncommand = "x"\nasks = ["form"]', "3: sources.a.asks: asks has 'form'; known are"),
        ('[sources.a]\ncommand = "x"\nscopes = ["a b"]', "3: sources.a.scopes: scope 'a b' is not a scope"),
        ('[sources.a]\ncommand = "x"\nscopes = "a"', "3: sources.a.scopes: must be a list"),
        ('[sources.a]\ncommand = "x"\n[sources.a.tools.t]\nnme = "x"', "4: sources.a.tools.t.nme: no such member"),
        ('[sources.a]\ncommand = "x"\n[sources.a.tools.t]\nname = "x y"', "4: sources.a.tools.t.name: tool name 'x y'"),
        (
            '[sources.a]\ncommand = "x"\n[sources.a.tools.t]\nrate = { calls = 0, seconds = 1 }',
            "4: sources.a.tools.t.rate.calls: must be greater than 0",
        ),
        (
            '[sources.a]\ncommand = "x"\n[sources.a.tools.t]\nhide = true\nname = "x"',
            "3: sources.a.tools.t: a hidden tool has no other settings",
        ),
        ('[sources.a]\nurl = "https://x"\nauth = { kind = "basic" }', "3: sources.a.auth.kind: must be one of bearer"),
        ('[sources.a]\nurl = "https://x"\nauth = { kind = "bearer" }', "3: sources.a.auth: the kind bearer needs"),
        (
            '[sources.a]\nurl = "https://x"\nauth = { kind = "bearer", token = "x", user = "y" }',
            "3: sources.a.auth.user: no such member of the kind bearer: known are token",
        ),
        ('[sources.a]\nobject = "none.py"', "2: sources.a.object: none.py: the file does not exist"),
        ('[endpoints.e]\nsources = ["a"]', "2: endpoints.e.sources[0]: no source 'a'"),
        ('[endpoints.e]\npath = "e"', "2: endpoints.e.path: String should match pattern"),
        ('[endpoints.e]\npools = ["a"]', "2: endpoints.e.pools: no such member: write sources"),
        ("[endpoints.e]\nsesions = false", "2: endpoints.e.sesions: no such member: did you mean 'sessions'?"),
        ('include = ["none.json"]', "none.json: the file does not exist"),
        ('include = "none.json"', "1: include: must be a list of texts, not a text"),
    ],
)  # fmt: skip
def test_a_mistake_in_fleet_toml_is_told_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    told = fault(tmp_path, "fleet.toml", text).replace(str(tmp_path), "FOLDER").removeprefix("FOLDER/")
    assert told.startswith(said if said.startswith("none") else f"fleet.toml:{said}"), told


def test_two_sources_of_one_name_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"mcpServers": {"My Tools": {"command": "x"}}}')
    (tmp_path / "b.json").write_text('{"mcpServers": {"my-tools": {"command": "y"}}}')
    said = fault(tmp_path, "fleet.toml", 'include = ["a.json", "b.json"]')
    assert said == "b.json:1: mcpServers.my-tools: a source 'my-tools' is described at a.json:1 too"
    said = fault(tmp_path, "fleet.toml", 'include = ["a.json"]\n[sources.my-tools]\ncommand = "z"')
    assert said == "fleet.toml:2: sources.my-tools: a source 'my-tools' is described at a.json:1 too"


def test_a_table_that_refines_cannot_change_the_command(tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text(json.dumps(CLAUDE))
    said = fault(tmp_path, "fleet.toml", 'include = [".mcp.json"]\n[sources.memory]\nargs = ["x"]')
    assert said == "fleet.toml:3: sources.memory.args: belongs to the file that describes the source"
    said = fault(tmp_path, "fleet.toml", 'include = [".mcp.json"]\n[sources.memory]\nheaders.A = "x"')
    assert said == "fleet.toml:3: sources.memory.headers: stands beside url or openapi, not beside command"


def test_a_file_is_included_once_and_includes_nothing_itself(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text('include = ["c.toml"]')
    assert fault(tmp_path, "fleet.toml", 'include = ["b.toml"]') == (
        "b.toml:1: include[0]: an included file includes no further ones"
    )
    assert "fleet.toml is read already" in fault(tmp_path, "fleet.toml", 'include = ["fleet.toml"]')


def test_a_source_may_be_turned_off_where_it_is_included(tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text(json.dumps(CLAUDE))
    found = toml(tmp_path, 'include = [".mcp.json"]\n[sources.memory]\ndisabled = true\n')
    assert list(named(found)) == ["github-cloud"]


def test_the_digest_and_what_is_printed_have_no_value_of_a_variable(tmp_path: Path) -> None:
    entry = {"command": "x", "args": ["--token", "${TOKEN}"]}
    one = read(tmp_path, ".mcp.json", {"mcpServers": {"a": entry}}).sources[0]
    two = read(tmp_path, ".mcp.json", {"mcpServers": {"a": entry}}, TOKEN="other").sources[0]
    assert one.digest == two.digest
    assert isinstance(one.way, Command)
    assert one.way.shown == ("x", "--token", "${TOKEN}")
