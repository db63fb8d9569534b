"""Prints the output of `mcpfleet settings` and `mcpfleet nats`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import typer
from rich.console import Console
from rich.table import Table

from mcpfleet.contracts.manifest import POOL_PATTERN
from mcpfleet.contracts.permissions import password_variable, server_settings, users
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.settings import ProcessSettings, Settings
from mcpfleet.process.settings_table import SettingRow, rows

_PIPE_WIDTH: Final = 240
"""Characters of the table's width where no terminal gives one."""


def show_settings(services: Mapping[str, type[Settings]]) -> None:
    """Print a table of settings, each once, with the services that read it."""
    readers: dict[SettingRow, list[str]] = {}
    for name, cls in services.items():
        for row in rows(cls):
            readers.setdefault(row, []).append(name)
    table = Table("setting", "value", "default", "meaning", "read by", highlight=False)
    for row, names in sorted(readers.items(), key=lambda pair: pair[0].name):
        unit = f" {row.unit}" if row.unit else ""
        value = f"[bold]{row.value}[/]" if row.value != row.default else row.value
        everybody = len(names) == len(services) > 1
        table.add_row(row.name, value, row.default + unit, row.meaning, "all" if everybody else ", ".join(names))
    console = Console()
    # A pipe has no width: there the table is wide enough for its text.
    (console if console.is_terminal else Console(width=_PIPE_WIDTH)).print(table)


def check_pools(pools: Sequence[str], whose: str = "pool's") -> None:
    """Refuse names that cannot stand in a NATS subject; raises ConfigurationError."""
    for pool in pools:
        if not re.fullmatch(POOL_PATTERN, pool):
            raise ConfigurationError(f"{pool!r} is not a valid {whose} name: it must match {POOL_PATTERN}")


def show_nats(pools: Sequence[str], settings: ProcessSettings) -> None:
    """Print lines to include in nats.conf; the passwords stay in the NATS server's environment.

    Raises:
        ConfigurationError: a pool's name cannot stand in a NATS subject.
    """
    check_pools(pools)
    typer.echo("# Made by `mcpfleet nats`: include it in nats.conf. NATS reads each password from its environment:")
    for user in users(pools):
        typer.echo(f"#   {password_variable(user)}")
    typer.echo(server_settings(pools, settings), nl=False)
