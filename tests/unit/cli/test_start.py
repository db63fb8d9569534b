"""How a command starts: imports are most of its time, so it imports what it runs and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from math import inf

import pytest
import typer
from typer.testing import CliRunner

from mcpfleet.cli.commands import group
from tests.kit.commands import cpu

TRIES = 3
"""A busy machine makes a process slower, never faster: the best of so many is its own cost. The first may show it."""
OF_A_VERSION = 0.25
"""Seconds of CPU that `mcpfleet --version` may take."""
OF_A_CALL = 0.3
"""Seconds of CPU that `mcpfleet call` may take beside those of importing the official client."""
HEAVY = ("anyio", "httpx2", "jsonschema_rs", "mcp", "mcp_types", "nats", "pydantic", "rich", "sqlalchemy", "structlog")


def imported(*words: str) -> set[str]:
    """The top-level modules that a command has imported at its end."""
    program = (
        "import json, sys\n"
        "from mcpfleet.cli.__main__ import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    ("words", "typers"),
    [
        (["--version"], set()),
        (["--help"], set()),
        (["call", "--help"], {"pydantic"}),  # typer reads the types of a command's options by it
        (["tasks", "--help"], {"pydantic"}),
        (["stdio", "--help"], {"pydantic"}),
        (["stdio", "http://127.0.0.1:9/mcp"], {"anyio", "httpx2", "pydantic"}),  # its input ends at once
    ],
)
def test_a_command_that_runs_nothing_imports_nothing_heavy(words: list[str], typers: set[str]) -> None:
    assert imported(*words) & set(HEAVY) <= typers


def test_the_version_is_there_at_once() -> None:
    assert any(cpu("-m", "mcpfleet.cli", "--version") <= OF_A_VERSION for _ in range(TRIES))


def test_a_call_costs_little_more_than_the_official_client() -> None:
    """Nobody listens there, so a command costs its start. The import takes 1 s, or else the machine is slow."""
    client = call = inf
    for _ in range(TRIES):
        client = min(client, cpu("-c", "from mcp import Client"))
        call = min(call, cpu("-m", "mcpfleet.cli", "call", "http://127.0.0.1:9/mcp", "search"))
        if call <= client + OF_A_CALL * max(1.0, client):
            return
    pytest.fail(f"a call takes {call} s, and the client's import {client} s")


def test_every_command_of_the_table_is_declared_where_the_table_says() -> None:
    for commands in group.COMMANDS.values():
        for place in commands.values():
            module, _, attribute = place.partition(":")
            declared = getattr(import_module(f"mcpfleet.cli.commands.{module}"), attribute)
            assert isinstance(declared, typer.Typer) or declared.__doc__


def test_help_shows_the_commands_by_group_and_no_boxes_in_a_pipe() -> None:
    shown = CliRunner().invoke(group.app, ["--help"]).output
    places = [shown.index(f"{heading}:\n") for heading in group.COMMANDS]
    assert places == sorted(places)
    assert shown.isascii()
    assert "Exit codes: 0" in shown
