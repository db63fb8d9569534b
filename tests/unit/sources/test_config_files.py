"""JSON with comments and TOML as configuration files have them: their values, and the line of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcpfleet.process.errors import ConfigurationError
from mcpfleet.sources.config_file import LARGEST, ConfigFile, path_of
from mcpfleet.sources.json_file import read_json
from mcpfleet.sources.toml_file import read_toml

JSON = """\
// where servers are
{
  "servers": {          /* VS Code
                           has comments */
    "memory": {
      "command": "npx", // it is downloaded
      "args": ["-y", "a//b",],
    },
  },
}
"""
TOML = '''\
# it's [a comment
include = [".mcp.json",
  "other.json"]
[sources.memory]
command = ["npx",
  "-y"]  # ]
env.TOKEN = { file = "x" }
description = """
[sources.none]
a = 1
"""
[sources.memory.tools."a.b"]
hide = true
'''


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_json_has_comments_and_commas_at_ends_and_each_member_has_its_line(tmp_path: Path) -> None:
    file = read_json(written(tmp_path, "mcp.json", JSON))
    assert file.value == {"servers": {"memory": {"command": "npx", "args": ["-y", "a//b"]}}}
    lines = {path_of(keys): line for keys, line in file.lines.items()}
    assert lines["servers"] == 3
    assert lines["servers.memory"] == 5
    assert lines["servers.memory.args[1]"] == 7


def test_toml_has_the_line_of_each_table_and_key_whatever_texts_and_comments_hold(tmp_path: Path) -> None:
    file = read_toml(written(tmp_path, "fleet.toml", TOML))
    lines = {path_of(keys): line for keys, line in file.lines.items()}
    assert lines["include"] == 2
    assert lines["sources.memory"] == 4
    assert lines["sources.memory.env.TOKEN"] == 7
    assert lines["sources.memory.tools.a.b.hide"] == 13
    assert not any("none" in way for way in lines)


def test_each_table_of_a_list_has_its_line(tmp_path: Path) -> None:
    file = read_toml(written(tmp_path, "fleet.toml", "[[a]]\nb = 1\n[[a]]\nb = 2\n"))
    assert file.place(("a", 1, "b")).endswith(":4")


def test_a_value_without_a_line_is_placed_by_what_holds_it(tmp_path: Path) -> None:
    file = read_toml(written(tmp_path, "fleet.toml", "\n[a]\nb = [1, 2]\n"))
    assert file.place(("a", "b", 1)).endswith("fleet.toml:3")
    assert ConfigFile(Path("fleet.toml"), {}).place(("x",)) == "fleet.toml"


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ('{"a": 1,\n "a": 2}', 2, "'a' stands twice in one object"),
        ('{"a"\n 1}', 2, "a colon is expected here, after 'a'"),
        ('{"a": 1\n"b": 2}', 2, "a comma is expected here, or }"),
        ("{a: 1}", 1, "a member's name in double quotes is expected here, or }"),
        ('{"a": NaN}', 1, "a value is expected here"),
        ('{"a": }', 1, "a value is expected here"),
        ('{"a":\n "x', 2, "this text in quotes is malformed or has no end"),
        ('{"a": 1}\n{', 2, "the JSON ends here, and more text follows"),
        ('{"a":' + "[" * 99, 1, "objects and lists are nested over 32 levels"),
    ],
)
def test_malformed_json_is_told_with_its_line(tmp_path: Path, text: str, line: int, why: str) -> None:
    with pytest.raises(ConfigurationError) as told:
        read_json(written(tmp_path, "mcp.json", text))
    assert str(told.value) == f"{tmp_path}/mcp.json:{line}: {why}"


def test_malformed_toml_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"fleet\.toml:2: Invalid value"):
        read_toml(written(tmp_path, "fleet.toml", "a = 1\nb = \n"))


def test_a_file_that_is_no_object_missing_large_or_no_text_is_told(tmp_path: Path) -> None:
    for content, why in (
        (b"[1]", "must hold a JSON object"),
        (b" " * (LARGEST + 1), f"more than {LARGEST} bytes"),
        (b"\xff\xfe", "not text in UTF-8"),
    ):
        file = tmp_path / "mcp.json"
        file.write_bytes(content)
        with pytest.raises(ConfigurationError, match=why):
            read_json(file)
    with pytest.raises(ConfigurationError, match="the file does not exist"):
        read_json(tmp_path / "other.json")


def test_a_mark_of_utf_8_at_the_beginning_means_nothing(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_bytes(b"\xef\xbb\xbf{}")
    assert read_json(file).value == {}
