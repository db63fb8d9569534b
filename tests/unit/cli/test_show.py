"""The output of `mcpfleet nats` and `mcpfleet settings`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from mcpfleet.cli.embedded_nats import find_server
from mcpfleet.cli.services import SETTINGS
from mcpfleet.cli.show import show_nats, show_settings
from mcpfleet.contracts.permissions import password_variable, users
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.settings import ProcessSettings, variable

POOLS = ["library", "my-app-2"]
PASSWORDS = {password_variable(user): f"password-of-{user}" for user in users(POOLS)}


def checked(configuration: str, folder: Path, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Have the server check a configuration, as its operator would."""
    file = folder / "nats.conf"
    file.write_text(configuration)
    command = [find_server(), "-t", "-c", str(file)]
    return subprocess.run(
        command, env={**os.environ, **environ}, capture_output=True, text=True, timeout=30, check=False
    )


def test_the_server_accepts_what_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_nats(POOLS, ProcessSettings())
    done = checked(capsys.readouterr().out, tmp_path, PASSWORDS)
    assert (done.returncode, "is valid" in done.stderr) == (0, True), done.stderr


def test_each_password_stays_in_the_environment_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server does not start without one of them."""
    show_nats(POOLS, ProcessSettings())
    printed = capsys.readouterr().out
    for name in PASSWORDS:
        assert f"#   {name}\n" in printed
        assert checked(printed, tmp_path, {other: PASSWORDS[other] for other in PASSWORDS if other != name}).returncode


@pytest.mark.parametrize("pool", ["My-App", "a.b", "a*", "", "a" * 64, "a\n"])
def test_a_pool_that_nats_cannot_permit_is_refused(pool: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigurationError, match="not a valid pool's name"):
        show_nats([pool], ProcessSettings())
    assert capsys.readouterr().out == ""


def test_every_setting_is_printed_with_its_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    show_settings(SETTINGS)
    printed = capsys.readouterr().out
    for cls in SETTINGS.values():
        for name, field in cls.model_fields.items():
            assert variable(name) in printed
            assert field.description, f"{name} says nothing of itself"


def test_a_pipe_gets_plain_columns_and_a_program_gets_json(capsys: pytest.CaptureFixture[str]) -> None:
    show_settings(SETTINGS)
    plain = capsys.readouterr().out
    assert plain.splitlines()[0].split() == ["setting", "value", "default", "read", "by", "meaning"]
    assert not any("\u2500" <= each <= "\u257f" for each in plain), "no boxes"
    show_settings({"edge": SETTINGS["edge"]}, as_json=True)
    names = {row["name"] for row in json.loads(capsys.readouterr().out)}
    assert "MCPFLEET_BIND" in names


def test_a_setting_shows_the_value_that_holds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Brackets are a part of an address, and no mark-up."""
    monkeypatch.setenv("MCPFLEET_BIND", "[::1]:9999")
    monkeypatch.setenv("MCPFLEET_NATS_PASSWORD", "very secret")
    show_settings({"edge": SETTINGS["edge"]})
    printed = capsys.readouterr().out
    assert "[::1]:9999" in printed
    assert "very secret" not in printed
