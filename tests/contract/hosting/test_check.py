"""`mcpfleet check` for MCP servers that exist: each is started and listed, and what clients would see is shown."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from mcpfleet.cli.check_sources import check_sources
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.sources.target import SourceTarget
from mcpfleet.worker.hosting.source_app import source_app_of

SERVER = Path(__file__).with_name("server.py")
FLEET = """
[sources.demo]
command = [PYTHON, SERVER, "2025"]
prefix = "d_"
isolation = "shared"
only = ["echo", "pid", "fail"]
tools.echo.name = "repeat"
tools.fail.hide = true
tools.ecko.hide = true
"""


def fleet(folder: Path, more: str = "") -> str:
    file = folder / "fleet.toml"
    text = FLEET.replace("PYTHON", json.dumps(sys.executable)).replace("SERVER", json.dumps(str(SERVER)))
    file.write_text(text + more)
    return str(file)


def checked(capsys: pytest.CaptureFixture[str], target: str, *, as_json: bool = False) -> tuple[int, str, str]:
    code = check_sources(SourceTarget(targets=(target,)), as_json=as_json, within=30.0)
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.rule("B25")
def test_each_source_is_listed_with_what_is_renamed_left_out_and_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = checked(capsys, fleet(tmp_path))
    assert code == 0
    shown = out.splitlines()
    unwanted = {line for line in shown if line.endswith(": no pattern of `only` has it")}
    assert "    the tool sleep: no pattern of `only` has it" in unwanted
    assert [line for line in shown if line not in unwanted] == [
        f"demo: {sys.executable} {SERVER} 2025 ({tmp_path}/fleet.toml:2)",
        "  fixture 7",
        "  tools:",
        "    repeat()  (there: echo)",
        "    d_pid(key: str = …, number: int = …)",
        "  prompts:",
        "    d_review(title = …)",
        "  resources:",
        "    fixture://one",
        "  templates:",
        "    fixture://books/{book}",
        "  left out:",
        "    the tool fail: it is hidden",
        "    the resource no uri: name: a URI, absolute and normalized (RFC 3986)",
    ]
    assert "tools.ecko: the source has no such tool: did you mean 'echo'?" in err


def test_json_has_every_declaration_as_clients_would_see_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = checked(capsys, fleet(tmp_path), as_json=True)
    document: dict[str, Any] = json.loads(out)
    (demo,) = document["sources"]
    assert (code, document["ok"], demo["ok"], demo["name"]) == (0, True, True, "demo")
    repeat = demo["tools"][0]
    assert (repeat["declared"], repeat["name"], repeat["x-unknown"]) == ("echo", "repeat", {"kept": None})
    assert {"kind": "tool", "name": "fail", "why": "it is hidden", "wanted": True} in demo["left_out"]


@pytest.mark.rule("B25")
def test_a_source_that_cannot_be_served_is_named_and_the_others_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = """
[sources.none]
command = "no-such-program"
[sources.api]
openapi = "api.yaml"
"""
    (tmp_path / "api.yaml").touch()
    code, out, err = checked(capsys, fleet(tmp_path, more))
    assert code == 1
    assert "d_pid(" in out
    assert "none is not served: " in err
    assert "no-such-program" in err
    assert "api is not served: " in err
    assert "workers serve only commands, URLs and Python objects" in err


def test_a_worker_serves_one_source_of_a_file(tmp_path: Path) -> None:
    file = fleet(tmp_path, '[sources.other]\ncommand = "x"\nisolation = "call"\n')
    assert [each.name for each in source_app_of(f"{file}:other", {}).sources] == ["other"]
    assert source_app_of(f"{file}:other", {}).name == "other"
    with pytest.raises(ConfigurationError, match="has the sources demo, other, and a worker serves one"):
        source_app_of(file, {})
    with pytest.raises(ConfigurationError, match="no source 'othr': did you mean 'other'"):
        source_app_of(f"{file}:othr", {})


@pytest.mark.parametrize(("setting", "value"), [("asks", '["sampling"]'), ("era", '"2025"')])
def test_a_setting_of_a_tool_that_no_worker_does_yet_is_refused(tmp_path: Path, setting: str, value: str) -> None:
    file = fleet(tmp_path, f"[sources.demo.tools.pid]\n{setting} = {value}\n")
    with pytest.raises(ConfigurationError, match=rf"tools\.pid\.{setting}: no worker does this yet"):
        source_app_of(file, {})


def test_an_object_of_a_python_file_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = checked(capsys, f"{SERVER.with_name('object_servers.py')}:high")
    assert code == 0
    assert "  high 5" in out.splitlines()
    assert "    add(left: int, right: int)" in out.splitlines()
