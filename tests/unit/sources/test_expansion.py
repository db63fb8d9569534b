"""`${…}` in a configuration stands for a text, and no source can be given a setting of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcpfleet.process.errors import ConfigurationError
from mcpfleet.sources.config_file import ConfigFile
from mcpfleet.sources.expansion import Expansion, literal_secrets
from mcpfleet.sources.source import Value

VARIABLES = {
    "USER": "eve", "EMPTY": "", "NESTED": "${USER}", "MCPFLEET_NATS_PASSWORD": "hidden", "MCPFLEET_INPUT_API_KEY": "k"
}  # fmt: skip


def expansion(folder: Path, **more: object) -> Expansion:
    return Expansion(ConfigFile(folder / ".vscode" / "mcp.json", {}, {("a",): 7}), VARIABLES, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("plain $USER {USER}", "plain $USER {USER}"),
        ("${USER}@${env:USER}", "eve@eve"),
        ("${NONE:-some default}", "some default"),
        ("${NONE:-}", ""),
        ("${USER:-other}", "eve"),
        ("${EMPTY:-other}", ""),
        ("${input:api-key}", "k"),
        ("${NESTED}", "${USER}"),
        ("${MCPFLEET_INPUT_API_KEY}", "k"),
    ],
)
def test_a_reference_is_replaced_once_by_what_it_names(tmp_path: Path, given: str, text: str) -> None:
    assert expansion(tmp_path).text(("a",), given).text == text


def test_the_workspace_is_above_an_editors_folder(tmp_path: Path) -> None:
    found = expansion(tmp_path).text((), "${workspaceFolder}:${userHome}")
    assert found.text == f"{tmp_path}:{Path.home()}"
    assert not found.is_secret


def test_what_comes_from_a_variable_is_secret_and_is_shown_by_its_name(tmp_path: Path) -> None:
    found = expansion(tmp_path).text((), "Bearer ${USER}")
    assert (found.text, found.shown, found.is_secret) == ("Bearer eve", "Bearer ${USER}", True)
    assert not expansion(tmp_path).text((), "${NONE:-x}").is_secret


@pytest.mark.rule("B28")
@pytest.mark.parametrize("given", ["${MCPFLEET_NATS_PASSWORD}", "${env:MCPFLEET_NATS_PASSWORD}", "${mcpfleet_x}"])
def test_a_reference_never_reads_a_setting_of_ours(tmp_path: Path, given: str) -> None:
    with pytest.raises(ConfigurationError, match="never given to a source"):
        expansion(tmp_path).text((), given)
    with pytest.raises(ConfigurationError, match="never given to a source"):
        expansion(tmp_path).value((), {"env": "MCPFLEET_NATS_PASSWORD"})
    assert expansion(tmp_path).text((), "${MCPFLEET_NATS_PASSWORD:-d}").text == "d"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("${NONE}", "the variable NONE is not set"),
        ("${input:other}", "set MCPFLEET_INPUT_OTHER, which answers for this input"),
        ("${USER", "'${USER' has no closing brace"),
        ("${command:x}", "has no meaning here; known are ${NAME}"),
        ("${A B}", "has no meaning here"),
        (3, "must be a text, not a number"),
        (None, "must be a text, not null"),
    ],
)
def test_a_reference_that_stands_for_nothing_is_told_with_its_line(tmp_path: Path, given: object, why: str) -> None:
    with pytest.raises(ConfigurationError) as told:
        expansion(tmp_path).text(("a",), given)
    assert why in str(told.value)
    assert "mcp.json:7: a: " in str(told.value)


def test_an_input_that_the_file_does_not_declare_is_told(tmp_path: Path) -> None:
    assert expansion(tmp_path, inputs=["api-key"]).text((), "${input:api-key}").text == "k"
    with pytest.raises(ConfigurationError, match="no input with the id 'key'"):
        expansion(tmp_path, inputs=["api-key"]).text((), "${input:key}")


def test_a_value_is_a_text_a_variable_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    expands = expansion(tmp_path)
    assert expands.value(("a",), "x") == Value(text="x", is_secret=False)
    assert expands.value(("a",), True) == Value(text="true", is_secret=False)
    assert expands.value(("a",), {"env": "USER"}) == Value(text="eve")
    assert expands.value(("a",), {"file": "secret"}) == Value(text="s3cret")
    assert expands.value(("API_KEY",), "x").is_secret
    for wrong, why in (
        ({"file": "none"}, "the file does not exist"),
        ({"env": "NONE"}, "the variable NONE is not set"),
        ({"env": "USER", "file": "x"}, "a reference is"),
        ({"env": 3}, "must be a variable's name, not a number"),
        (["x"], "not a list"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            expands.value(("a",), wrong)


@pytest.mark.rule("B28")
def test_no_value_shows_itself(tmp_path: Path) -> None:
    assert "eve" not in repr(expansion(tmp_path).value(("a",), "${USER}"))


def test_a_file_of_variables_has_quotes_and_comments(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("# mine\nA=1\nexport B = 'two words'\nC=\"x\\ny\"\nD=some # note\n\nE=a#b\n")
    found = {name: value.text for name, value in expansion(tmp_path).env_file((), ".env").items()}
    assert found == {"A": "1", "B": "two words", "C": "x\ny", "D": "some", "E": "a#b"}
    (tmp_path / ".env").write_text("A=1\nB\n")
    with pytest.raises(ConfigurationError, match=r"\.env:2: the line must be NAME=value"):
        expansion(tmp_path).env_file((), ".env")


@pytest.mark.rule("B28")
def test_a_secret_in_the_file_is_known_by_its_name() -> None:
    given = {
        "env": {"GITHUB_TOKEN": "ghp_x", "OTHER_TOKEN": "${TOKEN}", "THIRD_TOKEN": {"env": "X"}, "NODE_ENV": "test"},
        "headers": {"Authorization": "Bearer x"},
    }
    assert list(literal_secrets(given)) == [("env", "GITHUB_TOKEN"), ("headers", "Authorization")]
