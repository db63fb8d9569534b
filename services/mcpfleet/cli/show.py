"""What `mcpfleet settings` and `mcpfleet nats` print."""

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
    # A pipe has no width: there the table is as wide as its text.
    (console if console.is_terminal else Console(width=_PIPE_WIDTH)).print(table)


def check_pools(pools: Sequence[str], whose: str = "pool's") -> None:
    """Refuse names that NATS could not permit; raises ConfigurationError."""
    for pool in pools:
        if not re.fullmatch(POOL_PATTERN, pool):
            raise ConfigurationError(f"{pool!r} is no {whose} name: it must be of the form {POOL_PATTERN}")


def show_nats(pools: Sequence[str], settings: ProcessSettings) -> None:
    """Print a part of nats.conf; the passwords stay in the environment of the NATS server.

    Raises:
        ConfigurationError: a pool has no name that NATS can permit.
    """
    check_pools(pools)
    typer.echo("# Made by `mcpfleet nats`: include it in nats.conf. NATS reads each password from its environment:")
    for user in users(pools):
        typer.echo(f"#   {password_variable(user)}")
    typer.echo(server_settings(pools, settings), nl=False)
