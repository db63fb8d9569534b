"""Tokens and headers of a command: as they are, or from files that are read anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcpfleet.cli.credentials import Credentials
from mcpfleet.process.errors import ConfigurationError


def test_a_file_is_read_for_each_request(tmp_path: Path) -> None:
    token, key = tmp_path / "token", tmp_path / "key"
    token.write_text("first\n")
    key.write_text("a b\n")
    credentials = Credentials(f"@{token}", [f"X-Key=@{key}", "X-Plain=c"])
    assert credentials.headers() == {"X-Key": "a b", "X-Plain": "c", "Authorization": "Bearer first"}
    token.write_text("second")
    assert credentials.headers()["Authorization"] == "Bearer second"
    token.unlink()
    with pytest.raises(ConfigurationError, match="--token: cannot read"):
        credentials.headers()


def test_a_token_as_it_is_and_none() -> None:
    assert Credentials("t").headers() == {"Authorization": "Bearer t"}
    assert Credentials(None).headers() == {}
    assert Credentials("").headers() == {}


@pytest.mark.parametrize(
    ("token", "headers", "says"),
    [
        ("s3cret words", [], "has a character that no bearer token has"),
        ("@{folder}/none", [], "No such file"),
        ("@{folder}/empty", [], "is empty"),
        ("@{folder}/bytes", [], "is not text"),
        (None, ["X"], "must be NAME=@FILE"),
        (None, ["X Y=s3cret"], "must be NAME=@FILE"),
        (None, ["Mcp-Method=s3cret"], "sets this header itself"),
        (None, ["content-length=s3cret"], "sets this header itself"),
        (None, ["X=s3cret\n"], "no header can carry"),
    ],
)
def test_what_is_malformed_is_said_without_its_value(
    token: str | None, headers: list[str], says: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "bytes").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match=says) as raised:
        Credentials(token.replace("{folder}", str(tmp_path)) if token else token, headers)
    assert "s3cret" not in str(raised.value)
